//! Finishing a history whose process is gone: cut what is not whole, add what the spool still holds, write the footer.
//!
//! It can be run any number of times, and be killed itself: what the file holds of each thread decides what is added.

use std::collections::{HashMap, HashSet};
use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

use super::definition::number;
use super::drain::{Drain, Item};
use super::output::TraceFile;
use super::spool::Spool;
use super::writer::{Options, Writer};
use crate::trace::older_part;
use crate::trace::read::{Damage, ReadError, ReadErrorKind, Reader, missing, newer_of, part_of, parts};
use crate::trace::source::whole;
use crate::trace::{Footer, Header, Line, Lost};

/// What recover found and did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recovered {
    /// The history's file.
    pub path: PathBuf,
    /// Nothing was to be done: it ended in a footer, and the spool held nothing more.
    pub was_whole: bool,
    /// Lines in the midst of the file that cannot be read, a part that is missing, or events that were recorded and are nowhere:
    /// nothing that can be mended.
    pub damage: Option<String>,
    /// Events that the file held.
    pub events_before: u64,
    /// Events added from the spool.
    pub events_added: u64,
    /// Bytes of a cut line or frame taken away from its end.
    pub bytes_cut: u64,
    /// Slots of the spool that could not be read.
    pub slots_damaged: u64,
    /// The footer.
    pub footer: Footer,
}

impl Recovered {
    /// Whether the history may not hold all that was recorded of its program, up to the end or to the kill.
    pub fn is_incomplete(&self) -> bool {
        self.damage.is_some() || self.slots_damaged > 0 || ["cut", "stopped"].contains(&&*self.footer.end)
    }
}

/// What the file holds, and a part before it.
#[derive(Default)]
struct Held {
    /// Its header, if there is a history at all.
    header: Option<Header>,
    /// It, or what was read before it, begins where the history does.
    begins: bool,
    compressed: bool,
    /// Bytes to keep, without a footer.
    keep: u64,
    /// Bytes of the file.
    bytes: u64,
    /// For each thread, the number of its next event.
    next: HashMap<u32, u64>,
    /// Definitions, as [`number`] knows them.
    known: HashSet<(u8, u64)>,
    /// Events, also those of older parts.
    events: u64,
    /// Events missing, as the jumps in the threads' numbers tell,
    jumped: u64,
    /// and as it says itself.
    lost: Lost,
    time: u64,
    exited: bool,
    footer: Option<Footer>,
    damage: Option<String>,
}

impl Held {
    /// What is wrong in a file, whether or not it has its last line.
    fn damage(&self) -> Option<String> {
        let fewer = self.footer.as_ref().map_or(0, |f| f.events.saturating_sub(self.events));
        let fewer = || (fewer > 0).then(|| format!("{fewer} events fewer than its last line counts"));
        self.damage.clone().or_else(fewer)
    }

    /// Takes away from its file what is not whole, and a footer. Bytes of what was not whole.
    fn cut(&self, path: &Path) -> io::Result<u64> {
        let away = self.bytes.saturating_sub(self.keep);
        if away > 0 {
            OpenOptions::new().write(true).open(path)?.set_len(self.keep)?;
        }
        Ok(if self.footer.is_some() { 0 } else { away })
    }
}

