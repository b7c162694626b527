//! The stream-ordered arena: memory for `cudaMallocAsync`, PyTorch's pluggable interface and explicit pools.
//!
//! One growable range of addresses, physical memory mapped into it in chunks, blocks cut to 512 B from it and joined again
//! when free. A block freed on a stream is at once that stream's again, without any call. Another stream gets it only behind
//! the work that may use it: because that work is known to be done, or because an event is recorded then and waited for.
//! It must not know CUDA, files or time: it asks a [`Backing`]. The plain pool next door (`pool`) is another contract.
//!
//! **What the program promises**, as to CUDA: a block is used after its allocation in its stream's order, and freed on a
//! stream whose work then comes after every use of it, except by streams named in [`Arena::record_stream`].
//!
//! In this order a request is served: the stream's front cache (small ones); where the same request of the last round went
//! (`habit.rs`); its own free memory; memory tied to no
//! stream; memory of others whose work is done or was waited for already; the same with all events asked and several
//! neighbours together; memory of others behind a wait; more memory; after free chunks went back, once more.
//!
//! Two kinds of locks: one a lane of the front cache, one around the shared part. Never two at once, and none across a call
//! of the backing. What a request needs from several calls it first takes out of circulation (`claim.rs`).

mod alloc;
mod backing;
mod bins;
mod claim;
mod core;
mod counts;
mod free;
mod front;
mod habit;
mod index;
mod options;
mod order;
mod pattern;
mod run;
mod sew;
mod slot;
mod snapshot;
mod stitch;
mod stream;
mod trim;

pub use alloc::{Block, Failed, Reason};
pub use backing::{Backing, StreamId};
pub use counts::{Counts, Level, Usage};
pub use free::{BadFree, Free};
pub use options::{LEAST_SPLIT, Options, PAGE};
pub use order::Mark;
pub use snapshot::{BlockState, BlockView, ChunkView, Snapshot};

use self::core::{Core, Map};
use front::Fronts;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Condvar, Mutex, MutexGuard};

/// An arena over a driver. Dropped, it gives everything back, whether or not blocks of it are in use.
pub struct Arena<B: Backing> {
    backing: B,
    map: Map,
    core: Mutex<Core<B>>,
    fronts: Fronts,
    /// Ticks whenever a point is made in a stream's work. The first stamp is 1.
    clock: AtomicU64,
    /// A request that claimed something is through, or a point was made.
    changed: Condvar,
    front_bytes: AtomicU64,
    max_split: AtomicU64,
    pinned: AtomicBool,
    numbers: counts::Numbers,
    broken: AtomicBool,
}

impl<B: Backing> Arena<B> {
    /// An empty arena. Nothing is reserved before the first request.
    pub fn new(backing: B, options: Options) -> Arena<B> {
        let options = options.checked();
        Arena {
            backing,
            map: Map { slots: slot::Slots::new(), index: index::Index::new() },
            front_bytes: AtomicU64::new(options.front),
            max_split: AtomicU64::new(options.max_split),
            pinned: AtomicBool::new(false),
            core: Mutex::new(Core::new(options)),
            fronts: Fronts::new(),
            clock: AtomicU64::new(1),
            changed: Condvar::new(),
            numbers: counts::Numbers::default(),
            broken: AtomicBool::new(false),
        }
    }

    /// The driver.
    pub fn backing(&self) -> &B {
        &self.backing
    }

    /// The most bytes mapped from now on. What is mapped above it stays until it is trimmed.
    pub fn set_limit(&self, bytes: u64) {
        self.lock().options.limit = bytes;
    }

    /// Memory above so many bytes goes back when a stream or the device was synchronised.
    pub fn set_release_threshold(&self, bytes: u64) {
        self.lock().options.release_threshold = bytes;
    }

    /// While it is so nothing is unmapped, whoever asks: work that nobody will announce (a graph's next launch) may touch free
    /// memory.
    pub fn set_pinned(&self, pinned: bool) {
        self.pinned.store(pinned, SeqCst);
    }

    /// Requests above so many bytes get blocks that are never split; see [`Options::max_split`].
    pub fn set_max_split(&self, bytes: u64) {
        self.lock().options.max_split = bytes;
        self.max_split.store(bytes, Relaxed);
    }

    /// In thousandths of the limit; see [`Options::gc_threshold`].
    pub fn set_gc_threshold(&self, thousandths: u32) {
        self.lock().options.gc_threshold = thousandths;
    }

    /// The numbers. Those of one moment only while nobody else is at work.
    pub fn counts(&self) -> Counts {
        let (allocs, frees) = self.fronts.flush(&self.numbers);
        let mut c = self.numbers.read();
        c.front_hits = allocs;
        c.allocs += allocs;
        c.frees += frees;
        c
    }

    /// What is in use now: a few loads. Beside several streams true to 256 KiB a stream.
    #[inline]
    pub fn usage(&self) -> Usage {
        let allocated = (self.numbers.allocated.now() as i64).max(0) as u64;
        Usage {
            allocated,
            waiting: self.numbers.waiting.load(Relaxed),
            reserved: self.numbers.reserved.now().max(allocated),
        }
    }

    /// Peaks start anew from what is now.
    pub fn reset_peaks(&self) {
        self.fronts.flush(&self.numbers);
        self.numbers.reset_peaks();
    }

    /// A panic of a backing left something half-changed: nothing is served or reused any more.
    pub fn is_broken(&self) -> bool {
        self.broken.load(Relaxed) || self.fronts.is_broken()
    }

    /// Locks the shared part. One left half-changed by a panic might give a block out twice: the arena is off then.
    #[inline]
    fn lock(&self) -> MutexGuard<'_, Core<B>> {
        self.core.lock().unwrap_or_else(|p| {
            self.broken.store(true, Relaxed);
            p.into_inner()
        })
    }

    /// Waits for a change, without the lock.
    fn wait_change<'a>(&self, core: MutexGuard<'a, Core<B>>) -> MutexGuard<'a, Core<B>> {
        self.changed.wait(core).unwrap_or_else(|p| {
            self.broken.store(true, Relaxed);
            p.into_inner()
        })
    }

    /// Blocks that were in the front cache become free memory.
    fn give_all(&self, core: &mut Core<B>, nodes: Vec<u32>) {
        for n in nodes {
            let slot = self.map.slots.get(n);
            core.give(&self.map, n, slot.stream(), slot.stamp());
        }
    }

    /// The front cache becomes free memory.
    fn drain(&self) {
        let nodes = self.fronts.drain(&self.map, None);
        if !nodes.is_empty() {
            self.give_all(&mut self.lock(), nodes);
        }
    }
}

impl<B: Backing> Drop for Arena<B> {
    fn drop(&mut self) {
        let core = self.core.get_mut().unwrap_or_else(|p| p.into_inner());
        for s in core.streams.iter_mut() {
            for event in s.complete(u64::MAX) {
                std::sync::Arc::into_inner(event).into_iter().for_each(|e| self.backing.release(e));
            }
        }
        for alias in core.stitches.aliases() {
            let _ = self.backing.unalias(alias.address, alias.bytes);
        }
        for (address, chunk) in std::mem::take(&mut core.chunks) {
            // There is nobody left to tell of a failure.
            let _ = self.backing.unmap(address, chunk.bytes, chunk.handle);
        }
        for region in self.map.index.regions() {
            self.backing.unreserve(region.base, region.bytes);
        }
    }
}
