//! Which of the histories that were found are the job's: one a process, and no snapshot beside whole ones.

use std::collections::HashSet;

use super::rank::Rank;
use crate::diff::run::Run;
use crate::report::text::plural;

/// Files that are named of those left out.
const NAMED: usize = 3;

/// The ranks of these runs, and what was left out, a line each.
pub fn ranks(mut runs: Vec<Run>) -> (Vec<Rank>, Vec<String>) {
    let mut says = Vec::new();
    // A snapshot has no peak. Where there is nothing else, the ranks' last ones are shown.
    if runs.iter().any(|r| !r.is_snapshot()) {
        let (snapshots, whole): (Vec<Run>, Vec<Run>) = runs.into_iter().partition(Run::is_snapshot);
        runs = whole;
        says.extend(aside("snapshot", "left out, of one moment only", paths(&snapshots)));
    }
    // A copy with names (`vramscope symbolize`) is of the same process; it is the better one.
    runs.sort_by_key(|r| (r.history.symbols.is_empty(), std::cmp::Reverse(r.history.all_events())));
    let mut seen = HashSet::new();
    let (mut ranks, mut copies) = (Vec::<Rank>::new(), Vec::new());
    for run in runs {
        let h = &run.history.header;
        let process = (h.host.clone(), h.pid, h.start_seconds, h.start_nanoseconds);
        if seen.insert(process) {
            ranks.push(Rank::of(run));
        } else {
            copies.push(run);
        }
    }
    says.extend(aside("more file", "left out, of a process that is shown already", paths(&copies)));
    (ranks, says)
}

fn paths(runs: &[Run]) -> impl ExactSizeIterator<Item = String> {
    runs.iter().map(|r| r.path().display().to_string())
}

/// The line of files that are not among the ranks: what they are, why, and the first of them.
pub fn aside(what: &str, why: &str, files: impl ExactSizeIterator<Item = String>) -> Option<String> {
    let all = files.len();
    let first: Vec<String> = files.take(NAMED).collect();
    let more = if all > NAMED { format!("; and {} more", all - NAMED) } else { String::new() };
    (all > 0).then(|| format!("{} {why}: {}{more}", plural(all as u64, what), first.join("; ")))
}
