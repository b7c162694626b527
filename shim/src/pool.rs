//! The pool of the process, its counters, and what an allocation that fails means for it.

use std::sync::atomic::{AtomicU64, Ordering::*};

use vramscope_core::counters::Counters;
use vramscope_core::event::{Event, EventKind, TrimWhy};
use vramscope_core::pool::{BlockInfo, Pool, Scope, Trimmed};

use crate::call::Call;
use crate::cuda::{self, Result};
use crate::upstream::{self, Up};
use crate::{arena, context, driver, recorder, state, sync};

/// The pool of the process.
pub static POOL: Pool = Pool::new();

static FAILURES: AtomicU64 = AtomicU64::new(0);
static BAD_FREES: AtomicU64 = AtomicU64::new(0);

/// A request failed in the end.
pub fn count_failure() {
    FAILURES.fetch_add(1, Relaxed);
}

/// A pointer was freed that nobody knows.
pub fn count_bad_free() {
    BAD_FREES.fetch_add(1, Relaxed);
}

/// All counters as they stand.
pub fn counters() -> Counters {
    let mut c = POOL.counters();
    (c.device_barriers, c.host_barriers, c.no_barriers, c.barriers_refused) = sync::counts();
    (c.driver_allocs, c.driver_alloc_ns, c.driver_frees, c.driver_free_ns) = upstream::counts();
    for a in arena::all() {
        let own = a.counts();
        c.requests += own.allocs;
        c.hits_exact += own.allocs;
        c.frees_cached += own.frees;
        c.trims += own.trims;
        c.active += own.active.now;
        c.active_peak += own.active.peak;
        c.reserved += own.reserved.now;
        c.reserved_peak += own.reserved.peak;
        c.inactive += own.inactive.now;
        c.waiting += own.active.now.saturating_sub(own.allocated.now);
    }
    let misses = arena::misses();
    c.hits_exact = c.hits_exact.saturating_sub(misses);
    c.misses += misses;
    c.failures = FAILURES.load(Relaxed);
    c.bad_frees = BAD_FREES.load(Relaxed);
    c
}

/// Requests served so far, of whatever the pool was asked for.
pub fn served() -> u64 {
    let own = POOL.counters();
    // (Its requests count those that failed.)
    own.requests.saturating_sub(own.failures) + arena::all().map(|a| a.counts().allocs).sum::<u64>()
}

/// Bytes of a device that we hold from the driver: in use, and kept.
pub fn held(device: i32) -> (u64, u64) {
    let (mut active, mut inactive) = arena::counted(device);
    for id in context::of_device(device) {
        let u = POOL.usage(id);
        active += u.active;
        inactive += u.inactive;
    }
    (active, inactive)
}

/// Gives all cached memory back. Bytes.
pub fn give_back(why: TrimWhy) -> u64 {
    let me = Call::internal();
    let t = driver::relaxed(|| POOL.trim(&Up::new(&me), Scope::All));
    record_trim(&t, why);
    t.bytes + arena::trim_all(why)
}

// The pool gave memory back.
pub fn record_trim(t: &Trimmed, why: TrimWhy) {
    if t.blocks > 0 {
        recorder::event(&Event {
            kind: EventKind::Trim,
            bytes: t.bytes,
            block: t.blocks,
            code: why as u16,
            ..Event::default()
        });
    }
}

/// Carries out an allocating call; if it fails for want of memory, again after every cached byte has gone back.
#[inline]
pub fn retrying(call: impl Fn() -> Result) -> Result {
    let first = call();
    if first != cuda::ERROR_OUT_OF_MEMORY { first } else { retrying_after(first, &call) }
}

/// The same, after the first try failed so.
#[cold]
#[inline(never)]
fn retrying_after(first: Result, call: &dyn Fn() -> Result) -> Result {
    if !state::started() {
        return first;
    }
    state::guarded("retry", || {
        let me = Call::internal();
        let up = Up::new(&me);
        // Frees of other threads are real meanwhile, so that their memory is not cached under our feet.
        let _pressure = POOL.pressure();
        let mut result = first;
        for _ in 0..4 {
            let t = driver::relaxed(|| POOL.trim(&up, Scope::All));
            record_trim(&t, TrimWhy::OutOfMemory);
            let given = t.bytes + arena::give_back(TrimWhy::OutOfMemory);
            result = call();
            if result != cuda::ERROR_OUT_OF_MEMORY || given == 0 {
                break;
            }
        }
        result
    })
    .unwrap_or(first)
}

/// The block at a base address, if it is a pooled one (segments may be larger than what was asked for).
pub fn pooled(base: u64) -> Option<BlockInfo> {
    POOL.block_of(base).filter(|b| !b.direct)
}
