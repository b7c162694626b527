//! Addresses and physical memory, apart.

use super::*;
use crate::cuda::{
    AllocationProp, ERROR_NOT_SUPPORTED, MEM_ALLOCATION_TYPE_PINNED, MEM_LOCATION_TYPE_DEVICE, Placement,
};

fn placement(device: i32) -> Placement {
    Placement {
        head: AllocationProp {
            kind: MEM_ALLOCATION_TYPE_PINNED,
            requested_handle_types: 0,
            location_type: MEM_LOCATION_TYPE_DEVICE,
            location_id: device,
        },
        win32: 0,
        flags: [0; 8],
    }
}

/// The grain of a device's physical memory, in bytes.
pub fn granularity(device: i32) -> Option<u64> {
    let mut bytes = 0;
    // SAFETY: pointers to locals.
    let r = unsafe { cuMemGetAllocationGranularity()?(&mut bytes, &placement(device), 0) };
    (r == SUCCESS && bytes > 0).then_some(bytes as u64)
}

/// Reserves addresses.
pub fn reserve_addresses(bytes: u64, alignment: u64) -> std::result::Result<u64, Result> {
    let mut p = 0;
    let f = cuMemAddressReserve().ok_or(ERROR_NOT_SUPPORTED)?;
    // SAFETY: a pointer to a local.
    match unsafe { f(&mut p, bytes as usize, alignment as usize, 0, 0) } {
        SUCCESS => Ok(p),
        r => Err(r),
    }
}

/// Gives reserved addresses back.
pub fn free_addresses(p: u64, bytes: u64) {
    if let Some(f) = cuMemAddressFree() {
        // SAFETY: a range that was reserved so, without memory.
        unsafe { f(p, bytes as usize) };
    }
}

/// New physical memory of a device at reserved addresses, to which no device has access. It lives until it is unmapped.
pub fn map(device: i32, p: u64, bytes: u64) -> std::result::Result<(), Result> {
    let create = cuMemCreate().ok_or(ERROR_NOT_SUPPORTED)?;
    let mut handle = 0;
    // SAFETY: pointers to locals.
    let r = unsafe { create(&mut handle, bytes as usize, &placement(device), 0) };
    if r != SUCCESS {
        return Err(r);
    }
    map_handle(p, bytes, handle)
}

/// Maps a handle of so many bytes at addresses that are reserved and have no memory, and lets it go: from here on the memory
/// lives by its mappings.
fn map_handle(p: u64, bytes: u64, handle: u64) -> std::result::Result<(), Result> {
    // SAFETY: such addresses, and such a handle.
    let mapped = cuMemMap().map_or(ERROR_NOT_SUPPORTED, |map| unsafe { map(p, bytes as usize, 0, handle, 0) });
    if let Some(release) = cuMemRelease() {
        // SAFETY: the caller's handle, which nobody else has.
        unsafe { release(handle) };
    }
    if mapped == SUCCESS { Ok(()) } else { Err(mapped) }
}

/// Maps the physical memory of one whole mapping at other reserved addresses as well; no device has access there yet. It
/// lives until both are unmapped.
pub fn map_again(home: u64, p: u64, bytes: u64) -> std::result::Result<(), Result> {
    let retain = cuMemRetainAllocationHandle().ok_or(ERROR_NOT_SUPPORTED)?;
    let mut handle = 0;
    // SAFETY: a pointer to a local, and an address that is mapped.
    let r = unsafe { retain(&mut handle, home as *mut c_void) };
    if r != SUCCESS {
        return Err(r);
    }
    map_handle(p, bytes, handle)
}

/// Lets devices at mapped memory.
pub fn set_access(p: u64, bytes: u64, access: &[cuda::Access]) -> Result {
    let Some(f) = cuMemSetAccess() else { return ERROR_NOT_SUPPORTED };
    // SAFETY: whole mappings, and a list of so many.
    unsafe { f(p, bytes as usize, access.as_ptr(), access.len()) }
}

/// Unmaps whole mappings.
pub fn unmap(p: u64, bytes: u64) -> Result {
    let Some(f) = cuMemUnmap() else { return ERROR_NOT_SUPPORTED };
    // SAFETY: a mapping of ours that no work touches.
    unsafe { f(p, bytes as usize) }
}
