//! What the numbers in events mean, kept small: stacks as packed words in one piece of memory.

use std::collections::{BTreeMap, HashMap};

use crate::record::definition::{frame, frame_of, python_frame};
use crate::spread::Spread;
use crate::trace::{Device, Frame, Line, Module, Python, Stack, Text, write};

/// Frames kept where nothing depends on all of them: 64 MiB. (The table of stacks is full at 65,536 stacks.)
const MOST: usize = 8 << 20;

/// Numbers of stacks beyond this come from a damaged spool.
const STACKS: u32 = 1 << 24;

const CUT: u32 = 1 << 31;

/// Definitions by number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    frames: Vec<u64>,
    /// Where each stack's frames begin and how many they are.
    stacks: Vec<(u32, u32)>,
    modules: BTreeMap<u32, Module>,
    python: HashMap<u32, Python, Spread>,
    devices: BTreeMap<u32, Device>,
    texts: Vec<Text>,
    most: usize,
}

impl Known {
    pub(super) fn new(whole: bool) -> Known {
        Known { most: if whole { u32::MAX as usize } else { MOST }, ..Known::default() }
    }

    pub(super) fn add(&mut self, line: &Line) {
        match line {
            Line::Stack(stack) => self.stack(stack),
            Line::Module(module) => drop(self.modules.insert(module.module, module.clone())),
            Line::Python(place) => drop(self.python.insert(place.python, place.clone())),
            Line::Device(device) => drop(self.devices.insert(device.device, device.clone())),
            Line::Text(text) => self.texts.push(text.clone()),
            _ => {}
        }
    }

    fn stack(&mut self, stack: &Stack) {
        if stack.stack >= STACKS || self.frames.len() + stack.frames.len() > self.most {
            return;
        }
        let at = stack.stack as usize;
        if self.stacks.len() <= at {
            self.stacks.resize(at + 1, (0, 0));
        }
        let start = self.frames.len() as u32;
        self.frames.extend(stack.frames.iter().map(|f| match f {
            Frame::Native(module, offset) => frame(*module as u16, *offset, false),
            Frame::Guessed(module, offset, _) => frame(*module as u16, *offset, true),
            Frame::Python(place) => python_frame(*place),
            Frame::Other(_) => 0,
        }));
        self.stacks[at] = (start, stack.frames.len() as u32 | if stack.cut { CUT } else { 0 });
    }

    fn words(&self, stack: u32) -> &[u64] {
        let (start, len) = self.stacks.get(stack as usize).copied().unwrap_or_default();
        self.frames.get(start as usize..(start + (len & !CUT)) as usize).unwrap_or_default()
    }

    /// The frames of a stack, innermost first.
    pub(crate) fn frames(&self, stack: u32) -> impl Iterator<Item = Frame> {
        self.words(stack).iter().map(|word| frame_of(*word))
    }

    /// A place in Python code.
    pub(crate) fn python(&self, number: u32) -> Option<&Python> {
        self.python.get(&number)
    }

    /// A GPU.
    pub(crate) fn device(&self, number: u32) -> Option<&Device> {
        self.devices.get(&number)
    }

    /// Path of a module; empty if it is not known.
    pub(crate) fn path(&self, module: u32) -> &str {
        self.modules.get(&module).map_or("", |m| &m.path)
    }

    /// File name of a module; `?` if it is not known.
    pub(crate) fn file(&self, module: u32) -> &str {
        match self.path(module).rsplit('/').next() {
            None | Some("") => "?",
            Some(name) => name,
        }
    }

    /// Writes the definitions, each before what refers to it. `wanted`: of stacks and places only what it says yes to.
    pub(super) fn write(&self, text: &mut Vec<u8>, wanted: impl Fn(u32) -> bool) {
        let mut line = |line: Line| write::line(text, &line);
        self.devices.values().for_each(|d| line(Line::Device(d.clone())));
        self.modules.values().for_each(|m| line(Line::Module(m.clone())));
        self.texts.iter().for_each(|t| line(Line::Text(t.clone())));
        let stacks: Vec<u32> = (1..self.stacks.len() as u32).filter(|s| self.has(*s) && wanted(*s)).collect();
        let mut places: Vec<&Python> = self.python.values().collect();
        if stacks.len() + 1 < self.stacks.len() {
            let used = stacks.iter().flat_map(|s| self.frames(*s));
            let used: std::collections::HashSet<u32> =
                used.filter_map(|f| if let Frame::Python(p) = f { Some(p) } else { None }).collect();
            places.retain(|p| used.contains(&p.python));
        }
        places.sort_by_key(|p| p.python);
        places.into_iter().for_each(|p| line(Line::Python(p.clone())));
        for stack in stacks {
            let cut = self.stacks[stack as usize].1 & CUT != 0;
            line(Line::Stack(Stack { stack, frames: self.frames(stack).collect(), cut }));
        }
    }

    /// A stack without frames is one as well, if it was cut.
    fn has(&self, stack: u32) -> bool {
        self.stacks[stack as usize].1 != 0
    }
}
