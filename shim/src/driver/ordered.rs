//! Streams and their events, for stream-ordered memory.

use super::*;
use crate::cuda::{STREAM_LEGACY, STREAM_PER_THREAD};

/// The number of a stream, which names it for the whole life of the process. (CUDA 11 can't tell.) Never of a stream that
/// captures: the question spoils the capture, in every mode (measured); nor of the legacy default one while a blocking
/// stream captures.
#[inline]
pub fn stream_id(stream: Stream, per_thread: bool) -> std::result::Result<u64, Result> {
    let f = (if per_thread { cuStreamGetId_ptsz() } else { cuStreamGetId() }).ok_or(cuda::ERROR_NOT_SUPPORTED)?;
    let mut id = 0;
    // SAFETY: the program's stream and a pointer to a local.
    match unsafe { f(stream, &mut id) } {
        SUCCESS => Ok(id),
        r => Err(r),
    }
}

/// The context of a stream; of a default stream the current one.
pub fn stream_context(stream: Stream, per_thread: bool) -> Option<Context> {
    if stream == 0 || stream == STREAM_LEGACY || stream == STREAM_PER_THREAD {
        return current_context();
    }
    let f = (if per_thread { cuStreamGetCtx_ptsz() } else { cuStreamGetCtx() })?;
    let mut c: Context = 0;
    // SAFETY: as above.
    (unsafe { f(stream, &mut c) } == SUCCESS && c != 0).then_some(c)
}

/// Runs `f` with a context current, which the thread may have been without.
pub fn in_context<T>(context: Context, f: impl FnOnce() -> Option<T>) -> Option<T> {
    within(context, f)
}

/// Records an event in a stream of a context.
pub fn record_in(context: Context, stream: Stream, event: cuda::Event) -> bool {
    let Some(f) = cuEventRecord() else { return false };
    // SAFETY: an event and a stream of the same context; the driver checks both.
    let record = || Some(unsafe { f(event, stream) } == SUCCESS);
    let of_context = stream <= STREAM_PER_THREAD;
    if of_context { within(context, record) } else { record() }.unwrap_or(false)
}

/// Whether a stream of a context captures, as far as that can be told.
pub fn captures_in(context: Context, stream: Stream) -> Option<bool> {
    let captures = || captures(stream, false).ok();
    let of_context = stream <= STREAM_PER_THREAD;
    if of_context { within(context, captures) } else { captures() }
}

/// Later work of a stream waits for an event.
pub fn wait_in(context: Context, stream: Stream, event: cuda::Event) -> bool {
    let Some(f) = cuStreamWaitEvent() else { return false };
    // SAFETY: as above.
    let wait = || Some(unsafe { f(stream, event, 0) } == SUCCESS);
    let of_context = stream <= STREAM_PER_THREAD;
    if of_context { within(context, wait) } else { wait() }.unwrap_or(false)
}

/// What the driver says to the question whether everything before the event is done.
pub fn query(event: cuda::Event) -> Result {
    let Some(f) = cuEventQuery() else { return cuda::ERROR_NOT_FOUND };
    // SAFETY: an event that is alive.
    unsafe { f(event) }
}

/// An event is not needed any more.
pub fn destroy_event(event: cuda::Event) {
    if let Some(f) = cuEventDestroy_v2() {
        // SAFETY: an event of ours that nobody holds.
        unsafe { f(event) };
    }
}

/// Fills memory in the order of a stream.
pub fn fill_in(context: Context, stream: Stream, p: DevicePtr, byte: u8, bytes: u64) {
    within(context, || {
        // SAFETY: a block of this size that belongs to the work of this stream now.
        Some(unsafe { cuMemsetD8Async()?(p, byte, bytes as usize, stream) })
    });
}

/// The memory pool that a device's requests come from: its default one, and the one that is set.
pub fn memory_pools(device: i32) -> Option<(usize, usize)> {
    let (mut default, mut current) = (0, 0);
    // SAFETY: pointers to locals.
    let both = unsafe {
        cuDeviceGetDefaultMemPool()?(&mut default, device) == SUCCESS
            && cuDeviceGetMemPool()?(&mut current, device) == SUCCESS
    };
    both.then_some((default, current))
}
