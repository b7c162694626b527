//! `vramscope_torch_*`: PyTorch's pluggable allocator (`torch.cuda.memory.CUDAPluggableAllocator`), served from the same arena
//! as `cudaMallocAsync`. `python/vramscope/torch.py` puts the pieces together.
//!
//! The signatures are those that PyTorch calls through its function pointers (torch/csrc/cuda/CUDAPluggableAllocator.h, 2.0
//! to 2.11): a `MempoolId_t` comes in two registers, a `std::function` as a pointer to the caller's, which is not kept. What
//! the arena can't serve is the driver's, through our own hooks.

use std::ffi::{c_int, c_void};

use vramscope_core::api::Api;
use vramscope_core::arena::StreamId;
use vramscope_core::event::TrimWhy;

use crate::call::Call;
use crate::cuda::{DevicePtr, Ptr, SUCCESS, Stream};
use crate::entry::entry;
use crate::hook::served::{self, Ask};
use crate::hooks::export;
use crate::settings::Limit;
use crate::{arena, context, driver, limit, pool, state};

/// Memory for work of a stream; null: there is none.
///
/// # Safety
/// A stream of the device, whose context is current.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn vramscope_torch_malloc(size: isize, device: c_int, stream: Stream) -> Ptr {
    entry!(3, malloc)
}

/// Gives it back, in the order of the stream.
///
/// # Safety
/// What [`vramscope_torch_malloc`] gave, and its stream.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn vramscope_torch_free(p: Ptr, size: isize, device: c_int, stream: Stream) {
    entry!(4, free)
}

/// Runs `f` with a context current. A thread that has none (autograd's, at its first request) would get the device's primary
/// one at its first call of the runtime, which this is not.
fn on_device<T: Default>(device: c_int, f: impl FnOnce() -> T) -> T {
    if driver::current_context().is_some() {
        return f();
    }
    // One that can't be made current: whatever the driver says without.
    let mut f = Some(f);
    let mut call = || f.take().map(|f| f());
    let with = driver::primary_of(device).and_then(|context| driver::in_context(context, &mut call));
    with.or_else(call).unwrap_or_default()
}

unsafe extern "C-unwind" fn malloc(size: isize, device: c_int, stream: Stream, from: usize) -> Ptr {
    if size <= 0 {
        return std::ptr::null_mut();
    }
    on_device(device, || allocated(size, device, stream, from)) as Ptr
}

fn allocated(size: isize, device: c_int, stream: Stream, from: usize) -> DevicePtr {
    if state::active() {
        let served = state::guarded("vramscope_torch_malloc", || {
            let capturing = served::is_capturing(stream, false);
            let arena = arena::private_of(device, capturing);
            // Memory that a graph uses at every launch is the graph's, unless PyTorch has named a pool for it.
            let arena = if capturing { arena? } else { arena.or_else(|| arena::made(device))? };
            let ask = Ask { bytes: size as u64, pool: 0, stream, per_thread: false, arena: Some(arena), device };
            served::alloc(&Call::new(Api::CuMemAllocAsync, from), &ask)
        });
        if let Some(Some(Ok(p))) = served {
            return p;
        }
    }
    let mut p: DevicePtr = 0;
    // SAFETY: a pointer to a local, and the caller's stream.
    match unsafe { export::cuMemAllocAsync(&mut p, size as usize, stream) } {
        SUCCESS => p,
        _ => 0,
    }
}

unsafe extern "C-unwind" fn free(p: Ptr, _size: isize, device: c_int, stream: Stream, from: usize) {
    if !p.is_null() {
        on_device(device, || freed(p, stream, from));
    }
}

fn freed(p: Ptr, stream: Stream, from: usize) {
    match arena::holding(p as u64) {
        // The parent's; see `cuMemFreeAsync`.
        Some(_) if state::forked() => {}
        Some(arena) => {
            state::guarded("vramscope_torch_free", || {
                served::free_captured(&Call::new(Api::CuMemFreeAsync, from), arena, p as u64, stream)
            });
        }
        // SAFETY: what the driver gave, and the caller's stream.
        None => drop(unsafe { export::cuMemFreeAsync(p as u64, stream) }),
    }
}

/// Another stream uses the memory: it is not used again before that stream's work until its free is done.
#[unsafe(no_mangle)]
pub extern "C" fn vramscope_torch_record_stream(p: *mut c_void, stream: Stream) {
    if let Some(arena) = arena::holding(p as u64).filter(|_| !state::forked()) {
        state::guarded("vramscope_torch_record_stream", || {
            let capturing = served::is_capturing(stream, false);
            let device = arena.backing().device();
            let named = if capturing { arena::capturing(stream, device) } else { arena::named(stream, false).ok() };
            if let Some(named) = named {
                // An address that is no block's is the caller's mistake; there is nobody to tell.
                let _ = arena.record_stream(p as u64, StreamId(named.id));
            }
        });
    }
}

/// `torch.cuda.empty_cache()`.
#[unsafe(no_mangle)]
pub extern "C" fn vramscope_torch_reset() {
    if state::started() {
        state::guarded("vramscope_torch_reset", || {
            for id in context::all() {
                arena::settle(context::slot(id).device());
            }
            pool::give_back(TrimWhy::Asked)
        });
    }
}

/// `torch.cuda.set_per_process_memory_fraction()`: as `vramscope_set_limit`.
#[unsafe(no_mangle)]
pub extern "C" fn vramscope_torch_memory_fraction(fraction: f64, device: c_int) {
    if state::active() && (0.0..=1.0).contains(&fraction) {
        state::guarded("vramscope_torch_memory_fraction", || {
            limit::set(device, Limit::Share(fraction), limit::By::Fraction)
        });
    }
}

/// PyTorch begins: nothing is needed.
#[unsafe(no_mangle)]
pub extern "C" fn vramscope_torch_init(_devices: c_int) {}

/// The block that an address lies in, and its size.
///
/// # Safety
/// `size` is null or the caller's variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vramscope_torch_base(p: *mut c_void, size: *mut usize) -> *mut c_void {
    let look = || arena::holding(p as u64).filter(|_| !state::forked())?.find(p as u64);
    let Some(block) = state::guarded("vramscope_torch_base", look).flatten() else { return p };
    if !size.is_null() {
        // SAFETY: as the caller says.
        unsafe { *size = block.bytes as usize };
    }
    block.address as *mut c_void
}

/// Requests go to a private pool from now on.
#[unsafe(no_mangle)]
pub extern "C" fn vramscope_torch_begin_pool(device: c_int, first: u64, second: u64, _filter: *mut c_void) {
    if state::active() {
        state::guarded("vramscope_torch_begin_pool", || arena::begin_private(device, (first, second)));
    }
}

/// No more of them do.
#[unsafe(no_mangle)]
pub extern "C" fn vramscope_torch_end_pool(device: c_int, first: u64, second: u64) {
    if !state::forked() {
        state::guarded("vramscope_torch_end_pool", || arena::end_private(device, (first, second)));
    }
}

/// Nobody uses the pool any more.
#[unsafe(no_mangle)]
pub extern "C" fn vramscope_torch_release_pool(device: c_int, first: u64, second: u64) {
    if !state::forked() {
        state::guarded("vramscope_torch_release_pool", || arena::release_private(device, (first, second)));
    }
}
