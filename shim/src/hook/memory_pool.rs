//! Memory pools: what is asked about them and done to them holds for the arena that stands for them, too.

use crate::arena::{self, Attribute};
use crate::cuda::{Access, Device, MEM_LOCATION_TYPE_DEVICE, PoolProps, Ptr, Result, SUCCESS, Size};
use crate::hooks::types;
use crate::state;

/// Whether the arena stands for any.
fn ours() -> bool {
    arena::is_on() && state::started()
}

/// `cuMemPoolCreate`.
pub unsafe fn create(real: types::cuMemPoolCreate, _: usize, out: *mut Ptr, props: *const PoolProps) -> Result {
    // SAFETY: the program's arguments.
    let r = unsafe { real(out, props) };
    if r == SUCCESS && !out.is_null() && !props.is_null() && arena::is_on() && state::active() {
        // SAFETY: the driver read the one and wrote the other.
        let (pool, props) = unsafe { (*out as usize, &*props) };
        state::guarded("cuMemPoolCreate", || arena::created(pool, props));
    }
    r
}

/// `cuMemPoolDestroy`.
pub unsafe fn destroy(real: types::cuMemPoolDestroy, _: usize, pool: Ptr) -> Result {
    // SAFETY: the program's argument.
    let r = unsafe { real(pool) };
    if r == SUCCESS && ours() {
        state::guarded("cuMemPoolDestroy", || arena::destroyed(pool as usize));
    }
    r
}

/// `cuMemPoolTrimTo`.
pub unsafe fn trim_to(real: types::cuMemPoolTrimTo, _: usize, pool: Ptr, keep: Size) -> Result {
    // SAFETY: the program's arguments.
    let r = unsafe { real(pool, keep) };
    if r == SUCCESS && ours() {
        state::guarded("cuMemPoolTrimTo", || arena::trim_to(pool as usize, keep as u64));
    }
    r
}

/// `cuMemPoolGetAttribute`.
pub unsafe fn get_attribute(
    real: types::cuMemPoolGetAttribute,
    _: usize,
    pool: Ptr,
    attribute: i32,
    value: Ptr,
) -> Result {
    // SAFETY: the program's arguments.
    let r = unsafe { real(pool, attribute, value) };
    if r == SUCCESS && !value.is_null() && ours() {
        let more = state::guarded("cuMemPoolGetAttribute", || arena::attribute(pool as usize, attribute));
        if let Some(Attribute::Add(bytes)) = more {
            // SAFETY: such attributes are 8-byte numbers; the driver just wrote one.
            unsafe { *value.cast::<u64>() += bytes };
        }
    }
    r
}

/// `cuMemPoolSetAttribute`.
pub unsafe fn set_attribute(
    real: types::cuMemPoolSetAttribute,
    _: usize,
    pool: Ptr,
    attribute: i32,
    value: Ptr,
) -> Result {
    // SAFETY: the program's arguments.
    let r = unsafe { real(pool, attribute, value) };
    if r == SUCCESS && !value.is_null() && arena::is_on() && state::active() && arena::is_told(attribute) {
        // SAFETY: such attributes are 8-byte numbers; the driver just read one.
        let value = unsafe { *value.cast::<u64>() };
        state::guarded("cuMemPoolSetAttribute", || arena::set_attribute(pool as usize, attribute, value));
    }
    r
}

/// `cuMemPoolSetAccess`.
pub unsafe fn set_access(
    real: types::cuMemPoolSetAccess,
    _: usize,
    pool: Ptr,
    list: *const Access,
    count: Size,
) -> Result {
    // SAFETY: the program's arguments.
    let r = unsafe { real(pool, list, count) };
    if r == SUCCESS && !list.is_null() && arena::is_on() && state::active() {
        // SAFETY: a list of so many, as the driver just read it.
        let list = unsafe { std::slice::from_raw_parts(list, count) };
        return state::guarded("cuMemPoolSetAccess", || arena::set_access(pool as usize, list)).unwrap_or(r);
    }
    r
}

/// `cuDeviceSetMemPool`.
pub unsafe fn set_current(real: types::cuDeviceSetMemPool, _: usize, device: Device, pool: Ptr) -> Result {
    // SAFETY: the program's arguments.
    let r = unsafe { real(device, pool) };
    if r == SUCCESS && ours() {
        state::guarded("cuDeviceSetMemPool", arena::forget_current);
    }
    r
}

/// `cuMemSetMemPool`: the same, of a place (CUDA 13).
pub unsafe fn set_current_of(real: types::cuMemSetMemPool, _: usize, place: *mut i32, kind: i32, pool: Ptr) -> Result {
    // SAFETY: the program's arguments.
    let r = unsafe { real(place, kind, pool) };
    // SAFETY: null, or a place that begins with its type, as the driver just read it.
    if r == SUCCESS && ours() && !place.is_null() && unsafe { *place } == MEM_LOCATION_TYPE_DEVICE {
        state::guarded("cuMemSetMemPool", arena::forget_current);
    }
    r
}
