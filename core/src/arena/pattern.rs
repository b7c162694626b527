//! What a stitched block could be made of: the choice of chunks and of addresses, and how both are taken out of circulation.

use super::backing::Backing;
use super::core::{Core, Map};
use super::options::PAGE;
use super::slot::{NIL, State};
use super::stitch::{Range, first};

/// What one could be made of.
struct Sketch {
    /// A chunk of which so much is free at the end.
    start: Option<(u64, Range)>,
    /// Chunks that are free.
    chunks: Vec<Range>,
    /// Bytes of new memory.
    maps: u64,
    /// A chunk of which so much is free at the beginning.
    end: Option<(u64, Range)>,
}

impl Sketch {
    fn of(chunks: Vec<Range>, maps: u64) -> Sketch {
        Sketch { start: None, chunks, maps, end: None }
    }

    fn bytes(&self) -> u64 {
        self.chunks.iter().map(|c| c.1).sum::<u64>() + self.maps
    }

    /// So many pages of new memory less, or chunks.
    fn without(&self, fewer: usize) -> Option<Sketch> {
        let maps = fewer as u64 * PAGE;
        match self.maps {
            0 => Some(Sketch::of(self.chunks[..self.chunks.len().checked_sub(fewer)?].to_vec(), 0)),
            some => Some(Sketch::of(self.chunks.clone(), some.checked_sub(maps)?)),
        }
    }
}

/// What a new one is made of. Until it is done or undone all of that is `Busy`.
pub struct Pattern {
    /// Its own addresses.
    pub n: u32,
    /// Those before them, where it begins within a chunk.
    pub lead: Option<u32>,
    /// Its memory at home.
    pub runs: Vec<Range>,
    /// The homes, one chunk each or a part, and what they were; a `Hole` is to be filled first.
    pub homes: Vec<(u32, State)>,
    /// The chunks.
    pub chunks: Vec<Range>,
    /// Bytes of new memory to map.
    pub maps: u64,
}

impl<B: Backing> Core<B> {
    /// What could be stitched together if less than `instead` bytes have to be mapped for it.
    pub fn stitch(&mut self, m: &Map, bytes: u64, stream: u64, instead: u64) -> Option<Pattern> {
        let idle = |(address, bytes): &Range| self.is_idle(m, (*address, *bytes), stream);
        let chunks = self.chunks.iter().filter(|c| !c.1.going).map(|(a, c)| (*a, c.bytes)).filter(idle);
        // Those of the smallest blocks first: they are of the least use.
        let block = |address| m.index.covering(address).map_or(0, |n| m.slots.get(n).bytes());
        let mut found: Vec<(u64, Range)> = chunks.map(|c| (block(c.0), c)).collect();
        found.sort_unstable();
        let mut sum = 0;
        let enough = |(_, chunk): &(u64, Range)| {
            let more = sum < bytes;
            sum += if more { chunk.1 } else { 0 };
            more
        };
        let chosen: Vec<Range> = found.into_iter().take_while(enough).map(|f| f.1).collect();
        let maps = bytes.saturating_sub(sum).next_multiple_of(PAGE);
        let Sketch { start, mut chunks, end, .. } = self.with_ends(m, bytes, stream, Sketch::of(chosen, maps));
        chunks.sort_unstable();
        // In this order fewer may do, for chunks differ in size. What is mapped must be the block's: another thread could
        // unmap the rest meanwhile.
        let (suffix, prefix) = (start.map_or(0, |s| s.0), end.map_or(0, |e| e.0));
        let mut sum = 0;
        chunks.retain(|c| {
            let needed = suffix + sum < bytes;
            sum += if needed { c.1 } else { 0 };
            needed
        });
        // With large chunks the ends may have more than was looked for: so much less is new, and less than a page of that is left.
        let maps = bytes.saturating_sub(suffix + sum + prefix).next_multiple_of(PAGE);
        let (of_start, of_end) = (suffix.min(bytes), bytes.saturating_sub(suffix + sum + maps));
        let (start, end) = (start.map(|s| s.1), end.filter(|_| of_end > 0).map(|e| e.1));
        if maps >= instead || chunks.is_empty() && start.is_none() && end.is_none() {
            return None;
        }
        let extent = start.iter().chain(&chunks).chain(&end).map(|c| c.1).sum::<u64>() + maps;
        let (mut n, fresh) = self.room(m, extent, maps)?;
        let mut runs: Vec<Range> = Vec::new();
        let mut lead = None;
        if let Some((address, length)) = start {
            runs.push((address + length - of_start, of_start));
            lead = Some(n);
            m.slots.get(n).set_word(m.slots.get(n).word().to(State::Spare));
            n = self.split(m, n, length - of_start);
            m.slots.get(n).set_state(State::Busy);
        }
        runs.extend_from_slice(&chunks);
        let mut homes: Vec<(u32, State)> = first(&runs, bytes).flat_map(|r| self.lend(m, r)).collect();
        let mut mapped: Vec<Range> = start.into_iter().chain(chunks).collect();
        for (home, range) in fresh.into_iter().flat_map(|n| self.cut_up(m, n)) {
            homes.push((home, State::Hole));
            mapped.push(range);
            runs.push(range);
        }
        if let Some(end) = end {
            homes.extend(self.lend(m, (end.0, of_end)));
            mapped.push(end);
            runs.push((end.0, of_end));
        }
        self.in_flight += 1;
        let runs = joined(first(&runs, bytes));
        Some(Pattern { n, lead, homes, runs, chunks: mapped, maps })
    }