/// Finishes a history from its spool. `status` and `by` go into the footer.
pub fn recover(words: &[AtomicU64], trace: &Path, status: Option<i32>, by: &str) -> io::Result<Recovered> {
    let spool = Spool::open(words)?;
    let path = trace;
    let mut held = survey(path)?;
    let exists = held.header.is_some();
    let mut bytes_cut = 0;
    if !exists && let Some(before) = part_before(path, &spool)? {
        // A rotation that was cut short, with nothing whole in the new part yet: this begins it. A rotation waits for a whole
        // line; a copy, or a file system after a crash of the machine, may end anywhere.
        held = before;
        bytes_cut = held.cut(&older_part(path))?;
    }
    let mut done = Recovered {
        path: path.to_owned(),
        damage: held.damage(),
        events_before: held.events,
        bytes_cut,
        ..Recovered::default()
    };
    if let Some(footer) = &held.footer
        && exists
        && !lacks_events(spool, &held.next)
    {
        return Ok(Recovered { was_whole: true, footer: footer.clone(), ..done });
    }
    let file = match exists {
        true => {
            done.bytes_cut = held.cut(path)?;
            TraceFile::append(path)?
        }
        false => start(path)?,
    };
    done.path = file.path().to_owned();
    let compress = if exists { held.compressed } else { path.extension().is_some_and(|e| e == "zst") };
    let mut writer = match &held.header {
        Some(header) => {
            let mut writer = Writer::resume(Drain::resume(spool, held.next), file, compress, held.known)?;
            if !exists {
                writer.begin(&Header { part: header.part + 1, events_before: held.events, ..header.clone() });
            }
            writer
        }
        None => Writer::new(spool, file, &Options { compress, max_bytes: None })?,
    };
    done.events_added = writer.rest()?.events;
    done.slots_damaged = writer.damaged();
    // What the threads counted and is neither here nor counted as lost was in a file that is gone.
    let gone = match done.damage.is_some() || done.slots_damaged > 0 {
        true => 0,
        false => {
            held.jumped.saturating_add(writer.jumped(held.begins || held.header.is_none())).saturating_sub(spool.lost())
        }
    };
    if gone > 0 {
        let which = if gone == 1 { "event that was written is" } else { "events that were written are" };
        done.damage = Some(format!("{gone} {which} not there any more"));
    }
    let end = match (spool.stopped(), spool.exited() || held.exited) {
        (true, _) => "stopped",
        (false, true) => "exit",
        (false, false) => "killed",
    };
    done.footer = Footer {
        time: held.time.max(writer.last_time()),
        events: held.events.saturating_add(done.events_added).saturating_add(gone),
        lost: spool.lost(),
        stacks_refused: spool.stacks_refused(),
        end: end.to_owned(),
        status,
        by: by.to_owned(),
    };
    writer.footer(&done.footer)?;
    Ok(done)
}

/// Finishes a history whose spool is lost.
pub fn recover_trace(trace: &Path, status: Option<i32>, by: &str) -> io::Result<Recovered> {
    let held = survey(trace)?;
    // A rotated history without its last part has no end to write: one in the part before would be damage, should it come.
    let older = match &held.header {
        Some(header) => newer_of(trace, header).map(|newer| (newer, trace.to_owned())),
        None => (parts(trace) == [older_part(trace)]).then(|| (trace.to_owned(), older_part(trace))),
    };
    if let Some((newer, older)) = older {
        return Err(io::Error::other(ReadError { path: newer, kind: ReadErrorKind::NoEnd(older) }));
    }
    let mut done =
        Recovered { path: trace.to_owned(), damage: held.damage(), events_before: held.events, ..Recovered::default() };
    if let Some(footer) = held.footer {
        return Ok(Recovered { was_whole: true, footer, ..done });
    }
    if held.header.is_none() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{}: holds no whole line, and without its spool nothing can be recovered", trace.display()),
        ));
    }
    done.bytes_cut = held.cut(trace)?;
    let file = TraceFile::append(trace)?;
    // Without a spool nobody knows what came after: the program may have been killed, or the file be a part of a copy.
    let end = match (held.exited, status) {
        (true, _) => "exit",
        (false, Some(_)) => "killed",
        (false, None) => "cut",
    };
    done.footer = Footer {
        time: held.time,
        events: held.events,
        lost: held.jumped.max(held.lost.lost),
        stacks_refused: held.lost.stacks_refused,
        end: end.to_owned(),
        status,
        by: by.to_owned(),
    };
    super::writer::write_footer(file, held.compressed, &done.footer)?;
    Ok(done)
}

/// What the older part holds of a rotation that was cut short.
fn part_before(trace: &Path, spool: &Spool<'_>) -> io::Result<Option<Held>> {
    let older = older_part(trace);
    let mine = |part: &Reader| {
        // An older run may have left a file of that name.
        serde_json::from_slice::<Header>(&spool.header_line()).is_ok_and(|header| header.same_run(part.header()))
    };
    match Reader::open_part(&older, u64::MAX) {
        Ok(part) if mine(&part) => survey_with(&older, &[]).map(Some),
        _ => Ok(None),
    }
}

