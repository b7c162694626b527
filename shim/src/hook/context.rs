//! Contexts: watched from their making to their end.

use crate::context;
use crate::cuda::{Context, Device, Ptr, Result, SUCCESS, Uint};
use crate::hooks::types;
use crate::{driver, pool, state};

fn watched() -> bool {
    !state::switched_off() && !state::forked()
}

/// A context needs memory of its own.
fn making(call: impl Fn() -> Result) -> Result {
    pool::retrying(call)
}

/// `cuCtxCreate` of CUDA 3.2.
pub unsafe fn create_v2(
    real: types::cuCtxCreate_v2,
    _: usize,
    out: *mut Context,
    flags: Uint,
    device: Device,
) -> Result {
    // SAFETY: the program's arguments.
    making(|| unsafe { real(out, flags, device) })
}

/// `cuCtxCreate` of CUDA 11.4.
pub unsafe fn create_v3(
    real: types::cuCtxCreate_v3,
    _: usize,
    out: *mut Context,
    params: Ptr,
    count: i32,
    flags: Uint,
    device: Device,
) -> Result {
    // SAFETY: the program's arguments.
    making(|| unsafe { real(out, params, count, flags, device) })
}

/// `cuCtxCreate` of CUDA 12.5.
pub unsafe fn create_v4(
    real: types::cuCtxCreate_v4,
    _: usize,
    out: *mut Context,
    params: Ptr,
    flags: Uint,
    device: Device,
) -> Result {
    // SAFETY: the program's arguments.
    making(|| unsafe { real(out, params, flags, device) })
}

/// `cuDevicePrimaryCtxRetain`.
pub unsafe fn retain(real: types::cuDevicePrimaryCtxRetain, _: usize, out: *mut Context, device: Device) -> Result {
    // SAFETY: the program's arguments.
    let call = || pool::retrying(|| unsafe { real(out, device) });
    if out.is_null() || !watched() {
        return call();
    }
    // SAFETY: not null; the driver wrote it.
    context::retaining_primary(device, call, || unsafe { *out })
}

/// `cuCtxDestroy`.
pub unsafe fn destroy(real: types::cuCtxDestroy_v2, _: usize, handle: Context) -> Result {
    if !watched() {
        // SAFETY: the program's argument.
        return unsafe { real(handle) };
    }
    // SAFETY: as above.
    context::destroying(handle, || unsafe { real(handle) })
}

/// `cuDevicePrimaryCtxRelease`: only the last one ends it.
pub unsafe fn release(real: types::cuDevicePrimaryCtxRelease_v2, _: usize, device: Device) -> Result {
    if !watched() {
        // SAFETY: the program's argument.
        return unsafe { real(device) };
    }
    // SAFETY: as above.
    context::ending_primary(
        device,
        || unsafe { real(device) },
        |r| r == SUCCESS && driver::primary_active(device) == Some(false),
    )
}

/// `cuDevicePrimaryCtxReset`.
pub unsafe fn reset(real: types::cuDevicePrimaryCtxReset_v2, _: usize, device: Device) -> Result {
    if !watched() {
        // SAFETY: the program's argument.
        return unsafe { real(device) };
    }
    // SAFETY: as above.
    context::ending_primary(device, || unsafe { real(device) }, |r| r == SUCCESS)
}

/// `cuCtxFromGreenCtx`: a handle of its own for the primary context's memory.
pub unsafe fn from_green(real: types::cuCtxFromGreenCtx, _: usize, out: *mut Context, green: Ptr) -> Result {
    // SAFETY: the program's arguments.
    let r = unsafe { real(out, green) };
    if r == SUCCESS && !out.is_null() && watched() {
        // SAFETY: the driver wrote it.
        let handle = unsafe { *out };
        state::guarded("cuCtxFromGreenCtx", || context::note_green(handle));
    }
    r
}

/// `cuCtxEnablePeerAccess`: plain allocations need nothing for it; page tables for the peer are memory.
pub unsafe fn enable_peer_access(real: types::cuCtxEnablePeerAccess, _: usize, peer: Context, flags: Uint) -> Result {
    // SAFETY: the program's arguments.
    pool::retrying(|| unsafe { real(peer, flags) })
}
