//! Stream-ordered memory: served by the arena with `VRAMSCOPE_POOL=on`, else recorded. A `_ptsz` entry's default stream is
//! the thread's own.

use std::cell::Cell;

use vramscope_core::api::Api;
use vramscope_core::event::Memory;
use vramscope_core::pool::{Begun, ContextId, Fence, Segment, Upstream};

use super::device::{self, free_event, recorded};
use super::served::{self, Ask};
use super::{Request, recorded_free};
use crate::arena;
use crate::call::Call;
use crate::captured;
use crate::cuda::{self, DevicePtr, Ptr, Result, STREAM_PER_THREAD, SUCCESS, Size, Stream};
use crate::hooks::{self, types};
use crate::pool::POOL;
use crate::upstream::Up;
use crate::{devices, state, sync};

fn note(stream: Stream, per_thread: bool) {
    if per_thread || stream == STREAM_PER_THREAD {
        hooks::note_per_thread_streams();
    }
    sync::before_submission();
}

/// A request of the program.
struct Asked {
    name: &'static str,
    api: Api,
    from: usize,
    out: *mut DevicePtr,
    bytes: Size,
    /// `None`: the device's current one.
    pool: Option<usize>,
    stream: Stream,
    per_thread: bool,
}

/// # Safety
/// The program's arguments, handed on.
unsafe fn asked(a: &Asked, real: impl Fn() -> Result) -> Result {
    note(a.stream, a.per_thread);
    let request = Request {
        what: a.name,
        from: a.from,
        api: a.api,
        memory: Memory::Async,
        bytes: a.bytes as u64,
        stream: a.stream as u64,
        device: if state::started() { devices::of_stream(a.stream, a.per_thread) } else { None },
    };
    // (A pool of no name is the driver's to refuse.)
    let serves = arena::is_on() && a.bytes != 0 && !a.out.is_null() && a.pool != Some(0);
    if serves && state::active() {
        let ask = Ask {
            bytes: a.bytes as u64,
            pool: a.pool.unwrap_or(0),
            stream: a.stream,
            per_thread: a.per_thread,
            arena: None,
            device: 0,
        };
        let served = state::guarded(a.name, || served::alloc(&Call::new(a.api, a.from), &ask));
        match served.flatten() {
            Some(Ok(p)) => {
                // SAFETY: not null; the program's variable.
                unsafe { *a.out = p };
                return SUCCESS;
            }
            // SAFETY: the program's arguments.
            Some(Err(r)) => return unsafe { recorded(&request, a.out, || r) },
            None => {}
        }
    }
    // SAFETY: the program's arguments.
    let r = unsafe { recorded(&request, a.out, real) };
    if r == SUCCESS && serves && state::started() {
        // SAFETY: not null; the driver wrote it.
        let p = unsafe { *a.out };
        state::guarded(a.name, || captured::allocated(p, a.bytes as u64, a.stream, a.per_thread));
    }
    r
}

