//! `vramscope_*`: what a program can ask and tell, in C (include/vramscope.h). The Python package stands on it.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::*};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use vramscope_core::event::TrimWhy;

use crate::message::error;
use crate::settings::Limit;
use crate::{labels, limit, pause, pool, regions, snapshot, state, usage};

macro_rules! stats {
    ($($name:ident),*) => {
        /// `vramscope_stats_t`.
        #[repr(C)]
        #[derive(Clone, Copy, Default)]
        pub struct Stats {
            $($name: u64,)*
        }

        impl Stats {
            /// Each number with its name, in their order.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }
        }
    };
}

stats!(
    allocated,
    allocated_peak,
    reserved,
    reserved_peak,
    active,
    inactive,
    pool_active,
    pool_inactive,
    tensors,
    hoarded,
    pinned,
    allocations,
    failures,
    limit
);

/// What is in use on a device; `None`: it has no context here.
pub fn stats_of(device: i32) -> Option<Stats> {
    crate::context::of_device(device).next()?;
    let u = usage::on(device);
    Some(Stats {
        allocated: u.allocated,
        allocated_peak: u.allocated_peak,
        reserved: u.reserved,
        reserved_peak: u.reserved_peak,
        active: u.allocated,
        inactive: u.reserved.saturating_sub(u.allocated),
        pool_active: u.pool_active,
        pool_inactive: u.pool_inactive,
        tensors: u.tensors,
        hoarded: u.hoarded,
        pinned: u.pinned,
        allocations: u.allocations,
        failures: u.failures,
        limit: limit::of(device).unwrap_or(0),
    })
}

/// # Safety
/// A C string, or null.
unsafe fn bytes<'a>(text: *const c_char) -> &'a [u8] {
    // SAFETY: as the caller says.
    if text.is_null() { b"" } else { unsafe { CStr::from_ptr(text) }.to_bytes() }
}

/// Whether vramscope acts in this process.
#[unsafe(no_mangle)]
pub extern "C" fn vramscope_active() -> c_int {
    c_int::from(!state::switched_off() && !state::broken() && !state::forked())
}

/// The version.
#[unsafe(no_mangle)]
pub extern "C" fn vramscope_version() -> c_uint {
    let mut parts = env!("CARGO_PKG_VERSION").split('.').map(|p| p.parse::<c_uint>().unwrap_or(0));
    let mut next = || parts.next().unwrap_or(0);
    next() * 1_000_000 + next() * 1000 + next()
}

/// What is in use on a device.
///
/// # Safety
/// `out` has room for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vramscope_stats(device: c_int, out: *mut Stats, size: usize) -> c_int {
    if out.is_null() || !state::started() {
        return -1;
    }
    let told = state::guarded("vramscope_stats", || stats_of(device)).flatten();
    let Some(stats) = told else {
        let missing = state::guarded("vramscope_stats", || crate::driver::has_device(device) == Some(false));
        return if missing == Some(true) { -2 } else { -1 };
    };
    let size = size.min(size_of::<Stats>());
    // SAFETY: room for `size` bytes, as the caller says; plain numbers.
    unsafe { std::ptr::copy_nonoverlapping((&raw const stats).cast::<u8>(), out.cast::<u8>(), size) };
    0
}

/// Starts a device's peaks anew.
#[unsafe(no_mangle)]
pub extern "C" fn vramscope_reset_peak(device: c_int) {
    usage::reset_peak(device);
}

/// Gives the pool's cached memory back.
#[unsafe(no_mangle)]
pub extern "C" fn vramscope_empty_cache() -> u64 {
    if !state::started() {
        return 0;
    }
    let given = state::guarded("vramscope_empty_cache", || pool::give_back(TrimWhy::Asked));
    given.unwrap_or(0)
}

