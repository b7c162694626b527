//! Streams: watched, because the first one besides the default makes barriers necessary; and host functions, because they
//! make the host see.

use std::ffi::c_void;

use crate::capture;
use crate::context;
use crate::cuda::{Ptr, Result, STREAM_PER_THREAD, SUCCESS, Stream, Uint};
use crate::hooks::{self, types};
use crate::{pool, sight, state, sync, thread};

/// A stream was created in the current context.
fn created(r: Result) -> Result {
    if r == SUCCESS && !state::switched_off() && !state::forked() {
        state::guarded("cuStreamCreate", || {
            if let Some(id) = context::note_stream() {
                sync::first_stream(id);
            }
        });
    }
    r
}

/// `cuStreamCreate`.
pub unsafe fn create(real: types::cuStreamCreate, _: usize, out: *mut Stream, flags: Uint) -> Result {
    // SAFETY: the program's arguments.
    created(pool::retrying(|| unsafe { real(out, flags) }))
}

/// `cuStreamCreateWithPriority`.
pub unsafe fn create_with_priority(real: types::cuStreamCreateWithPriority, _: usize, out: *mut Stream, flags: Uint, priority: i32) -> Result {
    // SAFETY: the program's arguments.
    created(pool::retrying(|| unsafe { real(out, flags, priority) }))
}

/// `cuGreenCtxStreamCreate`: a stream of the device's primary context, which need not be current.
pub unsafe fn create_green(real: types::cuGreenCtxStreamCreate, _: usize, out: *mut Stream, green: Ptr, flags: Uint, priority: i32) -> Result {
    // SAFETY: the program's arguments.
    let r = pool::retrying(|| unsafe { real(out, green, flags, priority) });
    if r == SUCCESS {
        // Which device is not asked: every context gets its barriers from here on.
        hooks::note_per_thread_streams();
    }
    r
}

/// `cuStreamDestroy`.
pub unsafe fn destroy(real: types::cuStreamDestroy_v2, _: usize, stream: Stream) -> Result {
    // SAFETY: the program's argument.
    let r = unsafe { real(stream) };
    if r == SUCCESS && capture::any() {
        capture::forget(stream, false);
    }
    r
}

/// What the driver runs in a stream's order, with what the program wanted it to run.
struct Callback {
    function: Ptr,
    data: Ptr,
}

/// Runs the program's host function, knowing meanwhile that no CUDA call may be made.
unsafe extern "C-unwind" fn run(p: *mut c_void) {
    // SAFETY: the box that `launch_host_func` made for this one run.
    let c = unsafe { Box::from_raw(p.cast::<Callback>()) };
    let (function, data) = (c.function, c.data);
    drop(c);
    // SAFETY: a CUhostFn of the program.
    let f = unsafe { std::mem::transmute::<Ptr, unsafe extern "C-unwind" fn(Ptr)>(function) };
    let t = thread::current();
    t.callbacks.set(t.callbacks.get() + 1);
    // SAFETY: as the driver would have called it.
    unsafe { f(data) };
    t.callbacks.set(t.callbacks.get().saturating_sub(1));
}

unsafe extern "C-unwind" fn run_callback(stream: Stream, status: Result, p: *mut c_void) {
    // SAFETY: the box that `add_callback` made for this one run.
    let c = unsafe { Box::from_raw(p.cast::<Callback>()) };
    let (function, data) = (c.function, c.data);
    drop(c);
    // SAFETY: a CUstreamCallback of the program.
    let f = unsafe { std::mem::transmute::<Ptr, unsafe extern "C-unwind" fn(Stream, Result, Ptr)>(function) };
    let t = thread::current();
    t.callbacks.set(t.callbacks.get() + 1);
    // SAFETY: as the driver would have called it.
    unsafe { f(stream, status, data) };
    t.callbacks.set(t.callbacks.get().saturating_sub(1));
}

/// Whether the function may be wrapped: one queued in a capture becomes a graph node that runs any number of times, with
/// data that the program may read back from the graph.
fn wrappable(function: Ptr) -> bool {
    !function.is_null() && !capture::any() && state::started()
}

/// `cuLaunchHostFunc`.
pub unsafe fn launch_host_func(real: types::cuLaunchHostFunc, _: usize, stream: Stream, function: Ptr, data: Ptr) -> Result {
    if stream == STREAM_PER_THREAD {
        hooks::note_per_thread_streams();
    }
    if !state::switched_off() {
        sight::seen();
    }
    if !wrappable(function) {
        // SAFETY: the program's arguments.
        return unsafe { real(stream, function, data) };
    }
    let mine = Box::into_raw(Box::new(Callback { function, data }));
    // SAFETY: our function gets our box.
    let r = unsafe { real(stream, run as *const () as Ptr, mine.cast()) };
    if r != SUCCESS {
        // SAFETY: it was not queued, so nobody else frees it.
        drop(unsafe { Box::from_raw(mine) });
    }
    r
}

/// `cuLaunchHostFunc_ptsz`.
pub unsafe fn launch_host_func_ptsz(real: types::cuLaunchHostFunc_ptsz, from: usize, stream: Stream, function: Ptr, data: Ptr) -> Result {
    hooks::note_per_thread_streams();
    // SAFETY: the program's arguments.
    unsafe { launch_host_func(real, from, stream, function, data) }
}

/// `cuStreamAddCallback`.
pub unsafe fn add_callback(real: types::cuStreamAddCallback, _: usize, stream: Stream, callback: Ptr, data: Ptr, flags: Uint) -> Result {
    if stream == STREAM_PER_THREAD {
        hooks::note_per_thread_streams();
    }
    if !state::switched_off() {
        sight::seen();
    }
    if !wrappable(callback) {
        // SAFETY: the program's arguments.
        return unsafe { real(stream, callback, data, flags) };
    }
    let mine = Box::into_raw(Box::new(Callback { function: callback, data }));
    // SAFETY: our function gets our box.
    let r = unsafe { real(stream, run_callback as *const () as Ptr, mine.cast(), flags) };
    if r != SUCCESS {
        // SAFETY: as above.
        drop(unsafe { Box::from_raw(mine) });
    }
    r
}

/// `cuStreamAddCallback_ptsz`.
pub unsafe fn add_callback_ptsz(real: types::cuStreamAddCallback_ptsz, from: usize, stream: Stream, callback: Ptr, data: Ptr, flags: Uint) -> Result {
    hooks::note_per_thread_streams();
    // SAFETY: the program's arguments.
    unsafe { add_callback(real, from, stream, callback, data, flags) }
}
