//! Plain device memory: served by the pool.

use vramscope_core::api::Api;
use vramscope_core::event::{Event, EventKind, Memory, Source, TrimWhy};
use vramscope_core::pool::{Begun, BlockInfo, Freed, How, State};

use super::{
    Place, Request, record_alloc, record_bad_free, record_failure, record_free, recorded_alloc, served, unfree,
};
use crate::call::Call;
use crate::context::{self, Current};
use crate::cuda::{self, DevicePtr, Result, SUCCESS, Size, Uint};
use crate::hooks::types;
use crate::pool::{self, POOL};
use crate::settings::{self, PoolMode};
use crate::upstream::{self, FreeEvent, Up};
use crate::{arena, capture, driver, limit, recorder, room, state, sync, usage};

/// `cuMemAlloc`.
pub unsafe fn alloc(real: types::cuMemAlloc_v2, from: usize, out: *mut DevicePtr, bytes: Size) -> Result {
    // The driver's own answer to a zero size and a null pointer.
    if bytes == 0 || out.is_null() || !state::active() {
        // SAFETY: the program's arguments.
        return unsafe { real(out, bytes) };
    }
    match state::guarded("cuMemAlloc", || serve(from, bytes as u64)) {
        Some(Answer::Served(p)) => {
            // SAFETY: not null; the program's variable.
            unsafe { *out = p };
            SUCCESS
        }
        Some(Answer::Failed(r)) => {
            // The driver leaves 0 behind.
            // SAFETY: as above.
            unsafe { *out = 0 };
            r
        }
        // No context, too many contexts, or a fault of ours: as if we were not here.
        Some(Answer::Forward) | None => {
            // SAFETY: the program's arguments.
            unsafe { real(out, bytes) }
        }
    }
}

enum Answer {
    Served(u64),
    Failed(Result),
    Forward,
}

fn serve(from: usize, bytes: u64) -> Answer {
    let Some(c) = context::current() else { return Answer::Forward };
    let call = Call::new(Api::CuMemAlloc, from);
    let direct = direct_why(&call, c, bytes);
    let id = recorder::new_id();
    let up = Up::new(&call);
    let slot = c.slot();
    // On a full device nothing is cached (frees are real), so a size class would only cost memory.
    let exact = direct.is_some() || (room::running_low(slot) && POOL.inactive_bytes(c.id) == 0);
    let mut served = if exact { POOL.alloc_direct(&up, c.id, bytes, id) } else { POOL.alloc(&up, c.id, bytes, id) };
    if let Err(f) = &served
        && f.error == cuda::ERROR_OUT_OF_MEMORY
        && arena::any()
        && arena::give_back(TrimWhy::OutOfMemory) > 0
    {
        served = POOL.alloc_direct(&up, c.id, bytes, id);
    }
    let served = match served {
        Ok(s) => s,
        Err(f) => {
            pool::record_trim(&f.trimmed, TrimWhy::OutOfMemory);
            let place = Place { device: slot.device(), context: Some(c) };
            record_failure(&call, Memory::Device, place, bytes, f.error);
            return Answer::Failed(f.error);
        }
    };
    pool::record_trim(&served.trimmed, TrimWhy::OutOfMemory);
    // The driver gave out an address that we still held: it was freed past us. (But if another thread is just destroying its
    // context, that tells of it. And a cached block's free was told when it was freed.)
    let past_us = |s: &BlockInfo| s.state == State::Active && !context::slot(s.context).is_ending();
    if let Some(stale) = served.stale.filter(past_us) {
        recorder::event(&Event { kind: EventKind::Free, id: stale.id, ..Event::default() });
    }
    if settings::get().poison && !capture::any() {
        driver::fill(slot.handle(), served.address, upstream::FRESH, served.block);
    }
    let how = match (served.how, direct) {
        (How::HitExact | How::HitNear, _) => Source::Hit,
        (How::Miss, _) => Source::Miss,
        (How::Direct, why) => why.unwrap_or(if exact { Source::LowMemory } else { Source::Driver }),
    };
    recorder::event(&Event {
        kind: EventKind::Alloc,
        api: call.api,
        memory: Memory::Device,
        how: how as u8,
        context: slot.number(),
        id,
        address: served.address,
        bytes,
        block: served.block,
        stack: call.stack(),
        caller: call.caller,
        extra: [served.segment, 0, up.took.get()],
        ..Event::default()
    });
    if how == Source::Hoarder {
        usage::hoarded(served.address, slot.device(), slot.number(), served.block);
    }
    usage::note_in(slot.device(), c.id);
    if how != Source::Hit {
        room::look_sometimes(slot);
    }
    Answer::Served(served.address)
}

/// Why a request is not the pool's; `None`: it is.
fn direct_why(call: &Call, c: Current, bytes: u64) -> Option<Source> {
    if settings::get().pool == PoolMode::Off || state::exiting() || c.slot().dying() {
        return Some(Source::Driver);
    }
    // What a global-mode capture answers to an allocation is the driver's business.
    if capture::any() || !sync::settled(c.id) {
        return Some(Source::Capture);
    }
    if call.hoarder {
        return Some(Source::Hoarder);
    }
    // Who takes a quarter of the device keeps it (JAX); and it would fill the cache alone.
    (bytes >= c.slot().total() / 4).then_some(Source::Large)
}

