//! The library's own walks, compiled in from its sources. All that depends on their interface is in here, and in
//! `message` and `recorder` what they ask of the library around them.

// The crate's root takes these in, for they know one another by `crate::`.
#[path = "../../../src/exports.rs"]
#[allow(dead_code, reason = "the library uses all of it")]
pub mod exports;
#[path = "../../../src/numbers.rs"]
#[allow(dead_code, reason = "the library uses all of it")]
pub mod numbers;
#[path = "../../../src/python/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the library uses all of it")]
pub mod python;
#[path = "../../../src/unwind/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the library uses all of it")]
pub mod unwind;

use std::ffi::{CStr, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::frames::{DEPTH, Frames};
use crate::own;
use numbers::Numbers;

static STACKS: Numbers<{ 1 << 16 }> = Numbers::new();
static NEXT: AtomicU32 = AtomicU32::new(1);

thread_local! {
    // Never released: the few threads that end here leave 82 KB each.
    // SAFETY: all zeroes is what the library starts with.
    static UNWINDER: unwind::Unwinder = const { unsafe { MaybeUninit::zeroed().assume_init() } };
}

unsafe fn resolve(name: &CStr) -> *mut c_void {
    // SAFETY: a C string; nothing hooks dlsym here.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

/// Once, before the first capture.
pub fn load() {
    // SAFETY: it is dlsym itself.
    unsafe { unwind::init(resolve) };
}

/// Whether there is a Python whose frames can be read.
pub fn load_python() -> bool {
    python::look()
}

/// The native stack from the caller on: its hash and how many frames it has.
#[inline(always)]
fn hash() -> unwind::Captured {
    // SAFETY: this thread's.
    UNWINDER.with(|unwinder| unsafe { unwind::capture(unwinder, DEPTH, own::range()) })
}

/// The native stack; how many frames.
#[inline(never)]
pub fn native() -> usize {
    let captured = hash();
    std::hint::black_box(captured.hash);
    captured.len
}

/// Python's frames; how many.
#[inline(never)]
pub fn python() -> usize {
    let (hash, len) = python::fold(0, DEPTH);
    std::hint::black_box(hash);
    len
}

/// Both, and the stack's number: all that an allocation pays for a stack that was met before. At first sight the
/// library walks once more and writes the frames down, which is left out here.
#[inline(never)]
pub fn all() -> usize {
    let captured = hash();
    let (hash, places) = python::fold(captured.hash, DEPTH);
    std::hint::black_box(STACKS.get(hash, || NEXT.fetch_add(1, Relaxed)).unwrap_or(0));
    captured.len + places
}

/// How many stacks [`all`] told apart.
pub fn distinct() -> u32 {
    NEXT.load(Relaxed) - 1
}

/// The native stack's frames, and whether the walk that only hashes them, by the thread's own linked rules, went
/// through the same ones. For the comparison.
#[inline(never)]
pub fn record(frames: &mut Frames) -> bool {
    let hashed = hash();
    let mut recorded = [unwind::Recorded { pc: 0, sp: 0 }; DEPTH];
    // SAFETY: this thread's.
    let captured = UNWINDER.with(|unwinder| unsafe { unwind::record(unwinder, &mut recorded, own::range()) });
    recorded.iter().take(captured.len).for_each(|frame| {
        frames.push(frame.pc);
    });
    hashed == captured
}

/// An address without its marks.
pub fn plain(pc: u64) -> u64 {
    unwind::address(pc)
}

/// The walk had no unwind information there: this frame, and all further out, hang on a guess.
pub fn is_guessed(pc: u64) -> bool {
    pc & unwind::GUESSED != 0
}
