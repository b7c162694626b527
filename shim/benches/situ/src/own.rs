//! Where this library lies, so that its own frames can be told from the program's.

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

static START: AtomicU64 = AtomicU64::new(0);
static END: AtomicU64 = AtomicU64::new(0);

/// Our addresses; empty until [`find`] was called.
#[inline(always)]
pub fn range() -> Range<u64> {
    START.load(Relaxed)..END.load(Relaxed)
}

/// Looks for the library that holds this very function.
pub fn find() {
    // SAFETY: the callback fits.
    unsafe { libc::dl_iterate_phdr(Some(look), std::ptr::null_mut()) };
}

unsafe extern "C" fn look(object: *mut libc::dl_phdr_info, _size: usize, _: *mut c_void) -> c_int {
    // SAFETY: the loader's description of a loaded object, and its program headers.
    let (object, headers) = unsafe {
        let object = &*object;
        (object, std::slice::from_raw_parts(object.dlpi_phdr, usize::from(object.dlpi_phnum)))
    };
    let loaded = headers.iter().filter(|h| h.p_type == libc::PT_LOAD);
    let start = loaded.clone().map(|h| object.dlpi_addr + h.p_vaddr).min().unwrap_or(0);
    let end = loaded.map(|h| object.dlpi_addr + h.p_vaddr + h.p_memsz).max().unwrap_or(0);
    let here = find as *const () as u64;
    if !(start..end).contains(&here) {
        return 0;
    }
    START.store(start, Relaxed);
    END.store(end, Relaxed);
    1
}
