//! One rank of a distributed job: who it is, and what its history comes to.

use std::collections::BTreeMap;

use crate::diff::headline;
use crate::diff::run::{Run, collective};
use crate::report::tally::Layer;
use crate::report::text::clean;

/// A process of the job.
#[derive(Debug)]
pub struct Rank {
    /// Its rank, if its environment had one.
    pub rank: Option<u32>,
    /// How many there are, and which variable says so, if the environment did.
    pub world: Option<(&'static str, u32)>,
    /// Its history.
    pub run: Run,
    /// Wall clock at its time 0, in nanoseconds since 1970, by its host's clock.
    pub start: u64,
    /// What to add to its host's clock to have the job's.
    pub offset: i64,
    /// What holds how much at its peak, by owner.
    pub owners: BTreeMap<String, u64>,
    /// How it ended, in a few words.
    pub ended: String,
    /// It did not end in good order.
    pub died: bool,
}

/// What tensors are called among the owners.
pub const TENSORS: &str = "PyTorch's tensors";

impl Rank {
    /// The rank of a run.
    pub fn of(run: Run) -> Rank {
        let h = &run.history.header;
        let rank = h.rank().and_then(|r| r.trim().parse().ok());
        let world = h.world().and_then(|(name, size)| Some((name, size.trim().parse().ok()?)));
        let start = h.start_seconds.saturating_mul(1_000_000_000).saturating_add(h.start_nanoseconds.into());
        let (ended, died) = ended(&run);
        let owners = owners(&run);
        Rank { rank, world, start, offset: 0, owners, ended, died, run }
    }

    /// What it is called: its rank, or its process.
    pub fn name(&self) -> String {
        self.rank.map_or_else(|| format!("pid {}", self.run.history.header.pid), |r| format!("rank {r}"))
    }

    /// The host.
    pub fn host(&self) -> &str {
        &self.run.history.header.host
    }

    /// A time of its history by the job's clock, in nanoseconds since 1970.
    pub fn wall(&self, time: u64) -> u64 {
        self.start.saturating_add(time).saturating_add_signed(self.offset)
    }

    /// Bytes in use at its peak.
    pub fn peak(&self) -> u64 {
        self.run.held.peak().bytes
    }

    /// Bytes reserved at most.
    pub fn reserved(&self) -> u64 {
        self.run.held.reserved.bytes
    }

    /// Bytes that libraries for communication hold at the peak.
    pub fn collectives(&self) -> u64 {
        self.owners.iter().filter(|(name, _)| collective(name)).map(|(_, bytes)| bytes).sum()
    }

    /// Bytes of other libraries at the peak, past the pool and PyTorch's allocator.
    pub fn others(&self) -> u64 {
        self.run.held.peak().sums.outside(self.run.held.tensors()).saturating_sub(self.collectives())
    }

    /// Bytes in use at the end.
    pub fn end(&self) -> u64 {
        self.run.held.now().active(self.run.held.tensors())
    }

    /// The UUIDs of its GPUs.
    pub fn gpus(&self) -> impl Iterator<Item = &str> {
        self.run.history.devices.values().map(|d| d.uuid.as_str()).filter(|u| !u.is_empty())
    }
}

/// What holds how much at a run's peak: tensors, the pool, each library.
fn owners(run: &Run) -> BTreeMap<String, u64> {
    let mut owners = headline::outside(run);
    let sums = run.held.peak().sums;
    for layer in [Layer::Tensor, Layer::Pool] {
        let bytes = sums.totals.layer(layer).bytes;
        if bytes > 0 {
            let name = if layer == Layer::Tensor { TENSORS } else { layer.name() };
            owners.insert(name.to_string(), bytes);
        }
    }
    owners
}

fn ended(run: &Run) -> (String, bool) {
    let h = &run.history;
    let oom = if h.ooms.is_empty() { "" } else { ", out of memory" };
    if let Some(signal) = h.signal() {
        let name = signal_hook::low_level::signal_name(signal).map_or(format!("signal {signal}"), str::to_string);
        return (format!("{name}{oom}"), true);
    }
    let (text, died) = match &h.footer {
        None if h.exited => ("exit".to_string(), false),
        None => ("not finished".to_string(), true),
        Some(f) => match (f.end.as_str(), f.status) {
            ("exit", Some(0) | None) => ("exit".to_string(), false),
            ("snapshot", _) => ("snapshot".to_string(), false),
            ("stopped", _) => ("recording stopped".to_string(), false),
            ("cut", _) => ("end lost".to_string(), true),
            ("killed", None) => ("killed".to_string(), true),
            ("killed", Some(0)) => ("left by _exit".to_string(), false),
            (_, Some(status)) => (format!("status {status}"), true),
            (other, None) => (clean(other), false),
        },
    };
    (format!("{text}{oom}"), died || !oom.is_empty() && text != "exit")
}
