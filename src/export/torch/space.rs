//! The address space as PyTorch's viewer sees it: segments, and blocks that lie in them.
//!
//! The viewer plays a trace backwards from the last state, and breaks where they do not fit. So whatever a history says,
//! this holds: a block lies in segments that are there, no two overlap, and what ends was there before. Where a
//! history breaks that (its beginning is missing, it is damaged), the older gives way.

use std::collections::{BTreeMap, HashMap};

use vramscope_core::spread::Spread;

use super::aliases::Aliases;

/// What happened, in the viewer's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A block was given out.
    Alloc,
    /// It was given back. (Two entries, `free_requested` and `free_completed`: when a free is complete is not known.)
    Free,
    /// A segment came.
    SegmentAlloc,
    /// It went.
    SegmentFree,
    /// A piece of an expandable segment came.
    SegmentMap,
    /// It went.
    SegmentUnmap,
}

/// An entry of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What happened.
    pub action: Action,
    /// Where.
    pub address: u64,
    /// Bytes: of a block those that were asked for.
    pub bytes: u64,
    /// Bytes of the block, rounded.
    pub block: u64,
    /// Handle of the stream.
    pub stream: u64,
    /// Number of the stack.
    pub stack: u32,
}

/// A part of the address space, or a block in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Number of its allocation or segment in the history.
    pub id: u64,
    /// Bytes.
    pub bytes: u64,
    /// Of them asked for.
    pub requested: u64,
    /// Handle of the stream.
    pub stream: u64,
    /// Number of the stack.
    pub stack: u32,
    /// A mapped piece of an expandable segment.
    pub expandable: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Space {
    segments: BTreeMap<u64, Piece>,
    blocks: BTreeMap<u64, Piece>,
    /// Where the block of an allocation is.
    places: HashMap<u64, u64, Spread>,
    aliases: Aliases,
    /// Where the pieces of a stitched block are.
    stitched: HashMap<u64, Vec<u64>>,
    /// Blocks and segments that had to give way.
    pub replaced: u64,
}

/// Where entries go: those of the past of a window nowhere.
pub type Out<'o> = dyn FnMut(Entry) -> anyhow::Result<()> + 'o;

impl Space {
    /// The segments, by address.
    pub fn segments(&self) -> &BTreeMap<u64, Piece> {
        &self.segments
    }

    /// The live blocks, by address.
    pub fn blocks(&self) -> &BTreeMap<u64, Piece> {
        &self.blocks
    }

    /// A segment comes.
    pub fn open(&mut self, address: u64, piece: Piece, out: &mut Out) -> anyhow::Result<()> {
        let Some(end) = address.checked_add(piece.bytes).filter(|_| piece.bytes > 0) else { return Ok(()) };
        for at in overlapping(&self.segments, address, end) {
            self.replaced += 1;
            self.close(at, piece.stack, out)?;
        }
        let action = if piece.expandable { Action::SegmentMap } else { Action::SegmentAlloc };
        self.segments.insert(address, piece);
        out(entry(action, address, &piece, piece.stack))
    }

    /// The segment that begins here goes, and first what lies in it.
    pub fn close(&mut self, address: u64, stack: u32, out: &mut Out) -> anyhow::Result<()> {
        let Some(piece) = self.segments.get(&address).copied() else { return Ok(()) };
        for at in overlapping(&self.blocks, address, address + piece.bytes) {
            // The one block of memory that is nobody's pool ends with it.
            self.replaced += u64::from(self.blocks.get(&at).is_some_and(|b| b.id != piece.id));
            self.give_back(at, stack, out)?;
        }
        self.segments.remove(&address);
        let action = if piece.expandable { Action::SegmentUnmap } else { Action::SegmentFree };
        out(entry(action, address, &piece, stack))
    }

    /// Memory of the segment of this id, which is there, is mapped once more: no memory of its own.
    pub fn map_again(&mut self, address: u64, bytes: u64, id: u64) {
        let home = self.segments.iter().find(|(_, s)| s.id == id && s.expandable).map(|(at, _)| *at);
        if let Some(home) = home {
            self.aliases.add(address, bytes, home);
        }
    }

