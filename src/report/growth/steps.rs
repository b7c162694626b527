//! The steps of a program's main loop, found from the history itself: what comes back regularly, and as often as most
//! things do (`repeat.rs`). A region or mark of the program's that comes regularly counts before that.

use serde::Serialize;

use crate::report::facts::Facts;
use crate::report::facts::curve::{Curve, Point};
use crate::report::facts::regions::Named;
use crate::report::facts::site::Site;

use super::lines::Lines;
use super::repeat::{self, FEWEST};

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
    /// Finds them. A region or mark of the program's own that comes regularly counts before what is found from allocations.
    pub fn of(facts: &Facts, lines: &mut Lines) -> Option<Steps> {
        let count = repeat::count(facts, lines);
        let name = named(facts, count).filter(|(by, name)| {
            // A mark an epoch, around a loop of several lines, is none of a step.
            let rare = count.is_some_and(|count| name.count * 2 <= count && repeat::is_of_lines(facts, lines, count));
            *by == "region" || !rare
        });
        let recurring = count.map(|count| recurring(facts, count));
        match (recurring, name) {
            (Some(steps), Some((by, name))) if as_often(name.count, steps.count) => {
                Some(Steps { by, name: name.name.clone(), ..steps })
            }
            (_, Some((by, name))) => told(facts, by, name),
            (steps, None) => steps,
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

    /// How many there were since a site began: with those before its first allocation, if it comes every so many steps.
    pub fn since(&self, site: &Site) -> f64 {
        let (first, apart, _) = self.apart(site);
        self.count as f64 - (first + 1.0 - apart).max(0.0)
    }

    /// Whether a site makes several at a time, and then none for long.
    pub fn are_stairs(&self, site: &Site) -> bool {
        let (_, apart, times) = self.apart(site);
        site.count >= 2 * times && apart > (self.count as f64 / 16.0).max(2.0)
    }

    /// The step in which a site comes first, how far apart it comes, and how often.
    fn apart(&self, site: &Site) -> (f64, f64, u64) {
        let step = |ordinal: u64| self.at(ordinal).floor();
        let mut seen: Vec<f64> = site.curve.points().iter().map(|p| step(p.ordinal)).collect();
        // Where a step begins is known of every so many of them, and between these about.
        seen.dedup_by(|later, before| *later - *before <= self.count as f64 / 32.0);
        let (first, last) = (step(site.first.1), step(site.last.1));
        (first, (last - first) / (seen.len().max(2) - 1) as f64, seen.len() as u64)
    }

    /// Where the last step begins.
    pub fn last(&self) -> u64 {
        self.points.last().map_or(0, |p| p.0)
    }
}

fn as_often(count: u64, steps: u64) -> bool {
    count.abs_diff(steps) <= (steps / 20).max(1)
}

/// The steps of which there are so many, by the site that begins them.
fn recurring(facts: &Facts, count: u64) -> Steps {
    let sites = &facts.sites.all;
    let members = repeat::alike(facts, count);
    // The first of a step, as far as that can be told, begins it.
    let first = members.iter().filter(|i| sites[**i as usize].count == count);
    let Some(anchor) = first.min_by_key(|i| sites[**i as usize].first.1) else { return Steps::default() };
    let s = &sites[*anchor as usize];
    Steps {
        count,
        by: "recurring",
        time: s.last.0.saturating_sub(s.first.0) / (count - 1).max(1),
        allocations: average(s.last.1.saturating_sub(s.first.1), count),
        points: beginnings(&s.curve, s.first.1, s.last.1, count),
        members,
        ..Steps::default()
    }
}

/// The region or mark that tells the steps: one that came as often as things repeat; or else the outermost region in which most
/// was allocated, or the rarest mark, that comes regularly.
fn named(facts: &Facts, found: Option<u64>) -> Option<(&'static str, &Named)> {
    let regions = facts.regions.paths().iter().map(|p| ("region", p));
    let marks = facts.regions.marked.values().map(|m| ("mark", m));
    let all: Vec<(&'static str, &Named)> = regions.chain(marks).collect();
    let agrees = all.iter().filter(|(_, n)| found.is_some_and(|count| as_often(n.count, count)));
    let key = |(by, n): &&(&'static str, &Named)| (*by == "mark", n.depth, std::cmp::Reverse(n.took), n.name.len());
    if let Some(best) = agrees.min_by_key(key) {
        return Some(*best);
    }
    let whole = facts.allocations();
    let is_regular = |n: &Named| {
        let span = n.rhythm.span().map_or(0, |(first, last)| last - first);
        n.count >= FEWEST && !n.process && span * 5 >= whole * 2 && n.rhythm.is_regular()
    };
    let holds = |n: &Named| {
        let inside = format!("{} > ", n.name);
        let inner = facts.regions.paths().iter().filter(|p| p.name.starts_with(&inside)).map(|p| p.allocations);
        (n.allocations + inner.sum::<u64>()) * 2 >= whole
    };
    let regular = all.iter().filter(|(by, n)| is_regular(n) && (*by == "mark" || holds(n)));
    regular.min_by_key(|(by, n)| (*by == "mark", n.depth, n.count)).copied()
}

/// The steps that a region or mark tells.
fn told(facts: &Facts, by: &'static str, name: &Named) -> Option<Steps> {
    let (first, last) = name.rhythm.span()?;
    let (from, to) = (name.curve.points().first()?, name.curve.points().last()?);
    // What is allocated in the first comes after it began.
    let points = beginnings(&name.curve, first, last, name.count).into_iter().map(|(at, step)| (at + 1, step));
    Some(Steps {
        count: name.count,
        by,
        name: name.name.clone(),
        time: (to.time - from.time) / (to.nth - from.nth).max(1),
        allocations: average(last - first, name.count),
        points: points.collect(),
        members: repeat::alike(facts, name.count),
    })
}

/// Of all between the first and the last of so many.
fn average(all: u64, count: u64) -> u64 {
    (all as f64 / (count - 1).max(1) as f64).round() as u64
}

fn beginnings(curve: &Curve, first: u64, last: u64, count: u64) -> Vec<(u64, f64)> {
    let step = |p: &Point| (p.ordinal, p.nth as f64 - 1.0);
    let mut points = vec![(first, 0.0)];
    points.extend(curve.points().iter().map(step));
    points.push((last, count as f64 - 1.0));
    points.dedup_by_key(|p| p.0);
    points
}
