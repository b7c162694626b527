//! The clock of events: the time stamp counter where the kernel trusts it (a read costs a few ns), else the monotonic clock
//! (42 ns through the vDSO).

use std::sync::atomic::{AtomicU8, Ordering::*};

use crate::driver;

static KIND: AtomicU8 = AtomicU8::new(0);

/// Whether the counter is used.
pub fn is_tsc() -> bool {
    match KIND.load(Relaxed) {
        1 => true,
        2 => false,
        _ => {
            let trusted = trusted();
            KIND.store(if trusted { 1 } else { 2 }, Relaxed);
            trusted
        }
    }
}

/// The kernel checked that it runs steadily and alike on all processors if it uses it itself.
fn trusted() -> bool {
    cfg!(target_arch = "x86_64")
        && std::fs::read("/sys/devices/system/clocksource/clocksource0/current_clocksource")
            .is_ok_and(|s| s.starts_with(b"tsc"))
}

/// Now, in the clock's own unit.
#[inline]
pub fn raw() -> u64 {
    #[cfg(target_arch = "x86_64")]
    if is_tsc() {
        // SAFETY: every x86-64 processor has the instruction, and the kernel uses it itself.
        return unsafe { std::arch::x86_64::_rdtsc() };
    }
    driver::now_ns()
}

/// Both clocks at one moment: the closest of three readings, as the thread may be held up between the two.
pub fn both() -> (u64, u64) {
    let read = || {
        let raw = raw();
        let ns = driver::now_ns();
        (self::raw().wrapping_sub(raw), (raw, ns))
    };
    [read(), read(), read()].into_iter().min_by_key(|(apart, _)| *apart).map_or((0, 0), |(_, pair)| pair)
}
