//! What grew and what shrank, by stack.

use super::align::{Match, Side, align};
use super::held::{Held, Holders};
use crate::report::frames::Shown;
use crate::report::tally::Tally;

/// One stack in both runs.
#[derive(Clone, Debug)]
pub struct Change {
    /// What it held before.
    pub before: Tally,
    /// What it held after.
    pub after: Tally,
    /// How the stacks of the two runs match; `None`: only one has it.
    pub how: Option<Match>,
    /// Visible frames, innermost first: of the run after, or of the only one that has it.
    pub frames: Vec<Shown>,
    /// Those of the run before, where they differ.
    pub was: Option<Vec<Shown>>,
    /// For a flame graph: frames without lines, the outermost first.
    pub folded: Vec<String>,
    /// Entry point and caller.
    pub note: String,
    /// Host memory.
    pub host: bool,
}

impl Change {
    /// Bytes more; negative: less.
    pub fn bytes(&self) -> i64 {
        signed(self.after.bytes) - signed(self.before.bytes)
    }

    /// The run before never allocated there.
    pub fn is_new(&self) -> bool {
        self.how.is_none() && self.after.count > 0
    }

    /// The run after never allocated there.
    pub fn is_gone(&self) -> bool {
        self.how.is_none() && self.after.count == 0
    }
}

/// Bytes with a sign. No sum of bytes of a device comes near the limit.
pub fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// Every stack of two runs, what changed most first.
pub fn changes(before: Holders, after: Holders) -> Vec<Change> {
    let pairs = {
        let one: Vec<Side> = before.list.iter().map(side).collect();
        let other: Vec<Side> = after.list.iter().map(side).collect();
        align(&one, &other)
    };
    let take = |list: Vec<Held>| list.into_iter().map(Some).collect::<Vec<_>>();
    let (mut before, mut after) = (take(before.list), take(after.list));
    let mut changes = Vec::new();
    for pair in pairs {
        let (Some(b), Some(a)) = (before[pair.before].take(), after[pair.after].take()) else { continue };
        let was = (b.chain.shown != a.chain.shown).then_some(b.chain.shown);
        changes.push(Change { before: b.tally, how: Some(pair.how), was, ..alone(a, false) });
    }
    changes.extend(before.into_iter().flatten().map(|b| alone(b, true)));
    changes.extend(after.into_iter().flatten().map(|a| alone(a, false)));
    changes.retain(|c: &Change| c.before.count > 0 || c.after.count > 0);
    changes.sort_by_key(|c| std::cmp::Reverse(c.bytes().unsigned_abs()));
    changes
}

fn side(held: &Held) -> Side<'_> {
    Side { chain: &held.chain, kind: &held.kind }
}

/// A stack that only one run has.
fn alone(held: Held, gone: bool) -> Change {
    let zero = Tally::default();
    let (before, after) = if gone { (held.tally, zero) } else { (zero, held.tally) };
    Change {
        before,
        after,
        how: None,
        folded: held.chain.folded(),
        frames: held.chain.shown,
        was: None,
        note: held.note,
        host: held.host,
    }
}
