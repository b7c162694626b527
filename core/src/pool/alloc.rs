//! Allocations: the exact class, a slightly larger one, a new segment, and the last resort.

use super::context::{Context, LANES, Phase};
use super::free_list::{Lane, count};
use super::size_class::SizeClass;
use super::slot::{Life, Word, flag};
use super::{BlockInfo, ContextId, Pool, Scope, Trimmed, Upstream, held};
use std::sync::atomic::Ordering::*;

/// How a request was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum How {
    /// A cached block of the request's own class.
    HitExact,
    /// A larger cached block, used to at least 7/8.
    HitNear,
    /// A new segment.
    Miss,
    /// The driver, past the pool.
    Direct,
}

/// A request served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// The program's pointer.
    pub address: u64,
    /// Bytes of the block.
    pub block: u64,
    /// The segment the block is; 0 for a direct one.
    pub segment: u64,
    /// How it was served.
    pub how: How,
    /// What the table held at this address: freed behind our back, as the driver has just given it out again.
    pub stale: Option<BlockInfo>,
    /// What had to be given back first.
    pub trimmed: Trimmed,
}

/// A request that failed, with the driver's error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed<E> {
    /// The error of the last real call.
    pub error: E,
    /// What was given back in vain.
    pub trimmed: Trimmed,
}

/// What a real call gave.
struct Got {
    address: u64,
    bytes: u64,
    trimmed: Trimmed,
}

impl Pool {
    /// Serves a request; `id` numbers the program's allocation and must be new.
    ///
    /// The exact class is tried first, then larger ones down to 7/8 use, the newest block of the class each time; then the
    /// driver. Errors of the driver other than out of memory come back at once.
    pub fn alloc<U: Upstream>(
        &self,
        up: &U,
        context: ContextId,
        requested: u64,
        id: u64,
    ) -> Result<Served, Failed<U::Error>> {
        let (Some(class), Some(ctx)) = (SizeClass::of(requested), self.context(context)) else {
            return self.alloc_direct(up, context, requested, id);
        };
        if let Some((n, exact)) = self.take(ctx, class, requested, id, up.lane()) {
            self.note_peak();
            let slot = self.slots.get(n);
            return Ok(Served {
                address: slot.address.load(Relaxed),
                block: slot.bytes(),
                segment: slot.segment.load(Relaxed),
                how: if exact { How::HitExact } else { How::HitNear },
                stale: None,
                trimmed: Trimmed::default(),
            });
        }
        if !self.serves(ctx) {
            return self.alloc_direct(up, context, requested, id);
        }
        self.clock.fetch_add(1, Relaxed);
        let segment = up.next_id();
        let got = self.real(up, context, class.bytes(), requested, segment)?;
        self.rare.misses.fetch_add(1, Relaxed);
        let flags = if got.bytes == class.bytes() { 0 } else { flag::EXACT };
        let stale = self.insert(got.address, context, got.bytes, requested, id, segment, flags);
        self.note_peak();
        self.rare.reserved_peak.fetch_max(self.sum(|c| c.reserved.load(Acquire)), Relaxed);
        Ok(Served { address: got.address, block: got.bytes, segment, how: How::Miss, stale, trimmed: got.trimmed })
    }

    /// Serves a request by the driver, past the pool, with the same last resort when memory runs out. Its free will be
    /// real.
    pub fn alloc_direct<U: Upstream>(
        &self,
        up: &U,
        context: ContextId,
        requested: u64,
        id: u64,
    ) -> Result<Served, Failed<U::Error>> {
        let got = self.real(up, context, requested, requested, 0)?;
        let stale = self.insert_direct(got.address, context, requested, id);
        Ok(Served { address: got.address, block: requested, segment: 0, how: How::Direct, stale, trimmed: got.trimmed })
    }

    /// Notes an allocation that the caller had from the driver itself, so that one table answers for all. Gives back what
    /// the table held at the address: freed behind our back. A context beyond [`MAX_CONTEXTS`](super::MAX_CONTEXTS) is not tracked.
    pub fn insert_direct(&self, address: u64, context: ContextId, requested: u64, id: u64) -> Option<BlockInfo> {
        self.rare.direct.fetch_add(1, Relaxed);
        self.insert(address, context, requested, requested, id, 0, flag::DIRECT)
    }

