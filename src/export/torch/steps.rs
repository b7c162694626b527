//! What a step of a history does to the address space that the viewer sees.

use anyhow::Result;
use vramscope_core::event::{Event, EventKind, Memory};

use super::holders::Holders;
use super::space::{Out, Piece, Space};
use crate::export::{Allocation, Step, What};
use crate::report::tally::Layer;

/// Plays a step. Whether an allocation has no place.
pub fn play(space: &mut Space, holders: &Holders, layer: Option<Layer>, step: &Step, out: &mut Out) -> Result<bool> {
    // Without a wish, what is on the device and the program's own.
    let wanted = |l: Layer| layer.map_or(l.on_device() || l == Layer::Tensor, |w| w == l);
    let segment = |id, bytes, e: &Event, expandable| Piece {
        id,
        bytes,
        requested: bytes,
        stream: if expandable { 0 } else { e.extra[1] },
        stack: e.stack,
        expandable,
    };
    match &step.what {
        What::SegmentAlloc(s) if wanted(Layer::Pool) => {
            let piece = Piece { stream: 0, ..segment(s.event.id, s.bytes(), &s.event, side_by_side(&s.event)) };
            space.open(s.event.address, piece, out)?;
        }
        What::SegmentFree(s, _) if side_by_side(&s.event) && wanted(Layer::Pool) => {
            space.unmap(s.event.address, s.bytes(), out)?;
        }
        What::SegmentFree(s, by) => close(space, s.event.address, s.event.id, by.stack, out)?,
        What::Alloc(a) => return alloc(space, holders, a, &wanted, &segment, out),
        What::Free(a, by) => {
            space.free(a.event.id, by.stack, out)?;
            close(space, a.event.address, a.event.id, by.stack, out)?;
        }
        What::Map(Some(a), e) => {
            let holds = holders.mapping(a, e.address);
            if !(wanted(a.layer) || holds && wanted(Layer::Tensor)) {
                return Ok(false);
            }
            let e = Event { stack: if e.stack == 0 { a.event.stack } else { e.stack }, ..**e };
            let piece = segment(a.event.id, e.bytes, &e, true);
            space.open(e.address, piece, out)?;
            if !holds {
                space.give(e.address, piece, out)?;
            }
        }
        // A segment of the pool mapped once more, for a block stitched together from several.
        What::Map(None, e) if side_by_side(e) && wanted(Layer::Pool) => space.map_again(e.address, e.bytes, e.id),
        What::Other(e) if e.kind == EventKind::Unmap => space.unmap(e.address, e.bytes, out)?,
        _ => {}
    }
    Ok(false)
}

/// Segments of stream-ordered memory lie side by side, and a block across several: as in PyTorch's expandable segments.
fn side_by_side(segment: &Event) -> bool {
    segment.memory == Memory::Async
}

fn alloc(
    space: &mut Space,
    holders: &Holders,
    a: &Allocation,
    wanted: &dyn Fn(Layer) -> bool,
    segment: &dyn Fn(u64, u64, &Event, bool) -> Piece,
    out: &mut Out,
) -> Result<bool> {
    let e = &a.event;
    let holds = holders.allocation(a);
    if a.layer == Layer::Vmm || !(wanted(a.layer) || holds && wanted(Layer::Tensor)) {
        return Ok(false);
    }
    if a.block() == 0 || e.address == 0 {
        return Ok(e.address == 0);
    }
    let block = Piece { requested: e.bytes.min(a.block()), ..segment(e.id, a.block(), e, false) };
    match a.layer {
        Layer::Pool if holds && space.holds(e.address, a.block()) => {}
        Layer::Pool | Layer::Tensor => {
            if !space.give(e.address, block, out)? {
                // Its segment came before the history began.
                space.open(e.address, segment(e.id, a.block(), e, false), out)?;
                space.give(e.address, block, out)?;
            }
        }
        _ => {
            space.open(e.address, segment(e.id, a.block(), e, false), out)?;
            if !holds {
                space.give(e.address, block, out)?;
            }
        }
    }
    Ok(false)
}

/// The segment of this id goes, if it is at this address.
fn close(space: &mut Space, address: u64, id: u64, stack: u32, out: &mut Out) -> Result<()> {
    if space.segments().get(&address).is_some_and(|s| s.id == id && !s.expandable) {
        space.close(address, stack, out)?;
    }
    Ok(())
}
