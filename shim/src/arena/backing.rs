//! The driver, as the arena sees it.

use std::sync::RwLockReadGuard;
use std::sync::atomic::Ordering::*;

use once_cell::sync::OnceCell;

use vramscope_core::arena::{Backing, PAGE, StreamId};
use vramscope_core::event::{Event as Record, EventKind, FreeHow, Memory};

use super::events::{self, Event};
use super::streams::{self, Known};
use super::{Arena, access, ranges};
use crate::cuda::{self, Result, STREAM_PER_THREAD, SUCCESS};
use crate::{capture, context, driver, limit, recorder, state, thread};

/// One device.
pub struct Gpu {
    device: i32,
    /// The arena that asks.
    arena: OnceCell<&'static Arena>,
}

impl Gpu {
    /// A device.
    pub fn new(device: i32) -> Gpu {
        Gpu { device, arena: OnceCell::new() }
    }

    /// The arena that asks, before its first request.
    pub fn serves(&self, arena: &'static Arena) {
        let _ = self.arena.set(arena);
    }

    /// Its ordinal.
    pub fn device(&self) -> i32 {
        self.device
    }

    /// Number of a context of the device, for the history.
    fn number(&self) -> u16 {
        context::of_device(self.device).next().map_or(0, |id| context::slot(id).number())
    }
}

impl Backing for Gpu {
    type Error = Result;
    /// Number of the segment in the history.
    type Chunk = u64;
    type Event = Event;

    fn reserve(&self, bytes: u64) -> std::result::Result<u64, Result> {
        let arena = self.arena.get().ok_or(cuda::ERROR_NOT_SUPPORTED)?;
        let base = driver::reserve_addresses(bytes, PAGE)?;
        if !ranges::add(base, bytes, arena) {
            driver::free_addresses(base, bytes);
            return Err(cuda::ERROR_OUT_OF_MEMORY);
        }
        Ok(base)
    }

    fn unreserve(&self, address: u64, bytes: u64) {
        // Before: afterwards they may be another's.
        ranges::remove(address);
        driver::free_addresses(address, bytes);
    }

    fn map(&self, address: u64, bytes: u64) -> std::result::Result<u64, Result> {
        if limit::refuses(self.device, bytes) {
            return Err(cuda::ERROR_OUT_OF_MEMORY);
        }
        let (mapped, ns) = timed(|| driver::map(self.device, address, bytes));
        mapped?;
        let id = recorder::new_id();
        recorder::event(&Record {
            kind: EventKind::SegmentAlloc,
            id,
            address,
            bytes,
            memory: Memory::Async,
            context: self.number(),
            extra: [0, 0, ns],
            ..Record::default()
        });
        if let Some(id) = context::of_device(self.device).next() {
            context::slot(id).taken.fetch_add(bytes, Relaxed);
        }
        Ok(id)
    }

    fn open(&self, address: u64, bytes: u64) -> std::result::Result<(), Result> {
        let allowed = access::of(self.device);
        let (r, _) = timed(|| driver::set_access(address, bytes, &allowed));
        if r != SUCCESS {
            return Err(r);
        }
        // A peer that was let in meanwhile, and did not see this mapping.
        let now = access::of(self.device);
        if now != allowed {
            driver::set_access(address, bytes, &now);
        }
        Ok(())
    }

    fn unmap(&self, address: u64, bytes: u64, segment: u64) -> std::result::Result<(), Result> {
        if state::exiting() {
            return Err(cuda::ERROR_NOT_SUPPORTED);
        }
        recorder::event(&Record {
            kind: EventKind::SegmentFree,
            memory: Memory::Async,
            id: segment,
            context: self.number(),
            ..Record::default()
        });
        let r = driver::relaxed(|| driver::unmap(address, bytes));
        if r != SUCCESS {
            let code = r as u16;
            recorder::event(&Record { kind: EventKind::FreeFailed, id: segment, code, ..Record::default() });
            return Err(r);
        }
        Ok(())
    }

    fn alias(&self, address: u64, home: u64, bytes: u64, segment: u64) -> std::result::Result<(), Result> {
        let (mapped, _) = timed(|| driver::map_again(home, address, bytes));
        mapped?;
        recorder::event(&Record {
            kind: EventKind::Map,
            id: segment,
            address,
            bytes,
            memory: Memory::Async,
            context: self.number(),
            ..Record::default()
        });
        Ok(())
    }

    fn unalias(&self, address: u64, bytes: u64) -> std::result::Result<(), Result> {
        if state::exiting() {
            return Err(cuda::ERROR_NOT_SUPPORTED);
        }
        let r = driver::relaxed(|| driver::unmap(address, bytes));
        if r != SUCCESS {
            return Err(r);
        }
        recorder::event(&Record {
            kind: EventKind::Unmap,
            memory: Memory::Async,
            address,
            bytes,
            context: self.number(),
            ..Record::default()
        });
        Ok(())
    }

    fn record(&self, stream: StreamId) -> Option<Event> {
        let known = streams::get(stream.0)?;
        let handle = context::slot(known.named.context).handle();
        // Another thread's own default stream has no name here: the whole context then, which no capture allows.
        let nameless = is_nameless(&known);
        let _gate = if nameless { capture::gate() } else { gate_of(&known) }?;
        let _using = events::using(known.named.context, known.generation)?;
        let event = events::take(known.named.context)?;
        let ok = if nameless {
            driver::record(handle, event.handle) == SUCCESS
        } else {
            driver::record_in(handle, known.named.handle, event.handle)
        };
        if ok {
            return Some(event);
        }
        drop(_using);
        event.put();
        None
    }

    fn wait(&self, stream: StreamId, event: &Event) -> bool {
        let Some(known) = streams::get(stream.0) else { return false };
        let Some(_gate) = gate_of(&known) else { return false };
        let Some(_using) = events::using(known.named.context, known.generation) else { return false };
        let handle = context::slot(known.named.context).handle();
        // An event whose context has ended stands for work that is done.
        event.with(|e| driver::wait_in(handle, known.named.handle, e)).unwrap_or_else(|| event.is_over())
    }

    fn is_done(&self, event: &Event) -> bool {
        event.is_done()
    }

    fn release(&self, event: Event) {
        event.put();
    }
}

/// A call of the driver for a request, allowed beside captures; and its nanoseconds, which are the request's. (No less than one: by
/// that a request is known that was not served from the cache.)
fn timed<T>(call: impl FnOnce() -> T) -> (T, u64) {
    let (result, ns) = driver::timed(|| driver::relaxed(call));
    let t = thread::current();
    t.driver_ns.set(t.driver_ns.get() + ns.max(1));
    (result, ns)
}

/// Whether a stream is another thread's own default one.
fn is_nameless(known: &Known) -> bool {
    known.named.handle == STREAM_PER_THREAD && known.thread != streams::me()
}

/// Room to use a stream that does not capture: an event in one that does would be part of the capture, or spoil it. (A
/// nameless one's name would mean this thread's.)
fn gate_of(known: &Known) -> Option<RwLockReadGuard<'static, ()>> {
    let context = context::slot(known.named.context).handle();
    let captures = || driver::captures_in(context, known.named.handle);
    if is_nameless(known) { capture::gate() } else { capture::gate_beside(captures) }
}

/// How the free of a block is told: it stays with the arena, and nobody waits.
pub const KEPT: FreeHow = FreeHow::Cached;
