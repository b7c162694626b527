//! The call that is interposed: PyTorch's CPU allocator makes it for each tensor.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering::*};

use crate::capture;

type Memalign = unsafe extern "C" fn(*mut *mut c_void, usize, usize) -> c_int;

static REAL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// As the C library's.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(to: *mut *mut c_void, alignment: usize, size: usize) -> c_int {
    capture::here();
    match real() {
        // SAFETY: as the caller says.
        Some(real) => unsafe { real(to, alignment, size) },
        None => libc::ENOMEM,
    }
}

fn real() -> Option<Memalign> {
    let mut real = REAL.load(Acquire);
    if real.is_null() {
        // SAFETY: a C string.
        real = unsafe { libc::dlsym(libc::RTLD_NEXT, c"posix_memalign".as_ptr()) };
        REAL.store(real, Release);
    }
    // SAFETY: null or the function of that name, which has this type.
    unsafe { std::mem::transmute::<*mut c_void, Option<Memalign>>(real) }
}
