//! Gives idle memory back to the driver.

use super::context::{Context, Phase};
use super::free_list::{FreeList, Lane};
use super::size_class::SizeClass;
use super::slot::Life;
use super::{ContextId, Pool, Segment, Upstream, lock};
use std::ops::AddAssign;
use std::sync::atomic::Ordering::*;
use std::sync::{Condvar, Mutex, PoisonError};

/// What to give back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Everything cached.
    All,
    /// Everything cached in a context.
    Context(ContextId),
    /// At least so many bytes, of the contexts that share this one's device.
    AtLeast(u64, ContextId),
}

/// What was given back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trimmed {
    /// Bytes the driver took.
    pub bytes: u64,
    /// In so many blocks.
    pub blocks: u64,
    /// Blocks the driver did not take; they are forgotten.
    pub failed: u64,
}

impl AddAssign for Trimmed {
    fn add_assign(&mut self, o: Trimmed) {
        self.bytes += o.bytes;
        self.blocks += o.blocks;
        self.failed += o.failed;
    }
}

/// While it lives, frees are real: some thread is out of memory, and what others free must reach the driver, as it would
/// without a pool.
#[must_use]
pub struct Pressure<'p>(&'p Pool);

impl Drop for Pressure<'_> {
    fn drop(&mut self) {
        self.0.pressed.fetch_sub(1, SeqCst);
    }
}

/// Counts threads that have taken idle blocks out and not yet given them back: who finds the cache empty meanwhile must
/// wait for them before it can say that the device is full.
pub(super) struct Gate {
    inside: Mutex<u32>,
    left: Condvar,
}

struct Inside<'g>(&'g Gate);

impl Gate {
    pub(super) const fn new() -> Gate {
        Gate { inside: Mutex::new(0), left: Condvar::new() }
    }

    fn enter(&self) -> Inside<'_> {
        *lock(&self.inside) += 1;
        Inside(self)
    }

    fn wait(&self) {
        let mut inside = lock(&self.inside);
        while *inside != 0 {
            inside = self.left.wait(inside).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        *lock(&self.0.inside) -= 1;
        self.0.left.notify_all();
    }
}

impl Pool {
    /// Gives idle blocks back. They are taken out of the lists first, so that other threads may go on allocating.
    ///
    /// [`Scope::All`] and [`Scope::Context`] go from the largest to the smallest, so that most comes back soonest, and
    /// return only when what other threads had taken out to give back has been given back too. Make the failed call again
    /// after them even if they found nothing.
    ///
    /// [`Scope::AtLeast`] takes the block whose bytes × age is largest, again and again: large blocks, as each one costs a
    /// driver call that waits for the device, but not those a loop reuses all the time. Age counts in misses, not in
    /// time. Blocks up to 1 MiB come last, as the driver regains nothing before all of a page is free.
    pub fn trim<U: Upstream>(&self, up: &U, scope: Scope) -> Trimmed {
        match scope {
            Scope::AtLeast(bytes, context) => self.trim_device(up, context, bytes),
            Scope::All => self.trim_all(up, |_| true),
            Scope::Context(context) => self.trim_all(up, |c| c == context),
        }
    }

    /// Makes frees real as long as the answer lives. Hold it around [`trim`](Pool::trim) and the call made again, when a call
    /// that the pool does not serve ran out of memory.
    pub fn pressure(&self) -> Pressure<'_> {
        self.pressed.fetch_add(1, SeqCst);
        Pressure(self)
    }

    fn trim_all<U: Upstream>(&self, up: &U, which: impl Fn(ContextId) -> bool) -> Trimmed {
        let _pressure = self.pressure(); // So that it ends: nobody adds to the lists meanwhile.
        let mut sum = Trimmed::default();
        for (_, ctx) in self.open(which) {
            for lane in ctx.lanes().iter().rev() {
                while let Some(t) = self.give_back(up, ctx, lane, FreeList::largest_class) {
                    sum += t;
                }
            }
        }
        self.gate.wait();
        self.note_trim(sum)
    }

    /// Gives back at least so many bytes of a context's device, if there are.
    pub(super) fn trim_device<U: Upstream>(&self, up: &U, context: ContextId, bytes: u64) -> Trimmed {
        self.clock.fetch_add(1, Relaxed);
        let mut sum = Trimmed::default();
        while sum.bytes < bytes {
            let lanes = || {
                self.open(|c| c == context || up.same_device(c, context))
                    .flat_map(|(_, ctx)| ctx.lanes().iter().map(move |lane| (ctx, lane)))
            };
            let best = |large: bool| {
                lanes()
                    .filter_map(|(ctx, lane)| Some((self.dearest(&self.lock_lane(lane), large)?, ctx, lane)))
                    .max_by_key(|((cost, _), ..)| *cost)
            };
            let Some(((_, class), ctx, lane)) = best(true).or_else(|| best(false)) else { break };
            let this = |l: &FreeList| l.oldest(class).map(|_| class);
            sum += self.give_back(up, ctx, lane, this).unwrap_or_default();
        }
        self.note_trim(sum)
    }

    /// The class whose oldest block has the largest bytes × age.
    fn dearest(&self, list: &FreeList, large: bool) -> Option<(u128, SizeClass)> {
        let now = self.clock.load(Relaxed);
        list.classes()
            .filter(|c| c.is_small() != large)
            .filter_map(|c| {
                let age = now.wrapping_sub(self.slots.get(list.oldest(c)?).stamp.load(Relaxed));
                Some((u128::from(c.bytes()) * u128::from(age), c))
            })
            .max()
    }

    /// Takes the oldest block of a class out of a list and gives it to the driver.
    fn give_back<U: Upstream>(
        &self,
        up: &U,
        ctx: &Context,
        lane: &Lane,
        class: impl Fn(&FreeList) -> Option<SizeClass>,
    ) -> Option<Trimmed> {
        let inside = self.gate.enter();
        let mut list = self.lock_lane(lane);
        if ctx.phase() != Phase::Open {
            return None;
        }
        let class = class(&list)?;
        let n = list.oldest(class)?;
        list.remove(&self.slots, class, n);
        lane.show(&list);
        let slot = self.slots.get(n);
        slot.set_word(slot.word().to(Life::Releasing));
        drop(list);
        let bytes = slot.bytes();
        ctx.reserved.fetch_sub(bytes, AcqRel);
        ctx.inactive.0.fetch_sub(bytes, AcqRel);
        let call = Call { pool: self, n };
        let (id, address) = (slot.segment.load(Relaxed), slot.address.load(Relaxed));
        let ok = up.free(&Segment { id, address, bytes, context: ContextId(slot.word().context()) }).is_ok();
        drop(call);
        drop(inside);
        self.rare.driver_frees.fetch_add(1, Relaxed);
        Some(if ok { Trimmed { bytes, blocks: 1, failed: 0 } } else { Trimmed { failed: 1, ..Trimmed::default() } })
    }

    fn open(&self, which: impl Fn(ContextId) -> bool) -> impl Iterator<Item = (ContextId, &Context)> {
        self.numbered_contexts().filter(move |(c, ctx)| which(*c) && ctx.phase() == Phase::Open)
    }

    fn note_trim(&self, sum: Trimmed) -> Trimmed {
        if sum.blocks > 0 {
            self.rare.trims.fetch_add(1, Relaxed);
            self.rare.trimmed_bytes.fetch_add(sum.bytes, Relaxed);
        }
        sum
    }
}

/// A real free under way. Failed, or cut short by a cancelled thread, the block is forgotten all the same: nobody has it.
struct Call<'p> {
    pool: &'p Pool,
    n: u32,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.pool.returned(self.n);
    }
}
