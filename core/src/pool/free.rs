//! Frees, in two steps: the caller records the free between them, before the block can be another's.

use super::context::{Context, Phase};
use super::free_list::count;
use super::size_class::SizeClass;
use super::slot::{Life, Word, flag};
use super::{BlockInfo, ContextId, Fence, Pool, Segment, State, Trimmed, Upstream, held};
use std::sync::atomic::Ordering::*;

/// The first step's answer.
#[derive(Debug)]
pub enum Begun<'p> {
    /// Not a base address of ours: the driver answers.
    Unknown,
    /// Freed before, and not given out again: an invalid value.
    Double(BlockInfo),
    /// The caller frees it, and nobody else can.
    Begun(Free<'p>),
}

/// A free under way. Dropped unfinished, it did not happen: the block is active again.
#[must_use]
pub struct Free<'p> {
    pool: &'p Pool,
    n: u32,
    word: Word,
    info: BlockInfo,
    ended: bool,
}

/// How a free ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freed<E> {
    /// Not a base address of ours: the driver answers.
    Unknown,
    /// Freed before, and not given out again: an invalid value.
    Double(BlockInfo),
    /// In the cache.
    Kept {
        /// The block, as it was when the free began.
        info: BlockInfo,
        /// How later work was put behind earlier work.
        fence: Fence,
        /// What was given back to make room.
        shed: Trimmed,
    },
    /// Given to the driver. With an error the block is active again.
    Released {
        /// The block, as it was when the free began.
        info: BlockInfo,
        /// The driver's answer.
        result: Result<(), E>,
        /// Why it was not kept.
        why: Release,
        /// What was given back besides.
        shed: Trimmed,
    },
}

/// Why a freed block was not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Release {
    /// It was allocated past the pool.
    Direct,
    /// It was exported.
    Exported,
    /// It is not of the size of a class.
    Exact,
    /// Its context is about to end.
    Dying,
    /// There is no room for it.
    Shed,
    /// Later work could not be put behind earlier work.
    FenceRefused,
    /// Some thread is out of memory.
    OutOfMemory,
    /// The pool is off.
    Off,
    /// No driver call was made: the context ended, or the driver gave the address out again, while it was being freed.
    Gone,
}

impl Pool {
    /// First step of a free: finds the block and claims it. Of two frees of one block exactly one gets it.
    pub fn begin_free(&self, address: u64) -> Begun<'_> {
        let shard = self.table.shard(address);
        let Some(&n) = shard.get(&address) else { return Begun::Unknown };
        let slot = self.slots.get(n);
        let word = slot.word();
        let mut info = self.info(n);
        if word.life() != Life::Active {
            drop(shard);
            self.rare.doubles.fetch_add(1, Relaxed);
            return Begun::Double(info);
        }
        info.state = State::Active;
        let word = word.to(Life::Freeing);
        slot.set_word(word);
        shard.note_begun(info.block);
        drop(shard);
        Begun::Begun(Free { pool: self, n, word, info, ended: false })
    }

    /// Both steps of a free.
    pub fn free<U: Upstream>(&self, up: &U, address: u64) -> Freed<U::Error> {
        match self.begin_free(address) {
            Begun::Unknown => Freed::Unknown,
            Begun::Double(info) => Freed::Double(info),
            Begun::Begun(free) => free.finish(up),
        }
    }

    /// Bytes cached on the device of a context.
    fn inactive_of_device<U: Upstream>(&self, up: &U, context: ContextId) -> u64 {
        let same = |c: ContextId| c == context || up.same_device(c, context);
        self.numbered_contexts().filter(|(c, _)| same(*c)).map(|(_, c)| c.inactive.0.load(Acquire)).sum()
    }

    /// After a call that gave a block back: the record goes, and the address if it is still this record's.
    pub(super) fn returned(&self, n: u32) {
        self.table.forget(self.slots.get(n).address.load(Relaxed), n);
        self.slots.vacate(n);
    }
}

