//! Ways to put what is held together: by call stack, line, function, library, region, thread, device.

use std::collections::HashMap;

use serde::Serialize;

use super::Page;
use super::facts::ledger::Holder;
use super::frames::{self, Shown};
use super::history::History;
use super::python::{STANDARD, Whose};
use super::tally::Tally;
use super::text::clean;

/// Holders looked at one by one; what is smaller is summed up as the rest.
const CANDIDATES: usize = 2000;

/// What a row has besides what others allocate in the same line.
const PYTORCH: &str = "PyTorch";

/// By what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// The whole call stack
    #[default]
    Stack,
    /// The line of your program (Python first) that asked
    Line,
    /// The function of that line
    Function,
    /// The Python package, or the library that called
    Library,
    /// The region (NVTX range, `vramscope.region`)
    Region,
    /// The thread
    Thread,
    /// The GPU
    Device,
}

impl By {
    /// As a heading says it.
    pub fn name(self) -> &'static str {
        match self {
            By::Stack => "call stack",
            By::Line => "line",
            By::Function => "function",
            By::Library => "library",
            By::Region => "region",
            By::Thread => "thread",
            By::Device => "GPU",
        }
    }
}

/// What one of them holds.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Held {
    /// Its name: a line, function, library, region, thread or device; of a call stack, its line.
    pub name: String,
    /// Bytes of the blocks.
    pub bytes: u64,
    /// Bytes asked for.
    pub requested: u64,
    /// Allocations.
    pub count: u64,
    /// Kind of memory and who called, where it is one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub what: String,
    /// The call stack, innermost first; empty where several are put together.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stack: Vec<Shown>,
}

/// The largest, and what is left.
#[derive(Clone, Debug, Default, Serialize)]
pub struct List {
    /// The largest first.
    pub entries: Vec<Held>,
    /// What was too small to be looked at: bytes,
    pub rest_bytes: u64,
    /// in so many allocations.
    pub rest_count: u64,
}

impl List {
    /// Bytes of all.
    pub fn bytes(&self) -> u64 {
        self.rest_bytes + self.entries.iter().map(|e| e.bytes).sum::<u64>()
    }
}

/// Puts holders together.
pub fn list(page: &mut Page, history: &History, by: By, mut held: Vec<(&Holder, Tally)>) -> List {
    held.retain(|(_, t)| t.count > 0);
    held.sort_by_key(|(h, t)| (std::cmp::Reverse(t.bytes), h.stack));
    let mut list = List::default();
    if !matches!(by, By::Region | By::Thread | By::Device) {
        for (_, t) in held.drain(held.len().min(CANDIDATES)..) {
            list.rest_bytes += t.bytes;
            list.rest_count += t.count;
        }
        let addresses = frames::addresses(history, held.iter().map(|(h, _)| h.stack));
        page.names.resolve(&history.modules, addresses);
    }
    // Of one line there is one row, in whatever ways it came to allocate.
    let mut known: HashMap<(Vec<Shown>, String, String), usize> = HashMap::new();
    let mut lines: HashMap<u32, Vec<Shown>> = HashMap::new();
    for (holder, tally) in held {
        let all = page.all_frames && by == By::Stack;
        let shown = || frames::shown(history, &page.names, holder.stack).lines(all);
        let stack = match by {
            By::Region | By::Thread | By::Device => Vec::new(),
            _ => lines.entry(holder.stack).or_insert_with(shown).clone(),
        };
        let name = name(history, by, holder, &stack);
        let what = match by {
            By::Stack => note(history, holder),
            By::Line | By::Function if holder.tensor => PYTORCH.to_string(),
            By::Line | By::Function => note(history, holder),
            _ => String::new(),
        };
        let stack = if by == By::Stack { stack } else { Vec::new() };
        let key = (stack.clone(), name.clone(), if by == By::Stack { what.clone() } else { String::new() });
        let at = *known.entry(key).or_insert_with(|| {
            list.entries.push(Held { name, stack, ..Held::default() });
            list.entries.len() - 1
        });
        let e = &mut list.entries[at];
        also(&mut e.what, &what);
        e.bytes += tally.bytes;
        e.requested += tally.requested;
        e.count += tally.count;
    }
    // Where all of a row is PyTorch's, that says nothing.
    list.entries.iter_mut().filter(|e| e.what == PYTORCH).for_each(|e| e.what.clear());
    list.entries.sort_by_key(|e| std::cmp::Reverse(e.bytes));
    list
}

/// Adds one more way of allocating to those of a row, the largest first.
fn also(what: &mut String, more: &str) {
    const MOST: usize = 3;
    let known = what.split(", ").filter(|w| !w.is_empty()).count();
    if more.is_empty() || known >= MOST || what.split(", ").any(|w| w == more) {
        return;
    }
    if known > 0 {
        what.push_str(", ");
    }
    what.push_str(more);
}

