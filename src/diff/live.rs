//! Which allocations live: plays events and says what comes in and goes out. It knows nothing of sums.

use std::collections::{HashMap, HashSet};

use vramscope_core::event::{Event, EventKind, Source};
use vramscope_core::spread::Spread;

/// A live allocation, as small as can be: there may be millions.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Which group counts it; [`SEGMENT`] for a segment of the pool.
    pub group: u32,
    /// Its context.
    pub context: u16,
    /// Bytes of its block.
    pub bytes: u64,
    /// Bytes asked for.
    pub requested: u64,
    /// The pool's segment that it lies in; 0: none.
    segment: u64,
    /// It outlives its context.
    stays: bool,
}

/// In the place of a group: it is a segment of the pool.
pub const SEGMENT: u32 = u32::MAX;

/// Hears what changes.
pub trait Count {
    /// The group of an allocation.
    fn group(&mut self, event: &Event) -> u32;
    /// The group that counts the same when a block of this one has left the pool.
    fn outside_pool(&mut self, group: u32) -> u32;
    /// It is live now.
    fn enters(&mut self, entry: &Entry);
    /// It is no longer.
    fn leaves(&mut self, entry: &Entry);
}

/// The live allocations.
#[derive(Debug, Default)]
pub struct Live {
    by_id: HashMap<u64, Entry, Spread>,
    /// Frees whose allocation comes later in the file.
    early: HashSet<u64>,
    last_freed: HashMap<u32, (u64, Entry)>,
}

impl Live {
    /// Plays an event. Whether it made something live.
    pub fn play(&mut self, thread: u32, e: &Event, count: &mut impl Count) -> bool {
        let stays = !e.memory.dies_with_context();
        match e.kind {
            EventKind::Alloc => {
                let group = count.group(e);
                let bytes = if e.block == 0 { e.bytes } else { e.block };
                // Only the pool's blocks lie in segments of the pool.
                let entry = Entry { group, context: e.context, bytes, requested: e.bytes, segment: e.extra[0], stays };
                return self.enter(e.id, entry, count);
            }
            EventKind::SegmentAlloc => {
                let bytes = e.bytes.max(e.block);
                let entry = Entry { group: SEGMENT, context: e.context, bytes, requested: bytes, segment: 0, stays };
                return self.enter(e.id, entry, count);
            }
            EventKind::Free => self.free(thread, e.id, count),
            EventKind::SegmentFree => self.leave(e.id, count),
            EventKind::FreeFailed => match self.last_freed.remove(&thread) {
                Some((last, entry)) if last == e.id => return self.enter(e.id, entry, count),
                _ => drop(self.early.remove(&e.id)),
            },
            EventKind::ContextEnd => self.context_end(e.context, count),
            EventKind::Export => self.export(e.id, count),
            _ => {}
        }
        false
    }

    fn enter(&mut self, id: u64, entry: Entry, count: &mut impl Count) -> bool {
        if self.early.remove(&id) {
            return false;
        }
        // An id twice would be counted twice; the later one holds.
        if let Some(old) = self.by_id.insert(id, entry) {
            count.leaves(&old);
        }
        count.enters(&entry);
        true
    }

    fn leave(&mut self, id: u64, count: &mut impl Count) {
        if let Some(entry) = self.by_id.remove(&id) {
            count.leaves(&entry);
        }
    }

    fn free(&mut self, thread: u32, id: u64, count: &mut impl Count) {
        match self.by_id.remove(&id) {
            Some(entry) => {
                count.leaves(&entry);
                self.last_freed.insert(thread, (id, entry));
            }
            None if id != 0 => drop(self.early.insert(id)),
            None => {}
        }
    }

    /// A context ends, and what lived in it. Physical and imported memory is not a context's.
    fn context_end(&mut self, context: u16, count: &mut impl Count) {
        let ends = |e: &Entry| e.context == context && !e.stays;
        let ids: Vec<u64> = self.by_id.iter().filter(|(_, e)| ends(e)).map(|(id, _)| *id).collect();
        ids.into_iter().for_each(|id| self.leave(id, count));
    }

    /// A block leaves the pool for good, and takes its segment with it.
    fn export(&mut self, id: u64, count: &mut impl Count) {
        let Some(entry) = self.by_id.get(&id).copied().filter(|e| e.segment != 0) else { return };
        self.leave(id, count);
        self.leave(entry.segment, count);
        let group = count.outside_pool(entry.group);
        self.enter(id, Entry { group, segment: 0, ..entry }, count);
    }
}

/// Whether the pool serves it.
pub fn pooled(source: Source) -> bool {
    matches!(source, Source::Hit | Source::Miss)
}
