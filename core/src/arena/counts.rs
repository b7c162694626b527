//! Numbers about an arena, with PyTorch's meanings.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A number now, and the highest it was since the last reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Level {
    /// Now.
    pub now: u64,
    /// Highest since the last reset.
    pub peak: u64,
}

/// What of an arena is in use. Bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// What the program has, rounded to the arena's grain.
    pub allocated: u64,
    /// Freed, and waiting for other streams that use it.
    pub waiting: u64,
    /// Physical memory mapped.
    pub reserved: u64,
}

/// What an arena holds and what it did. Sizes are bytes. Beside several streams the peaks of `allocated`, `requested`,
/// `active` and `inactive` are true to 256 KiB a stream; with one they are exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// What the program has, rounded to the arena's grain.
    pub allocated: Level,
    /// What it asked for, of that.
    pub requested: Level,
    /// Allocated, or freed and waiting for other streams that use it.
    pub active: Level,
    /// Mapped and not active.
    pub inactive: Level,
    /// Physical memory mapped.
    pub reserved: Level,
    /// Requests served.
    pub allocs: u64,
    /// Frees.
    pub frees: u64,
    /// Requests served from a stream's front cache.
    pub front_hits: u64,
    /// Blocks of other streams used before their work was known to be done.
    pub steals: u64,
    /// Events recorded.
    pub records: u64,
    /// Waits of a stream for another one's event.
    pub waits: u64,
    /// Events or waits that could not be made.
    pub refusals: u64,
    /// Chunks mapped.
    pub grows: u64,
    /// Chunks that could not be mapped.
    pub failed_grows: u64,
    /// Chunks given back.
    pub trims: u64,
    /// Blocks stitched together from free chunks.
    pub stitches: u64,
    /// Those that could not be mapped.
    pub failed_stitches: u64,
    /// Requests that went where the same one of the last round went; see [`Options::repeat`](super::Options::repeat).
    pub repeats: u64,
    /// Requests that went on after free memory was given back.
    pub retries: u64,
    /// Requests not served.
    pub failures: u64,
    /// Frees of what is not a live block.
    pub bad_frees: u64,
}

/// A level, kept by many threads.
#[derive(Default)]
pub struct Gauge {
    now: AtomicU64,
    peak: AtomicU64,
}

impl Gauge {
    /// Adds, a negative number as its two's complement. Gives the new value.
    #[inline]
    pub fn add(&self, bytes: u64) -> u64 {
        self.now.fetch_add(bytes, Relaxed).wrapping_add(bytes)
    }

    #[inline]
    pub fn rise(&self, to: u64) {
        if to > self.peak.load(Relaxed) {
            self.peak.fetch_max(to, Relaxed);
        }
    }

    #[inline]
    pub fn now(&self) -> u64 {
        self.now.load(Relaxed)
    }

    fn level(&self, now: u64) -> Level {
        Level { now, peak: self.peak.load(Relaxed).max(now) }
    }

    fn reset(&self, now: u64) {
        self.peak.store(now, Relaxed);
    }
}

/// What a lane counts by itself while several streams are at work, so that they don't meet at one cache line.
#[derive(Default)]
pub struct Tally {
    /// Not in the gauges yet, as two's complements.
    pub allocated: u64,
    pub requested: u64,
    pub allocs: u64,
    pub frees: u64,
}

/// So much may be in a tally and not in the gauges.
const SLACK: i64 = 256 << 10;

/// All numbers.
#[derive(Default)]
pub struct Numbers {
    pub allocated: Gauge,
    pub requested: Gauge,
    /// The peak; and the part that waits.
    pub active: Gauge,
    pub waiting: AtomicU64,
    pub inactive: Gauge,
    pub reserved: Gauge,
    pub allocs: AtomicU64,
    pub frees: AtomicU64,
    pub steals: AtomicU64,
    pub records: AtomicU64,
    pub waits: AtomicU64,
    pub refusals: AtomicU64,
    pub grows: AtomicU64,
    pub failed_grows: AtomicU64,
    pub trims: AtomicU64,
    pub stitches: AtomicU64,
    pub repeats: AtomicU64,
    pub failed_stitches: AtomicU64,
    pub retries: AtomicU64,
    pub failures: AtomicU64,
    pub bad_frees: AtomicU64,
}

/// One more.
#[inline]
pub fn count(n: &AtomicU64) {
    n.fetch_add(1, Relaxed);
}

