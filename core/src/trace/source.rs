//! The text of a history's file, plain or in zstd frames, as far as it can be had.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use memchr::memmem;
use zstd::stream::raw::{Decoder, InBuffer, Operation as _, OutBuffer};

/// How a zstd frame begins.
pub(crate) const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const CHUNK: usize = 128 << 10;
/// What is said of a file that ends within a frame.
pub(crate) const CUT: &str = "the last zstd frame is cut";

/// What a read came to.
pub(crate) enum More {
    /// Text was added.
    Text,
    /// A frame ended here; all of it was good.
    FrameEnd,
    /// A frame is damaged or cut. What it gave so far was added; the text goes on with the next frame, if there is one.
    Broken(&'static str),
    /// The file ended.
    End,
}

/// A file being read.
pub(crate) struct Source {
    file: File,
    input: Box<[u8]>,
    /// The part of `input` not used yet.
    at: usize,
    end: usize,
    /// Where in the file `end` is.
    offset: u64,
    frames: Option<Frames>,
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source").field("position", &self.position()).finish_non_exhaustive()
    }
}

struct Frames {
    decoder: Decoder<'static>,
    /// Where in the file the current frame begins.
    start: u64,
    inside: bool,
}

impl Source {
    /// Opens a file and looks at its first bytes.
    pub(crate) fn open(path: &Path) -> io::Result<Source> {
        let file = File::open(path)?;
        let mut source = Source { file, input: vec![0; CHUNK].into(), at: 0, end: 0, offset: 0, frames: None };
        source.fill()?;
        if source.input[..source.end].starts_with(&MAGIC) {
            source.frames = Some(Frames { decoder: Decoder::new()?, start: 0, inside: false });
        }
        Ok(source)
    }

    /// Whether the file is made of zstd frames.
    pub(crate) fn is_compressed(&self) -> bool {
        self.frames.is_some()
    }

    /// Where in the file the unread part begins.
    pub(crate) fn position(&self) -> u64 {
        self.offset - (self.end - self.at) as u64
    }

    /// Where in the file the frame begins that was read last.
    pub(crate) fn frame_start(&self) -> u64 {
        self.frames.as_ref().map_or(0, |f| f.start)
    }

    /// Makes sure of some input; false at the end of the file.
    fn fill(&mut self) -> io::Result<bool> {
        if self.at < self.end {
            return Ok(true);
        }
        (self.at, self.end) = (0, 0);
        // The first look needs four bytes, and a read may give fewer.
        while self.end < MAGIC.len() {
            match self.file.read(&mut self.input[self.end..]) {
                Ok(0) => break,
                Ok(n) => {
                    self.end += n;
                    self.offset += n as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(self.end > 0)
    }

    /// Adds some text to `out`.
    pub(crate) fn read(&mut self, out: &mut Vec<u8>) -> io::Result<More> {
        if !self.fill()? {
            return match &mut self.frames {
                Some(frames) if frames.inside => self.resync(CUT),
                _ => Ok(More::End),
            };
        }
        let position = self.position();
        let Some(frames) = &mut self.frames else {
            out.extend_from_slice(&self.input[self.at..self.end]);
            self.at = self.end;
            return Ok(More::Text);
        };
        if !frames.inside {
            frames.inside = true;
            frames.start = position;
        }
        let from = out.len();
        out.resize(from + CHUNK, 0);
        let mut input = InBuffer::around(&self.input[self.at..self.end]);
        let mut output = OutBuffer::around(&mut out[from..]);
        let result = frames.decoder.run(&mut input, &mut output);
        let (used, made) = (input.pos(), output.pos());
        out.truncate(from + made);
        self.at += used;
        match result {
            Ok(0) => {
                frames.inside = false;
                Ok(More::FrameEnd)
            }
            Ok(_) => Ok(More::Text),
            Err(_) => self.resync("a zstd frame is damaged"),
        }
    }

    /// Goes to the next frame after the one that broke.
    fn resync(&mut self, what: &'static str) -> io::Result<More> {
        let Some(frames) = &mut self.frames else { return Ok(More::End) };
        frames.inside = false;
        frames.decoder.reinit()?;
        // Its size can't be trusted: look from its own beginning, which may still be here.
        let mut from = frames.start + MAGIC.len() as u64;
        let input = self.offset - self.end as u64;
        if let Some(at) = from.checked_sub(input).and_then(|at| usize::try_from(at).ok()).filter(|at| *at <= self.end) {
            if let Some(found) = memmem::find(&self.input[at..self.end], &MAGIC) {
                self.at = at + found;
                return Ok(More::Broken(what));
            }
            // The magic may lie across the border.
            from = from.max(self.offset.saturating_sub(MAGIC.len() as u64 - 1));
        }
        loop {
            self.file.seek(SeekFrom::Start(from))?;
            (self.at, self.end, self.offset) = (0, 0, from);
            while self.end < self.input.len() {
                let n = self.file.read(&mut self.input[self.end..])?;
                if n == 0 {
                    break;
                }
                self.end += n;
                self.offset += n as u64;
            }
            if let Some(found) = memmem::find(&self.input[..self.end], &MAGIC) {
                self.at = found;
                return Ok(More::Broken(what));
            }
            if self.end < self.input.len() {
                self.at = self.end;
                return Ok(More::Broken(what));
            }
            from += (self.end - (MAGIC.len() - 1)) as u64;
        }
    }
}

/// How much of a file is whole: what recover keeps.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Whole {
    /// Bytes of the file up to the end of the last whole line or frame.
    pub file: u64,
    /// The text that [`Source::read`] gives up to there.
    pub text: u64,
    /// Where in the file, and in the text, the last whole frame begins.
    pub last_frame: (u64, u64),
    /// Whether it is made of zstd frames.
    pub compressed: bool,
}

/// Finds how much of a file is whole.
pub(crate) fn whole(path: &Path) -> io::Result<Whole> {
    let mut source = Source::open(path)?;
    let mut whole = Whole { compressed: source.is_compressed(), ..Whole::default() };
    let (mut text, mut frame_text) = (0, 0);
    let mut buffer = Vec::new();
    let mut ends_line = false;
    loop {
        buffer.clear();
        let more = source.read(&mut buffer)?;
        if !whole.compressed
            && let Some(last) = memchr::memrchr(b'\n', &buffer)
        {
            whole.text = text + last as u64 + 1;
            whole.file = whole.text;
        }
        text += buffer.len() as u64;
        if let Some(&last) = buffer.last() {
            ends_line = last == b'\n';
        }
        match more {
            More::Text => {}
            More::FrameEnd => {
                if ends_line {
                    whole.file = source.position();
                    whole.text = text;
                    whole.last_frame = (source.frame_start(), frame_text);
                }
                frame_text = text;
            }
            More::Broken(_) => frame_text = text,
            More::End => return Ok(whole),
        }
    }
}
