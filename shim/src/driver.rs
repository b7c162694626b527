//! Driver calls that vramscope makes for itself: never the runtime's (that would leave an error behind for the program's
//! cudaGetLastError), and always the real function, so that no hook sees them.

use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicPtr, Ordering::*};

use vramscope_core::event::Memory;

use crate::cuda::{self, Context, DevicePtr, Result, SUCCESS, Size, Stream, Uint};
use crate::hooks::Index;
use crate::real;

macro_rules! functions {
    ($($name:ident($($t:ty),*);)*) => {
        #[allow(non_upper_case_globals)]
        mod pointers {
            use super::*;
            $(pub static $name: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());)*
        }
        /// Looks all of them up in libcuda.
        pub fn resolve(handle: *mut c_void) {
            $(pointers::$name.store(real::symbol(handle, const { name(concat!(stringify!($name), "\0")) }), Release);)*
        }
        $(#[allow(non_snake_case)]
        #[inline]
        fn $name() -> Option<unsafe extern "C-unwind" fn($($t),*) -> Result> {
            let p = pointers::$name.load(Acquire);
            if p.is_null() {
                return None;
            }
            // SAFETY: libcuda's function of this name, whose C type stands in the list.
            Some(unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C-unwind" fn($($t),*) -> Result>(p) })
        })*
    };
}

const fn name(s: &str) -> &std::ffi::CStr {
    match std::ffi::CStr::from_bytes_with_nul(s.as_bytes()) {
        Ok(c) => c,
        Err(_) => panic!("a name with a NUL in it"),
    }
}

functions! {
    cuDriverGetVersion(*mut i32);
    cuCtxGetCurrent(*mut Context);
    cuCtxGetDevice(*mut i32);
    cuCtxPushCurrent_v2(Context);
    cuCtxPopCurrent_v2(*mut Context);
    cuCtxSynchronize();
    cuCtxRecordEvent(Context, cuda::Event);
    cuCtxWaitEvent(Context, cuda::Event);
    cuEventCreate(*mut cuda::Event, Uint);
    cuEventSynchronize(cuda::Event);
    cuDevicePrimaryCtxGetState(i32, *mut Uint, *mut i32);
    cuDeviceTotalMem_v2(*mut Size, i32);
    cuDeviceGetName(*mut c_char, i32, i32);
    cuDeviceGetUuid_v2(*mut [u8; 16], i32);
    cuDeviceGetUuid(*mut [u8; 16], i32);
    cuMemsetD8_v2(DevicePtr, u8, Size);
    cuThreadExchangeStreamCaptureMode(*mut i32);
    cuStreamIsCapturing(Stream, *mut i32);
    cuStreamIsCapturing_ptsz(Stream, *mut i32);
    cuStreamGetCaptureInfo(Stream, *mut i32, *mut u64);
    cuStreamGetCaptureInfo_ptsz(Stream, *mut i32, *mut u64);
    cuPointerGetAttribute(*mut c_void, i32, DevicePtr);
    cuStreamGetId(Stream, *mut u64);
    cuStreamGetId_ptsz(Stream, *mut u64);
    cuStreamGetCtx(Stream, *mut Context);
    cuStreamGetCtx_ptsz(Stream, *mut Context);
    cuEventRecord(cuda::Event, Stream);
    cuEventQuery(cuda::Event);
    cuEventDestroy_v2(cuda::Event);
    cuStreamWaitEvent(Stream, cuda::Event, Uint);
    cuMemAddressReserve(*mut DevicePtr, Size, Size, DevicePtr, u64);
    cuMemAddressFree(DevicePtr, Size);
    cuMemCreate(*mut u64, Size, *const cuda::Placement, u64);
    cuMemMap(DevicePtr, Size, Size, u64, u64);
    cuMemSetAccess(DevicePtr, Size, *const cuda::Access, Size);
    cuMemUnmap(DevicePtr, Size);
    cuMemRelease(u64);
    cuMemRetainAllocationHandle(*mut u64, *mut c_void);
    cuMemGetAllocationGranularity(*mut Size, *const cuda::Placement, Uint);
    cuMemsetD8Async(DevicePtr, u8, Size, Stream);
    cuDeviceGetDefaultMemPool(*mut usize, i32);
    cuDeviceGetMemPool(*mut usize, i32);
}

