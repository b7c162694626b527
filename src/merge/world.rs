//! Whether the histories are one job, whole: which ranks are missing, which are there twice.

use std::collections::{BTreeMap, BTreeSet};

use super::rank::Rank;
use crate::report::text::plural;

/// What the histories are of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct World {
    /// How many ranks the job has, as its environment said.
    pub size: Option<u32>,
    /// Ranks without a history.
    pub missing: Vec<u32>,
    /// What a person should know of it.
    pub says: Vec<String>,
}

/// Puts ranks in order and leaves one history a rank. Those left out are said.
pub fn order(all: Vec<Rank>) -> (Vec<Rank>, World) {
    let mut world = World::default();
    let (ranked, mut others): (Vec<Rank>, Vec<Rank>) = all.into_iter().partition(|r| r.rank.is_some());
    let mut by: BTreeMap<u32, Vec<Rank>> = BTreeMap::new();
    for rank in ranked {
        by.entry(rank.rank.unwrap_or_default()).or_default().push(rank);
    }
    let mut ranks = Vec::new();
    for same in by.into_values() {
        ranks.extend(one_of(same, &mut world.says));
    }
    if ranks.is_empty() {
        others.sort_by_key(|r| (r.start, r.run.history.header.pid));
        ranks = others;
    } else if !others.is_empty() {
        let first = others[0].run.path().display();
        let n = others.len() as u64;
        let more = if n > 1 { " and others" } else { "" };
        let histories = if n == 1 { "1 history" } else { &format!("{n} histories") };
        world.says.push(format!("{histories} without a rank left out: {first}{more}"));
    }
    let programs: BTreeSet<String> = ranks.iter().map(program).collect();
    if programs.len() > 1 {
        let list: Vec<String> = programs.iter().take(4).cloned().collect();
        let more = if programs.len() > 4 { ", ..." } else { "" };
        world.says.push(format!("not one job, it seems: the histories are of {}{more}", list.join(", ")));
    }
    let known: BTreeSet<u32> = ranks.iter().filter_map(|r| r.rank).collect();
    let sizes: BTreeSet<u32> = ranks.iter().filter_map(|r| r.world.map(|w| w.1)).collect();
    let says = ranks.iter().find_map(|r| r.world.map(|w| w.0)).unwrap_or_default();
    if sizes.len() > 1 {
        let list: Vec<String> = sizes.iter().map(u32::to_string).collect();
        world.says.push(format!("not one job: {says} is {}", list.join(" in some and ")));
    }
    let jobs: BTreeSet<&str> = ranks.iter().filter_map(|r| r.run.history.header.job()).collect();
    if jobs.len() > 1 {
        let list: Vec<String> = jobs.iter().take(4).map(|j| crate::report::text::clean(j)).collect();
        let more = if jobs.len() > 4 { ", ..." } else { "" };
        world.says.push(format!("not one job: its id is {}{more}", list.join(" in some and ")));
    }
    world.size = sizes.last().copied();
    let highest = known.last().map_or(0, |r| r.saturating_add(1));
    // A number from outside: no list of millions.
    let all = world.size.unwrap_or(highest).max(highest).min(1 << 16);
    if !known.is_empty() {
        world.missing = (0..all).filter(|r| !known.contains(r)).collect();
    }
    if !world.missing.is_empty() {
        let of = match world.size {
            Some(size) => format!("{says} says {size}"),
            None => format!("the highest rank is {}", highest - 1),
        };
        let (n, list) = (world.missing.len() as u64, list(&world.missing));
        world.says.push(format!(
            "{of}, {} found: {} missing ({} touched no GPU, or its file is elsewhere: another host's disk?)",
            plural(known.len() as u64, "rank"),
            if n == 1 { format!("rank {list} is") } else { format!("ranks {list} are") },
            if n == 1 { "it" } else { "they" }
        ));
    }
    (ranks, world)
}

/// Of the processes of one rank the one that is the rank: no child of another, of the last run, which held most.
fn one_of(mut same: Vec<Rank>, says: &mut Vec<String>) -> Option<Rank> {
    let pids: Vec<u32> = same.iter().map(|r| r.run.history.header.pid).collect();
    let child = |r: &Rank| pids.contains(&r.run.history.header.parent);
    let run = |r: &Rank| (r.host().to_string(), r.run.history.header.pid);
    same.sort_by_key(|r| (child(r), std::cmp::Reverse(r.start), run(r)));
    if let Some(first) = same.first().map(run) {
        // One process with two histories: a program that became another by exec.
        let of_it = same.iter().take_while(|r| run(r) == first).count();
        same[..of_it].sort_by_key(|r| std::cmp::Reverse(r.reserved()));
    }
    let rest = same.split_off(1.min(same.len()));
    for r in &rest {
        let why = if child(r) { "of a child process" } else { "of an earlier run" };
        says.push(format!("{} has another history, {why}, left out: {}", r.name(), r.run.path().display()));
    }
    same.pop()
}

/// What a process ran: the script rather than the interpreter.
fn program(rank: &Rank) -> String {
    let h = &rank.run.history.header;
    let script = h.arguments.iter().skip(1).find(|a| !a.starts_with('-') && a.ends_with(".py"));
    let what = script.or(h.arguments.first()).unwrap_or(&h.program);
    crate::report::text::clean(crate::symbols::file_name(what))
}

/// `0-3, 7`.
pub fn list(numbers: &[u32]) -> String {
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for n in numbers {
        match parts.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*n) => *last = *n,
            _ => parts.push((*n, *n)),
        }
    }
    let text = |(from, to): &(u32, u32)| if from == to { from.to_string() } else { format!("{from}-{to}") };
    const MOST: usize = 10;
    let mut text: Vec<String> = parts.iter().take(MOST).map(text).collect();
    if parts.len() > MOST {
        text.push("...".to_string());
    }
    text.join(", ")
}

#[cfg(test)]
mod tests {
    #[test]
    fn lists_of_ranks() {
        assert_eq!(super::list(&[0, 1, 2, 5, 7, 8]), "0-2, 5, 7-8");
        assert_eq!(super::list(&[3]), "3");
    }
}
