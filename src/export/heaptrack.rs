//! heaptrack's data, as its `heaptrack_interpret` writes it: for heaptrack_gui (flame graphs, callers and callees,
//! temporary allocations, a chart over time) and heaptrack_print.
//!
//! Numbers are hexadecimal. `s` a string, `i` a place in code, `t` a place and the trace that called it, `a` a size and a
//! trace, `+` and `-` one of these, `c` the time in milliseconds, `R` pages in use. In place of the process's resident
//! memory stands what the device said is in use by everybody.

use std::collections::HashMap;
use std::io::Write;

use anyhow::Result;
use vramscope_core::event::EventKind;

use super::target::Sink;
use super::{Allocation, Format, Frame, Source, Target, What};
use crate::report::tally::Layer;
use crate::report::text::clean;

/// See the module.
pub struct Heaptrack;

const PAGE: u64 = 4096;

impl Format for Heaptrack {
    fn write(&self, source: &mut Source, target: &Target) -> Result<Vec<String>> {
        source.resolve_all();
        let source = &*source;
        let h = &source.history;
        let mut data = Data::new(target.create()?);
        // The version of heaptrack that is spoken, and of its file: strings are lines.
        writeln!(data.out, "v 10200 2")?;
        let command =
            if h.header.arguments.is_empty() { h.header.program.clone() } else { h.header.arguments.join(" ") };
        writeln!(data.out, "X {}", clean(&command))?;
        let memory: u64 = h.devices.values().map(|d| d.bytes / PAGE).sum();
        writeln!(data.out, "I {PAGE:x} {memory:x}")?;
        let layer = source.selection.layer;
        // A byte is told once: what lies in other memory only if asked for.
        let told = |l: Layer| layer.is_some() || l.on_device();
        source.play(&mut |step| match &step.what {
            What::Alloc(a) if told(a.layer) => data.one('+', a, step.time, source),
            What::Free(a, _) if told(a.layer) => data.one('-', a, step.time, source),
            What::Other(e) if e.kind == EventKind::Sample => {
                data.time(step.time)?;
                writeln!(data.out, "R {:x}", e.block.saturating_sub(e.bytes) / PAGE)?;
                Ok(())
            }
            _ => Ok(()),
        })?;
        data.time(source.end.min(source.selection.to))?;
        data.out.finish()?;
        Ok(Vec::new())
    }
}

/// What was written so far. Numbers are from 1, those of `a` from 0.
struct Data {
    out: Sink,
    ms: u64,
    strings: HashMap<Box<str>, u64>,
    places: HashMap<Frame, u64>,
    traces: HashMap<(u64, u64), u64>,
    stacks: HashMap<u32, u64>,
    infos: HashMap<(u64, u64), u64>,
}

impl Data {
    fn new(out: Sink) -> Data {
        let (strings, places, traces) = (HashMap::new(), HashMap::new(), HashMap::new());
        let (stacks, infos) = (HashMap::new(), HashMap::new());
        Data { out, ms: 0, strings, places, traces, stacks, infos }
    }

    fn time(&mut self, time: u64) -> Result<()> {
        let ms = time / 1_000_000;
        if ms > self.ms {
            self.ms = ms;
            writeln!(self.out, "c {ms:x}")?;
        }
        Ok(())
    }

    fn one(&mut self, sign: char, a: &Allocation, time: u64, source: &Source) -> Result<()> {
        self.time(time)?;
        let trace = self.stack(a.event.stack, source)?;
        let key = (a.block(), trace);
        let next = self.infos.len() as u64;
        let info = *self.infos.entry(key).or_insert(next);
        if info == next {
            writeln!(self.out, "a {:x} {trace:x}", a.block())?;
        }
        writeln!(self.out, "{sign} {info:x}")?;
        Ok(())
    }

    fn stack(&mut self, stack: u32, source: &Source) -> Result<u64> {
        if let Some(trace) = self.stacks.get(&stack) {
            return Ok(*trace);
        }
        let mut frames = if stack == 0 { Vec::new() } else { source.frames(stack) };
        if frames.is_empty() {
            frames.push(Frame { function: "(no call stack)".into(), ..Frame::default() });
        }
        let mut trace = 0;
        for frame in frames.into_iter().rev() {
            let place = self.place(frame)?;
            let next = self.traces.len() as u64 + 1;
            let caller = trace;
            trace = *self.traces.entry((place, caller)).or_insert(next);
            if trace == next {
                writeln!(self.out, "t {place:x} {caller:x}")?;
            }
        }
        self.stacks.insert(stack, trace);
        Ok(trace)
    }

    fn place(&mut self, frame: Frame) -> Result<u64> {
        if let Some(place) = self.places.get(&frame) {
            return Ok(*place);
        }
        let module = self.string(if frame.python { "Python" } else { &frame.module })?;
        // heaptrack takes what is in angles for a template's arguments, and leaves it out.
        let function = match frame.python {
            true => self.string(&frame.function.replace('<', "(").replace('>', ")"))?,
            false => self.string(&frame.function)?,
        };
        // A module's path is no source file.
        let file = self.string(if frame.line > 0 { &frame.file } else { "" })?;
        let place = self.places.len() as u64 + 1;
        // The address tells places apart, and is no address.
        write!(self.out, "i {place:x} {module:x} {function:x}")?;
        if file > 0 {
            write!(self.out, " {file:x} {:x}", frame.line)?;
        }
        writeln!(self.out)?;
        self.places.insert(frame, place);
        Ok(place)
    }

    fn string(&mut self, text: &str) -> Result<u64> {
        if text.is_empty() {
            return Ok(0);
        }
        if let Some(n) = self.strings.get(text) {
            return Ok(*n);
        }
        writeln!(self.out, "s {}", clean(text))?;
        let n = self.strings.len() as u64 + 1;
        self.strings.insert(text.into(), n);
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::testing::exported;
    use crate::report::testing::{MIB, Script};
    use vramscope_core::event::{FreeHow, Memory};

    #[test]
    fn every_number_refers_to_a_line_before_it() {
        let mut s = Script::new();
        let python = s.python("Net.forward", "/job/train.py", 20);
        let main = s.python("<module>", "/job/train.py", 60);
        let a = s.stack_of(&[python, main.clone()]);
        let b = s.stack_of(&[main]);
        let first = s.direct(Memory::Device, MIB, a, 1);
        s.direct(Memory::Device, MIB, b, 1);
        s.direct(Memory::Pinned, MIB, b, 1);
        s.free(first, FreeHow::Driver);
        s.direct(Memory::Device, MIB, a, 1);
        let (text, notes) = exported(&s, &Heaptrack, |_| {});
        assert!(notes.is_empty());
        let lines: Vec<&str> = text.lines().filter(|l| !l.starts_with("c ")).collect();
        let expected = [
            "v 10200 2",
            "X ./program --steps 100",
            "I 1000 22c00000",
            // Outermost first: <module> calls Net.forward.
            "s Python",
            "s (module)",
            "s /job/train.py",
            "i 1 1 2 3 3c",
            "t 1 0",
            "s Net.forward",
            "i 2 1 4 3 14",
            "t 2 1",
            "a 100000 2",
            "+ 0",
            "a 100000 1",
            "+ 1",
            "- 0",
            "+ 0",
        ];
        assert_eq!(lines, expected.map(|l| if l.starts_with("I ") { lines[2] } else { l }));
    }
}
