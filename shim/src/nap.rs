//! Waiting for what another thread does, where there is nothing to be woken by.

/// Sleeps for so many nanoseconds, below a second, about. A signal ends no nap: who counts its naps would have no patience where a
/// profiler's come a thousand times a second.
pub fn of(ns: i64) {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: ns };
    // SAFETY: pointers to a local; what is left goes where what was wanted was.
    while unsafe { libc::nanosleep(&raw const t, &raw mut t) } != 0 && t.tv_nsec > 0 && interrupted() {}
}

fn interrupted() -> bool {
    std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted
}

/// The nap of a round, counted from 0: 50 us, and twice as long each time up to 6.4 ms. Hundreds of threads that wait for one
/// and wake 20 times a millisecond leave it no processor.
pub fn growing(round: u32) {
    of(50_000 << round.min(7));
}
