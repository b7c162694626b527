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
        let (snapshots, whole) = runs.into_iter().partition(Run::is_snapshot);
        runs = whole;
        says.extend(left_out(&snapshots, "snapshot", "of one moment only"));
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
    says.extend(left_out(&copies, "more file", "of a process that is shown already"));
    (ranks, says)
}

fn left_out(runs: &[Run], what: &str, why: &str) -> Option<String> {
    let first: Vec<String> = runs.iter().take(NAMED).map(|r| r.path().display().to_string()).collect();
    let more = if runs.len() > NAMED { format!(" and {} more", runs.len() - NAMED) } else { String::new() };
    let n = plural(runs.len() as u64, what);
    (!runs.is_empty()).then(|| format!("{n} left out, {why}: {}{more}", first.join(", ")))
}

/// The line of files that could not be read, with what was wrong.
pub fn unread(errors: &[anyhow::Error]) -> Option<String> {
    let first: Vec<String> = errors.iter().take(NAMED).map(|e| format!("{e:#}")).collect();
    let more = if errors.len() > NAMED { format!("; and {} more", errors.len() - NAMED) } else { String::new() };
    let n = plural(errors.len() as u64, "file");
    (!errors.is_empty()).then(|| format!("{n} could not be read: {}{more}", first.join("; ")))
}
