//! Stream-ordered memory: recorded. A `_ptsz` entry's default stream is the thread's own.

use std::cell::Cell;

use vramscope_core::api::Api;
use vramscope_core::event::Memory;
use vramscope_core::pool::{Begun, ContextId, Fence, Segment, Upstream};

use super::device::{self, free_event, recorded};
use super::{Request, recorded_free};
use crate::call::Call;
use crate::cuda::{self, DevicePtr, Ptr, Result, STREAM_PER_THREAD, SUCCESS, Size, Stream};
use crate::hooks::{self, types};
use crate::pool::POOL;
use crate::upstream::Up;
use crate::{state, sync};

fn note(stream: Stream) {
    if stream == STREAM_PER_THREAD {
        hooks::note_per_thread_streams();
    }
    sync::before_submission();
}

fn request(what: &'static str, api: Api, from: usize, bytes: Size, stream: Stream) -> Request {
    Request { what, from, api, memory: Memory::Async, bytes: bytes as u64, stream: stream as u64 }
}

/// `cuMemAllocAsync`.
pub unsafe fn alloc(
    real: types::cuMemAllocAsync,
    from: usize,
    out: *mut DevicePtr,
    bytes: Size,
    stream: Stream,
) -> Result {
    note(stream);
    let request = request("cuMemAllocAsync", Api::CuMemAllocAsync, from, bytes, stream);
    // SAFETY: the program's arguments.
    unsafe { recorded(&request, out, || real(out, bytes, stream)) }
}

/// `cuMemAllocAsync_ptsz`.
pub unsafe fn alloc_ptsz(
    real: types::cuMemAllocAsync_ptsz,
    from: usize,
    out: *mut DevicePtr,
    bytes: Size,
    stream: Stream,
) -> Result {
    hooks::note_per_thread_streams();
    // SAFETY: the program's arguments.
    unsafe { alloc(real, from, out, bytes, stream) }
}

/// `cuMemAllocFromPoolAsync`.
pub unsafe fn alloc_from_pool(
    real: types::cuMemAllocFromPoolAsync,
    from: usize,
    out: *mut DevicePtr,
    bytes: Size,
    pool: Ptr,
    stream: Stream,
) -> Result {
    note(stream);
    let request = request("cuMemAllocFromPoolAsync", Api::CuMemAllocFromPoolAsync, from, bytes, stream);
    // SAFETY: the program's arguments.
    unsafe { recorded(&request, out, || real(out, bytes, pool, stream)) }
}

/// `cuMemAllocFromPoolAsync_ptsz`.
pub unsafe fn alloc_from_pool_ptsz(
    real: types::cuMemAllocFromPoolAsync_ptsz,
    from: usize,
    out: *mut DevicePtr,
    bytes: Size,
    pool: Ptr,
    stream: Stream,
) -> Result {
    hooks::note_per_thread_streams();
    // SAFETY: the program's arguments.
    unsafe { alloc_from_pool(real, from, out, bytes, pool, stream) }
}

/// `cuMemFreeAsync`.
pub unsafe fn free(real: types::cuMemFreeAsync, from: usize, p: DevicePtr, stream: Stream) -> Result {
    note(stream);
    if p != 0 && state::active() {
        let plain = state::guarded("cuMemFreeAsync", || free_plain(real, from, p, stream));
        if let Some(Some(r)) = plain {
            return r;
        }
    }
    // SAFETY: the program's arguments.
    recorded_free("cuMemFreeAsync", from, Api::CuMemFreeAsync, p, stream as u64, || unsafe { real(p, stream) })
}

/// `cuMemFreeAsync_ptsz`.
pub unsafe fn free_ptsz(real: types::cuMemFreeAsync_ptsz, from: usize, p: DevicePtr, stream: Stream) -> Result {
    hooks::note_per_thread_streams();
    // SAFETY: the program's arguments.
    unsafe { free(real, from, p, stream) }
}

/// Plain memory given to the stream-ordered free: whatever the driver says to that; if it takes it, the block is gone.
struct AsyncFree<'a> {
    up: Up<'a>,
    real: types::cuMemFreeAsync,
    stream: Stream,
    result: Cell<Result>,
}

impl Upstream for AsyncFree<'_> {
    type Error = Result;
    fn alloc(&self, c: ContextId, bytes: u64, segment: u64) -> std::result::Result<u64, Result> {
        self.up.alloc(c, bytes, segment)
    }
    fn free(&self, s: &Segment) -> std::result::Result<(), Result> {
        self.up.released(s);
        // SAFETY: the program's arguments.
        let r = unsafe { (self.real)(s.address, self.stream) };
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

fn free_plain(real: types::cuMemFreeAsync, from: usize, p: DevicePtr, stream: Stream) -> Option<Result> {
    let call = Call::new(Api::CuMemFreeAsync, from);
    POOL.find_active(p)?;
    POOL.export(p);
    match POOL.begin_free(p) {
        Begun::Begun(f) => {
            let up = Up::freeing(&call, free_event(&call, f.info()));
            let up = AsyncFree { up, real, stream, result: Cell::new(SUCCESS) };
            let freed = f.finish(&up);
            Some(device::settle(freed, p, &call))
        }
        _ => None,
    }
}
