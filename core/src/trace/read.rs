//! A history from its file: plain or compressed, whole, cut or damaged. Whatever the bytes are, reading ends without a
//! panic and within bounded memory, and says what it had to leave out. Nothing here starts a thread: the preload library
//! holds this code too. [`Chunks`] is for who does (the command's `reading`).

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::batch::{ANOTHER, Cursor, is_cut};
use super::parse::Parsed;
use super::source::MAGIC;
use super::text::{Piece, Text};
use super::{FORMAT, Header, Line, VERSION};
use crate::event::EventKind;

pub use super::batch::{Batch, Chunk, Item, Items};
pub use super::parse::Parser;
pub use super::parts::{Held, named_by, parts};
pub(crate) use super::parts::{missing, newer_of, part_of};

/// Why a history cannot be read at all.
#[derive(Debug)]
pub struct ReadError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub kind: ReadErrorKind,
}

/// See [`ReadError`].
#[derive(Debug)]
#[non_exhaustive]
pub enum ReadErrorKind {
    /// The system refused.
    Io(io::Error),
    /// Nothing in it that can be read: it is empty, or cut within its first line or frame.
    Empty,
    /// The first line is no header.
    NotHistory,
    /// Lines of a history without their header.
    NoBeginning,
    /// Written by a newer version, of this format number.
    Newer(u32),
    /// It is the older part of this history.
    OlderPart(PathBuf),
    /// All that is left of it is this older part: it has no end that could be finished.
    NoEnd(PathBuf),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path.display())?;
        match &self.kind {
            ReadErrorKind::Io(e) => write!(f, "cannot be read: {e}"),
            ReadErrorKind::Empty => f.write_str(
                "line 1: nothing can be read, the file is empty or cut within its first line (or first zstd frame); if the program was killed, run `vramscope recover` on it",
            ),
            ReadErrorKind::NotHistory => f.write_str(
                "line 1: not a history of vramscope; give the .jsonl or .jsonl.zst file that `vramscope run` wrote",
            ),
            ReadErrorKind::NoBeginning => f.write_str(
                "line 1: no header, but lines of a history follow: its beginning is gone (was the file emptied, or cut, while its program wrote it?), and what they mean with it; record once more into a new file (`--max-trace` keeps it small)",
            ),
            ReadErrorKind::OlderPart(newer) => {
                write!(f, "is a part of {newer}, which is read with it: give {newer}", newer = newer.display())
            }
            ReadErrorKind::NoEnd(older) => write!(
                f,
                "this last part of the history is missing, and its spool: there is nothing to finish; all commands read what is left, {older}, as it is",
                older = older.display()
            ),
            ReadErrorKind::Newer(version) => write!(
                f,
                "line 1: written in format {version}, this vramscope reads up to {VERSION}; use the version that wrote it or a newer one"
            ),
        }
    }
}

impl std::error::Error for ReadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            ReadErrorKind::Io(e) => Some(e),
            _ => None,
        }
    }
}

/// What had to be left out of a history: the first place, and how much in all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub path: PathBuf,
    /// Line of the (uncompressed) text, from 1; 0: the file is missing.
    pub line: u64,
    /// Where that line begins in the (uncompressed) text.
    pub byte: u64,
    /// What is wrong there.
    pub what: String,
    /// Places in all.
    pub places: u64,
}

impl Damage {
    /// Adds what was found later.
    pub fn add(all: &mut Option<Damage>, more: &Damage) {
        match all {
            Some(all) => all.places = all.places.saturating_add(more.places),
            None => *all = Some(more.clone()),
        }
    }

    /// Adds a place.
    pub(super) fn add_here(all: &mut Option<Damage>, path: &Path, line: u64, byte: u64, what: &dyn fmt::Display) {
        match all {
            Some(all) => all.places += 1,
            None => *all = Some(Damage { path: path.to_owned(), line, byte, what: what.to_string(), places: 1 }),
        }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path.display())?;
        if self.line > 0 {
            write!(f, "line {} (byte {}): ", self.line, self.byte)?;
        }
        f.write_str(&self.what)?;
        if self.places > 1 {
            write!(f, "; {} more places", self.places - 1)?;
        }
        Ok(())
    }
}

/// A history as chunks of text, all its parts: for who parses in several threads.
#[derive(Debug)]
pub struct Chunks {
    path: Arc<Path>,
    text: Text,
    /// Read with the header.
    opened: Option<Chunk>,
    header: Header,
    rest: VecDeque<PathBuf>,
    /// A part that should be there.
    missing: Option<Damage>,
    /// In a later part.
    later: bool,
}