    /// A range of expandable segments goes.
    pub fn unmap(&mut self, address: u64, bytes: u64, out: &mut Out) -> anyhow::Result<()> {
        self.aliases.remove(address, bytes);
        let end = address.saturating_add(bytes);
        for at in overlapping(&self.segments, address, end) {
            if self.segments.get(&at).is_some_and(|s| s.expandable) {
                self.close(at, 0, out)?;
            }
        }
        Ok(())
    }

    /// Whether this range lies in a segment, or in pieces of expandable ones that follow one another.
    pub fn holds(&self, address: u64, bytes: u64) -> bool {
        let Some(end) = address.checked_add(bytes) else { return false };
        if let Some(pieces) = self.aliases.pieces(address, bytes) {
            return pieces.iter().all(|(at, bytes)| self.holds(*at, *bytes));
        }
        let mut at = address;
        loop {
            let Some((start, s)) = self.segments.range(..=at).next_back() else { return false };
            let stop = start + s.bytes;
            let alone = *start <= address && stop >= end;
            if stop <= at || !s.expandable && !alone {
                return false;
            }
            if stop >= end {
                return true;
            }
            at = stop;
        }
    }

    /// A block is given out. Whether it found a segment.
    pub fn give(&mut self, address: u64, piece: Piece, out: &mut Out) -> anyhow::Result<bool> {
        match self.aliases.pieces(address, piece.bytes) {
            Some(pieces) => self.give_stitched(&pieces, piece, out),
            None => self.give_at(address, piece, out),
        }
    }

    /// A block that is stitched together is shown where its memory lies, as a block for each piece.
    fn give_stitched(&mut self, pieces: &[(u64, u64)], block: Piece, out: &mut Out) -> anyhow::Result<bool> {
        let (mut rest, mut placed) = (block.requested, Vec::new());
        for (at, bytes) in pieces {
            let requested = rest.min(*bytes);
            rest -= requested;
            if self.give_at(*at, Piece { bytes: *bytes, requested, ..block }, out)? {
                // The next is no move of this one.
                self.places.remove(&block.id);
                placed.push(*at);
            }
        }
        let found = !placed.is_empty();
        self.stitched.insert(block.id, placed);
        Ok(found)
    }

    fn give_at(&mut self, address: u64, piece: Piece, out: &mut Out) -> anyhow::Result<bool> {
        if piece.bytes == 0 || !self.holds(address, piece.bytes) {
            return Ok(false);
        }
        for at in overlapping(&self.blocks, address, address + piece.bytes) {
            self.replaced += 1;
            self.give_back(at, piece.stack, out)?;
        }
        if let Some(at) = self.places.insert(piece.id, address) {
            self.replaced += 1;
            self.blocks.remove(&at).map_or(Ok(()), |old| out(entry(Action::Free, at, &old, piece.stack)))?;
        }
        self.blocks.insert(address, piece);
        out(entry(Action::Alloc, address, &piece, piece.stack))?;
        Ok(true)
    }

    /// The block of an allocation is given back, if it is there.
    pub fn free(&mut self, id: u64, stack: u32, out: &mut Out) -> anyhow::Result<()> {
        for at in self.stitched.remove(&id).unwrap_or_default() {
            if self.blocks.get(&at).is_some_and(|b| b.id == id) {
                self.give_back(at, stack, out)?;
            }
        }
        match self.places.get(&id).copied() {
            Some(at) => self.give_back(at, stack, out),
            None => Ok(()),
        }
    }

    fn give_back(&mut self, at: u64, stack: u32, out: &mut Out) -> anyhow::Result<()> {
        let Some(piece) = self.blocks.remove(&at) else { return Ok(()) };
        self.places.remove(&piece.id);
        // Torch gives the stack of the allocation where it has none of the free.
        out(entry(Action::Free, at, &piece, if stack == 0 { piece.stack } else { stack }))
    }
}

fn entry(action: Action, address: u64, piece: &Piece, stack: u32) -> Entry {
    let bytes = if matches!(action, Action::Alloc | Action::Free) { piece.requested } else { piece.bytes };
    Entry { action, address, bytes, block: piece.bytes, stream: piece.stream, stack }
}

/// Where what overlaps this range begins.
fn overlapping(map: &BTreeMap<u64, Piece>, address: u64, end: u64) -> Vec<u64> {
    let before = map.range(..address).next_back().filter(|(at, p)| **at + p.bytes > address).map(|(at, _)| *at);
    before.into_iter().chain(map.range(address..end).map(|(at, _)| *at)).collect()
}
