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

mod alloc;
mod block;
mod context;
mod counts;
mod free;
mod free_list;
pub mod size_class;
mod slot;
mod table;
mod trim;
mod upstream;

pub use alloc::{Failed, How, Served};
pub use block::{BlockInfo, State};
pub use counts::Usage;
pub use free::{Begun, Free, Freed, Release};
pub use trim::{Pressure, Scope, Trimmed};
pub use upstream::{ContextId, Fence, MAX_CONTEXTS, Segment, Upstream};

use block::held;
use context::{Context, Phase};
use counts::Rare;
use free_list::{FreeList, Lane};
use slot::{Life, Slots, Word};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
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
            rare: Rare::new(),
        }
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

    /// A new context gets the number of one that was dropped. `false`: calls about the old one are still under way; take
    /// another number.
    pub fn reopen(&self, context: ContextId) -> bool {
        let Some(ctx) = self.context(context) else { return false };
        let idle = |w: Word| w.life() == Life::Vacant || w.context() != context.0;
        match ctx.phase() {
            Phase::Open => true,
            Phase::Dying => false,
            Phase::Dropped => {
                (0..self.slots.end()).all(|n| idle(self.slots.get(n).word()))
                    && ctx.change_phase(Phase::Dropped, Phase::Open)
            }
        }
    }

    /// From now on nothing is served or kept, and all frees are real.
    pub fn turn_off(&self) {
        self.off.store(true, SeqCst);
    }

    /// Whether it was turned off, or turned itself off because it broke.
    pub fn is_off(&self) -> bool {
        self.off.load(Relaxed)
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
}

/// Locks; what a panic left is still a valid table.
#[inline]
fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}