/// Text of a chunk, about: much for what its hand-over costs, little for memory.
const SIZE: usize = 512 << 10;
/// Where only the header is wanted, no more than one read.
const FIRST: usize = 1;

impl Chunks {
    /// Opens a history. The older part of a rotated one is read first.
    pub fn open(path: &Path) -> Result<Chunks, ReadError> {
        let mut rest: VecDeque<PathBuf> = parts(path).into();
        let files: Vec<PathBuf> = rest.iter().cloned().collect();
        let first = rest.pop_front().unwrap_or_else(|| path.to_owned());
        let chunks = Chunks::open_part(&first, u64::MAX)?;
        if let Some(newer) = part_of(path, &chunks.header) {
            return Err(ReadError { path: path.to_owned(), kind: ReadErrorKind::OlderPart(newer) });
        }
        let missing = missing(path, &files, &chunks.header);
        Ok(Chunks { rest, missing, ..chunks })
    }

    /// A part that is not there, and should be.
    pub fn missing(&self) -> Option<&Damage> {
        self.missing.as_ref()
    }

    /// Opens one file, and reads it up to this length of its text.
    pub(super) fn open_part(path: &Path, limit: u64) -> Result<Chunks, ReadError> {
        let error = |kind| ReadError { path: path.to_owned(), kind };
        let mut text = Text::open(path, limit).map_err(|e| error(ReadErrorKind::Io(e)))?;
        // Empty lines may come before it.
        let (piece, cursor, first) = loop {
            let piece = text.next(FIRST).ok_or_else(|| error(ReadErrorKind::Empty))?;
            let mut cursor = Cursor::of(&piece);
            match cursor.next(&piece, &mut Parser::default()) {
                None if piece.broken.is_none() => {}
                first => break (piece, cursor, first),
            }
        };
        let header = match first {
            Some(Ok(Parsed::Other(line))) => match *line {
                Line::Header(header) if header.format == FORMAT => header,
                Line::Header(_) => return Err(error(ReadErrorKind::NotHistory)),
                _ if goes_on(&piece.text[..]) => return Err(error(ReadErrorKind::NoBeginning)),
                _ => return Err(error(ReadErrorKind::NotHistory)),
            },
            // A header or a frame that is cut is a history cut before its first line, not some other file.
            None | Some(Err(_)) if text.is_compressed() => return Err(error(ReadErrorKind::Empty)),
            Some(Err(_)) if cursor.is_past(&piece) && could_begin(&piece.text[..]) => {
                return Err(error(ReadErrorKind::Empty));
            }
            _ if goes_on(&piece.text[..]) => return Err(error(ReadErrorKind::NoBeginning)),
            _ => return Err(error(ReadErrorKind::NotHistory)),
        };
        if header.version > VERSION {
            return Err(error(ReadErrorKind::Newer(header.version)));
        }
        let path: Arc<Path> = path.into();
        let opened = Some(Chunk { path: path.clone(), piece, cursor, later: false, before: None });
        Ok(Chunks { path, text, opened, header, rest: VecDeque::new(), missing: None, later: false })
    }

    /// The header of the first part. It is not among the lines of the chunks.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The place of the line read last, with what is wrong behind it.
    fn broken_here(&self, what: String) -> Chunk {
        let piece = Piece { broken: Some(self.text.last_place(what)), ..Piece::default() };
        Chunk { path: self.path.clone(), cursor: Cursor::of(&piece), piece, later: self.later, before: None }
    }
}

/// Whether a history's file may begin so, and end there.
fn could_begin(text: &[u8]) -> bool {
    let text = text.trim_ascii_start();
    text.starts_with(b"{\"kind\":\"header\"") || MAGIC.starts_with(text)
}

/// Whether a history goes on so, in the midst of a line perhaps: its first or its second line is one of those that our writer
/// writes behind the header.
fn goes_on(text: &[u8]) -> bool {
    let ours = |line: &[u8]| {
        let parsed = Parser::default().parse_or_header(line);
        let known = match parsed {
            Ok(Parsed::Event(..) | Parsed::Live(..)) => true,
            Ok(Parsed::Other(line)) => !matches!(*line, Line::Unknown | Line::Header(_)),
            Err(_) => false,
        };
        line.starts_with(b"{\"kind\":\"") && known
    };
    text.split_inclusive(|b| *b == b'\n').take(2).any(ours)
}

impl Iterator for Chunks {
    type Item = Chunk;