impl Numbers {
    #[inline]
    fn at(&self, allocated: u64, requested: u64) {
        self.allocated.rise(allocated);
        self.requested.rise(requested);
        self.active.rise(allocated.wrapping_add(self.waiting.load(Relaxed)));
    }

    #[inline]
    fn inactive_at(&self, allocated: u64) {
        let active = allocated.wrapping_add(self.waiting.load(Relaxed));
        self.inactive.rise(self.reserved.now().saturating_sub(active));
    }

    /// A block was allocated.
    #[inline]
    pub fn alloc(&self, bytes: u64, requested: u64) {
        count(&self.allocs);
        self.at(self.allocated.add(bytes), self.requested.add(requested));
    }

    /// A block was freed.
    #[inline]
    pub fn free(&self, bytes: u64, requested: u64) {
        count(&self.frees);
        let allocated = self.allocated.add(bytes.wrapping_neg());
        self.requested.add(requested.wrapping_neg());
        self.inactive_at(allocated);
    }

    /// The same in a lane, whose lock is held. `alone`: no other lane is at work.
    #[inline]
    pub fn alloc_in(&self, tally: &mut Tally, bytes: u64, requested: u64, alone: bool) {
        tally.allocs += 1;
        let (allocated, requested) = self.move_in(tally, bytes, requested, alone);
        self.at(allocated, requested);
    }

    #[inline]
    pub fn free_in(&self, tally: &mut Tally, bytes: u64, requested: u64, alone: bool) {
        tally.frees += 1;
        let (allocated, _) = self.move_in(tally, bytes.wrapping_neg(), requested.wrapping_neg(), alone);
        self.inactive_at(allocated);
    }

    #[inline]
    fn move_in(&self, tally: &mut Tally, bytes: u64, requested: u64, alone: bool) -> (u64, u64) {
        tally.allocated = tally.allocated.wrapping_add(bytes);
        tally.requested = tally.requested.wrapping_add(requested);
        if alone || (tally.allocated as i64).abs() > SLACK {
            return self.flush(tally);
        }
        // What other lanes hold back may exceed what is here.
        let sum = |gauge: &Gauge, part: u64| (gauge.now().wrapping_add(part) as i64).max(0) as u64;
        (sum(&self.allocated, tally.allocated), sum(&self.requested, tally.requested))
    }

    /// Moves what a lane holds back into the gauges.
    #[inline]
    pub fn flush(&self, tally: &mut Tally) -> (u64, u64) {
        let allocated = self.allocated.add(std::mem::take(&mut tally.allocated));
        let requested = self.requested.add(std::mem::take(&mut tally.requested));
        ((allocated as i64).max(0) as u64, (requested as i64).max(0) as u64)
    }

    /// Peaks start anew from what is now; every tally was flushed.
    pub fn reset_peaks(&self) {
        let (allocated, reserved) = (self.allocated.now(), self.reserved.now());
        let active = allocated.wrapping_add(self.waiting.load(Relaxed));
        self.allocated.reset(allocated);
        self.requested.reset(self.requested.now());
        self.active.reset(active);
        self.inactive.reset(reserved.saturating_sub(active));
        self.reserved.reset(reserved);
    }

    /// Everything; every tally was flushed. What the lanes counted comes on top.
    pub fn read(&self) -> Counts {
        let get = |n: &AtomicU64| n.load(Relaxed);
        let allocated = self.allocated.now();
        let reserved = self.reserved.now();
        let active = allocated.wrapping_add(get(&self.waiting));
        Counts {
            allocated: self.allocated.level(allocated),
            requested: self.requested.level(self.requested.now()),
            active: self.active.level(active),
            inactive: self.inactive.level(reserved.saturating_sub(active)),
            reserved: self.reserved.level(reserved),
            allocs: get(&self.allocs),
            frees: get(&self.frees),
            front_hits: 0,
            steals: get(&self.steals),
            records: get(&self.records),
            waits: get(&self.waits),
            refusals: get(&self.refusals),
            grows: get(&self.grows),
            failed_grows: get(&self.failed_grows),
            trims: get(&self.trims),
            stitches: get(&self.stitches),
            repeats: get(&self.repeats),
            failed_stitches: get(&self.failed_stitches),
            retries: get(&self.retries),
            failures: get(&self.failures),
            bad_frees: get(&self.bad_frees),
        }
    }
}
