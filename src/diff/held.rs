//! What a run held at the moment asked for, stack by stack, with names.

use std::collections::HashMap;

use super::chain::{Chain, Level};
use super::holdings::Group;
use super::run::Run;
use crate::report::frames::{self, Shown};
use crate::report::python::Whose;
use crate::report::tally::{Layer, Tally};
use crate::report::text::clean;
use crate::symbols::Names;

/// Groups looked at, the largest: what is smaller is summed up.
const CANDIDATES: usize = 5000;

/// What one stack holds.
#[derive(Clone, Debug)]
pub struct Held {
    /// The stack.
    pub chain: Chain,
    /// What it holds.
    pub tally: Tally,
    /// Entry point and caller, for what the stack does not say.
    pub note: String,
    /// What else must be equal in another run for it to be the same.
    pub kind: String,
    /// Host memory.
    pub host: bool,
}

/// Every stack that ever allocated, and what was too small to be told apart: on the device, and on the host.
#[derive(Clone, Debug, Default)]
pub struct Holders {
    /// What holds most first. Those that hold nothing are there, too: a stack that holds nothing now is not a new one.
    pub list: Vec<Held>,
    /// The sum of the rest.
    pub rest: [Tally; 2],
}

/// Where names are looked up, and how much of a stack counts.
pub struct Look<'a> {
    /// Names of this run's addresses.
    pub names: &'a mut Names,
    /// Every frame, also those that say nothing to most.
    pub all_frames: bool,
}

/// Who holds what in a run, by this measure of a group.
pub fn holders(run: &Run, look: &mut Look, measure: impl Fn(&Group) -> Tally) -> Holders {
    let mut groups: Vec<(&Group, Tally)> =
        run.held.groups().iter().filter(|g| run.held.counts(g)).map(|g| (g, measure(g))).collect();
    groups.sort_by_key(|(g, t)| (std::cmp::Reverse((t.bytes, g.ever.bytes)), g.stack));
    let mut holders = Holders::default();
    for (g, t) in groups.drain(groups.len().min(CANDIDATES)..) {
        holders.rest[usize::from(host(g))].merge(t);
    }
    look.names.know(&run.history.symbols);
    let addresses = frames::addresses(&run.history, groups.iter().map(|(g, _)| g.stack));
    look.names.resolve(&run.history.modules, addresses);
    let mut known: HashMap<(String, String), usize> = HashMap::new();
    for (group, tally) in groups {
        let mut shown = frames::shown(&run.history, look.names, group.stack).lines(look.all_frames);
        if !look.all_frames {
            shown.drain(..allocator(&shown));
        }
        let chain = Chain::of(shown);
        let kind = kind(run, group, &chain);
        let at = *known.entry((chain.key(Level::Lines), kind.clone())).or_insert_with(|| {
            let (note, host, tally) = (note(run, group), host(group), Tally::default());
            holders.list.push(Held { chain, tally, note, kind, host });
            holders.list.len() - 1
        });
        holders.list[at].tally.merge(tally);
    }
    holders.list.sort_by_key(|h| std::cmp::Reverse(h.tally.bytes));
    holders
}

/// How many frames at the start are PyTorch's allocator at work: they say nothing, and are others in each version.
fn allocator(shown: &[Shown]) -> usize {
    let own = |f: &&Shown| {
        let file = |text: &str| text.starts_with("libc10_cuda");
        f.whose == Whose::Native && (file(&f.place) || file(&f.what) || f.what.contains("CUDACachingAllocator"))
    };
    let count = shown.iter().take_while(own).count();
    if count == shown.len() { 0 } else { count }
}

fn host(group: &Group) -> bool {
    !group.layer.on_device() && group.layer != Layer::Tensor
}

/// What tells memory apart that has the same stack. The entry point does not: a run with another allocator has another.
fn kind(run: &Run, group: &Group, chain: &Chain) -> String {
    let place = if host(group) { "host" } else { "device" };
    if !chain.is_empty() {
        return place.to_string();
    }
    let caller = super::chain::library(run.history.module_name(group.caller));
    format!("{place} {caller} {}", group.layer.name())
}

fn note(run: &Run, group: &Group) -> String {
    let mut words = Vec::new();
    let api = group.api.name();
    if !api.is_empty() {
        words.push(api.to_string());
    } else if group.layer == Layer::Tensor {
        words.push("tensor".to_string());
    }
    if group.caller != 0 {
        words.push(format!("by {}", clean(run.history.module_name(group.caller))));
    }
    words.join(" ")
}
