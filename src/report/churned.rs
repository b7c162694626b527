//! Churn: what is allocated only to be freed at once, how long things live, and what the driver's calls cost.

use serde::Serialize;

use super::Page;
use super::by::{self, Held};
use super::facts::ledger::Calls;
use super::frames;
use super::growth::steps::Steps;
use super::history::History;
use super::text::{bytes, clip, count, percent, plural, time};

/// Places told.
const TOLD: usize = 20;

/// Allocations between one lifetime and the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Lifetime {
    /// Nanoseconds up to which; 0: no end.
    pub up_to: u64,
    /// How many.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// A count with its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sum {
    /// How many.
    pub count: u64,
    /// Bytes.
    pub bytes: u64,
}

impl From<(u64, u64)> for Sum {
    fn from((count, bytes): (u64, u64)) -> Sum {
        Sum { count, bytes }
    }
}

/// What came and went.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Churned {
    /// Allocations, of all kinds.
    pub allocations: u64,
    /// Freed.
    pub freed: Sum,
    /// Freed before anything else was allocated.
    pub freed_at_once: Sum,
    /// Freed within about a step; missing if there are no steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub freed_within_step: Option<Sum>,
    /// Calls of the driver that allocate, as far as they were timed: `took` in nanoseconds.
    pub driver_allocs: Calls,
    /// The driver's own frees, as far as they were timed: each waits for the GPU.
    pub driver_frees: Calls,
    /// Frees that vramscope's pool kept and the host waited for.
    pub host_waits: Calls,
    /// Frees that vramscope's pool kept with a barrier on the GPU only.
    pub device_barriers: Calls,
    /// Freed allocations by how long they lived.
    pub lifetimes: Vec<Lifetime>,
    /// Lines that allocate most of what is freed at once.
    pub at_once_top: Vec<Held>,
    /// Lines whose allocations took most time in the driver: `took` is in `bytes_took` of each.
    pub driver_top: Vec<DriverTime>,
}

/// Time in the driver for the allocations of a line.
#[derive(Clone, Debug, Default, Serialize)]
pub struct DriverTime {
    /// The line.
    pub name: String,
    /// Calls.
    pub count: u64,
    /// Nanoseconds.
    pub took: u64,
}

/// Gathers it.
pub fn of(page: &mut Page, history: &History, steps: Option<&Steps>) -> Churned {
    let facts = &history.facts;
    let c = &facts.churn;
    let lifetimes = c.lifetimes.iter().enumerate().map(|(i, (count, bytes))| Lifetime {
        up_to: if i + 1 == c.lifetimes.len() { 0 } else { 10u64.pow(i as u32 + 3) },
        count: *count,
        bytes: *bytes,
    });
    Churned {
        allocations: facts.allocations(),
        freed: c.freed.into(),
        freed_at_once: c.at_once.into(),
        freed_within_step: steps.map(|s| c.within(s.allocations).into()),
        driver_allocs: c.driver_allocs,
        driver_frees: c.driver_frees,
        host_waits: c.host_waits,
        device_barriers: c.device_barriers,
        lifetimes: lifetimes.filter(|l| l.count > 0).collect(),
        at_once_top: at_once(page, history),
        driver_top: driver(page, history),
    }
}

/// The line of each of some stacks.
fn named<T>(page: &mut Page, history: &History, all: Vec<(u32, u32, T)>) -> Vec<(String, T)> {
    let addresses = frames::addresses(history, all.iter().map(|(stack, ..)| *stack));
    page.names.resolve(&history.modules, addresses);
    let name = |stack: u32, caller: u32| {
        let lines = frames::shown(history, &page.names, stack).lines(false);
        match by::own(&lines) {
            Some(frame) => by::line(frame),
            None if caller != 0 => super::text::clean(history.module_name(caller)),
            None => "(no stack)".to_string(),
        }
    };
    all.into_iter().map(|(stack, caller, t)| (name(stack, caller), t)).collect()
}

