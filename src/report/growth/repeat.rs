//! How often a program's main loop repeats, as far as its allocations tell: as often as most places that come back regularly.
//!
//! A model without a backward pass is a loop inside of the loop: its layers come back as regularly as the steps, and more often.
//! What repeats is the whole, with what is made once around the layers: so where all that comes more often lies in one call of
//! a loop that makes more than this call, the loop's are the steps.

use std::collections::{BTreeMap, HashSet};

use super::lines::{self, Lines};
use crate::report::facts::Facts;
use crate::report::facts::site::Site;

/// Fewer are no loop.
pub const FEWEST: u64 = 6;

/// How often the loop repeats; missing if nothing does.
pub fn count(facts: &Facts, lines: &mut Lines) -> Option<u64> {
    let regular: Vec<&Site> = facts.sites.all.iter().filter(|s| is_regular(facts, s)).collect();
    // What is only kept may be the loading of a model, in which nothing is a step.
    let mut counts: Vec<u64> = regular.iter().filter(|s| s.stayed * 2 <= s.count).map(|s| s.count).collect();
    counts.sort_unstable();
    let as_many = |count: u64| {
        let slack = slack(count);
        counts.partition_point(|c| *c <= count + slack) - counts.partition_point(|c| c + slack < count)
    };
    let mut count = *counts.iter().max_by_key(|count| (as_many(**count), **count))?;
    while let Some(outer) = around(facts, lines, &regular, count) {
        count = outer;
    }
    Some(count)
}

/// The sites that come as often, regularly.
pub fn alike(facts: &Facts, count: u64) -> Vec<u32> {
    let is_member = |s: &Site| s.count.abs_diff(count) <= slack(count) && is_regular(facts, s);
    (0u32..).zip(&facts.sites.all).filter(|(_, s)| is_member(s)).map(|(i, _)| i).collect()
}

/// Whether what comes at least as often is made by several lines of a loop, or by one and the backward pass: then that is no
/// loop inside of a call.
pub fn is_of_lines(facts: &Facts, lines: &mut Lines, count: u64) -> bool {
    let often = facts.sites.all.iter().filter(|s| !s.torch && s.count + slack(count) >= count);
    let stacks: Vec<u32> = often.map(|s| s.stack).collect();
    let depth = lines.common(stacks.iter().copied());
    let places: HashSet<_> = stacks.into_iter().map(|stack| lines::at(lines.of(stack), depth)).collect();
    places.len() > 1
}

fn slack(count: u64) -> u64 {
    (count / 50).max(1)
}

fn is_regular(facts: &Facts, s: &Site) -> bool {
    let span = s.last.1.saturating_sub(s.first.1);
    !s.torch && s.count >= FEWEST && span * 5 >= facts.allocations() * 2 && s.rhythm.is_regular()
}

/// How often a loop repeats in which what comes `count` times is a loop inside of one call.
fn around(facts: &Facts, lines: &mut Lines, regular: &[&Site], count: u64) -> Option<u64> {
    // As often as the loop around it, times the layers; the last round may be cut short.
    let is_part = |outer: u64| {
        let times = (count + outer / 2) / outer;
        times >= 2 && count.abs_diff(outer * times) <= times.min(count / 50).max(1)
    };
    let mut groups: BTreeMap<u64, (u64, Vec<u32>)> = BTreeMap::new();
    for s in regular.iter().filter(|s| is_part(s.count)) {
        let group = groups.entry(s.count).or_default();
        group.0 += s.count;
        group.1.push(s.stack);
    }
    let (outer, (made, around)) = groups.into_iter().max_by_key(|(outer, group)| (group.0, *outer))?;
    let inner: Vec<&Site> = facts.sites.all.iter().filter(|s| !s.torch && s.count + slack(count) >= count).collect();
    // Much of what repeats is made around the layers; or at least they are those of a module in a module.
    let much = made * 10 >= inner.iter().map(|s| s.count).sum::<u64>();
    let mut paths = |stacks: Vec<u32>| stacks.into_iter().map(|stack| lines.path(stack)).collect::<Vec<_>>();
    let (inner, around) = (paths(inner.iter().map(|s| s.stack).collect()), paths(around));
    if inner.iter().chain(&around).all(Vec::is_empty) {
        return much.then_some(outer);
    }
    let depth = common(inner.iter().chain(around.iter().filter(|p| !p.is_empty())));
    let line = |path: &Vec<(u32, bool)>| path.get(depth).or(path.last()).copied();
    let call: HashSet<_> = inner.iter().map(line).collect();
    let one_call = call.len() == 1 && around.iter().any(|path| !call.contains(&line(path)));
    let nested = || lines.modules(&inner[0][..common(&inner)]) >= 2;
    (one_call && (much || nested())).then_some(outer)
}

/// How many lines, from the outermost on, all paths have in common.
fn common<'a>(paths: impl IntoIterator<Item = &'a Vec<(u32, bool)>>) -> usize {
    let mut paths = paths.into_iter();
    let Some(first) = paths.next() else { return 0 };
    paths.fold(first.len(), |depth, path| first[..depth].iter().zip(path).take_while(|(a, b)| a == b).count())
}
