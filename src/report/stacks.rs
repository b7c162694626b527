//! Allocations by call stack: groups whose visible frames are the same become one entry, the largest first.

use std::collections::HashMap;

use super::Page;
use super::frames::{self, Frames, Shown};
use super::history::History;
use super::python::Whose;
use super::room::{self, Row};
use super::runtime;
use super::state::Group;
use super::tally::Tally;
use super::text::{WIDTH, bytes, clip, percent, plural};

/// Groups looked at: what is smaller is summed up as the rest.
const CANDIDATES: usize = 1000;

/// An entry of a list.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Visible frames, innermost first.
    pub frames: Vec<Shown>,
    /// What it amounts to.
    pub tally: Tally,
    /// Kind, entry point and caller, for what the stack does not say.
    pub note: String,
}

/// Which number of a tally a list is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Bytes of blocks.
    Bytes,
    /// Bytes asked for.
    Requested,
}

impl By {
    fn of(self, t: Tally) -> u64 {
        match self {
            By::Bytes => t.bytes,
            By::Requested => t.requested,
        }
    }
}

/// Groups as entries, the largest first, and what was left out.
pub fn entries(page: &mut Page, history: &History, mut groups: Vec<(&Group, Tally)>, by: By) -> (Vec<Entry>, Tally) {
    groups.sort_by_key(|(g, t)| (std::cmp::Reverse(by.of(*t)), g.stack));
    let mut rest = Tally::default();
    for (_, t) in groups.drain(groups.len().min(CANDIDATES)..) {
        rest.merge(t);
    }
    let addresses = frames::addresses(history, groups.iter().map(|(g, _)| g.stack));
    page.names.resolve(&history.modules, addresses);
    let mut entries: Vec<Entry> = Vec::new();
    let mut known: HashMap<(Vec<Shown>, String), usize> = HashMap::new();
    for (group, tally) in groups {
        let frames = frames::shown(history, &page.names, group.stack).lines(page.all_frames);
        let note = note(history, group);
        let at = *known.entry((frames.clone(), note.clone())).or_insert_with(|| {
            entries.push(Entry { frames, tally: Tally::default(), note });
            entries.len() - 1
        });
        entries[at].tally.merge(tally);
    }
    entries.sort_by_key(|e| std::cmp::Reverse(by.of(e.tally)));
    (entries, rest)
}

/// How it was asked for, and by whom.
fn note(history: &History, group: &Group) -> String {
    let mut words = vec![group.api.name().to_string()];
    words.retain(|w| !w.is_empty());
    if group.caller != 0 {
        words.push(format!("by {}", super::text::clean(history.module_name(group.caller))));
        words.extend(
            runtime::caller(history, group.caller, group.stack).map(|n| format!("for {}", super::text::clean(n))),
        );
    }
    words.join(" ")
}

/// Writes a list: at most the page's number of entries, then how much the rest is. `whole` is what shares are of.
pub fn list(page: &mut Page, entries: &[Entry], mut rest: Tally, by: By, whole: u64) {
    for (i, e) in entries.iter().take(page.top).enumerate() {
        let head = format!(
            "{:>3}. {:>9}  {:>7}   {}",
            i + 1,
            bytes(by.of(e.tally)),
            percent(by.of(e.tally), whole),
            plural(e.tally.count, "allocation")
        );
        let note = clip(&e.note, WIDTH.saturating_sub(head.len() + 2));
        let line = format!("{}  {}", page.paint.bold(&head), page.paint.dim(&note));
        page.line(line.trim_end());
        lines(page, &e.frames);
    }
    let more = entries.len().saturating_sub(page.top);
    for e in entries.iter().skip(page.top) {
        rest.merge(e.tally);
    }
    if rest.count > 0 {
        let stacks = if more > 0 { plural(more as u64, "more stack") } else { "smaller stacks".to_string() };
        page.line(&format!(
            "     {:>9}  {:>7}   {} in {stacks}",
            bytes(by.of(rest)),
            percent(by.of(rest), whole),
            plural(rest.count, "allocation")
        ));
    }
}

