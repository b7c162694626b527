//! The plain pool: which block serves a request of plain device memory (`cuMemAlloc`).
//!
//! Whole driver allocations are cached and reused whole, so that whatever a program may do with the base of an allocation
//! (IPC, address range, RDMA, peers) stays the driver's business. One pool serves the process; blocks never change
//! context. It must not know CUDA, events, files or time: it asks an [`Upstream`].
//!
//! No lock is held across a call of the upstream, and no two locks at once. A served request takes one list's lock, a
//! kept free one shard's and one list's.
//!
//! When memory runs out: everything idle goes back first, then the real call with the size really asked for decides, and
//! its error is the program's. So the pool fails only where the driver, with nothing cached, would fail too.

mod context;
mod free;
mod free_list;
pub mod size_class;
mod slot;
mod table;
mod trim;
mod upstream;

pub use free::{Begun, Free, Freed, Release};
pub use trim::{Pressure, Scope, Trimmed};
pub use upstream::{ContextId, Fence, MAX_CONTEXTS, Segment, Upstream};

use crate::counters::Counters;
use context::{Context, Phase};
use free_list::{FreeList, Lane, count};
use size_class::SizeClass;
use slot::{Life, Slots, Word, flag};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use table::Table;

/// All plain device memory of the process, and the part of it that is cached.
pub struct Pool {
    contexts: [OnceLock<Box<Context>>; MAX_CONTEXTS],
    /// One more than the highest context met.
    used: AtomicU32,
    slots: Slots,
    table: Table,
    /// Ticks when the cache did not suffice: the age of a cached block is counted in these.
    clock: AtomicU32,
    off: AtomicBool,
    /// Threads that are out of memory now: frees are real while it is not 0.
    pressed: AtomicU32,
    gate: trim::Gate,
    rare: Rare,
}

/// Counters of what happens seldom, or costs a driver call anyway.
#[derive(Default)]
struct Rare {
    misses: AtomicU64,
    direct: AtomicU64,
    failures: AtomicU64,
    frees_driver: AtomicU64,
    refused: AtomicU64,
    doubles: AtomicU64,
    stale: AtomicU64,
    trims: AtomicU64,
    trimmed_bytes: AtomicU64,
    driver_allocs: AtomicU64,
    driver_frees: AtomicU64,
    active_peak: AtomicU64,
    reserved_peak: AtomicU64,
    /// Bytes of begun frees that did not end in the cache.
    not_kept: AtomicU64,
}

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

/// Whether the program has a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// The program has it.
    Active,
    /// It is cached.
    Inactive,
    /// Its free is under way.
    Freeing,
}

/// What is known of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockInfo {
    /// The allocation it serves or, if not active, served last. New for each allocation, so it can answer as the serial
    /// of a buffer.
    pub id: u64,
    /// Its base.
    pub address: u64,
    /// Bytes the program asked for.
    pub requested: u64,
    /// Bytes of the block.
    pub block: u64,
    /// The segment; 0 for a direct block.
    pub segment: u64,
    /// Its context.
    pub context: ContextId,
    /// Its state.
    pub state: State,
    /// Whether it was allocated past the pool.
    pub direct: bool,
    /// Whether it left the pool by [`Pool::export`].
    pub exported: bool,
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

impl Default for Pool {
    fn default() -> Pool {
        Pool::new()
    }
}

impl Pool {
    /// An empty pool.
    pub const fn new() -> Pool {
        Pool {
            contexts: [const { OnceLock::new() }; MAX_CONTEXTS],
            used: AtomicU32::new(0),
            slots: Slots::new(),
            table: Table::new(),
            clock: AtomicU32::new(0),
            off: AtomicBool::new(false),
            pressed: AtomicU32::new(0),
            gate: trim::Gate::new(),
            rare: Rare {
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
            },
        }
    }

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
    /// the table held at the address: freed behind our back. A context beyond [`MAX_CONTEXTS`] is not tracked.
    pub fn insert_direct(&self, address: u64, context: ContextId, requested: u64, id: u64) -> Option<BlockInfo> {
        self.rare.direct.fetch_add(1, Relaxed);
        self.insert(address, context, requested, requested, id, 0, flag::DIRECT)
    }

