//! Regions end in the thread that began them, unless they are the process's.

use std::collections::HashMap;

use vramscope_core::event::{Event, EventKind};
use vramscope_core::spread::Spread;

use super::findings::{At, Findings, Kind};

/// The open regions.
#[derive(Debug, Default)]
pub struct Regions {
    /// The thread of each; 0: the process's.
    open: HashMap<u64, u32, Spread>,
    /// Of each thread, the innermost last.
    threads: HashMap<u32, Vec<u64>, Spread>,
    /// Regions that ended while one begun later was open: those of different NVTX domains need not nest.
    pub crossing: u64,
}

impl Regions {
    /// How many are open.
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// Looks at an event.
    pub fn event(&mut self, thread: u32, e: &Event, at: At, findings: &mut Findings) {
        match e.kind {
            EventKind::RegionBegin if e.extra[2] != 0 => drop(self.open.insert(e.id, 0)),
            // (A number given twice is told of elsewhere.)
            EventKind::RegionBegin if self.open.insert(e.id, thread).is_none() => {
                self.threads.entry(thread).or_default().push(e.id);
            }
            EventKind::RegionEnd => match self.open.remove(&e.id) {
                Some(0) => {}
                Some(begun) if begun == thread => {
                    let open = self.threads.entry(thread).or_default();
                    let place = open.iter().rposition(|id| *id == e.id);
                    self.crossing += u64::from(place.is_some_and(|place| place + 1 < open.len()));
                    place.map(|place| open.remove(place));
                }
                Some(begun) => {
                    findings.add(Kind::Region, at, || format!("id {}, begun in thread {begun}", e.id));
                }
                None => findings.add(Kind::Region, at, || format!("id {}", e.id)),
            },
            _ => {}
        }
    }
}