mod ordered;
mod virtual_memory;
pub use ordered::*;
pub use virtual_memory::*;

/// The handle of the calling thread's current context.
#[inline]
pub fn current_context() -> Option<Context> {
    let mut c: Context = 0;
    // SAFETY: a pointer to a local.
    (unsafe { cuCtxGetCurrent()?(&mut c) } == SUCCESS && c != 0).then_some(c)
}

/// The device of the current context.
pub fn current_device() -> Option<i32> {
    let mut d = 0;
    // SAFETY: a pointer to a local.
    (unsafe { cuCtxGetDevice()?(&mut d) } == SUCCESS).then_some(d)
}

/// CUDA version of the driver; 0: unknown.
pub fn version() -> u32 {
    let mut v = 0;
    let Some(f) = cuDriverGetVersion() else { return 0 };
    // SAFETY: a pointer to a local.
    if unsafe { f(&mut v) } == SUCCESS { v as u32 } else { 0 }
}

/// The handle of a device's primary context, if it is alive.
pub fn primary_of(device: i32) -> Option<Context> {
    if !primary_active(device)? {
        return None;
    }
    let retain = real::get(Index::cuDevicePrimaryCtxRetain as usize)?;
    let release = real::get(Index::cuDevicePrimaryCtxRelease_v2 as usize)
        .or_else(|| real::get(Index::cuDevicePrimaryCtxRelease as usize))?;
    // SAFETY: libcuda's functions of these names.
    let retain: crate::hooks::types::cuDevicePrimaryCtxRetain = unsafe { std::mem::transmute(retain) };
    // SAFETY: as above.
    let release: crate::hooks::types::cuDevicePrimaryCtxRelease_v2 = unsafe { std::mem::transmute(release) };
    let mut c: Context = 0;
    // SAFETY: a pointer to a local.
    if unsafe { retain(&mut c, device) } != SUCCESS {
        return None;
    }
    // It is retained by its user, so this is never the last release.
    // SAFETY: plain arguments.
    unsafe { release(device) };
    Some(c)
}

/// Whether a device's primary context is alive.
pub fn primary_active(device: i32) -> Option<bool> {
    let (mut flags, mut active) = (0, 0);
    // SAFETY: pointers to locals.
    (unsafe { cuDevicePrimaryCtxGetState()?(device, &mut flags, &mut active) } == SUCCESS).then_some(active != 0)
}

/// Whether there is a device of this number; `None`: the driver was not initialized yet.
pub fn has_device(device: i32) -> Option<bool> {
    if device < 0 {
        return Some(false);
    }
    let mut bytes = 0;
    // SAFETY: a pointer to a local.
    match unsafe { cuDeviceTotalMem_v2()?(&mut bytes, device) } {
        SUCCESS => Some(true),
        cuda::ERROR_INVALID_DEVICE => Some(false),
        _ => None,
    }
}

/// Bytes of a device.
pub fn total_memory(device: i32) -> u64 {
    let mut bytes = 0;
    let Some(f) = cuDeviceTotalMem_v2() else { return 0 };
    // SAFETY: a pointer to a local.
    if unsafe { f(&mut bytes, device) } == SUCCESS { bytes as u64 } else { 0 }
}

/// A device's name.
pub fn device_name(device: i32) -> String {
    let mut text = [0u8; 256];
    let Some(f) = cuDeviceGetName() else { return String::new() };
    // SAFETY: a buffer of the length given.
    if unsafe { f(text.as_mut_ptr().cast(), 255, device) } != SUCCESS {
        return String::new();
    }
    let end = text.iter().position(|b| *b == 0).unwrap_or(0);
    String::from_utf8_lossy(&text[..end]).into_owned()
}

