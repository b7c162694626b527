//! The pool's driver, and what an allocation that fails means for the pool.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::*};

use vramscope_core::counters::Counters;
use vramscope_core::event::{Event, EventKind, FreeHow, Memory, TrimWhy};
use vramscope_core::pool::{BlockInfo, ContextId, Fence, Pool, Scope, Segment, Trimmed, Upstream};

use crate::call::Call;
use crate::context::{self, Slot};
use crate::cuda::{self, DevicePtr, Result};
use crate::hooks::{Index, types};
use crate::{capture, clock, driver, real, recorder, settings, state, sync};

/// The pool of the process.
pub static POOL: Pool = Pool::new();

static ALLOC_NS: AtomicU64 = AtomicU64::new(0);
static ALLOCS: AtomicU64 = AtomicU64::new(0);
static FREE_NS: AtomicU64 = AtomicU64::new(0);
static FREES: AtomicU64 = AtomicU64::new(0);
static FAILURES: AtomicU64 = AtomicU64::new(0);
static BAD_FREES: AtomicU64 = AtomicU64::new(0);

/// A request failed in the end.
pub fn count_failure() {
    FAILURES.fetch_add(1, Relaxed);
}

/// A pointer was freed that nobody knows.
pub fn count_bad_free() {
    BAD_FREES.fetch_add(1, Relaxed);
}

/// All counters as they stand.
pub fn counters() -> Counters {
    let mut c = POOL.counters();
    (c.device_barriers, c.host_barriers, c.no_barriers, c.barriers_refused) = sync::counts();
    c.driver_alloc_ns = ALLOC_NS.load(Relaxed);
    c.driver_allocs = ALLOCS.load(Relaxed);
    c.driver_free_ns = FREE_NS.load(Relaxed);
    c.driver_frees = FREES.load(Relaxed);
    c.failures = FAILURES.load(Relaxed);
    c.bad_frees = BAD_FREES.load(Relaxed);
    c
}

/// The free that a pool operation is about: written to the history before it takes effect.
#[derive(Clone, Copy)]
pub struct FreeEvent {
    /// Address of the block.
    pub address: u64,
    /// Bytes of its block.
    pub block: u64,
    /// The event, but for how it was done.
    pub event: Event,
}

/// The driver, for one call of the program.
pub struct Up<'a> {
    call: &'a Call,
    free: Cell<Option<FreeEvent>>,
    /// Nanoseconds spent in the driver.
    pub took: Cell<u64>,
}

