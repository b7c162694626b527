//! Code made at run time that told libgcc about itself by `__register_frame` (LLVM's JIT: numba
//! and others). Our hooks of these two calls note it here and pass it on.
//!
//! LLVM registers a whole section or, where its own libunwind is linked, one FDE a call: both are
//! told apart by the first entry.
//!
//! The lock is taken on the cold path only and never waited for without limit: a signal handler may
//! have interrupted its holder, and in a forked child the holder may not exist.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

use super::cfi::{self, Function};
use super::close;
use super::rule::Rule;

/// One function, and the pointer it was registered with.
#[derive(Clone, Copy)]
struct Code {
    start: u64,
    end: u64,
    fde: u64,
    begin: u64,
}

/// Sorted by `start`.
static FUNCTIONS: Lock = Lock { taken: AtomicBool::new(false), value: UnsafeCell::new(Vec::new()) };
/// All registered code lies in here; most questions end here without the lock.
static LOW: AtomicU64 = AtomicU64::new(u64::MAX);
static HIGH: AtomicU64 = AtomicU64::new(0);
/// A deregistration could not be noted: nothing that is listed can be relied on any more.
static LOST: AtomicBool = AtomicBool::new(false);

struct Lock {
    taken: AtomicBool,
    value: UnsafeCell<Vec<Code>>,
}

// SAFETY: `with` lets one thread at a time get at the value.
unsafe impl Sync for Lock {}

impl Lock {
    /// Calls `work` unless the lock isn't to be had within `tries`. It must not panic.
    fn with<T>(&self, tries: u32, work: impl FnOnce(&mut Vec<Code>) -> T) -> Option<T> {
        let mut left = tries;
        while self.taken.swap(true, Acquire) {
            left = left.checked_sub(1)?;
            if tries > READ_TRIES {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
        // SAFETY: the lock is ours.
        let result = work(unsafe { &mut *self.value.get() });
        self.taken.store(false, Release);
        Some(result)
    }
}

/// Some microseconds of spinning: as long as a few others need to read.
const READ_TRIES: u32 = 2000;
/// Some tens of milliseconds of yielding.
const WRITE_TRIES: u32 = 100_000;

/// `__register_frame(begin)` is about to be passed on.
///
/// # Safety
/// `begin` is what the program gave to `__register_frame`: a section with an end mark, or one FDE.
pub unsafe fn registered(begin: u64) {
    if begin == 0 {
        return;
    }
    let mut replaced = false;
    // Failing to note it costs frames, nothing else.
    FUNCTIONS.with(WRITE_TRIES, |functions| {
        // SAFETY: as the caller says.
        unsafe {
            cfi::each_function(begin, |fde, start, end| replaced |= note(functions, Code { start, end, fde, begin }))
        };
    });
    if replaced {
        close::forget();
    }
}

/// Lists one function; true if others had to give way that were never deregistered.
fn note(functions: &mut Vec<Code>, code: Code) -> bool {
    // What overlaps is a run, since the listed ones don't overlap each other.
    let first = functions.partition_point(|f| f.end <= code.start);
    let last = functions.partition_point(|f| f.start < code.end);
    let replaced = first < last;
    if replaced {
        functions.drain(first..last);
    }
    if functions.try_reserve(1).is_ok() {
        functions.insert(first, code);
        LOW.fetch_min(code.start, Relaxed);
        HIGH.fetch_max(code.end, Relaxed);
    }
    replaced
}

/// `__deregister_frame(begin)` is about to be passed on; afterwards the memory may be freed.
pub fn deregistered(begin: u64) {
    let removed = FUNCTIONS.with(WRITE_TRIES, |functions| {
        let before = functions.len();
        functions.retain(|f| f.begin != begin);
        before != functions.len()
    });
    if removed.is_none() {
        LOST.store(true, Relaxed);
    }
    if removed != Some(false) {
        close::forget();
    }
}

/// The rule for the code at `at`, if it was registered.
pub(super) fn rule(at: u64) -> Option<Rule> {
    look_up(at, |code| {
        // SAFETY: the program registered this FDE and hasn't deregistered it: that needs the lock,
        // which is held here.
        Some(unsafe { Function::read(code.fde) }?.rule(at))
    })
    .flatten()
}

/// Where the registered function that holds `at` begins.
pub(super) fn start_of(at: u64) -> Option<u64> {
    look_up(at, |code| code.start)
}

fn look_up<T>(at: u64, read: impl FnOnce(Code) -> T) -> Option<T> {
    if at < LOW.load(Relaxed) || at >= HIGH.load(Relaxed) || LOST.load(Relaxed) {
        return None;
    }
    FUNCTIONS.with(READ_TRIES, |functions| {
        let after = functions.partition_point(|f| f.start <= at);
        let code = *functions.get(after.checked_sub(1)?)?;
        (at < code.end).then(|| read(code))
    })?
}
