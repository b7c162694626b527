//! Waits of the program: what was done before them needs no event of ours to be known as done.

use crate::arena;
use crate::cuda::{Context, Event, Result, SUCCESS, Stream};
use crate::hooks::types;
use crate::{capture, context, driver, state};

/// Whether there is anybody to tell.
fn watched() -> bool {
    arena::any() && state::started() && !state::exiting()
}

fn stream(stream: Stream, per_thread: bool, real: impl FnOnce() -> Result) -> Result {
    // (In a capture a stream's number may not be asked for.)
    if !watched() || capture::any() {
        return real();
    }
    match state::guarded("cuStreamSynchronize", || arena::named(stream, per_thread)) {
        Some(Ok(s)) => arena::synced(s.device, real, Some(s.id)),
        _ => real(),
    }
}

/// `cuStreamSynchronize`.
pub unsafe fn stream_synchronize(real: types::cuStreamSynchronize, _: usize, s: Stream) -> Result {
    // SAFETY: the program's argument.
    stream(s, false, || unsafe { real(s) })
}

/// `cuStreamSynchronize_ptsz`.
pub unsafe fn stream_synchronize_ptsz(real: types::cuStreamSynchronize_ptsz, _: usize, s: Stream) -> Result {
    // SAFETY: the program's argument.
    stream(s, true, || unsafe { real(s) })
}

/// `cuCtxSynchronize`.
pub unsafe fn context_synchronize(real: types::cuCtxSynchronize, _: usize) -> Result {
    let device = if watched() { context::current().map(|c| c.slot().device()) } else { None };
    match device {
        // SAFETY: no arguments.
        Some(device) => arena::synced(device, || unsafe { real() }, None),
        // SAFETY: as above.
        None => unsafe { real() },
    }
}

/// `cuCtxSynchronize_v2`.
pub unsafe fn context_synchronize_of(real: types::cuCtxSynchronize_v2, _: usize, handle: Context) -> Result {
    let of = || driver::in_context(handle, || context::current().map(|c| c.slot().device()));
    match if watched() { state::guarded("cuCtxSynchronize", of).flatten() } else { None } {
        // SAFETY: the program's argument.
        Some(device) => arena::synced(device, || unsafe { real(handle) }, None),
        // SAFETY: as above.
        None => unsafe { real(handle) },
    }
}

/// `cuEventSynchronize`: of which stream is not known, but what is done can be looked for.
pub unsafe fn event_synchronize(real: types::cuEventSynchronize, _: usize, event: Event) -> Result {
    // SAFETY: the program's argument.
    let r = unsafe { real(event) };
    arena::waited(r);
    if r == SUCCESS && watched() && !capture::any() {
        state::guarded("cuEventSynchronize", arena::shed);
    }
    r
}
