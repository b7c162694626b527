//! A timer's signal at arbitrary instructions, on the thread's own and on an alternate stack.

use super::super::memory::is_readable_through;
use super::*;
use std::sync::atomic::{AtomicBool, AtomicU32};

static SAMPLES: AtomicU32 = AtomicU32::new(0);
static WRONG: AtomicU32 = AtomicU32::new(0);
static GUESSED: AtomicU32 = AtomicU32::new(0);
static IN_VDSO: AtomicU32 = AtomicU32::new(0);
static NO_EXACT: AtomicU32 = AtomicU32::new(0);
static BUSY: AtomicBool = AtomicBool::new(false);

/// At `lea -8(%r10), %rsp; ret`, before the `ret`: libgcc reads at a random address then, see `cfi`.
fn ends_realigned(exact: u64) -> bool {
    let start = address(exact).saturating_sub(4);
    is_readable_through(start, start + 5) && {
        // SAFETY: can be read (just asked).
        let code = unsafe { (start as *const [u8; 5]).read() };
        code == [0x49, 0x8d, 0x62, 0xf8, 0xc3]
    }
}

extern "C" fn handler(_signal: c_int) {
    let a = ours();
    SAMPLES.fetch_add(1, Relaxed);
    // Handler, trampoline, then the place that was interrupted.
    let exact = a.pcs().get(2).copied().unwrap_or(0);
    if a.captured.guessed > 0 {
        GUESSED.fetch_add(1, Relaxed);
        return;
    }
    if ends_realigned(exact) {
        return;
    }
    let b = libgcc();
    let same = a.pcs().len() == b.pcs().len() && a.pcs().iter().zip(b.pcs()).skip(1).all(|(&a, &b)| address(a) == b);
    if !same && WRONG.fetch_add(1, Relaxed) == 0 && !BUSY.swap(true, Relaxed) {
        // Only to be read when the test fails anyway.
        eprintln!("ours   {:x?}\nlibgcc {:x?}", a.pcs(), b.pcs());
    }
    if exact & super::super::EXACT == 0 {
        NO_EXACT.fetch_add(1, Relaxed);
    }
    // SAFETY: has no preconditions.
    let vdso = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) };
    if vdso != 0 && address(exact).wrapping_sub(vdso) < 0x4000 {
        IN_VDSO.fetch_add(1, Relaxed);
    }
}

unsafe extern "C" fn nothing(_: *mut c_void) {
    std::hint::black_box(ours().captured.len);
}

extern "C" fn order(a: *const c_void, b: *const c_void) -> c_int {
    // SAFETY: qsort gives two elements.
    let (a, b) = unsafe { (*a.cast::<c_int>(), *b.cast::<c_int>()) };
    a.cmp(&b) as c_int
}

fn work(chain: Chain) {
    let mut text = [0u8; 256];
    let mut numbers: Vec<c_int> = (0..200).map(|i| i * 7919 % 1009).collect();
    for depth in 0..40 {
        // SAFETY: the C function calls `nothing`.
        unsafe { chain(depth, nothing, std::ptr::null_mut()) };
        // SAFETY: the format fits the argument and the buffer.
        unsafe { libc::snprintf(text.as_mut_ptr().cast(), text.len(), c"%.17g".as_ptr(), f64::from(depth) / 7.0) };
        // SAFETY: ends in a zero byte.
        std::hint::black_box(unsafe { libc::strtod(text.as_ptr().cast(), std::ptr::null_mut()) });
        for _ in 0..50 {
            std::hint::black_box(std::time::Instant::now());
        }
        // SAFETY: size and count are the vector's.
        unsafe { libc::qsort(numbers.as_mut_ptr().cast(), numbers.len(), 4, Some(order)) };
        numbers.reverse();
        std::hint::black_box(format!("{depth:>10} {numbers:?}"));
    }
}

fn sample(chain: Chain, flags: c_int, count: u32) {
    // SAFETY: all zero is a valid value.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = libc::SA_RESTART | flags;
    // SAFETY: the handler does nothing that is unsafe at any place.
    assert_eq!(unsafe { libc::sigaction(libc::SIGPROF, &action, std::ptr::null_mut()) }, 0);
    // SAFETY: all zero is a valid value.
    let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
    event.sigev_notify = libc::SIGEV_THREAD_ID;
    event.sigev_signo = libc::SIGPROF;
    // SAFETY: has no preconditions.
    event.sigev_notify_thread_id = unsafe { libc::gettid() };
    let mut timer = std::ptr::null_mut();
    // SAFETY: the event is initialized.
    assert_eq!(unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer) }, 0);
    let interval = libc::timespec { tv_sec: 0, tv_nsec: 97_000 };
    let times = libc::itimerspec { it_interval: interval, it_value: interval };
    // SAFETY: the timer just made.
    assert_eq!(unsafe { libc::timer_settime(timer, 0, &times, std::ptr::null_mut()) }, 0);
    let start = SAMPLES.load(Relaxed);
    while SAMPLES.load(Relaxed) - start < count {
        work(chain);
    }
    // SAFETY: as above.
    assert_eq!(unsafe { libc::timer_delete(timer) }, 0);
}

#[test]
fn at_arbitrary_instructions() {
    set_up();
    let _no_close = no_close();
    libgcc();
    let library = library(CHAIN, &[]);
    sample(library.chain, 0, 4000);
    let mut alternate = vec![0u8; 64 << 10];
    let stack = libc::stack_t { ss_sp: alternate.as_mut_ptr().cast(), ss_flags: 0, ss_size: alternate.len() };
    // SAFETY: all zero is a valid value.
    let mut before: libc::stack_t = unsafe { std::mem::zeroed() };
    // SAFETY: the memory stays until it is given back below.
    assert_eq!(unsafe { libc::sigaltstack(&stack, &mut before) }, 0);
    sample(library.chain, libc::SA_ONSTACK, 4000);
    // SAFETY: the one that the thread had.
    assert_eq!(unsafe { libc::sigaltstack(&before, std::ptr::null_mut()) }, 0);
    let (samples, guessed) = (SAMPLES.load(Relaxed), GUESSED.load(Relaxed));
    println!("{samples} samples, {guessed} guessed, {} in the vDSO", IN_VDSO.load(Relaxed));
    assert_eq!(WRONG.load(Relaxed), 0);
    assert_eq!(NO_EXACT.load(Relaxed), 0);
    // Prologues that realign the stack have moments that no rule describes.
    assert!(guessed * 50 < samples, "{guessed} of {samples}");
}
