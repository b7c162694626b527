//! The answers to questions about memory that a capture asked for (`captured`), where the driver has none.

use crate::captured::{self, Captured};
use crate::cuda::{
    DevicePtr, ERROR_INVALID_VALUE, ERROR_NOT_FOUND_RANGE, MEMORY_TYPE_DEVICE, POINTER_ATTRIBUTE_CONTEXT,
    POINTER_ATTRIBUTE_DEVICE_ORDINAL, POINTER_ATTRIBUTE_DEVICE_POINTER, POINTER_ATTRIBUTE_IS_LEGACY_IPC_CAPABLE,
    POINTER_ATTRIBUTE_IS_MANAGED, POINTER_ATTRIBUTE_MEMORY_TYPE, POINTER_ATTRIBUTE_RANGE_SIZE,
    POINTER_ATTRIBUTE_RANGE_START, Ptr, Result, SUCCESS, Size,
};
use crate::{driver, state};

fn look(p: DevicePtr) -> Option<Captured> {
    if !captured::any() || !state::started() {
        return None;
    }
    state::guarded("pointer look-up", || captured::at(p)).flatten()
}

/// What would be said of stream-ordered memory; not what only its physical memory could tell. In bytes: 4 or 8.
enum Value {
    Four(u32),
    Eight(u64),
}

fn value(attribute: i32, p: DevicePtr, c: &Captured) -> Option<Value> {
    Some(match attribute {
        // (Of no context: the device's pool.)
        POINTER_ATTRIBUTE_CONTEXT => Value::Eight(0),
        POINTER_ATTRIBUTE_MEMORY_TYPE => Value::Four(MEMORY_TYPE_DEVICE),
        POINTER_ATTRIBUTE_DEVICE_POINTER => Value::Eight(p),
        POINTER_ATTRIBUTE_IS_MANAGED | POINTER_ATTRIBUTE_IS_LEGACY_IPC_CAPABLE => Value::Four(0),
        POINTER_ATTRIBUTE_DEVICE_ORDINAL => Value::Four(c.device as u32),
        POINTER_ATTRIBUTE_RANGE_START => Value::Eight(c.address),
        POINTER_ATTRIBUTE_RANGE_SIZE => Value::Eight(c.bytes),
        _ => return None,
    })
}

/// # Safety
/// The program's variable for this attribute.
unsafe fn write(attribute: i32, data: Ptr, p: DevicePtr, c: &Captured) -> bool {
    match value(attribute, p, c) {
        // SAFETY: attributes of this size.
        Some(Value::Four(v)) => unsafe { *data.cast::<u32>() = v },
        // SAFETY: as above.
        Some(Value::Eight(v)) => unsafe { *data.cast::<u64>() = v },
        None => return false,
    }
    true
}

/// After the driver's answer to `cuPointerGetAttribute`.
///
/// # Safety
/// The program's arguments.
pub unsafe fn attribute(r: Result, data: Ptr, attribute: i32, p: DevicePtr) -> Result {
    if r != ERROR_INVALID_VALUE || data.is_null() {
        return r;
    }
    match look(p) {
        // SAFETY: not null; the program's variable.
        Some(c) if unsafe { write(attribute, data, p, &c) } => SUCCESS,
        _ => r,
    }
}

/// After the driver's answer to `cuPointerGetAttributes`, which succeeds for any address.
///
/// # Safety
/// Two arrays of `count` elements, as the driver just used them.
pub unsafe fn attributes(count: usize, names: *const i32, data: *const Ptr, p: DevicePtr) {
    let Some(c) = look(p).filter(|_| !driver::is_known(p)) else { return };
    for i in 0..count {
        // SAFETY: the caller's promise.
        let (name, place) = unsafe { (*names.add(i), *data.add(i)) };
        if !place.is_null() {
            // SAFETY: not null; the program's variable.
            unsafe { write(name, place, p, &c) };
        }
    }
}

/// After the driver's answer to `cuMemGetAddressRange`.
///
/// # Safety
/// The program's arguments.
pub unsafe fn range(r: Result, base: *mut DevicePtr, bytes: *mut Size, p: DevicePtr) -> Result {
    let Some(c) = (r == ERROR_NOT_FOUND_RANGE).then(|| look(p)).flatten() else { return r };
    if !base.is_null() {
        // SAFETY: not null.
        unsafe { *base = c.address };
    }
    if !bytes.is_null() {
        // SAFETY: not null.
        unsafe { *bytes = c.bytes as usize };
    }
    SUCCESS
}