    /// Takes a cached block out and makes it active; tells whether it is of the request's own class.
    #[inline]
    fn take(&self, ctx: &Context, class: SizeClass, requested: u64, id: u64, lane: usize) -> Option<(u32, bool)> {
        let largest = SizeClass::largest_for(requested).unwrap_or(class).max(class);
        if !class.is_small() {
            if ctx.inactive.0.load(Relaxed) < class.bytes() {
                return None;
            }
            return self.take_from(ctx, ctx.lane(class, 0).1, class, largest, class, requested, id);
        }
        // All lists for one class before the next, so that the tightest block is found wherever it was freed. The first
        // glimpse that hits is the thread's own list, as a rule.
        for c in (class.0..=largest.0).map(SizeClass) {
            for k in 0..LANES {
                let lane = ctx.lane(c, lane.wrapping_add(k)).1;
                if lane.seems_to_have(c)
                    && let Some(found) = self.take_from(ctx, lane, c, c, class, requested, id)
                {
                    return Some(found);
                }
            }
        }
        None
    }

    #[inline]
    #[allow(clippy::too_many_arguments, reason = "one caller, and each is a plain number")]
    fn take_from(
        &self,
        ctx: &Context,
        lane: &Lane,
        from: SizeClass,
        to: SizeClass,
        class: SizeClass,
        requested: u64,
        id: u64,
    ) -> Option<(u32, bool)> {
        let mut list = self.lock_lane(lane);
        if !self.serves(ctx) {
            return None;
        }
        let found = list.next_class(from, to)?;
        let n = list.newest(found)?;
        list.remove(&self.slots, found, n);
        lane.show(&list);
        let slot = self.slots.get(n);
        slot.id.store(id, Relaxed);
        slot.requested.store(requested, Relaxed);
        slot.set_word(slot.word().to(Life::Active));
        count(if found == class { &lane.tally.hits_exact } else { &lane.tally.hits_near });
        drop(list);
        ctx.inactive.0.fetch_sub(found.bytes(), AcqRel);
        Some((n, found == class))
    }

    /// The real call. When the device is full: everything idle goes back, then the size really asked for is tried.
    fn real<U: Upstream>(
        &self,
        up: &U,
        context: ContextId,
        bytes: u64,
        requested: u64,
        segment: u64,
    ) -> Result<Got, Failed<U::Error>> {
        let call = |bytes| {
            self.rare.driver_allocs.fetch_add(1, Relaxed);
            up.alloc(context, bytes, segment)
        };
        let mut trimmed = Trimmed::default();
        let error = match call(bytes) {
            Ok(address) => return Ok(Got { address, bytes, trimmed }),
            Err(e) if U::out_of_memory(e) => {
                // Held until the last call: nothing can be cached meanwhile that it might have needed.
                let _pressure = self.pressure();
                trimmed = self.trim(up, Scope::All);
                match call(requested) {
                    Ok(address) => return Ok(Got { address, bytes: requested, trimmed }),
                    Err(e) => e,
                }
            }
            Err(e) => e,
        };
        self.rare.failures.fetch_add(1, Relaxed);
        Err(Failed { error, trimmed })
    }

    /// Adds an active block to the table. Gives back what it held at the address before.
    #[allow(clippy::too_many_arguments, reason = "two callers, and each is a plain number")]
    fn insert(
        &self,
        address: u64,
        context: ContextId,
        bytes: u64,
        requested: u64,
        id: u64,
        segment: u64,
        flags: u8,
    ) -> Option<BlockInfo> {
        let ctx = self.context(context)?;
        let n = self.slots.take();
        let slot = self.slots.get(n);
        slot.address.store(address, Relaxed);
        slot.bytes.store(bytes, Relaxed);
        slot.requested.store(requested, Relaxed);
        slot.segment.store(segment, Relaxed);
        slot.id.store(id, Relaxed);
        slot.set_word(Word::new(Life::Active, flags, context.0));
        held(ctx, flags).fetch_add(bytes, AcqRel);
        let old = self.table.shard(address).insert(address, n);
        let stale = old.and_then(|old| self.retire(old));
        if let Some(s) = &stale
            && self.met(s.context).is_some_and(|c| c.phase() == Phase::Open)
        {
            self.rare.stale.fetch_add(1, Relaxed);
        }
        if ctx.phase() == Phase::Dropped && self.table.forget(address, n) {
            // The context ended while the call was under way: drop_context may have come too early to see this one.
            self.retire(n);
        }
        stale
    }
}
