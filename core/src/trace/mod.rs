//! The history: one JSON object a line, documented field by field in `docs/trace-format.md`.
//!
//! This file is the schema. [`write`](mod@write) makes lines of it, [`read`] makes it of lines. A number is always below 2^53, so
//! that every JSON reader keeps it: times are nanoseconds since the header's start, hashes and build ids are strings.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::event::{Event, EventKind};

mod batch;
mod oom;
mod parse;
mod parts;
pub mod read;
pub(crate) mod source;
mod text;
pub mod write;

pub use oom::{Grew, Holder, Library, Oom, OomLimit, PYTORCH};

/// The name of the older part of a rotated history.
pub fn older_part(path: &std::path::Path) -> std::path::PathBuf {
    let mut name = std::ffi::OsString::from(path);
    name.push(".1");
    name.into()
}

/// Version of the format that this code writes. Older ones stay readable.
pub const VERSION: u32 = 1;

/// The name in the header's `format` field.
pub const FORMAT: &str = "vramscope-history";

/// One line of a history.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "there is one header in a history, and lines are not kept")]
pub enum Line {
    /// The first line.
    Header(Header),
    /// A GPU, before its first use.
    Device(Device),
    /// A thread, before its first event, and again after events of it were lost.
    Thread(Thread),
    /// A loaded library or program, before its first use.
    Module(Module),
    /// A text that other lines refer to by number.
    Text(Text),
    /// A place in Python code, before its first use.
    Python(Python),
    /// The names at an address of a module, in a history made to be read without the modules' files.
    Symbol(Symbol),
    /// A call stack, before its first use.
    Stack(Stack),
    /// Something that happened to memory, in the thread of that number.
    Event(u32, Event),
    /// The state of an allocation at the start of a rotated part: as its `alloc` event, which an older part held.
    Live(u32, Event),
    /// A request failed for want of memory: what the state of memory was at that moment.
    Oom(Box<Oom>),
    /// Something a person should know: settings refused, recording stopped, events lost.
    Note(Note),
    /// What could not be recorded so far.
    Lost(Lost),
    /// The last line of a whole history.
    Footer(Footer),
    /// A line of a newer version: skipped.
    Unknown,
}

impl Line {
    /// Whether it says that the program's exit handlers ran: their event, or what the opening of a later part repeats of it.
    pub fn exits(&self) -> bool {
        matches!(self, Line::Event(_, e) | Line::Live(_, e) if e.kind == EventKind::Exit)
    }
}

/// `{"kind":"header",…}`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Header {
    /// Always [`FORMAT`].
    pub format: String,
    /// [`VERSION`] of the writer.
    pub version: u32,
    /// Version of vramscope that wrote it.
    pub vramscope: String,
    /// Part of a rotated history, from 0.
    pub part: u32,
    /// Events in the parts before this one.
    pub events_before: u64,
    /// The parts before this one were dropped, and none is looked for (a copy made of all that was kept).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dropped: bool,
    /// Process id.
    pub pid: u32,
    /// Parent's process id.
    pub parent: u32,
    /// Host name.
    pub host: String,
    /// Path of the program.
    pub program: String,
    /// Its arguments, the program's name first.
    pub arguments: Vec<String>,
    /// Working directory.
    pub directory: String,
    /// Wall clock at time 0: seconds since 1970.
    pub start_seconds: u64,
    /// and nanoseconds.
    pub start_nanoseconds: u32,
    /// `tsc` or `monotonic`: what the times were read from.
    pub clock: String,
    /// RANK, LOCAL_RANK, WORLD_SIZE, … ([`crate::rank::VARIABLES`]) as the environment had them.
    pub rank: BTreeMap<String, String>,
    /// The settings in force, by variable.
    pub settings: BTreeMap<String, String>,
    /// Where the spool is, from which a killed process's last events are recovered.
    pub spool: String,
    /// Bytes the driver charges allocations in (2 MiB).
    pub granularity: u64,
    /// CUDA driver version, as 13000; 0: unknown.
    pub driver: u32,
}

impl Header {
    /// The rank of a process of a distributed job.
    pub fn rank(&self) -> Option<&str> {
        crate::rank::rank(|name| self.rank.get(name)).map(String::as_str)
    }

    /// How many ranks the job has, and which variable said so.
    pub fn world(&self) -> Option<(&'static str, &str)> {
        crate::rank::world(|name| self.rank.get(name)).map(|(name, size)| (name, size.as_str()))
    }

    /// The job's id.
    pub fn job(&self) -> Option<&str> {
        crate::rank::job(|name| self.rank.get(name)).map(String::as_str)
    }
}

