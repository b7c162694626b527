//! What a part of a rotated history opens with, so that it can be read when the parts before it are gone: the header,
//! all definitions, and everything that is live.

use std::collections::{BTreeMap, HashMap};

use crate::event::{Event, EventKind, Memory};
use crate::trace::{Header, Line, Thread, write};

/// Contexts open a part, then segments, allocations, mappings.
type Key = (u8, u64);

fn key(event: &Event) -> Key {
    match event.kind {
        EventKind::Context | EventKind::ContextEnd => (0, u64::from(event.context)),
        EventKind::SegmentAlloc | EventKind::SegmentFree => (1, event.id),
        EventKind::Map | EventKind::Unmap => (3, event.address),
        _ => (2, event.id),
    }
}

/// Whether the end of a context is the end of such memory.
fn dies_with_context(memory: Memory) -> bool {
    !matches!(memory, Memory::Vmm | Memory::Async | Memory::Imported)
}

/// The state of a history at its end.
pub(super) struct Opening {
    header: Header,
    definitions: Vec<u8>,
    /// With the number of the next event.
    threads: BTreeMap<u32, Thread>,
    live: BTreeMap<Key, (u32, Event)>,
    /// What each thread freed last: a failed free brings it back.
    freed: HashMap<u32, (u32, Event)>,
}

impl Opening {
    pub(super) fn new(header_line: &[u8]) -> Opening {
        Opening {
            header: serde_json::from_slice(header_line).unwrap_or_default(),
            definitions: Vec::new(),
            threads: BTreeMap::new(),
            live: BTreeMap::new(),
            freed: HashMap::new(),
        }
    }

    pub(super) fn definition(&mut self, line: &[u8]) {
        self.definitions.extend_from_slice(line);
    }

    pub(super) fn thread(&mut self, thread: &Thread) {
        self.threads.insert(thread.thread, thread.clone());
    }

    pub(super) fn event(&mut self, thread: u32, event: &Event) {
        self.header.events_before += 1;
        if let Some(thread) = self.threads.get_mut(&thread) {
            thread.sequence += 1;
        }
        match event.kind {
            EventKind::Alloc | EventKind::SegmentAlloc | EventKind::Context | EventKind::Map => {
                self.live.insert(key(event), (thread, *event));
            }
            EventKind::Free => match self.live.remove(&key(event)) {
                Some(freed) => drop(self.freed.insert(thread, freed)),
                None => drop(self.freed.remove(&thread)),
            },
            EventKind::FreeFailed => {
                if let Some((by, freed)) = self.freed.remove(&thread)
                    && freed.id == event.id
                {
                    self.live.insert(key(&freed), (by, freed));
                }
            }
            EventKind::SegmentFree | EventKind::Unmap => drop(self.live.remove(&key(event))),
            EventKind::ContextEnd => {
                let ended = event.context;
                self.live.retain(|_, (_, e)| e.context != ended || !dies_with_context(e.memory));
            }
            _ => {}
        }
    }

    /// Writes the opening of the next part.
    pub(super) fn write(&mut self, text: &mut Vec<u8>) {
        self.header.part += 1;
        write::header(text, &self.header);
        text.extend_from_slice(&self.definitions);
        for thread in self.threads.values() {
            write::line(text, &Line::Thread(thread.clone()));
        }
        for (thread, event) in self.live.values() {
            write::live(text, *thread, event);
        }
    }
}
