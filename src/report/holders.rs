//! Who holds it: at the peak, at the end, or at a moment that was asked for.

use serde::Serialize;

use super::Page;
use super::by::{self, By, Held, List};
use super::facts::Facts;
use super::facts::ledger::{Holder, Use};
use super::history::History;
use super::room::{self, Row};
use super::tally::Tally;
use super::text::{WIDTH, bytes, clip, percent, plural, time};
use super::{frames, stacks};
use crate::moment::Moment;

/// Who held what at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct Holders {
    /// `peak`, `end`, or the moment as it was asked for.
    pub moment: String,
    /// Its time, in nanoseconds.
    pub time: u64,
    /// How they are put together.
    pub by: By,
    /// Bytes active.
    pub active: u64,
    /// Who holds them.
    #[serde(flatten)]
    pub list: List,
}

/// Who held what; an error says why that moment is none.
pub fn of(page: &mut Page, history: &History, wanted: &Moment, by: By) -> Result<Holders, String> {
    let facts = &history.facts;
    let (moment, at, usage, held) = held(history, facts, wanted)?;
    let held = held.into_iter().filter(|(h, _)| facts.ledger.counts(h)).collect();
    Ok(Holders { moment, time: at, by, active: usage.in_use, list: by::list(page, history, by, held) })
}

type AtMoment<'a> = (String, u64, Use, Vec<(&'a Holder, Tally)>);

/// What each holder had at a moment.
pub fn held<'a>(history: &History, facts: &'a Facts, wanted: &Moment) -> Result<AtMoment<'a>, String> {
    let ledger = &facts.ledger;
    let all = ledger.holders.iter();
    Ok(match wanted {
        Moment::Peak => {
            let held = all.map(|h| (h, ledger.at_peak(h))).collect();
            ("peak".to_string(), ledger.peak.time, ledger.peak, held)
        }
        Moment::End => {
            let usage = facts.end(&history.state);
            ("end".to_string(), history.end, usage, all.map(|h| (h, h.now)).collect())
        }
        Moment::Time(_) | Moment::Mark(_) => {
            if let Some(why) = wanted.outside(history, (history.start, history.end)) {
                return Err(format!("--at: {why}"));
            }
            let Some(m) = facts.moments.iter().find(|m| m.moment == *wanted) else {
                let marks = facts.regions.marks.iter().map(|m| m.name.as_str());
                return Err(format!("--at: {}", wanted.missing(marks)));
            };
            let held = all.zip(&m.held).map(|(h, t)| (h, *t)).collect();
            let name = match wanted {
                Moment::Mark(text) => format!("mark {text}"),
                _ => time(m.time),
            };
            (name, m.time, m.usage, held)
        }
    })
}

/// Writes the section.
pub fn section(page: &mut Page, history: &History, holders: &Holders) {
    if holders.active == 0 {
        if holders.moment != "peak" {
            page.heading(&format!("HOLDERS at {}, by {}", heading(holders), holders.by.name()));
            page.line("  nothing was active");
        }
        return;
    }
    let when = if history.is_snapshot() { String::new() } else { format!(" at {}", heading(holders)) };
    page.heading(&format!("HOLDERS{when}, by {}", holders.by.name()));
    write(page, &holders.list, holders.active);
}

fn heading(holders: &Holders) -> String {
    match holders.moment.as_str() {
        "peak" => "the peak".to_string(),
        "end" => format!("the end ({})", bytes(holders.active)),
        moment => format!("{moment} ({})", bytes(holders.active)),
    }
}

/// Writes a list, with shares of `whole`.
pub fn write(page: &mut Page, list: &List, whole: u64) {
    for (i, e) in list.entries.iter().take(page.top).enumerate() {
        if e.stack.is_empty() { short(page, i, e, whole) } else { entry(page, i, e, whole) }
    }
    let more = list.entries.len().saturating_sub(page.top);
    let (mut sum, mut count) = (list.rest_bytes, list.rest_count);
    for e in list.entries.iter().skip(page.top) {
        (sum, count) = (sum + e.bytes, count + e.count);
    }
    if count > 0 {
        let what = if more > 0 { format!("{} more", more) } else { "smaller ones".to_string() };
        let all = plural(count, "allocation");
        page.line(&format!("     {:>9}  {:>7}   {all} in {what}", bytes(sum), percent(sum, whole)));
    }
}

fn entry(page: &mut Page, i: usize, e: &Held, whole: u64) {
    let share = percent(e.bytes, whole);
    let head = format!("{:>3}. {:>9}  {share:>7}   {}", i + 1, bytes(e.bytes), plural(e.count, "allocation"));
    let note = clip(&e.what, WIDTH.saturating_sub(head.len() + 2));
    let line = format!("{}  {}", page.paint.bold(&head), page.paint.dim(&note));
    page.line(line.trim_end());
    stacks::shown(page, &e.stack);
}

fn short(page: &mut Page, i: usize, e: &Held, whole: u64) {
    let count = super::text::count(e.count);
    let head = format!("{:>3}. {:>9}  {:>7}  {count:>9}  ", i + 1, bytes(e.bytes), percent(e.bytes, whole));
    let room = WIDTH - head.len();
    let what = if e.what.is_empty() { String::new() } else { format!("  {}", e.what) };
    let name = clip(&e.name, room);
    let what = clip(&what, room.saturating_sub(name.chars().count()));
    let line = format!(
        "{head}{}{}",
        page.paint.bold(&name),
        if what.len() > 8 { page.paint.dim(&what) } else { String::new() }
    );
    page.line(line.trim_end());
}

/// A stack as folded lines: outermost first, each frame's text. For a flame graph.
pub fn folded(page: &mut Page, history: &History, wanted: &Moment) -> Result<Vec<(Vec<String>, u64)>, String> {
    let facts = &history.facts;
    let (_, _, _, held) = held(history, facts, wanted)?;
    let held: Vec<_> = held.into_iter().filter(|(h, t)| t.bytes > 0 && facts.ledger.counts(h)).collect();
    let addresses = frames::addresses(history, held.iter().map(|(h, _)| h.stack));
    page.names.resolve(&history.modules, addresses);
    let mut out = Vec::new();
    for (h, t) in held {
        let lines = frames::shown(history, &page.names, h.stack).lines(page.all_frames);
        let mut path: Vec<String> = room::rows(&lines, usize::MAX)
            .iter()
            .rev()
            .map(|row| match row {
                Row::Frame(f) if f.place.is_empty() => f.what.clone(),
                Row::Frame(f) => format!("{} ({})", f.what, f.place),
                Row::Gap(text) => text.clone(),
            })
            .collect();
        if path.is_empty() {
            path.push(match h.caller {
                0 => "(no stack)".to_string(),
                caller => history.module_name(caller).to_string(),
            });
        }
        out.push((path, t.bytes));
    }
    Ok(out)
}
