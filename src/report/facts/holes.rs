//! Holes in what PyTorch holds: its segments by address, the tensors in them, and which of these keep free memory from
//! being given back or joined.

use std::collections::{BTreeMap, HashMap};

use vramscope_core::event::{Event, Memory};

use super::ledger::Ledger;

/// Segments told one by one.
const WORST: usize = 10;
/// Holders told of a segment.
const HOLDERS: usize = 4;

/// What is mapped of memory that `cuMemCreate` made: expandable segments.
#[derive(Debug, Default)]
pub(super) struct Maps(BTreeMap<u64, u64>);

impl Maps {
    pub(super) fn map(&mut self, e: &Event) {
        self.0.insert(e.address, e.bytes);
    }

    pub(super) fn unmap(&mut self, e: &Event) {
        let end = e.address.saturating_add(e.bytes.max(1));
        while let Some(at) = self.0.range(e.address..end).next().map(|(at, _)| *at) {
            self.0.remove(&at);
        }
    }
}

/// A segment with something in it and free memory beside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pinned {
    /// Where it lies.
    pub address: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Bytes not in use.
    pub free: u64,
    /// The largest free piece.
    pub largest: u64,
    /// Tensors in it.
    pub tensors: u64,
    /// Who holds most of what is in use: number of the holder, bytes.
    pub holders: Vec<(u32, u64)>,
}

/// What a holder keeps from being given back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pins {
    /// Number of the holder.
    pub holder: u32,
    /// Segments in which it holds most.
    pub segments: u64,
    /// Free bytes in these.
    pub free: u64,
    /// Its own bytes in them,
    pub bytes: u64,
    /// in so many tensors.
    pub tensors: u64,
}

/// PyTorch's segments at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holes {
    /// When.
    pub time: u64,
    /// A request had failed.
    pub failure: bool,
    /// Segments.
    pub segments: u64,
    /// Their bytes.
    pub reserved: u64,
    /// Free bytes in them, all,
    pub free: u64,
    /// those in segments with no tensor at all,
    pub whole: u64,
    /// and the largest piece.
    pub largest: u64,
    /// Who keeps free memory where it is, the most first.
    pub pins: Vec<Pins>,
    /// The segments with most free memory that is kept so.
    pub worst: Vec<Pinned>,
}

impl Holes {
    pub(super) fn of(ledger: &Ledger, maps: &Maps, time: u64, failure: bool) -> Holes {
        let mut segments: Vec<(u64, u64)> = Vec::new();
        let mut tensors: Vec<(u64, u64, u32)> = Vec::new();
        for a in ledger.alive.values() {
            let h = &ledger.holders[a.holder as usize];
            match h.memory {
                Memory::Tensor => tensors.push((a.address, a.bytes, a.holder)),
                Memory::Device if h.torch => segments.push((a.address, a.bytes)),
                _ => {}
            }
        }
        // Neighbours of an expandable segment are one.
        for (at, bytes) in &maps.0 {
            match segments.last_mut() {
                Some((start, size)) if *start + *size == *at && maps.0.contains_key(start) => *size += bytes,
                _ => segments.push((*at, *bytes)),
            }
        }
        segments.sort_unstable();
        tensors.sort_unstable();
        let mut holes = Holes { time, failure, ..Holes::default() };
        let mut pins: HashMap<u32, Pins> = HashMap::new();
        let mut next = 0;
        for (start, size) in segments {
            let end = start.saturating_add(size);
            let from = next + tensors[next..].partition_point(|t| t.0 < start);
            next = from + tensors[from..].partition_point(|t| t.0 < end);
            holes.add(start, end, &tensors[from..next], &mut pins);
        }
        holes.pins = pins.into_values().collect();
        holes.pins.sort_by_key(|p| (std::cmp::Reverse(p.free), p.holder));
        holes.worst.sort_by_key(|p| (std::cmp::Reverse(p.free), p.address));
        holes.worst.truncate(WORST);
        holes
    }

    fn add(&mut self, start: u64, end: u64, tensors: &[(u64, u64, u32)], pins: &mut HashMap<u32, Pins>) {
        self.segments += 1;
        self.reserved += end - start;
        let (mut at, mut largest, mut used) = (start, 0, 0);
        let mut by: HashMap<u32, (u64, u64)> = HashMap::new();
        for (address, bytes, holder) in tensors {
            largest = largest.max(address.saturating_sub(at));
            at = at.max(address.saturating_add(*bytes).min(end));
            used += bytes;
            let sum = by.entry(*holder).or_default();
            *sum = (sum.0 + bytes, sum.1 + 1);
        }
        largest = largest.max(end - at);
        let free = (end - start).saturating_sub(used);
        self.free += free;
        self.largest = self.largest.max(largest);
        if tensors.is_empty() {
            self.whole += free;
            return;
        }
        if free == 0 {
            return;
        }
        let mut holders: Vec<(u32, u64)> = by.iter().map(|(h, sum)| (*h, sum.0)).collect();
        holders.sort_by_key(|(h, bytes)| (std::cmp::Reverse(*bytes), *h));
        let most = holders[0].0;
        let p = pins.entry(most).or_insert(Pins { holder: most, ..Pins::default() });
        p.segments += 1;
        p.free += free;
        p.bytes += by[&most].0;
        p.tensors += by[&most].1;
        if self.worst.len() >= 4 * WORST {
            self.worst.sort_by_key(|p| (std::cmp::Reverse(p.free), p.address));
            self.worst.truncate(WORST);
        }
        holders.truncate(HOLDERS);
        let tensors = tensors.len() as u64;
        self.worst.push(Pinned { address: start, bytes: end - start, free, largest, tensors, holders });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_keeps_a_hole_where_it_is() {
        let mut holes = Holes::default();
        let mut pins = HashMap::new();
        holes.add(1000, 2000, &[(1100, 100, 7), (1900, 100, 7)], &mut pins);
        holes.add(5000, 6000, &[(5000, 10, 7), (5010, 600, 8)], &mut pins);
        holes.add(8000, 8500, &[], &mut pins);
        assert_eq!((holes.free, holes.whole, holes.largest, holes.segments), (800 + 390 + 500, 500, 700, 3));
        assert_eq!(pins[&7], Pins { holder: 7, segments: 1, free: 800, bytes: 200, tensors: 2 });
        assert_eq!(pins[&8], Pins { holder: 8, segments: 1, free: 390, bytes: 600, tensors: 1 });
        assert_eq!(holes.worst[1].holders, [(8, 600), (7, 10)]);
    }

    #[test]
    fn what_another_library_maps_is_no_segment() {
        use crate::report::testing::{Loop, MIB};
        use vramscope_core::event::{EventKind, Memory};
        let mut l = Loop::new();
        l.script.module(7, "/usr/lib/libnccl.so.2");
        l.tensor("randn", 1, MIB);
        for (id, caller) in [(900, 7), (901, 4)] {
            let (kind, memory, bytes) = (EventKind::Alloc, Memory::Vmm, 20 * MIB);
            l.script.on(1, Event { kind, memory, id, caller, bytes, context: 1, ..Event::default() });
            let address = (1 << 44) + id * 32 * MIB;
            l.script.on(1, Event { kind: EventKind::Map, id, address, bytes, ..Event::default() });
        }
        l.tensor("randn", 1, MIB);
        let history = l.script.history();
        let holes = Holes::of(&history.facts.ledger, &history.facts.maps, 0, false);
        assert_eq!((holes.segments, holes.reserved, holes.free), (2, (1 << 30) + 20 * MIB, (1 << 30) + 18 * MIB));
    }
}
