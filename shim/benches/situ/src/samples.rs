//! What the captures of one round cost: a buffer that is there from the start.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::*};

use crate::clock;

const MOST: usize = 1 << 18;

static TICKS: [AtomicU32; MOST] = [const { AtomicU32::new(0) }; MOST];
static LEN: AtomicUsize = AtomicUsize::new(0);
static FRAMES: AtomicU64 = AtomicU64::new(0);

/// A new round.
pub fn clear() {
    LEN.store(0, SeqCst);
    FRAMES.store(0, SeqCst);
}

/// One capture. More than there is room for are counted only.
pub fn add(ticks: u64, frames: usize) {
    FRAMES.fetch_add(frames as u64, Relaxed);
    if let Some(slot) = TICKS.get(LEN.fetch_add(1, Relaxed)) {
        slot.store(u32::try_from(ticks).unwrap_or(u32::MAX), Relaxed);
    }
}

/// How many captures there were, and how many frames they had together.
pub fn count() -> (usize, u64) {
    (LEN.load(SeqCst), FRAMES.load(SeqCst))
}

/// The captures' nanoseconds.
pub fn nanoseconds() -> impl Iterator<Item = f64> {
    TICKS.iter().take(LEN.load(SeqCst)).map(|t| clock::nanoseconds(t.load(Relaxed)))
}
