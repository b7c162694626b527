//! Regions and marks: how often, how long, and what was allocated in them.

use serde::Serialize;

use super::Page;
use super::history::History;
use super::text::{bytes, clean, clip, clip_start, count, time};

/// Marks in JSON.
const MARKS: usize = 1000;

/// A region, all its times put together.
#[derive(Clone, Debug, Serialize)]
pub struct Region {
    /// Its name, with those that it lies in: `step > forward`.
    pub name: String,
    /// Regions that it lies in.
    pub depth: usize,
    /// How often.
    pub count: u64,
    /// Nanoseconds in all, of those that ended.
    pub time: u64,
    /// How often it had not ended when the history did.
    pub open: u64,
    /// Allocations in it, not in regions inside of it.
    pub allocations: u64,
    /// Their bytes.
    pub allocated: u64,
    /// Most bytes active, of the whole process, when something was allocated while it was open.
    pub peak: u64,
}

/// A mark.
#[derive(Clone, Debug, Serialize)]
pub struct Mark {
    /// Its text.
    pub name: String,
    /// When.
    pub time: u64,
    /// Bytes active then.
    pub active: u64,
}

/// What the program named.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Named {
    /// Regions, those that took longest first.
    pub regions: Vec<Region>,
    /// Marks, the first 1,000.
    pub marks: Vec<Mark>,
}

/// Gathers them.
pub fn of(history: &History) -> Named {
    let facts = &history.facts;
    let region = |p: &super::facts::regions::Named| Region {
        name: clean(&p.name),
        depth: p.depth,
        count: p.count,
        time: p.took,
        open: p.open,
        allocations: p.allocations,
        allocated: p.bytes,
        peak: p.peak,
    };
    let mut regions: Vec<Region> = facts.regions.paths().iter().map(region).collect();
    regions.sort_by_key(|r| std::cmp::Reverse((r.time, r.open)));
    let mark = |m: &super::facts::regions::Mark| Mark { name: clean(&m.name), time: m.time, active: m.in_use };
    Named { regions, marks: facts.regions.marks.iter().take(MARKS).map(mark).collect() }
}

/// Writes the section.
pub fn section(page: &mut Page, named: &Named) {
    if !named.regions.is_empty() {
        page.heading("REGIONS, by time");
        let head = format!(
            "  {:<40} {:>8} {:>9} {:>12} {:>10} {:>10}",
            "region", "times", "time", "allocations", "bytes", "peak"
        );
        page.line(&page.paint.dim(&head));
        for r in named.regions.iter().take(page.top) {
            page.line(&format!(
                "  {:<40} {:>8} {:>9} {:>12} {:>10} {:>10}",
                clip_start(&r.name, 40),
                count(r.count),
                if r.open == r.count { "open".to_string() } else { time(r.time) },
                count(r.allocations),
                bytes(r.allocated),
                if r.peak == 0 { "-".to_string() } else { bytes(r.peak) }
            ));
        }
        if named.regions.len() > page.top {
            page.line(&format!("  and {} more", named.regions.len() - page.top));
        }
        let open: u64 = named.regions.iter().map(|r| r.open).sum();
        if open > 0 {
            let mut names: Vec<&str> = named.regions.iter().filter(|r| r.open > 0).map(|r| r.name.as_str()).collect();
            let more = if names.len() > 3 { format!(" and {} more", names.len() - 3) } else { String::new() };
            names.truncate(3);
            page.fold("  ", &format!("open at the end, and in no time above: {}{more}", names.join(", ")));
        }
    }
    if !named.marks.is_empty() {
        page.heading("MARKS");
        // The first and the last tell how it went.
        let (n, top) = (named.marks.len(), page.top.max(2));
        for (i, m) in named.marks.iter().enumerate() {
            if i < top / 2 || i + top.div_ceil(2) >= n {
                page.line(&format!("  {:>9}  {:>10} active  {}", time(m.time), bytes(m.active), clip(&m.name, 60)));
            } else if i == top / 2 {
                page.line(&format!("  ... {} more", count((n - top) as u64)));
            }
        }
    }
}
