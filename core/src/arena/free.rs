//! Frees, in two steps: the caller records the free between them, before the block can be another's. And what names a
//! block by its address.

use super::backing::{Backing, StreamId};
use super::slot::{NIL, State, Word};
use super::{Arena, Block, Core, counts::count, front};
use std::sync::atomic::Ordering::*;

/// Why an address can't be freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadFree {
    /// No memory of this arena.
    Unknown,
    /// Memory that is free.
    Double,
    /// Inside of a live block that begins elsewhere.
    Interior {
        /// The block.
        block: Block,
    },
}

/// A free under way. Dropped unfinished, it did not happen: the block is live again.
#[must_use]
pub struct Free<'a, B: Backing> {
    arena: &'a Arena<B>,
    n: u32,
    word: Word,
    block: Block,
    ended: bool,
}

impl<B: Backing> Arena<B> {
    /// First step of a free: finds the block and claims it. Of two frees of one block exactly one gets it.
    #[inline]
    pub fn begin_free(&self, address: u64) -> Result<Free<'_, B>, BadFree> {
        match self.claim_live(address) {
            Some(free) => Ok(free),
            None => Err(self.bad(address)),
        }
    }

    #[inline]
    fn claim_live(&self, address: u64) -> Option<Free<'_, B>> {
        let n = self.map.index.at(address)?;
        let slot = self.map.slots.get(n);
        let word = slot.word();
        let live = word.address() == address && matches!(word.state(), State::Live | State::Shared);
        (live && slot.change(word, word.to(State::Freeing))).then(|| Free {
            arena: self,
            n,
            word,
            block: self.block(n),
            ended: false,
        })
    }

    /// A free in a forked child, where a lock may be taken for ever: the block is in use no more, and never used again. `false`:
    /// there is none at this address, or no more.
    pub fn free_in_child(&self, address: u64) -> bool {
        self.claim_live(address).map(std::mem::forget).is_some()
    }

    /// Both steps of a free: later work of the stream may use the memory, after its work until now.
    #[inline]
    pub fn free(&self, address: u64, stream: StreamId) -> Result<Block, BadFree> {
        Ok(self.begin_free(address)?.finish(stream))
    }

    /// A stream other than the one that will free the block uses it: its memory is not used again before the work that
    /// this stream has at the free is done.
    pub fn record_stream(&self, address: u64, stream: StreamId) -> Result<(), BadFree> {
        if let Some(n) = self.map.index.at(address) {
            let mut core = self.lock();
            let slot = self.map.slots.get(n);
            let word = slot.word();
            let live = word.address() == address && matches!(word.state(), State::Live | State::Shared);
            if live && slot.change(word, word.to(State::Shared)) {
                let users = core.users.entry(n).or_default();
                if !users.contains(&stream.0) {
                    users.push(stream.0);
                }
                return Ok(());
            }
        }
        Err(self.bad(address))
    }

    /// The live block that an address lies in.
    pub fn find(&self, address: u64) -> Option<Block> {
        let core = self.lock();
        let n = self.live(&core, address)?;
        Some(self.block(n))
    }

    fn live(&self, _core: &Core<B>, address: u64) -> Option<u32> {
        let n = self.map.index.covering(address)?;
        let slot = self.map.slots.get(n);
        let live = matches!(slot.state(), State::Live | State::Shared | State::Freeing);
        (live && address >= slot.address() && address < slot.end()).then_some(n)
    }

    fn block(&self, n: u32) -> Block {
        let slot = self.map.slots.get(n);
        Block { address: slot.address(), bytes: slot.bytes(), requested: slot.requested(), id: slot.id() }
    }

    #[cold]
    fn bad(&self, address: u64) -> BadFree {
        count(&self.numbers.bad_frees);
        let core = self.lock();
        if let Some(n) = self.live(&core, address) {
            let block = self.block(n);
            // At the base: another thread is freeing it, or did so and got it again.
            return if block.address == address { BadFree::Double } else { BadFree::Interior { block } };
        }
        match self.map.index.covering(address) {
            Some(n) if n != NIL && self.map.slots.get(n).state() != State::Hole => BadFree::Double,
            _ => BadFree::Unknown,
        }
    }

    /// The block was used by streams that were told of: it waits for those, too.
    #[cold]
    fn free_shared(&self, n: u32, stream: u64) {
        let mut core = self.lock();
        let mut users = core.users.remove(&n).unwrap_or_default();
        users.retain(|u| *u != stream);
        let now = self.clock.load(Relaxed);
        let stitched = core.stitches.has(n);
        if users.is_empty() && stitched {
            return core.give_stitched(&self.map, n, &[(stream, now)]);
        } else if users.is_empty() {
            return core.give(&self.map, n, stream, now);
        }
        let mut ties = vec![(stream, now)];
        // An unknown stream would pass for one without work; one that has ended did nothing since.
        ties.extend(users.iter().map(|u| (*u, core.streams.of(*u).ended.unwrap_or(now))));
        core.streams.of(stream);
        if stitched {
            core.give_stitched(&self.map, n, &ties);
        } else {
            let slot = self.map.slots.get(n);
            slot.set_stream(stream);
            slot.set_stamp(now);
            core.wait(&self.map, n, ties);
        }
        self.numbers.waiting.store(core.waiting_bytes, Relaxed);
        drop(core);
        for user in users {
            // Now, so that it need not wait for what the stream does later. If it can't be, a request makes it.
            if let Some((_, event)) = self.record(user) {
                self.bury(vec![event]);
            }
        }
    }
}

impl<B: Backing> Free<'_, B> {
    /// The block, as it was when the free began.
    pub fn block(&self) -> &Block {
        &self.block
    }

    /// Second step: the block is free, tied to the work that the stream has now.
    #[inline]
    pub fn finish(mut self, stream: StreamId) -> Block {
        let (arena, n, block) = (self.arena, self.n, self.block);
        self.ended = true;
        if arena.is_broken() {
            return block; // Never used again.
        }
        let shared = self.word.state() == State::Shared;
        if shared || self.word.whole() || block.bytes > front::LARGEST {
            arena.numbers.free(block.bytes, block.requested);
            if shared {
                arena.free_shared(n, stream.0);
                return block;
            }
            let mut core = arena.lock();
            // Read under the lock: see `Arena::record`.
            let now = arena.clock.load(Relaxed);
            if self.word.whole() && core.stitches.has(n) {
                core.give_stitched(&arena.map, n, &[(stream.0, now)]);
            } else {
                core.give(&arena.map, n, stream.0, now);
            }
            return block;
        }
        let most = arena.front_bytes.load(Relaxed);
        let out = arena.fronts.keep(&arena.map, &arena.numbers, &arena.clock, stream.0, n, block.requested, most);
        if !out.is_empty() {
            arena.give_all(&mut arena.lock(), out);
        }
        block
    }
}

impl<B: Backing> Drop for Free<'_, B> {
    fn drop(&mut self) {
        if !self.ended {
            self.arena.map.slots.get(self.n).set_word(self.word);
        }
    }
}
