//! What takes the place of the wait in cudaFree: the device barrier, and the host's wait where the host could see.

use std::sync::atomic::{AtomicU64, Ordering::*};

use vramscope_core::pool::{ContextId, Fence};

use crate::context::{self, Slot};
use crate::cuda::SUCCESS;
use crate::settings::{self, SyncMode};
use crate::{capture, driver, hooks, sight, state};

static DEVICE: AtomicU64 = AtomicU64::new(0);
static HOST: AtomicU64 = AtomicU64::new(0);
static NONE: AtomicU64 = AtomicU64::new(0);
static REFUSED: AtomicU64 = AtomicU64::new(0);

/// (device barriers, host waits, frees that needed none, refusals) so far.
pub fn counts() -> (u64, u64, u64, u64) {
    (DEVICE.load(Relaxed), HOST.load(Relaxed), NONE.load(Relaxed), REFUSED.load(Relaxed))
}

/// Orders all work submitted in the context so far before all that comes.
pub fn fence(id: ContextId) -> Fence {
    let slot = context::slot(id);
    let host = match settings::get().sync {
        SyncMode::Device => false,
        SyncMode::Host => true,
        SyncMode::Auto => sight::in_sight(),
    } || settings::get().poison;
    // Inside a host function no CUDA call is allowed: the real free answers.
    if state::exiting() || crate::thread::current().callbacks.get() > 0 {
        return refused();
    }
    let Some(gate) = capture::gate() else { return refused() };
    // Before CUDA 12.5 there is no barrier: only the legacy default stream can do without.
    if !driver::has_context_events() && !host && !needs_barrier(slot) {
        NONE.fetch_add(1, Relaxed);
        return Fence::NotNeeded;
    }
    let Some(event) = event(slot) else { return refused() };
    // Only the legacy default stream was ever used: its work is in order by itself. The event says how far it had come, for
    // the first other stream to wait for: a barrier made then would also wait for what was submitted since, and that may be
    // waiting for the new stream.
    if !host && !needs_barrier(slot) {
        if driver::record(slot.handle(), event) != SUCCESS {
            return refused();
        }
        // A stream created meanwhile has waited for the event before or after this record; only the second is enough.
        if !needs_barrier(slot) {
            NONE.fetch_add(1, Relaxed);
            return Fence::NotNeeded;
        }
    }
    if driver::barrier(slot.handle(), event) != SUCCESS {
        // An asynchronous error, or a stream that captures without our knowledge: the real free says what it is.
        return refused();
    }
    drop(gate);
    if !host {
        DEVICE.fetch_add(1, Relaxed);
        return Fence::Device;
    }
    if driver::relaxed(|| driver::wait(event)) != SUCCESS {
        return refused();
    }
    HOST.fetch_add(1, Relaxed);
    Fence::Host
}

fn refused() -> Fence {
    REFUSED.fetch_add(1, Relaxed);
    Fence::Refused
}

#[inline]
fn needs_barrier(slot: &Slot) -> bool {
    slot.streams.load(Acquire) || hooks::per_thread_streams()
}

/// The context's event, made at its first barrier.
fn event(slot: &Slot) -> Option<usize> {
    match slot.event.load(Acquire) {
        0 if !driver::has_context_events() => None,
        0 => {
            let e = driver::create_event(slot.handle())?;
            // Another thread may have been faster; an event more is no harm.
            match slot.event.compare_exchange(0, e, AcqRel, Acquire) {
                Ok(_) => Some(e),
                Err(first) => Some(first),
            }
        }
        e => Some(e),
    }
}

/// The first stream besides the legacy default one: its work comes after what the frees so far have waited for.
pub fn first_stream(id: ContextId) {
    let slot = context::slot(id);
    let Some(_gate) = capture::gate() else { return };
    let event = slot.event.load(Acquire);
    if !driver::has_context_events() {
        driver::synchronize(slot.handle());
    } else if event != 0 {
        driver::wait_on_device(slot.handle(), event);
        DEVICE.fetch_add(1, Relaxed);
    }
}
