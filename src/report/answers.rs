//! All answers of a history, each computed once: what the terminal shows, `--json` prints, `check` asserts and the page
//! draws. The fields are described in `docs/report-json.md`.

use serde::Serialize;

use super::Page;
use super::by::By;
use super::churned::{self, Churned};
use super::devices::{self, DeviceAnswer};
use super::glance::{self, Glance};
use super::history::History;
use super::holders::{self, Holders};
use super::named::{self, Named};
use super::oom::{self, OutOfMemory};
use super::owners;
use super::pinned::{self, Pinned};
use super::suspects::{self, Leaks};
use super::text::clean;
use super::verdict::Verdict;
use crate::moment::Moment;

/// Version of the fields. It grows when one changes its meaning or goes; new ones may come without.
pub const VERSION: u32 = 1;

/// The program that ran.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Program {
    /// Its command line.
    pub command: Vec<String>,
    /// Process id.
    pub pid: u32,
    /// Host.
    pub host: String,
    /// Rank variables, as the environment had them.
    pub rank: std::collections::BTreeMap<String, String>,
    /// Time of the last event: nanoseconds since recording began.
    pub time: u64,
    /// Events.
    pub events: u64,
    /// How it ended, in words.
    pub end: String,
    /// Its exit status, or 128 + signal, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<i32>,
    /// It did not end by itself.
    pub killed: bool,
    /// Only the last part of the history is there.
    pub last_part_only: bool,
    /// It is what was live at one moment, and no history.
    pub snapshot: bool,
    /// Why the history may not hold all that the program did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub incomplete: Option<String>,
    /// Recording was paused meanwhile.
    pub paused: bool,
    /// What could not be read of the history.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damage: Option<String>,
}

/// What one library holds past the pool and PyTorch, in one way.
#[derive(Clone, Debug, Serialize)]
pub struct OwnerAnswer {
    /// Its file's name.
    pub library: String,
    /// The kind of memory.
    pub kind: &'static str,
    /// Why the pool did not serve it.
    pub source: &'static str,
    /// Bytes when most was active.
    pub at_peak: u64,
    /// Bytes at the end.
    pub at_end: u64,
    /// Allocations ever.
    pub allocations: u64,
}

/// Allocations of device memory up to one size.
#[derive(Clone, Debug, Serialize)]
pub struct SizeAnswer {
    /// Bytes up to which.
    pub up_to: u64,
    /// How many.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Of these from a cached block of the pool.
    pub from_pool: u64,
    /// Nanoseconds of the driver, in all, as far as they were timed.
    pub driver_took: u64,
    /// Calls that were timed.
    pub driver_timed: u64,
}

/// All answers.
#[derive(Clone, Debug, Serialize)]
pub struct Answers {
    /// `vramscope-report`.
    pub format: &'static str,
    /// [`VERSION`].
    pub version: u32,
    /// The program.
    pub program: Program,
    /// At a glance.
    pub glance: Glance,
    /// Why out of memory.
    pub out_of_memory: Vec<OutOfMemory>,
    /// Is it a leak.
    pub leaks: Leaks,
    /// Who holds it, at each moment that was asked for: at the peak and at the end, if none was.
    pub holders: Vec<Holders>,
    /// What pins PyTorch's segments, about when most was reserved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holes: Option<Pinned>,
    /// Memory past the pool, by library.
    pub outside_pool: Vec<OwnerAnswer>,
    /// Regions and marks.
    pub named: Named,
    /// Device by device.
    pub devices: Vec<DeviceAnswer>,
    /// Churn.
    pub churn: Churned,
    /// Sizes of device allocations.
    pub sizes: Vec<SizeAnswer>,
    /// What the library had to say.
    pub notes: Vec<String>,
}

/// What is asked.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// Moments; none: the peak and the end.
    pub at: Vec<Moment>,
    /// How holders are put together.
    pub by: By,
}

impl Answers {
    /// Answers everything. An error says which moment the history does not have.
    pub fn of(page: &mut Page, history: &History, asked: &Asked) -> Result<Answers, String> {
        // What the history itself says (`vramscope symbolize`) needs no file.
        page.names.know(&history.symbols);
        let moments = if asked.at.is_empty() { vec![Moment::Peak, Moment::End] } else { asked.at.clone() };
        let mut leaks = suspects::of(page, history);
        let mut holes = history.facts.holes.iter().find(|h| !h.failure && h.segments > 0);
        if history.pauses.any() {
            // What is there but was not recorded looks like free memory, and what was freed then as if it stayed.
            leaks.suspects.clear();
            holes = None;
        }
        let mut holders = Vec::new();
        for wanted in &moments {
            holders.push(holders::of(page, history, wanted, asked.by)?);
        }
        let mut answers = Answers {
            format: "vramscope-report",
            version: VERSION,
            program: program(history),
            glance: glance::of(history),
            out_of_memory: oom::of(page, history),
            holders,
            holes: holes.map(|holes| pinned::of(page, history, holes)),
            outside_pool: owners::owners(history).iter().map(|o| owner(history, o)).collect(),
            named: named::of(history),
            devices: devices::of(history),
            churn: churned::of(page, history, leaks.steps.as_ref()),
            leaks,
            sizes: sizes(history),
            notes: history.notes.iter().map(|n| clean(&n.message)).collect(),
        };
        answers.glance.verdict = Verdict::of(&answers);
        Ok(answers)
    }
}

fn program(history: &History) -> Program {
    let h = &history.header;
    Program {
        command: if h.arguments.is_empty() { vec![h.program.clone()] } else { h.arguments.clone() },
        pid: h.pid,
        host: h.host.clone(),
        rank: h.rank.clone(),
        time: history.end,
        events: history.all_events(),
        end: super::ended(history),
        status: history.footer.as_ref().and_then(|f| f.status),
        killed: history.killed(),
        last_part_only: history.is_part(),
        snapshot: history.is_snapshot(),
        paused: history.pauses.any(),
        incomplete: history.incomplete(history.events),
        damage: history.damage.clone(),
    }
}

fn owner(history: &History, o: &owners::Owner) -> OwnerAnswer {
    let library = if o.caller == 0 { "(unknown)".to_string() } else { clean(history.module_name(o.caller)) };
    OwnerAnswer {
        library,
        kind: o.layer.name(),
        source: o.source.name(),
        at_peak: o.at_peak.bytes,
        at_end: o.now.bytes,
        allocations: o.ever.count,
    }
}

fn sizes(history: &History) -> Vec<SizeAnswer> {
    let buckets = history.sizes.buckets.iter().enumerate().filter(|(_, b)| b.count > 0);
    let size = |(i, b): (usize, &super::sizes::Bucket)| SizeAnswer {
        up_to: 1u64.checked_shl(i as u32).unwrap_or(u64::MAX),
        count: b.count,
        bytes: b.bytes,
        from_pool: b.hits,
        driver_took: b.took,
        driver_timed: b.timed,
    };
    buckets.map(size).collect()
}
