//! Which streams capture. While any does, no barrier may be issued: it would invalidate the capture, and so would one that
//! races with a capture's begin. Hence one process-wide lock between the two.

use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::{Mutex, RwLock, RwLockReadGuard};

use crate::cuda::{self, Context, Stream};
use crate::{arena, captured, driver, state};

/// Held for reading while a barrier is issued, for writing while a capture begins.
static GATE: RwLock<()> = RwLock::new(());
static COUNT: AtomicUsize = AtomicUsize::new(0);

struct Capturing {
    stream: Stream,
    /// The thread's own default stream means another stream in every thread.
    thread: u64,
    /// The context that was current: a capture ends with it.
    context: Context,
}
static STREAMS: Mutex<Vec<Capturing>> = Mutex::new(Vec::new());

fn streams() -> std::sync::MutexGuard<'static, Vec<Capturing>> {
    STREAMS.lock().unwrap_or_else(|e| e.into_inner())
}

/// Whether any stream of the process captures.
#[inline]
pub fn any() -> bool {
    COUNT.load(Acquire) != 0
}

/// Room for a barrier: `None` while a stream captures. No capture begins while it is held.
pub fn gate() -> Option<RwLockReadGuard<'static, ()>> {
    if any() {
        return None;
    }
    let g = GATE.read().unwrap_or_else(|e| e.into_inner());
    (!any()).then_some(g)
}

/// Room to name one stream in calls of the driver while others may capture, and no capture begins meanwhile. `None`: it
/// captures itself, or that can't be told.
pub fn gate_beside(stream_captures: impl FnOnce() -> Option<bool>) -> Option<RwLockReadGuard<'static, ()>> {
    let g = GATE.read().unwrap_or_else(|e| e.into_inner());
    (!any() || stream_captures() == Some(false)).then_some(g)
}

fn identity(stream: Stream, per_thread: bool) -> Capturing {
    let own = stream == cuda::STREAM_PER_THREAD || (per_thread && stream == 0);
    // SAFETY: no arguments.
    let thread = if own { unsafe { libc::pthread_self() as u64 } } else { 0 };
    Capturing { stream, thread, context: driver::current_context().unwrap_or(0) }
}

/// Carries out a call that begins a capture of `stream`.
pub fn begin(stream: Stream, per_thread: bool, call: impl FnOnce() -> cuda::Result) -> cuda::Result {
    // From then on nothing can be asked of what the stream has freed.
    if arena::any() && state::started() {
        state::guarded("a capture's begin", arena::capture_begins);
    }
    let gate = GATE.write().unwrap_or_else(|e| e.into_inner());
    let result = state::uncancelled(call);
    if result == cuda::SUCCESS {
        let mut s = streams();
        s.push(identity(stream, per_thread));
        COUNT.store(s.len(), Release);
    }
    drop(gate);
    result
}

/// Carries out a call that ends one. A call that fails may or may not have ended it (the capture was invalidated; this is
/// the wrong thread): the stream itself tells.
pub fn end(stream: Stream, per_thread: bool, call: impl FnOnce() -> cuda::Result) -> cuda::Result {
    captured::ending(stream, per_thread, || {
        let result = call();
        if result == cuda::SUCCESS || !driver::is_capturing(stream, per_thread) {
            forget(stream, per_thread);
        }
        result
    })
}

/// The stream is gone, and its capture with it.
pub fn forget(stream: Stream, per_thread: bool) {
    let it = identity(stream, per_thread);
    let mut s = streams();
    if let Some(i) = s.iter().position(|c| c.stream == it.stream && c.thread == it.thread) {
        s.swap_remove(i);
    }
    COUNT.store(s.len(), Release);
}

/// The context ended, and its streams' captures with it.
pub fn forget_context(context: Context) {
    let mut s = streams();
    s.retain(|c| c.context != context);
    COUNT.store(s.len(), Release);
}

/// The calling thread ends, and the capture of its own default stream with it.
pub fn forget_thread() {
    // SAFETY: no arguments.
    let me = unsafe { libc::pthread_self() as u64 };
    let mut s = streams();
    s.retain(|c| c.thread != me);
    COUNT.store(s.len(), Release);
}
