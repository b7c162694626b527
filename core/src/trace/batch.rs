//! A piece of a history on its way from text to lines: a [`Chunk`] is read and decompressed, a [`Batch`] is parsed as
//! well. The work between the two can be done in any thread, the chunks of a history in several at once.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use super::Line;
use super::parse::{Parsed, Parser};
use super::read::Damage;
use super::source::CUT;
use super::text::{Broken, Piece};
use crate::event::{Event, EventKind};

/// Whole lines of a history, not parsed yet.
#[derive(Debug)]
pub struct Chunk {
    pub(super) path: Arc<Path>,
    pub(super) piece: Piece,
    pub(super) cursor: Cursor,
    /// Of a later part, whose opening only repeats.
    pub(super) later: bool,
    /// The first of a later part: the events that this counts before it.
    pub(super) before: Option<u64>,
}

/// How far a piece is parsed.
#[derive(Clone, Debug, Default)]
pub(super) struct Cursor {
    at: usize,
    /// Line begun last, and where it begins.
    pub(super) line: u64,
    pub(super) start: u64,
}

/// Why a line is left out; nothing: it is the last one, and cut. Told of the first only: there may be millions.
#[derive(Debug)]
pub(super) struct BadLine(Option<serde_json::Error>);

impl BadLine {
    /// Whether the file ends within it.
    pub(super) fn is_cut(&self) -> bool {
        self.0.is_none()
    }
}

/// Whether the file ends within a frame.
pub(super) fn is_cut(broken: &Broken) -> bool {
    broken.what == CUT
}

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(e) => write!(f, "not a line of a history ({e})"),
            None => f.write_str("the last line is cut"),
        }
    }
}

impl Cursor {
    /// At the beginning of a piece.
    pub(super) fn of(piece: &Piece) -> Cursor {
        Cursor { at: 0, line: piece.line, start: piece.offset }
    }

    /// The next line; an error is a line that is left out.
    pub(super) fn next(&mut self, piece: &Piece, parser: &mut Parser) -> Option<Result<Parsed, BadLine>> {
        loop {
            let rest = piece.text.get(self.at..).filter(|rest| !rest.is_empty())?;
            let end = memchr::memchr(b'\n', rest);
            let line = &rest[..end.unwrap_or(rest.len())];
            self.line += 1;
            self.start = piece.offset + self.at as u64;
            self.at += line.len() + 1;
            if line.trim_ascii().is_empty() {
                continue;
            }
            return Some(parser.parse_or_header(line).map_err(|e| BadLine(end.map(|_| e))));
        }
    }

    /// Whether the line of the last answer has no end.
    pub(super) fn is_past(&self, piece: &Piece) -> bool {
        self.at > piece.text.len()
    }
}

/// Lines of a history in their order.
#[derive(Debug)]
pub struct Batch {
    path: Arc<Path>,
    /// Lines begun before it.
    line: u64,
    before: Option<u64>,
    events: Vec<Entry>,
    others: Vec<Other>,
    damage: Option<Damage>,
    /// The file ends within its last line or frame.
    cut: Option<Damage>,
    exited: bool,
    another: bool,
}

/// Small, because there are millions of them.
#[derive(Debug)]
struct Entry {
    /// Its line, counted from the batch's first.
    line: u32,
    thread: u32,
    event: Event,
}

#[derive(Debug)]
struct Other {
    /// Events before it.
    events: usize,
    line: u32,
    what: Box<Line>,
}

/// A line of a batch.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// Something that happened to memory, in the thread of that number.
    Event(u32, Event),
    /// Any other line.
    Line(Box<Line>),
}

impl Item {
    /// As a [`super::read::Reader`] gives it.
    pub fn line(self) -> Line {
        match self {
            Item::Event(thread, event) => Line::Event(thread, event),
            Item::Line(line) => *line,
        }
    }
}

/// What is said where a second history begins in a file.
pub(super) const ANOTHER: &str = "another history begins here and is not read";

