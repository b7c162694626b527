//! Is it a leak: what grows from step to step, by how much, and of which kind it is as far as its shape tells.
//!
//! Kinds are told by rules that look at what PyTorch does and not at what a program is called:
//!
//! - *gradients accumulating*: memory made in the backward pass stays, and PyTorch adds each step's gradients to those before, as
//!   a graph. That only the native stacks tell; where they are missing, it is a graph that is retained.
//! - *graph retained*: intermediate results stay that nothing else can keep (`graph.rs`), and what the backward pass made of them
//!   (`create_graph=True`).
//! - *graph retained*, in bursts: the same, climbing over many rounds, and all of it goes at once, and none in a backward pass.
//! - *cache growing*: only results stay, and each has a size of its own.
//!   Or each is made of the one before and more (`torch.cat`), while the inputs of the loop do not get longer.
//! - *references kept*: only results stay, or gradients. A leaf that stays keeps its gradient, which is no larger than it.
//! - *never freed*: it does not grow, and the program ended without freeing it. (Not of PyTorch's: it frees nothing at exit.)

use vramscope_core::event::Memory;

use super::facts::Facts;
use super::facts::site::Site;
use super::history::History;
use crate::symbols::Names;
use lines::Lines;
use shape::{Growth, Shape};
use steps::Steps;
use suspect::{Kind, Part, Suspect};

mod graph;
mod inputs;
mod left;
pub mod lines;
mod origin;
mod repeat;
pub mod shape;
pub mod steps;
pub mod suspect;
#[cfg(test)]
mod tests;

/// Growth below both of these is not worth a word.
const LEAST: u64 = 64 << 10;
const LEAST_PART: u64 = 10_000;
/// What swells by less than this part of the peak is not worth a word.
const SWOLLEN: u64 = 32;

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The loop's steps.
    pub steps: Option<Steps>,
    /// What grows, the fastest first; then what was never freed.
    pub suspects: Vec<Suspect>,
}

/// Looks for what grows. Names are looked up of the few stacks on which a kind depends.
pub fn find(history: &History, names: &mut Names) -> Found {
    let facts = &history.facts;
    if history.is_placeless() {
        return Found::default();
    }
    let mut lines = Lines::new(history);
    let steps = Steps::of(facts, &mut lines);
    let mut look = Look { history, facts, steps: steps.as_ref(), lines, names };
    let growing = look.growing();
    let (tensors, others): (Vec<_>, Vec<_>) = growing.into_iter().partition(|(i, _)| look.is_tensor(*i));
    let mut suspects = look.of_tensors(tensors);
    for one in others {
        suspects.push(look.single(one, false));
    }
    if !suspects.iter().any(|s| s.kind == Kind::GraphRetained) {
        suspects.extend(look.bursts());
    }
    suspects.sort_by(|a, b| b.bytes().total_cmp(&a.bytes()));
    let suspected: Vec<u32> = suspects.iter().flat_map(|s| s.parts.iter().map(|p| p.site)).collect();
    let unfreed = look.unfreed(&suspected);
    suspects.extend(unfreed);
    Found { steps, suspects }
}

struct Look<'a> {
    history: &'a History,
    facts: &'a Facts,
    steps: Option<&'a Steps>,
    lines: Lines<'a>,
    names: &'a mut Names,
}

type Grown = (u32, Growth);

