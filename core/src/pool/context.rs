//! What the pool holds for one context: cached blocks and byte counts.

use super::free_list::Lane;
use super::size_class::{SMALL, SizeClass};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::*};

/// Lists for small blocks, each with its lock. Threads are spread over them, and take from another's when their own has
/// nothing. Large blocks are fewer and dearer: they have one list, searched by all.
pub const LANES: usize = 16;

/// Whether blocks of a context may be served and kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Open,
    /// About to be reset or destroyed.
    Dying,
    /// Gone, with all its memory.
    Dropped,
}

/// Changed at each hit and each kept free: apart from what is only read there.
#[derive(Default)]
#[repr(align(128))]
pub struct Busy(pub AtomicU64);

/// One context.
pub struct Context {
    phase: AtomicU8,
    /// Bytes of segments, of the pool's blocks.
    pub reserved: AtomicU64,
    /// Bytes of direct blocks.
    pub direct: AtomicU64,
    /// Bytes of cached blocks. Added before a block can be found, taken off after it was taken out: never below the truth.
    pub inactive: Busy,
    lanes: [Lane; LANES + 1],
}

impl Context {
    pub fn new() -> Context {
        Context {
            phase: AtomicU8::new(Phase::Open as u8),
            reserved: AtomicU64::new(0),
            direct: AtomicU64::new(0),
            inactive: Busy::default(),
            lanes: std::array::from_fn(|i| Lane::new(SizeClass(if i == LANES { SMALL } else { 0 }))),
        }
    }

    #[inline]
    pub fn phase(&self) -> Phase {
        match self.phase.load(SeqCst) {
            0 => Phase::Open,
            1 => Phase::Dying,
            _ => Phase::Dropped,
        }
    }

    pub fn set_phase(&self, p: Phase) {
        self.phase.store(p as u8, SeqCst);
    }

    /// From one phase to another, if it is in that one.
    pub fn change_phase(&self, from: Phase, to: Phase) -> bool {
        self.phase.compare_exchange(from as u8, to as u8, SeqCst, SeqCst).is_ok()
    }

    /// The list for blocks of a class freed by a thread of this lane.
    #[inline]
    pub fn lane(&self, class: SizeClass, lane: usize) -> (usize, &Lane) {
        let n = if class.is_small() { lane % LANES } else { LANES };
        (n, &self.lanes[n])
    }

    /// All lists: the small ones', then the large one.
    pub fn lanes(&self) -> &[Lane; LANES + 1] {
        &self.lanes
    }

    /// Bytes in use: all that is reserved and not cached, also what is being freed.
    pub fn active(&self) -> u64 {
        // In this order: a block that goes leaves `reserved` first, so that the difference is never too high.
        let inactive = self.inactive.0.load(Acquire);
        self.reserved.load(Acquire).saturating_sub(inactive)
    }
}
