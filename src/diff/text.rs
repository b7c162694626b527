//! A comparison on a terminal.

use super::change::Change;
use super::headline::{Row, Unit};
use super::run::Run;
use super::verdict::{factor, share, signed, verdict};
use super::{Diff, in_words};
use crate::diff::align::Match;
use crate::report::Page;
use crate::report::frames::{self, Shown};
use crate::report::python::Whose;
use crate::report::room::{self, Row as Line};
use crate::report::text::{WIDTH, bytes, clean, clip, count, plural, time};

/// Differences that are listed; libraries may be many.
const DIFFERS: usize = 12;

/// Changes of less than this part of what is held are not listed: they are noise, and there may be hundreds.
const NOISE: u64 = 2000;

/// Bytes of host memory that are worth a word.
const HOST: u64 = 64 << 10;

/// Writes the whole comparison.
pub fn write(page: &mut Page, diff: &Diff, before: &Run, after: &Run) {
    head(page, diff, before, after);
    let text = verdict(diff);
    page.heading("VERDICT");
    fold(page, "  ", &text);
    numbers(page, &diff.headline);
    for host in [false, true] {
        list(page, diff, host, true);
        list(page, diff, host, false);
    }
    names_missing(page);
}

fn head(page: &mut Page, diff: &Diff, before: &Run, after: &Run) {
    for (name, run) in [("BEFORE", before), ("AFTER", after)] {
        let h = &run.history.header;
        let command = if h.arguments.is_empty() { h.program.clone() } else { h.arguments.join(" ") };
        let name = page.paint.bold(&format!("{name:<8}"));
        page.line(&format!("{name}{}", clip(&clean(&command), WIDTH - 8)));
        let events = format!("{} on {}, {}", h.pid, clean(&h.host), plural(run.events, "event"));
        let path = clean(&run.path().display().to_string());
        page.line(&format!("        {}", clip(&format!("{path}: process {events}"), WIDTH - 8)));
    }
    for d in diff.differs.iter().take(DIFFERS) {
        page.row(&clip(&d.what, 21), &format!("{} -> {}", clip(&d.before, 120), clip(&d.after, 120)));
    }
    if diff.differs.len() > DIFFERS {
        page.row("and", &format!("{} differ", plural((diff.differs.len() - DIFFERS) as u64, "more thing")));
    }
    for caveat in &diff.caveats {
        let text = page.paint.red(&clean(caveat));
        fold(page, "  ", &text);
    }
}

/// A text over several lines.
pub(crate) fn fold(page: &mut Page, indent: &str, text: &str) {
    let mut line = indent.to_string();
    for word in text.split(' ') {
        if line.chars().count() + word.chars().count() > WIDTH && line.trim().len() > 1 {
            page.line(line.trim_end());
            line = format!("{indent}  ");
        }
        line.push_str(word);
        line.push(' ');
    }
    page.line(line.trim_end());
}

fn numbers(page: &mut Page, rows: &[Row]) {
    page.heading("NUMBERS");
    let head = format!("  {:<30} {:>12} {:>12} {:>12}", "", "before", "after", "change");
    let head = page.paint.dim(&head);
    page.line(&head);
    for row in rows {
        let name = format!("{}{}", if row.part { "  " } else { "" }, clean(&row.name));
        let text = |n: u64| match row.unit {
            Unit::Bytes => bytes(n),
            Unit::Count => count(n),
            Unit::Nanoseconds => time(n),
            Unit::Permille => format!("{}.{} %", n / 10, n % 10),
        };
        let more = i128::from(row.after) - i128::from(row.before);
        let sign = if more < 0 { "-" } else { "+" };
        let change = match more {
            0 => "same".to_string(),
            _ => format!("{sign}{}", text(more.unsigned_abs() as u64)),
        };
        let part = if more == 0 || row.unit == Unit::Permille { String::new() } else { share(row.before, row.after) };
        let line = format!(
            "  {:<30} {:>12} {:>12} {change:>12} {part:>10}",
            clip(&name, 30),
            text(row.before),
            text(row.after)
        );
        let line = if row.part { page.paint.dim(line.trim_end()) } else { line.trim_end().to_string() };
        page.line(&line);
    }
}

