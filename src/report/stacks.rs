//! Allocations by call stack: groups whose visible frames are the same become one entry, the largest first.

use std::collections::HashMap;

use super::Page;
use super::frames::{self, Shown};
use super::history::History;
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
        let frames = frames::shown(history, &page.names, group.stack);
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
        stack(page, &e.frames);
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
pub fn stack(page: &mut Page, frames: &[Shown]) {
    const INDENT: usize = 8;
    if frames.is_empty() {
        let text = page.paint.dim("(no stack)");
        page.line(&format!("{:INDENT$}{text}", ""));
    }
    // One more frame takes no more room than saying that there is one.
    let room = if frames.len() == page.frames + 1 { frames.len() } else { page.frames };
    for f in frames.iter().take(room) {
        page.line(format!("{:INDENT$}{}", "", frames::line(f, WIDTH - INDENT)).trim_end());
    }
    if frames.len() > room {
        let text = page.paint.dim(&format!("... {} more frames", frames.len() - room));
        page.line(&format!("{:INDENT$}{text}", ""));
    }
}
