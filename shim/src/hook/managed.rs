//! Managed memory: recorded, never pooled; and what tells that the program has `__managed__` variables.

use vramscope_core::api::Api;
use vramscope_core::event::Memory;

use super::Request;
use crate::cuda::{DevicePtr, Ptr, Result, SUCCESS, Size, Str, Uint};
use crate::hooks::types;
use crate::{driver, pool, sight, state};

/// `cuMemAllocManaged`.
pub unsafe fn alloc(
    real: types::cuMemAllocManaged,
    from: usize,
    out: *mut DevicePtr,
    bytes: Size,
    flags: Uint,
) -> Result {
    let request = Request {
        what: "cuMemAllocManaged",
        from,
        api: Api::CuMemAllocManaged,
        memory: Memory::Managed,
        bytes: bytes as u64,
        stream: 0,
        device: None,
    };
    // SAFETY: the program's arguments.
    unsafe { super::device::recorded(&request, out, || real(out, bytes, flags)) }
}

/// A global variable's address was asked for: the host can reach a managed one.
unsafe fn note(out: *mut DevicePtr, result: Result) {
    if result == SUCCESS && !out.is_null() && !state::switched_off() {
        // SAFETY: the driver wrote it.
        let p = unsafe { *out };
        if driver::is_managed(p) {
            sight::seen();
        }
    }
}

/// `cuModuleGetGlobal`, `cuLibraryGetGlobal`.
pub unsafe fn global(
    real: types::cuModuleGetGlobal_v2,
    _: usize,
    out: *mut DevicePtr,
    bytes: *mut Size,
    module: Ptr,
    name: Str,
) -> Result {
    // SAFETY: the program's arguments.
    let r = pool::retrying(|| unsafe { real(out, bytes, module, name) });
    // SAFETY: as above.
    unsafe { note(out, r) };
    r
}

/// `cuLibraryGetManaged`: it exists, so it is managed.
pub unsafe fn library_managed(
    real: types::cuLibraryGetManaged,
    _: usize,
    out: *mut DevicePtr,
    bytes: *mut Size,
    library: Ptr,
    name: Str,
) -> Result {
    // SAFETY: the program's arguments.
    let r = unsafe { real(out, bytes, library, name) };
    if r == SUCCESS {
        sight::seen();
    }
    r
}
