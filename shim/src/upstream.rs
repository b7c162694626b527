//! The driver, as the pool sees it: real calls, timed and recorded.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::*};

use vramscope_core::event::{Event, EventKind, FreeHow, Memory};
use vramscope_core::pool::{ContextId, Fence, Segment, Upstream};

use crate::call::Call;
use crate::context::{self, Slot};
use crate::cuda::{self, DevicePtr, Result};
use crate::hooks::{Index, types};
use crate::{driver, limit, real, recorder, room, settings, sync};

static ALLOC_NS: AtomicU64 = AtomicU64::new(0);
static ALLOCS: AtomicU64 = AtomicU64::new(0);
static FREE_NS: AtomicU64 = AtomicU64::new(0);
static FREES: AtomicU64 = AtomicU64::new(0);

/// (allocations, their nanoseconds, frees, their nanoseconds) of the driver so far.
pub fn counts() -> (u64, u64, u64, u64) {
    (ALLOCS.load(Relaxed), ALLOC_NS.load(Relaxed), FREES.load(Relaxed), FREE_NS.load(Relaxed))
}

/// What VRAMSCOPE_POISON fills freed blocks with: not-a-number to a float, -1 to an integer.
pub const FREED: u8 = 0xff;
/// And fresh ones.
pub const FRESH: u8 = 0xcd;

// The free that a pool operation is about: written to the history before it takes effect.
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
        if limit::refuses(slot.device(), bytes) {
            return Err(cuda::ERROR_OUT_OF_MEMORY);
        }
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
        if fence == Fence::Host
            && settings::get().poison
            && let Some(f) = self.free.get()
            && driver::fill(context::slot(id).handle(), f.address, FREED, f.block) != cuda::SUCCESS
        {
            return Fence::Refused;
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
        over.max(room::missing(slot))
    }

    fn same_device(&self, a: ContextId, b: ContextId) -> bool {
        context::slot(a).device() == context::slot(b).device()
    }

    fn lane(&self) -> usize {
        self.call.lane()
    }
}
