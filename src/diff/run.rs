//! One run, read from its history for a comparison: what its numbers mean, what it held, what it did.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use vramscope_core::event::{Event, EventKind, FreeHow};
use vramscope_core::trace::read::Reader;
use vramscope_core::trace::{Line, Module};

use super::basis::Basis;
use super::holdings::Holdings;
use crate::report::History;
use crate::report::order::Order;
use crate::report::pauses::Pauses;
use crate::report::tries::Tries;
use crate::symbols::file_name;

/// Marks kept.
const MARKS: usize = 100_000;

/// First allocations of libraries for communication that are kept.
pub const MEETINGS: usize = 16;

/// A moment that the program marked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Its text.
    pub text: String,
    /// How often there was a mark of this text, with this one.
    pub number: u64,
    /// When.
    pub time: u64,
    /// Bytes in use on the devices then.
    pub active: u64,
}

/// What a run asked of the driver, and how it went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Allocations, of any kind; where PyTorch tells of its tensors, these and not the segments that hold them.
    pub allocations: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Frees.
    pub frees: u64,
    /// Requests that failed, as the program saw them (see [`Tries`]).
    pub failed: u64,
    /// Calls that went to the driver, and took time there.
    pub driver_calls: u64,
    /// Nanoseconds in them.
    pub driver_time: u64,
    /// Frees at which the host waited for the GPU.
    pub host_waits: u64,
    /// Times that the pool gave memory back.
    pub trims: u64,
}

/// A run.
#[derive(Debug)]
pub struct Run {
    /// What its history says besides events. Its events are not in there.
    pub history: History,
    /// What it held.
    pub held: Holdings,
    /// What it did.
    pub work: Work,
    /// Its marks.
    pub marks: Vec<Mark>,
    /// Events read.
    pub events: u64,
    /// Time of the first of them,
    pub start: u64,
    /// and of the last.
    pub end: u64,
    /// When libraries for communication between GPUs took their first memory of a device: not before all ranks have met,
    /// unlike the host memory that they take to meet.
    pub met: Vec<u64>,
}

/// Libraries by which ranks talk to one another.
pub fn collective(file: &str) -> bool {
    const LIBRARIES: [&str; 10] = [
        "libnccl",
        "libnvshmem",
        "libmpi",
        "libopen-pal",
        "libucc",
        "libucp",
        "libucs",
        "libuct",
        "libfabric",
        "libmscclpp",
    ];
    LIBRARIES.iter().any(|library| file.starts_with(library))
}

impl Run {
    /// Reads a history as far as it can be read.
    pub fn read(path: &Path, basis: &Basis) -> Result<Run> {
        let mut reader = Reader::open(path).map_err(|e| anyhow!("{e}"))?;
        let mut run = Run::of_lines(&mut reader, basis);
        run.history.path = path.to_path_buf();
        run.history.damage = reader.damage().map(ToString::to_string);
        Ok(run)
    }

    /// Plays lines.
    pub fn of_lines(lines: impl Iterator<Item = Line>, basis: &Basis) -> Run {
        let mut play = Play::new(basis);
        let mut order = Order::new();
        let definitions = lines.filter_map(|line| {
            match &line {
                Line::Event(thread, event) => {
                    order.push(*thread, *event, &mut |t, e| play.event(t, e));
                    return None;
                }
                Line::Live(_, event) => {
                    play.exited |= event.kind == EventKind::Exit;
                    play.pauses.play(event);
                    play.held.was_live(event);
                    return None;
                }
                Line::Module(m) => play.module(m),
                Line::Text(t) => drop(play.texts.insert(t.text, t.value.clone())),
                _ => {}
            }
            Some(line)
        });
        let mut history = History::of_lines(definitions);
        order.finish(&mut |t, e| play.event(t, e));
        play.work.failed += play.tries.finish().iter().filter(|r| !r.served).count() as u64;
        play.held.finish(play.end);
        if play.held.tensors() {
            play.work.allocations -= play.segments.0;
            play.work.bytes -= play.segments.1;
        }
        (history.exited, history.pauses) = (play.exited, play.pauses);
        let Play { held, work, marks, events, start, end, met, .. } = play;
        Run { history, held, work, marks, events, start, end, met }
    }

    /// The file.
    pub fn path(&self) -> &PathBuf {
        &self.history.path
    }

