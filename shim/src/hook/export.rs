//! Memory that others get hold of: another process, another driver. Its block leaves the pool for good, and from then on the
//! host may see what a free waits for.

use vramscope_core::api::Api;
use vramscope_core::event::Memory;
use vramscope_core::pool::State;

use super::{Place, record_alloc, record_free, truth, unfree};
use crate::call::Call;
use crate::cuda::{
    DevicePtr, ERROR_INVALID_VALUE, IpcHandle, POINTER_ATTRIBUTE_SYNC_MEMOPS, Ptr, Result, SUCCESS, Size, Uint,
};
use crate::hooks::types;
use crate::ledger::Entry;
use crate::{driver, pool, recorder, sight, state};

/// Takes the block at `p` out of the pool before the call hands it on. A block that the program has freed is nobody's:
/// then the driver's answer for such memory is given instead.
fn take_out(p: DevicePtr) -> Option<Result> {
    if p == 0 || !state::started() {
        return None;
    }
    state::guarded("export", || {
        let b = truth::block_at(p)?;
        if b.state == State::Inactive {
            return Some(ERROR_INVALID_VALUE);
        }
        truth::leave_pool(&b);
        None
    })
    .flatten()
}

fn handed_on(r: Result) -> Result {
    if r == SUCCESS && !state::switched_off() {
        sight::seen();
    }
    r
}

/// `cuIpcGetMemHandle`.
pub unsafe fn ipc(real: types::cuIpcGetMemHandle, _: usize, out: Ptr, p: DevicePtr) -> Result {
    if let Some(r) = take_out(p) {
        return r;
    }
    // SAFETY: the program's arguments.
    handed_on(unsafe { real(out, p) })
}

/// `cuMemGetHandleForAddressRange`: a dma-buf.
pub unsafe fn range(
    real: types::cuMemGetHandleForAddressRange,
    _: usize,
    out: Ptr,
    p: DevicePtr,
    bytes: Size,
    kind: i32,
    flags: u64,
) -> Result {
    if let Some(r) = take_out(p) {
        return r;
    }
    // SAFETY: the program's arguments.
    handed_on(unsafe { real(out, p, bytes, kind, flags) })
}

/// `cuPointerSetAttribute`: SYNC_MEMOPS is asked for memory that a network card will reach.
pub unsafe fn set_attribute(
    real: types::cuPointerSetAttribute,
    _: usize,
    value: Ptr,
    attribute: i32,
    p: DevicePtr,
) -> Result {
    if attribute == POINTER_ATTRIBUTE_SYNC_MEMOPS
        && let Some(r) = take_out(p)
    {
        return r;
    }
    // SAFETY: the program's arguments.
    unsafe { real(value, attribute, p) }
}

/// `cuMemExportToShareableHandle`.
pub unsafe fn vmm(
    real: types::cuMemExportToShareableHandle,
    _: usize,
    out: Ptr,
    handle: u64,
    kind: i32,
    flags: u64,
) -> Result {
    // SAFETY: the program's arguments.
    handed_on(unsafe { real(out, handle, kind, flags) })
}

/// `cuMemPoolExportToShareableHandle`.
pub unsafe fn pool(
    real: types::cuMemPoolExportToShareableHandle,
    _: usize,
    out: Ptr,
    pool: Ptr,
    kind: i32,
    flags: u64,
) -> Result {
    // SAFETY: the program's arguments.
    handed_on(unsafe { real(out, pool, kind, flags) })
}

/// `cuIpcOpenMemHandle`: another process's memory, counted to its owner.
pub unsafe fn ipc_open(
    real: types::cuIpcOpenMemHandle_v2,
    from: usize,
    out: *mut DevicePtr,
    handle: IpcHandle,
    flags: Uint,
) -> Result {
    // SAFETY: the program's arguments.
    let r = pool::retrying(|| unsafe { real(out, handle, flags) });
    if !state::active() || out.is_null() {
        return r;
    }
    if r == SUCCESS {
        // Its owner may write there what this process's host waits for.
        sight::seen();
    }
    state::guarded("cuIpcOpenMemHandle", || {
        let call = Call::new(Api::CuIpcOpenMemHandle, from);
        // SAFETY: not null; the driver wrote it on success.
        let p = unsafe { *out };
        let bytes = if r == SUCCESS { driver::address_range(p).map_or(0, |(_, n)| n) } else { 0 };
        // Opened twice in a process, it is the same address: one entry, counted.
        if r == SUCCESS && recorder::LEDGER.update(p, |e| e.count += 1).is_some() {
            return;
        }
        record_alloc(&call, Place::current(), Memory::Imported, p, bytes, 0, r, 0);
    });
    r
}

/// `cuIpcCloseMemHandle`.
pub unsafe fn ipc_close(real: types::cuIpcCloseMemHandle, from: usize, p: DevicePtr) -> Result {
    if !state::active() {
        // SAFETY: the program's argument.
        return unsafe { real(p) };
    }
    let last = recorder::LEDGER.update(p, |e| {
        e.count -= 1;
        e.count == 0
    });
    let known = if last == Some(true) {
        state::guarded("cuIpcCloseMemHandle", || record_free(&Call::new(Api::CuIpcCloseMemHandle, from), p, 0))
            .flatten()
    } else {
        None
    };
    // SAFETY: as above.
    let r = unsafe { real(p) };
    if r != SUCCESS {
        if let Some(e) = known {
            state::guarded("cuIpcCloseMemHandle", || unfree(p, Entry { count: 1, ..e }, r));
        } else if last == Some(false) {
            recorder::LEDGER.update(p, |e| e.count += 1);
        }
    }
    r
}
