//! Two runs compared: before and after a change, with another batch size, with another version of a library.
//!
//! Each history is played once ([`run`], [`holdings`], [`live`]); then what each call stack held at the same moment
//! ([`basis`], [`held`]) is put side by side ([`chain`], [`align`], [`change`]), and the answer is written as
//! [`text`], [`json`] or a flame graph ([`flame`]). Nothing here prints. `merge` compares ranks with the same parts.

use crate::report::tally::Tally;
use crate::symbols::Names;

pub mod align;
pub mod basis;
pub mod chain;
pub mod change;
pub mod differs;
pub mod flame;
pub mod headline;
pub mod held;
pub mod holdings;
pub mod json;
pub mod live;
pub mod run;
pub mod series;
pub mod sums;
pub mod text;
pub mod verdict;

use basis::Basis;
use change::{Change, signed};
use differs::Differs;
use headline::Row;
use held::Look;
use run::Run;

/// What a comparison found.
#[derive(Debug)]
pub struct Diff {
    /// What is compared.
    pub basis: Basis,
    /// Numbers of both runs.
    pub headline: Vec<Row>,
    /// In what else they differ.
    pub differs: Vec<Differs>,
    /// Every stack that holds something in one of them, what changed most first.
    pub changes: Vec<Change>,
    /// Bytes on the devices in stacks too small to be told apart, before and after.
    pub rest: [u64; 2],
    /// Bytes in use on the devices at that moment, before and after.
    pub held: [u64; 2],
    /// Bytes reserved at most, before and after.
    pub reserved: [u64; 2],
    /// What limits the comparison.
    pub caveats: Vec<String>,
}

/// Compares two runs. Each has names of its own, because numbers mean other things in each.
pub fn compare(before: &Run, after: &Run, basis: &Basis, names: [&mut Names; 2], all_frames: bool) -> Diff {
    let [one, other] = names;
    let holders =
        |run: &Run, names: &mut Names| held::holders(run, &mut Look { names, all_frames }, |g| run.held.held(g));
    let (b, a) = (holders(before, one), holders(after, other));
    let total = |h: &held::Holders| {
        let device = h.list.iter().filter(|h| !h.host).map(|h| h.tally.bytes).sum::<u64>();
        device + h.rest[0].bytes
    };
    let held = [total(&b), total(&a)];
    let rest = [b.rest[0].bytes, a.rest[0].bytes];
    Diff {
        basis: basis.clone(),
        headline: headline::rows(before, after),
        differs: differs::differs(before, after),
        changes: change::changes(b, a),
        rest,
        held,
        reserved: [before, after].map(|r| r.held.reserved.bytes),
        caveats: caveats(before, after, basis),
    }
}

impl Diff {
    /// Bytes more at the moment; negative: less.
    pub fn grew(&self) -> i64 {
        signed(self.held[1]) - signed(self.held[0])
    }

    /// Changes of memory of the devices, or of the host.
    pub fn of(&self, host: bool) -> impl Iterator<Item = &Change> {
        self.changes.iter().filter(move |c| c.host == host)
    }

    /// What all changes of one direction on the devices amount to.
    pub fn sum(&self, grown: bool) -> u64 {
        let all = self.of(false).map(Change::bytes).filter(|b| if grown { *b > 0 } else { *b < 0 });
        all.map(i64::unsigned_abs).sum()
    }
}

/// What limits a comparison of these runs.
fn caveats(before: &Run, after: &Run, basis: &Basis) -> Vec<String> {
    let mut says = Vec::new();
    for (name, run) in [("before", before), ("after", after)] {
        says.extend(run.caveats().into_iter().map(|c| format!("{name}: {c}")));
    }
    if before.is_snapshot() != after.is_snapshot() && *basis != Basis::Total {
        says.push(format!("a snapshot is compared with a run {basis}: choose the moment of the snapshot by --at"));
    }
    if before.held.tensors() != after.held.tensors() {
        says.push(
            "only one run tells of PyTorch's tensors: in the other its segments stand in their place, by other stacks"
                .into(),
        );
    }
    let bare = |r: &Run| !r.held.groups().is_empty() && r.held.groups().iter().all(|g| g.stack == 0);
    match (bare(before), bare(after)) {
        (true, true) => says.push("neither history has call stacks: libraries are compared".into()),
        (true, false) | (false, true) => {
            says.push("only one history has call stacks: what it holds cannot be found in the other".into());
        }
        (false, false) => {}
    }
    says
}

/// A tally as bytes and a count.
pub(crate) fn in_words(tally: Tally) -> String {
    format!("{} in {}", crate::report::text::bytes(tally.bytes), crate::report::text::count(tally.count))
}

#[cfg(test)]
mod tests;
