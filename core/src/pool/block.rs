//! What is known of a block, and how its record ends.

use super::context::Context;
use super::size_class::SizeClass;
use super::slot::{Life, flag};
use super::{ContextId, Pool};
use std::sync::atomic::{AtomicU64, Ordering::*};

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

impl Pool {
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

    /// Ends a record that the table no longer holds. `None` if a call that gives it back is under way anyway.
    pub(super) fn retire(&self, n: u32) -> Option<BlockInfo> {
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

    pub(super) fn info(&self, n: u32) -> BlockInfo {
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
}

/// The byte count a block with these flags is part of.
pub(super) fn held(ctx: &Context, flags: u8) -> &AtomicU64 {
    if flags & flag::DIRECT != 0 { &ctx.direct } else { &ctx.reserved }
}
