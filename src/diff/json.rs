//! A comparison as JSON, for scripts and CI.

use serde::Serialize;

use super::Diff;
use super::align::Match;
use super::change::Change;
use super::differs::Differs;
use super::headline::Row;
use super::run::Run;
use super::verdict;
use crate::report::frames::Shown;
use crate::report::tally::Tally;

/// The whole answer.
#[derive(Debug, Serialize)]
struct Answer<'a> {
    /// Version of this form.
    version: u32,
    before: Who<'a>,
    after: Who<'a>,
    at: String,
    verdict: String,
    /// Bytes in use at that moment.
    held: Two,
    /// Bytes reserved at most.
    reserved: Two,
    grew: u64,
    shrank: u64,
    failures: &'a [String],
    caveats: &'a [String],
    differs: &'a [Differs],
    numbers: &'a [Row],
    /// Bytes in stacks too small to be told apart.
    rest: Two,
    stacks: Vec<Stack<'a>>,
}

#[derive(Debug, Serialize)]
struct Who<'a> {
    path: String,
    program: &'a str,
    arguments: &'a [String],
    host: &'a str,
    pid: u32,
    events: u64,
    end: u64,
    moment: u64,
}

#[derive(Debug, Serialize)]
struct Two {
    before: u64,
    after: u64,
}

impl Two {
    fn of([before, after]: [u64; 2]) -> Two {
        Two { before, after }
    }
}

#[derive(Debug, Serialize)]
struct Stack<'a> {
    change: i64,
    before: Amount,
    after: Amount,
    #[serde(rename = "match")]
    how: &'static str,
    host: bool,
    note: &'a str,
    frames: Vec<Frame<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    was: Option<Vec<Frame<'a>>>,
}

/// Bytes and how many.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Amount {
    bytes: u64,
    count: u64,
}

impl From<Tally> for Amount {
    fn from(t: Tally) -> Amount {
        Amount { bytes: t.bytes, count: t.count }
    }
}

/// A frame of a stack.
#[derive(Debug, Serialize)]
pub(crate) struct Frame<'a> {
    function: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    place: &'a str,
}

/// Frames, innermost first.
pub(crate) fn frames(all: &[Shown]) -> Vec<Frame<'_>> {
    all.iter().map(|f| Frame { function: &f.what, place: &f.place }).collect()
}

/// How a change's stacks match, in a word.
pub(crate) fn how(change: &Change) -> &'static str {
    match change.how {
        Some(Match::Exact) => "exact",
        Some(Match::Lines) => "lines",
        Some(Match::Names) => "names",
        Some(Match::Nearly) => "nearly",
        None if change.is_new() => "new",
        None => "gone",
    }
}

/// The answer, with what failed a limit.
pub fn write(diff: &Diff, before: &Run, after: &Run, failures: &[String]) -> String {
    let answer = Answer {
        version: 1,
        before: who(before),
        after: who(after),
        at: diff.basis.word(),
        verdict: verdict::verdict(diff),
        held: Two::of(diff.held),
        reserved: Two::of(diff.reserved),
        grew: diff.sum(true),
        shrank: diff.sum(false),
        failures,
        caveats: &diff.caveats,
        differs: &diff.differs,
        numbers: &diff.headline,
        rest: Two::of(diff.rest),
        stacks: diff.changes.iter().map(stack).collect(),
    };
    let mut text = serde_json::to_string_pretty(&answer).unwrap_or_default();
    text.push('\n');
    text
}

fn who(run: &Run) -> Who<'_> {
    let header = &run.history.header;
    Who {
        path: run.path().display().to_string(),
        program: &header.program,
        arguments: &header.arguments,
        host: &header.host,
        pid: header.pid,
        events: run.events,
        end: run.end,
        moment: run.held.at_moment().time,
    }
}

fn stack(c: &Change) -> Stack<'_> {
    Stack {
        change: c.bytes(),
        before: c.before.into(),
        after: c.after.into(),
        how: how(c),
        host: c.host,
        note: &c.note,
        frames: frames(&c.frames),
        was: c.was.as_deref().map(frames),
    }
}