/// A device's UUID (a MIG instance's own, where there is one), as `GPU-…`.
pub fn device_uuid(device: i32) -> String {
    let mut u = [0u8; 16];
    let Some(f) = cuDeviceGetUuid_v2().or_else(cuDeviceGetUuid) else { return String::new() };
    // SAFETY: a pointer to 16 bytes.
    if unsafe { f(&mut u, device) } != SUCCESS {
        return String::new();
    }
    let h: String = u.iter().map(|b| format!("{b:02x}")).collect();
    format!("GPU-{}-{}-{}-{}-{}", &h[..8], &h[8..12], &h[12..16], &h[16..20], &h[20..])
}

/// Real (free, total) of the current context's device.
pub fn memory_info() -> Option<(u64, u64)> {
    let f = real::get(Index::cuMemGetInfo_v2 as usize)?;
    // SAFETY: libcuda's function of this name.
    let f: crate::hooks::types::cuMemGetInfo_v2 = unsafe { std::mem::transmute(f) };
    let (mut free, mut total) = (0, 0);
    // SAFETY: pointers to locals.
    (unsafe { f(&mut free, &mut total) } == SUCCESS).then_some((free as u64, total as u64))
}

/// The same of the device of a context that need not be current.
pub fn memory_info_of(context: Context) -> Option<(u64, u64)> {
    within(context, memory_info)
}

/// Base and size of the real allocation that holds an address.
pub fn address_range(p: DevicePtr) -> Option<(u64, u64)> {
    let f = real::get(Index::cuMemGetAddressRange_v2 as usize)?;
    // SAFETY: libcuda's function of this name.
    let f: crate::hooks::types::cuMemGetAddressRange_v2 = unsafe { std::mem::transmute(f) };
    let (mut base, mut bytes) = (0, 0);
    // SAFETY: pointers to locals.
    (unsafe { f(&mut base, &mut bytes, p) } == SUCCESS).then_some((base, bytes as u64))
}

/// Whether an address is managed memory.
pub fn is_managed(p: DevicePtr) -> bool {
    let Some(f) = cuPointerGetAttribute() else { return false };
    let mut managed = 0u32;
    // SAFETY: the attribute is a 4-byte flag.
    unsafe { f((&raw mut managed).cast(), cuda::POINTER_ATTRIBUTE_IS_MANAGED, p) == SUCCESS && managed != 0 }
}

/// Whether the driver knows an address.
pub fn is_known(p: DevicePtr) -> bool {
    let Some(f) = cuPointerGetAttribute() else { return false };
    let mut kind = 0u32;
    // SAFETY: the attribute is a 4-byte number.
    unsafe { f((&raw mut kind).cast(), cuda::POINTER_ATTRIBUTE_MEMORY_TYPE, p) == SUCCESS }
}

/// Runs `f` with `context` current.
fn within<T>(context: Context, f: impl FnOnce() -> Option<T>) -> Option<T> {
    let push = cuCtxPushCurrent_v2()?;
    let pop = cuCtxPopCurrent_v2()?;
    if current_context() == Some(context) {
        return f();
    }
    // SAFETY: a context handle that is alive, or that the driver refuses.
    if unsafe { push(context) } != SUCCESS {
        return None;
    }
    let r = f();
    let mut popped = 0;
    // SAFETY: a pointer to a local.
    unsafe { pop(&mut popped) };
    r
}

/// Whether this driver has the context events of CUDA 12.5.
pub fn has_context_events() -> bool {
    cuCtxRecordEvent().is_some() && cuCtxWaitEvent().is_some()
}

/// A new event of a context.
pub fn create_event(context: Context) -> Option<cuda::Event> {
    within(context, || {
        let mut e = 0;
        // SAFETY: a pointer to a local.
        (unsafe { cuEventCreate()?(&mut e, cuda::EVENT_DISABLE_TIMING) } == SUCCESS).then_some(e)
    })
}

/// The device barrier: whatever was submitted in the context comes before whatever will be. The host does not wait.
pub fn barrier(context: Context, event: cuda::Event) -> Result {
    match record(context, event) {
        SUCCESS => wait_on_device(context, event),
        r => r,
    }
}

/// Its first half: the event stands for whatever was submitted in the context.
pub fn record(context: Context, event: cuda::Event) -> Result {
    let Some(f) = cuCtxRecordEvent() else { return cuda::ERROR_NOT_FOUND };
    // SAFETY: a context and an event of it; the driver checks both.
    unsafe { f(context, event) }
}

