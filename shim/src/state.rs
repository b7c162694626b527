//! Whether vramscope acts in this process at all, and what happens when something in it breaks: the program goes on
//! natively, and it is said once.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, Ordering::*};

use crate::message::error;
use crate::thread::{self, Thread};
use crate::{doctor, exit, nap, pool, real, recorder, settings, writer};

const UNKNOWN: u8 = 0;
const ON: u8 = 1;
const OFF: u8 = 2;

/// Decided at the first look-up: `VRAMSCOPE=off` and `VRAMSCOPE_ONLY` are looked at before anything is substituted.
static SWITCH: AtomicU8 = AtomicU8::new(UNKNOWN);

/// Whether this process is not to be touched.
pub fn switched_off() -> bool {
    match SWITCH.load(Relaxed) {
        ON => false,
        OFF => true,
        _ => {
            let off = settings::untouched();
            SWITCH.store(if off { OFF } else { ON }, Relaxed);
            off
        }
    }
}

/// A page that reads as zeroes in a forked child, also one made with a raw `clone`: CUDA does not survive a fork, and the
/// parent's rings and threads are not the child's.
static FORK_PAGE: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());
const PARENT: u32 = 0x5652_414d;
/// Too much broke: hooks forward.
static BROKEN: AtomicBool = AtomicBool::new(false);
/// The program's exit handlers are running,
static EXITING: AtomicBool = AtomicBool::new(false);
/// and the state of the thread that runs them.
static ENDS_HERE: AtomicPtr<Thread> = AtomicPtr::new(std::ptr::null_mut());

/// Whether hooks act now. The first call starts the recorder.
#[inline]
pub fn active() -> bool {
    let page = FORK_PAGE.load(Acquire);
    if page.is_null() {
        return start();
    }
    // SAFETY: the page is mapped for the life of the process.
    let mine = unsafe { (*page).load(Relaxed) } == PARENT;
    mine && !BROKEN.load(Relaxed)
}

/// As [`active`], without starting anything: for hooks of calls that do not matter by themselves.
#[inline]
pub fn started() -> bool {
    !FORK_PAGE.load(Relaxed).is_null() && active()
}

/// Whether too much of ours broke, and hooks forward.
pub fn broken() -> bool {
    BROKEN.load(Relaxed)
}

/// Whether this process is a forked child of the one that started us.
pub fn forked() -> bool {
    let page = FORK_PAGE.load(Acquire);
    // SAFETY: as above.
    !page.is_null() && unsafe { (*page).load(Relaxed) } != PARENT
}

/// 0, or the process whose thread is starting or has started us.
static STARTER: AtomicU32 = AtomicU32::new(0);

#[cold]
fn start() -> bool {
    if switched_off() || BROKEN.load(Relaxed) || !real::resolve() {
        return false;
    }
    let me = std::process::id();
    match STARTER.compare_exchange(0, me, AcqRel, Acquire) {
        Ok(_) => start_once(),
        Err(starter) => wait_started(starter == me),
    }
    !FORK_PAGE.load(Acquire).is_null() && !BROKEN.load(Relaxed)
}

/// Another thread is starting us, which takes a millisecond, and more on a machine with much to do. It is not waited for at any
/// price (5 s, once): what it needs may be a lock that the waiting thread holds (a constructor, under the loader's), and in a
/// forked child it does not exist. Calls are then served natively, and the end of the process may leave a spool behind.
fn wait_started(mine: bool) {
    const ROUNDS: u32 = 790;
    static GIVEN_UP: AtomicBool = AtomicBool::new(false);
    for round in 0..if mine { ROUNDS } else { 0 } {
        if !FORK_PAGE.load(Acquire).is_null() || BROKEN.load(Relaxed) || GIVEN_UP.load(Relaxed) {
            return;
        }
        nap::growing(round);
    }
    GIVEN_UP.store(mine, Relaxed);
}

/// For the end of a process: whether it is the one that started us, after waiting a little while for a thread that is at it.
/// (A child forked meanwhile has not yet the page that would tell.)
pub fn settled() -> bool {
    let mine = STARTER.load(Acquire) == std::process::id();
    wait_started(mine);
    mine && !forked()
}

