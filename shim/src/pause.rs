//! Whether the program asked for a pause of recording: no stacks, tensors, marks and regions meanwhile. What the driver gives
//! and takes is recorded all the same, or the history would not be true afterwards. That there was a pause is in the history: what
//! it lacks is not to be taken for what never was.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use vramscope_core::event::{Event, EventKind};

use crate::recorder;

static PAUSED: AtomicBool = AtomicBool::new(false);

/// Begins or ends a pause.
pub fn set(paused: bool) {
    if PAUSED.swap(paused, Relaxed) != paused {
        say();
    }
}

/// Recording begins, perhaps in a pause.
pub fn recording_begins() {
    if on() {
        say();
    }
}

fn say() {
    if recorder::recording() {
        let kind = if on() { EventKind::Pause } else { EventKind::Resume };
        recorder::event(&Event { kind, ..Event::default() });
    }
}

/// Whether there is one.
#[inline]
pub fn on() -> bool {
    PAUSED.load(Relaxed)
}
