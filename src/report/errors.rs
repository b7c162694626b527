//! What went wrong: failed allocations, bad frees, losses.

use std::collections::{BTreeMap, HashSet};

use vramscope_core::api::Api;
use vramscope_core::event::{Event, EventKind};

use super::Page;
use super::history::{History, Lives};
use super::state::State;
use super::text::{WIDTH, bytes, clean, clip, plural, time};
use super::{codes, frames, stacks};

/// Bad frees remembered one by one.
const KEPT: usize = 1000;

/// Failed allocations of one stack, entry point and code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed {
    /// How many.
    pub count: u64,
    /// Most bytes asked for by one of them.
    pub largest: u64,
    /// When the first was.
    pub first: u64,
    /// Active and inactive bytes then.
    pub held: (u64, u64),
}

/// A free of something not live.
#[derive(Clone, Copy, Debug)]
pub struct BadFree {
    /// The event.
    pub event: Event,
    /// The allocation it freed again, if it was one.
    pub alloc: Option<Event>,
    /// The free before it.
    pub free: Option<Event>,
}

/// What went wrong.
#[derive(Clone, Debug, Default)]
pub struct Errors {
    /// Failed allocations by code, entry point and stack.
    pub failed: BTreeMap<(u16, u8, u32), Failed>,
    /// Bad frees, the first of them.
    pub bad_frees: Vec<BadFree>,
    /// Bad frees in all.
    pub bad: u64,
    /// Frees that the driver refused, by code.
    pub refused: BTreeMap<u16, u64>,
}

impl Errors {
    /// Looks at an event, and at the state before it.
    pub fn play(&mut self, e: &Event, state: &State) {
        match e.kind {
            EventKind::AllocFailed => {
                let held = (state.now.active(), state.now.inactive());
                let first = Failed { count: 0, largest: 0, first: e.time, held };
                let failed = self.failed.entry((e.code, e.api as u8, e.stack)).or_insert(first);
                failed.count += 1;
                failed.largest = failed.largest.max(e.bytes);
            }
            EventKind::BadFree => {
                self.bad += 1;
                if self.bad_frees.len() < KEPT {
                    self.bad_frees.push(BadFree { event: *e, alloc: None, free: None });
                }
            }
            EventKind::FreeFailed => *self.refused.entry(e.code).or_default() += 1,
            _ => {}
        }
    }

    /// The allocations that were freed twice.
    pub fn freed_twice(&self) -> HashSet<u64> {
        self.bad_frees.iter().map(|b| b.event.id).filter(|id| *id != 0).collect()
    }

    /// Takes what was found of them.
    pub fn first_frees(&mut self, found: Lives) {
        for b in &mut self.bad_frees {
            if let Some((alloc, free)) = found.get(&b.event.id) {
                (b.alloc, b.free) = (*alloc, *free);
            }
        }
    }

    /// Whether nothing went wrong.
    pub fn is_empty(&self) -> bool {
        self.failed.is_empty() && self.bad == 0 && self.refused.is_empty()
    }
}

/// Writes the section.
pub fn section(page: &mut Page, history: &History) {
    let errors = &history.errors;
    let footer = history.footer.clone().unwrap_or_default();
    let lost = footer.lost > 0 || footer.stacks_refused > 0;
    if errors.is_empty() && history.notes.is_empty() && !lost {
        return;
    }
    page.heading("ERRORS AND NOTES");
    failed(page, history);
    bad_frees(page, history);
    for (code, n) in &errors.refused {
        page.line(&format!("  {} refused by the driver: {}", plural(*n, "free"), codes::name(*code)));
    }
    if footer.lost > 0 {
        let text = format!(
            "  {} lost: a thread was faster than the recorder; sums and lists may be off by them",
            plural(footer.lost, "event")
        );
        page.line(&page.paint.red(&text));
    }
    if footer.stacks_refused > 0 {
        page.line(&format!("  {} not recorded: the table of stacks was full", plural(footer.stacks_refused, "stack")));
    }
    for note in history.notes.iter().take(page.top) {
        page.line(&format!("  {:>9}  {}", time(note.time), clip(&clean(&note.message), WIDTH - 13)));
    }
    if history.notes.len() > page.top {
        page.line(&format!("  and {}", plural((history.notes.len() - page.top) as u64, "more note")));
    }
}

fn failed(page: &mut Page, history: &History) {
    let failed = &history.errors.failed;
    let mut rows: Vec<_> = failed.iter().collect();
    rows.sort_by_key(|(_, f)| f.first);
    let addresses = frames::addresses(history, rows.iter().take(page.top).map(|((_, _, stack), _)| *stack));
    page.names.resolve(&history.modules, addresses);
    for ((code, api, stack), f) in rows.iter().take(page.top) {
        let api = Api::from_number(*api).map_or("", Api::name);
        let what = format!("  {}: {} {}", plural(f.count, "failed allocation"), api, codes::name(*code));
        page.line(&page.paint.red(&what));
        let size = if f.count == 1 { bytes(f.largest) } else { format!("at most {}", bytes(f.largest)) };
        let (active, inactive) = f.held;
        page.line(&format!(
            "        asked for {size}, first at {}, with {} active and {} inactive",
            time(f.first),
            bytes(active),
            bytes(inactive)
        ));
        let shown = frames::shown(history, &page.names, *stack);
        stacks::stack(page, &shown);
    }
    if rows.len() > page.top {
        page.line(&format!("  and failed allocations from {}", plural((rows.len() - page.top) as u64, "more place")));
    }
}

fn bad_frees(page: &mut Page, history: &History) {
    let errors = &history.errors;
    let rows: Vec<BadFree> = errors.bad_frees.iter().take(page.top).copied().collect();
    let stacks = rows.iter().flat_map(|b| [Some(b.event.stack), b.free.map(|f| f.stack), b.alloc.map(|a| a.stack)]);
    let addresses = frames::addresses(history, stacks.flatten());
    page.names.resolve(&history.modules, addresses);
    for b in &rows {
        let e = &b.event;
        let what = match (e.id, b.alloc) {
            (0, _) => format!("  free of 0x{:x}, which is no live allocation", e.address),
            (_, Some(a)) => format!("  double free of 0x{:x} ({})", e.address, bytes(a.bytes)),
            (_, None) => format!("  double free of 0x{:x}", e.address),
        };
        page.line(&page.paint.red(&format!("{what}, at {}", time(e.time))));
        section_stack(page, history, e.stack);
        if let Some(free) = b.free {
            page.line(&format!("      freed before, at {}:", time(free.time)));
            section_stack(page, history, free.stack);
        }
        if let Some(alloc) = b.alloc {
            page.line(&format!("      allocated at {}:", time(alloc.time)));
            section_stack(page, history, alloc.stack);
        }
    }
    if errors.bad > rows.len() as u64 {
        page.line(&format!("  and {}", plural(errors.bad - rows.len() as u64, "more bad free")));
    }
}

fn section_stack(page: &mut Page, history: &History, stack: u32) {
    let shown = frames::shown(history, &page.names, stack);
    stacks::stack(page, &shown);
}