macro_rules! allocs {
    (@) => { None };
    (@ $pool:ident) => { Some($pool as usize) };
    ($($(#[$doc:meta])* $name:ident = $api:ident $own:literal: $t:ident($($pool:ident)?);)*) => {
        $($(#[$doc])*
        pub unsafe fn $name(
            real: types::$t,
            from: usize,
            out: *mut DevicePtr,
            bytes: Size,
            $($pool: Ptr,)?
            stream: Stream,
        ) -> Result {
            let pool = allocs!(@ $($pool)?);
            let name = stringify!($t);
            let a = Asked { name, api: Api::$api, from, out, bytes, pool, stream, per_thread: $own };
            // SAFETY: the program's arguments.
            unsafe { asked(&a, || real(out, bytes, $($pool,)? stream)) }
        })*
    };
}

allocs! {
    /// `cuMemAllocAsync`.
    alloc = CuMemAllocAsync false: cuMemAllocAsync();
    /// `cuMemAllocAsync_ptsz`.
    alloc_ptsz = CuMemAllocAsync true: cuMemAllocAsync_ptsz();
    /// `cuMemAllocFromPoolAsync`.
    alloc_from_pool = CuMemAllocFromPoolAsync false: cuMemAllocFromPoolAsync(pool);
    /// `cuMemAllocFromPoolAsync_ptsz`.
    alloc_from_pool_ptsz = CuMemAllocFromPoolAsync true: cuMemAllocFromPoolAsync_ptsz(pool);
}

/// `cuMemFreeAsync`.
pub unsafe fn free(real: types::cuMemFreeAsync, from: usize, p: DevicePtr, stream: Stream) -> Result {
    give_back(from, p, stream, false, || {
        // SAFETY: the program's arguments.
        unsafe { real(p, stream) }
    })
}

/// `cuMemFreeAsync_ptsz`.
pub unsafe fn free_ptsz(real: types::cuMemFreeAsync_ptsz, from: usize, p: DevicePtr, stream: Stream) -> Result {
    give_back(from, p, stream, true, || {
        // SAFETY: the program's arguments.
        unsafe { real(p, stream) }
    })
}

fn give_back(from: usize, p: DevicePtr, stream: Stream, per_thread: bool, real: impl Fn() -> Result) -> Result {
    note(stream, per_thread);
    let stream_number = stream as u64;
    if let Some(arena) = arena::holding(p) {
        // In a forked child the driver takes back what is the parent's, and so do we: a tensor that a DataLoader worker lets go of
        // must not end it.
        if state::forked() {
            return if arena.free_in_child(p) { SUCCESS } else { cuda::ERROR_INVALID_VALUE };
        }
        let free = || served::free(&Call::new(Api::CuMemFreeAsync, from), arena, p, stream, per_thread);
        // A fault of ours: the block is never used again.
        return state::guarded("cuMemFreeAsync", free).unwrap_or(SUCCESS);
    }
    if p != 0 && state::active() {
        let plain = state::guarded("cuMemFreeAsync", || free_plain(&real, from, p));
        if let Some(Some(r)) = plain {
            return r;
        }
    }
    let r = recorded_free("cuMemFreeAsync", from, Api::CuMemFreeAsync, p, stream_number, real);
    if r == SUCCESS {
        captured::freed(p);
    }
    r
}

/// Plain memory given to the stream-ordered free: whatever the driver says to that; if it takes it, the block is gone.
struct AsyncFree<'a, F> {
    up: Up<'a>,
    real: F,
    result: Cell<Result>,
}

impl<F: Fn() -> Result> Upstream for AsyncFree<'_, F> {
    type Error = Result;
    fn alloc(&self, c: ContextId, bytes: u64, segment: u64) -> std::result::Result<u64, Result> {
        self.up.alloc(c, bytes, segment)
    }
    fn free(&self, s: &Segment) -> std::result::Result<(), Result> {
        self.up.released(s);
        let r = (self.real)();
        self.result.set(r);
        if r == SUCCESS {
            return Ok(());
        }
        self.up.not_released(s, r);
        Err(r)
    }
    fn out_of_memory(error: Result) -> bool {
        error == cuda::ERROR_OUT_OF_MEMORY
    }
    fn next_id(&self) -> u64 {
        self.up.next_id()
    }
    fn fence(&self, _: ContextId) -> Fence {
        Fence::Refused
    }
}

fn free_plain(real: impl Fn() -> Result, from: usize, p: DevicePtr) -> Option<Result> {
    let call = Call::new(Api::CuMemFreeAsync, from);
    POOL.find_active(p)?;
    POOL.export(p);
    match POOL.begin_free(p) {
        Begun::Begun(f) => {
            let up = Up::freeing(&call, free_event(&call, f.info()));
            let up = AsyncFree { up, real, result: Cell::new(SUCCESS) };
            let freed = f.finish(&up);
            Some(device::settle(freed, p, &call))
        }
        _ => None,
    }
}
