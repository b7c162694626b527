//! Signals that our own file work could raise in a thread of the program: SIGPIPE (a reader left) and SIGXFSZ (a file
//! size limit). Bare, the program would never have got them.

use std::mem::MaybeUninit;

/// Runs `f` with both signals blocked in this thread, and takes back what it raised.
pub fn held_off<T>(f: impl FnOnce() -> T) -> T {
    let mut mine = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    let mut pending = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: pointers to locals; the set is emptied before anything is added.
    unsafe {
        libc::sigemptyset(mine.as_mut_ptr());
        libc::sigaddset(mine.as_mut_ptr(), libc::SIGPIPE);
        libc::sigaddset(mine.as_mut_ptr(), libc::SIGXFSZ);
        libc::sigpending(pending.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, mine.as_ptr(), before.as_mut_ptr());
    }
    let result = f();
    // SAFETY: the calling thread's errno, as `f` left it for its caller.
    let errno = unsafe { *libc::__errno_location() };
    for signal in [libc::SIGPIPE, libc::SIGXFSZ] {
        // One that was pending before is the program's.
        // SAFETY: filled by sigpending above.
        if unsafe { libc::sigismember(pending.as_ptr(), signal) } == 1 {
            continue;
        }
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let mut only = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: pointers to locals; no waiting.
        unsafe {
            libc::sigemptyset(only.as_mut_ptr());
            libc::sigaddset(only.as_mut_ptr(), signal);
            libc::sigtimedwait(only.as_ptr(), std::ptr::null_mut(), &now);
        }
    }
    // SAFETY: the mask that was in force.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
    result
}
