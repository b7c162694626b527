//! Bytes in use, by device and kind of memory, now and at most: what `vramscope_stats` tells and a limit is held against.
//! What the pool serves it counts itself (`POOL.usage`); the rest is counted here.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

use vramscope_core::event::Memory;
use vramscope_core::pool::ContextId;

use crate::devices::DEVICES;
use crate::ledger::Entry;
use crate::pool::POOL;
use crate::{arena, context, devices, sight};

const KINDS: usize = 16;

/// Bytes of one device.
struct Device {
    /// By [`Memory`].
    kinds: [AtomicU64; KINDS],
    /// Device memory of all kinds that is not in the pool's table.
    others: AtomicU64,
    /// Held by libraries that cache themselves (PyTorch), whatever its kind.
    hoarded: AtomicU64,
    allocated_peak: AtomicU64,
    reserved_peak: AtomicU64,
    failures: AtomicU64,
}

static ALL: [Device; DEVICES] = [const {
    Device {
        kinds: [const { AtomicU64::new(0) }; KINDS],
        others: AtomicU64::new(0),
        hoarded: AtomicU64::new(0),
        allocated_peak: AtomicU64::new(0),
        reserved_peak: AtomicU64::new(0),
        failures: AtomicU64::new(0),
    }
}; DEVICES];

fn of(device: i32) -> Option<&'static Device> {
    ALL.get(usize::try_from(device).ok()?)
}

/// What a device's memory is in use for. Bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// In somebody's use: tensors where PyTorch tells of them, else what was asked of the driver.
    pub allocated: u64,
    /// At most.
    pub allocated_peak: u64,
    /// Taken from the device by this process.
    pub reserved: u64,
    /// At most.
    pub reserved_peak: u64,
    /// The pool's blocks in use,
    pub pool_active: u64,
    /// and kept for reuse.
    pub pool_inactive: u64,
    /// Tensors, as PyTorch's own allocator told.
    pub tensors: u64,
    /// What libraries hold that cache themselves.
    pub hoarded: u64,
    /// Pinned host memory (no device's, but told with the one whose context asked for it).
    pub pinned: u64,
    /// Allocations that succeeded so far, of all devices.
    pub allocations: u64,
    /// Calls that failed so far, also those that PyTorch makes again when it has given back what it keeps.
    pub failures: u64,
}

/// What is in use on a device.
pub fn on(device: i32) -> Usage {
    of(device).map(|d| told(d, device, context::of_device(device))).unwrap_or_default()
}

fn told(d: &Device, device: i32, contexts: impl Iterator<Item = ContextId>) -> Usage {
    let held = Held::of(d, device, contexts);
    let kind = |m: Memory| d.kinds[m as usize].load(Relaxed);
    Usage {
        allocated: held.allocated,
        allocated_peak: d.allocated_peak.load(Relaxed).max(held.allocated),
        reserved: held.reserved,
        reserved_peak: d.reserved_peak.load(Relaxed).max(held.reserved),
        pool_active: held.active,
        pool_inactive: held.inactive,
        tensors: kind(Memory::Tensor),
        hoarded: d.hoarded.load(Relaxed),
        pinned: kind(Memory::Pinned),
        allocations: OTHERS.load(Relaxed) + crate::pool::served(),
        failures: d.failures.load(Relaxed),
    }
}

/// The sums that every allocation asks for: a few loads a context.
struct Held {
    allocated: u64,
    reserved: u64,
    active: u64,
    inactive: u64,
}

impl Held {
    #[inline]
    fn of(d: &Device, device: i32, contexts: impl Iterator<Item = ContextId>) -> Held {
        let (mut active, mut inactive) = arena::usage(device);
        let mut direct = 0;
        for id in contexts {
            let u = POOL.usage(id);
            active += u.active;
            inactive += u.inactive;
            direct += u.direct;
        }
        let driver = active + direct + d.others.load(Relaxed);
        Held { allocated: in_use(d, driver), reserved: driver + inactive, active, inactive }
    }
}

/// Bytes of a device that this process has taken.
pub fn reserved(device: i32) -> u64 {
    of(device).map_or(0, |d| Held::of(d, device, context::of_device(device)).reserved)
}

/// Allocations that are not in the pool's table.
static OTHERS: AtomicU64 = AtomicU64::new(0);
/// PyTorch's allocator has told of a tensor.
static TENSORS_TOLD: AtomicBool = AtomicBool::new(false);

