//! The native call stack of the calling thread: its return addresses, walked in the process.
//!
//! A frame costs 6 ns once its code was seen, and from then on the walk takes no lock and calls no
//! libc function. It never allocates and keeps to 6 KiB of stack, also where the code is met for the
//! first time, so that it can run anywhere a hook can: in a signal handler, on a fiber, on a 16 KiB
//! thread.
//!
//! * [`capture`] walks; `walk` goes from frame to frame by a packed `rule` for each code address,
//!   which the `table` keeps.
//! * At first sight `module` finds the library that holds the code, `fde` its unwind information,
//!   `cfi` and `row` read it; `jit` knows code made at run time, `guess` helps where nothing is known.
//! * `stack` and `memory` say what may be read; `close` forgets what was unloaded.
//! * aarch64 goes along the frame pointers (`chain`).
//!
//! It must not: call `dlsym`, `dlopen` or `dlclose` (they are our own hooks), patch return
//! addresses, find names (that is done later, by the command), or panic. Python's frames are
//! not its business.

#[cfg(target_arch = "x86_64")]
mod cfi;
#[cfg(any(target_arch = "aarch64", test))]
mod chain;
#[cfg(target_arch = "x86_64")]
pub mod close;
#[cfg(target_arch = "x86_64")]
mod fde;
#[cfg(target_arch = "x86_64")]
mod guess;
mod hash;
#[cfg(target_arch = "x86_64")]
pub mod jit;
mod memory;
pub mod module;
#[cfg(target_arch = "x86_64")]
mod row;
#[cfg(target_arch = "x86_64")]
mod rule;
mod stack;
#[cfg(target_arch = "x86_64")]
mod table;
#[cfg(all(test, target_arch = "x86_64"))]
mod tests;
#[cfg(target_arch = "x86_64")]
mod walk;

use std::ffi::{CStr, c_void};
use std::ops::Range;

#[cfg(test)]
pub use hash::hash;
pub use stack::ThreadStack;

#[cfg(target_arch = "aarch64")]
use chain::walk;
#[cfg(target_arch = "x86_64")]
use walk::walk;

/// Along frame pointers nothing is remembered that would have to be forgotten.
#[cfg(target_arch = "aarch64")]
pub mod close {
    /// Nothing to do.
    pub fn closing() {}
    /// Nothing to do.
    pub fn closed() {}
}

/// Code made at run time has frame pointers or is passed over.
#[cfg(target_arch = "aarch64")]
pub mod jit {
    /// Nothing to do.
    ///
    /// # Safety
    /// Has no conditions here.
    pub unsafe fn registered(_begin: u64) {}
    /// Nothing to do.
    pub fn deregistered(_begin: u64) {}
}

/// Set in a recorded address: the frame was guessed, and with it all frames further out.
pub const GUESSED: u64 = 1 << 63;
/// Set in a recorded address: a signal interrupted the code just there; the address is not a return
/// address, so a look-up must not go back into a call before it.
pub const EXACT: u64 = 1 << 62;

/// The address in a recorded one, without marks.
pub const fn address(recorded: u64) -> u64 {
    recorded & !(GUESSED | EXACT)
}

/// What a capture got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Captured {
    /// How many addresses were recorded, innermost first. As many as there was room for: perhaps
    /// the stack is deeper.
    pub len: usize,
    /// [`hash`] of these addresses, marks included.
    pub hash: u64,
    /// How many of them are marked [`GUESSED`].
    pub guessed: u32,
}

/// Looks up what the walk needs of the loader. Without it everything works, but slowly at first
/// sight. Call once, before the first capture.
///
/// # Safety
/// `resolve` gives the default-scope address of a symbol as the real `dlsym` would, or null.
pub unsafe fn init(resolve: unsafe fn(&CStr) -> *mut c_void) {
    // SAFETY: as the caller says.
    let function = unsafe { resolve(c"_dl_find_object") };
    // SAFETY: it is that function or null, as the caller says.
    unsafe { module::set_find_object(function) };
    // SAFETY: as the caller says.
    let stack_end = unsafe { resolve(c"__libc_stack_end") }.cast::<u64>();
    // SAFETY: the loader's variable, set before any other code ran; or null.
    if let Some(&stack_end) = unsafe { stack_end.as_ref() } {
        stack::set_main_top(stack_end);
    }
}

/// Records the stack of the calling thread: return addresses, innermost first, from the caller of
/// this function on. The first ones that lie in `own` (our own library) are left out.
///
/// # Safety
/// `stack` is the calling thread's.
#[inline(never)]
pub unsafe fn capture(stack: &ThreadStack, out: &mut [u64], own: Range<u64>) -> Captured {
    // SAFETY: as the caller says.
    unsafe { walk(stack, out, own) }
}