    /// Whether it is what was live at one moment of a program that went on.
    pub fn is_snapshot(&self) -> bool {
        self.history.is_snapshot()
    }

    /// Why the history may not hold all that its program did.
    pub fn incomplete(&self) -> Option<String> {
        self.history.incomplete(self.events)
    }

    /// What is special about the history, so that numbers of it may not mean what they seem to.
    pub fn caveats(&self) -> Vec<String> {
        let h = &self.history;
        let mut says = Vec::new();
        if self.is_snapshot() {
            says.push(
                "a snapshot: what was live at one moment; it has no peak, no end and no allocations over time".into(),
            );
        }
        says.extend(self.incomplete());
        if h.killed() {
            says.push("the program was killed: what it would have held later is not in it".into());
        }
        let lost = h.lost();
        if lost > 0 {
            says.push(format!("{} lost while recording", crate::report::text::plural(lost, "event")));
        }
        if self.events == 0 && self.held.groups().is_empty() {
            says.push("no GPU memory was asked for".into());
        }
        says
    }
}

/// What gathers while lines go by.
struct Play {
    basis: Basis,
    held: Holdings,
    work: Work,
    /// Of the allocations those that PyTorch's cache cuts tensors from, and their bytes.
    segments: (u64, u64),
    tries: Tries,
    texts: HashMap<u32, String>,
    counted: HashMap<u32, u64>,
    marks: Vec<Mark>,
    collectives: Vec<u32>,
    met: Vec<u64>,
    events: u64,
    start: u64,
    end: u64,
    exited: bool,
    pauses: Pauses,
}

impl Play {
    fn new(basis: &Basis) -> Play {
        Play {
            basis: basis.clone(),
            held: Holdings::new(basis.clone()),
            work: Work::default(),
            segments: (0, 0),
            tries: Tries::default(),
            texts: HashMap::new(),
            counted: HashMap::new(),
            marks: Vec::new(),
            collectives: Vec::new(),
            met: Vec::new(),
            events: 0,
            start: 0,
            end: 0,
            exited: false,
            pauses: Pauses::default(),
        }
    }

    fn module(&mut self, m: &Module) {
        let (number, file) = (m.module, file_name(&m.path));
        self.tries.module(m);
        self.held.module(number, file);
        if collective(file) {
            self.collectives.push(number);
        }
    }

    fn event(&mut self, thread: u32, e: &Event) {
        self.start = if self.events == 0 { e.time } else { self.start };
        self.events += 1;
        self.end = self.end.max(e.time);
        self.held.play(thread, e);
        let settled = self.tries.play(thread, e, Default::default);
        let work = &mut self.work;
        work.failed += settled.iter().flatten().filter(|r| !r.served).count() as u64;
        match e.kind {
            EventKind::Alloc => {
                let bytes = if e.block == 0 { e.bytes } else { e.block };
                work.allocations += 1;
                work.bytes += bytes;
                if self.tries.is_segment(e) {
                    self.segments.0 += 1;
                    self.segments.1 += bytes;
                }
                if self.met.len() < MEETINGS && e.memory.on_device() && self.collectives.contains(&e.caller) {
                    self.met.push(e.time);
                }
            }
            EventKind::Free => {
                work.frees += 1;
                work.host_waits += u64::from(e.how == FreeHow::CachedHost as u8);
            }
            EventKind::Trim => work.trims += 1,
            EventKind::Mark => return self.mark(e),
            EventKind::Exit => self.exited = true,
            EventKind::Pause | EventKind::Resume => self.pauses.play(e),
            _ => {}
        }
        if matches!(e.kind, EventKind::Alloc | EventKind::Free) && e.extra[2] > 0 {
            work.driver_calls += 1;
            work.driver_time += e.extra[2];
        }
    }

    fn mark(&mut self, e: &Event) {
        let text = e.extra[0] as u32;
        let number = self.counted.entry(text).or_default();
        *number += 1;
        let name = self.texts.get(&text).map_or("", String::as_str);
        if matches!(&self.basis, Basis::At(moment) if moment.is_mark(name, *number)) {
            self.held.take(e.time);
        }
        if self.marks.len() < MARKS {
            let active = self.held.active();
            self.marks.push(Mark { text: name.to_string(), number: *number, time: e.time, active });
        }
    }
}