/// Writes a stack's visible frames.
pub fn stack(page: &mut Page, frames: &Frames) {
    lines(page, &frames.lines(page.all_frames));
}

/// Writes visible frames.
pub fn shown(page: &mut Page, frames: &[Shown]) {
    lines(page, frames);
}

fn lines(page: &mut Page, lines: &[Shown]) {
    const INDENT: usize = 8;
    if lines.is_empty() {
        let text = page.paint.dim("(no stack)");
        page.line(&format!("{:INDENT$}{text}", ""));
    }
    let room = if page.all_frames { usize::MAX } else { page.frames };
    for row in room::rows(lines, room) {
        let text = match row {
            Row::Frame(frame) => {
                let line = frames::line(frame, WIDTH - INDENT);
                // The user's own Python is what most look for.
                if frame.whose == Whose::User { page.paint.bold(line.trim_end()) } else { line }
            }
            Row::Gap(text) => page.paint.dim(&text),
        };
        page.line(format!("{:INDENT$}{text}", "").trim_end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing::{MIB, Script, names, trained};
    use crate::report::text::Paint;
    use vramscope_core::event::Memory;
    use vramscope_core::trace::Frame;

    /// A stack of PyTorch's as written.
    fn written(change: impl Fn(&mut Page)) -> String {
        let (script, stack) = trained();
        let mut page = Page::new(Paint::default(), &[], 10);
        page.names = names();
        change(&mut page);
        let frames = frames::shown(&script.history(), &page.names, stack);
        super::stack(&mut page, &frames);
        page.out
    }

    #[test]
    fn python_lines_are_seen_in_little_room() {
        let text = written(|page| page.frames = 3);
        println!("{text}");
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        assert_eq!(lines.len(), 6);
        assert!(lines[0].starts_with("c10::cuda::raw_alloc(unsigned long) ") && lines[0].ends_with("libc10_cuda.so"));
        assert!(lines[1].starts_with("at::linear"));
        assert!(lines[2].starts_with("Linear.forward ") && lines[2].ends_with(" torch/nn/modules/linear.py:125"));
        assert!(lines[3].starts_with("Module._call_impl"));
        assert!(lines[4].starts_with("Net.forward ") && lines[4].ends_with(" train.py:20"));
        assert_eq!(lines[5], "... 3 more frames");
    }

    #[test]
    fn the_users_python_stands_out() {
        let text = written(|page| page.paint.on = true);
        assert!(text.contains("\x1b[1mNet.forward ") && text.contains("train.py:20\x1b[0m\n"), "{text}");
        assert!(!text.contains("\x1b[1mLinear.forward"));
    }

    #[test]
    fn all_frames_are_all() {
        let text = written(|page| page.all_frames = true);
        assert_eq!(text.lines().count(), 16, "{text}");
        assert!(text.contains("_PyEval_EvalFrameDefault") && text.contains("libvramscope.so+0x99"));
    }

    #[test]
    fn stacks_that_differ_in_the_interpreter_are_one_entry() {
        let mut s = Script::new();
        s.module(2, "/usr/lib/libpython3.11.so.1.0");
        let step = s.python("step", "/job/train.py", 7);
        for offset in [0x10, 0x20] {
            let stack = s.stack_of(&[step.clone(), Frame::Native(2, offset)]);
            s.direct(Memory::Device, 2 * MIB, stack, 1);
        }
        let history = s.history();
        let mut page = Page::new(Paint::default(), &[], 10);
        let groups = || history.state.groups().iter().map(|g| (g, g.now)).collect();
        let (one, _) = entries(&mut page, &history, groups(), By::Bytes);
        assert_eq!((one.len(), one[0].tally.count, one[0].frames[0].place.as_str()), (1, 2, "train.py:7"));
        page.all_frames = true;
        assert_eq!(entries(&mut page, &history, groups(), By::Bytes).0.len(), 2);
    }
}
