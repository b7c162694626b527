//! Threads of our own: signals blocked, so that one meant for the program never runs there, and nobody waits for their end.

use std::ffi::c_void;

type Work = Box<dyn FnOnce() + Send>;

/// Runs `work` in a new thread of this name (at most 15 letters) with this many bytes of stack; the system's error if there
/// can be none.
pub fn start(name: &'static std::ffi::CStr, stack: usize, work: impl FnOnce() + Send + 'static) -> Result<(), i32> {
    let work: Work = Box::new(move || {
        // SAFETY: a C string of at most 15 letters.
        unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
        work();
    });
    let work = Box::into_raw(Box::new(work));
    // SAFETY: all zeroes are valid for both; both are set up before use.
    let (mut all, mut old): (libc::sigset_t, libc::sigset_t) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    // SAFETY: as above.
    let mut attributes: libc::pthread_attr_t = unsafe { std::mem::zeroed() };
    let mut thread: libc::pthread_t = 0;
    // SAFETY: pointers to locals. The new thread inherits the full mask.
    unsafe {
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut old);
        libc::pthread_attr_init(&mut attributes);
        libc::pthread_attr_setstacksize(&mut attributes, stack);
        libc::pthread_attr_setdetachstate(&mut attributes, libc::PTHREAD_CREATE_DETACHED);
    }
    // SAFETY: as above; `run` takes what `work` points to.
    let r = unsafe { libc::pthread_create(&mut thread, &attributes, run, work.cast()) };
    // SAFETY: as above.
    unsafe {
        libc::pthread_attr_destroy(&mut attributes);
        libc::pthread_sigmask(libc::SIG_SETMASK, &old, std::ptr::null_mut());
    }
    if r == 0 {
        return Ok(());
    }
    // SAFETY: made above, and no thread got it.
    drop(unsafe { Box::from_raw(work) });
    Err(r)
}

extern "C" fn run(work: *mut c_void) -> *mut c_void {
    // SAFETY: made by `start` for this thread alone.
    let work = unsafe { Box::from_raw(work.cast::<Work>()) };
    work();
    std::ptr::null_mut()
}
