//! A history read whole: who wrote it, its stacks and modules, and what each question's collector made of its events.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use vramscope_core::event::{Event, EventKind};
use vramscope_core::trace::read::Item;
use vramscope_core::trace::{Device, Footer, Frame, Header, Line, Lost, Module, Name, Note, Oom, Python};

use super::errors::Errors;
use super::facts::Facts;
use super::order::Order;
use super::pauses::Pauses;
use super::pool::PoolWork;
use super::sizes::Sizes;
use super::state::State;
use super::text::{clean, plural};
use crate::import::lines::IMPORTED;
use crate::moment::Moment;
use crate::reading::Batches;

/// Notes, and out-of-memories, that are kept: the library writes a few.
const MOST: usize = 10_000;

/// A frame of a stack, small.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum At {
    /// A return address in a module; `true`: found by guessing.
    Native(u32, u64, bool),
    /// A place in Python code.
    Python(u32),
    /// A frame of a form this version does not know, as it stands in the history.
    Other(Box<str>),
}

/// A history.
#[derive(Debug, Default)]
pub struct History {
    /// The file that was given.
    pub path: PathBuf,
    /// What was read: it, or a finished copy of it.
    pub file: PathBuf,
    /// Its first line.
    pub header: Header,
    /// The GPUs.
    pub devices: BTreeMap<u32, Device>,
    /// The programs and libraries, by number.
    pub modules: BTreeMap<u32, Module>,
    /// The places in Python code, by number.
    pub python: HashMap<u32, Python>,
    /// Names that the history itself holds (`vramscope symbolize`), by module and return address in it.
    pub symbols: HashMap<(u32, u64), Vec<Name>>,
    /// The call stacks, innermost frame first, by number.
    pub stacks: HashMap<u32, Box<[At]>>,
    /// What the library had to say.
    pub notes: Vec<Note>,
    /// Requests that failed for want of memory, explained at that moment.
    pub ooms: Vec<Oom>,
    /// What could not be recorded, as far as was said before the last line.
    pub lost_so_far: Lost,
    /// The last line, if the history was finished.
    pub footer: Option<Footer>,
    /// The program's exit handlers ran: every event was written, whether or not anybody wrote the last line.
    pub exited: bool,
    /// When the program had recording paused.
    pub pauses: Pauses,
    /// What could not be read, with file and line.
    pub damage: Option<String>,
    /// Events read.
    pub events: u64,
    /// What was added to all times.
    pub shift: u64,
    /// Time of the first of them.
    pub start: u64,
    /// Time of the last of them.
    pub end: u64,
    /// Live allocations at the end and at the peak.
    pub state: State,
    /// Allocations by size.
    pub sizes: Sizes,
    /// The pool's work.
    pub pool: PoolWork,
    /// What went wrong.
    pub errors: Errors,
    /// What the answers are made of.
    pub facts: Facts,
    /// The threads' names.
    pub threads: HashMap<u32, (u32, String)>,
}

impl History {
    /// Reads a history as far as it can be read.
    pub fn read(path: &Path) -> Result<History> {
        History::read_at(path, &[])
    }

    /// The same, and keeps what was held at these moments.
    pub fn read_at(path: &Path, wanted: &[Moment]) -> Result<History> {
        History::read_later(path, wanted, 0)
    }

    /// The same, with so many nanoseconds added to all times.
    pub fn read_later(path: &Path, wanted: &[Moment], shift: u64) -> Result<History> {
        let mut batches = open(path)?;
        let header = Line::Header(batches.header().clone());
        let lines = batches.by_ref().flatten().map(|(_, item)| later(item.line(), shift));
        let mut history = History::of_lines_at(std::iter::once(header).chain(lines), wanted);
        history.shift = shift;
        (history.path, history.file) = (path.to_path_buf(), path.to_path_buf());
        history.damage = batches.damage().map(ToString::to_string);
        let ids = history.errors.freed_twice();
        if !ids.is_empty() {
            let found = find(path, &ids, shift).with_context(|| format!("{}: reading it again", path.display()))?;
            history.errors.first_frees(found);
        }
        Ok(history)
    }

    /// Plays lines.
    pub fn of_lines(lines: impl Iterator<Item = Line>) -> History {
        History::of_lines_at(lines, &[])
    }

