//! What went wrong: failed allocations, bad frees, losses.

use std::collections::{BTreeMap, HashSet};

use vramscope_core::api::Api;
use vramscope_core::event::{Event, EventKind, Memory};
use vramscope_core::trace::Module;

use super::Page;
use super::facts::ledger::Use;
use super::history::{History, Lives};
use super::text::{WIDTH, bytes, clean, clip, plural, time};
use super::tries::{Request, Tries};
use super::{codes, frames, stacks};

/// Bad frees remembered one by one.
const KEPT: usize = 1000;

/// Failed requests of one stack, entry point and code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed {
    /// How many: what the program, or who called PyTorch, saw.
    pub count: u64,
    /// Calls of the driver that failed for them.
    pub tries: u64,
    /// Of which memory.
    pub memory: Memory,
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
    /// Failed requests by code, entry point and stack.
    pub failed: BTreeMap<(u16, u8, u32), Failed>,
    /// Requests that PyTorch was served when it asked again.
    pub served: BTreeMap<(u16, u8, u32), Failed>,
    /// Bad frees, the first of them.
    pub bad_frees: Vec<BadFree>,
    /// Bad frees in all.
    pub bad: u64,
    /// Frees that the driver refused, by code.
    pub refused: BTreeMap<u16, u64>,
    tries: Tries,
}

impl Errors {
    /// Takes in a library.
    pub fn module(&mut self, m: &Module) {
        self.tries.module(m);
    }

    /// Looks at an event, and at what was in use before it.
    pub fn play(&mut self, thread: u32, e: &Event, usage: impl FnOnce() -> Use) {
        let held = || {
            let now = usage();
            (now.in_use, now.reserved.saturating_sub(now.in_use))
        };
        for request in self.tries.play(thread, e, held).into_iter().flatten() {
            self.settled(&request);
        }
        match e.kind {
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

    fn settled(&mut self, r: &Request) {
        let e = &r.event;
        let all = if r.served { &mut self.served } else { &mut self.failed };
        let first = Failed { count: 0, tries: 0, memory: e.memory, largest: 0, first: e.time, held: r.held };
        let failed = all.entry((e.code, e.api as u8, e.stack)).or_insert(first);
        failed.count += 1;
        failed.tries += r.tries;
        failed.largest = failed.largest.max(e.bytes);
    }

    /// The history ends.
    pub fn finish(&mut self) {
        for request in self.tries.finish() {
            self.settled(&request);
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
        self.failed.is_empty() && self.served.is_empty() && self.bad == 0 && self.refused.is_empty()
    }
}

/// Writes the section.
pub fn section(page: &mut Page, history: &History) {
    let errors = &history.errors;
    let (lost, stacks_refused) = (history.lost(), history.stacks_refused());
    if errors.is_empty() && history.notes.is_empty() && lost == 0 && stacks_refused == 0 {
        return;
    }
    page.heading("ERRORS AND NOTES");
    failed(page, history);
    bad_frees(page, history);
    for (code, n) in &errors.refused {
        page.line(&format!("  {} refused by the driver: {}", plural(*n, "free"), codes::name(*code)));
    }
    if lost > 0 {
        let why = match history.footer.as_ref().is_some_and(|f| f.end == "stopped") {
            true => "recording had stopped, or a thread was faster than the recorder",
            false => "a thread was faster than the recorder",
        };
        let text = format!("  {} lost: {why}; sums and lists may be off by them", plural(lost, "event"));
        page.line(&page.paint.red(&text));
    }
    if stacks_refused > 0 {
        page.line(&format!("  {} not recorded: the table of stacks was full", plural(stacks_refused, "stack")));
    }
    for note in history.notes.iter().take(page.top) {
        page.line(&format!("  {:>9}  {}", time(note.time), clip(&clean(&note.message), WIDTH - 13)));
    }
    if history.notes.len() > page.top {
        page.line(&format!("  and {}", plural((history.notes.len() - page.top) as u64, "more note")));
    }
}

fn failed(page: &mut Page, history: &History) {
    let (failed, served) = (&history.errors.failed, &history.errors.served);
    let mut rows: Vec<_> =
        failed.iter().map(|(key, f)| (key, f, false)).chain(served.iter().map(|(key, f)| (key, f, true))).collect();
    rows.sort_by_key(|(_, f, _)| f.first);
    let addresses = frames::addresses(history, rows.iter().take(page.top).map(|((_, _, stack), ..)| *stack));
    page.names.resolve(&history.modules, addresses);
    for ((code, api, stack), f, served) in rows.iter().take(page.top) {
        let api = match Api::from_number(*api).map_or("", Api::name) {
            "" if f.memory == Memory::Tensor => "PyTorch",
            api => api,
        };
        let what = match (served, f.tries > f.count) {
            (true, _) => format!("{} served only when PyTorch asked again:", plural(f.count, "request")),
            (false, true) => format!("{} after {}:", plural(f.count, "failed allocation"), plural(f.tries, "call")),
            (false, false) => format!("{}:", plural(f.count, "failed allocation")),
        };
        let what = format!("  {what} {api} {}", codes::name(*code));
        page.line(&if *served { what } else { page.paint.red(&what) });
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