/// Raises the peaks of a device to what is in use now, after a plain allocation. No counter that threads share is written
/// where nothing rose. (A process has seldom more than one context on a device: its own is asked where there is no other.)
#[inline]
pub fn note_in(device: i32, id: ContextId) {
    let Some(d) = of(device) else { return };
    let held = match devices::shared(device) {
        false => Held::of(d, device, std::iter::once(id)),
        true => Held::of(d, device, context::of_device(device)),
    };
    raise(d, &held);
}

/// Bytes in somebody's use, of what the driver gave. Of what a library caches itself only PyTorch tells what is in use;
/// without its report all of it counts as such.
fn in_use(d: &Device, driver: u64) -> u64 {
    if !TENSORS_TOLD.load(Relaxed) {
        return driver;
    }
    driver.saturating_sub(d.hoarded.load(Relaxed)) + d.kinds[Memory::Tensor as usize].load(Relaxed)
}

#[inline]
fn raise(d: &Device, held: &Held) {
    for (peak, now) in [(&d.allocated_peak, held.allocated), (&d.reserved_peak, held.reserved)] {
        if now > peak.load(Relaxed) {
            peak.fetch_max(now, Relaxed);
        }
    }
}

/// A piece of plain memory that a library which caches itself took from the driver.
struct Hoarded {
    device: i32,
    /// Number of its context.
    context: u16,
    bytes: u64,
}

/// All of them, by address.
static HOARDED: Mutex<BTreeMap<u64, Hoarded>> = Mutex::new(BTreeMap::new());

fn all_hoarded() -> std::sync::MutexGuard<'static, BTreeMap<u64, Hoarded>> {
    HOARDED.lock().unwrap_or_else(|e| e.into_inner())
}

/// A library that caches itself took plain memory.
pub fn hoarded(address: u64, device: i32, context: u16, bytes: u64) {
    if let Some(d) = of(device) {
        d.hoarded.fetch_add(bytes, Relaxed);
        all_hoarded().insert(address, Hoarded { device, context, bytes });
    }
}

/// A context ended, and its plain memory with it.
pub fn context_ended(context: u16) {
    all_hoarded().retain(|_, h| {
        let gone = h.context == context;
        if gone && let Some(d) = of(h.device) {
            d.hoarded.fetch_sub(h.bytes, Relaxed);
        }
        !gone
    });
}

/// A plain block that is not the pool's is freed.
pub fn not_hoarded(address: u64) {
    let held = all_hoarded().remove(&address);
    if let Some(d) = held.as_ref().and_then(|h| of(h.device)) {
        d.hoarded.fetch_sub(held.map_or(0, |h| h.bytes), Relaxed);
    }
}

/// Starts the peaks anew.
pub fn reset_peak(device: i32) {
    if let Some(d) = of(device) {
        d.allocated_peak.store(0, Relaxed);
        d.reserved_peak.store(0, Relaxed);
        // What is in use now counts: it may go before the next allocation.
        raise(d, &Held::of(d, device, context::of_device(device)));
    }
}

/// A request failed.
pub fn failed(device: i32) {
    if let Some(d) = of(device) {
        d.failures.fetch_add(1, Relaxed);
    }
}

/// An allocation of the ledger's appeared.
pub fn born(e: &Entry) {
    sight::remember(e);
    if let Some(d) = of(e.device) {
        d.kinds[e.memory as usize].fetch_add(e.bytes, Relaxed);
        if e.memory.on_device() {
            d.others.fetch_add(e.bytes, Relaxed);
        }
        if e.hoarded {
            d.hoarded.fetch_add(e.bytes, Relaxed);
        }
        if e.memory == Memory::Tensor {
            TENSORS_TOLD.store(true, Relaxed);
        }
        OTHERS.fetch_add(1, Relaxed);
        raise(d, &Held::of(d, e.device, context::of_device(e.device)));
    }
}

/// It went.
pub fn gone(e: &Entry) {
    sight::forget(e);
    if let Some(d) = of(e.device) {
        d.kinds[e.memory as usize].fetch_sub(e.bytes, Relaxed);
        if e.memory.on_device() {
            d.others.fetch_sub(e.bytes, Relaxed);
        }
        if e.hoarded {
            d.hoarded.fetch_sub(e.bytes, Relaxed);
        }
    }
}