    /// The same, and keeps what was held at these moments.
    pub fn of_lines_at(lines: impl Iterator<Item = Line>, wanted: &[Moment]) -> History {
        let mut h = History { facts: Facts::wanting(wanted), ..History::default() };
        let mut order = Order::new();
        for line in lines {
            if !matches!(line, Line::Event(..)) {
                h.facts.line(&line);
            }
            match line {
                Line::Header(header) => {
                    h.state = State::new(header.granularity);
                    h.header = header;
                }
                Line::Device(device) => drop(h.devices.insert(device.device, device)),
                Line::Module(module) => {
                    h.errors.module(&module);
                    h.modules.insert(module.module, module);
                }
                Line::Python(place) => drop(h.python.insert(place.python, place)),
                Line::Symbol(s) => drop(h.symbols.insert((s.module, s.offset), s.names)),
                Line::Stack(stack) => {
                    let frames = stack.frames.into_iter().map(|f| match f {
                        Frame::Native(module, offset) => At::Native(module, offset, false),
                        Frame::Guessed(module, offset, _) => At::Native(module, offset, true),
                        Frame::Python(place) => At::Python(place),
                        Frame::Other(value) => At::Other(value.to_string().into()),
                    });
                    h.stacks.insert(stack.stack, frames.collect());
                }
                Line::Oom(oom) if h.ooms.len() < MOST => h.ooms.push(*oom),
                Line::Note(note) if h.notes.len() < MOST => h.notes.push(note),
                Line::Lost(lost) => h.lost_so_far = lost,
                Line::Footer(footer) => h.footer = Some(footer),
                Line::Live(thread, event) => {
                    let event = possible(&event);
                    h.exited |= event.kind == EventKind::Exit;
                    h.pauses.play(&event);
                    h.state.was_live(&event);
                    h.facts.was_live(thread, &event, &h.state);
                }
                Line::Event(thread, event) => order.push(thread, event, &mut |t, e| h.play(t, e)),
                Line::Thread(t) => drop(h.threads.insert(t.thread, (t.tid, t.name))),
                Line::Oom(_) | Line::Note(_) | Line::Text(_) | Line::Unknown => {}
            }
        }
        order.finish(&mut |t, e| h.play(t, e));
        h.errors.finish();
        h.facts.finish(&h.state);
        // A snapshot has no event; it is of this moment.
        if let Some(at) = h.footer.as_ref().map(|f| f.time).filter(|_| h.events == 0 && h.is_snapshot()) {
            (h.start, h.end) = (at, at);
        }
        h
    }

    fn play(&mut self, thread: u32, e: &Event) {
        let e = &possible(e);
        self.exited |= e.kind == EventKind::Exit;
        self.pauses.play(e);
        self.start = if self.events == 0 { e.time } else { self.start };
        self.events += 1;
        self.end = self.end.max(e.time);
        self.facts.reach(e.time, &self.state);
        self.errors.play(thread, e, || self.facts.ledger.usage(&self.state));
        self.state.play(thread, e);
        self.sizes.play(e);
        self.pool.play(e);
        self.facts.play(thread, e, &self.state);
    }

    /// A setting that was in force.
    pub fn setting<'a>(&'a self, variable: &str, default: &'a str) -> &'a str {
        self.header.settings.get(variable).map_or(default, String::as_str)
    }

    /// The program's name, without its folder.
    pub fn program(&self) -> &str {
        let path = self.header.arguments.first().filter(|a| !a.is_empty()).unwrap_or(&self.header.program);
        crate::symbols::file_name(path)
    }

    /// A module's file name; `?` if it is not known.
    pub fn module_name(&self, number: u32) -> &str {
        self.modules.get(&number).map_or("?", |m| crate::symbols::file_name(&m.path))
    }

    /// The signal of which the program died, as far as the launcher's status tells.
    pub fn signal(&self) -> Option<i32> {
        let status = self.footer.as_ref()?.status?;
        (129..=192).contains(&status).then(|| status - 128)
    }

    /// Whether the program was killed; one that left by `_exit`, with a status of its own, was not.
    pub fn killed(&self) -> bool {
        self.signal().is_some() || self.footer.as_ref().is_some_and(|f| f.end == "killed" && f.status.is_none())
    }

    /// Whether this is the last part of a history whose first parts were dropped.
    pub fn is_part(&self) -> bool {
        !self.is_snapshot() && (self.header.part > 0 || self.header.events_before > 0)
    }

    /// Events that could not be recorded.
    pub fn lost(&self) -> u64 {
        self.footer.as_ref().map_or(self.lost_so_far.lost, |f| f.lost)
    }

    /// Stacks that could not be recorded.
    pub fn stacks_refused(&self) -> u64 {
        self.footer.as_ref().map_or(self.lost_so_far.stacks_refused, |f| f.stacks_refused)
    }