/// Looks at a history, with the part before it if there is one.
fn survey(path: &Path) -> io::Result<Held> {
    survey_with(path, &parts(path))
}

/// Looks at a file, with these parts of its history; none: it is looked at alone.
fn survey_with(path: &Path, files: &[PathBuf]) -> io::Result<Held> {
    let mut held = Held::default();
    let whole = match whole(path) {
        Ok(whole) => whole,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(held),
        Err(e) => return Err(e),
    };
    held.bytes = fs::metadata(path)?.len();
    held.compressed = whole.compressed;
    if whole.text == 0 {
        return Ok(held);
    }
    let mut reader = Reader::open_part(path, whole.text).map_err(io::Error::other)?;
    let header = reader.header().clone();
    if let Some(newer) = part_of(path, &header).filter(|_| !files.is_empty()) {
        let kind = ReadErrorKind::OlderPart(newer);
        return Err(io::Error::new(io::ErrorKind::InvalidInput, ReadError { path: path.to_owned(), kind }));
    }
    held.begins = header.part == 0;
    let mut damage = if files.is_empty() { None } else { missing(path, files, &header) };
    if let [older, _] = files {
        let mut older = Reader::open_part(older, u64::MAX).map_err(io::Error::other)?;
        held.begins = older.header().part == 0;
        let mut counted = crate::trace::read::Held::new(older.header());
        for line in older.by_ref() {
            counted.add(u64::from(matches!(line, Line::Event(..))));
            held.line(&line);
        }
        damage = older.damage().cloned();
        counted.begin(path, header.events_before, &mut damage);
        // What it defines the next part defines again.
        held.known.clear();
    }
    held.events = header.events_before;
    held.header = Some(header);
    held.keep = whole.file;
    while let Some(line) = reader.next() {
        held.footer = None;
        held.line(&line);
        if let Line::Footer(footer) = line {
            let start = reader.byte();
            if !whole.compressed {
                held.keep = start;
            } else if start == whole.last_frame.1 {
                held.keep = whole.last_frame.0;
            }
            held.footer = Some(footer);
        }
    }
    if reader.meets_another() {
        let what = "another history follows in the same file; take them apart first";
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    if held.footer.is_none() {
        held.keep = whole.file;
    }
    reader.damage().iter().for_each(|more| Damage::add(&mut damage, more));
    held.damage = damage.map(|damage| damage.to_string());
    Ok(held)
}

impl Held {
    /// Takes in the next line.
    fn line(&mut self, line: &Line) {
        if let Some(number) = number(line) {
            self.known.insert(number);
        }
        self.exited |= line.exits();
        match line {
            Line::Thread(thread) => {
                // What came before in parts that were dropped is not missing.
                let first = if self.begins { 0 } else { thread.sequence };
                let next = self.next.insert(thread.thread, thread.sequence).unwrap_or(first);
                self.jumped = thread.sequence.saturating_sub(next).saturating_add(self.jumped);
            }
            Line::Event(thread, event) => {
                let next = self.next.entry(*thread).or_default();
                *next = next.saturating_add(1);
                self.events = self.events.saturating_add(1);
                self.time = self.time.max(event.time);
            }
            Line::Lost(lost) => self.lost = lost.clone(),
            _ => {}
        }
    }
}

/// Whether the spool holds events that the file does not.
fn lacks_events(spool: Spool<'_>, next: &HashMap<u32, u64>) -> bool {
    let mut drain = Drain::resume(spool, next.clone());
    drain.begin(u64::MAX);
    while drain.next_definition().is_some() {}
    std::iter::from_fn(|| drain.next_event()).any(|item| matches!(item, Item::Event(..)))
}

/// A new file, in place of one that holds no whole line. Never in place of something that is not ours.
fn start(path: &Path) -> io::Result<TraceFile> {
    match fs::read(path) {
        Ok(bytes) => {
            let ours = [&b"{\"kind\":\"header\""[..], &[0x28, 0xb5, 0x2f, 0xfd]];
            if !ours.iter().any(|start| bytes.starts_with(start) || start.starts_with(&bytes)) {
                let what = format!("{}: not a history of vramscope; nothing was written", path.display());
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
            fs::remove_file(path)?;
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(e),
    }
    TraceFile::create(path)
}
