//! What is live, kept up to date by the writer as events go by: off the hooks' way, and always, so that the moment of an
//! out-of-memory can be explained, a snapshot be written, and a rotated history go on in a part that stands alone.
//!
//! It costs the writer some tens of nanoseconds an event and memory in proportion to what is live; without rotation both
//! what is live and the frames of stacks have a limit, beyond which things are counted and not followed.

use std::collections::{BTreeMap, HashMap};

use crate::event::{Event, EventKind, Source};
use crate::trace::{Header, Line, Thread};

mod group;
mod known;
mod opening;
mod threads;

pub(crate) use group::{Group, Growth};
pub(crate) use known::Known;
pub use opening::Snapshot;

use crate::spread::Spread;
use group::{Groups, Moment};
use threads::Threads;

/// Live allocations followed one by one where nothing depends on all of them (90 bytes each).
const MOST: usize = 4 << 20;

/// An allocation, or a segment of the pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// Who made it.
    pub thread: u32,
    /// Which group counts it; [`NO_GROUP`] for segments.
    group: u32,
    /// The event that made it.
    pub event: Event,
}

const NO_GROUP: u32 = u32::MAX;

/// In the place of an entry that is gone.
const GONE: EventKind = EventKind::Exit;

impl Entry {
    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> u64 {
        size(&self.event)
    }
}

/// More than any device has: a number beyond it comes from a damaged spool.
const LARGEST: u64 = 1 << 48;

fn size(e: &Event) -> u64 {
    if e.block == 0 { e.bytes } else { e.block }.min(LARGEST)
}

/// The state of a history at its end.
#[derive(Debug, Default)]
pub struct Live {
    header: Header,
    known: Known,
    threads: Threads,
    /// Entries, those gone among them, and which are.
    entries: Vec<Entry>,
    vacant: Vec<u32>,
    by_id: HashMap<u64, u32, Spread>,
    groups: Groups,
    contexts: BTreeMap<u16, (u32, Event)>,
    /// Mappings by their address.
    maps: BTreeMap<u64, (u32, Event)>,
    /// The first pause of recording, and the last end of one if it goes on.
    pauses: Vec<(u32, Event)>,
    /// The exit handlers ran.
    exit: Option<(u32, Event)>,
    now: Moment,
    /// Entries at most.
    most: usize,
    /// Allocations beyond them.
    untold: u64,
}

impl Live {
    /// Nothing is live yet. `whole`: whatever it takes, because later parts of the history depend on it.
    pub(crate) fn new(header: Header, whole: bool) -> Live {
        let most = if whole { usize::MAX } else { MOST };
        Live { header, known: Known::new(whole), most, ..Live::default() }
    }

    /// What a number means.
    pub(crate) fn definition(&mut self, line: &Line) {
        self.known.add(line);
    }

    /// A thread begins, or goes on at another number.
    pub(crate) fn thread(&mut self, thread: &Thread) {
        self.threads.set(thread);
    }

    /// Plays the next event.
    pub(crate) fn event(&mut self, thread: u32, event: &Event) {
        self.now.events += 1;
        self.now.time = event.time;
        self.threads.count(thread);
        match event.kind {
            EventKind::Alloc | EventKind::SegmentAlloc => self.enter(thread, event),
            EventKind::Free | EventKind::SegmentFree => {
                let gone = self.leave(event.id);
                self.threads.freed(thread, event.kind == EventKind::SegmentFree, gone);
            }
            EventKind::FreeFailed => {
                if let Some(entry) = self.threads.unfreed(thread, event.id) {
                    self.enter(entry.thread, &entry.event);
                }
            }
            EventKind::Context => drop(self.contexts.insert(event.context, (thread, *event))),
            EventKind::ContextEnd => self.context_end(event.context),
            EventKind::Map => drop(self.maps.insert(event.address, (thread, *event))),
            EventKind::Unmap => self.unmap(event.address, event.bytes),
            EventKind::Export => self.export(event.id),
            EventKind::Pause | EventKind::Resume => {
                self.pauses.truncate(1);
                if event.kind == EventKind::Resume || self.pauses.is_empty() {
                    self.pauses.push((thread, *event));
                }
            }
            EventKind::Exit => self.exit = Some((thread, *event)),
            _ => {}
        }
    }

