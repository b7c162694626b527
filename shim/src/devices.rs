//! Which devices the process uses. Nearly all use one, with one context: that is what the quick ways rest on.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::cuda::Stream;
use crate::{capture, context, driver};

/// Devices that are told apart; a process has seldom more.
pub const DEVICES: usize = 64;
/// Those that have had contexts, a bit each. (The last one stands for all further ones.)
static USED: AtomicU64 = AtomicU64::new(0);
/// Those that have had several at once.
static SHARED: [AtomicBool; DEVICES] = [const { AtomicBool::new(false) }; DEVICES];

fn place(device: i32) -> usize {
    usize::try_from(device).unwrap_or(0).min(DEVICES - 1)
}

/// A context of a device is about to be known.
pub fn met(device: i32) {
    if context::of_device(device).next().is_some() {
        SHARED[place(device)].store(true, Relaxed);
    }
    USED.fetch_or(1 << place(device), Relaxed);
}

/// Whether a device's memory may be that of several contexts.
#[inline]
pub fn shared(device: i32) -> bool {
    SHARED[place(device)].load(Relaxed)
}

/// The device of a stream's context, where it may be another than the current one's.
#[inline]
pub fn of_stream(stream: Stream, per_thread: bool) -> Option<i32> {
    if USED.load(Relaxed).is_power_of_two() || capture::any() { None } else { look(stream, per_thread) }
}

#[cold]
fn look(stream: Stream, per_thread: bool) -> Option<i32> {
    let id = context::find(driver::stream_context(stream, per_thread)?)?;
    Some(context::slot(id).device())
}
