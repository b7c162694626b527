//! Regions and marks: what each thread was at, as a history goes by.

use std::collections::HashMap;

use vramscope_core::event::{Event, EventKind};

use super::play::{Step, What};

/// What was going on at a moment in a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Around {
    /// Number of the path of regions, see [`Regions::path`]; 0: none.
    pub path: u32,
    /// Marks so far.
    pub marks: u32,
}

/// A region of a thread, or of the whole process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Its id.
    pub id: u64,
    /// Number of the path that ends with it.
    pub path: u32,
    /// Number of its name.
    pub text: u32,
    /// Number of the thread that entered it.
    pub thread: u32,
    /// When.
    pub begin: u64,
    /// It is one of the whole process, and in no other.
    pub process: bool,
}

/// Something of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It was entered.
    Begin(Region),
    /// It was left, at this time.
    End(Region, u64),
}

/// See the module.
#[derive(Debug, Default)]
pub struct Regions {
    open: HashMap<u32, Vec<Region>>,
    process: HashMap<u64, Region>,
    /// The regions a path goes through: the number of the path before its last, and the last's name.
    paths: Vec<(u32, u32)>,
    numbers: HashMap<(u32, u32), u32>,
    marks: u32,
}

impl Regions {
    /// Takes a step.
    pub fn step(&mut self, step: &Step<'_>) -> Option<Turn> {
        let What::Other(e) = step.what else { return None };
        match e.kind {
            EventKind::Mark => {
                self.marks += 1;
                None
            }
            EventKind::RegionBegin => Some(Turn::Begin(self.begin(step.thread, e))),
            EventKind::RegionEnd => self.end(step.thread, e.id).map(|r| Turn::End(r, step.time)),
            _ => None,
        }
    }

    fn begin(&mut self, thread: u32, e: &Event) -> Region {
        let (text, process) = (e.extra[0] as u32, e.extra[2] == 1);
        let outer = if process { 0 } else { self.open.get(&thread).and_then(|o| o.last()).map_or(0, |r| r.path) };
        let path = self.number(outer, text);
        let begin = e.time.saturating_sub(e.extra[1]);
        let region = Region { id: e.id, path, text, thread, begin, process };
        if process {
            self.process.insert(e.id, region);
        } else {
            self.open.entry(thread).or_default().push(region);
        }
        region
    }

    fn end(&mut self, thread: u32, id: u64) -> Option<Region> {
        if let Some(region) = self.process.remove(&id) {
            return Some(region);
        }
        let open = self.open.get_mut(&thread)?;
        let at = open.iter().rposition(|r| r.id == id)?;
        Some(open.remove(at))
    }

    fn number(&mut self, outer: u32, text: u32) -> u32 {
        let next = self.paths.len() as u32 + 1;
        let number = *self.numbers.entry((outer, text)).or_insert(next);
        if number == next {
            self.paths.push((outer, text));
        }
        number
    }

    /// What is going on in a thread.
    pub fn around(&self, thread: u32) -> Around {
        let path = self.open.get(&thread).and_then(|open| open.last()).map_or(0, |r| r.path);
        Around { path, marks: self.marks }
    }

    /// The names of the regions on a path, the outermost first, as `step/forward`.
    pub fn path(&self, mut number: u32, texts: &HashMap<u32, String>) -> String {
        let mut names = Vec::new();
        while let Some((outer, text)) = (number as usize).checked_sub(1).and_then(|i| self.paths.get(i)) {
            names.push(texts.get(text).map_or("?", String::as_str));
            number = *outer;
        }
        names.reverse();
        names.join("/")
    }

    /// Those that nobody left, the outermost first.
    pub fn rest(&mut self) -> Vec<Region> {
        let mut rest: Vec<Region> = self.open.drain().flat_map(|(_, open)| open).collect();
        rest.extend(self.process.drain().map(|(_, r)| r));
        rest.sort_by_key(|r| (r.begin, r.id));
        rest
    }
}
