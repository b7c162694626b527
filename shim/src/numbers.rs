//! Numbers for things known by a 64-bit hash: one flat lock-free table of {hash, number}.
//!
//! What a number means goes into the thread's ring first, then the number becomes visible to others: a record can never
//! name a thing that a recovered history lacks. A table that is nearly full refuses rather than loops.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

struct Slot {
    hash: AtomicU64,
    /// The number and, above it, half of the hash: a slot may be emptied and taken again between two looks.
    number: AtomicU64,
}

impl Slot {
    fn publish(&self, hash: u64, number: u32) -> u32 {
        self.number.store(u64::from(number) | hash >> 32 << 32, Release);
        number
    }
}

/// The table.
pub struct Numbers<const SLOTS: usize> {
    slots: [Slot; SLOTS],
    used: AtomicU32,
}

/// No room for another hash.
pub struct Full;

impl<const SLOTS: usize> Numbers<SLOTS> {
    /// An empty table.
    pub const fn new() -> Numbers<SLOTS> {
        Numbers {
            slots: [const { Slot { hash: AtomicU64::new(0), number: AtomicU64::new(0) } }; SLOTS],
            used: AtomicU32::new(0),
        }
    }

    /// The number of a hash. One that is new here gets its number from `define`; a 0 from there is not kept.
    #[inline]
    pub fn get(&self, hash: u64, define: impl FnOnce() -> u32) -> Result<u32, Full> {
        let hash = hash | 1;
        let mut i = (hash >> 40) as usize % SLOTS;
        loop {
            let s = &self.slots[i];
            let h = s.hash.load(Acquire);
            if h == hash {
                // Published last; while it is 0 another thread is still defining the same: it is defined once more.
                let n = s.number.load(Acquire);
                if n >> 32 == hash >> 32 && n as u32 != 0 {
                    return Ok(n as u32);
                }
                return Ok(s.publish(hash, define()));
            }
            if h == 0 {
                if self.used.load(Relaxed) as usize >= SLOTS / 8 * 7 {
                    return Err(Full);
                }
                if s.hash.compare_exchange(0, hash, AcqRel, Acquire).is_err() {
                    continue;
                }
                self.used.fetch_add(1, Relaxed);
                return Ok(s.publish(hash, define()));
            }
            i = (i + 1) % SLOTS;
        }
    }

    /// Forgets all.
    pub fn clear(&self) {
        for s in &self.slots {
            s.hash.store(0, Release);
        }
        self.used.store(0, Relaxed);
    }
}
