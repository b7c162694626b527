//! The ends of threads and of the process.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering::*};

use vramscope_core::event::{Event, EventKind};

use crate::{arena, capture, ctl, recorder, regions, state, thread, writer};

/// A key whose destructor closes a thread's ring. 0: none; else key + 1.
static KEY: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" fn thread_ends(_: *mut c_void) {
    // A forked child's threads end too: the rings are the parent's.
    if state::forked() {
        return;
    }
    let t = thread::current();
    // Destructors of other keys may still free: run again in the next round, up to the last.
    if !t.leaving.replace(true) {
        set_key();
        return;
    }
    if capture::any() {
        capture::forget_thread();
    }
    if !state::exiting() {
        state::guarded("a thread's end", arena::thread_ends);
    }
    recorder::thread_ends(t);
    regions::thread_ends(t);
    t.unwinder.release();
}

fn set_key() {
    let key = KEY.load(Relaxed);
    if key != 0 {
        // SAFETY: a key of ours.
        unsafe { libc::pthread_setspecific(key - 1, std::ptr::dangling::<c_void>()) };
    }
}

/// The calling thread has a ring: its end is to be noticed.
pub fn watch_thread() {
    thread::current().leaving.set(false);
    set_key();
}

/// Registers the process's exit handler, and the key; `false`: the process has ended all but for this thread.
pub fn register() -> bool {
    let mut key = 0;
    // SAFETY: a pointer to a local and a function that takes any pointer.
    if unsafe { libc::pthread_key_create(&mut key, Some(thread_ends)) } == 0 {
        KEY.store(key + 1, Relaxed);
    }
    // SAFETY: a function without arguments. Registered after the driver's own: it runs before them.
    unsafe { libc::atexit(at_exit) == 0 }
}

/// Everything recorded so far is written, and from here on every event before its hook returns: destructors of other
/// libraries may still free. No CUDA call is made.
extern "C" fn at_exit() {
    // What another thread is setting up is finished first, and then taken away.
    if !state::settled() {
        return;
    }
    // If a signal handler ends the process, what it interrupted never goes on.
    thread::current().leave();
    // From here on each event is written before its hook returns, and this thread goes first.
    state::set_exiting();
    state::guarded("exit", || {
        if recorder::recording() {
            // This thread may have no ring yet, and those of threads that ended are free once they are drained.
            writer::flush();
            writer::write_counters();
            recorder::event(&Event { kind: EventKind::Exit, ..Event::default() });
            if let Some(s) = recorder::spool() {
                s.mark_exit();
            }
        }
    });
    // Also after a fault of ours: what was recorded before it may still be in the rings, if the writer was at work then.
    state::guarded("the history's end", writer::end);
    // Of its own: a fault above must not leave the file behind.
    ctl::end();
}
