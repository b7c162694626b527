//! Questions whose native answer the pool would change: answered as if every freed byte had gone back.

use super::in_capture;
use crate::context;
use crate::cuda::{
    DevicePtr, ERROR_INVALID_VALUE, POINTER_ATTRIBUTE_BUFFER_ID, POINTER_ATTRIBUTE_MEMPOOL,
    POINTER_ATTRIBUTE_P2P_TOKENS, POINTER_ATTRIBUTE_RANGE_SIZE, POINTER_ATTRIBUTE_RANGE_START, Ptr, Result, SUCCESS,
    Size, Uint,
};
use crate::hooks::types;
use crate::pool::{self, POOL};
use crate::{arena, driver, limit, recorder, state};
use vramscope_core::arena::Block;
use vramscope_core::event::{Event, EventKind};
use vramscope_core::pool::{BlockInfo, State};

/// `cuMemGetInfo`: free includes what the pool would give back.
pub unsafe fn get_info(real: types::cuMemGetInfo_v2, _: usize, free: *mut Size, total: *mut Size) -> Result {
    // SAFETY: the program's arguments; either may be null.
    let r = unsafe { real(free, total) };
    if r != SUCCESS || state::switched_off() || state::forked() || state::broken() {
        return r;
    }
    state::guarded("cuMemGetInfo", || {
        // (A question that starts no recording. Who asks before the first allocation has a limit all the same.)
        let (device, all, cached) = if state::started() {
            let Some(c) = context::current() else { return };
            let (device, all) = (c.slot().device(), c.slot().total());
            (device, all, context::of_device(device).map(|id| POOL.inactive_bytes(id)).sum())
        } else {
            let Some(device) = driver::current_device() else { return };
            (device, driver::total_memory(device), 0u64)
        };
        if !free.is_null() {
            // SAFETY: not null; the driver wrote it.
            let now = unsafe { (*free as u64).saturating_add(cached).min(all) };
            // SAFETY: as above.
            unsafe { *free = limit::told(device, now, all).0 as usize };
        }
        let limit = limit::told(device, 0, all).1;
        if !total.is_null() && limit < all {
            // SAFETY: as above.
            unsafe { *total = limit as usize };
        }
    });
    r
}

/// `cuDeviceTotalMem`: the limit, where there is one.
pub unsafe fn total_mem(real: types::cuDeviceTotalMem_v2, _: usize, total: *mut Size, device: i32) -> Result {
    // SAFETY: the program's arguments.
    let r = unsafe { real(total, device) };
    // (A question that starts no recording.)
    if r == SUCCESS && !total.is_null() && !state::switched_off() {
        state::guarded("cuDeviceTotalMem", || {
            // SAFETY: not null; the driver wrote it.
            unsafe { *total = limit::of(device).map_or(*total, |l| (*total).min(l as usize)) };
        });
    }
    r
}

/// What the program may know of the pooled block around an address.
enum Around {
    /// The address is in no block of ours, or in one that is as large as it looks.
    Native,
    /// In this block.
    Block(BlockInfo),
    /// In this block of an arena.
    Ordered(Block),
    /// In memory that the program has freed, or past the end of what it asked for.
    Nothing,
}

fn around(p: DevicePtr) -> Around {
    if let Some(arena) = arena::holding(p) {
        return match arena.find(p) {
            Some(b) if p < b.address + b.requested => Around::Ordered(b),
            _ => Around::Nothing,
        };
    }
    let Some((base, _)) = driver::address_range(p) else { return Around::Native };
    let Some(b) = POOL.block_of(base) else { return Around::Native };
    if b.state == State::Inactive || p >= b.address + b.requested {
        return Around::Nothing;
    }
    Around::Block(b)
}

fn look(p: DevicePtr) -> Around {
    if p == 0 || !state::started() {
        return Around::Native;
    }
    state::guarded("pointer look-up", || around(p)).unwrap_or(Around::Native)
}

/// `cuMemGetAddressRange`: the size asked for, not the block's.
pub unsafe fn address_range(
    real: types::cuMemGetAddressRange_v2,
    _: usize,
    base: *mut DevicePtr,
    bytes: *mut Size,
    p: DevicePtr,
) -> Result {
    match look(p) {
        // SAFETY: the program's arguments.
        Around::Native => unsafe { in_capture::range(real(base, bytes, p), base, bytes, p) },
        // What the driver answers for memory that nobody owns.
        Around::Nothing => crate::cuda::ERROR_NOT_FOUND_RANGE,
        Around::Block(b) => {
            // SAFETY: the program's arguments.
            let r = unsafe { real(base, bytes, p) };
            if r == SUCCESS && !bytes.is_null() {
                // SAFETY: not null.
                unsafe { *bytes = b.requested as usize };
            }
            r
        }
        Around::Ordered(b) => {
            // SAFETY: as above.
            let r = unsafe { real(base, bytes, p) };
            if r == SUCCESS && !base.is_null() {
                // SAFETY: not null.
                unsafe { *base = b.address };
            }
            if r == SUCCESS && !bytes.is_null() {
                // SAFETY: not null.
                unsafe { *bytes = b.requested as usize };
            }
            r
        }
    }
}

