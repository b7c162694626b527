//! A picture of the arena, for allocator views.

use super::backing::{Backing, StreamId};
use super::slot::{NIL, State};
use super::{Arena, Block};

/// Physical memory of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkView {
    /// Where it is mapped.
    pub address: u64,
    /// Its size.
    pub bytes: u64,
}

/// What a block is to the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockState {
    /// In use.
    Active,
    /// Freed, and waiting for other streams that use it.
    Waiting,
    /// Free.
    Inactive,
    /// In use, by other addresses: those of one of the stitched blocks.
    Lent,
}

/// A part of the mapped memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockView {
    /// The block; of a free one, `requested` is 0 and `id` that of nobody.
    pub block: Block,
    /// What it is.
    pub state: BlockState,
    /// The stream it was allocated for, or is tied to.
    pub stream: Option<StreamId>,
}

/// All of it, by address.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Reserved ranges: address and bytes.
    pub ranges: Vec<(u64, u64)>,
    /// Physical memory.
    pub chunks: Vec<ChunkView>,
    /// What the mapped memory is divided into, without gaps; also what is about to be mapped or unmapped.
    pub blocks: Vec<BlockView>,
    /// What is mapped a second time, for stitched blocks.
    pub aliases: Vec<ChunkView>,
    /// The stitched blocks in use.
    pub stitched: Vec<BlockView>,
}

impl<B: Backing> Arena<B> {
    /// The arena as it is now.
    pub fn snapshot(&self) -> Snapshot {
        let core = self.lock();
        let mut s = Snapshot {
            ranges: self.map.index.regions().map(|r| (r.base, r.bytes)).collect(),
            chunks: core.chunks.iter().map(|(a, c)| ChunkView { address: *a, bytes: c.bytes }).collect(),
            blocks: Vec::new(),
            stitched: Vec::new(),
            aliases: core.stitches.aliases().map(|a| ChunkView { address: a.address, bytes: a.bytes }).collect(),
        };
        for &head in &core.heads {
            let mut n = head;
            while n != NIL {
                let slot = self.map.slots.get(n);
                let (word, bytes, stream) = (slot.word(), slot.bytes(), Some(StreamId(slot.stream())));
                let blocks = if core.stitches.has(n) { &mut s.stitched } else { &mut s.blocks };
                n = slot.next();
                let (state, stream) = match word.state() {
                    State::Live | State::Shared | State::Freeing => (BlockState::Active, stream),
                    State::Waiting => (BlockState::Waiting, stream),
                    State::Tied | State::Front => (BlockState::Inactive, stream),
                    State::Free | State::Busy => (BlockState::Inactive, None),
                    State::Lent => (BlockState::Lent, None),
                    State::Hole | State::Vacant | State::Spare => continue,
                };
                let (requested, id) = match state {
                    BlockState::Active => (slot.requested(), slot.id()),
                    _ => (0, 0),
                };
                blocks.push(BlockView {
                    block: Block { address: word.address(), bytes, requested, id },
                    state,
                    stream,
                });
            }
        }
        s.aliases.sort_unstable_by_key(|a| a.address);
        s.ranges.sort_unstable();
        s.blocks.sort_by_key(|b| b.block.address);
        s
    }
}