    fn enter(&mut self, thread: u32, event: &Event) {
        if self.by_id.len() >= self.most {
            self.untold += 1;
            return;
        }
        self.leave(event.id);
        let group = match event.kind {
            EventKind::Alloc => self.groups.add(event, size(event), &self.now),
            _ => NO_GROUP,
        };
        let entry = Entry { thread, group, event: *event };
        let at = match self.vacant.pop() {
            Some(at) => {
                self.entries[at as usize] = entry;
                at
            }
            None => {
                self.entries.push(entry);
                (self.entries.len() - 1) as u32
            }
        };
        self.by_id.insert(event.id, at);
    }

    fn leave(&mut self, id: u64) -> Option<Entry> {
        let at = self.by_id.remove(&id)?;
        let entry = self.entries[at as usize];
        self.entries[at as usize].event.kind = GONE;
        self.vacant.push(at);
        if entry.group != NO_GROUP {
            self.now.frees += 1;
            self.groups.take(entry.group, entry.bytes(), &self.now);
        }
        Some(entry)
    }

    fn context_end(&mut self, context: u16) {
        self.contexts.remove(&context);
        let ends = |e: &Event| e.context == context && e.memory.dies_with_context();
        let ids: Vec<u64> = self.entries().filter(|e| ends(&e.event)).map(|e| e.event.id).collect();
        for id in ids {
            self.leave(id);
        }
        self.maps.retain(|_, (_, e)| !ends(e));
    }

    /// Everything mapped in a range is unmapped.
    fn unmap(&mut self, address: u64, bytes: u64) {
        let end = address.saturating_add(bytes.max(1));
        while let Some(at) = self.maps.range(address..end).next().map(|(at, _)| *at) {
            self.maps.remove(&at);
        }
    }

    /// A block leaves the pool for good, and its segment with it.
    fn export(&mut self, id: u64) {
        let Some(&at) = self.by_id.get(&id) else { return };
        let Entry { thread, mut event, .. } = self.entries[at as usize];
        let segment = std::mem::take(&mut event.extra[0]);
        event.how = Source::Driver as u8;
        if segment != 0 {
            self.leave(segment);
        }
        self.enter(thread, &event);
    }

    // ---- looking at it ----

    /// Everything live: allocations, and segments of the pool.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|e| e.event.kind != GONE)
    }

    /// Whether an allocation is live.
    pub(crate) fn get(&self, id: u64) -> Option<&Entry> {
        self.by_id.get(&id).map(|at| &self.entries[*at as usize])
    }

    /// Live allocations by who made them.
    pub(crate) fn groups(&self) -> &[Group] {
        self.groups.all()
    }

    /// How a group grew, if it did.
    pub(crate) fn growth(&self, group: &Group) -> Option<Growth> {
        group.growth(&self.now)
    }

    /// Mappings: the event that made each.
    pub(crate) fn maps(&self) -> impl Iterator<Item = &Event> {
        self.maps.values().map(|(_, e)| e)
    }

    /// The device of a context; unknown contexts are the first one's.
    pub(crate) fn device(&self, context: u16) -> u32 {
        self.contexts.get(&context).map_or(0, |(_, e)| e.extra[0] as u32)
    }

    /// What numbers mean.
    pub(crate) fn known(&self) -> &Known {
        &self.known
    }

    /// The program's working directory.
    pub(crate) fn directory(&self) -> &str {
        &self.header.directory
    }

    /// Events played, all parts.
    pub(crate) fn events(&self) -> u64 {
        self.now.events
    }

    /// How many allocations are live and not followed.
    pub fn untold(&self) -> u64 {
        self.untold
    }

    /// How many are followed.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether nothing is.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }
}
