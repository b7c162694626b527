//! The pool's records of driver allocations: a slab that only grows, so that a record's number stays valid and is
//! reached without a lock.
//!
//! Who may change a record's state:
//! - `Active` → `Freeing`: under the lock of the table's shard that holds the address. So one of two frees wins.
//! - `Inactive` → anything: under the lock of the list that holds the record.
//! - `Freeing`, `Releasing` → anything: the thread that freed; except that `Freeing` may become `Dead` when the address
//!   turns out to belong to somebody else, and the freeing thread then only clears up.
//! - any → `Dead` for a record that the table no longer holds: the thread that took it from the table.

use super::lock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Mutex, OnceLock};

/// No record.
pub const NIL: u32 = u32::MAX;

/// Where a record is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// Not in use.
    Vacant,
    /// The program has it.
    Active,
    /// A free is under way that may keep it.
    Freeing,
    /// Cached, in a list.
    Inactive,
    /// A call that gives it back to the driver is under way: the driver may hand the address out again.
    Releasing,
    /// Forgotten; whoever holds its number makes it vacant.
    Dead,
}

/// Flags: each makes the free of a block a real one.
pub mod flag {
    /// Allocated past the pool.
    pub const DIRECT: u8 = 1;
    /// Known outside of the process, or pinned to its address in another way.
    pub const EXPORTED: u8 = 2;
    /// Not of the size of a class (the class did not fit in what the device had left).
    pub const EXACT: u8 = 4;
}

/// State, flags and context of a record, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word(u32);

impl Word {
    pub fn new(life: Life, flags: u8, context: u16) -> Word {
        Word(life as u32 | u32::from(flags) << 8 | u32::from(context) << 16)
    }

    #[inline]
    pub fn life(self) -> Life {
        match self.0 as u8 {
            0 => Life::Vacant,
            1 => Life::Active,
            2 => Life::Freeing,
            3 => Life::Inactive,
            4 => Life::Releasing,
            _ => Life::Dead,
        }
    }

    #[inline]
    pub fn flags(self) -> u8 {
        (self.0 >> 8) as u8
    }

    #[inline]
    pub fn context(self) -> u16 {
        (self.0 >> 16) as u16
    }

    #[inline]
    pub fn to(self, life: Life) -> Word {
        Word(self.0 & !0xff | life as u32)
    }

    pub fn with(self, flag: u8) -> Word {
        Word(self.0 | u32::from(flag) << 8)
    }
}

/// One record. A cache line, so that threads at work on different blocks don't meet.
#[derive(Default)]
#[repr(align(64))]
pub struct Slot {
    word: AtomicU32,
    /// The pool's clock when it was cached.
    pub stamp: AtomicU32,
    /// Class and lane, of the list that holds it.
    pub place: AtomicU32,
    /// Neighbours in the list; under the list's lock.
    pub newer: AtomicU32,
    pub older: AtomicU32,
    pub address: AtomicU64,
    pub bytes: AtomicU64,
    pub segment: AtomicU64,
    /// The program's allocation that it serves, or served last.
    pub id: AtomicU64,
    pub requested: AtomicU64,
}

impl Slot {
    #[inline]
    pub fn word(&self) -> Word {
        Word(self.word.load(Acquire))
    }

    #[inline]
    pub fn set_word(&self, w: Word) {
        self.word.store(w.0, Release);
    }

    /// Changes the state if it is still `from`.
    #[inline]
    pub fn change(&self, from: Word, to: Word) -> bool {
        self.word.compare_exchange(from.0, to.0, AcqRel, Acquire).is_ok()
    }

    #[inline]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }
}

const FIRST: u32 = 1 << 10;
const CHUNKS: usize = 22; // FIRST × (2^22 − 1) records: all that a u32 can number.

/// The slab.
pub struct Slots {
    chunks: [OnceLock<Box<[Slot]>>; CHUNKS],
    vacant: Mutex<Vacant>,
}

struct Vacant {
    numbers: Vec<u32>,
    next: u32,
}

impl Slots {
    pub const fn new() -> Slots {
        Slots {
            chunks: [const { OnceLock::new() }; CHUNKS],
            vacant: Mutex::new(Vacant { numbers: Vec::new(), next: 0 }),
        }
    }

    /// The record of this number. A chunk not made yet is made: no number leads to a panic.
    #[inline]
    pub fn get(&self, n: u32) -> &Slot {
        let n = n.saturating_add(FIRST);
        let chunk = n.ilog2() - FIRST.ilog2();
        let first = FIRST << chunk;
        &self.chunks[chunk as usize].get_or_init(|| (0..first).map(|_| Slot::default()).collect())[(n - first) as usize]
    }

    /// A vacant record, now the caller's.
    pub fn take(&self) -> u32 {
        let mut v = lock(&self.vacant);
        v.numbers.pop().unwrap_or_else(|| {
            let n = v.next;
            v.next = n.saturating_add(1).min(u32::MAX - FIRST);
            n
        })
    }

    /// Gives a record back.
    pub fn vacate(&self, n: u32) {
        self.get(n).set_word(Word::new(Life::Vacant, 0, 0));
        lock(&self.vacant).numbers.push(n);
    }

    /// One more than the highest number ever taken.
    pub fn end(&self) -> u32 {
        lock(&self.vacant).next
    }
}
