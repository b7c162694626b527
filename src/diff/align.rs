//! Which stack of one run is which of the other. Exact ones first; then those of the same functions, told apart by their
//! lines and put side by side in order; then by bare names; at last those that are nearly the same.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::chain::{Chain, Level};

/// How two stacks were found to be the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Match {
    /// Function, file and line of every frame.
    Exact,
    /// The same functions; lines moved.
    Lines,
    /// The same names; files, classes, inlined frames or libraries differ.
    Names,
    /// The same without frames that only one run has: renamed functions, or new ones in between.
    Nearly,
}

/// A pair of stacks: their places in the lists that were given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// In the first list.
    pub before: usize,
    /// In the second.
    pub after: usize,
    /// How they match.
    pub how: Match,
}

/// A stack to be matched.
pub struct Side<'a> {
    /// The stack.
    pub chain: &'a Chain,
    /// What else must be equal: host memory is not device memory, and without a stack there is only the library.
    pub kind: &'a str,
}

/// Cells of a table of distances; larger classes are put side by side in order.
const TABLE: usize = 1 << 20;

/// Matches stacks. What is in no pair is new, or gone.
pub fn align(before: &[Side], after: &[Side]) -> Vec<Pair> {
    let mut pairs = Vec::new();
    let mut left: [Vec<usize>; 2] = [(0..before.len()).collect(), (0..after.len()).collect()];
    for (level, how) in [(Level::Functions, Match::Lines), (Level::Names, Match::Names)] {
        let mut classes: BTreeMap<(String, &str), [Vec<usize>; 2]> = BTreeMap::new();
        for (side, all) in [before, after].into_iter().enumerate() {
            for i in left[side].drain(..) {
                let key = (all[i].chain.key(level), all[i].kind);
                classes.entry(key).or_default()[side].push(i);
            }
        }
        for [one, other] in classes.into_values() {
            let (found, rest) = side_by_side(one, other, before, after);
            for (b, a) in found {
                let exact = before[b].chain.key(Level::Lines) == after[a].chain.key(Level::Lines);
                let how = if level == Level::Functions && exact { Match::Exact } else { how };
                pairs.push(Pair { before: b, after: a, how });
            }
            for (side, rest) in rest.into_iter().enumerate() {
                left[side].extend(rest);
            }
        }
    }
    nearly(&left, before, after, &mut pairs);
    pairs
}

/// What two lists of stacks of the same functions leave unmatched.
type Rest = [Vec<usize>; 2];

/// Puts stacks of the same functions side by side. As many on both sides: in the order of their lines, whatever these
/// are, for a shift moves all. Else so that lines differ least.
fn side_by_side(
    mut one: Vec<usize>,
    mut other: Vec<usize>,
    before: &[Side],
    after: &[Side],
) -> (Vec<(usize, usize)>, Rest) {
    if one.is_empty() || other.is_empty() {
        return (Vec::new(), [one, other]);
    }
    one.sort_by_cached_key(|i| before[*i].chain.lines());
    other.sort_by_cached_key(|i| after[*i].chain.lines());
    if one.len() == other.len() {
        return (one.into_iter().zip(other).collect(), Rest::default());
    }
    if one.len() * other.len() > TABLE {
        return by_line(one, other, before, after);
    }
    // The shorter list is matched whole, in order: the classic table of distances.
    let swapped = one.len() > other.len();
    let (short, long) = if swapped { (&other, &one) } else { (&one, &other) };
    let lines = |i: usize, first: bool| if first != swapped { before[i].chain.lines() } else { after[i].chain.lines() };
    let short_lines: Vec<_> = short.iter().map(|i| lines(*i, true)).collect();
    let long_lines: Vec<_> = long.iter().map(|i| lines(*i, false)).collect();
    let chosen = cheapest(&short_lines, &long_lines);
    let found: Vec<(usize, usize)> =
        short.iter().zip(&chosen).map(|(s, at)| if swapped { (long[*at], *s) } else { (*s, long[*at]) }).collect();
    let taken: HashSet<usize> = chosen.into_iter().collect();
    let rest: Vec<usize> = long.iter().enumerate().filter(|(at, _)| !taken.contains(at)).map(|(_, i)| *i).collect();
    let rest = if swapped { [rest, Vec::new()] } else { [Vec::new(), rest] };
    (found, rest)
}