fn list(page: &mut Page, diff: &Diff, host: bool, grown: bool) {
    let all: Vec<&Change> = diff.of(host).filter(|c| if grown { c.bytes() > 0 } else { c.bytes() < 0 }).collect();
    if all.is_empty() {
        return;
    }
    let sum: u64 = all.iter().map(|c| c.bytes().unsigned_abs()).sum();
    // The runtime's few pinned bytes are no news.
    let floor = if host { HOST } else { diff.held[0].max(diff.held[1]) / NOISE };
    if host && sum < floor {
        return;
    }
    let (what, sign) = if grown { ("GREW", "+") } else { ("SHRANK", "-") };
    let place = if host { ", host memory" } else { "" };
    page.heading(&format!("{what} {}{place}, by call stack: {sign}{}", diff.basis, bytes(sum)));
    let shown = all.iter().take(page.top).take_while(|c| c.bytes().unsigned_abs() >= floor.max(1)).count();
    for (i, change) in all[..shown].iter().enumerate() {
        entry(page, i + 1, change);
    }
    let rest = &all[shown..];
    if !rest.is_empty() {
        let sum: i64 = rest.iter().map(|c| c.bytes()).sum();
        page.line(&format!("     {:>10}   in {}", signed(sum), plural(rest.len() as u64, "smaller change")));
    }
}

fn entry(page: &mut Page, number: usize, c: &Change) {
    let factor = match c.how {
        None if c.is_new() => "new".to_string(),
        None => "gone".to_string(),
        Some(_) => factor(c.before.bytes, c.after.bytes),
    };
    let head = format!("{number:>3}. {:>10}  {factor:>6}", signed(c.bytes()));
    let from = format!("   {} -> {}", in_words(c.before), in_words(c.after));
    let note = clip(&c.note, WIDTH.saturating_sub(head.len() + from.len() + 2));
    let line = format!("{}{from}  {}", page.paint.bold(&head), page.paint.dim(&note));
    page.line(line.trim_end());
    stack(page, &c.frames);
    if let Some(text) = moved(c) {
        let text = page.paint.dim(&clip(&text, WIDTH - 8));
        page.line(&format!("        {text}"));
    }
}

/// What is not the same in the stack before.
pub(crate) fn moved(c: &Change) -> Option<String> {
    let was = c.was.as_ref()?;
    let apart = |f: &&Shown| !c.frames.contains(f);
    let first = was.iter().find(apart)?;
    let place = if first.place.is_empty() { String::new() } else { format!(" ({})", first.place) };
    match c.how? {
        Match::Exact => None,
        Match::Lines => {
            // Only lines moved: the user's own first.
            let users = was.iter().filter(|f| f.whose == Whose::User).find(apart);
            let frame = users.unwrap_or(first);
            let more = was.iter().filter(apart).count() - 1;
            let more = if more > 0 { format!(" and {}", plural(more as u64, "more line")) } else { String::new() };
            let at = if frame.place.is_empty() { &frame.what } else { &frame.place };
            Some(format!("(before: {at}{more})"))
        }
        Match::Names => Some(format!("(the same by name; before: {}{place})", first.what)),
        Match::Nearly => Some(format!("(nearly the same; before: {}{place})", first.what)),
    }
}

/// Writes a stack's frames.
pub(crate) fn stack(page: &mut Page, frames: &[Shown]) {
    const INDENT: usize = 8;
    if frames.is_empty() {
        let text = page.paint.dim("(no stack)");
        page.line(&format!("{:INDENT$}{text}", ""));
    }
    let room = if page.all_frames { usize::MAX } else { page.frames };
    for row in room::rows(frames, room) {
        let text = match row {
            Line::Frame(frame) => {
                let line = frames::line(frame, WIDTH - INDENT);
                if frame.whose == Whose::User { page.paint.bold(line.trim_end()) } else { line }
            }
            Line::Gap(text) => page.paint.dim(&text),
        };
        page.line(format!("{:INDENT$}{text}", "").trim_end());
    }
}

/// Says whose names are missing: stacks without names match by library only.
pub(crate) fn names_missing(page: &mut Page) {
    let notes = std::mem::take(&mut page.names.notes);
    if notes.is_empty() {
        return;
    }
    page.heading("NAMES MISSING (--symbols FOLDER says where else to look)");
    for note in notes.iter().take(DIFFERS) {
        page.line(&format!("  {}", clip(&clean(note), WIDTH - 2)));
    }
    if notes.len() > DIFFERS {
        page.line(&format!("  and {} more", notes.len() - DIFFERS));
    }
}
