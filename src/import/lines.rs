//! The lines of the new history. What a line refers to is written before it.

use std::path::Path;

use anyhow::Result;
use vramscope_core::event::{Event, EventKind};
use vramscope_core::trace::{
    Device, FORMAT, Footer, Frame, Header, Line, Module, Name, Oom, Python, Stack, Symbol, Text, Thread, VERSION, write,
};

use super::Numbers;
use crate::cli::new_file::NewFile;

/// Module of PyTorch's allocator, the caller of what it takes.
pub const ALLOCATOR: u32 = 1;
/// Module that stands for all native code, of which only names are known.
const NATIVE: u32 = 2;

/// A frame as the other tool names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The function.
    pub function: String,
    /// Its file; empty: unknown.
    pub file: String,
    /// The line; 0: unknown.
    pub line: u32,
}

impl Place {
    fn is_python(&self) -> bool {
        self.file.ends_with(".py") || self.file.starts_with('<') || self.function == "<module>"
    }
}

/// Host, and name of a device, where another tool does not say them.
pub const IMPORTED: &str = "(imported)";

/// See the module.
pub struct Lines {
    file: NewFile,
    text: Vec<u8>,
    ids: u64,
    events: u64,
    end: u64,
    places: Numbers<Place>,
    stacks: Numbers<Vec<At>>,
    texts: Numbers<String>,
}

/// A frame, small: a Python place or a native one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum At {
    Python(u32),
    Native(u32),
}

impl Lines {
    /// A history in this file.
    pub fn new(file: NewFile) -> Lines {
        let (places, stacks, texts) = (Numbers::new(), Numbers::new(), Numbers::new());
        Lines { file, text: Vec::new(), ids: 0, events: 0, end: 0, places, stacks, texts }
    }

    /// Writes a line.
    pub fn line(&mut self, line: &Line) -> Result<()> {
        write::line(&mut self.text, line);
        if self.text.len() > 1 << 16 {
            self.file.lines(&self.text)?;
            self.text.clear();
        }
        Ok(())
    }

    /// Writes the header, for a history that began at this wall clock (nanoseconds since 1970).
    pub fn header(&mut self, path: &Path, program: Option<String>, pid: u32, start: u64) -> Result<()> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let program = program.filter(|p| !p.is_empty()).unwrap_or(name);
        self.line(&Line::Header(Header {
            format: FORMAT.into(),
            version: VERSION,
            vramscope: env!("CARGO_PKG_VERSION").into(),
            pid,
            host: IMPORTED.into(),
            arguments: vec![program.clone()],
            program,
            start_seconds: start / 1_000_000_000,
            start_nanoseconds: (start % 1_000_000_000) as u32,
            granularity: 2 << 20,
            ..Header::default()
        }))
    }

    /// A device and its one context, whose number is the device's and one.
    pub fn device(&mut self, device: u32) -> Result<()> {
        let name = IMPORTED.into();
        self.line(&Line::Device(Device { device, name, ..Device::default() }))?;
        let context = Event {
            kind: EventKind::Context,
            context: device as u16 + 1,
            extra: [device.into(), 1, 0],
            ..Event::default()
        };
        self.line(&Line::Live(0, context))
    }

    /// A thread.
    pub fn thread(&mut self, thread: u32, tid: u32, name: &str) -> Result<()> {
        self.line(&Line::Thread(Thread { thread, tid, name: name.into(), sequence: 0 }))
    }

    /// The modules that events and frames of PyTorch refer to.
    pub fn modules(&mut self) -> Result<()> {
        for (module, path) in [(ALLOCATOR, "libc10_cuda.so"), (NATIVE, "native code")] {
            self.line(&Line::Module(Module { module, path: path.into(), ..Module::default() }))?;
        }
        Ok(())
    }

    /// A number for an allocation or segment.
    pub fn id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }

    /// The number of a stack, innermost frame first; 0 for none.
    pub fn stack(&mut self, frames: &[Place]) -> Result<u32> {
        if frames.is_empty() {
            return Ok(0);
        }
        let mut numbers = Vec::with_capacity(frames.len());
        for place in frames {
            let (n, new) = self.places.of(place.clone());
            let Place { function, file, line } = place.clone();
            numbers.push(if place.is_python() { At::Python(n) } else { At::Native(n) });
            match new {
                true if place.is_python() => self.line(&Line::Python(Python { python: n, function, file, line }))?,
                true => {
                    let names = vec![Name { function, file, line, inlined: false }];
                    self.line(&Line::Symbol(Symbol { module: NATIVE, offset: n.into(), names }))?;
                }
                false => {}
            }
        }
        let (stack, new) = self.stacks.of(numbers.clone());
        if new {
            let frame = |f| match f {
                At::Python(n) => Frame::Python(n),
                At::Native(n) => Frame::Native(NATIVE, n.into()),
            };
            self.line(&Line::Stack(Stack { stack, frames: numbers.into_iter().map(frame).collect(), cut: false }))?;
        }
        Ok(stack)
    }

    /// The number of a text.
    pub fn text(&mut self, value: &str) -> Result<u32> {
        let (text, new) = self.texts.of(value.to_string());
        if new {
            self.line(&Line::Text(Text { text, value: value.to_string() }))?;
        }
        Ok(text)
    }

    /// An event.
    pub fn event(&mut self, thread: u32, event: Event) -> Result<()> {
        self.events += 1;
        self.end = self.end.max(event.time);
        self.line(&Line::Event(thread, event))
    }

    /// An allocation that was live before the first event.
    pub fn live(&mut self, thread: u32, event: Event) -> Result<()> {
        self.line(&Line::Live(thread, event))
    }

    /// A request that failed, explained.
    pub fn oom(&mut self, oom: Oom) -> Result<()> {
        self.line(&Line::Oom(Box::new(oom)))
    }

    /// Events so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Writes the last line; `end` as the history's footer has it.
    pub fn finish(mut self, end: &str) -> Result<()> {
        let footer =
            Footer { time: self.end, events: self.events, end: end.into(), by: "import".into(), ..Footer::default() };
        self.line(&Line::Footer(footer))?;
        self.file.lines(&self.text)?;
        self.file.finish()?;
        Ok(())
    }
}
