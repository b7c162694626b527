//! The pool of the process, its counters, and what an allocation that fails means for it.

use std::sync::atomic::{AtomicU64, Ordering::*};

use vramscope_core::counters::Counters;
use vramscope_core::event::{Event, EventKind, TrimWhy};
use vramscope_core::pool::{BlockInfo, Pool, Scope, Trimmed};

use crate::call::Call;
use crate::cuda::{self, Result};
use crate::upstream::{self, Up};
use crate::{driver, recorder, state, sync};

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
    c.failures = FAILURES.load(Relaxed);
    c.bad_frees = BAD_FREES.load(Relaxed);
    c
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
            result = call();
            if result != cuda::ERROR_OUT_OF_MEMORY || t.blocks == 0 {
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