    fn next(&mut self) -> Option<Chunk> {
        loop {
            if let Some(mut chunk) = self.opened.take() {
                chunk.later = self.later;
                return Some(chunk);
            }
            if let Some(piece) = self.text.next(SIZE) {
                let cursor = Cursor::of(&piece);
                return Some(Chunk { path: self.path.clone(), piece, cursor, later: self.later, before: None });
            }
            let path = self.rest.pop_front()?;
            match Chunks::open_part(&path, u64::MAX) {
                Ok(Chunks { path, text, mut opened, header, .. }) => {
                    if let Some(first) = &mut opened {
                        first.before = Some(header.events_before);
                    }
                    (self.path, self.text, self.opened) = (path, text, opened);
                }
                Err(e) => return Some(self.broken_here(e.to_string())),
            }
            self.later = true;
        }
    }
}

/// Reads the lines of a history, all its parts.
#[derive(Debug)]
pub struct Reader {
    chunks: Chunks,
    chunk: Chunk,
    parser: Parser,
    damage: Option<Damage>,
    held: Held,
    /// The exit event was read (see [`Batch::exited`]).
    exited: bool,
    /// The header of the first part, still to be handed out.
    first: Option<Header>,
    another: bool,
}

impl Reader {
    /// Opens a history. The older part of a rotated one is read first.
    pub fn open(path: &Path) -> Result<Reader, ReadError> {
        Chunks::open(path).map(Reader::of)
    }

    /// Opens one file, and reads it up to this length of its text.
    pub(crate) fn open_part(path: &Path, text: u64) -> Result<Reader, ReadError> {
        Chunks::open_part(path, text).map(Reader::of)
    }

    fn of(mut chunks: Chunks) -> Reader {
        let first = Some(chunks.header.clone());
        let (damage, held) = (chunks.missing.clone(), Held::new(&chunks.header));
        let chunk = chunks.next().unwrap_or_else(|| chunks.broken_here(String::new()));
        Reader { chunks, chunk, parser: Parser::default(), damage, held, exited: false, first, another: false }
    }

    /// The header.
    pub fn header(&self) -> &Header {
        self.chunks.header()
    }

    /// What had to be left out so far; all of it, after the last line.
    pub fn damage(&self) -> Option<&Damage> {
        self.damage.as_ref()
    }

    /// Whether reading ended where another history begins in the same file.
    pub fn meets_another(&self) -> bool {
        self.another
    }

    /// Line number of the line handed out last, in its part.
    pub fn line(&self) -> u64 {
        self.chunk.cursor.line
    }

    /// Where the line handed out last begins in the text of its part.
    pub(crate) fn byte(&self) -> u64 {
        self.chunk.cursor.start
    }

    fn damaged(&mut self, line: u64, byte: u64, what: &dyn fmt::Display) {
        Damage::add_here(&mut self.damage, &self.chunk.path, line, byte, what);
    }
}

impl Iterator for Reader {
    type Item = Line;

    fn next(&mut self) -> Option<Line> {
        if let Some(header) = self.first.take() {
            return Some(Line::Header(header));
        }
        while !self.another {
            match self.chunk.cursor.next(&self.chunk.piece, &mut self.parser) {
                Some(Ok(Parsed::Event(thread, event))) => {
                    self.held.add(1);
                    self.exited |= event.kind == EventKind::Exit;
                    return Some(Line::Event(thread, event));
                }
                Some(Ok(Parsed::Live(..))) if self.chunk.later => {}
                Some(Ok(Parsed::Live(thread, event))) => {
                    self.exited |= event.kind == EventKind::Exit;
                    return Some(Line::Live(thread, event));
                }
                // Two files put together: their numbers and addresses mean different things.
                Some(Ok(Parsed::Other(line))) if matches!(*line, Line::Header(_)) => {
                    self.another = true;
                    self.damaged(self.line(), self.byte(), &ANOTHER);
                }
                Some(Ok(Parsed::Other(line))) => return Some(*line),
                Some(Err(what)) if what.is_cut() && self.exited => {}
                Some(Err(what)) => self.damaged(self.line(), self.byte(), &what),
                None => {
                    if let Some(broken) = self.chunk.piece.broken.take().filter(|b| !(self.exited && is_cut(b))) {
                        self.damaged(broken.line, broken.byte, &broken.what);
                    }
                    self.chunk = self.chunks.next()?;
                    if let Some(before) = self.chunk.before {
                        self.held.begin(&self.chunk.path, before, &mut self.damage);
                    }
                }
            }
        }
        None
    }
}
