//! Time stamps that cost little: the processor's counter, which the kernel's clock says the speed of.

use std::arch::x86_64::_rdtsc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Ticks in 2^20 nanoseconds; 0 until measured.
static TICKS: AtomicU64 = AtomicU64::new(0);
const LONG: Duration = Duration::from_millis(100);

/// Measures how fast the counter runs.
pub fn calibrate() {
    let (start, first) = (Instant::now(), ticks());
    while start.elapsed() < LONG {
        std::hint::spin_loop();
    }
    let (passed, last) = (start.elapsed(), ticks());
    TICKS.store((((last - first) as f64) * f64::from(1 << 20) / passed.as_nanos() as f64) as u64, Relaxed);
}

/// The counter now.
#[inline(always)]
pub fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has the instruction.
    unsafe { _rdtsc() }
}

/// How long that many ticks are.
pub fn nanoseconds(ticks: u32) -> f64 {
    f64::from(ticks) * f64::from(1 << 20) / TICKS.load(Relaxed).max(1) as f64
}