impl Look<'_> {
    fn site(&self, i: u32) -> &Site {
        &self.facts.sites.all[i as usize]
    }

    /// Whether it is PyTorch's, or what else has Python lines and is no device memory of the driver's.
    fn is_tensor(&mut self, i: u32) -> bool {
        let Site { tensor, memory, stack, .. } = *self.site(i);
        tensor || memory == Memory::Async && !self.lines.of(stack).is_empty()
    }

    /// Sites that grow.
    fn growing(&mut self) -> Vec<Grown> {
        let peak = self.facts.ledger.peak.in_use;
        if !self.is_busy() {
            return Vec::new();
        }
        let loading = self.is_loading();
        let mut grown = Vec::new();
        let mut longer = None;
        for (i, s) in self.facts.sites.all.iter().enumerate() {
            if self.is_segments(s) || s.memory == Memory::Imported {
                continue;
            }
            let Some(mut g) = shape::growth(s, self.steps) else { continue };
            if !self.is_tensor(i as u32) && self.steps.is_some_and(|steps| !shape::goes_along(s, steps)) {
                continue;
            }
            if g.bytes() < LEAST.max(peak / LEAST_PART) || !self.goes_on(s, &g) || loading && self.loads(s.stack) {
                continue;
            }
            // By its own allocations what comes many at a time rises evenly.
            if g.shape == Shape::Linear && s.frees_before_last == 0 && self.steps.is_some_and(|all| all.are_stairs(s)) {
                g.shape = Shape::Staircase;
            }
            // A variable that holds a step's input until the next swells as well, if the inputs are sorted by length.
            if g.shape == Shape::Swelling {
                let told = self.is_tensor(i as u32) && g.bytes() >= peak / SWOLLEN;
                if !told || *longer.get_or_insert_with(|| self.inputs_get_longer()) {
                    continue;
                }
            }
            grown.push((i as u32, g));
        }
        grown
    }

    /// Whether they are PyTorch's segments, in which its tensors are.
    fn is_segments(&self, s: &Site) -> bool {
        s.torch && self.facts.ledger.has_tensors()
    }

    /// Whether something was freed meanwhile: it is a program at work, and not one that loads its weights. Where there are steps,
    /// something of each goes already, and a loop that keeps most of what it makes is just what is looked for.
    fn is_busy(&self) -> bool {
        let all: u64 = self.facts.sites.all.iter().filter(|s| !self.is_segments(s)).map(|s| s.count).sum();
        let freed = self.facts.churn.within((self.facts.allocations() / 32).max(16)).0;
        freed * if self.steps.is_some() { 10 } else { 4 } >= all
    }

    /// Whether it grew over a good part of the program's work, and nearly to its end.
    fn goes_on(&self, s: &Site, g: &Growth) -> bool {
        match self.steps {
            Some(steps) => {
                let (from, to) = (steps.at(g.from.ordinal), steps.at(g.end.ordinal));
                to - from >= 4.0 && to - from >= steps.count as f64 / 4.0 && to >= steps.count as f64 * 0.6
            }
            None => s.last.1.saturating_sub(s.first.1) * 2 >= self.facts.allocations(),
        }
    }

    fn steps_of(&self, g: &Growth) -> f64 {
        match self.steps {
            Some(steps) => (steps.at(g.to.ordinal) - steps.at(g.from.ordinal)).max(1.0),
            None => (g.to.nth - g.from.nth).max(1) as f64,
        }
    }

    fn part(&self, (site, g): &Grown) -> Part {
        let s = self.site(*site);
        let (live, exact) = self.grown_by(s, g);
        // What stayed of all steps is known better than what lies between two points, which fall anywhere in a step, and between
        // the stairs.
        let rises = g.shape == Shape::Linear || g.shape == Shape::Staircase && s.frees_before_last == 0;
        let whole = self.steps.filter(|_| exact && rises);
        let (count, bytes, steps) = match whole {
            Some(steps) => (live.0, live.1, steps.since(s)),
            None => (g.count(), g.bytes(), self.steps_of(g)),
        };
        Part { site: *site, bytes: bytes as f64 / steps, count: count as f64 / steps, live, exact, since: s.first.0 }
    }

    /// By how much a site grew, count and bytes, and whether that is known. What a program frees at its exit does not show at the
    /// end, and what a step holds for a while is in the most that it had; so neither says what stayed.
    fn grown_by(&self, s: &Site, g: &Growth) -> ((u64, u64), bool) {
        // Nothing was freed as long as it grew: all of it stayed.
        if s.frees_before_last == 0 {
            return ((s.count, s.bytes), true);
        }
        let since = |end: (u64, u64)| (end.0.saturating_sub(g.begin.count), end.1.saturating_sub(g.begin.bytes));
        // What lived when the program allocated for the last time is what stayed, if it is no more than the steps since the
        // last point can have added.
        if let Some(steps) = self.steps {
            let all = self.facts.allocations();
            // A point of several allocations is the lowest of them, which may have been the first.
            let points = s.curve.points();
            let at = points.partition_point(|p| p.ordinal < g.end.ordinal);
            let lowest = if s.curve.is_whole() { g.end } else { points[at.saturating_sub(1)] };
            let (at_last, left) = (s.at_last(all), steps.at(all) - steps.at(lowest.ordinal));
            let added = (left.ceil() * g.count() as f64 / self.steps_of(g)).ceil() as u64;
            if (g.end.count..=g.end.count.saturating_add(added)).contains(&at_last.0) {
                return (since(at_last), true);
            }
        }
        // What was there before each allocation is known, so what stayed of all steps but the last is.
        match s.curve.is_whole() {
            true => (since((g.end.count, g.end.bytes)), true),
            false => ((s.most.count, s.most.bytes), false),
        }
    }

    /// Suspects among the tensors.
    fn of_tensors(&mut self, grown: Vec<Grown>) -> Vec<Suspect> {
        let (swelling, grown): (Vec<_>, Vec<_>) = grown.into_iter().partition(|(_, g)| g.shape == Shape::Swelling);
        let mut suspects = self.by_line(swelling);
        suspects.extend(self.of_counted(grown));
        suspects
    }

    /// Suspects among the tensors of which there are more and more.
    fn of_counted(&mut self, grown: Vec<Grown>) -> Vec<Suspect> {
        if grown.is_empty() {
            return Vec::new();
        }
        let parts: Vec<Part> = grown.iter().map(|g| self.part(g)).collect();
        let all: f64 = parts.iter().map(|p| p.bytes).sum();
        let of_backward: f64 = parts.iter().filter(|p| self.is_backward(self.site(p.site))).map(|p| p.bytes).sum();
        let graph = self.is_of_graph(&parts, self.steps.map_or(1, |s| s.count / 2), 1);
        // What is no more than the rest may be the `.grad` of that.
        let more = graph || of_backward > (all - of_backward) * suspect::LEAVES;
        let kind = match () {
            () if of_backward * 10.0 >= all && more && self.gradients_add_up() => Kind::GradientsAccumulating,
            () if graph => Kind::GraphRetained,
            () if of_backward > 0.0 => Kind::ReferencesKept,
            () => return self.by_line(grown),
        };
        let shape = grown.iter().map(|g| g.1.shape).find(|s| *s == Shape::Linear).unwrap_or(Shape::Staircase);
        vec![Suspect::of(kind, shape, parts, of_backward, true)]
    }

    /// Suspects each of a line: what a line keeps of one kind, an optimizer its two moments, is one.
    fn by_line(&mut self, grown: Vec<Grown>) -> Vec<Suspect> {
        let mut suspects: Vec<(Option<u32>, Suspect)> = Vec::new();
        for one in grown {
            let line = self.lines.of(self.site(one.0).stack).last().copied();
            let s = self.single(one, true);
            let same = |(of, k): &&mut (Option<u32>, Suspect)| *of == line && (k.kind, k.shape) == (s.kind, s.shape);
            match suspects.iter_mut().find(same) {
                Some((_, k)) if line.is_some() => {
                    *k = Suspect::of(s.kind, s.shape, [&k.parts[..], &s.parts].concat(), 0.0, true)
                }
                _ => suspects.push((line, s)),
            }
        }
        suspects.into_iter().map(|(_, s)| s).collect()
    }

    /// A suspect of one site.
    fn single(&self, one: Grown, tensors: bool) -> Suspect {
        let s = self.site(one.0);
        let sizes = s.sizes.len() as u64;
        // Most are of a size that no other has.
        let each_its_own = s.stayed >= 6 && sizes * 10 >= s.stayed.min(256) * 9;
        let swells = one.1.shape == Shape::Swelling;
        let kind = if each_its_own || swells { Kind::CacheGrowing } else { Kind::ReferencesKept };
        Suspect::of(kind, one.1.shape, vec![self.part(&one)], 0.0, tensors)
    }
}