/// Limits a device.
#[unsafe(no_mangle)]
pub extern "C" fn vramscope_set_limit(device: c_int, bytes: u64, fraction: f64) -> c_int {
    // (Also before CUDA is there: the first line of a script is where a limit is set.)
    if !(0.0..=1.0).contains(&fraction) || vramscope_active() == 0 {
        return -1;
    }
    let wanted = if fraction > 0.0 { Limit::Share(fraction) } else { Limit::Bytes(bytes) };
    match state::guarded("vramscope_set_limit", || limit::set(device, wanted, limit::By::Program)) {
        Some(true) => 0,
        _ => -1,
    }
}

/// Writes what is live to a file.
///
/// # Safety
/// A C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vramscope_snapshot(path: *const c_char) -> c_int {
    use std::os::unix::ffi::OsStrExt;
    // SAFETY: as the caller says.
    let path = unsafe { bytes(path) };
    let written = state::guarded("vramscope_snapshot", || {
        snapshot::write(Path::new(std::ffi::OsStr::from_bytes(path))).map_err(|e| error!("{e}")).is_ok()
    });
    if written == Some(true) { 0 } else { -1 }
}

/// Marks this moment.
///
/// # Safety
/// A C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vramscope_mark(text: *const c_char) {
    // SAFETY: as the caller says.
    let text = unsafe { bytes(text) };
    if state::active() {
        state::guarded("vramscope_mark", || labels::mark(text));
    }
}

/// Enters a region.
///
/// # Safety
/// A C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vramscope_region_begin(name: *const c_char) -> u64 {
    // SAFETY: as the caller says.
    let name = unsafe { bytes(name) };
    state::guarded("vramscope_region_begin", || regions::begin(name)).unwrap_or(0)
}

/// Leaves a region.
#[unsafe(no_mangle)]
pub extern "C" fn vramscope_region_end(region: u64) {
    state::guarded("vramscope_region_end", || regions::end(region));
}

/// No stacks, tensors, marks and regions from here on.
#[unsafe(no_mangle)]
pub extern "C" fn vramscope_pause() {
    state::guarded("vramscope_pause", || pause::set(true));
}

/// They are recorded again.
#[unsafe(no_mangle)]
pub extern "C" fn vramscope_resume() {
    state::guarded("vramscope_resume", || pause::set(false));
}

static FAILED: Mutex<u64> = Mutex::new(0);
static FAILURE: Condvar = Condvar::new();

/// A request failed for want of memory: who waits is woken, and the program's callback called.
pub fn failed(device: i32, asked: u64) {
    *FAILED.lock().unwrap_or_else(|e| e.into_inner()) += 1;
    FAILURE.notify_all();
    let f = CALLBACK.load(Acquire);
    let t = crate::thread::current();
    // One that allocates, and fails again, is not called inside itself.
    if f != 0 && !t.called_back.replace(true) {
        // SAFETY: what the program gave.
        let f: Callback = unsafe { std::mem::transmute::<usize, Callback>(f) };
        // SAFETY: the program's function and data.
        unsafe { f(DATA.load(Acquire), device, asked) };
        t.called_back.set(false);
    }
}

/// Waits for a failure.
#[unsafe(no_mangle)]
pub extern "C" fn vramscope_wait_oom(seen: u64, timeout_ms: c_int) -> u64 {
    let count = || FAILED.lock().unwrap_or_else(|e| e.into_inner());
    let newer = |failures: &mut u64| *failures <= seen;
    if timeout_ms < 0 {
        return *FAILURE.wait_while(count(), newer).unwrap_or_else(|e| e.into_inner());
    }
    let limit = Duration::from_millis(timeout_ms as u64);
    *FAILURE.wait_timeout_while(count(), limit, newer).unwrap_or_else(|e| e.into_inner()).0
}

type Callback = unsafe extern "C" fn(*mut c_void, c_int, u64);
static CALLBACK: AtomicUsize = AtomicUsize::new(0);
static DATA: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// Asks to be called at a failure.
#[unsafe(no_mangle)]
pub extern "C" fn vramscope_on_oom(callback: Option<Callback>, data: *mut c_void) {
    CALLBACK.store(0, Release);
    DATA.store(data, Release);
    CALLBACK.store(callback.map_or(0, |f| f as usize), Release);
}