fn name(history: &History, by: By, holder: &Holder, stack: &[Shown]) -> String {
    match by {
        By::Stack | By::Line => own(stack).map_or_else(|| nameless(history, holder), line),
        By::Function => own(stack).map_or_else(|| nameless(history, holder), |s| s.what.clone()),
        By::Library => library(history, holder, stack),
        By::Region => {
            let region = history.facts.regions.path(holder.region);
            if region.is_empty() { "(no region)".to_string() } else { clean(region) }
        }
        By::Thread => match history.threads.get(&holder.thread) {
            Some((tid, name)) => format!("{} ({tid})", clean(name)),
            None => format!("thread {}", holder.thread),
        },
        By::Device => {
            let name = history.devices.get(&holder.device).map_or(String::new(), |d| format!(" {}", clean(&d.name)));
            format!("GPU {}{name}", holder.device)
        }
    }
}

/// The line that a person looks for: the user's innermost, else the innermost of Python, else where in PyTorch's backward pass
/// it is, else the innermost with a name.
pub fn own(stack: &[Shown]) -> Option<&Shown> {
    let user = stack.iter().find(|s| s.whose == Whose::User);
    let backward = || stack.iter().find(|s| s.place == frames::BACKWARD);
    let named = || stack.iter().find(|s| !s.what.contains("+0x"));
    let python = || stack.iter().find(|s| s.whose != Whose::Native);
    user.or_else(python).or_else(backward).or_else(named).or(stack.first())
}

/// A frame in one piece: `train.py:31 forward`.
pub fn line(frame: &Shown) -> String {
    let what = frame.what.split('(').next().unwrap_or(&frame.what);
    match frame.place.is_empty() || frame.count > 1 {
        true => frame.what.clone(),
        false => format!("{} {}", frame.place, what.trim_end()),
    }
}

fn nameless(history: &History, holder: &Holder) -> String {
    match holder.caller {
        0 => "(no stack)".to_string(),
        caller => clean(history.module_name(caller)),
    }
}

/// The installed package nearest to the allocation that is more than PyTorch itself; without Python, the library that called.
fn library(history: &History, holder: &Holder, stack: &[Shown]) -> String {
    let caller = || nameless(history, holder);
    if !holder.tensor && holder.caller != 0 {
        return caller();
    }
    let before_user = stack.iter().take_while(|s| s.whose != Whose::User);
    let packages = before_user.filter_map(|s| if let Whose::Library(p) = &s.whose { Some(p.as_str()) } else { None });
    if let Some(package) = packages.filter(|p| *p != STANDARD && *p != "torch").last() {
        return package.to_string();
    }
    match stack.iter().any(|s| s.whose == Whose::User) {
        true => "your code, through torch".to_string(),
        false if holder.tensor => "torch".to_string(),
        false => caller(),
    }
}

/// How it was asked for, and by whom.
fn note(history: &History, holder: &Holder) -> String {
    let mut words = vec![holder.api.name().to_string()];
    words.retain(|w| !w.is_empty());
    if holder.caller != 0 {
        words.push(format!("by {}", clean(history.module_name(holder.caller))));
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing::{MIB, Script, names};
    use crate::report::text::Paint;
    use vramscope_core::event::Memory;
    use vramscope_core::trace::Frame;

    #[test]
    fn a_line_is_one_row_whatever_stacks_lead_to_it() {
        let mut s = Script::new();
        s.module(3, "/usr/lib/libcublas.so.13");
        s.module(4, "/usr/lib/libc10_cuda.so");
        // One line and function, and as many places and stacks as there are instructions in it.
        for (offset, caller, memory) in
            [(0x10, 4, Memory::Tensor), (0x20, 4, Memory::Tensor), (0x30, 3, Memory::Device)]
        {
            let frames = [Frame::Native(caller, offset), s.python("forward", "/job/train.py", 20)];
            let stack = s.stack_of(&frames);
            s.direct(memory, MIB, stack, if memory == Memory::Tensor { 0 } else { caller });
        }
        let other = s.python("forward", "/job/train.py", 21);
        let stack = s.stack_of(&[other]);
        s.direct(Memory::Tensor, MIB, stack, 0);
        let history = s.history();
        let mut page = Page::new(Paint::default(), &[], 10);
        page.names = names();
        let mut rows = |by: By| {
            let held = history.facts.ledger.holders.iter().map(|h| (h, h.now)).collect();
            let list = list(&mut page, &history, by, held);
            list.entries.iter().map(|e| (e.name.clone(), e.what.clone(), e.count)).collect::<Vec<_>>()
        };
        let of = |name: &str, what: &str, n: u64| (name.to_string(), what.to_string(), n);
        let both = "PyTorch, cuMemAlloc by libcublas.so.13";
        let (first, second) = (of("train.py:20 forward", both, 3), of("train.py:21 forward", "", 1));
        assert_eq!(rows(By::Line), [first, second]);
        assert_eq!(rows(By::Function), [of("forward", both, 4)]);
        assert_eq!(rows(By::Stack).len(), 4);
        for by in [By::Library, By::Region, By::Thread, By::Device] {
            let rows = rows(by);
            let names: std::collections::BTreeSet<&String> = rows.iter().map(|r| &r.0).collect();
            assert_eq!(names.len(), rows.len(), "{by:?}: {rows:?}");
        }
    }

    #[test]
    fn ways_are_told_once_each() {
        let mut what = String::new();
        for more in ["", "a", "b", "a", "c", "d"] {
            also(&mut what, more);
        }
        assert_eq!(what, "a, b, c");
    }
}