    /// Events of all parts.
    pub fn all_events(&self) -> u64 {
        let all = self.header.events_before + self.events;
        self.footer.as_ref().map_or(all, |f| f.events.max(all))
    }

    /// Whether it is what was live at one moment of a program that went on.
    pub fn is_snapshot(&self) -> bool {
        self.header.is_snapshot() || self.footer.as_ref().is_some_and(|f| f.end == "snapshot")
    }

    /// Why it may not hold all that its program did, where `read` events were read; none if it does, up to the program's end or
    /// to the kill. A snapshot holds what it is.
    pub fn incomplete(&self, read: u64) -> Option<String> {
        if let Some(damage) = &self.damage {
            return Some(format!("the history is damaged ({})", clean(damage)));
        }
        let Some(footer) = &self.footer else {
            let why = "the history is not finished: its program still runs, or was killed, or the end of the file was cut off";
            return if self.exited { self.left_out() } else { Some(why.to_string()) };
        };
        let held = self.header.events_before.saturating_add(read);
        match footer.end.as_str() {
            "cut" => Some("the end of the history is lost, and with it what the program did then".to_string()),
            "stopped" if !self.is_imported() => Some("recording ended before the program did".to_string()),
            _ if footer.events > held => {
                let fewer = plural(footer.events - held, "event");
                Some(format!("the history lacks lines: it has {fewer} fewer than its last line counts"))
            }
            _ => self.left_out(),
        }
    }

    /// What was left out on purpose, and nobody knows: the peak, failures and leaks may have been in it.
    fn left_out(&self) -> Option<String> {
        let dropped = self.is_part().then(|| {
            let before = plural(self.header.events_before, "event");
            format!(
                "only the last part of the run is left: {before} before it were dropped, and what was then is not known (a larger --max-trace keeps more)"
            )
        });
        let why: Vec<String> = dropped.into_iter().chain(self.pauses.why()).collect();
        (!why.is_empty()).then(|| why.join("; "))
    }

    /// Whether another tool recorded it, without any call stack: all allocations seem to be of one place, and nothing that grows
    /// or comes back can be told by it.
    pub fn is_placeless(&self) -> bool {
        self.is_imported() && self.stacks.is_empty()
    }

    /// Whether another tool recorded it (`vramscope import`).
    pub fn is_imported(&self) -> bool {
        self.header.host == IMPORTED
    }

    /// Whether any GPU memory was asked for.
    pub fn has_events(&self) -> bool {
        self.events > 0 || !self.state.groups().is_empty()
    }
}

/// A line with all its times so much later.
pub fn later(mut line: Line, shift: u64) -> Line {
    let time = match &mut line {
        Line::Event(_, e) | Line::Live(_, e) => &mut e.time,
        Line::Oom(oom) => &mut oom.time,
        Line::Note(note) => &mut note.time,
        Line::Lost(lost) => &mut lost.time,
        Line::Footer(footer) => &mut footer.time,
        _ => return line,
    };
    *time = time.saturating_add(shift);
    line
}

/// More bytes than any device has, and nanoseconds than any call takes: more comes from damage, and would overflow sums.
const LARGEST: u64 = 1 << 48;

/// An event without such numbers. (What a request that failed asked for may be anything.)
fn possible(e: &Event) -> Event {
    let mut e = *e;
    if matches!(e.kind, EventKind::Alloc | EventKind::SegmentAlloc | EventKind::Trim | EventKind::Sample) {
        e.bytes = e.bytes.min(LARGEST);
        e.block = e.block.min(LARGEST);
    }
    if matches!(e.kind, EventKind::Alloc | EventKind::Free) {
        e.extra[2] = e.extra[2].min(LARGEST);
    }
    e
}

/// The allocation and first free of some ids.
pub type Lives = HashMap<u64, (Option<Event>, Option<Event>)>;

/// Opens a history. The error says everything in one line; its source would say part of it again.
fn open(path: &Path) -> Result<Batches> {
    Batches::open(path).map_err(|e| anyhow!("{e}"))
}

fn find(path: &Path, ids: &HashSet<u64>, shift: u64) -> Result<Lives> {
    let mut found = Lives::new();
    for (_, item) in open(path)?.flatten() {
        let Item::Event(_, mut e) = item else { continue };
        e.time = e.time.saturating_add(shift);
        if !ids.contains(&e.id) {
            continue;
        }
        let entry = found.entry(e.id).or_default();
        match e.kind {
            EventKind::Alloc => entry.0 = entry.0.or(Some(e)),
            EventKind::Free => entry.1 = entry.1.or(Some(e)),
            _ => {}
        }
    }
    Ok(found)
}
