//! The text of one file, in pieces of whole lines: what is cut from them, and where, is told with each.

use std::io;
use std::path::Path;

use super::source::{More, Source};

/// No line is longer. (A stack of 1,000 frames takes 30 KiB; a header holds what a program was called with, 6 MiB at most.)
pub(super) const LONGEST: usize = 16 << 20;

/// A piece of a file's text.
#[derive(Debug, Default)]
pub(super) struct Piece {
    /// Whole lines; if `open`, the end of the last one is missing.
    pub text: Vec<u8>,
    /// Lines begun before it.
    pub line: u64,
    /// Where in the file's text it begins.
    pub offset: u64,
    /// The file ended within its last line.
    pub open: bool,
    /// What follows it and cannot be read.
    pub broken: Option<Broken>,
}

/// A place that is left out.
#[derive(Debug)]
pub(super) struct Broken {
    /// Line, from 1.
    pub line: u64,
    /// Where that line begins in the file's text.
    pub byte: u64,
    /// What is wrong there.
    pub what: String,
}

/// A file being read.
#[derive(Debug)]
pub(super) struct Text {
    source: Source,
    /// The beginning of a line.
    rest: Vec<u8>,
    /// Where in the file's text `rest` begins.
    offset: u64,
    /// Lines begun, and where the last of them begins.
    line: u64,
    line_start: u64,
    /// Stop there.
    limit: u64,
    ended: bool,
    /// In a line that is too long.
    skipping: bool,
}

impl Text {
    /// Opens a file, to be read up to this length of its text.
    pub(super) fn open(path: &Path, limit: u64) -> io::Result<Text> {
        let source = Source::open(path)?;
        let (rest, offset, line, line_start) = (Vec::new(), 0, 0, 0);
        Ok(Text { source, rest, offset, line, line_start, limit, ended: false, skipping: false })
    }

    /// Whether the file is made of zstd frames.
    pub(super) fn is_compressed(&self) -> bool {
        self.source.is_compressed()
    }

    /// The place of the line begun last, with what is wrong there.
    pub(super) fn last_place(&self, what: String) -> Broken {
        Broken { line: self.line, byte: self.line_start, what }
    }

    /// The next piece: of at least this size, if there is so much before something that is broken.
    pub(super) fn next(&mut self, size: usize) -> Option<Piece> {
        let mut text = std::mem::take(&mut self.rest);
        // Up to where lines are whole.
        let mut whole = 0;
        let mut what = None;
        while !self.ended && what.is_none() && (whole == 0 || text.len() < size) {
            if whole == 0 && text.len() > LONGEST {
                what = Some(format!("a line longer than {} MiB", LONGEST >> 20));
                self.begin_line();
                self.offset += text.len() as u64;
                text.clear();
                self.skipping = true;
                break;
            }
            let before = text.len();
            what = self.read(&mut text);
            let from = if self.skipping { self.skip(&mut text) } else { before };
            // After a break a line begins.
            self.skipping &= what.is_none();
            if let Some(end) = text.get(from..).and_then(|new| memchr::memrchr(b'\n', new)) {
                whole = from + end + 1;
            }
        }
        let mut piece = Piece { line: self.line, offset: self.offset, ..Piece::default() };
        if what.is_some() || self.skipping {
            // The line that the break cut is lost; the next frame begins a line.
            let lost = text.len() - whole;
            text.truncate(whole);
            self.hand_out(&text, false);
            if lost > 0 {
                self.begin_line();
                self.offset += lost as u64;
            }
        } else if self.ended {
            piece.open = whole < text.len();
            self.hand_out(&text, piece.open);
        } else {
            self.rest = text.split_off(whole);
            self.hand_out(&text, false);
        }
        piece.text = text;
        piece.broken = what.map(|what| self.last_place(what));
        (!piece.text.is_empty() || piece.broken.is_some()).then_some(piece)
    }

    /// Drops what belongs to a line that is too long; says where the next line begins.
    fn skip(&mut self, text: &mut Vec<u8>) -> usize {
        let end = memchr::memchr(b'\n', text);
        self.skipping = end.is_none();
        let dropped = end.map_or(text.len(), |end| end + 1);
        text.drain(..dropped);
        self.offset += dropped as u64;
        0
    }

    /// Counts these lines.
    fn hand_out(&mut self, text: &[u8], open: bool) {
        let Some(last) = text.len().checked_sub(1) else { return };
        self.line += memchr::memchr_iter(b'\n', text).count() as u64 + u64::from(open);
        let start = memchr::memrchr(b'\n', &text[..last]).map_or(0, |end| end + 1);
        self.line_start = self.offset + start as u64;
        self.offset += text.len() as u64;
    }

    fn begin_line(&mut self) {
        self.line += 1;
        self.line_start = self.offset;
    }

    /// Reads on; says what broke, if something did.
    fn read(&mut self, text: &mut Vec<u8>) -> Option<String> {
        let broken = match self.source.read(text) {
            Ok(More::Text | More::FrameEnd) => None,
            Ok(More::End) => {
                self.ended = true;
                None
            }
            Ok(More::Broken(what)) => Some(what.to_owned()),
            Err(e) => {
                self.ended = true;
                Some(format!("cannot be read further: {e}"))
            }
        };
        if self.offset + text.len() as u64 >= self.limit {
            text.truncate((self.limit - self.offset) as usize);
            self.ended = true;
            return None;
        }
        broken
    }
}