fn start_once() {
    let done = catch_unwind(|| {
        // A fault of ours is said in our own words.
        std::panic::set_hook(Box::new(|_| {}));
        test_panic("start");
        settings::get();
        doctor::watch();
        // First: the process may end, in another thread, while the recorder starts. Too late for a handler is too late for
        // a history, too: nobody would remove its spool.
        if exit::register() {
            recorder::start();
        }
    });
    if let Err(payload) = done {
        broke("start", payload.as_ref());
    }
    // SAFETY: constant arguments; an anonymous mapping.
    let page = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            4096,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if page == libc::MAP_FAILED {
        BROKEN.store(true, Relaxed);
        return;
    }
    // SAFETY: the page just mapped. Kernels before 4.14 lack it: then only fork() itself is noticed.
    if unsafe { libc::madvise(page, 4096, libc::MADV_WIPEONFORK) } != 0 {
        // SAFETY: a handler that stores one word.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    }
    let page = page.cast::<AtomicU32>();
    // SAFETY: as above; zeroed memory is a valid atomic.
    unsafe { (*page).store(PARENT, Relaxed) };
    FORK_PAGE.store(page, Release);
}

unsafe extern "C" fn in_child() {
    let page = FORK_PAGE.load(Acquire);
    if !page.is_null() {
        // SAFETY: the page is mapped.
        unsafe { (*page).store(0, Relaxed) };
    }
}

/// The program's exit handlers run: nothing is pooled any more, and events are written before the hook returns.
pub fn set_exiting() {
    ENDS_HERE.store(std::ptr::from_ref(thread::current()).cast_mut(), Relaxed);
    EXITING.store(true, Release);
}

/// Whether this is the thread that runs the program's exit handlers.
pub fn ends_here() -> bool {
    std::ptr::eq(ENDS_HERE.load(Relaxed), thread::current())
}

/// Whether they do.
#[inline]
pub fn exiting() -> bool {
    EXITING.load(Relaxed)
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: i32, old: *mut i32) -> i32;
}

/// Defers a pthread_cancel until after `f`: for real calls made while a lock of ours is held.
pub fn uncancelled<T>(f: impl FnOnce() -> T) -> T {
    let mut cancel = 0;
    // SAFETY: a pointer to a local; 1 is PTHREAD_CANCEL_DISABLE.
    unsafe { pthread_setcancelstate(1, &mut cancel) };
    let result = f();
    // SAFETY: the state that was in force.
    unsafe { pthread_setcancelstate(cancel, std::ptr::null_mut()) };
    result
}

/// Runs our own code so that a panic of it never reaches the program: it costs us our work, not theirs. A pthread_cancel
/// meanwhile takes effect after it: the driver's waits are cancellation points, and a forced unwinding must not meet the
/// catch.
#[inline(never)]
pub fn guarded<T>(what: &str, f: impl FnOnce() -> T) -> Option<T> {
    let tested = || {
        test_panic(what);
        f()
    };
    match uncancelled(|| catch_unwind(AssertUnwindSafe(tested))) {
        Ok(v) => Some(v),
        Err(payload) => {
            broke(what, payload.as_ref());
            None
        }
    }
}

/// After a fault of ours: nothing is pooled or recorded any more. The table of blocks goes on being kept, because what is said
/// of blocks handed out before depends on it; should faults go on, everything is forwarded.
#[cold]
fn broke(what: &str, payload: &(dyn Any + Send)) {
    static FAULTS: AtomicU32 = AtomicU32::new(0);
    pool::POOL.turn_off();
    if FAULTS.fetch_add(1, Relaxed) >= 8 || what == "start" {
        BROKEN.store(true, Relaxed);
    }
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Relaxed) {
        let text =
            payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        error!(
            "a fault of ours in {what} ({}): pooling and recording stop here, the program goes on natively. Please report it.",
            text.unwrap_or("no text")
        );
        recorder::note("vramscope stopped after a fault of its own");
        writer::flush_if_idle();
        recorder::stop();
    }
}

/// For the test of the above: `VRAMSCOPE_TEST_PANIC=NAME` makes the hook of that name panic once.
fn test_panic(what: &str) {
    static WANTED: once_cell::sync::OnceCell<Option<String>> = once_cell::sync::OnceCell::new();
    static DONE: AtomicBool = AtomicBool::new(false);
    if let Some(w) = WANTED.get_or_init(|| settings::variable(c"VRAMSCOPE_TEST_PANIC")) {
        assert!(w != what || DONE.swap(true, Relaxed), "asked for by VRAMSCOPE_TEST_PANIC={what}");
    }
}
