//! A thread's own state: one structure in static TLS (shim.c), without destructor, without allocation.

use std::cell::{Cell, UnsafeCell};
use std::mem::MaybeUninit;

use vramscope_core::api::Api;
use vramscope_core::record::Producer;

use crate::regions::{self, Regions};
use crate::unwind::Unwinder;

/// What vramscope keeps for a thread. Starts as all zeroes.
#[repr(C)]
pub struct Thread {
    /// The runtime function this thread is in, if it came through one of our runtime names: `Api` as a number.
    pub label: Cell<u8>,
    /// Stack pointer of vramscope's own recording code, while it runs in the thread: a signal handler that comes here meanwhile
    /// is not recorded.
    busy: Cell<usize>,
    /// Set when the thread's exit has been announced.
    pub leaving: Cell<bool>,
    /// No ring was to be had when the thread last waited for one.
    pub ringless: Cell<bool>,
    /// The thread has the writer's lock, or waits for it: a signal handler that comes here meanwhile must not.
    pub writing: Cell<bool>,
    /// The program's callback for out of memory is running.
    pub called_back: Cell<bool>,
    /// Return address of that runtime call,
    pub label_from: Cell<usize>,
    /// and its stack pointer: a label is valid only in calls below it (an exception may have skipped its end).
    pub label_sp: Cell<usize>,
    /// Whether `producer` holds the thread's ring.
    pub has_producer: Cell<bool>,
    /// The thread's ring.
    pub producer: UnsafeCell<MaybeUninit<Producer<'static>>>,
    /// The current context seen last,
    pub context: Cell<usize>,
    /// at this epoch of the context table,
    pub context_epoch: Cell<u64>,
    /// in this slot + 1.
    pub context_slot: Cell<u32>,
    /// The regions that the thread is in; null: it never was in one.
    pub regions: Cell<*mut Regions>,
    /// How many of them are not in the history yet.
    pub unwritten: Cell<u32>,
    /// The stream seen last, by its handle, at this epoch of the table of streams;
    pub stream: Cell<(u64, u64)>,
    /// its number,
    pub stream_id: Cell<u64>,
    /// context,
    pub stream_context: Cell<u16>,
    /// and device.
    pub stream_device: Cell<i32>,
    /// Number of the thread, never another's; 0: none yet. (`pthread_self` comes again.)
    pub number: Cell<u64>,
    /// Nanoseconds that the arena's calls of the driver took, since the hook that reads it set it to 0.
    pub driver_ns: Cell<u64>,
    /// Stack bounds and unwind state.
    pub unwinder: Unwinder,
}

#[allow(improper_ctypes, reason = "C only reserves the bytes")]
unsafe extern "C" {
    fn vramscope_thread_state() -> *mut Thread;
}

const _: () = assert!(size_of::<Thread>() <= 48 * 8, "shim.c reserves 48 words");

/// The calling thread's state.
#[inline]
pub fn current() -> &'static Thread {
    // SAFETY: shim.c gives the calling thread's zeroed, 8-aligned block of at least this size, valid until the thread ends;
    // all fields are valid when zero, and no other thread gets a reference to it.
    unsafe { &*vramscope_thread_state() }
}

/// The runtime call around a driver call: which function, and its return address.
#[derive(Clone, Copy)]
pub struct Label {
    /// The runtime function.
    pub api: Api,
    /// Its return address.
    pub from: usize,
}

impl Thread {
    /// Enters the recording code. `false`: the thread is in it already, and this is a signal handler's call.
    #[inline(always)]
    pub fn enter(&self) -> bool {
        let here = stack_pointer();
        let busy = self.busy.get();
        if busy != 0 && !self.was_left(busy, here) {
            return false;
        }
        self.busy.set(here);
        true
    }

    /// Leaves it.
    #[inline(always)]
    pub fn leave(&self) {
        self.busy.set(0);
    }

    /// Whether the thread is in it.
    pub fn is_busy(&self) -> bool {
        self.busy.get() != 0
    }

    /// Whether a handler jumped out of recording code whose frame was at `busy` (siglongjmp). A handler's frames lie below those
    /// that it interrupted, or on a stack of its own.
    #[cold]
    fn was_left(&self, busy: usize, here: usize) -> bool {
        // SAFETY: all zeroes is a valid structure.
        let mut own: libc::stack_t = unsafe { std::mem::zeroed() };
        // SAFETY: a pointer to a local.
        if unsafe { libc::sigaltstack(std::ptr::null(), &mut own) } != 0 || own.ss_flags & libc::SS_ONSTACK != 0 {
            return false;
        }
        let begin = own.ss_sp as usize;
        let on_own = own.ss_flags & libc::SS_DISABLE == 0 && (begin..begin + own.ss_size).contains(&busy);
        let left = on_own || here >= busy;
        if left {
            regions::left(self);
        }
        left
    }

    /// The runtime call that this driver call is part of, if there is one. `here` is any address in the caller's frame.
    #[inline]
    pub fn label(&self, here: usize) -> Option<Label> {
        if self.label.get() == 0 || here > self.label_sp.get() {
            return None;
        }
        Some(Label { api: Api::from_number(self.label.get())?, from: self.label_from.get() })
    }
}

/// An address in the current frame, to compare with a label's.
#[inline(always)]
pub fn stack_pointer() -> usize {
    let here: usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads a register.
    unsafe {
        std::arch::asm!("mov {}, rsp", out(reg) here, options(nomem, nostack, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: reads a register.
    unsafe {
        std::arch::asm!("mov {}, sp", out(reg) here, options(nomem, nostack, preserves_flags));
    }
    here
}