impl Chunk {
    /// Parses it.
    pub fn parse(mut self, parser: &mut Parser) -> Batch {
        let piece = &self.piece;
        let (path, line, before) = (self.path, self.cursor.line, self.before);
        let (events, others) = (Vec::new(), Vec::new());
        let (damage, cut, exited, another) = (None, None, false, false);
        let mut batch = Batch { path, line, before, events, others, damage, cut, exited, another };
        // Most lines are events, of some 130 bytes.
        batch.events.reserve(piece.text.len() / 128);
        while let Some(parsed) = self.cursor.next(piece, parser) {
            let line = u32::try_from(self.cursor.line - batch.line).unwrap_or(u32::MAX);
            let what = match parsed {
                Ok(Parsed::Event(thread, event)) => {
                    batch.exited |= event.kind == EventKind::Exit;
                    batch.events.push(Entry { line, thread, event });
                    continue;
                }
                Ok(Parsed::Live(..)) if self.later => continue,
                Ok(Parsed::Live(thread, event)) => {
                    batch.exited |= event.kind == EventKind::Exit;
                    Box::new(Line::Live(thread, event))
                }
                // Two files put together: their numbers and addresses mean different things.
                Ok(Parsed::Other(other)) if matches!(*other, Line::Header(_)) => {
                    batch.damaged(self.cursor.line, self.cursor.start, &ANOTHER);
                    batch.another = true;
                    return batch;
                }
                Ok(Parsed::Other(other)) => other,
                Err(what) => {
                    let to = if what.is_cut() { &mut batch.cut } else { &mut batch.damage };
                    Damage::add_here(to, &batch.path, self.cursor.line, self.cursor.start, &what);
                    continue;
                }
            };
            batch.others.push(Other { events: batch.events.len(), line, what });
        }
        if let Some(broken) = self.piece.broken {
            let to = if is_cut(&broken) { &mut batch.cut } else { &mut batch.damage };
            Damage::add_here(to, &batch.path, broken.line, broken.byte, &broken.what);
        }
        batch
    }
}

impl Batch {
    /// The file it is from.
    pub fn path(&self) -> &Arc<Path> {
        &self.path
    }

    /// How many events it has.
    pub fn events(&self) -> u64 {
        self.events.len() as u64
    }

    /// With the first batch of a later part: the events that this counts before it.
    pub fn before(&self) -> Option<u64> {
        self.before
    }

    /// What had to be left out of it, but for [`Batch::cut`].
    pub fn damage(&self) -> Option<&Damage> {
        self.damage.as_ref()
    }

    /// The end of the file, if it lies within a line or a frame.
    pub fn cut(&self) -> Option<&Damage> {
        self.cut.as_ref()
    }

    /// Whether the program's exit handlers ran in it. What a cut end behind that holds happened after all that the history
    /// promises: in a thread that went on until the process was gone.
    pub fn exited(&self) -> bool {
        self.exited
    }

    /// Whether it ends where another history begins in the same file: nothing after it belongs to this one.
    pub fn meets_another(&self) -> bool {
        self.another
    }

    fn damaged(&mut self, line: u64, byte: u64, what: &dyn fmt::Display) {
        Damage::add_here(&mut self.damage, &self.path, line, byte, what);
    }
}

impl IntoIterator for Batch {
    /// A line, and its number in its file.
    type Item = (u64, Item);
    type IntoIter = Items;

    fn into_iter(self) -> Items {
        let (events, mut others) = (self.events.into_iter(), self.others.into_iter());
        let next = others.next();
        Items { line: self.line, done: 0, events, next, others }
    }
}

/// The lines of a batch.
#[derive(Debug)]
pub struct Items {
    line: u64,
    /// Events handed out.
    done: usize,
    events: std::vec::IntoIter<Entry>,
    next: Option<Other>,
    others: std::vec::IntoIter<Other>,
}

impl Iterator for Items {
    type Item = (u64, Item);

    fn next(&mut self) -> Option<(u64, Item)> {
        if let Some(other) = self.next.take_if(|other| other.events == self.done) {
            self.next = self.others.next();
            return Some((self.line + u64::from(other.line), Item::Line(other.what)));
        }
        let Entry { line, thread, event } = self.events.next()?;
        self.done += 1;
        Some((self.line + u64::from(line), Item::Event(thread, event)))
    }
}
