//! Stacks of unusual size and place.

use super::*;
use std::ptr::null_mut;

const PATTERN: u8 = 0xa5;

fn map(size: usize) -> *mut u8 {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let map = unsafe { libc::mmap(null_mut(), size, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    assert_ne!(map, libc::MAP_FAILED);
    map.cast()
}

/// Runs `work` on a thread with this stack.
fn on_stack(stack: *mut u8, size: usize, work: extern "C" fn(*mut c_void) -> *mut c_void, argument: *mut c_void) {
    // SAFETY: all zero is a valid value to be initialized.
    let mut attributes: libc::pthread_attr_t = unsafe { std::mem::zeroed() };
    let mut thread = 0;
    // SAFETY: initialized here.
    unsafe { libc::pthread_attr_init(&mut attributes) };
    // SAFETY: the mapping is the new thread's alone.
    assert_eq!(unsafe { libc::pthread_attr_setstack(&mut attributes, stack.cast(), size) }, 0);
    // SAFETY: the attributes are initialized; `argument` outlives the thread.
    assert_eq!(unsafe { libc::pthread_create(&mut thread, &attributes, work, argument) }, 0);
    // SAFETY: the thread just made.
    assert_eq!(unsafe { libc::pthread_join(thread, null_mut()) }, 0);
}

struct Small {
    chain: Chain,
    sp: u64,
    len: usize,
    guessed: u32,
}

/// Room for the result that isn't on the stack which is measured.
static ROOM: std::sync::Mutex<[u64; DEEPEST]> = std::sync::Mutex::new([0; DEEPEST]);

#[inline(never)]
unsafe extern "C" fn measured(small: *mut c_void) {
    // SAFETY: given by `small_thread`.
    let small = unsafe { &mut *small.cast::<Small>() };
    // SAFETY: reads a register.
    unsafe { std::arch::asm!("mov {}, rsp", out(reg) small.sp, options(nomem, nostack)) };
    let mut room = ROOM.try_lock().unwrap();
    let captured = walked(&mut *room, 0..0);
    small.len = captured.len;
    small.guessed = captured.guessed;
}

extern "C" fn small_thread(small: *mut c_void) -> *mut c_void {
    // SAFETY: given by `use_of_stack`.
    let chain = unsafe { (*small.cast::<Small>()).chain };
    // SAFETY: the C function calls `measured` with the pointer.
    unsafe { chain(10, measured, small) };
    null_mut()
}

/// How much of its stack a first capture uses, and what it found.
fn use_of_stack(chain: Chain, size: usize) -> (u64, Small) {
    let mut small = Small { chain, sp: 0, len: 0, guessed: 0 };
    let stack = map(size);
    // SAFETY: the mapping just made.
    unsafe { stack.write_bytes(PATTERN, size) };
    super::super::close::forget();
    on_stack(stack, size, small_thread, (&raw mut small).cast());
    // SAFETY: as above; the thread is gone.
    let bytes = unsafe { std::slice::from_raw_parts(stack, size) };
    let untouched = bytes.iter().take_while(|&&b| b == PATTERN).count();
    let used = small.sp - (stack as u64 + untouched as u64);
    // SAFETY: as above.
    unsafe { libc::munmap(stack.cast(), size) };
    (used, small)
}

/// One test, because all of it needs `ROOM`.
#[test]
fn a_first_capture_keeps_to_6_kib() {
    set_up();
    let _no_close = no_close();
    let good = library(CHAIN, &[]);
    let bare = library(CHAIN, &["-fno-asynchronous-unwind-tables", "-fno-unwind-tables"]);
    let (used, small) = use_of_stack(good.chain, 256 << 10);
    println!("first capture: {used} bytes of stack, {} frames", small.len);
    assert!(small.len > 12 && small.guessed == 0);
    assert!(used <= 6 << 10, "{used}");
    let (used, small) = use_of_stack(bare.chain, 256 << 10);
    println!("first capture with guesses: {used} bytes of stack, {} frames, {} guessed", small.len, small.guessed);
    assert!(small.guessed > 0);
    assert!(used <= 6 << 10, "{used}");
    // SAFETY: null is allowed.
    unsafe { module::set_find_object(null_mut()) };
    let (used, small) = use_of_stack(good.chain, 256 << 10);
    set_up();
    println!("first capture by the loader's list: {used} bytes of stack, {} frames", small.len);
    assert!(small.len > 12 && small.guessed == 0);
    assert!(used <= 6 << 10, "{used}");
    // The smallest that a thread can have, a part of which is glibc's.
    let (used, small) = use_of_stack(good.chain, 16 << 10);
    println!("first capture on 16 KiB: {used} bytes of stack, {} frames", small.len);
    assert!(small.len > 12 && small.guessed == 0);
}

#[test]
fn after_deep_recursion_and_back() {
    set_up();
    let library = library(TWIN, &["-DSIZE=4032"]);
    std::thread::Builder::new()
        .stack_size(64 << 20)
        .spawn(move || {
            for depth in [3, 500, 3, 6000, 12000, 40, 6000] {
                let both = run(library.chain, depth);
                assert_eq!(both.ours, both.libgcc);
                assert_eq!(both.guessed, 0);
            }
        })
        .unwrap()
        .join()
        .unwrap();
}

struct Fiber {
    home: libc::ucontext_t,
    own: libc::ucontext_t,
    chain: Chain,
    both: Option<Both>,
}

static FIBER: std::sync::atomic::AtomicPtr<Fiber> = std::sync::atomic::AtomicPtr::new(null_mut());

extern "C" fn fiber() {
    // SAFETY: set below, by the thread that switched here and waits.
    let fiber = unsafe { &mut *FIBER.load(Relaxed) };
    fiber.both = Some(run(fiber.chain, 20));
}

#[test]
fn on_a_fiber_whose_stack_ends_at_nothing() {
    set_up();
    let library = library(CHAIN, &[]);
    const SIZE: usize = 256 << 10;
    let stack = map(SIZE + 8192);
    // SAFETY: the last two pages of the mapping: reading past the stack would be fatal.
    assert_eq!(unsafe { libc::mprotect(stack.add(SIZE).cast(), 8192, libc::PROT_NONE) }, 0);
    // SAFETY: all zero is a valid value to be initialized.
    let mut state: Box<Fiber> = Box::new(Fiber {
        // SAFETY: as above.
        home: unsafe { std::mem::zeroed() },
        // SAFETY: as above.
        own: unsafe { std::mem::zeroed() },
        chain: library.chain,
        both: None,
    });
    for _ in 0..3 {
        // The thread's own stack before, in between and after.
        assert_same(&run(library.chain, 20), 20);
        // SAFETY: initialized here.
        assert_eq!(unsafe { libc::getcontext(&mut state.own) }, 0);
        state.own.uc_stack.ss_sp = stack.cast();
        state.own.uc_stack.ss_size = SIZE;
        state.own.uc_link = &raw mut state.home;
        FIBER.store(&raw mut *state, Relaxed);
        // SAFETY: initialized above.
        unsafe { libc::makecontext(&mut state.own, fiber, 0) };
        // SAFETY: both contexts are valid and stay.
        assert_eq!(unsafe { libc::swapcontext(&mut state.home, &state.own) }, 0);
        assert_same(&state.both.take().unwrap(), 20);
    }
}
