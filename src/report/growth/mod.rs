//! Is it a leak: what grows from step to step, by how much, and of which kind it is as far as its shape tells.
//!
//! Kinds are told by rules that look at what PyTorch does and not at what a program is called:
//!
//! - *gradients accumulating*: memory made in the backward pass stays as well: the gradients of a step hang on those before.
//! - *graph retained*: of what a line makes, more stays than its result. A list or a dictionary keeps results; what lies
//!   between them only the graph knows.
//! - *graph retained*, in bursts: the same, climbing over many rounds, and all of it goes at once, and none in a backward pass.
//! - *cache growing*: only results stay, and each has a size of its own.
//!   Or each is made of the one before and more (`torch.cat`), while the inputs of the loop do not get longer.
//! - *references kept*: only results stay. A leaf that stays keeps its gradient, which is no larger than it.
//! - *never freed*: it does not grow, and the program ended without freeing it. (Not of PyTorch's: it frees nothing at exit.)

use std::collections::{HashMap, HashSet};

use serde::Serialize;
use vramscope_core::event::Memory;

use super::facts::Facts;
use super::facts::site::Site;
use super::history::History;
use lines::Lines;
use shape::{Growth, Shape};
use steps::Steps;

mod inputs;
pub mod lines;
mod origin;
pub mod shape;
pub mod steps;
#[cfg(test)]
mod tests;

/// Growth below both of these is not worth a word.
const LEAST: u64 = 64 << 10;
const LEAST_PART: u64 = 10_000;
/// What swells by less than this part of the peak is not worth a word.
const SWOLLEN: u64 = 32;
/// Rounds of a burst.
const ROUNDS: u64 = 8;

/// Which mistake it looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Gradients that hang on those of the steps before.
    GradientsAccumulating,
    /// Graphs that nothing frees.
    GraphRetained,
    /// Something for each new key.
    CacheGrowing,
    /// A list, a dictionary, an attribute.
    ReferencesKept,
    /// There at the end.
    NeverFreed,
}

impl Kind {
    /// As a report calls it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::GradientsAccumulating => "gradients accumulating",
            Kind::GraphRetained => "graph retained",
            Kind::CacheGrowing => "cache growing",
            Kind::ReferencesKept => "references kept",
            Kind::NeverFreed => "never freed at exit",
        }
    }
}

/// A part of a suspect: what one site keeps.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Number of the site.
    pub site: u32,
    /// Bytes a step, or a round of a burst.
    pub bytes: f64,
    /// Allocations a step.
    pub count: f64,
    /// By how much it grew in all: count and bytes.
    pub live: (u64, u64),
    /// Whether that is what it grew by; if not, it is the most that it had at once.
    pub exact: bool,
    /// When the growth was first seen.
    pub since: u64,
}

/// What grows.
#[derive(Clone, Debug)]
pub struct Suspect {
    /// Of which kind it looks.
    pub kind: Kind,
    /// How it grows.
    pub shape: Shape,
    /// Its sites, the largest first.
    pub parts: Vec<Part>,
    /// Bursts, and rounds in each.
    pub bursts: (u64, u64),
    /// Bytes a step that were made in the backward pass.
    pub backward: f64,
    /// It is PyTorch's memory.
    pub tensors: bool,
}

impl Suspect {
    /// Bytes a step.
    pub fn bytes(&self) -> f64 {
        self.parts.iter().map(|p| p.bytes).sum()
    }

    /// Whether [`Suspect::live`] is what it grew by, and not the most that it had.
    pub fn exact(&self) -> bool {
        self.parts.iter().all(|p| p.exact)
    }

    /// Allocations and bytes that it grew by, or had at most.
    pub fn live(&self) -> (u64, u64) {
        self.parts.iter().fold((0, 0), |sum, p| (sum.0 + p.live.0, sum.1 + p.live.1))
    }
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The loop's steps.
    pub steps: Option<Steps>,
    /// What grows, the fastest first; then what was never freed.
    pub suspects: Vec<Suspect>,
}

