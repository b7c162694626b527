//! Cached blocks by size class, the newest first. Links lie in the records, so that keeping a block allocates nothing.

use super::size_class::{SMALL, SizeClass};
use super::slot::{NIL, Slots};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Blocks of one class.
#[derive(Clone, Copy)]
struct Ends {
    newest: u32,
    oldest: u32,
}

const EMPTY: Ends = Ends { newest: NIL, oldest: NIL };

/// Cached blocks of a range of classes, the first being `first`.
pub struct FreeList {
    first: u32,
    ends: Vec<Ends>,
    /// A bit for each class that has blocks.
    bits: Vec<u64>,
}

impl FreeList {
    pub fn new(first: SizeClass) -> FreeList {
        FreeList { first: first.0, ends: Vec::new(), bits: Vec::new() }
    }

    /// Adds a block as the newest of its class.
    pub fn push(&mut self, slots: &Slots, class: SizeClass, n: u32) {
        let i = (class.0 - self.first) as usize;
        if i >= self.ends.len() {
            // Small classes at once, large ones up to the largest seen.
            let len = (i + 1).max(SMALL as usize);
            self.ends.resize(len, EMPTY);
            self.bits.resize(len.div_ceil(64), 0);
        }
        let ends = &mut self.ends[i];
        let slot = slots.get(n);
        slot.newer.store(NIL, Relaxed);
        slot.older.store(ends.newest, Relaxed);
        if ends.newest == NIL {
            ends.oldest = n;
            self.bits[i / 64] |= 1 << (i % 64);
        } else {
            slots.get(ends.newest).newer.store(n, Relaxed);
        }
        ends.newest = n;
    }

    /// The newest block of a class: the one whose memory is warmest.
    pub fn newest(&self, class: SizeClass) -> Option<u32> {
        let n = self.ends.get((class.0 - self.first) as usize)?.newest;
        (n != NIL).then_some(n)
    }

    /// The oldest block of a class.
    pub fn oldest(&self, class: SizeClass) -> Option<u32> {
        let n = self.ends.get((class.0 - self.first) as usize)?.oldest;
        (n != NIL).then_some(n)
    }

    /// Takes out a block that is in the list of this class.
    pub fn remove(&mut self, slots: &Slots, class: SizeClass, n: u32) {
        let i = (class.0 - self.first) as usize;
        let Some(ends) = self.ends.get_mut(i) else { return };
        let slot = slots.get(n);
        let (newer, older) = (slot.newer.load(Relaxed), slot.older.load(Relaxed));
        if newer == NIL {
            ends.newest = older
        } else {
            slots.get(newer).older.store(older, Relaxed)
        }
        if older == NIL {
            ends.oldest = newer
        } else {
            slots.get(older).newer.store(newer, Relaxed)
        }
        if ends.newest == NIL {
            self.bits[i / 64] &= !(1 << (i % 64));
        }
    }

    /// The smallest class from `from` to `to`, both included, that has a block.
    pub fn next_class(&self, from: SizeClass, to: SizeClass) -> Option<SizeClass> {
        let (mut i, end) =
            ((from.0.max(self.first) - self.first) as usize, (to.0 + 1).checked_sub(self.first)? as usize);
        let end = end.min(self.ends.len());
        while i < end {
            let word = self.bits[i / 64] >> (i % 64);
            if word != 0 {
                let found = i + word.trailing_zeros() as usize;
                return (found < end).then_some(SizeClass(self.first + found as u32));
            }
            i = (i / 64 + 1) * 64;
        }
        None
    }

    /// The largest class that has a block.
    pub fn largest_class(&self) -> Option<SizeClass> {
        let (i, word) = self.bits.iter().enumerate().rev().find(|(_, w)| **w != 0)?;
        Some(SizeClass(self.first + i as u32 * 64 + word.ilog2()))
    }

    /// All classes that have a block.
    pub fn classes(&self) -> impl Iterator<Item = SizeClass> {
        let mut next = Some(SizeClass(self.first));
        std::iter::from_fn(move || {
            let found = self.next_class(next?, SizeClass(u32::MAX - 1))?;
            next = Some(SizeClass(found.0 + 1));
            Some(found)
        })
    }

    fn bits(&self, i: usize) -> u64 {
        self.bits.get(i).copied().unwrap_or(0)
    }
}

/// What was done under the lock of a list. Only its holder writes, so that no atomic addition is needed.
#[derive(Default)]
pub struct Tally {
    pub hits_exact: AtomicU64,
    pub hits_near: AtomicU64,
    pub kept_not_needed: AtomicU64,
    pub kept_device: AtomicU64,
    pub kept_host: AtomicU64,
    pub kept_bytes: AtomicU64,
}

/// Adds one to a counter that nobody else writes at the time.
#[inline]
pub fn count(counter: &AtomicU64) {
    counter.store(counter.load(Relaxed).wrapping_add(1), Relaxed);
}

/// A free list with its lock, its counters and a glimpse of it for those who don't hold the lock.
#[repr(align(128))]
pub struct Lane {
    pub list: Mutex<FreeList>,
    pub tally: Tally,
    glimpse: [AtomicU64; 2],
}

impl Lane {
    pub fn new(first: SizeClass) -> Lane {
        Lane {
            list: Mutex::new(FreeList::new(first)),
            tally: Tally::default(),
            glimpse: [const { AtomicU64::new(0) }; 2],
        }
    }

    /// Shows which classes have blocks: the holder of the lock calls it after each change.
    #[inline]
    pub fn show(&self, list: &FreeList) {
        for (i, g) in self.glimpse.iter().enumerate() {
            if g.load(Relaxed) != list.bits(i) {
                g.store(list.bits(i), Relaxed);
            }
        }
    }

    /// Whether a small class seems to have a block. It may be out of date for other threads' changes.
    #[inline]
    pub fn seems_to_have(&self, class: SizeClass) -> bool {
        self.glimpse[class.0 as usize / 64 % 2].load(Relaxed) >> (class.0 % 64) & 1 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_removal_and_search() {
        let slots = Slots::new();
        let mut l = FreeList::new(SizeClass(SMALL));
        let class = |n| SizeClass(SMALL + n);
        for n in 0..4 {
            l.push(&slots, class(3), n);
        }
        l.push(&slots, class(200), 9);
        assert_eq!((l.newest(class(3)), l.oldest(class(3))), (Some(3), Some(0)));
        assert_eq!(l.next_class(class(0), class(5000)), Some(class(3)));
        assert_eq!(l.next_class(class(4), class(200)), Some(class(200)));
        assert_eq!(l.next_class(class(4), class(199)), None);
        assert_eq!(l.largest_class(), Some(class(200)));
        for (n, newest, oldest) in
            [(2, Some(3), Some(0)), (0, Some(3), Some(1)), (3, Some(1), Some(1)), (1, None, None)]
        {
            l.remove(&slots, class(3), n);
            assert_eq!((l.newest(class(3)), l.oldest(class(3))), (newest, oldest));
        }
        assert_eq!(l.next_class(class(0), class(199)), None);
        l.remove(&slots, class(200), 9);
        assert_eq!(l.largest_class(), None);
    }
}