fn at_once(page: &mut Page, history: &History) -> Vec<Held> {
    let facts = &history.facts;
    let mut sites: Vec<_> = facts.sites.all.iter().filter(|s| s.at_once.0 > 0).collect();
    sites.sort_by_key(|s| std::cmp::Reverse(s.at_once));
    let all = sites.iter().take(5 * TOLD).map(|s| (s.stack, s.caller, s.at_once)).collect();
    let mut top: Vec<Held> = Vec::new();
    for (name, (count, bytes)) in named(page, history, all) {
        match top.iter_mut().find(|h| h.name == name) {
            Some(h) => (h.count, h.bytes, h.requested) = (h.count + count, h.bytes + bytes, h.requested + bytes),
            None => top.push(Held { name, count, bytes, requested: bytes, ..Held::default() }),
        }
    }
    top.sort_by_key(|h| std::cmp::Reverse(h.count));
    top.truncate(TOLD);
    top
}

fn driver(page: &mut Page, history: &History) -> Vec<DriverTime> {
    let facts = &history.facts;
    let mut holders: Vec<_> = facts.ledger.holders.iter().filter(|h| h.driver.took > 0).collect();
    holders.sort_by_key(|h| std::cmp::Reverse(h.driver.took));
    let all = holders.iter().take(5 * TOLD).map(|h| (h.stack, h.caller, h.driver)).collect();
    let mut top: Vec<DriverTime> = Vec::new();
    for (name, calls) in named(page, history, all) {
        match top.iter_mut().find(|t| t.name == name) {
            Some(t) => (t.count, t.took) = (t.count + calls.count, t.took + calls.took),
            None => top.push(DriverTime { name, count: calls.count, took: calls.took }),
        }
    }
    top.sort_by_key(|t| std::cmp::Reverse(t.took));
    top.truncate(TOLD);
    top
}

/// Writes the section.
pub fn section(page: &mut Page, c: &Churned) {
    if c.freed.count == 0 && c.driver_allocs.count == 0 {
        return;
    }
    page.heading("CHURN");
    let of = |s: Sum| format!("{} ({}), {}", count(s.count), percent(s.count, c.allocations), bytes(s.bytes));
    page.row("freed at once", &format!("{}: before anything else was allocated", of(c.freed_at_once)));
    if let Some(within) = c.freed_within_step {
        page.row("freed within a step", &format!("{} of {}", of(within), plural(c.allocations, "allocation")));
    }
    for (name, calls, what) in [
        ("driver allocates", c.driver_allocs, ""),
        ("driver frees", c.driver_frees, ": each waits until the GPU is done"),
        ("host waited", c.host_waits, " in frees that the pool kept"),
    ] {
        let Some(each) = calls.took.checked_div(calls.count) else { continue };
        let calls = format!("{}, {} in all", plural(calls.count, "timed call"), time(calls.took));
        page.row(name, &format!("{calls}, {} each{what}", time(each)));
    }
    for t in c.driver_top.iter().take(3.min(page.top)) {
        let name = clip(&t.name, 52);
        let calls = if t.count == 1 { "call" } else { "calls" };
        page.line(&format!("      {:>9} in {:>7} {calls:<5}  {name}", time(t.took), count(t.count)));
    }
    let most = c.lifetimes.iter().map(|l| l.count).max().unwrap_or(0);
    if most > 0 {
        page.line(&page.paint.dim(&format!("  {:>10}  {:>11}  {:>9}", "lived up to", "allocations", "bytes")));
    }
    for l in &c.lifetimes {
        let bar = "#".repeat((l.count * 36).div_ceil(most.max(1)) as usize);
        let up_to = if l.up_to == 0 { "longer".to_string() } else { time(l.up_to) };
        page.line(format!("  {up_to:>11}  {:>11}  {:>9}  {bar}", count(l.count), bytes(l.bytes)).trim_end());
    }
}
