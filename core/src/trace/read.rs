//! A history from its file: plain or compressed, whole, cut or damaged. Whatever the bytes are, reading ends without a
//! panic and within bounded memory, and says what it had to leave out.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::parse::Parser;
use super::source::{MAGIC, More, Source};
use super::{FORMAT, Header, Line, VERSION};

/// No line is longer. (A stack of 1,000 frames takes 30 KiB.)
const LONGEST: usize = 64 << 20;

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
    /// Written by a newer version, of this format number.
    Newer(u32),
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
    /// Line of the (uncompressed) text, from 1.
    pub line: u64,
    /// Where that line begins in the (uncompressed) text.
    pub byte: u64,
    /// What is wrong there.
    pub what: String,
    /// Places in all.
    pub places: u64,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: line {} (byte {}): {}", self.path.display(), self.line, self.byte, self.what)?;
        if self.places > 1 {
            write!(f, "; {} more places", self.places - 1)?;
        }
        Ok(())
    }
}

/// The files of a history, oldest first: a rotated one has an older part beside it.
pub fn parts(path: &Path) -> Vec<PathBuf> {
    let older = super::older_part(path);
    let part = |path: &Path| File::open(path).ok().map(|file| file.header);
    match (part(&older), part(path)) {
        // The older part of this history, not of another that had the name.
        (Some(before), Some(part)) if before.same_run(&part) && before.part.checked_add(1) == Some(part.part) => {
            vec![older, path.to_owned()]
        }
        // Killed between the renaming of the old part and the creation of the new one.
        (Some(_), None) if !path.exists() => vec![older],
        _ => vec![path.to_owned()],
    }
}

/// Reads the lines of a history, all its parts.
pub struct Reader {
    file: File,
    rest: VecDeque<PathBuf>,
    damage: Option<Damage>,
    /// The header of the first part, still to be handed out.
    first: Option<Header>,
    header: Header,
    /// In a later part, whose opening only repeats.
    later: bool,
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("path", &self.file.path).field("line", &self.file.line).finish_non_exhaustive()
    }
}

impl Reader {
    /// Opens a history. The older part of a rotated one is read first.
    pub fn open(path: &Path) -> Result<Reader, ReadError> {
        let mut rest: VecDeque<PathBuf> = parts(path).into();
        let first = rest.pop_front().unwrap_or_else(|| path.to_owned());
        Ok(Reader { rest, ..Reader::of(File::open(&first)?) })
    }

    /// Opens one file, and reads it up to this length of its text.
    pub(crate) fn open_part(path: &Path, text: u64) -> Result<Reader, ReadError> {
        Ok(Reader::of(File::open_up_to(path, text)?))
    }

    fn of(file: File) -> Reader {
        let header = file.header.clone();
        Reader { rest: VecDeque::new(), damage: None, first: Some(header.clone()), header, later: false, file }
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// What had to be left out so far; all of it, after the last line.
    pub fn damage(&self) -> Option<&Damage> {
        self.damage.as_ref()
    }

    /// Whether reading ended where another history begins in the same file.
    pub fn meets_another(&self) -> bool {
        self.file.another
    }

    /// Line number of the line handed out last, in its part.
    pub fn line(&self) -> u64 {
        self.file.line
    }

    /// Where the line handed out last begins in the text of its part.
    pub(crate) fn byte(&self) -> u64 {
        self.file.line_start
    }

    fn damaged(&mut self, what: String) {
        match &mut self.damage {
            Some(damage) => damage.places += 1,
            None => {
                let (path, line, byte) = (self.file.path.clone(), self.file.line, self.file.line_start);
                self.damage = Some(Damage { path, line, byte, what, places: 1 });
            }
        }
    }

    fn next_part(&mut self) -> bool {
        let Some(path) = self.rest.pop_front() else { return false };
        match File::open(&path) {
            Ok(file) => {
                self.file = file;
                self.later = true;
                true
            }
            Err(e) => {
                self.damaged(e.to_string());
                false
            }
        }
    }
}

impl Iterator for Reader {
    type Item = Line;

    fn next(&mut self) -> Option<Line> {
        if let Some(header) = self.first.take() {
            return Some(Line::Header(header));
        }
        while !self.file.another {
            match self.file.next() {
                Some(Ok(Line::Live(..))) if self.later => {}
                // Two files put together: their numbers and addresses mean different things.
                Some(Ok(Line::Header(_))) => {
                    self.damaged("another history begins here and is not read".to_owned());
                    self.file.another = true;
                }
                Some(Ok(line)) => return Some(line),
                Some(Err(what)) => self.damaged(what),
                None if self.next_part() => {}
                None => break,
            }
        }
        None
    }
}

/// One file of a history.
struct File {
    path: PathBuf,
    source: Source,
    parser: Parser,
    header: Header,
    text: Vec<u8>,
    /// The part of `text` not parsed yet.
    at: usize,
    /// Up to where no end of line was found.
    searched: usize,
    /// Where in the whole text `at` is.
    offset: u64,
    /// Lines begun, and where the last of them begins.
    line: u64,
    line_start: u64,
    /// Stop there.
    limit: u64,
    ended: bool,
    /// In a line that is too long, or whose beginning was lost.
    skipping: bool,
    /// Another history begins after this one.
    another: bool,
}

impl File {
    fn open(path: &Path) -> Result<File, ReadError> {
        File::open_up_to(path, u64::MAX)
    }