    /// Takes a block out of the pool for good, as somebody outside may hold on to it: its free will be real. Gives the
    /// allocation's number if the block is active.
    pub fn export(&self, address: u64) -> Option<u64> {
        let shard = self.table.shard(address);
        let slot = self.slots.get(*shard.get(&address)?);
        let word = slot.word();
        if word.life() != Life::Active {
            return None;
        }
        slot.set_word(word.with(flag::EXPORTED));
        Some(slot.id.load(Relaxed))
    }

    /// What is known of the block at this base address; interior addresses are unknown.
    pub fn block_of(&self, address: u64) -> Option<BlockInfo> {
        let shard = self.table.shard(address);
        Some(self.info(*shard.get(&address)?))
    }

    /// As [`block_of`](Pool::block_of), for blocks that the program has.
    pub fn find_active(&self, address: u64) -> Option<BlockInfo> {
        self.block_of(address).filter(|b| b.state == State::Active)
    }

    /// The context is about to be reset or destroyed: from now on no cached block of it is served, and none kept.
    pub fn mark_dying(&self, context: ContextId) {
        let Some(ctx) = self.context(context) else { return };
        ctx.change_phase(Phase::Open, Phase::Dying);
        // The phase is looked at under a list's lock, so after this round nobody still acts on the old one.
        for lane in ctx.lanes() {
            drop(self.lock_lane(lane));
        }
    }

    /// The context did not end after all.
    pub fn revive(&self, context: ContextId) {
        if let Some(ctx) = self.context(context) {
            ctx.change_phase(Phase::Dying, Phase::Open);
        }
    }

    /// The context has ended, and its memory with it: forgets every block without a driver call. Gives the blocks the
    /// program had not freed.
    pub fn drop_context(&self, context: ContextId) -> Vec<BlockInfo> {
        let Some(ctx) = self.context(context) else { return Vec::new() };
        ctx.set_phase(Phase::Dropped);
        let mut live = Vec::new();
        for n in 0..self.slots.end() {
            let slot = self.slots.get(n);
            let ours = |w: Word| w.context() == context.0 && !matches!(w.life(), Life::Vacant | Life::Dead);
            if !ours(slot.word()) {
                continue;
            }
            let address = slot.address.load(Relaxed);
            let mut shard = self.table.shard(address);
            if shard.get(&address) != Some(&n) || !ours(slot.word()) {
                continue;
            }
            shard.remove(&address);
            drop(shard);
            live.extend(self.retire(n).filter(|b| b.state == State::Active));
        }
        live
    }

    /// From now on nothing is served or kept, and all frees are real.
    pub fn turn_off(&self) {
        self.off.store(true, SeqCst);
    }

    /// Whether it was turned off, or turned itself off because it broke.
    pub fn is_off(&self) -> bool {
        self.off.load(Relaxed)
    }