/// Its second half: whatever will be submitted in the context comes after the event.
pub fn wait_on_device(context: Context, event: cuda::Event) -> Result {
    let Some(f) = cuCtxWaitEvent() else { return cuda::ERROR_NOT_FOUND };
    // SAFETY: as above.
    unsafe { f(context, event) }
}

/// Waits for an event.
pub fn wait(event: cuda::Event) -> Result {
    let Some(f) = cuEventSynchronize() else { return cuda::ERROR_NOT_FOUND };
    // SAFETY: an event handle; the driver checks it.
    unsafe { f(event) }
}

/// Waits for everything of a context.
pub fn synchronize(context: Context) -> Result {
    within(context, || {
        // SAFETY: no arguments.
        Some(unsafe { cuCtxSynchronize()?() })
    })
    .unwrap_or(cuda::ERROR_NOT_FOUND)
}

/// Fills device memory, and waits for it.
pub fn fill(context: Context, p: DevicePtr, byte: u8, bytes: u64) -> Result {
    within(context, || {
        // SAFETY: a block that nobody uses, of this size.
        let r = unsafe { cuMemsetD8_v2()?(p, byte, bytes as usize) };
        // SAFETY: no arguments.
        Some(if r == SUCCESS { unsafe { cuCtxSynchronize()?() } } else { r })
    })
    .unwrap_or(cuda::ERROR_NOT_FOUND)
}

/// Runs `f` with the thread's capture mode relaxed, so that a call which a global-mode capture elsewhere forbids does not
/// invalidate that capture.
pub fn relaxed<T>(f: impl FnOnce() -> T) -> T {
    let Some(exchange) = cuThreadExchangeStreamCaptureMode() else { return f() };
    let mut mode = cuda::CAPTURE_MODE_RELAXED;
    // SAFETY: a pointer to a local.
    let changed = unsafe { exchange(&mut mode) } == SUCCESS;
    let r = f();
    if changed {
        // SAFETY: a pointer to a local that holds the former mode.
        unsafe { exchange(&mut mode) };
    }
    r
}

/// Whether a stream captures (also: holds an invalidated capture).
pub fn is_capturing(stream: Stream, per_thread: bool) -> bool {
    captures(stream, per_thread) == Ok(true)
}

/// The same, or why it can't be told: of the legacy default stream while a blocking one captures (which harms nothing).
pub fn captures(stream: Stream, per_thread: bool) -> std::result::Result<bool, Result> {
    let Some(f) = (if per_thread { cuStreamIsCapturing_ptsz() } else { cuStreamIsCapturing() }) else {
        return Ok(false);
    };
    let mut status = 0;
    // SAFETY: the program's stream and a pointer to a local.
    match unsafe { f(stream, &mut status) } {
        SUCCESS => Ok(status != 0),
        r => Err(r),
    }
}

/// The number of the capture that a stream is in.
pub fn capture_of(stream: Stream, per_thread: bool) -> Option<u64> {
    let f = (if per_thread { cuStreamGetCaptureInfo_ptsz() } else { cuStreamGetCaptureInfo() })?;
    let (mut status, mut id) = (0, 0);
    // SAFETY: the program's stream and pointers to locals.
    (unsafe { f(stream, &mut status, &mut id) } == SUCCESS && status != 0).then_some(id)
}

/// Nanoseconds of the monotonic clock.
pub fn now_ns() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a pointer to a local.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Carries out a driver call and measures it, in nanoseconds.
pub fn timed<T>(f: impl FnOnce() -> T) -> (T, u64) {
    let t = now_ns();
    let r = f();
    (r, now_ns().saturating_sub(t))
}

/// Bytes that the driver charges for an allocation: whole 2 MiB pages over 1 MiB; smaller ones share pages.
pub fn charged(memory: Memory, bytes: u64) -> u64 {
    const PAGE: u64 = 2 << 20;
    if memory.on_device() && bytes > 1 << 20 { bytes.div_ceil(PAGE) * PAGE } else { bytes }
}