    fn open_up_to(path: &Path, limit: u64) -> Result<File, ReadError> {
        let error = |kind| ReadError { path: path.to_owned(), kind };
        let source = Source::open(path).map_err(|e| error(ReadErrorKind::Io(e)))?;
        let mut file = File {
            path: path.to_owned(),
            source,
            parser: Parser::default(),
            header: Header::default(),
            text: Vec::new(),
            at: 0,
            searched: 0,
            offset: 0,
            line: 0,
            line_start: 0,
            limit,
            ended: false,
            skipping: false,
            another: false,
        };
        match file.next() {
            Some(Ok(Line::Header(header))) if header.format == FORMAT && header.version <= VERSION => {
                file.header = header;
                Ok(file)
            }
            Some(Ok(Line::Header(h))) if h.format == FORMAT => Err(error(ReadErrorKind::Newer(h.version))),
            None => Err(error(ReadErrorKind::Empty)),
            // A header or a frame that is cut is a history cut before its first line, not some other file.
            Some(Err(_))
                if file.source.is_compressed()
                    || file.ended
                        && (file.text.starts_with(b"{\"kind\":\"header\"") || MAGIC.starts_with(&file.text)) =>
            {
                Err(error(ReadErrorKind::Empty))
            }
            _ => Err(error(ReadErrorKind::NotHistory)),
        }
    }

    /// The next line; an error is a place that is left out.
    fn next(&mut self) -> Option<Result<Line, String>> {
        loop {
            if let Some(found) = memchr::memchr(b'\n', &self.text[self.searched..]) {
                let (from, end) = (self.at, self.searched + found);
                self.advance(end + 1);
                if std::mem::take(&mut self.skipping) {
                    continue;
                }
                let line = &self.text[from..end];
                if line.trim_ascii().is_empty() {
                    continue;
                }
                return Some(parse(&mut self.parser, line).map_err(|e| format!("not a line of a history ({e})")));
            }
            self.searched = self.text.len();
            if self.ended {
                return self.last();
            }
            if self.text.len() - self.at > LONGEST {
                self.drop_text();
                if !std::mem::replace(&mut self.skipping, true) {
                    return Some(Err("a line longer than 64 MiB".to_owned()));
                }
            }
            if let Some(what) = self.more() {
                // The line that the break cut is lost; the next frame begins a line.
                self.drop_text();
                self.skipping = false;
                return Some(Err(what));
            }
        }
    }

    /// What is left after the last end of line: a line whose end was cut, or nearly so.
    fn last(&mut self) -> Option<Result<Line, String>> {
        let (from, end) = (self.at, self.text.len());
        if from == end || self.skipping {
            return None;
        }
        self.advance(end);
        let line = &self.text[from..end];
        if line.trim_ascii().is_empty() {
            return None;
        }
        Some(parse(&mut self.parser, line).map_err(|_| "the last line is cut".to_owned()))
    }

    /// Counts the line up to `end` as begun.
    fn advance(&mut self, end: usize) {
        self.line += 1;
        self.line_start = self.offset;
        self.offset += (end - self.at) as u64;
        self.at = end;
        self.searched = end;
    }

    /// Gives up the text not parsed yet.
    fn drop_text(&mut self) {
        let end = self.text.len();
        if end > self.at {
            self.advance(end);
        }
    }

    /// Reads on; says what broke, if something did.
    fn more(&mut self) -> Option<String> {
        self.text.drain(..self.at);
        self.searched -= self.at;
        self.at = 0;
        let broken = match self.source.read(&mut self.text) {
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
        let got = self.offset + self.text.len() as u64;
        if got >= self.limit {
            self.text.truncate((self.limit - self.offset) as usize);
            self.ended = true;
            return None;
        }
        broken
    }
}

/// Reads a line. Behind a cut line that never got its end, another history may begin.
fn parse(parser: &mut Parser, line: &[u8]) -> Result<Line, String> {
    parser.parse(line).or_else(|e| {
        let header = memchr::memmem::rfind(line, b"{\"kind\":\"header\"").filter(|at| *at > 0);
        match header.map(|at| parser.parse(&line[at..])) {
            Some(Ok(header @ Line::Header(_))) => Ok(header),
            _ => Err(e),
        }
    })
}
