//! `dlclose`, exported: rules, modules and callers of an unloaded library must not outlive it. `dlopen` is never hooked (the
//! loader takes RUNPATH from its caller). And `__register_frame`, by which LLVM's JITs announce unwind tables.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering::*};

use crate::unwind::module;
use crate::{modules, python, real, runtime, stacks, state, unwind};

fn next(name: &CStr, held: &AtomicUsize) -> usize {
    let known = held.load(Relaxed);
    if known != 0 {
        return known;
    }
    let mut p = real::symbol(libc::RTLD_NEXT, name) as usize;
    if p == 0 {
        // A libgcc that came in with RTLD_LOCAL is not in our scope, but it is the one that everybody uses.
        // SAFETY: nothing is loaded by this.
        let libgcc = unsafe { libc::dlopen(c"libgcc_s.so.1".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if !libgcc.is_null() {
            p = real::symbol(libgcc, name) as usize;
        }
    }
    held.store(p, Relaxed);
    p
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn dlclose(handle: *mut c_void) -> c_int {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let f = next(c"dlclose", &NEXT);
    if f == 0 {
        return -1;
    }
    // SAFETY: glibc's dlclose.
    let f: unsafe extern "C-unwind" fn(*mut c_void) -> c_int = unsafe { std::mem::transmute(f) };
    if !state::started() {
        // SAFETY: the program's handle.
        return unsafe { f(handle) };
    }
    let (_, before) = module::counts();
    python::closing();
    unwind::close::closing();
    // SAFETY: as above.
    let r = unsafe { f(handle) };
    unwind::close::closed();
    python::closed();
    if module::counts().1 != before {
        state::guarded("dlclose", || {
            modules::forget();
            stacks::forget();
            runtime::forget();
        });
    }
    r
}

mod frames {
    use super::*;

    /// # Safety
    /// As libgcc's function.
    #[unsafe(no_mangle)]
    pub unsafe extern "C-unwind" fn __register_frame(begin: *mut c_void) {
        if !state::switched_off() && !begin.is_null() {
            // SAFETY: the caller's table, which it promises to be well formed.
            state::guarded("__register_frame", || unsafe { unwind::jit::registered(begin as u64) });
        }
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let f = next(c"__register_frame", &NEXT);
        if f != 0 {
            // SAFETY: libgcc's function.
            let f: unsafe extern "C-unwind" fn(*mut c_void) = unsafe { std::mem::transmute(f) };
            // SAFETY: the caller's argument.
            unsafe { f(begin) };
        }
    }

    /// # Safety
    /// As libgcc's function.
    #[unsafe(no_mangle)]
    pub unsafe extern "C-unwind" fn __deregister_frame(begin: *mut c_void) {
        if !state::switched_off() && !begin.is_null() {
            state::guarded("__deregister_frame", || unwind::jit::deregistered(begin as u64));
        }
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let f = next(c"__deregister_frame", &NEXT);
        if f != 0 {
            // SAFETY: libgcc's function.
            let f: unsafe extern "C-unwind" fn(*mut c_void) = unsafe { std::mem::transmute(f) };
            // SAFETY: the caller's argument.
            unsafe { f(begin) };
        }
    }
}
