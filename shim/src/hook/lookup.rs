//! `cuGetProcAddress`, the third door: the real one answers first, then the pointer it gave is mapped.

use std::ffi::CStr;

use crate::cuda::{Ptr, Result, SUCCESS, Str};
use crate::doctor::Door;
use crate::door;
use crate::hooks::types;

unsafe fn map(name: Str, out: *mut Ptr, result: Result) {
    if result != SUCCESS || name.is_null() || out.is_null() {
        return;
    }
    // SAFETY: not null; the driver wrote it. Success with a null pointer means: no such function at this version.
    let given = unsafe { *out };
    if given.is_null() {
        return;
    }
    // SAFETY: the program's C string.
    let name = unsafe { CStr::from_ptr(name) };
    // SAFETY: as above.
    unsafe { *out = door::substitute(given, name, Door::ProcAddress) };
}

/// `cuGetProcAddress` of CUDA 11.3.
pub unsafe fn get_proc_address(
    real: types::cuGetProcAddress,
    _: usize,
    name: Str,
    out: *mut Ptr,
    version: i32,
    flags: u64,
) -> Result {
    // SAFETY: the program's arguments.
    let r = unsafe { real(name, out, version, flags) };
    // SAFETY: as above.
    unsafe { map(name, out, r) };
    r
}

/// `cuGetProcAddress` of CUDA 12.0.
pub unsafe fn get_proc_address_v2(
    real: types::cuGetProcAddress_v2,
    _: usize,
    name: Str,
    out: *mut Ptr,
    version: i32,
    flags: u64,
    status: *mut i32,
) -> Result {
    // SAFETY: the program's arguments.
    let r = unsafe { real(name, out, version, flags, status) };
    // SAFETY: as above.
    unsafe { map(name, out, r) };
    r
}
