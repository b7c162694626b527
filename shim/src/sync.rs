//! What takes the place of the wait in cudaFree: the device barrier, and the host's wait where the host could see.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

use vramscope_core::pool::{ContextId, Fence};

use crate::context::{self, Slot};
use crate::cuda::SUCCESS;
use crate::settings::{self, SyncMode};
use crate::{capture, driver, hooks, sight, state};

static DEVICE: AtomicU64 = AtomicU64::new(0);
static HOST: AtomicU64 = AtomicU64::new(0);
static NONE: AtomicU64 = AtomicU64::new(0);
static REFUSED: AtomicU64 = AtomicU64::new(0);

/// 1 while some context's frees wait for their event to be recorded: at the next submission, which it must not cover.
/// Read by the assembly of the watched entries.
pub static DEFERRED: AtomicU32 = AtomicU32::new(0);

/// Work is about to be submitted, in a process whose contexts have so far used only the legacy default stream, and memory was
/// freed since the last: the contexts' events are recorded now.
#[cold]
pub extern "C" fn record_deferred() {
    // (In a forked child there is nothing to order, and a lock may be taken for ever.)
    if DEFERRED.swap(0, AcqRel) == 0 || state::forked() {
        return;
    }
    for id in context::all() {
        let slot = context::slot(id);
        if slot.deferred.swap(false, AcqRel) && !record_now(slot) {
            // Not while a stream captures: before one of the next submissions, then.
            slot.deferred.store(true, Release);
            DEFERRED.store(1, Release);
        }
    }
}

/// Records a context's event: it stands for all that was submitted so far.
fn record_now(slot: &Slot) -> bool {
    let Some(_gate) = capture::gate() else { return false };
    event(slot).is_some_and(|e| driver::record(slot.handle(), e) == SUCCESS)
}

/// A submission by one of the bodies in Rust.
#[inline]
pub fn before_submission() {
    if DEFERRED.load(Relaxed) != 0 {
        record_deferred();
    }
}

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
    if state::exiting() {
        return refused();
    }
    let Some(gate) = capture::gate() else { return refused() };
    // Only the legacy default stream was ever used: its work is in order by itself. The first other stream will wait for an
    // event that says how far it had come at the last free. Not for a barrier made then: that would also wait for what was
    // submitted since, which may be waiting for the new stream. The event is recorded at the next submission, so that frees
    // with no work between them cost nothing; a submission that we do not see only makes it come later.
    if !host && !needs_barrier(slot) {
        slot.deferred.store(true, Release);
        DEFERRED.store(1, Release);
        // The first other stream may be being made by another thread, which has looked for the mark before it was there.
        if !needs_barrier(slot) {
            NONE.fetch_add(1, Relaxed);
            return Fence::NotNeeded;
        }
    }
    let Some(event) = event(slot) else { return refused() };
    // Where the host waits, it waits alone. (The native free blocks the other threads' launches and allocations as well, and
    // a barrier would put their work on the GPU behind.)
    let ordered = if host { driver::record(slot.handle(), event) } else { driver::barrier(slot.handle(), event) };
    if ordered != SUCCESS {
        // An asynchronous error, a call from a host function, a capture without our knowledge: the real free says what.
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

/// The first stream besides the legacy default one was made: its work comes after what the frees so far stand for.
pub fn first_stream(id: ContextId) {
    let slot = context::slot(id);
    // Before CUDA 12.5 there are no context events; the host waits, this once.
    if !driver::has_context_events() {
        if slot.deferred.swap(false, AcqRel) {
            driver::synchronize(slot.handle());
        }
        return;
    }
    if slot.deferred.swap(false, AcqRel) && !record_now(slot) {
        slot.owed.store(true, Release);
        return;
    }
    let event = slot.event.load(Acquire);
    if event == 0 {
        return;
    }
    match capture::gate() {
        Some(_gate) => {
            driver::wait_on_device(slot.handle(), event);
            DEVICE.fetch_add(1, Relaxed);
        }
        None => slot.owed.store(true, Release),
    }
}

/// Issues the barrier that is owed, if one is, before a cached block is served. `false`: it is still owed.
#[inline]
pub fn settled(id: ContextId) -> bool {
    let slot = context::slot(id);
    !slot.owed.load(Acquire) || settle(slot)
}

#[cold]
fn settle(slot: &Slot) -> bool {
    let Some(_gate) = capture::gate() else { return false };
    let done = event(slot).is_some_and(|e| driver::barrier(slot.handle(), e) == SUCCESS);
    if done {
        slot.owed.store(false, Release);
    }
    done
}
