//! The steps of a program's main loop, found from the history itself: what comes back regularly, and as often as most
//! things do. A region or mark that came as often lends its name.

use serde::Serialize;

use crate::report::facts::Facts;
use crate::report::facts::curve::{Curve, Point};
use crate::report::facts::site::Site;

/// Fewer are no loop.
const FEWEST: u64 = 6;

/// The steps of a loop.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Steps {
    /// How many there were.
    pub count: u64,
    /// `region`, `mark` or `recurring`: what tells them.
    pub by: &'static str,
    /// The region's or mark's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Nanoseconds of a step, on average.
    pub time: u64,
    /// Allocations in a step, on average.
    pub allocations: u64,
    /// Where they begin: allocation of the history, and step.
    #[serde(skip)]
    points: Vec<(u64, f64)>,
    /// Sites that come once a step.
    #[serde(skip)]
    pub members: Vec<u32>,
}

impl Steps {
    /// Finds them.
    pub fn of(facts: &Facts) -> Option<Steps> {
        let all = facts.allocations();
        let regular = |s: &Site| {
            let span = s.last.1.saturating_sub(s.first.1);
            !s.torch && s.count >= FEWEST && span * 5 >= all * 2 && s.rhythm.is_regular()
        };
        let mut found: Vec<(u64, u32)> = Vec::new();
        for (i, s) in facts.sites.all.iter().enumerate() {
            // What is only kept may be the loading of a model, in which nothing is a step.
            if regular(s) && s.stayed * 2 <= s.count {
                found.push((s.count, i as u32));
            }
        }
        found.sort_unstable();
        let alike = |count: u64| {
            let slack = (count / 50).max(1);
            let from = found.partition_point(|(c, _)| c + slack < count);
            let to = found.partition_point(|(c, _)| *c <= count + slack);
            &found[from..to]
        };
        let (count, _) = *found.iter().max_by_key(|(count, _)| (alike(*count).len(), *count))?;
        let members: Vec<u32> = alike(count).iter().map(|(_, i)| *i).collect();
        let sites = &facts.sites.all;
        // The first of a step, as far as that can be told, begins it.
        let first = members.iter().filter(|i| sites[**i as usize].count == count);
        let anchor = first.min_by_key(|i| sites[**i as usize].first.1)?;
        let s = &sites[*anchor as usize];
        let mut steps = Steps {
            count,
            by: "recurring",
            time: s.last.0.saturating_sub(s.first.0) / (count - 1).max(1),
            allocations: s.last.1.saturating_sub(s.first.1) / (count - 1).max(1),
            points: beginnings(&s.curve, s.first.1, s.last.1, count),
            members,
            ..Steps::default()
        };
        steps.named(facts);
        Some(steps)
    }

    /// Takes the name of a region or mark that came as often.
    fn named(&mut self, facts: &Facts) {
        let as_often = |count: u64| count.abs_diff(self.count) <= (self.count / 20).max(1);
        let regions = facts.regions.paths().iter().filter(|p| as_often(p.count));
        let best = regions.min_by_key(|p| (p.depth, std::cmp::Reverse(p.took)));
        let marks = facts.regions.marked.values().filter(|m| as_often(m.count));
        if let Some(region) = best {
            (self.by, self.name) = ("region", region.name.clone());
        } else if let Some(mark) = marks.min_by_key(|m| m.name.len()) {
            (self.by, self.name) = ("mark", mark.name.clone());
        }
    }

    /// The step in which an allocation of the history was made, from 0, with its fraction.
    pub fn at(&self, ordinal: u64) -> f64 {
        let next = self.points.partition_point(|(at, _)| *at <= ordinal);
        let Some(&(from, step)) = next.checked_sub(1).and_then(|i| self.points.get(i)) else { return 0.0 };
        match self.points.get(next) {
            Some(&(to, then)) if to > from => step + (then - step) * (ordinal - from) as f64 / (to - from) as f64,
            _ => step,
        }
    }

    /// Where the last step begins.
    pub fn last(&self) -> u64 {
        self.points.last().map_or(0, |p| p.0)
    }
}

fn beginnings(curve: &Curve, first: u64, last: u64, count: u64) -> Vec<(u64, f64)> {
    let step = |p: &Point| (p.ordinal, p.nth as f64 - 1.0);
    let mut points = vec![(first, 0.0)];
    points.extend(curve.points().iter().map(step));
    points.push((last, count as f64 - 1.0));
    points.dedup_by_key(|p| p.0);
    points
}
