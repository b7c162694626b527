//! Memory that a capture asked for. Its addresses are the graph's from then on, but until the graph's first launch the driver
//! says of them what it says of no memory at all (INVALID_VALUE, measured), and who is careful refuses them: Triton takes such
//! a pointer for the processor's memory. Where the arena serves (`VRAMSCOPE_POOL=on`, which is what brings PyTorch to ask the
//! driver in captures) and while the capture goes on, the questions about a pointer are answered as for stream-ordered
//! memory; wherever the driver has an answer, it is the driver's.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::{Mutex, MutexGuard};

use crate::cuda::{self, DevicePtr, Stream};
use crate::{arena, capture, context, driver, state};

/// A piece of it.
#[derive(Clone, Copy, Debug)]
pub struct Captured {
    /// Where it begins.
    pub address: DevicePtr,
    /// The bytes asked for.
    pub bytes: u64,
    /// Ordinal of its device.
    pub device: i32,
    /// The driver's number of the capture.
    capture: u64,
}

static ALL: Mutex<BTreeMap<DevicePtr, Captured>> = Mutex::new(BTreeMap::new());
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn all() -> MutexGuard<'static, BTreeMap<DevicePtr, Captured>> {
    ALL.lock().unwrap_or_else(|e| e.into_inner())
}

/// The driver gave memory for work of a stream, which may capture.
pub fn allocated(address: DevicePtr, bytes: u64, stream: Stream, per_thread: bool) {
    if !capture::any() || !arena::is_on() {
        return;
    }
    let Some(capture) = driver::capture_of(stream, per_thread) else { return };
    let Some(context) = context::current() else { return };
    let mut all = all();
    all.insert(address, Captured { address, bytes, device: context.slot().device(), capture });
    COUNT.store(all.len(), Release);
}

/// The driver took memory back, in a capture or elsewhere. (In a forked child it does so, too, but the table may be locked for
/// ever: by a thread that was not forked.)
pub fn freed(address: DevicePtr) {
    if COUNT.load(Acquire) != 0 && !state::forked() {
        let mut all = all();
        all.remove(&address);
        COUNT.store(all.len(), Release);
    }
}

/// Whether there is any.
#[inline]
pub fn any() -> bool {
    COUNT.load(Acquire) != 0 && capture::any()
}

/// What an address lies in.
pub fn at(p: DevicePtr) -> Option<Captured> {
    let found = all().range(..=p).next_back().map(|(_, c)| *c)?;
    (p < found.address.saturating_add(found.bytes)).then_some(found)
}

/// Carries out a call that ends a capture: what it asked for is the graph's alone.
pub fn ending(stream: Stream, per_thread: bool, call: impl FnOnce() -> cuda::Result) -> cuda::Result {
    if COUNT.load(Acquire) == 0 {
        return call();
    }
    let capture = state::guarded("a capture's end", || driver::capture_of(stream, per_thread)).flatten();
    let result = call();
    state::guarded("a capture's end", || {
        let mut all = all();
        if !capture::any() {
            all.clear();
        } else if driver::capture_of(stream, per_thread) != capture {
            all.retain(|_, c| Some(c.capture) != capture);
        }
        COUNT.store(all.len(), Release);
    });
    result
}
