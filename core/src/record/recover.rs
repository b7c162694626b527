//! Finishing a history whose process is gone: cut what is not whole, add what the spool still holds, write the footer.
//!
//! It can be run any number of times, and be killed itself: what the file holds of each thread decides what is added.

use std::collections::{HashMap, HashSet};
use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

use super::drain::{Drain, Item};
use super::output::TraceFile;
use super::spool::Spool;
use super::writer::{Options, Writer, number};
use crate::trace::older_part;
use crate::trace::read::Reader;
use crate::trace::source::whole;
use crate::trace::{Footer, Header, Line};

/// What recover found and did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recovered {
    /// The history's file.
    pub path: PathBuf,
    /// Nothing was to be done: it ended in a footer, and the spool held nothing more.
    pub was_whole: bool,
    /// Lines in the midst of the file that cannot be read, or events that its last line counts and it does not hold: nothing
    /// that can be mended.
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

/// What the file holds.
#[derive(Default)]
struct Held {
    /// Whether there is a history at all.
    exists: bool,
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
    /// Events missing, as the jumps in the threads' numbers tell.
    jumped: u64,
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
}

/// Finishes a history from its spool. `status` and `by` go into the footer.
pub fn recover(words: &[AtomicU64], trace: &Path, status: Option<i32>, by: &str) -> io::Result<Recovered> {
    let spool = Spool::open(words)?;
    take_back_rotation(trace, &spool)?;
    let path = trace;
    let held = survey(path)?;
    let mut done =
        Recovered { path: path.to_owned(), damage: held.damage(), events_before: held.events, ..Recovered::default() };
    if let Some(footer) = &held.footer
        && !lacks_events(spool, &held.next)
    {
        return Ok(Recovered { was_whole: true, footer: footer.clone(), ..done });
    }
    let file = match held.exists {
        true => cut(path, &held, &mut done)?,
        false => start(path)?,
    };
    done.path = file.path().to_owned();
    let compress = if held.exists { held.compressed } else { path.extension().is_some_and(|e| e == "zst") };
    let mut writer = match held.exists {
        true => Writer::resume(Drain::resume(spool, held.next), file, compress, held.known)?,
        false => Writer::new(spool, file, &Options { compress, max_bytes: None })?,
    };
    done.events_added = writer.rest()?.events;
    done.slots_damaged = writer.damaged();
    let end = match (spool.stopped(), spool.exited() || held.exited) {
        (true, _) => "stopped",
        (false, true) => "exit",
        (false, false) => "killed",
    };
    done.footer = Footer {
        time: held.time.max(writer.last_time()),
        events: held.events.saturating_add(done.events_added),
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
    let mut done =
        Recovered { path: trace.to_owned(), damage: held.damage(), events_before: held.events, ..Recovered::default() };
    if let Some(footer) = held.footer {
        return Ok(Recovered { was_whole: true, footer, ..done });
    }
    if !held.exists {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{}: holds no whole line, and without its spool nothing can be recovered", trace.display()),
        ));
    }
    let file = cut(trace, &held, &mut done)?;
    // Without a spool nobody knows what came after: the program may have been killed, or the file be a part of a copy.
    let end = match (held.exited, status) {
        (true, _) => "exit",
        (false, Some(_)) => "killed",
        (false, None) => "cut",
    };
    done.footer = Footer {
        time: held.time,
        events: held.events,
        lost: held.jumped,
        end: end.to_owned(),
        status,
        by: by.to_owned(),
        ..Footer::default()
    };
    super::writer::write_footer(file, held.compressed, &done.footer)?;
    Ok(done)
}

/// A rotation that was cut short, with nothing in the new part yet, is taken back.
fn take_back_rotation(trace: &Path, spool: &Spool<'_>) -> io::Result<()> {
    let nothing = match whole(trace) {
        Ok(whole) => whole.text == 0,
        Err(e) => e.kind() == io::ErrorKind::NotFound,
    };
    let older = older_part(trace);
    if nothing
        && let Ok(part) = Reader::open_part(&older, u64::MAX)
        // An older run may have left a file of that name.
        && serde_json::from_slice::<Header>(&spool.header_line()).is_ok_and(|header| header.same_run(part.header()))
    {
        fs::rename(&older, trace)?;
    }
    Ok(())
}

fn survey(path: &Path) -> io::Result<Held> {
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
    held.exists = true;
    held.keep = whole.file;
    held.events = reader.header().events_before;
    let mut jumped = 0;
    while let Some(line) = reader.next() {
        held.footer = None;
        if let Some(number) = number(&line) {
            held.known.insert(number);
        }
        match line {
            Line::Thread(thread) => {
                if let Some(next) = held.next.insert(thread.thread, thread.sequence) {
                    jumped = thread.sequence.saturating_sub(next).saturating_add(jumped);
                }
            }
            Line::Event(thread, event) => {
                let next = held.next.entry(thread).or_default();
                *next = next.saturating_add(1);
                held.events = held.events.saturating_add(1);
                held.time = held.time.max(event.time);
                held.exited |= event.kind == crate::event::EventKind::Exit;
            }
            Line::Footer(footer) => {
                let start = reader.byte();
                if !whole.compressed {
                    held.keep = start;
                } else if start == whole.last_frame.1 {
                    held.keep = whole.last_frame.0;
                }
                held.footer = Some(footer);
            }
            _ => {}
        }
    }
    if reader.meets_another() {
        let what = "another history follows in the same file; take them apart first";
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    if held.footer.is_none() {
        held.keep = whole.file;
    }
    held.damage = reader.damage().map(ToString::to_string);
    held.jumped = jumped;
    Ok(held)
}

/// Whether the spool holds events that the file does not.
fn lacks_events(spool: Spool<'_>, next: &HashMap<u32, u64>) -> bool {
    let mut drain = Drain::resume(spool, next.clone());
    drain.begin(u64::MAX);
    while drain.next_definition().is_some() {}
    std::iter::from_fn(|| drain.next_event()).any(|item| matches!(item, Item::Event(..)))
}

/// Takes away what is not whole.
fn cut(path: &Path, held: &Held, done: &mut Recovered) -> io::Result<TraceFile> {
    if held.bytes > held.keep {
        OpenOptions::new().write(true).open(path)?.set_len(held.keep)?;
        if held.footer.is_none() {
            done.bytes_cut = held.bytes - held.keep;
        }
    }
    TraceFile::append(path)
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
