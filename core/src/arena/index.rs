//! From an address to its record: for each 2 MiB page of a reserved range in which some record begins, a leaf with one
//! number a 512 B step. Read without a lock; written under the core's.
//!
//! A hash table is as fast for base addresses, but knows nothing of interior ones.

use super::slot::{GRAIN, NIL};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

const PAGE: u32 = 21;
const STEPS: usize = 1 << (PAGE - GRAIN);

/// Ranges that one arena may reserve.
pub const MAX_REGIONS: usize = 64;

/// One reserved range.
pub struct Region {
    pub base: u64,
    pub bytes: u64,
    leaves: Box<[OnceLock<Box<Leaf>>]>,
    /// A bit a page: some record begins there.
    begun: Box<[AtomicU64]>,
}

struct Leaf {
    /// Record number + 1.
    numbers: Box<[AtomicU32]>,
    /// A bit a step: a record begins there.
    starts: [AtomicU64; STEPS / 64],
    count: AtomicU32,
}

impl Leaf {
    fn new() -> Leaf {
        let numbers = (0..STEPS).map(|_| AtomicU32::new(0)).collect();
        Leaf { numbers, starts: [const { AtomicU64::new(0) }; STEPS / 64], count: AtomicU32::new(0) }
    }
}

fn set_bit(words: &[AtomicU64], bit: usize, on: bool) {
    if let Some(w) = words.get(bit / 64) {
        let (old, mask) = (w.load(Relaxed), 1 << (bit % 64));
        w.store(if on { old | mask } else { old & !mask }, Relaxed);
    }
}

/// The highest set bit at or below `bit`.
fn floor_bit(words: &[AtomicU64], bit: usize) -> Option<usize> {
    let mut w = (bit / 64).min(words.len().checked_sub(1)?);
    let mut value = words[w].load(Relaxed) & (u64::MAX >> (63 - bit % 64));
    loop {
        if value != 0 {
            return Some(w * 64 + value.ilog2() as usize);
        }
        w = w.checked_sub(1)?;
        value = words[w].load(Relaxed);
    }
}

impl Region {
    pub fn new(base: u64, bytes: u64) -> Region {
        let pages = (bytes >> PAGE) as usize + 1;
        Region {
            base,
            bytes,
            leaves: (0..pages).map(|_| OnceLock::new()).collect(),
            begun: (0..pages.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn place(&self, address: u64) -> Option<(usize, usize)> {
        let offset = address.checked_sub(self.base).filter(|o| *o < self.bytes)?;
        Some(((offset >> PAGE) as usize, (offset >> GRAIN) as usize % STEPS))
    }
}

/// All reserved ranges.
pub struct Index {
    regions: [OnceLock<Region>; MAX_REGIONS],
    used: AtomicU32,
}

impl Index {
    pub const fn new() -> Index {
        Index { regions: [const { OnceLock::new() }; MAX_REGIONS], used: AtomicU32::new(0) }
    }

    /// Adds a range; under the core's lock. `false`: there are too many.
    pub fn add(&self, region: Region) -> bool {
        let n = self.used.load(Relaxed);
        let ok = self.regions.get(n as usize).is_some_and(|r| r.set(region).is_ok());
        self.used.store(n + u32::from(ok), Release);
        ok
    }

    pub fn regions(&self) -> impl Iterator<Item = &Region> {
        self.regions[..(self.used.load(Acquire) as usize).min(MAX_REGIONS)].iter().filter_map(OnceLock::get)
    }

    #[inline]
    fn find(&self, address: u64) -> Option<(&Region, usize, usize)> {
        self.regions().find_map(|r| r.place(address).map(|(page, step)| (r, page, step)))
    }

    /// The record that begins at this address, or did a moment ago.
    #[inline]
    pub fn at(&self, address: u64) -> Option<u32> {
        if !address.is_multiple_of(1 << GRAIN) {
            return None;
        }
        let (region, page, step) = self.find(address)?;
        let n = region.leaves.get(page)?.get()?.numbers.get(step)?.load(Acquire);
        n.checked_sub(1)
    }

    /// The record that covers this address; under the core's lock.
    pub fn covering(&self, address: u64) -> Option<u32> {
        let (region, page, step) = self.find(address)?;
        let within = |page: usize, step| {
            let leaf = region.leaves.get(page)?.get()?;
            leaf.numbers.get(floor_bit(&leaf.starts, step)?)?.load(Relaxed).checked_sub(1)
        };
        within(page, step).or_else(|| within(floor_bit(&region.begun, page.checked_sub(1)?)?, STEPS - 1))
    }

    /// Notes which record begins at the address, `NIL` for none; under the core's lock.
    pub fn set(&self, address: u64, n: u32) {
        let Some((region, page, step)) = self.find(address) else { return };
        let Some(leaf) = region.leaves.get(page).map(|l| l.get_or_init(|| Box::new(Leaf::new()))) else { return };
        let Some(number) = leaf.numbers.get(step) else { return };
        let new = if n == NIL { 0 } else { n + 1 };
        let old = number.load(Relaxed);
        number.store(new, Release);
        if (old == 0) != (new == 0) {
            let count = leaf.count.load(Relaxed).wrapping_add(if new == 0 { u32::MAX } else { 1 });
            leaf.count.store(count, Relaxed);
            set_bit(&leaf.starts, step, new != 0);
            if count <= 1 {
                set_bit(&region.begun, page, count != 0);
            }
        }
    }
}
