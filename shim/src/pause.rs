//! Whether the program asked for a pause of recording: no stacks, tensors, marks and regions meanwhile. What the driver gives
//! and takes is recorded all the same, or the history would not be true afterwards.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

static PAUSED: AtomicBool = AtomicBool::new(false);

/// Begins or ends a pause.
pub fn set(paused: bool) {
    PAUSED.store(paused, Relaxed);
}

/// Whether there is one.
#[inline]
pub fn on() -> bool {
    PAUSED.load(Relaxed)
}