/// `cuMemFree`: plain, pitched, managed and stream-ordered memory all come here.
pub unsafe fn free(real: types::cuMemFree_v2, from: usize, p: DevicePtr) -> Result {
    if p == 0 || !state::active() {
        // SAFETY: the program's argument.
        return unsafe { real(p) };
    }
    if let Some(arena) = arena::holding(p) {
        let free = || served::free_plain(&Call::new(Api::CuMemFree, from), arena, p);
        return state::guarded("cuMemFree", free).unwrap_or(SUCCESS);
    }
    match state::guarded("cuMemFree", || give_back(from, p)) {
        Some(Some(r)) => r,
        // Not the pool's: the driver's call, recorded before it happens.
        Some(None) => {
            let known = state::guarded("cuMemFree", || record_free(&Call::new(Api::CuMemFree, from), p, 0)).flatten();
            // SAFETY: the program's argument.
            let r = unsafe { real(p) };
            state::guarded("cuMemFree", || match known {
                Some(e) if r == SUCCESS => usage::gone(&e),
                Some(e) => unfree(p, e, r),
                None if r != SUCCESS && !state::exiting() => record_bad_free(&Call::new(Api::CuMemFree, from), p, 0, r),
                None => {}
            });
            r
        }
        // A segment is a whole driver allocation: the driver can free it without us.
        // SAFETY: the program's argument.
        None => unsafe { real(p) },
    }
}

/// The free event of a block.
pub(super) fn free_event(call: &Call, b: &BlockInfo) -> FreeEvent {
    FreeEvent {
        address: b.address,
        block: b.block,
        event: Event {
            kind: EventKind::Free,
            api: call.api,
            memory: Memory::Device,
            context: context::slot(b.context).number(),
            id: b.id,
            stack: call.stack_of_free(),
            caller: call.caller,
            ..Event::default()
        },
    }
}

/// Frees a block of the pool's table; `None`: it is not in it.
fn give_back(from: usize, p: DevicePtr) -> Option<Result> {
    let call = Call::new(Api::CuMemFree, from);
    let freed = match POOL.begin_free(p) {
        Begun::Unknown => return None,
        Begun::Double(b) => {
            record_bad_free(&call, p, b.id, cuda::ERROR_INVALID_VALUE);
            return Some(cuda::ERROR_INVALID_VALUE);
        }
        Begun::Begun(f) => {
            let up = Up::freeing(&call, free_event(&call, f.info()));
            if f.info().direct {
                usage::not_hoarded(p);
            }
            f.finish(&up)
        }
    };
    Some(settle(freed, p, &call))
}

/// The code for the program, after the pool is done with a free.
pub(super) fn settle(freed: Freed<Result>, p: DevicePtr, call: &Call) -> Result {
    match freed {
        Freed::Unknown => cuda::ERROR_INVALID_VALUE,
        Freed::Double(b) => {
            record_bad_free(call, p, b.id, cuda::ERROR_INVALID_VALUE);
            cuda::ERROR_INVALID_VALUE
        }
        Freed::Kept { shed, .. } => {
            pool::record_trim(&shed, TrimWhy::MaxCached);
            SUCCESS
        }
        Freed::Released { info, result, shed, .. } => {
            pool::record_trim(&shed, TrimWhy::MaxCached);
            match result {
                Ok(()) => SUCCESS,
                Err(r) => {
                    recorder::event(&Event {
                        kind: EventKind::FreeFailed,
                        id: info.id,
                        code: r as u16,
                        ..Event::default()
                    });
                    r
                }
            }
        }
    }
}

/// `cuMemAllocPitch`: recorded.
pub unsafe fn alloc_pitch(
    real: types::cuMemAllocPitch_v2,
    from: usize,
    out: *mut DevicePtr,
    pitch: *mut Size,
    width: Size,
    height: Size,
    element: Uint,
) -> Result {
    if out.is_null() || pitch.is_null() || !state::active() {
        // SAFETY: the program's arguments.
        return unsafe { real(out, pitch, width, height, element) };
    }
    // The driver chooses the pitch; a row of the usual 512 bytes is counted here.
    let row = width.checked_next_multiple_of(512).unwrap_or(width);
    let least = row.saturating_mul(height) as u64;
    let limited = || match context::current() {
        Some(c) if limit::refuses(c.slot().device(), least) => {
            // What the driver leaves behind.
            // SAFETY: checked above; the program's variables.
            unsafe { (*out, *pitch) = (0, row) };
            cuda::ERROR_OUT_OF_MEMORY
        }
        // SAFETY: the program's arguments.
        _ => unsafe { real(out, pitch, width, height, element) },
    };
    let (result, took) = driver::timed(|| pool::retrying(limited));
    state::guarded("cuMemAllocPitch", || {
        let call = Call::new(Api::CuMemAllocPitch, from);
        // SAFETY: checked above; the driver wrote them on success.
        let (p, pitch) = unsafe { (*out, *pitch) };
        record_alloc(&call, Place::current(), Memory::Pitch, p, (pitch * height) as u64, 0, result, took);
    });
    result
}

/// A recorded request whose result is a device pointer at `out`.
pub(super) unsafe fn recorded(request: &Request, out: *mut DevicePtr, real: impl Fn() -> Result) -> Result {
    let result = recorded_alloc(request, real, || {
        if out.is_null() {
            0
        } else {
            // SAFETY: the driver accepted the pointer and wrote to it.
            unsafe { *out }
        }
    });
    if result == cuda::ERROR_OUT_OF_MEMORY && !out.is_null() {
        // The driver leaves 0 behind (measured), and so does a limit.
        // SAFETY: not null; the program's variable.
        unsafe { *out = 0 };
    }
    result
}
