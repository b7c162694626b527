//! A timer's signal that interrupts a thread anywhere, and compares from there.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::*};

use crate::{compare, own};

/// What the handler saw so far.
#[repr(C)]
#[derive(Default)]
pub struct Counts {
    /// Signals handled.
    pub signals: u64,
    /// Of them, on an alternate stack.
    pub alternate: u64,
    /// Of them, in our own code: mostly in a capture that was under way.
    pub busy: u64,
    /// Not compared: at the one place where libgcc is known to be wrong, see [`ends_realigned`].
    pub realigned: u64,
}

static SIGNALS: AtomicU64 = AtomicU64::new(0);
static ALTERNATE: AtomicU64 = AtomicU64::new(0);
static BUSY: AtomicU64 = AtomicU64::new(0);
static REALIGNED: AtomicU64 = AtomicU64::new(0);

const ALTERNATE_SIZE: usize = 256 << 10;

/// The timers that run.
static TIMERS: Mutex<Vec<Timer>> = Mutex::new(Vec::new());

struct Timer(libc::timer_t);

// SAFETY: a timer belongs to the process.
unsafe impl Send for Timer {}

unsafe extern "C" fn handler(_signal: c_int, _info: *mut libc::siginfo_t, context: *mut c_void) {
    SIGNALS.fetch_add(1, Relaxed);
    // SAFETY: the kernel gave it.
    let context = unsafe { &*context.cast::<libc::ucontext_t>() };
    let register = |register: c_int| context.uc_mcontext.gregs[register as usize] as u64;
    let here = (&raw const context).addr() as u64;
    if here.wrapping_sub(context.uc_stack.ss_sp as u64) < context.uc_stack.ss_size as u64 {
        ALTERNATE.fetch_add(1, Relaxed);
    }
    if own::range().contains(&register(libc::REG_RIP)) {
        BUSY.fetch_add(1, Relaxed);
    }
    if ends_realigned(register(libc::REG_RIP)) {
        REALIGNED.fetch_add(1, Relaxed);
    } else {
        compare::here();
    }
}

/// At `lea -8(%r10), %rsp; ret`, before the `ret`: GCC's rows say there that `bp` still points into the frame,
/// when it was popped already, and libgcc reads wherever it points to.
fn ends_realigned(pc: u64) -> bool {
    const CODE: [u8; 5] = [0x49, 0x8d, 0x62, 0xf8, 0xc3];
    let start = pc.wrapping_sub(4);
    // On one page, which can be read because the processor was about to run it.
    start >> 12 == pc >> 12 && {
        // SAFETY: just said.
        let code = unsafe { (start as *const [u8; 5]).read() };
        code == CODE
    }
}

/// Handles SIGPROF.
pub fn install() -> bool {
    // SAFETY: all zeroes is a valid value.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: the handler has the type that the flags say.
    unsafe { libc::sigaction(libc::SIGPROF, &action, null_mut()) == 0 }
}

/// Interrupts a thread that often, until [`stop`].
pub fn interrupt(thread: c_int, times_a_second: c_int) -> bool {
    let Ok(mut timers) = TIMERS.lock() else { return false };
    // SAFETY: all zeroes is a valid value.
    let mut event: libc::sigevent = unsafe { MaybeUninit::zeroed().assume_init() };
    event.sigev_notify = libc::SIGEV_THREAD_ID;
    event.sigev_signo = libc::SIGPROF;
    event.sigev_notify_thread_id = thread;
    let mut timer = null_mut();
    // SAFETY: the event is filled in.
    if unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer) } != 0 {
        return false;
    }
    timers.push(Timer(timer));
    let period = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000_000 / i64::from(times_a_second.clamp(2, 100_000)) };
    let times = libc::itimerspec { it_interval: period, it_value: period };
    // SAFETY: the timer just made.
    unsafe { libc::timer_settime(timer, 0, &times, null_mut()) == 0 }
}

/// Interrupts nobody any more.
pub fn stop() {
    let Ok(mut timers) = TIMERS.lock() else { return };
    for Timer(timer) in timers.drain(..) {
        // SAFETY: made by `interrupt`, and removed here only.
        unsafe { libc::timer_delete(timer) };
    }
}

/// Gives the calling thread an alternate stack, or takes it away.
pub fn alternate(on: bool) -> bool {
    let mut stack = libc::stack_t { ss_sp: null_mut(), ss_flags: libc::SS_DISABLE, ss_size: ALTERNATE_SIZE };
    if on {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping at an address of the kernel's choice. It stays: a handler may be on it.
        let map = unsafe { libc::mmap(null_mut(), ALTERNATE_SIZE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if map == libc::MAP_FAILED {
            return false;
        }
        stack = libc::stack_t { ss_sp: map, ss_flags: 0, ss_size: ALTERNATE_SIZE };
    }
    // SAFETY: the mapping is this thread's alone.
    unsafe { libc::sigaltstack(&stack, null_mut()) == 0 }
}

/// What the handler saw so far.
pub fn counts() -> Counts {
    Counts {
        signals: SIGNALS.load(SeqCst),
        alternate: ALTERNATE.load(SeqCst),
        busy: BUSY.load(SeqCst),
        realigned: REALIGNED.load(SeqCst),
    }
}