impl<'a> Up<'a> {
    /// For an allocation, or a trim.
    pub fn new(call: &'a Call) -> Up<'a> {
        Up { call, free: Cell::new(None), took: Cell::new(0) }
    }

    /// For a free.
    pub fn freeing(call: &'a Call, free: FreeEvent) -> Up<'a> {
        Up { call, free: Cell::new(Some(free)), took: Cell::new(0) }
    }

    /// Records that a segment goes back to the driver, and the free that this is about, before it happens.
    pub fn released(&self, segment: &Segment) {
        if self.free.get().is_some_and(|f| f.address == segment.address) {
            self.write_free(FreeHow::Driver);
        }
        if segment.id != 0 {
            recorder::event(&Event {
                kind: EventKind::SegmentFree,
                memory: Memory::Device,
                id: segment.id,
                context: context::slot(segment.context).number(),
                ..Event::default()
            });
        }
    }

    /// The driver did not take it.
    pub fn not_released(&self, segment: &Segment, r: Result) {
        if segment.id != 0 {
            let code = r as u16;
            recorder::event(&Event { kind: EventKind::FreeFailed, id: segment.id, code, ..Event::default() });
        }
    }

    fn write_free(&self, how: FreeHow) {
        if let Some(f) = self.free.take() {
            let mut e = f.event;
            e.how = how as u8;
            e.extra[2] = self.took.get();
            recorder::event(&e);
        }
    }
}

/// libcuda's cuMemAlloc, timed.
pub fn real_alloc(slot: &Slot, bytes: u64, took: &Cell<u64>) -> std::result::Result<u64, Result> {
    let Some(f) = real::get(Index::cuMemAlloc_v2 as usize) else { return Err(cuda::ERROR_NOT_FOUND) };
    // SAFETY: libcuda's function of this name.
    let f: types::cuMemAlloc_v2 = unsafe { std::mem::transmute(f) };
    let mut p: DevicePtr = 0;
    // SAFETY: a pointer to a local.
    let (r, ns) = driver::timed(|| unsafe { f(&mut p, bytes as usize) });
    took.set(took.get() + ns);
    ALLOC_NS.fetch_add(ns, Relaxed);
    ALLOCS.fetch_add(1, Relaxed);
    if r != cuda::SUCCESS {
        return Err(r);
    }
    slot.taken.fetch_add(driver::charged(Memory::Device, bytes), Relaxed);
    Ok(p)
}

/// libcuda's cuMemFree, timed.
pub fn real_free(p: DevicePtr, took: &Cell<u64>) -> Result {
    let Some(f) = real::get(Index::cuMemFree_v2 as usize) else { return cuda::ERROR_NOT_FOUND };
    // SAFETY: libcuda's function of this name.
    let f: types::cuMemFree_v2 = unsafe { std::mem::transmute(f) };
    // SAFETY: any value: the driver checks it.
    let (r, ns) = driver::timed(|| unsafe { f(p) });
    took.set(took.get() + ns);
    FREE_NS.fetch_add(ns, Relaxed);
    FREES.fetch_add(1, Relaxed);
    r
}

impl Upstream for Up<'_> {
    type Error = Result;

    fn alloc(&self, id: ContextId, bytes: u64, segment: u64) -> std::result::Result<u64, Result> {
        let slot = context::slot(id);
        let p = real_alloc(slot, bytes, &self.took)?;
        if segment != 0 {
            recorder::event(&Event {
                kind: EventKind::SegmentAlloc,
                id: segment,
                address: p,
                bytes,
                memory: Memory::Device,
                context: slot.number(),
                extra: [0, 0, self.took.get()],
                ..Event::default()
            });
        }
        Ok(p)
    }

    fn free(&self, segment: &Segment) -> std::result::Result<(), Result> {
        self.released(segment);
        match real_free(segment.address, &self.took) {
            cuda::SUCCESS => Ok(()),
            r => {
                self.not_released(segment, r);
                Err(r)
            }
        }
    }

    fn out_of_memory(error: Result) -> bool {
        error == cuda::ERROR_OUT_OF_MEMORY
    }

    fn next_id(&self) -> u64 {
        recorder::new_id()
    }

    fn fence(&self, id: ContextId) -> Fence {
        let fence = sync::fence(id);
        if fence == Fence::Host && settings::get().poison {
            if let Some(f) = self.free.get() {
                if driver::fill(context::slot(id).handle(), f.address, FREED, f.block) != cuda::SUCCESS {
                    return Fence::Refused;
                }
            }
        }
        match fence {
            Fence::NotNeeded => self.write_free(FreeHow::Cached),
            Fence::Device => self.write_free(FreeHow::CachedDevice),
            Fence::Host => self.write_free(FreeHow::CachedHost),
            Fence::Refused => {}
        }
        fence
    }

    fn shed(&self, id: ContextId, inactive: u64, incoming: u64) -> u64 {
        let slot = context::slot(id);
        let over = (inactive + incoming).saturating_sub(settings::get().max_cached.of(slot.total()));
        let floor = floor(slot);
        let free = free_now(slot, floor);
        over.max(floor.saturating_sub(free))
    }

    fn same_device(&self, a: ContextId, b: ContextId) -> bool {
        context::slot(a).device() == context::slot(b).device()
    }

    fn lane(&self) -> usize {
        self.call.lane()
    }
}

/// What VRAMSCOPE_POISON fills freed blocks with: not-a-number to a float, -1 to an integer.
const FREED: u8 = 0xff;
/// And fresh ones.
pub const FRESH: u8 = 0xcd;

/// Free memory that others (lazy module loads, graphs, streams, other users of the card) must find.
fn floor(slot: &Slot) -> u64 {
    (512u64 << 20).max(slot.total() / 100 * 3).min(slot.total() / 4)
}

/// Raw clock ticks after which a look at the device's free memory is old: about 20 ms.
const OLD: u64 = 40_000_000;

/// Free bytes of the device, from a look not older than 20 ms, or fresh when it gets near the floor.
fn free_now(slot: &Slot, floor: u64) -> u64 {
    let age = clock::raw().wrapping_sub(slot.free_time.load(Relaxed));
    let guess = slot.free_seen.load(Relaxed).saturating_sub(slot.taken.load(Relaxed));
    if age < OLD && guess >= floor {
        return guess;
    }
    look(slot).unwrap_or(guess)
}

/// Asks the driver for the device's free memory, and records a sample now and then. A global-mode capture elsewhere does not
/// forbid the question, but nothing is risked.
fn look(slot: &Slot) -> Option<u64> {
    if capture::any() || state::exiting() {
        return None;
    }
    let (free, total) = driver::memory_info_of(slot.handle())?;
    let now = clock::raw();
    slot.free_seen.store(free, Relaxed);
    slot.taken.store(0, Relaxed);
    slot.free_time.store(now, Relaxed);
    static SAMPLED: AtomicU64 = AtomicU64::new(0);
    let last = SAMPLED.load(Relaxed);
    if now.wrapping_sub(last) > 5 * OLD && SAMPLED.compare_exchange(last, now, Relaxed, Relaxed).is_ok() {
        sample(slot, free, total);
    }
    Some(free)
}

fn sample(slot: &Slot, free: u64, total: u64) {
    let (mut active, mut inactive) = (0, 0);
    for id in context::of_device(slot.device()) {
        let u = POOL.usage(id);
        active += u.active;
        inactive += u.inactive;
    }
    recorder::event(&Event {
        kind: EventKind::Sample,
        context: slot.number(),
        bytes: free,
        block: total,
        extra: [active, inactive, 0],
        ..Event::default()
    });
}

/// Whether the device runs low by the last look: then a request is not rounded up to a size class, so that the pool never
/// needs what the driver alone would not.
pub fn running_low(slot: &Slot) -> bool {
    slot.free_time.load(Relaxed) != 0
        && slot.free_seen.load(Relaxed).saturating_sub(slot.taken.load(Relaxed)) < floor(slot)
}

/// After an allocation from the driver: a look at the device if the last one is old.
pub fn look_sometimes(slot: &Slot) {
    if clock::raw().wrapping_sub(slot.free_time.load(Relaxed)) > 5 * OLD {
        look(slot);
    }
}

/// A sample at once (a failure).
pub fn sample_now(slot: &Slot) {
    if let Some((free, total)) = driver::memory_info_of(slot.handle()).filter(|_| !capture::any()) {
        sample(slot, free, total);
    }
}

/// The pool gave memory back.
pub fn record_trim(t: &Trimmed, why: TrimWhy) {
    if t.blocks > 0 {
        recorder::event(&Event {
            kind: EventKind::Trim,
            bytes: t.bytes,
            block: t.blocks,
            code: why as u16,
            ..Event::default()
        });
    }
}

/// Carries out an allocating call; if it fails for want of memory, again after every cached byte has gone back.
#[inline]
pub fn retrying(call: impl Fn() -> Result) -> Result {
    let first = call();
    if first != cuda::ERROR_OUT_OF_MEMORY { first } else { retrying_after(first, &call) }
}

/// The same, after the first try failed so.
#[cold]
#[inline(never)]
pub fn retrying_after(first: Result, call: &dyn Fn() -> Result) -> Result {
    if !state::started() {
        return first;
    }
    state::guarded("retry", || {
        let me = Call::internal();
        let up = Up::new(&me);
        // Frees of other threads are real meanwhile, so that their memory is not cached under our feet.
        let _pressure = POOL.pressure();
        let mut result = first;
        for _ in 0..4 {
            let t = driver::relaxed(|| POOL.trim(&up, Scope::All));
            record_trim(&t, TrimWhy::OutOfMemory);
            result = call();
            if result != cuda::ERROR_OUT_OF_MEMORY || t.blocks == 0 {
                break;
            }
        }
        result
    })
    .unwrap_or(first)
}

/// The block at a base address, if it is a pooled one (segments may be larger than what was asked for).
pub fn pooled(base: u64) -> Option<BlockInfo> {
    POOL.block_of(base).filter(|b| !b.direct)
}