impl Free<'_> {
    /// The block, as it was when the free began.
    pub fn info(&self) -> &BlockInfo {
        &self.info
    }

    /// Second step: keeps the block or gives it to the driver.
    pub fn finish<U: Upstream>(mut self, up: &U) -> Freed<U::Error> {
        let (pool, info) = (self.pool, self.info);
        let none = Trimmed::default();
        let Some(ctx) = pool.met(info.context) else { return self.release(up, Release::Gone, none) };
        if let Some(why) = self.barred(ctx) {
            return self.release(up, why, none);
        }
        let inactive = pool.inactive_of_device(up, info.context);
        let need = up.shed(info.context, inactive, info.block);
        let mut shed = none;
        if need > inactive {
            // Even an empty cache has no room for this one: it goes first, and the others only for what is left.
            let mut freed = self.release(up, Release::Shed, none);
            if need > info.block
                && let Freed::Released { shed, .. } = &mut freed
            {
                *shed = pool.trim_device(up, info.context, need - info.block);
            }
            return freed;
        }
        if need > 0 {
            shed = pool.trim_device(up, info.context, need);
            if shed.bytes < need {
                return self.release(up, Release::Shed, shed);
            }
        }
        let fence = up.fence(info.context);
        if fence == Fence::Refused {
            pool.rare.refused.fetch_add(1, Relaxed);
            return self.release(up, Release::FenceRefused, shed);
        }
        match self.keep(ctx, fence, up.lane()) {
            None => Freed::Kept { info, fence, shed },
            Some(why) => self.release(up, why, shed),
        }
    }

    /// Why the block can't be kept, if so.
    #[inline]
    fn barred(&self, ctx: &Context) -> Option<Release> {
        let flags = self.word.flags();
        Some(if flags & flag::DIRECT != 0 {
            Release::Direct
        } else if flags & flag::EXPORTED != 0 {
            Release::Exported
        } else if flags & flag::EXACT != 0 {
            Release::Exact
        } else if self.pool.is_off() {
            Release::Off
        } else if ctx.phase() != Phase::Open {
            Release::Dying
        } else if self.pool.pressed.load(SeqCst) != 0 {
            Release::OutOfMemory
        } else {
            return None;
        })
    }

    /// Puts the block into a list, or tells why not.
    #[inline]
    fn keep(&mut self, ctx: &Context, fence: Fence, lane: usize) -> Option<Release> {
        let (pool, bytes) = (self.pool, self.info.block);
        let Some(class) = SizeClass::of(bytes) else { return Some(Release::Exact) };
        let (number, lane) = ctx.lane(class, lane);
        let slot = pool.slots.get(self.n);
        let mut list = pool.lock_lane(lane);
        if let Some(why) = self.barred(ctx) {
            return Some(why);
        }
        slot.stamp.store(pool.clock.load(Relaxed), Relaxed);
        slot.place.store(class.0 << 8 | number as u32, Relaxed);
        if !slot.change(self.word, self.word.to(Life::Inactive)) {
            return Some(Release::Gone);
        }
        ctx.inactive.0.fetch_add(bytes, AcqRel);
        list.push(&pool.slots, class, self.n);
        lane.show(&list);
        count(match fence {
            Fence::Device => &lane.tally.kept_device,
            Fence::Host => &lane.tally.kept_host,
            _ => &lane.tally.kept_not_needed,
        });
        lane.tally.kept_bytes.store(lane.tally.kept_bytes.load(Relaxed).wrapping_add(bytes), Relaxed);
        drop(list);
        self.ended = true;
        None
    }

    /// Gives the block to the driver.
    fn release<U: Upstream>(mut self, up: &U, why: Release, shed: Trimmed) -> Freed<U::Error> {
        let (pool, info) = (self.pool, self.info);
        let slot = pool.slots.get(self.n);
        let releasing = self.word.to(Life::Releasing);
        if !slot.change(self.word, releasing) {
            return Freed::Released { info, result: Ok(()), why: Release::Gone, shed }; // Dropped here, it clears up.
        }
        self.ended = true;
        let call = Call { pool, n: self.n, word: releasing, bytes: info.block, failed: false };
        let result = call.free(up, &info);
        Freed::Released { info, result, why, shed }
    }
}

impl Drop for Free<'_> {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let slot = self.pool.slots.get(self.n);
        self.pool.rare.not_kept.fetch_add(self.info.block, Relaxed);
        if !slot.change(self.word, self.word.to(Life::Active)) {
            self.pool.slots.vacate(self.n); // Marked dead meanwhile, and counted off by whoever did.
        }
    }
}

impl std::fmt::Debug for Free<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Free").field(&self.info).finish()
    }
}

/// A real free under way. A thread may be cancelled in it: then the memory counts as gone.
struct Call<'p> {
    pool: &'p Pool,
    n: u32,
    word: Word,
    bytes: u64,
    failed: bool,
}

impl Call<'_> {
    fn free<U: Upstream>(mut self, up: &U, info: &BlockInfo) -> Result<(), U::Error> {
        let (address, context) = (info.address, info.context);
        let result = up.free(&Segment { id: info.segment, address, bytes: info.block, context });
        self.failed = result.is_err();
        result
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let pool = self.pool;
        pool.rare.driver_frees.fetch_add(1, Relaxed);
        pool.rare.not_kept.fetch_add(self.bytes, Relaxed);
        let Some(ctx) = pool.met(ContextId(self.word.context())) else { return };
        if self.failed {
            let slot = pool.slots.get(self.n);
            let address = slot.address.load(Relaxed);
            let shard = pool.table.shard(address);
            if shard.get(&address) == Some(&self.n) && ctx.phase() != Phase::Dropped {
                slot.set_word(self.word.to(Life::Active));
                return;
            }
        } else {
            pool.rare.frees_driver.fetch_add(1, Relaxed);
        }
        held(ctx, self.word.flags()).fetch_sub(self.bytes, AcqRel);
        pool.returned(self.n);
    }
}
