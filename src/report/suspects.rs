//! Is it a leak: the suspects with their stacks, and why each is thought to be what it is called.

use serde::Serialize;

use super::Page;
use super::by;
use super::frames::{self, Shown};
use super::growth;
use super::growth::shape::Shape;
use super::growth::steps::Steps;
use super::growth::suspect::{self as growing, Kind, Part};
use super::history::History;
use super::python::Whose;
use super::text::{bytes, count, plural, time};
use super::{stacks, text};

mod why;

/// Parts of a suspect that are told one by one.
const PARTS: usize = 8;
/// What has no line of Python.
const BACKWARD: &str = "the backward pass";
/// Allocations in which a loop is to be expected.
pub const MANY: u64 = 64;
/// Suspects that a report shows in full.
const SHOWN: usize = 5;

/// What grows, and from what that was told.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Leaks {
    /// The steps by which growth is measured; missing if the program repeats nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<Steps>,
    /// The suspects, the fastest first.
    pub suspects: Vec<Suspect>,
    /// What is to be said where nothing grows: that, or why it cannot be told.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub nothing: String,
}

/// A suspect.
#[derive(Clone, Debug, Serialize)]
pub struct Suspect {
    /// Which mistake it looks like.
    pub kind: Kind,
    /// How it grows.
    pub shape: Shape,
    /// The line where most of it is allocated.
    pub place: String,
    /// Bytes more a step (of `bursts`: a round).
    pub bytes_per_step: u64,
    /// Allocations more a step.
    pub count_per_step: f64,
    /// Bytes that it grew by in all; if not `exact`, the most that it had at once,
    pub bytes: u64,
    /// in so many allocations.
    pub count: u64,
    /// Whether they are what it grew by.
    pub exact: bool,
    /// When the first of it was allocated,
    pub since: u64,
    /// and how long that was before the end: nanoseconds.
    pub age: u64,
    /// Why it is thought to be of this kind.
    pub evidence: String,
    /// What to do about it.
    pub advice: String,
    /// The call stack of the largest part, innermost first.
    pub stack: Vec<Shown>,
    /// All parts, the largest first.
    pub parts: Vec<SuspectPart>,
    /// Parts that are not among them.
    pub more_parts: u64,
}

impl Suspect {
    /// `80.0 MiB`, and whether it is at most that.
    pub fn size(&self) -> String {
        format!("{}{}", if self.exact { "" } else { "at most " }, bytes(self.bytes))
    }

    /// `2.00 MiB a step`, or what it is.
    pub fn rate(&self) -> String {
        match self.shape {
            Shape::Constant => format!("{} in {}", bytes(self.bytes), plural(self.count, "allocation")),
            Shape::Bursts => format!("+{} a round", bytes(self.bytes_per_step)),
            _ => format!("+{} a step", bytes(self.bytes_per_step)),
        }
    }
}

/// What one place keeps.
#[derive(Clone, Debug, Serialize)]
pub struct SuspectPart {
    /// Its line.
    pub place: String,
    /// Bytes more a step.
    pub bytes_per_step: u64,
    /// Allocations more a step.
    pub count_per_step: f64,
    /// Bytes that it grew by in all; if not `exact`, the most that it had at once,
    pub bytes: u64,
    /// in so many allocations.
    pub count: u64,
    /// Whether they are what it grew by.
    pub exact: bool,
    /// It was allocated in the backward pass.
    pub backward: bool,
    /// Its call stack, innermost first.
    pub stack: Vec<Shown>,
}

/// Finds them and their names.
pub fn of(page: &mut Page, history: &History) -> Leaks {
    let found = growth::find(history, &mut page.names);
    let facts = &history.facts;
    let stacks: Vec<u32> =
        found.suspects.iter().flat_map(|s| &s.parts).map(|p| facts.sites.all[p.site as usize].stack).collect();
    let addresses = frames::addresses(history, stacks);
    page.names.resolve(&history.modules, addresses);
    let steps = found.steps;
    let suspects = found.suspects.iter().map(|s| one(page, history, s, steps.as_ref())).collect();
    let suspects = same(suspects);
    let grows = suspects.iter().any(|s| s.kind != Kind::NeverFreed);
    let nothing = if grows || history.is_snapshot() { "" } else { nothing(history, steps.is_some()) };
    Leaks { steps, suspects, nothing: nothing.to_string() }
}

/// Why there is no suspect that grows.
fn nothing(history: &History, steps: bool) -> &'static str {
    if history.is_placeless() {
        "not looked for: there are no call stacks to tell places by"
    } else if history.pauses.any() {
        "not looked for: recording was paused, and what was freed or kept then is not known"
    } else if steps {
        "nothing grows from step to step"
    } else if history.facts.allocations() >= MANY {
        "nothing was seen to grow, but no steps were found to measure it by: a region or a mark in the body of the loop \
         tells them"
    } else {
        "nothing was seen to grow"
    }
}

/// Suspects of one line that only differ in how PyTorch came to allocate are one.
fn same(all: Vec<Suspect>) -> Vec<Suspect> {
    let mut kept: Vec<Suspect> = Vec::new();
    for s in all {
        match kept.iter_mut().find(|k| k.kind == s.kind && k.shape == s.shape && k.stack == s.stack) {
            Some(k) => {
                k.bytes_per_step += s.bytes_per_step;
                k.count_per_step += s.count_per_step;
                k.bytes += s.bytes;
                k.count += s.count;
                k.exact &= s.exact;
                k.since = k.since.min(s.since);
                k.age = k.age.max(s.age);
            }
            None => kept.push(s),
        }
    }
    kept
}

