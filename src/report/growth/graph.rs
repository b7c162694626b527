//! Whether it is PyTorch's graph that keeps memory, and not the program itself.
//!
//! A list or a dictionary keeps what a line of the program results in; what lies between only the graph knows. A line that has several
//! results (`values, indices = x.topk(5)`), all of which are kept, can't be told from that.

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

impl Look<'_> {
    /// Whether a site is made in the backward pass, and is no forward pass that is run again there.
    pub(super) fn is_backward(&self, s: &Site) -> bool {
        s.backward * 2 > s.count && !self.is_checkpointed(s.stack)
    }

    /// Whether a graph keeps a good part of what stays: more of a line than its result, or the results of all lines of a call.
    /// Not if the backward pass frees the rest of what the call made: then the graph is gone, and hooks keep it. Of what is
    /// allocated less than `fewest` times nothing is said.
    pub(super) fn is_of_graph(&mut self, parts: &[Part], fewest: u64) -> bool {
        let sites = &self.facts.sites.all;
        let grown: HashSet<u32> = parts.iter().map(|p| p.site).collect();
        let members = self.steps.map_or(&[][..], |s| &s.members);
        let of_loop = grown.iter().chain(members).map(|i| &sites[*i as usize]);
        let stacks: Vec<u32> = of_loop.filter(|s| s.tensor && !self.is_backward(s)).map(|s| s.stack).collect();
        // The line of the loop that it all comes from: the outermost in which they differ.
        let depth = if parts.len() > 1 { self.lines.common(stacks) } else { usize::MAX };
        // The last that each line makes, but for scratch (PyTorch 2.15 takes cuBLAS's workspace after the result): its result.
        let mut results: HashMap<Vec<u32>, (u64, u32)> = HashMap::new();
        let mut calls: HashMap<u32, HashSet<Vec<u32>>> = HashMap::new();
        let mut went_backward = HashSet::new();
        let scratch = |s: &Site| s.live.0 == 0 && s.at_once.0 * 10 >= s.count * 9;
        for (i, s) in sites.iter().enumerate() {
            if !s.tensor || self.is_backward(s) || s.count < fewest || scratch(s) {
                continue;
            }
            let path = self.lines.of(s.stack).to_vec();
            let Some(call) = lines::at(&path, depth) else { continue };
            if s.frees_backward * 10 >= s.count * 8 && !grown.contains(&(i as u32)) {
                went_backward.insert(call);
            }
            calls.entry(call).or_default().insert(path.clone());
            let result = results.entry(path).or_default();
            *result = (*result).max((s.last.1, i as u32));
        }
        let (mut all, mut between) = (0.0, 0.0);
        let mut kept: HashMap<u32, HashSet<Vec<u32>>> = HashMap::new();
        for p in parts {
            all += p.bytes;
            let s = &sites[p.site as usize];
            let path = self.lines.of(s.stack).to_vec();
            let Some(call) = lines::at(&path, depth) else { continue };
            if !s.tensor || self.is_backward(s) || self.is_without_graph(s.stack) || went_backward.contains(&call) {
                continue;
            }
            // A line that is run once a step has one result.
            let is_result = results.get(&path).is_some_and(|(_, last)| *last == p.site);
            between += match is_result {
                false => p.bytes,
                true if p.count > 1.5 => p.bytes * (p.count - 1.0) / p.count,
                true => 0.0,
            };
            kept.entry(call).or_default().insert(path);
        }
        let whole = |(call, paths): (&u32, &HashSet<Vec<u32>>)| paths.len() >= LINES && calls.get(call) == Some(paths);
        between * 10.0 >= all || kept.iter().any(whole)
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
        if !self.is_of_graph(&parts, fewest) {
            return None;
        }
        let mut s = Suspect::of(Kind::GraphRetained, Shape::Bursts, parts, 0.0, true);
        s.bursts = (bursts, rounds);
        Some(s)
    }
}
