//! The arena's records: a slab that only grows, so that a record's number stays valid and is reached without a lock. The
//! records tile the reserved ranges: each byte of a range belongs to exactly one.
//!
//! Who may change a record:
//! - `Live`, `Shared` → `Freeing`: whoever wins the exchange of the word, which holds the address, so that a stale number
//!   never frees another block.
//! - `Freeing` → anything: the thread that frees. `Front` → anything, and the link `bin_next` meanwhile: under the lock of
//!   the stream's lane.
//! - `Busy` → anything: the thread that claimed it, under the core's lock. All the rest, neighbours' links too: under the
//!   core's lock.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

/// No record.
pub const NIL: u32 = u32::MAX;

/// The grain of sizes and addresses, as a shift: 512 bytes.
pub const GRAIN: u32 = 9;

/// What a record stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing: the record is not in use.
    Vacant,
    /// Addresses without memory.
    Hole,
    /// Free, and no stream's work may still touch it.
    Free,
    /// Free; work of one stream, up to a stamp, may still touch it.
    Tied,
    /// Free; work of several streams may still touch it.
    Waiting,
    /// Claimed by a request that is ordering streams, or mapping or unmapping memory.
    Busy,
    /// Free, in a stream's front cache.
    Front,
    /// A free is under way.
    Freeing,
    /// The program has it.
    Live,
    /// The program has it, and told of other streams that use it.
    Shared,
    /// In use at other addresses; see `stitch.rs`.
    Lent,
    /// Addresses of a stitched block that is free.
    Spare,
}

use State::*;
const STATES: [State; 12] = [Vacant, Hole, Free, Tied, Waiting, Busy, Front, Freeing, Live, Shared, Lent, Spare];
const WHOLE: u64 = 0x80;

/// Address, state, and whether the block is never split nor joined, in one word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Word(u64);

impl Word {
    #[inline]
    pub fn new(address: u64, state: State) -> Word {
        Word(address >> GRAIN << 8 | state as u64)
    }

    #[inline]
    pub fn address(self) -> u64 {
        self.0 >> 8 << GRAIN
    }

    #[inline]
    pub fn state(self) -> State {
        STATES.get((self.0 & 0x7f) as usize).copied().unwrap_or(Vacant)
    }

    #[inline]
    pub fn to(self, state: State) -> Word {
        Word(self.0 & !0x7f | state as u64)
    }

    #[inline]
    pub fn whole(self) -> bool {
        self.0 & WHOLE != 0
    }

    pub fn with_whole(self, whole: bool) -> Word {
        Word(self.0 & !WHOLE | if whole { WHOLE } else { 0 })
    }
}

/// One record: a cache line.
#[derive(Default)]
#[repr(align(64))]
pub struct Slot {
    word: AtomicU64,
    bytes: AtomicU64,
    /// The program's allocation that it serves, or served last.
    id: AtomicU64,
    /// Up to where work of its stream may touch it, in ticks of the arena's clock.
    stamp: AtomicU64,
    /// The stream it was allocated for, or that it is tied to.
    stream: AtomicU64,
    /// How much less than `bytes` was asked for.
    slack: AtomicU32,
    prev: AtomicU32,
    next: AtomicU32,
    bin_prev: AtomicU32,
    bin_next: AtomicU32,
}

macro_rules! fields {
    ($($name:ident $set:ident: $t:ty),*) => {
        /// Plain numbers: what orders them is a lock, or the word.
        impl Slot {
            $(
                #[inline]
                pub fn $name(&self) -> $t {
                    self.$name.load(Relaxed)
                }

                #[inline]
                pub fn $set(&self, value: $t) {
                    self.$name.store(value, Relaxed);
                }
            )*
        }
    };
}

fields! {
    bytes set_bytes: u64, id set_id: u64, stamp set_stamp: u64, stream set_stream: u64, slack set_slack: u32,
    prev set_prev: u32, next set_next: u32, bin_prev set_bin_prev: u32, bin_next set_bin_next: u32
}

impl Slot {
    #[inline]
    pub fn word(&self) -> Word {
        Word(self.word.load(Acquire))
    }

    #[inline]
    pub fn set_word(&self, word: Word) {
        self.word.store(word.0, Release);
    }

    #[inline]
    pub fn set_state(&self, state: State) {
        self.set_word(self.word().to(state));
    }

    /// Changes the word if it is still `from`.
    #[inline]
    pub fn change(&self, from: Word, to: Word) -> bool {
        self.word.compare_exchange(from.0, to.0, AcqRel, Acquire).is_ok()
    }

    #[inline]
    pub fn address(&self) -> u64 {
        self.word().address()
    }

    #[inline]
    pub fn state(&self) -> State {
        self.word().state()
    }

    pub fn end(&self) -> u64 {
        self.address().saturating_add(self.bytes())
    }

    pub fn requested(&self) -> u64 {
        self.bytes().saturating_sub(u64::from(self.slack()))
    }
}

const FIRST: u32 = 1 << 10;
const CHUNKS: usize = 22; // FIRST × (2^22 − 1) records: all that a u32 can number.

/// The slab.
pub struct Slots {
    chunks: [OnceLock<Box<[Slot]>>; CHUNKS],
}

impl Slots {
    pub const fn new() -> Slots {
        Slots { chunks: [const { OnceLock::new() }; CHUNKS] }
    }

    /// The record of this number. A chunk not made yet is made: no number leads to a panic.
    #[inline]
    pub fn get(&self, n: u32) -> &Slot {
        let n = n.saturating_add(FIRST);
        let chunk = n.ilog2() - FIRST.ilog2();
        let first = FIRST << chunk;
        &self.chunks[chunk as usize].get_or_init(|| (0..first).map(|_| Slot::default()).collect())[(n - first) as usize]
    }
}