    /// Bytes cached in a context.
    pub fn inactive_bytes(&self, context: ContextId) -> u64 {
        self.met(context).map_or(0, |c| c.inactive.0.load(Acquire))
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

    /// Times the driver gave out an address that the table still held.
    pub fn stale_addresses(&self) -> u64 {
        self.rare.stale.load(Relaxed)
    }

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
        // What has ended is read before what has begun, so that a free under way counts once or not at all.
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

    /// The context's part, made at first use.
    #[inline]
    fn context(&self, c: ContextId) -> Option<&Context> {
        let cell = self.contexts.get(usize::from(c.0))?;
        Some(cell.get_or_init(|| {
            self.used.fetch_max(u32::from(c.0) + 1, SeqCst);
            Box::new(Context::new())
        }))
    }

    fn met(&self, c: ContextId) -> Option<&Context> {
        self.contexts.get(usize::from(c.0))?.get().map(Box::as_ref)
    }

    fn met_contexts(&self) -> impl Iterator<Item = &Context> {
        self.numbered_contexts().map(|(_, c)| c)
    }

    #[inline]
    fn numbered_contexts(&self) -> impl Iterator<Item = (ContextId, &Context)> {
        let used = self.used.load(Acquire) as usize;
        (0u16..)
            .zip(&self.contexts[..used.min(MAX_CONTEXTS)])
            .filter_map(|(i, c)| Some((ContextId(i), c.get()?.as_ref())))
    }

    #[inline]
    fn sum(&self, what: impl Fn(&Context) -> u64) -> u64 {
        self.met_contexts().map(what).sum()
    }

    /// Whether blocks of the context may be served and kept now.
    #[inline]
    fn serves(&self, ctx: &Context) -> bool {
        ctx.phase() == Phase::Open && !self.is_off()
    }

    /// Locks a list. One left half-changed by a panic might give a block out twice: the pool is off then, for good.
    #[inline]
    fn lock_lane<'a>(&self, lane: &'a Lane) -> MutexGuard<'a, FreeList> {
        lane.list.lock().unwrap_or_else(|p| {
            self.turn_off();
            p.into_inner()
        })
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
            for k in 0..context::LANES {
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

    /// Ends a record that the table no longer holds. `None` if a call that gives it back is under way anyway.
    fn retire(&self, n: u32) -> Option<BlockInfo> {
        let slot = self.slots.get(n);
        loop {
            let word = slot.word();
            let dead = word.to(Life::Dead);
            let info = self.info(n);
            let ctx = self.met(info.context)?;
            match word.life() {
                Life::Active => {
                    held(ctx, word.flags()).fetch_sub(info.block, AcqRel);
                    self.slots.vacate(n);
                    return Some(info);
                }
                Life::Freeing if slot.change(word, dead) => {
                    held(ctx, word.flags()).fetch_sub(info.block, AcqRel);
                    return Some(info); // The thread that frees it makes it vacant.
                }
                Life::Inactive => {
                    let place = slot.place.load(Relaxed);
                    let (class, lane) = (SizeClass(place >> 8), &ctx.lanes()[(place & 0xff) as usize]);
                    let mut list = self.lock_lane(lane);
                    if slot.word() == word && slot.place.load(Relaxed) == place {
                        list.remove(&self.slots, class, n);
                        lane.show(&list);
                        slot.set_word(dead);
                        drop(list);
                        ctx.reserved.fetch_sub(info.block, AcqRel);
                        ctx.inactive.0.fetch_sub(info.block, AcqRel);
                        self.slots.vacate(n);
                        return Some(info);
                    }
                }
                Life::Freeing => {}
                Life::Releasing | Life::Dead | Life::Vacant => return None,
            }
        }
    }

    fn info(&self, n: u32) -> BlockInfo {
        let slot = self.slots.get(n);
        let word = slot.word();
        BlockInfo {
            id: slot.id.load(Relaxed),
            address: slot.address.load(Relaxed),
            requested: slot.requested.load(Relaxed),
            block: slot.bytes(),
            segment: slot.segment.load(Relaxed),
            context: ContextId(word.context()),
            state: match word.life() {
                Life::Active => State::Active,
                Life::Freeing => State::Freeing,
                _ => State::Inactive,
            },
            direct: word.flags() & flag::DIRECT != 0,
            exported: word.flags() & flag::EXPORTED != 0,
        }
    }

    /// Raises the peak to what is active now.
    #[inline]
    fn note_peak(&self) {
        let active = self.sum(Context::active);
        if active > self.rare.active_peak.load(Relaxed) {
            self.rare.active_peak.fetch_max(active, Relaxed);
        }
    }
}

/// What a real call gave.
struct Got {
    address: u64,
    bytes: u64,
    trimmed: Trimmed,
}

/// The byte count a block with these flags is part of.
fn held(ctx: &Context, flags: u8) -> &AtomicU64 {
    if flags & flag::DIRECT != 0 { &ctx.direct } else { &ctx.reserved }
}

/// Locks; what a panic left is still a valid table.
#[inline]
fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}