impl Header {
    /// Whether it begins a snapshot: no part of a rotated history is the first and has events before it.
    pub fn is_snapshot(&self) -> bool {
        self.part == 0 && self.events_before > 0
    }

    /// Whether both are of the same process: parts of one history.
    pub fn same_run(&self, other: &Header) -> bool {
        let run = |h: &Header| (h.pid, h.start_seconds, h.start_nanoseconds);
        run(self) == run(other) && self.host == other.host
    }
}

/// `{"kind":"device",…}`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Device {
    /// CUDA ordinal in this process.
    pub device: u32,
    /// Name.
    pub name: String,
    /// UUID as `GPU-…`.
    pub uuid: String,
    /// Bytes in all.
    pub bytes: u64,
}

/// `{"kind":"thread",…}`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Thread {
    /// Number in this history.
    pub thread: u32,
    /// Kernel's thread id.
    pub tid: u32,
    /// Name at its first event.
    pub name: String,
    /// Sequence number of the next event of it in this file: events of a thread are counted from 0, and a jump means loss.
    pub sequence: u64,
}

/// `{"kind":"module",…}`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Module {
    /// Number in this history.
    pub module: u32,
    /// Path of the file.
    pub path: String,
    /// Build id, hexadecimal; empty if it has none.
    pub build_id: String,
    /// Load address: file offset 0's virtual address is here. Frame offsets are relative to it.
    pub address: u64,
    /// Bytes it spans.
    pub bytes: u64,
}

/// `{"kind":"text",…}`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Text {
    /// Number in this history.
    pub text: u32,
    /// The text.
    pub value: String,
}

/// `{"kind":"python",…}`: a place in Python code that frames refer to by number.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Python {
    /// Number in this history.
    pub python: u32,
    /// The function, as its `__qualname__` has it (3.9 and 3.10: its name only).
    pub function: String,
    /// The file, as `co_filename` has it.
    pub file: String,
    /// The line that was running; 0: unknown.
    pub line: u32,
}

/// `{"kind":"symbol",…}`: what `vramscope symbolize` found at an address.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Symbol {
    /// The module.
    pub module: u32,
    /// The return address in it, as frames hold it.
    pub offset: u64,
    /// The functions there, innermost first: several where they were inlined.
    pub names: Vec<Name>,
}

/// A function at an address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Name {
    /// The function, demangled.
    pub function: String,
    /// Its source file; empty: unknown.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub file: String,
    /// The line in it; 0: unknown.
    #[serde(skip_serializing_if = "is_zero")]
    pub line: u32,
    /// Inlined into the next one.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub inlined: bool,
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// `{"kind":"stack","stack":7,"frames":[[1,4660],5,[2,22136,1]]}`, innermost first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stack {
    /// Number in this history.
    pub stack: u32,
    /// Frames, innermost first.
    pub frames: Vec<Frame>,
    /// The walk ended early: the table or the depth was full.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
}

/// A native frame: `[module, offset]`, or `[module, offset, 1]` if it was guessed. Module 0: no module (`offset` is the address).
/// A Python frame: a number, that of its place. It stands before the interpreter's native frame that ran it. A later version may hold frames of other forms; readers keep them as [`Frame::Other`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Frame {
    /// Module and the return address relative to its load address.
    Native(u32, u64),
    /// The same, found by guessing.
    Guessed(u32, u64, u8),
    /// A place in Python code.
    Python(u32),
    /// Not known to this version.
    Other(serde_json::Value),
}

/// `{"kind":"note",…}`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Note {
    /// Time.
    pub time: u64,
    /// What a person should read.
    pub message: String,
}

/// `{"kind":"lost",…}`: totals since the start. They stand in the footer as well, but a history may never get one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lost {
    /// Time.
    pub time: u64,
    /// Events that could not be recorded.
    pub lost: u64,
    /// Stacks that could not be recorded.
    pub stacks_refused: u64,
}

/// `{"kind":"footer",…}`: totals, to check a reading against.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Footer {
    /// Time of the last event.
    pub time: u64,
    /// Events in the history (all parts).
    pub events: u64,
    /// Events lost because a ring was full, no ring was to be had, or recording had stopped.
    pub lost: u64,
    /// Stacks not recorded because the table was full.
    pub stacks_refused: u64,
    /// How it ended: `exit` (exit handlers ran), `killed` (they did not), `stopped` (recording ended early), `snapshot` (of a program
    /// that goes on).
    pub end: String,
    /// Exit status of the program, if the launcher knows: 0..255, or 128 + signal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<i32>,
    /// Who wrote the footer: `launcher`, `recover`, `library` or `snapshot`.
    pub by: String,
}