/// For each of the short list its place in the long one: in order, at the least distance in all.
fn cheapest(short: &[Vec<u64>], long: &[Vec<u64>]) -> Vec<usize> {
    let (n, m) = (short.len(), long.len());
    let width = m + 1;
    let mut cost = vec![u64::MAX; (n + 1) * width];
    cost[..=m].fill(0);
    for i in 1..=n {
        for j in i..=m {
            let with = cost[(i - 1) * width + j - 1].saturating_add(distance(&short[i - 1], &long[j - 1]));
            cost[i * width + j] = with.min(cost[i * width + j - 1]);
        }
    }
    let mut chosen = vec![0; n];
    let mut j = m;
    for i in (1..=n).rev() {
        while j > i && cost[i * width + j] == cost[i * width + j - 1] {
            j -= 1;
        }
        chosen[i - 1] = j - 1;
        j -= 1;
    }
    chosen
}

fn distance(one: &[u64], other: &[u64]) -> u64 {
    let lengths = one.len().abs_diff(other.len()) as u64;
    let lines: u64 = one.iter().zip(other).map(|(a, b)| a.abs_diff(*b).min(1 << 30)).sum();
    lines + lengths
}

/// Too many for a table: those of equal lines, then the rest in order.
fn by_line(one: Vec<usize>, other: Vec<usize>, before: &[Side], after: &[Side]) -> (Vec<(usize, usize)>, Rest) {
    let mut by_lines: HashMap<Vec<u64>, Vec<usize>> = HashMap::new();
    for a in other.iter().rev() {
        by_lines.entry(after[*a].chain.lines()).or_default().push(*a);
    }
    let mut found = Vec::new();
    let mut rest: Rest = Rest::default();
    for b in one {
        match by_lines.get_mut(&before[b].chain.lines()).and_then(Vec::pop) {
            Some(a) => found.push((b, a)),
            None => rest[0].push(b),
        }
    }
    let taken: HashSet<usize> = found.iter().map(|(_, a)| *a).collect();
    rest[1] = other.into_iter().filter(|a| !taken.contains(a)).collect();
    let n = rest[0].len().min(rest[1].len());
    let [ones, others] = &mut rest;
    found.extend(ones.drain(..n).zip(others.drain(..n)));
    (found, rest)
}

/// Stacks that are the same without the frames that only one of the runs has anywhere: a function was renamed, or came
/// between. At most a frame in four may be such, but one always.
fn nearly(left: &[Vec<usize>; 2], before: &[Side], after: &[Side], pairs: &mut Vec<Pair>) {
    if left.iter().any(Vec::is_empty) {
        return;
    }
    let words = |all: &[Side]| all.iter().flat_map(|s| s.chain.names()).collect::<HashSet<String>>();
    let (ones, others) = (words(before), words(after));
    let mut classes: BTreeMap<(String, &str), [Vec<usize>; 2]> = BTreeMap::new();
    for (side, (all, words)) in [(before, &others), (after, &ones)].into_iter().enumerate() {
        for i in &left[side] {
            let names = all[*i].chain.names();
            let known: Vec<&str> = names.iter().filter(|n| words.contains(*n)).map(String::as_str).collect();
            let unknown = names.len() - known.len();
            if known.len() >= 2 && unknown <= (names.len() / 4).max(1) {
                classes.entry((known.join("\n"), all[*i].kind)).or_default()[side].push(*i);
            }
        }
    }
    for [one, other] in classes.into_values() {
        let (found, _) = side_by_side(one, other, before, after);
        pairs.extend(found.into_iter().map(|(b, a)| Pair { before: b, after: a, how: Match::Nearly }));
    }
}

#[cfg(test)]
mod tests;
