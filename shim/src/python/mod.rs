//! The calling thread's own Python frames, without the GIL and without touching a reference count.
//!
//! Why that is sound: only the thread itself pushes and pops its frames, and it is in our call; each frame holds a
//! reference to its code object; a code object's file, name and line table never change. Nothing is called in Python but
//! functions that read one word (which thread state is this thread's, is the interpreter ending), and nothing is
//! allocated there. Taking the GIL instead would deadlock: a hook may run under a lock that the GIL's holder waits for.
//!
//! * `find` looks for an interpreter among the loaded objects; `layout` says where things lie in its version.
//! * [`fold`] walks the frames (`frames`) into a stack's hash; [`record`] gives them one by one, at a stack's first sight.
//! * `places` turns a frame into the number of its place: `text` and `line` read names and line once.
//!
//! Not seen: frames of a thread that CPython does not know (autograd's device threads run no Python), free-threaded
//! builds, PyPy.

mod find;
mod frames;
mod layout;
mod line;
mod places;
mod text;

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

pub use find::{closed, closing, look};
pub use frames::{EACH, Frame};
pub use places::{Names, of as place_of};

use crate::unwind;

/// So many walks check every address before they read it: a layout that is not what its version says is found out then.
const CAREFUL: u32 = 32;
static WALKS: AtomicU32 = AtomicU32::new(0);

/// Folds the thread's frames into a stack's hash, `depth` at most; and how many there were. `state` says what is known of
/// the moment.
#[inline]
pub fn fold(mut hash: u64, depth: usize, state: State) -> (u64, usize) {
    let Some(interpreter) = find::interpreter() else { return (hash, 0) };
    let Some(thread) = interpreter.thread() else { return (hash, 0) };
    let mut visit = |f: &Frame| hash = unwind::fold(hash, f.key);
    let n = if WALKS.load(Relaxed) < CAREFUL {
        careful(interpreter, thread, depth, &mut visit)
    } else if state == State::Interrupted {
        // SAFETY: every read is asked about first.
        unsafe { frames::each::<frames::Checked, false>(interpreter, thread, depth, &mut visit) }
    } else {
        // SAFETY: the thread's own state, of an interpreter whose layout was tried out.
        unsafe { frames::each::<frames::Trusted, false>(interpreter, thread, depth, &mut visit) }
    };
    (hash, n.unwrap_or(0))
}

/// Whether it must be known where the interpreter is. While 3.11 and 3.12 enter a C call of the evaluator, its record is
/// chained before it holds a frame: what a signal handler finds there in between is what was on the stack before.
#[inline]
pub fn needs_state() -> bool {
    find::interpreter().is_some_and(|i| matches!(i.layout.minor, 11 | 12))
}

/// Where the interpreter may be when its frames are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// In a call that it made.
    Called,
    /// Anywhere: a signal handler runs, perhaps between two stores that make one frame.
    Interrupted,
}

#[cold]
#[inline(never)]
fn careful(
    interpreter: &find::Interpreter,
    thread: u64,
    depth: usize,
    visit: &mut impl FnMut(&Frame),
) -> Option<usize> {
    WALKS.fetch_add(1, Relaxed);
    // SAFETY: every read is asked about first.
    let n = unsafe { frames::each::<frames::Checked, false>(interpreter, thread, depth, visit) };
    if n.is_none() {
        find::refuse("its frames are not where this version of Python has them (an unusual build?)");
    }
    n
}

/// The thread's frames, innermost first, as many as there is room for; how many there were.
pub fn record(out: &mut [Frame], state: State) -> usize {
    let Some(interpreter) = find::interpreter() else { return 0 };
    let Some(thread) = interpreter.thread() else { return 0 };
    let mut n = 0;
    let depth = out.len();
    let mut visit = |f: &Frame| {
        if let Some(slot) = out.get_mut(n) {
            *slot = *f;
            n += 1;
        }
    };
    if state == State::Called {
        // SAFETY: as in `fold`, which came first.
        unsafe { frames::each::<frames::Trusted, true>(interpreter, thread, depth, &mut visit) };
    } else {
        // SAFETY: every read is asked about first.
        unsafe { frames::each::<frames::Checked, true>(interpreter, thread, depth, &mut visit) };
    }
    n
}

/// Whether an interpreter was found.
#[inline(always)]
pub fn is_ready() -> bool {
    find::interpreter().is_some()
}

/// Whether the native frame at this return address runs Python code: for versions whose frames do not tell where on the
/// C stack they are run.
pub fn is_evaluator(pc: u64) -> bool {
    find::interpreter()
        .is_some_and(|i| i.evaluator != 0 && unwind::function_start(pc.wrapping_sub(1)) == Some(i.evaluator))
}
