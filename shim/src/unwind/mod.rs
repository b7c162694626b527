//! The native call stack of the calling thread: its return addresses, walked in the process.
//!
//! A frame costs 4 ns once its code was seen, and from then on the walk takes no lock and calls no
//! libc function. It never allocates and keeps to 6 KiB of stack, also where the code is met for the
//! first time, so that it can run anywhere a hook can: in a signal handler, on a fiber, on a 16 KiB
//! thread.
//!
//! * [`capture`] walks for a stack's hash alone, [`record`] for its addresses; `walk` goes from frame to
//!   frame by a packed `rule` for each code address, which the `table` keeps for all threads and the
//!   `linked` cache once more for one, in the order of the stacks it saw.
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
#[cfg(target_arch = "x86_64")]
mod linked;
pub(crate) mod memory;
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

pub use hash::fold;
#[cfg(test)]
pub use hash::hash;
use stack::ThreadStack;

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

/// What a thread remembers for its walks. All zero at first; [`Unwinder::release`] at the thread's end.
#[repr(C)]
#[derive(Default)]
pub struct Unwinder {
    stack: ThreadStack,
    #[cfg(target_arch = "x86_64")]
    linked: linked::Slot,
}

impl Unwinder {
    /// Knows nothing yet. The same as zeroed memory, which is what the library uses.
    #[cfg(test)]
    pub const fn new() -> Unwinder {
        Unwinder {
            stack: ThreadStack::new(),
            #[cfg(target_arch = "x86_64")]
            linked: linked::Slot::new(),
        }
    }

    /// Gives back what the thread's walks took from the system. It may walk again.
    pub fn release(&self) {
        #[cfg(target_arch = "x86_64")]
        self.linked.release();
    }
}

/// One frame as [`record`] gives it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Recorded {
    /// The return address, perhaps with marks.
    pub pc: u64,
    /// The frame's own memory lies from here up to the next frame's `sp`.
    pub sp: u64,
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
    /// How many of them are marked [`EXACT`]: a signal handler is running.
    pub interrupted: u32,
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

/// Walks the stack of the calling thread from the caller of this function on, `depth` frames at most,
/// for its hash. The first frames that lie in `own` (our own library) don't count.
///
/// # Safety
/// `unwinder` is the calling thread's.
#[inline(never)]
pub unsafe fn capture(unwinder: &Unwinder, depth: usize, own: Range<u64>) -> Captured {
    #[cfg(target_arch = "x86_64")]
    {
        let mut epoch = close::Epoch::now();
        if let Some(mut rules) = unwinder.linked.begin(epoch) {
            // SAFETY: as the caller says.
            unsafe { walk::walk(&unwinder.stack, &mut rules, depth, own, |_, _| {}) }
        } else {
            // SAFETY: as the caller says.
            unsafe { walk::walk(&unwinder.stack, &mut epoch, depth, own, |_, _| {}) }
        }
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as the caller says.
    unsafe {
        chain::walk(&unwinder.stack, depth, own, |_, _| {})
    }
}

/// The same walk once more, for its frames, innermost first. For the first sight of a stack: it does
/// not make use of what the thread remembers.
///
/// # Safety
/// As for [`capture`].
#[inline(never)]
pub unsafe fn record(unwinder: &Unwinder, out: &mut [Recorded], own: Range<u64>) -> Captured {
    let mut n = 0;
    let depth = out.len();
    let each = |pc, sp| {
        // As many as `depth`, so there is room.
        if let Some(slot) = out.get_mut(n) {
            *slot = Recorded { pc, sp };
        }
        n += 1;
    };
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as the caller says.
    unsafe {
        walk::walk(&unwinder.stack, &mut close::Epoch::now(), depth, own, each)
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as the caller says.
    unsafe {
        chain::walk(&unwinder.stack, depth, own, each)
    }
}

/// Where the function that holds the code at `pc` begins, as its unwind information says.
pub fn function_start(pc: u64) -> Option<u64> {
    #[cfg(target_arch = "x86_64")]
    {
        let module = module::find(pc)?;
        match fde::find(&module, pc) {
            // SAFETY: the module's index says that it is there, and the module is loaded.
            fde::Fde::At(at) => Some(unsafe { cfi::Function::read(at) }?.range().0),
            _ => None,
        }
    }
    #[cfg(target_arch = "aarch64")]
    {
        let _ = pc;
        None
    }
}

/// Both walks from one place: what [`record`] gives, and what [`capture`] says.
///
/// # Safety
/// As for [`capture`].
#[cfg(all(test, target_arch = "x86_64"))]
#[inline(never)]
unsafe fn both(unwinder: &Unwinder, out: &mut [u64], own: Range<u64>) -> (Captured, Captured) {
    let depth = out.len();
    let mut n = 0;
    let each = |pc, _| {
        out[n] = pc;
        n += 1;
    };
    // SAFETY: as the caller says.
    let recorded = unsafe { walk::walk(&unwinder.stack, &mut close::Epoch::now(), depth, own.clone(), each) };
    let fast = match unwinder.linked.begin(close::Epoch::now()) {
        // SAFETY: as the caller says.
        Some(mut rules) => unsafe { walk::walk(&unwinder.stack, &mut rules, depth, own, |_, _| {}) },
        None => recorded,
    };
    (recorded, fast)
}
