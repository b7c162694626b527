//! Finding libcuda's functions, and mapping what a look-up gives to our entry of exactly that function.
//!
//! Everything here happens at the first look-up of a CUDA name: no constructor, no file, no thread. The real `dlsym` is
//! found with `dlvsym`, because `dlsym` means our own export inside this library.

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering::*};

use crate::hooks::{COUNT, NAMES, REAL, entry_of};

/// The real `dlsym`; read by the assembly of our own.
pub static DLSYM: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

type DlsymFn = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// Finds the real `dlsym`. Idempotent; two threads at once find the same.
#[cold]
pub extern "C" fn find_dlsym() -> *mut c_void {
    let known = DLSYM.load(Acquire);
    if !known.is_null() {
        return known;
    }
    // 2.34 merged libdl into libc; before, x86-64 had 2.2.5 and aarch64 2.17. A second interposer's unversioned dlsym is
    // passed over by a versioned look-up.
    for version in [c"GLIBC_2.34", c"GLIBC_2.2.5", c"GLIBC_2.17"] {
        // SAFETY: three NUL-terminated strings and a constant handle.
        let p = unsafe { libc::dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), version.as_ptr()) };
        if !p.is_null() {
            DLSYM.store(p, Release);
            return p;
        }
    }
    std::ptr::null_mut()
}

/// The real `dlsym(handle, name)`, called from here: for handles that name an object, not RTLD_NEXT.
pub fn symbol(handle: *mut c_void, name: &CStr) -> *mut c_void {
    let f = find_dlsym();
    if f.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: `f` is glibc's dlsym.
    let f: DlsymFn = unsafe { std::mem::transmute::<*mut c_void, DlsymFn>(f) };
    // SAFETY: `name` is NUL-terminated; the handle is the caller's or one of the constants.
    unsafe { f(handle, name.as_ptr()) }
}

/// A resolver for other modules that need a libc function which may be missing.
///
/// # Safety
/// None of its own: unsafe for the type's sake.
pub unsafe fn libc_symbol(name: &CStr) -> *mut c_void {
    symbol(libc::RTLD_DEFAULT, name)
}

static RESOLVED: AtomicBool = AtomicBool::new(false);
/// How many of our functions this driver has.
static FOUND: AtomicUsize = AtomicUsize::new(0);

/// Resolves every hooked function, once libcuda is loaded. Returns whether they are resolved.
///
/// Nobody waits for anybody: a thread that finds it not done does it itself, and threads that do it at once store the same.
/// A look-up needs the loader's lock, which the thread that would wait may hold (a library's constructor); and in a forked
/// child the thread that would be waited for is not there.
pub fn resolve() -> bool {
    if RESOLVED.load(Acquire) {
        return true;
    }
    // Never load libcuda ourselves: a process without it has no CUDA to look at.
    // SAFETY: constant arguments.
    let handle = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
    if handle.is_null() {
        // Leave no trace of our own question behind for the program's dlerror().
        // SAFETY: no arguments; the text is not looked at.
        unsafe { libc::dlerror() };
        return false;
    }
    // Its look-ups are made here, where the loader is asked anyway.
    prepare_unwind();
    crate::driver::resolve(handle);
    let mut found = 0;
    for i in 0..COUNT {
        let p = symbol(handle, NAMES[i]).cast::<()>();
        // A libcuda linked behind us in the global scope resolves its own names in itself; should a look-up come back
        // to us all the same, calling it would never end.
        if !p.is_null() && p != entry_of(i) {
            REAL[i].store(p, Release);
            found += 1;
        }
    }
    // SAFETY: no arguments; clears the error of a name that this driver lacks.
    unsafe { libc::dlerror() };
    FOUND.store(found, Relaxed);
    build_map();
    RESOLVED.store(true, Release);
    true
}

/// Lets the unwinder look up what it needs of libc. Twice does no harm.
pub fn prepare_unwind() {
    static DONE: AtomicBool = AtomicBool::new(false);
    if !DONE.load(Acquire) {
        // SAFETY: the resolver takes any name.
        unsafe { crate::unwind::init(libc_symbol) };
        DONE.store(true, Release);
    }
}

/// The real function of an index.
#[inline]
pub fn get(index: usize) -> Option<*mut ()> {
    let p = REAL[index].load(Acquire);
    if !p.is_null() {
        return Some(p);
    }
    resolve();
    Some(REAL[index].load(Acquire)).filter(|p| !p.is_null())
}

/// For the assembly of the jumps: the real function, or one that says CUDA_ERROR_NOT_FOUND.
pub extern "C" fn resolve_for_jump(index: u32) -> *mut () {
    extern "C" fn not_found() -> crate::cuda::Result {
        crate::cuda::ERROR_NOT_FOUND
    }
    get(index as usize).unwrap_or(not_found as *const () as *mut ())
}

/// How many of our functions this driver has, of how many.
pub fn found() -> (usize, usize) {
    (FOUND.load(Relaxed), COUNT)
}

// ---- pointer → hook ---------------------------------------------------------------------------------------------------

const SLOTS: usize = 1024;
const _: () = assert!(COUNT * 3 < SLOTS * 2, "the map must stay sparse");
/// Open addressing on the real pointer: the pointer and, above its 48 bits, the index + 1, in one word.
static MAP: [AtomicU64; SLOTS] = [const { AtomicU64::new(0) }; SLOTS];
const POINTER: u64 = (1 << 48) - 1;

fn slot_of(p: u64) -> usize {
    (p.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54) as usize
}

fn build_map() {
    for (i, real) in REAL.iter().enumerate() {
        let p = real.load(Acquire) as u64;
        if p == 0 || p & !POINTER != 0 {
            continue;
        }
        let mut s = slot_of(p);
        // Two names may share one function (an alias): the first in the table speaks for it, and the types agree.
        while let Err(held) = MAP[s].compare_exchange(0, p | (i as u64 + 1) << 48, AcqRel, Acquire) {
            if held & POINTER == p {
                break;
            }
            s = (s + 1) % SLOTS;
        }
    }
}

/// The index of the hook whose real function is `p`.
pub fn index_of(p: *mut ()) -> Option<usize> {
    let mut s = slot_of(p as u64);
    loop {
        match MAP[s].load(Acquire) {
            0 => return None,
            held if held & POINTER == p as u64 => return ((held >> 48) as usize).checked_sub(1),
            _ => s = (s + 1) % SLOTS,
        }
    }
}
