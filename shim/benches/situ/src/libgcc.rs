//! The unwinder that C++ exceptions use: slow, and right.

use std::ffi::{c_int, c_void};

use crate::frames::Frames;

const NO_REASON: c_int = 0;
const NORMAL_STOP: c_int = 4;

unsafe extern "C" {
    fn _Unwind_Backtrace(visit: unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int, to: *mut c_void) -> c_int;
    fn _Unwind_GetIP(frame: *mut c_void) -> usize;
}

unsafe extern "C" fn visit(frame: *mut c_void, frames: *mut c_void) -> c_int {
    // SAFETY: `capture` gave it, and libgcc gives a frame.
    let (frames, pc) = unsafe { (&mut *frames.cast::<Frames>(), _Unwind_GetIP(frame)) };
    if frames.push(pc as u64) { NO_REASON } else { NORMAL_STOP }
}

/// From the caller on.
#[inline(never)]
pub fn capture(frames: &mut Frames) {
    // SAFETY: the callback fits what it is given.
    unsafe { _Unwind_Backtrace(visit, (&raw mut *frames).cast()) };
}
