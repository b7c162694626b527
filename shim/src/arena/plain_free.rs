//! `cuMemFree` of a block, which names no stream: after all work of the context, as the barrier has it for plain memory. (The
//! driver's own waits for nothing here: measured. Programs are spared that difference between the two kinds of memory.)

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::*};

use vramscope_core::arena::{Free, StreamId};
use vramscope_core::pool::{ContextId, Fence};

use super::{Arena, Gpu, memory_pools, of, streams};
use crate::cuda::{Result, STREAM_LEGACY, SUCCESS};
use crate::{capture, context, driver, state, sync};

type Going = Free<'static, Gpu>;

/// A free that waits for the end of a capture.
struct PutOff {
    context: ContextId,
    arena: &'static Arena,
    free: Going,
}

/// Done: the block may be another's from here on, also for its memory pool.
fn finish(arena: &'static Arena, free: Going, stream: u64) {
    memory_pools::note_free(arena, free.block());
    free.finish(StreamId(stream));
}

/// The default stream's later work comes after everything that the context has now: then the block is its. Where no barrier
/// can be used the host waits, as it does natively; not while a stream captures, which that would spoil: then the block is
/// put off. What fails did not happen.
pub fn plain_free(id: ContextId, arena: &'static Arena, free: Going) -> Result {
    let handle = context::slot(id).handle();
    if sync::fence(id) == Fence::Refused && !state::exiting() {
        if capture::any() {
            put_off(PutOff { context: id, arena, free });
            return SUCCESS;
        }
        let r = driver::relaxed(|| driver::synchronize(handle));
        if r != SUCCESS {
            return r;
        }
    }
    // While a blocking stream captures, the default one can't be named.
    let stream =
        if capture::any() { None } else { driver::in_context(handle, || Some(streams::named(STREAM_LEGACY, false))) };
    match stream {
        Some(Ok(stream)) => finish(arena, free, stream.id),
        Some(Err(r)) => return r,
        None => put_off(PutOff { context: id, arena, free }),
    }
    SUCCESS
}

static ALL: Mutex<Vec<PutOff>> = Mutex::new(Vec::new());
static ANY: AtomicBool = AtomicBool::new(false);

fn put_off(p: PutOff) {
    // For the program it is freed.
    memory_pools::note_free(p.arena, p.free.block());
    ALL.lock().unwrap_or_else(|e| e.into_inner()).push(p);
    ANY.store(true, Release);
}

/// Whether any free waits for the end of a capture.
pub fn any_put_off() -> bool {
    ANY.load(Acquire)
}

/// If no capture goes on any more, what was put off is done.
#[inline]
pub fn finish_put_off() {
    if ANY.load(Relaxed) && !capture::any() {
        for p in taken() {
            // One that fails now is live again, and nobody's.
            plain_free(p.context, p.arena, p.free);
        }
    }
}

#[cold]
fn taken() -> Vec<PutOff> {
    let mut list = ALL.lock().unwrap_or_else(|e| e.into_inner());
    ANY.store(false, Release);
    std::mem::take(&mut *list)
}

/// Memory is short and the capture goes on: a device's frees come to pass after what `wait` waits for. That is more than the
/// driver does. (Private pools are for captures: there they stay put off.)
pub fn finish_beside_capture(device: i32, wait: impl FnOnce()) {
    let (here, others): (Vec<_>, Vec<_>) =
        taken().into_iter().partition(|p| of(device).is_some_and(|a| std::ptr::eq(a, p.arena)));
    others.into_iter().for_each(put_off);
    wait();
    let Some(stand_in) = streams::unnamed(device) else { return here.into_iter().for_each(put_off) };
    for p in here {
        finish(p.arena, p.free, stand_in.id);
        p.arena.stream_synced(StreamId(stand_in.id), p.arena.mark());
    }
}
