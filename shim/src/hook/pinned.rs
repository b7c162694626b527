//! Pinned host memory: recorded.

use vramscope_core::api::Api;
use vramscope_core::event::Memory;

use super::{Request, recorded_alloc, recorded_free};
use crate::cuda::{Ptr, Result, Size, Uint};
use crate::hooks::types;

unsafe fn key(out: *mut Ptr) -> u64 {
    if out.is_null() {
        return 0;
    }
    // SAFETY: the driver accepted the pointer and wrote to it.
    unsafe { *out as u64 }
}

/// `cuMemHostAlloc` (the runtime's cudaMallocHost is this too).
pub unsafe fn alloc(real: types::cuMemHostAlloc, from: usize, out: *mut Ptr, bytes: Size, flags: Uint) -> Result {
    let request = Request {
        what: "cuMemHostAlloc",
        from,
        api: Api::CuMemHostAlloc,
        memory: Memory::Pinned,
        bytes: bytes as u64,
        stream: 0,
        device: None,
    };
    recorded_alloc(
        &request,
        // SAFETY: the program's arguments.
        || unsafe { real(out, bytes, flags) },
        // SAFETY: called after success.
        || unsafe { key(out) },
    )
}

/// `cuMemAllocHost`.
pub unsafe fn alloc_host(real: types::cuMemAllocHost_v2, from: usize, out: *mut Ptr, bytes: Size) -> Result {
    let request = Request {
        what: "cuMemAllocHost",
        from,
        api: Api::CuMemAllocHost,
        memory: Memory::Pinned,
        bytes: bytes as u64,
        stream: 0,
        device: None,
    };
    recorded_alloc(
        &request,
        // SAFETY: the program's arguments.
        || unsafe { real(out, bytes) },
        // SAFETY: called after success.
        || unsafe { key(out) },
    )
}

/// `cuMemFreeHost`.
pub unsafe fn free(real: types::cuMemFreeHost, from: usize, p: Ptr) -> Result {
    // SAFETY: the program's argument.
    recorded_free("cuMemFreeHost", from, Api::CuMemFreeHost, p as u64, 0, || unsafe { real(p) })
}

/// `cuMemHostRegister`.
pub unsafe fn register(real: types::cuMemHostRegister_v2, from: usize, p: Ptr, bytes: Size, flags: Uint) -> Result {
    let request = Request {
        what: "cuMemHostRegister",
        from,
        api: Api::CuMemHostRegister,
        memory: Memory::Registered,
        bytes: bytes as u64,
        stream: 0,
        device: None,
    };
    recorded_alloc(
        &request,
        // SAFETY: the program's arguments.
        || unsafe { real(p, bytes, flags) },
        || p as u64,
    )
}

/// `cuMemHostUnregister`.
pub unsafe fn unregister(real: types::cuMemHostUnregister, from: usize, p: Ptr) -> Result {
    // SAFETY: the program's argument.
    recorded_free("cuMemHostUnregister", from, Api::CuMemHostUnregister, p as u64, 0, || unsafe { real(p) })
}
