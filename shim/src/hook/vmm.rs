//! The virtual memory API: physical handles are memory, mappings are addresses; they are never added up.

use vramscope_core::api::Api;
use vramscope_core::event::{Event, EventKind, Memory};

use super::{record_alloc, record_free, unfree};
use crate::call::Call;
use crate::context;
use crate::cuda::{
    AllocationProp, DevicePtr, ERROR_OUT_OF_MEMORY, MEM_LOCATION_TYPE_DEVICE, Ptr, Result, SUCCESS, Size,
};
use crate::hooks::types;
use crate::{driver, pool, recorder, state};

/// `cuMemCreate`.
pub unsafe fn create(
    real: types::cuMemCreate,
    from: usize,
    out: *mut u64,
    bytes: Size,
    prop: *const AllocationProp,
    flags: u64,
) -> Result {
    if out.is_null() || prop.is_null() || !state::active() {
        // SAFETY: the program's arguments.
        return unsafe { real(out, bytes, prop, flags) };
    }
    let start = driver::now_ns();
    // SAFETY: as above.
    let mut result = unsafe { real(out, bytes, prop, flags) };
    if result == ERROR_OUT_OF_MEMORY {
        // SAFETY: as above.
        result = pool::retrying_after(result, &|| unsafe { real(out, bytes, prop, flags) });
    }
    let took = driver::now_ns().saturating_sub(start);
    state::guarded("cuMemCreate", || {
        let call = Call::new(Api::CuMemCreate, from);
        // SAFETY: not null, and the driver read it.
        let on_device = unsafe { (*prop).location_type } == MEM_LOCATION_TYPE_DEVICE;
        // A handle of host memory (location HOST, HOST_NUMA) is pinned host memory by another name.
        let memory = if on_device { Memory::Vmm } else { Memory::Pinned };
        // SAFETY: the driver wrote it on success.
        let handle = unsafe { *out };
        record_alloc(&call, memory, handle_key(handle), bytes as u64, 0, result, took);
    });
    result
}

/// Handles and pointers live in one table: a handle's key has the top bit set.
pub fn handle_key(handle: u64) -> u64 {
    handle | 1 << 63
}

/// `cuMemRelease`. The memory goes with the last release and the last unmapping; the driver counts both, the history shows
/// the release.
pub unsafe fn release(real: types::cuMemRelease, from: usize, handle: u64) -> Result {
    if handle == 0 || !state::active() {
        // SAFETY: the program's argument.
        return unsafe { real(handle) };
    }
    let key = handle_key(handle);
    let known = state::guarded("cuMemRelease", || record_free(&Call::new(Api::CuMemRelease, from), key, 0)).flatten();
    // SAFETY: as above.
    let r = unsafe { real(handle) };
    if let Some(e) = known {
        if r == SUCCESS {
            crate::sight::forget(&e);
        } else {
            state::guarded("cuMemRelease", || unfree(key, e, r));
        }
    }
    r
}

/// `cuMemMap`.
pub unsafe fn map(
    real: types::cuMemMap,
    from: usize,
    p: DevicePtr,
    bytes: Size,
    offset: Size,
    handle: u64,
    flags: u64,
) -> Result {
    // SAFETY: the program's arguments.
    let r = pool::retrying(|| unsafe { real(p, bytes, offset, handle, flags) });
    if r == SUCCESS && state::active() {
        state::guarded("cuMemMap", || mapped(EventKind::Map, Api::CuMemMap, from, p, bytes, handle));
    }
    r
}

/// `cuMemUnmap`.
pub unsafe fn unmap(real: types::cuMemUnmap, from: usize, p: DevicePtr, bytes: Size) -> Result {
    // SAFETY: the program's arguments.
    let r = unsafe { real(p, bytes) };
    if r == SUCCESS && state::active() {
        state::guarded("cuMemUnmap", || mapped(EventKind::Unmap, Api::CuMemUnmap, from, p, bytes, 0));
    }
    r
}

fn mapped(kind: EventKind, api: Api, from: usize, p: DevicePtr, bytes: Size, handle: u64) {
    let call = Call::new(api, from);
    let id = if handle == 0 { 0 } else { recorder::LEDGER.get(handle_key(handle)).map_or(0, |e| e.id) };
    recorder::event(&Event {
        kind,
        api,
        memory: Memory::Vmm,
        context: context::current().map_or(0, |c| c.slot().number()),
        id,
        address: p,
        bytes: bytes as u64,
        caller: call.caller,
        ..Event::default()
    });
}

/// `cuMemSetAccess`: page tables are memory too.
pub unsafe fn set_access(
    real: types::cuMemSetAccess,
    _: usize,
    p: DevicePtr,
    bytes: Size,
    desc: Ptr,
    count: Size,
) -> Result {
    // SAFETY: the program's arguments.
    pool::retrying(|| unsafe { real(p, bytes, desc, count) })
}
