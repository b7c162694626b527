//! Waiting for what another thread does, where there is nothing to be woken by.

/// Sleeps for so many nanoseconds, about.
pub fn of(ns: i64) {
    let t = libc::timespec { tv_sec: 0, tv_nsec: ns };
    // SAFETY: a pointer to a local.
    unsafe { libc::nanosleep(&t, std::ptr::null_mut()) };
}

/// The nap of a round, counted from 0: 50 us, and twice as long each time up to 6.4 ms. Hundreds of threads that wait for one
/// and wake 20 times a millisecond leave it no processor.
pub fn growing(round: u32) {
    of(50_000 << round.min(7));
}