fn one(page: &Page, history: &History, s: &growing::Suspect, steps: Option<&Steps>) -> Suspect {
    let part = |p: &Part| {
        let site = &history.facts.sites.all[p.site as usize];
        let (stack, caller) = (site.stack, site.caller);
        let shown = frames::shown(history, &page.names, stack).lines(page.all_frames);
        let place = match by::own(&shown) {
            Some(frame) => by::line(frame),
            None if caller != 0 => text::clean(history.module_name(caller)),
            None => "(no stack)".to_string(),
        };
        SuspectPart {
            place,
            bytes_per_step: p.bytes as u64,
            count_per_step: (p.count * 100.0).round() / 100.0,
            bytes: p.live.1,
            count: p.live.0,
            exact: p.exact,
            backward: site.backward * 2 > site.count,
            stack: shown,
        }
    };
    let mut parts = merged(s.parts.iter().map(part));
    // What is made in the backward pass has no line of the user's: another part has.
    let all_parts = parts.len();
    parts.truncate(PARTS);
    let lead = parts.iter().find(|p| !p.backward).unwrap_or(&parts[0]);
    let (live, size) = s.live();
    let since = s.parts.iter().map(|p| p.since).min().unwrap_or(0);
    let trains = history.facts.sites.all.iter().any(|s| s.backward > 0);
    let (evidence, advice) = why::say(s, lead, steps, trains);
    Suspect {
        kind: s.kind,
        shape: s.shape,
        place: lead.place.clone(),
        bytes_per_step: s.bytes() as u64,
        count_per_step: (s.parts.iter().map(|p| p.count).sum::<f64>() * 100.0).round() / 100.0,
        bytes: size,
        count: live,
        exact: s.exact(),
        since,
        age: history.end.saturating_sub(since),
        evidence,
        advice,
        stack: lead.stack.clone(),
        more_parts: (all_parts - parts.len()) as u64,
        parts,
    }
}

/// Parts of one line as one, and those of the backward pass, which have no line.
fn merged(all: impl Iterator<Item = SuspectPart>) -> Vec<SuspectPart> {
    let mut parts: Vec<SuspectPart> = Vec::new();
    for mut p in all {
        if p.backward && by::own(&p.stack).is_none_or(|f| f.whose == Whose::Native) {
            p.place = BACKWARD.to_string();
        }
        match parts.iter_mut().find(|k| k.place == p.place && k.backward == p.backward) {
            Some(k) => {
                k.bytes_per_step += p.bytes_per_step;
                k.count_per_step += p.count_per_step;
                k.bytes += p.bytes;
                k.count += p.count;
                k.exact &= p.exact;
            }
            None => parts.push(p),
        }
    }
    parts.sort_by_key(|p| std::cmp::Reverse((p.bytes_per_step, p.bytes)));
    parts
}

/// Writes the section.
pub fn section(page: &mut Page, history: &History, leaks: &Leaks) {
    if history.is_snapshot() {
        return;
    }
    let growing: Vec<&Suspect> = leaks.suspects.iter().filter(|s| s.kind != Kind::NeverFreed).collect();
    page.heading("LEAKS");
    if let Some(steps) = &leaks.steps {
        let by = match (steps.by, steps.name.as_str()) {
            ("recurring", _) => "what comes back regularly".to_string(),
            (by, name) => format!("{by} {:?}", text::clean(name)),
        };
        page.row(
            "steps",
            &format!(
                "{} of {} and {}, told by {by}",
                count(steps.count),
                time(steps.time),
                plural(steps.allocations, "allocation")
            ),
        );
    }
    if growing.is_empty() {
        page.row("growing", &leaks.nothing);
    }
    for (i, s) in growing.iter().take(page.top.min(SHOWN)).enumerate() {
        suspect(page, i, s);
    }
    if growing.len() > page.top.min(SHOWN) {
        page.line(&format!("  and {}", plural((growing.len() - page.top.min(SHOWN)) as u64, "more suspect")));
    }
}

fn suspect(page: &mut Page, i: usize, s: &Suspect) {
    let head = format!("{:>3}. {}  {}", i + 1, s.kind.name(), s.rate());
    let held = format!("   {} in {}, the oldest {}", s.size(), plural(s.count, "allocation"), time(s.age));
    page.line(&format!("{}{held}", page.paint.red(&head)));
    page.fold("      why: ", &s.evidence);
    page.fold("      try: ", &s.advice);
    stacks::shown(page, &s.stack);
    let shown = s.parts.len().min(4);
    if s.parts.len() > 1 {
        page.line("      parts");
        let step = if s.shape == Shape::Bursts { "round" } else { "step" };
        for p in &s.parts[..shown] {
            let place = text::clip(&p.place, 56);
            page.line(&format!(
                "        {:>9} a {step}  {place}{}",
                bytes(p.bytes_per_step),
                if p.backward && p.place != BACKWARD { "  (backward)" } else { "" }
            ));
        }
        let more = s.parts.len() - shown + s.more_parts as usize;
        if more > 0 {
            page.line(&format!("        and {more} more"));
        }
    }
}
