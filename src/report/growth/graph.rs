//! Whether it is PyTorch's graph that keeps memory, and not the program itself.
//!
//! A list, a dictionary or a hook keeps what a line or a module results in, and a line may have several results
//! (`values, indices = x.topk(5)`). So a graph is claimed only where more shows than that; otherwise references are kept, which is
//! true in any case.

use std::collections::{HashMap, HashSet};

use super::Look;
use super::lines;
use super::shape::{self, Shape};
use super::suspect::{Kind, Part, Suspect};
use crate::report::facts::site::Site;
use crate::report::frames;

/// Rounds of a burst.
const ROUNDS: u64 = 8;
/// Lines of one call that keep their results: so many are no results of the call.
const LINES: usize = 3;
/// Intermediate results of a step that stay, at least.
const BETWEEN: f64 = 0.9;
/// How many times smaller a sum is than what it was made of.
const SUM: u64 = 16;

impl Look<'_> {
    /// Whether a site is made in the backward pass, and is no forward pass that is run again there.
    pub(super) fn is_backward(&self, s: &Site) -> bool {
        s.backward * 2 > s.count && !self.is_checkpointed(s.stack)
    }

    /// Whether a graph keeps what stays. Hooks, lists and dictionaries keep as much, so it has to show: in what stays, almost all
    /// that these sites make, are intermediate results that no name holds, together with what they were made of or lead to.
    /// Not if the backward pass frees the rest of what the call made: then the graph is gone, and hooks keep it. Of what is
    /// allocated less than `fewest` times nothing is said; `bursts`: how often it climbed to the most.
    pub(super) fn is_of_graph(&mut self, parts: &[Part], fewest: u64, bursts: u64) -> bool {
        let sites = &self.facts.sites.all;
        let grown: HashSet<u32> = parts.iter().map(|p| p.site).collect();
        let members = self.steps.map_or(&[][..], |s| &s.members);
        let of_loop = grown.iter().chain(members).map(|i| &sites[*i as usize]);
        let stacks: Vec<u32> = of_loop.filter(|s| s.tensor && !self.is_backward(s)).map(|s| s.stack).collect();
        // The line of the loop that it all comes from: the outermost in which they differ.
        let depth = if parts.len() > 1 { self.lines.common(stacks) } else { usize::MAX };
        // The last that each line and path makes, but for scratch (PyTorch 2.15 takes cuBLAS's workspace after the result).
        let mut results: HashMap<Vec<(u32, bool)>, (u64, u32)> = HashMap::new();
        let mut roots: HashMap<Vec<u32>, (u64, u32)> = HashMap::new();
        let mut calls: HashMap<u32, HashSet<Vec<u32>>> = HashMap::new();
        let mut went_backward = HashSet::new();
        let scratch = |s: &Site| s.live.0 == 0 && s.at_once.0 * 10 >= s.count * 9;
        for (i, s) in (0u32..).zip(sites) {
            if !s.tensor || self.is_backward(s) || s.count < fewest || scratch(s) {
                continue;
            }
            let path = self.lines.of(s.stack).to_vec();
            let Some(call) = lines::at(&path, depth) else { continue };
            if s.frees_backward * 10 >= s.count * 8 && !grown.contains(&i) {
                went_backward.insert(call);
            }
            calls.entry(call).or_default().insert(path.clone());
            for result in [results.entry(self.lines.path(s.stack)).or_default(), roots.entry(path).or_default()] {
                *result = (*result).max((s.last.1, i));
            }
        }
        let stays = |s: &Site, count: u64| count * bursts * 10 >= s.count * 9;
        // A loss, a sum: a program keeps that, and not what it was made of.
        let mut sums: HashMap<Vec<u32>, Vec<u32>> = HashMap::new();
        for (i, s) in (0u32..).zip(sites) {
            if s.tensor && s.count >= fewest && stays(s, s.most.count) {
                sums.entry(self.lines.of(s.stack).to_vec()).or_default().push(i);
            }
        }
        let mut kept: HashMap<u32, HashSet<Vec<u32>>> = HashMap::new();
        let (mut made, mut staying) = (Vec::new(), Vec::new());
        for p in parts {
            let s = &sites[p.site as usize];
            let line = self.lines.of(s.stack).to_vec();
            let Some(call) = lines::at(&line, depth) else { continue };
            if !s.tensor || self.is_backward(s) || self.is_without_graph(s.stack) || !stays(s, p.live.0) {
                continue;
            }
            let path = self.lines.path(s.stack);
            made.push((p, path.clone(), line.clone()));
            if !went_backward.contains(&call) {
                kept.entry(call).or_default().insert(line.clone());
                staying.push((p, path, line));
            }
        }
        // What it was made of stays too, or what was made of it in the backward pass.
        let backward = parts.iter().any(|p| self.is_backward(&sites[p.site as usize]));
        let before = |q: &Part, p: &Part| sites[q.site as usize].first.1 < sites[p.site as usize].first.1;
        let mut between: HashMap<(&Vec<u32>, bool), f64> = HashMap::new();
        for (p, path, line) in &staying {
            let (Some((_, root)), Some((_, result))) = (roots.get(line), results.get(path)) else { continue };
            let (s, root) = (&sites[p.site as usize], &sites[*root as usize]);
            let whole = backward || made.iter().any(|(q, other, _)| other != path && before(q, p));
            let is_sum = |i: &u32| {
                let sum = &sites[*i as usize];
                sum.last.1 > s.last.1 && sum.bytes * SUM * s.count <= s.bytes * sum.count
            };
            let (to_sum, root_stays) =
                (sums.get(line).is_some_and(|all| all.iter().any(is_sum)), stays(root, root.most.count));
            let in_module = path.last().is_some_and(|(_, user)| !user);
            // Hooks keep what modules result in, but not what these made it of, nor a loss besides. What a line's own expression
            // makes on the way has no name; only items of a tuple or a dictionary stay as it does, with its result, as large.
            let of_graph = if in_module { to_sum || whole && root_stays } else { whole && (to_sum || !root_stays) };
            if of_graph {
                *between.entry((line, in_module)).or_default() +=
                    if *result == p.site { p.count - 1.0 } else { p.count };
            }
        }
        // All lines of a module's forward, with what came in: more than a call gives back.
        let lines_stay = |(call, paths): (&u32, &HashSet<Vec<u32>>)| {
            let mut of_call = staying.iter().filter(|(_, _, line)| paths.contains(line));
            let in_module = |path: &[(u32, bool)]| self.lines.modules(path) > 0;
            let came_in = |p: &Part| made.iter().any(|(q, _, line)| !paths.contains(line) && before(q, p));
            paths.len() >= LINES
                && calls.get(call) == Some(paths)
                && of_call.all(|(p, path, _)| in_module(path) && came_in(p))
        };
        between.values().any(|n| *n >= BETWEEN) || kept.iter().any(lines_stay)
    }

    /// Whether the gradients of each backward pass are added to those before, as a graph (`create_graph=True`), and nothing ever
    /// takes them away: `AccumulateGrad` makes a new sum each time, and frees the one before it.
    pub(super) fn gradients_add_up(&mut self) -> bool {
        let Some(steps) = self.steps else { return false };
        let sums = |s: &&Site| s.tensor && s.backward * 2 > s.count && s.count * 10 >= steps.count * 8;
        // Taken away once a step, by zero_grad, they would be freed elsewhere as often.
        let stay = |s: &&Site| (s.frees - s.frees_backward.min(s.frees)) * steps.count <= s.count * 2;
        let stacks: Vec<u32> =
            self.facts.sites.all.iter().filter(sums).filter(|s| s.frees > 0).filter(stay).map(|s| s.stack).collect();
        self.names.resolve(&self.history.modules, frames::addresses(self.history, stacks.iter().copied()));
        stacks.into_iter().any(|stack| self.is_sum_of_gradients(stack))
    }

    /// Graphs that climb over many rounds and go at once, and no part of them in a backward pass.
    pub(super) fn bursts(&mut self) -> Option<Suspect> {
        let trains = self.facts.sites.all.iter().any(|s| s.backward > 0);
        let peak = self.facts.ledger.peak.in_use;
        if !trains {
            return None;
        }
        let mut parts = Vec::new();
        let (mut bursts, mut rounds, mut fewest) = (0, u64::MAX, u64::MAX);
        let mut more = false;
        for (i, s) in self.facts.sites.all.iter().enumerate() {
            let climbs = s.tensor && s.most.count >= ROUNDS && s.frees_backward * 20 <= s.frees;
            if !climbs || s.backward * 2 > s.count || s.frees * 2 < s.count {
                continue;
            }
            let n = shape::bursts(s);
            // Of what is made, at least a fifth stays: not the last few of many.
            if n < 2 || s.most.count * n * 5 < s.count {
                continue;
            }
            bursts = bursts.max(n);
            rounds = rounds.min(s.most.count);
            fewest = fewest.min(s.count / 2);
            let (count, bytes) = (s.most.count as f64, s.most.bytes as f64);
            more |= !self.lines.of(s.stack).is_empty();
            let live = (s.most.count, s.most.bytes);
            parts.push(Part { site: i as u32, bytes, count, live, exact: false, since: s.first.0 });
        }
        let bytes: f64 = parts.iter().map(|p| p.bytes).sum();
        if !more || bytes * 4.0 < peak as f64 || rounds < ROUNDS {
            return None;
        }
        for p in &mut parts {
            (p.bytes, p.count) = (p.bytes / rounds as f64, p.count / rounds as f64);
        }
        // Results of a round are what a validation gathers.
        if !self.is_of_graph(&parts, fewest, bursts) {
            return None;
        }
        let mut s = Suspect::of(Kind::GraphRetained, Shape::Bursts, parts, 0.0, true);
        s.bursts = (bursts, rounds);
        Some(s)
    }
}
