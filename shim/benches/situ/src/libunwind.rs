//! nongnu libunwind's fast trace. Looked for at run time, so that this crate builds without it.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering::*};

use crate::frames::{DEPTH, Frames};

type Backtrace = unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_int;

static BACKTRACE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// Whether it is there. Local, because it has an `_Unwind_Backtrace` of its own.
pub fn load() -> bool {
    // SAFETY: C strings; the library only has constructors of its own.
    let found = unsafe {
        let library = libc::dlopen(c"libunwind.so.8".as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
        if library.is_null() {
            return false;
        }
        libc::dlsym(library, c"unw_backtrace".as_ptr())
    };
    BACKTRACE.store(found, Release);
    !found.is_null()
}

/// From the caller on.
#[inline(never)]
pub fn capture(frames: &mut Frames) {
    let backtrace = BACKTRACE.load(Acquire);
    if backtrace.is_null() {
        return;
    }
    // SAFETY: the function of that name has this type, and the library stays loaded.
    let backtrace = unsafe { std::mem::transmute::<*mut c_void, Backtrace>(backtrace) };
    // SAFETY: the room is `DEPTH` words.
    let len = unsafe { backtrace(frames.room().cast(), DEPTH as c_int) };
    // SAFETY: it says how many it wrote.
    unsafe { frames.filled(usize::try_from(len).unwrap_or(0)) };
}
