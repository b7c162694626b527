//! How much and how often: the pool's byte counts and counters.

use super::context::Context;
use super::{ContextId, Pool};
use crate::counters::Counters;
use std::sync::atomic::{AtomicU64, Ordering::*};

/// Counters of what happens seldom, or costs a driver call anyway.
pub(super) struct Rare {
    pub misses: AtomicU64,
    pub direct: AtomicU64,
    pub failures: AtomicU64,
    pub frees_driver: AtomicU64,
    pub refused: AtomicU64,
    pub doubles: AtomicU64,
    pub stale: AtomicU64,
    pub trims: AtomicU64,
    pub trimmed_bytes: AtomicU64,
    pub driver_allocs: AtomicU64,
    pub driver_frees: AtomicU64,
    pub active_peak: AtomicU64,
    pub reserved_peak: AtomicU64,
    /// Bytes of begun frees that did not end in the cache.
    pub not_kept: AtomicU64,
}

impl Rare {
    pub const fn new() -> Rare {
        Rare {
            misses: AtomicU64::new(0),
            direct: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            frees_driver: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            doubles: AtomicU64::new(0),
            stale: AtomicU64::new(0),
            trims: AtomicU64::new(0),
            trimmed_bytes: AtomicU64::new(0),
            driver_allocs: AtomicU64::new(0),
            driver_frees: AtomicU64::new(0),
            active_peak: AtomicU64::new(0),
            reserved_peak: AtomicU64::new(0),
            not_kept: AtomicU64::new(0),
        }
    }
}

/// Bytes of a context. `active` + `inactive` = `reserved`, but for changes under way in other threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Blocks in use, those being freed among them.
    pub active: u64,
    /// Cached blocks.
    pub inactive: u64,
    /// All segments.
    pub reserved: u64,
    /// Direct blocks; not in `reserved`.
    pub direct: u64,
}

impl Pool {
    /// The counters, without the times and without frees of unknown pointers: the pool knows neither.
    pub fn counters(&self) -> Counters {
        let r = |a: &AtomicU64| a.load(Relaxed);
        let mut c = Counters {
            misses: r(&self.rare.misses),
            direct: r(&self.rare.direct),
            failures: r(&self.rare.failures),
            frees_driver: r(&self.rare.frees_driver),
            barriers_refused: r(&self.rare.refused),
            bad_frees: r(&self.rare.doubles),
            trims: r(&self.rare.trims),
            trimmed_bytes: r(&self.rare.trimmed_bytes),
            driver_allocs: r(&self.rare.driver_allocs),
            driver_frees: r(&self.rare.driver_frees),
            active_peak: r(&self.rare.active_peak),
            reserved_peak: r(&self.rare.reserved_peak),
            ..Counters::default()
        };
        // What has ended is read before what has begun: so the difference is never below the truth.
        let mut ended = r(&self.rare.not_kept);
        for ctx in self.met_contexts() {
            c.active += ctx.active();
            c.inactive += ctx.inactive.0.load(Acquire);
            c.reserved += ctx.reserved.load(Acquire);
            for t in ctx.lanes().iter().map(|l| &l.tally) {
                c.hits_exact += r(&t.hits_exact);
                c.hits_near += r(&t.hits_near);
                c.no_barriers += r(&t.kept_not_needed);
                c.device_barriers += r(&t.kept_device);
                c.host_barriers += r(&t.kept_host);
                ended = ended.wrapping_add(r(&t.kept_bytes));
            }
        }
        c.waiting = (self.table.begun().wrapping_sub(ended) as i64).max(0) as u64;
        c.frees_cached = c.no_barriers + c.device_barriers + c.host_barriers;
        c.requests = c.hits_exact + c.hits_near + c.misses + c.direct + c.failures;
        c
    }

    /// Bytes of a context.
    pub fn usage(&self, context: ContextId) -> Usage {
        self.met(context).map_or_else(Usage::default, |c| Usage {
            active: c.active(),
            inactive: c.inactive.0.load(Acquire),
            reserved: c.reserved.load(Acquire),
            direct: c.direct.load(Acquire),
        })
    }

    /// Bytes cached in a context.
    pub fn inactive_bytes(&self, context: ContextId) -> u64 {
        self.met(context).map_or(0, |c| c.inactive.0.load(Acquire))
    }

    /// Times the driver gave out an address that the table still held.
    pub fn stale_addresses(&self) -> u64 {
        self.rare.stale.load(Relaxed)
    }

    /// Raises the peak to what is active now.
    #[inline]
    pub(super) fn note_peak(&self) {
        let active = self.sum(Context::active);
        if active > self.rare.active_peak.load(Relaxed) {
            self.rare.active_peak.fetch_max(active, Relaxed);
        }
    }
}