    /// Chunks for a hole that is to be filled.
    fn cut_up(&mut self, m: &Map, n: u32) -> Vec<(u32, Range)> {
        let chunk = self.chunk(m.slots.get(n).bytes());
        let (mut next, mut out) = (Some(n), Vec::new());
        while let Some(n) = next {
            let slot = m.slots.get(n);
            next = (slot.bytes() > chunk).then(|| self.split(m, n, chunk));
            slot.set_state(State::Busy);
            out.push((n, (slot.address(), slot.bytes())));
        }
        out
    }

    /// What is free at the end of a chunk.
    fn suffix(&self, m: &Map, (address, bytes): Range, stream: u64) -> Option<u64> {
        let end = address + bytes;
        let slot = m.slots.get(m.index.covering(end - 1)?);
        let start = slot.address().max(address);
        self.is_idle(m, (start, end - start), stream).then_some(end - start)
    }

    /// What is free at the beginning of a chunk.
    fn prefix(&self, m: &Map, (address, bytes): Range, stream: u64) -> Option<u64> {
        let slot = m.slots.get(m.index.covering(address)?);
        let length = slot.end().min(address + bytes) - address;
        self.is_idle(m, (address, length), stream).then_some(length)
    }

    /// A block may begin and end within a chunk. So one that is free at its end, and one that is free at its beginning, take
    /// the place of a chunk or two that are free as a whole, or of new memory.
    fn with_ends(&self, m: &Map, bytes: u64, stream: u64, sketch: Sketch) -> Sketch {
        let all = self.chunks.iter().filter(|c| !c.1.going).map(|(a, c)| (*a, c.bytes));
        let parts: Vec<Range> = all.filter(|c| !self.is_idle(m, *c, stream)).collect();
        let none = (0, (0, 0));
        let suffixes = parts.iter().filter_map(|c| Some((self.suffix(m, *c, stream)?, *c)));
        let prefixes = parts.iter().filter_map(|c| Some((self.prefix(m, *c, stream)?, *c)));
        let starts: Vec<(u64, Range)> = suffixes.chain([none]).collect();
        let mut ends: Vec<(u64, Range)> = prefixes.chain([none]).collect();
        ends.sort_unstable();
        for fewer in [2, 1] {
            let Some(less) = sketch.without(fewer) else { continue };
            let need = bytes.saturating_sub(less.bytes());
            // The tightest pair that suffices.
            let pair = |s: &(u64, Range)| {
                let from = ends.partition_point(|e| s.0 + e.0 < need);
                let e = ends[from..].iter().find(|e| e.1 != s.1)?;
                Some((s.0 + e.0, *s, *e))
            };
            if let Some((_, s, e)) = starts.iter().filter_map(pair).min() {
                let some = |part: (u64, Range)| Some(part).filter(|p| p.0 > 0);
                // With as much at the beginning as is needed, nothing is needed at the end.
                let end = some(e).filter(|_| s.0 < need);
                return Sketch { start: some(s), end, ..less };
            }
        }
        sketch
    }

    /// Addresses for a stitched block, from the end of the addresses: what grows does so from the beginning. And a hole for
    /// what is to be mapped, as low as there is.
    fn room(&mut self, m: &Map, bytes: u64, maps: u64) -> Option<(u32, Option<u32>)> {
        let (mut low, mut high) = (None, None);
        for &head in &self.heads {
            let mut n = head;
            while n != NIL {
                let slot = m.slots.get(n);
                let room = if slot.state() == State::Hole { slot.bytes() } else { 0 };
                low = low.or((room >= maps.max(1)).then_some(n));
                high = if room >= bytes + maps { Some(n) } else { high };
                n = slot.next();
            }
        }
        let (low, high) = (low?, high?);
        let rest = m.slots.get(high).bytes() - bytes;
        let own = if rest > 0 { self.split(m, high, rest) } else { high };
        m.slots.get(own).set_state(State::Busy);
        if maps == 0 {
            return Some((own, None));
        }
        // What is cut off its end was not what is mapped: there was room for both.
        if m.slots.get(low).bytes() > maps {
            self.split(m, low, maps);
        }
        m.slots.get(low).set_state(State::Busy);
        Some((own, Some(low)))
    }
}

/// Neighbours as one.
fn joined(ranges: impl Iterator<Item = Range>) -> Vec<Range> {
    let mut out: Vec<Range> = Vec::new();
    for (address, bytes) in ranges {
        match out.last_mut() {
            Some((start, length)) if *start + *length == address => *length += bytes,
            _ => out.push((address, bytes)),
        }
    }
    out
}
