//! The device's free memory: looked at now and then, recorded as samples, and kept from running out for others.

use std::sync::atomic::{AtomicU64, Ordering::*};

use vramscope_core::event::{Event, EventKind};

use crate::context::Slot;
use crate::{capture, clock, driver, pool, recorder, state};

/// Free memory that others (lazy module loads, graphs, streams, other users of the card) must find.
fn floor(slot: &Slot) -> u64 {
    (512u64 << 20).max(slot.total() / 100 * 3).min(slot.total() / 4)
}

/// Bytes that the device lacks to leave others their room.
pub fn missing(slot: &Slot) -> u64 {
    let floor = floor(slot);
    floor.saturating_sub(free_now(slot, floor))
}

/// Raw clock ticks after which a look at the device's free memory is old: about 20 ms.
const OLD: u64 = 40_000_000;

/// Free bytes of the device, from a look not older than 20 ms, or fresh when it gets near the floor.
fn free_now(slot: &Slot, floor: u64) -> u64 {
    let age = clock::raw().wrapping_sub(slot.free_time.load(Relaxed));
    let guess = slot.free_seen.load(Relaxed).saturating_sub(slot.taken.load(Relaxed));
    if age < OLD && guess >= floor {
        return guess;
    }
    look(slot).unwrap_or(guess)
}

/// Asks the driver for the device's free memory, and records a sample now and then. A global-mode capture elsewhere does not
/// forbid the question, but nothing is risked.
fn look(slot: &Slot) -> Option<u64> {
    if capture::any() || state::exiting() {
        return None;
    }
    let (free, total) = driver::memory_info_of(slot.handle())?;
    let now = clock::raw();
    slot.free_seen.store(free, Relaxed);
    slot.taken.store(0, Relaxed);
    slot.free_time.store(now, Relaxed);
    static SAMPLED: AtomicU64 = AtomicU64::new(0);
    let last = SAMPLED.load(Relaxed);
    if now.wrapping_sub(last) > 5 * OLD && SAMPLED.compare_exchange(last, now, Relaxed, Relaxed).is_ok() {
        sample(slot, free, total);
    }
    Some(free)
}

fn sample(slot: &Slot, free: u64, total: u64) {
    let (active, inactive) = pool::held(slot.device());
    recorder::event(&Event {
        kind: EventKind::Sample,
        context: slot.number(),
        bytes: free,
        block: total,
        extra: [active, inactive, 0],
        ..Event::default()
    });
}

/// Whether the device runs low by the last look: then a request is not rounded up to a size class, so that the pool never
/// needs what the driver alone would not.
pub fn running_low(slot: &Slot) -> bool {
    slot.free_time.load(Relaxed) != 0
        && slot.free_seen.load(Relaxed).saturating_sub(slot.taken.load(Relaxed)) < floor(slot)
}

/// After an allocation from the driver: a look at the device if the last one is old.
pub fn look_sometimes(slot: &Slot) {
    if clock::raw().wrapping_sub(slot.free_time.load(Relaxed)) > 5 * OLD {
        look(slot);
    }
}

/// A sample at once (a failure).
pub fn sample_now(slot: &Slot) {
    if let Some((free, total)) = driver::memory_info_of(slot.handle()).filter(|_| !capture::any()) {
        sample(slot, free, total);
    }
}