/// An address that is nobody's: attributes of it are what the driver says of unknown pointers.
fn nobody() -> DevicePtr {
    static NOTHING: u64 = 0;
    &raw const NOTHING as DevicePtr
}

/// Buffer ids of pooled blocks: unlike any of the driver's, never used again.
fn buffer_id(b: &BlockInfo) -> u64 {
    b.id | 1 << 63
}

unsafe fn correct(attribute: i32, data: Ptr, b: &BlockInfo) {
    if data.is_null() {
        return;
    }
    match attribute {
        // SAFETY: the attribute's type is an 8-byte number; the driver just wrote one there.
        POINTER_ATTRIBUTE_RANGE_SIZE => unsafe { *data.cast::<u64>() = b.requested },
        // SAFETY: as above.
        POINTER_ATTRIBUTE_BUFFER_ID if !b.direct => unsafe { *data.cast::<u64>() = buffer_id(b) },
        // Peer-to-peer tokens name the memory to another driver: it must not be recycled.
        POINTER_ATTRIBUTE_P2P_TOKENS => leave_pool(b),
        _ => {}
    }
}

/// # Safety
/// What the driver just wrote for this attribute, or null.
unsafe fn correct_ordered(attribute: i32, data: Ptr, b: &Block) {
    if data.is_null() {
        return;
    }
    let value = match attribute {
        POINTER_ATTRIBUTE_RANGE_START => b.address,
        POINTER_ATTRIBUTE_RANGE_SIZE => b.requested,
        POINTER_ATTRIBUTE_BUFFER_ID => b.id | 1 << 63,
        POINTER_ATTRIBUTE_MEMPOOL => match arena::pool_of(b.address) {
            Some(pool) => pool as u64,
            None => return,
        },
        _ => return,
    };
    // SAFETY: these attributes are 8-byte numbers or pointers.
    unsafe { *data.cast::<u64>() = value };
}

/// The block leaves the pool for good.
pub fn leave_pool(b: &BlockInfo) {
    if !b.exported && POOL.export(b.address).is_some() {
        recorder::event(&Event { kind: EventKind::Export, id: b.id, address: b.address, ..Event::default() });
    }
}

/// `cuPointerGetAttribute`.
pub unsafe fn attribute(
    real: types::cuPointerGetAttribute,
    _: usize,
    data: Ptr,
    attribute: i32,
    p: DevicePtr,
) -> Result {
    match look(p) {
        // SAFETY: the program's arguments.
        Around::Native => unsafe { in_capture::attribute(real(data, attribute, p), data, attribute, p) },
        // SAFETY: as above; the address is not memory of CUDA.
        Around::Nothing => match unsafe { real(data, attribute, nobody()) } {
            SUCCESS => ERROR_INVALID_VALUE,
            r => r,
        },
        Around::Block(b) => {
            // SAFETY: as above.
            let r = unsafe { real(data, attribute, p) };
            if r == SUCCESS {
                // SAFETY: as above.
                unsafe { correct(attribute, data, &b) };
            }
            r
        }
        Around::Ordered(b) => {
            // SAFETY: as above.
            let r = unsafe { real(data, attribute, p) };
            if r == SUCCESS {
                // SAFETY: as above.
                unsafe { correct_ordered(attribute, data, &b) };
            }
            r
        }
    }
}

/// `cuPointerGetAttributes`.
pub unsafe fn attributes(
    real: types::cuPointerGetAttributes,
    _: usize,
    count: Uint,
    names: *mut i32,
    data: *mut Ptr,
    p: DevicePtr,
) -> Result {
    match look(p) {
        Around::Native => {
            // SAFETY: the program's arguments.
            let r = unsafe { real(count, names, data, p) };
            if r == SUCCESS && !names.is_null() && !data.is_null() {
                // SAFETY: two arrays of `count` elements, as the driver just used them.
                unsafe { in_capture::attributes(count as usize, names, data, p) };
            }
            r
        }
        // SAFETY: as above.
        Around::Nothing => unsafe { real(count, names, data, nobody()) },
        Around::Block(b) => {
            // SAFETY: as above.
            let r = unsafe { real(count, names, data, p) };
            if r == SUCCESS && !names.is_null() && !data.is_null() {
                for i in 0..count as usize {
                    // SAFETY: two arrays of `count` elements, as the driver just used them.
                    unsafe { correct(*names.add(i), *data.add(i), &b) };
                }
            }
            r
        }
        Around::Ordered(b) => {
            // SAFETY: as above.
            let r = unsafe { real(count, names, data, p) };
            if r == SUCCESS && !names.is_null() && !data.is_null() {
                for i in 0..count as usize {
                    // SAFETY: as above.
                    unsafe { correct_ordered(*names.add(i), *data.add(i), &b) };
                }
            }
            r
        }
    }
}

/// The block whose memory an address lies in, for calls that hand it on.
pub fn block_at(p: DevicePtr) -> Option<BlockInfo> {
    let (base, _) = driver::address_range(p)?;
    pool::pooled(base)
}