/// Looks for what grows.
pub fn find(history: &History) -> Found {
    let facts = &history.facts;
    if history.is_placeless() {
        return Found::default();
    }
    let steps = Steps::of(facts);
    let mut look = Look { history, facts, steps: steps.as_ref(), lines: Lines::new(history) };
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
            let Some(g) = shape::growth(s, self.steps) else { continue };
            if g.bytes() < LEAST.max(peak / LEAST_PART) || !self.goes_on(s, &g) || loading && self.loads(s.stack) {
                continue;
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
        let (s, steps) = (self.site(*site), self.steps_of(g));
        let (live, exact) = self.grown_by(s, g);
        Part {
            site: *site,
            bytes: g.bytes() as f64 / steps,
            count: g.count() as f64 / steps,
            live,
            exact,
            since: s.first.0,
        }
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
        let backward = |look: &Look<'_>, i: u32| {
            let s = look.site(i);
            s.backward * 2 > s.count
        };
        let parts: Vec<Part> = grown.iter().map(|g| self.part(g)).collect();
        let all: f64 = parts.iter().map(|p| p.bytes).sum();
        let of_backward: f64 = parts.iter().filter(|p| backward(self, p.site)).map(|p| p.bytes).sum();
        let (between, unfreed) = self.between(&parts);
        let kind = match () {
            () if of_backward > 0.0 && between * 10.0 < all && of_backward <= (all - of_backward) * 1.02 => {
                Kind::ReferencesKept
            }
            () if of_backward * 10.0 >= all => Kind::GradientsAccumulating,
            () if between * 10.0 >= all && unfreed => Kind::GraphRetained,
            () => return self.by_line(grown),
        };
        let shape = grown.iter().map(|g| g.1.shape).find(|s| *s == Shape::Linear).unwrap_or(Shape::Staircase);
        vec![suspect(kind, shape, parts, of_backward, true)]
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
                    *k = suspect(s.kind, s.shape, [&k.parts[..], &s.parts].concat(), 0.0, true)
                }
                _ => suspects.push((line, s)),
            }
        }
        suspects.into_iter().map(|(_, s)| s).collect()
    }

    /// Bytes a step of what stays and is not the result of its line: what lies between. And whether a graph may keep any of
    /// it: a line of whose tensors the backward pass frees others has none left, and it is hooks that keep them.
    fn between(&mut self, parts: &[Part]) -> (f64, bool) {
        let forward = |s: &Site| s.tensor && s.backward * 2 <= s.count;
        let all: Vec<u32> = parts.iter().map(|p| p.site).collect();
        let members: Vec<u32> = self.steps.map_or(Vec::new(), |s| s.members.clone());
        let sites = all.iter().chain(&members).map(|i| self.site(*i));
        let stacks: Vec<u32> = sites.filter(|s| forward(s)).map(|s| s.stack).collect();
        // One site alone is the result of its own line or is not.
        let depth = if parts.len() > 1 { self.lines.common(stacks) } else { usize::MAX };
        // The last that each line of the loop makes, but for scratch (PyTorch 2.15 takes cuBLAS's workspace after the
        // result): its result.
        let mut results: HashMap<u32, (u64, u32)> = HashMap::new();
        let fewest = self.steps.map_or(1, |s| s.count / 2);
        let scratch = |s: &Site| s.live.0 == 0 && s.at_once.0 * 10 >= s.count * 9;
        let made = |s: &Site| forward(s) && s.count >= fewest && !scratch(s);
        for (i, s) in self.facts.sites.all.iter().enumerate().filter(|(_, s)| made(s)) {
            let Some(line) = lines::at(self.lines.of(s.stack), depth) else { continue };
            let result = results.entry(line).or_default();
            *result = (*result).max((s.last.1, i as u32));
        }
        let mut went_backward = HashSet::new();
        for (i, s) in self.facts.sites.all.iter().enumerate() {
            let saved = made(s) && s.frees_backward * 10 >= s.count * 8 && !all.contains(&(i as u32));
            if saved {
                went_backward.extend(lines::at(self.lines.of(s.stack), depth));
            }
        }
        let (mut between, mut unfreed) = (0.0, false);
        for p in parts {
            let s = self.site(p.site);
            if !forward(s) || self.is_without_graph(s.stack) {
                continue;
            }
            let stack = s.stack;
            let Some(line) = lines::at(self.lines.of(stack), depth) else { continue };
            // A line that is run once a step has one result.
            let more = (p.count - 1.0).max(0.0) / p.count.max(1.0);
            let is_result = results.get(&line).is_some_and(|(_, last)| *last == p.site);
            let bytes = match is_result {
                false => p.bytes,
                true if p.count > 1.5 => p.bytes * more,
                true => 0.0,
            };
            between += bytes;
            unfreed |= bytes > 0.0 && !went_backward.contains(&line);
        }
        (between, unfreed)
    }

    /// A suspect of one site.
    fn single(&self, one: Grown, tensors: bool) -> Suspect {
        let s = self.site(one.0);
        let sizes = s.sizes.len() as u64;
        // Most are of a size that no other has.
        let each_its_own = s.stayed >= 6 && sizes * 10 >= s.stayed.min(256) * 9;
        let swells = one.1.shape == Shape::Swelling;
        let kind = if each_its_own || swells { Kind::CacheGrowing } else { Kind::ReferencesKept };
        suspect(kind, one.1.shape, vec![self.part(&one)], 0.0, tensors)
    }

    /// Graphs that climb over many rounds and go at once, and no part of them in a backward pass.
    fn bursts(&mut self) -> Option<Suspect> {
        let trains = self.facts.sites.all.iter().any(|s| s.backward > 0);
        let peak = self.facts.ledger.peak.in_use;
        if !trains {
            return None;
        }
        let mut parts = Vec::new();
        let (mut bursts, mut rounds) = (0, u64::MAX);
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
            let (count, bytes) = (s.most.count as f64, s.most.bytes as f64);
            more |= !self.lines.of(s.stack).is_empty();
            let live = (s.most.count, s.most.bytes);
            parts.push(Part { site: i as u32, bytes, count, live, exact: false, since: s.first.0 });
        }
        let bytes: f64 = parts.iter().map(|p| p.bytes).sum();
        // More than a result a round: that would be a list.
        let count: f64 = parts.iter().map(|p| p.count).sum();
        if !more || bytes * 4.0 < peak as f64 || count < 2.0 * rounds as f64 || rounds < ROUNDS {
            return None;
        }
        for p in &mut parts {
            (p.bytes, p.count) = (p.bytes / rounds as f64, p.count / rounds as f64);
        }
        let mut s = suspect(Kind::GraphRetained, Shape::Bursts, parts, 0.0, true);
        s.bursts = (bursts, rounds);
        Some(s)
    }

    /// What a program left behind that does free its memory and ended in good order.
    fn unfreed(&mut self, suspected: &[u32]) -> Vec<Suspect> {
        let ended = self.history.exited || self.history.footer.as_ref().is_some_and(|f| f.end == "exit");
        if !ended || self.facts.ledger.has_tensors() || self.history.killed() {
            return Vec::new();
        }
        let mut found = Vec::new();
        for (i, s) in self.facts.sites.all.iter().enumerate() {
            let i = i as u32;
            let own = !suspected.contains(&i) && s.memory != Memory::Imported && !self.is_librarys(s.caller);
            if s.live.0 == 0 || !own || !self.lines.of(s.stack).is_empty() {
                continue;
            }
            let part = Part { site: i, bytes: 0.0, count: 0.0, live: s.live, exact: true, since: s.first.0 };
            found.push(suspect(Kind::NeverFreed, Shape::Constant, vec![part], 0.0, false));
        }
        found.sort_by_key(|s| std::cmp::Reverse(s.live().1));
        found
    }

    /// Whether a module keeps memory of its own, as long as the process lives.
    fn is_librarys(&self, module: u32) -> bool {
        const NAMES: [&str; 7] = ["libcu", "libnccl", "libnv", "libc10", "libtorch", "libnpp", "xla"];
        let name = self.history.module_name(module);
        module != 0 && NAMES.iter().any(|n| name.starts_with(n))
    }
}

fn suspect(kind: Kind, shape: Shape, mut parts: Vec<Part>, backward: f64, tensors: bool) -> Suspect {
    parts.sort_by(|a, b| b.bytes.total_cmp(&a.bytes).then(b.live.1.cmp(&a.live.1)));
    Suspect { kind, shape, parts, bursts: (0, 0), backward, tensors }
}
