//! Blocks stitched together: a request that fits into no free block, though there is enough free memory in many, gets
//! addresses of its own at which the chunks of those free blocks are mapped a second time. Nothing moves and nothing is
//! unmapped, so the next step of a training loop finds the same addresses ready and needs no call of the driver. (The idea
//! is GMLake's, ASPLOS 2024. Moving the chunks instead moves them to and fro in every step.)
//!
//! A chunk has a *home*: the addresses where it was mapped first, and where its free memory is kept. While a stitched block
//! is in use, the homes of its chunks are `Lent`. When it is freed they are free memory again, tied to the streams that used
//! it, and its own addresses are `Spare`: with memory, but somebody else may have that at home.
//!
//! So each byte still has one owner, and is reused in the order of streams, whatever addresses it is reached by. CUDA lets
//! memory be mapped more than once; kernels that follow each other see what was written by either address.

use super::backing::Backing;
use super::claim::Claim;
use super::core::{Core, Map, Tie};
use super::options::PAGE;
use super::slot::{NIL, State};
use super::stream::Numbers;
use std::collections::BTreeSet;

/// Addresses and bytes.
pub type Range = (u64, u64);

/// A chunk mapped once more.
#[derive(Clone, Copy)]
pub struct Alias {
    pub address: u64,
    pub home: u64,
    pub bytes: u64,
}

/// One stitched block, in use or `Spare`.
pub struct Stitch {
    /// Its size; a request for less uses the beginning.
    bytes: u64,
    /// Of its addresses: to the end of the last chunk.
    extent: u64,
    /// The addresses before it, where it begins within a chunk.
    lead: Option<u32>,
    /// Its memory at home, in its order.
    runs: Vec<Range>,
    /// What is mapped for it, in its order. Of the last one it may use the beginning only.
    pub aliases: Vec<Alias>,
    /// The work that used it last.
    ties: Vec<Tie>,
    /// When it was used last, counted in uses.
    used: u64,
}

/// All of them, by record.
#[derive(Default)]
pub struct Stitches {
    all: Numbers<u32, Stitch>,
    /// Bytes and record of those that are `Spare`, but for those that could not be unmapped whole.
    spare: BTreeSet<(u64, u32)>,
    /// What all have together.
    bytes: u64,
    uses: u64,
}

impl Stitches {
    /// What is mapped a second time.
    pub fn aliases(&self) -> impl Iterator<Item = Alias> {
        self.all.values().flat_map(|s| s.aliases.iter().copied())
    }

    /// Whether a record is one.
    pub fn has(&self, n: u32) -> bool {
        self.all.contains_key(&n)
    }
}

/// What one could be made of.
struct Sketch {
    /// A chunk of which the end is free.
    start: Option<Range>,
    /// Chunks that are free.
    chunks: Vec<Range>,
    /// Bytes of new memory.
    maps: u64,
    /// A chunk of which the beginning is free.
    end: Option<Range>,
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
pub struct Plan {
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
    /// Whether a range at home is free memory that needs no wait.
    fn is_idle(&self, m: &Map, range: Range, stream: u64) -> bool {
        let (mut at, end) = (range.0, range.0 + range.1);
        let mut next = m.index.covering(at);
        while let Some(n) = next.filter(|n| *n != NIL) {
            let slot = m.slots.get(n);
            let word = slot.word();
            let usable = match word.state() {
                State::Free => true,
                State::Tied => self.streams.is_clear(stream, slot.stream(), slot.stamp()),
                _ => false,
            };
            if !usable || word.whole() {
                return false;
            }
            at = slot.end();
            if at >= end {
                return true;
            }
            next = Some(slot.next());
        }
        false
    }

    /// Takes an idle range out of circulation; gives its records and what they were.
    fn lend(&mut self, m: &Map, range: Range) -> Vec<(u32, State)> {
        let mut out = Vec::new();
        let (mut at, end) = (range.0, range.0 + range.1);
        while at < end {
            let Some(mut n) = m.index.covering(at) else { break };
            self.pull(m, n);
            let slot = m.slots.get(n);
            let state = slot.state();
            if slot.address() < at {
                let right = self.split(m, n, at - slot.address());
                self.put(m, n);
                n = right;
            }
            let slot = m.slots.get(n);
            if slot.end() > end {
                let rest = self.split(m, n, end - at);
                self.put(m, rest);
            }
            slot.set_state(State::Busy);
            out.push((n, state));
            at = slot.end();
        }
        out
    }

    /// A `Spare` one of about the size whose chunks are free. Afterwards it is `Busy`, and of the size asked for.
    pub fn take_stitched(&mut self, m: &Map, bytes: u64, stream: u64) -> Option<u32> {
        if bytes < self.options.stitch_above {
            return None;
        }
        // With more than a chunk to spare that chunk could not go back while the block is in use.
        let most = bytes + self.options.chunk.max(bytes / 512);
        let mut fits = self.stitches.spare.range((bytes, 0)..=(most, NIL)).map(|s| s.1);
        let n = fits.find(|n| {
            let stitch = self.stitches.all.get(n);
            let last = |s: &Stitch| s.aliases.last().map_or(0, |a| a.bytes);
            let fits = |s: &&Stitch| s.extent - last(s) < bytes;
            stitch.filter(fits).is_some_and(|s| first(&s.runs, bytes).all(|r| self.is_idle(m, r, stream)))
        })?;
        self.stitches.uses += 1;
        let uses = self.stitches.uses;
        let stitch = self.stitches.all.get_mut(&n)?;
        stitch.used = uses;
        self.stitches.spare.remove(&(stitch.bytes, n));
        for run in first(&stitch.runs.clone(), bytes) {
            for (home, _) in self.lend(m, run) {
                m.slots.get(home).set_state(State::Lent);
            }
        }
        let slot = m.slots.get(n);
        slot.set_state(State::Busy);
        slot.set_bytes(bytes);
        Some(n)
    }

    /// What could be stitched together if less than `instead` bytes have to be mapped for it.
    pub fn stitch(&mut self, m: &Map, bytes: u64, stream: u64, instead: u64) -> Option<Plan> {
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
        let Sketch { start, mut chunks, maps, end } = self.with_ends(m, bytes, stream, Sketch::of(chosen, maps));
        if maps >= instead || chunks.is_empty() && start.is_none() && end.is_none() {
            return None;
        }
        chunks.sort_unstable();
        let extent = start.iter().chain(&chunks).chain(&end).map(|c| c.1).sum::<u64>() + maps;
        let (mut n, fresh) = self.room(m, extent, maps)?;
        let mut runs: Vec<Range> = Vec::new();
        let mut lead = None;
        if let Some((address, length)) = start {
            let used = self.suffix(m, (address, length), stream).unwrap_or(length);
            runs.push((address + length - used, used));
            lead = Some(n);
            m.slots.get(n).set_word(m.slots.get(n).word().to(State::Spare));
            n = self.split(m, n, length - used);
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
            let rest = bytes - runs.iter().map(|r| r.1).sum::<u64>();
            homes.extend(self.lend(m, (end.0, rest)));
            mapped.push(end);
            runs.push((end.0, rest));
        }
        self.in_flight += 1;
        let runs = joined(first(&runs, bytes));
        Some(Plan { n, lead, homes, runs, chunks: mapped, maps })
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
                let some = |part: (u64, Range)| (part.0 > 0).then_some(part.1);
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

    /// Nothing is made of it, though some may be mapped.
    pub fn unpick(&mut self, m: &Map, plan: Plan, aliases: Vec<Alias>) {
        self.roll_back(m, Claim { nodes: plan.homes, owed: Vec::new(), maps: plan.maps });
        let extent = m.slots.get(plan.n).bytes();
        let stitch = Stitch { bytes: 0, extent, lead: plan.lead, runs: Vec::new(), aliases, ties: Vec::new(), used: 0 };
        self.in_flight += 1;
        self.unstitched(m, plan.n, stitch);
    }

    /// The block is made, for the request of so many bytes. Gives those that are too many now, and whose work is done.
    pub fn stitched(&mut self, m: &Map, plan: Plan, bytes: u64, evict: bool) -> Vec<(u32, Stitch)> {
        self.in_flight -= 1;
        // Of new memory there may be more than is needed.
        let excess = plan.homes.iter().map(|h| m.slots.get(h.0).bytes()).sum::<u64>().saturating_sub(bytes);
        if excess > 0
            && let Some((last, _)) = plan.homes.last()
        {
            let rest = self.split(m, *last, m.slots.get(*last).bytes() - excess);
            self.settle(m, rest, State::Free);
        }
        for (home, _) in &plan.homes {
            m.slots.get(*home).set_state(State::Lent);
        }
        let slot = m.slots.get(plan.n);
        slot.set_word(slot.word().with_whole(true));
        let extent = slot.bytes();
        slot.set_bytes(bytes);
        let s = &mut self.stitches;
        s.uses += 1;
        s.bytes += bytes;
        let start = plan.lead.map_or(slot.address(), |lead| m.slots.get(lead).address());
        let aliases = aliases(start, &plan.chunks);
        let stitch =
            Stitch { bytes, extent, lead: plan.lead, runs: plan.runs, aliases, ties: Vec::new(), used: s.uses };
        s.all.insert(plan.n, stitch);
        // Of one range they take no more than half.
        let most = self.most.saturating_mul(self.options.stitched).min(self.options.reserve / 2);
        if evict && self.stitches.bytes > most { self.evict(m, most) } else { Vec::new() }
    }

    /// Takes away those unused for longest, until the others have a quarter less than `most` bytes.
    fn evict(&mut self, m: &Map, most: u64) -> Vec<(u32, Stitch)> {
        let done = |s: &Stitch| s.ties.iter().all(|t| self.streams.is_done(t.0, t.1));
        let spare = self.stitches.spare.iter().filter_map(|(_, n)| Some((*n, self.stitches.all.get(n)?)));
        let mut old: Vec<(u64, u32)> = spare.filter(|s| done(s.1)).map(|(n, s)| (s.used, n)).collect();
        old.sort_unstable();
        let mut out = Vec::new();
        for (_, n) in old {
            if self.stitches.bytes <= most - most / 4 {
                break;
            }
            out.extend(self.unstitch(m, n));
        }
        out
    }

    /// Takes away those that have memory in one of these chunks, sorted, all of which are free and not touched by any work;
    /// and those that could not be unmapped before.
    pub fn unstitch_over(&mut self, m: &Map, chunks: &[Range]) -> Vec<(u32, Stitch)> {
        let over = |a: &Alias| chunks.binary_search(&(a.home, a.bytes)).is_ok();
        let spare = |n: u32| m.slots.get(n).state() == State::Spare;
        let dead = |n: u32, s: &Stitch| !self.stitches.spare.contains(&(s.bytes, n));
        let all = self.stitches.all.iter().filter(|(n, _)| spare(**n));
        let hit = all.filter(|(n, s)| dead(**n, s) || s.aliases.iter().any(over));
        let gone: Vec<u32> = hit.map(|(n, _)| *n).collect();
        gone.into_iter().filter_map(|n| self.unstitch(m, n)).collect()
    }

    fn unstitch(&mut self, m: &Map, n: u32) -> Option<(u32, Stitch)> {
        let stitch = self.stitches.all.remove(&n)?;
        self.stitches.spare.remove(&(stitch.bytes, n));
        self.stitches.bytes -= stitch.bytes;
        self.in_flight += 1;
        let slot = m.slots.get(n);
        slot.set_state(State::Busy);
        slot.set_bytes(stitch.extent);
        Some((n, stitch))
    }

    /// What was taken away is unmapped, or but for what is left: the next trim tries that again.
    pub fn unstitched(&mut self, m: &Map, n: u32, stitch: Stitch) {
        self.in_flight -= 1;
        if stitch.aliases.is_empty() {
            stitch.lead.into_iter().for_each(|lead| self.settle_hole(m, lead));
            return self.settle_hole(m, n);
        }
        m.slots.get(n).set_state(State::Spare);
        self.stitches.bytes += stitch.bytes;
        self.stitches.all.insert(n, stitch);
    }

    /// A stitched block is free: its chunks are, at home, tied to the streams that used it.
    pub fn give_stitched(&mut self, m: &Map, n: u32, ties: &[Tie]) {
        let Some(stitch) = self.stitches.all.get_mut(&n) else { return };
        stitch.ties = ties.to_vec();
        let slot = m.slots.get(n);
        let used = slot.bytes();
        slot.set_bytes(stitch.bytes);
        slot.set_state(State::Spare);
        self.stitches.spare.insert((stitch.bytes, n));
        for (start, bytes) in first(&stitch.runs.clone(), used) {
            let (mut at, end) = (start, start + bytes);
            while at < end {
                let Some(home) = m.index.at(at) else { break };
                let slot = m.slots.get(home);
                at = slot.end();
                let Some(&(stream, stamp)) = ties.first() else { break };
                if ties.len() == 1 {
                    self.give(m, home, stream, stamp);
                } else {
                    slot.set_stream(stream);
                    slot.set_stamp(stamp);
                    self.wait(m, home, ties.to_vec());
                }
            }
        }
    }
}

/// The first so many bytes of some ranges.
fn first(ranges: &[Range], bytes: u64) -> impl Iterator<Item = Range> {
    let mut left = bytes;
    ranges.iter().map_while(move |(address, length)| {
        let part = left.min(*length);
        left -= part;
        (part > 0).then_some((*address, part))
    })
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

/// Where chunks lie that are mapped one after the other.
pub fn aliases(start: u64, chunks: &[Range]) -> Vec<Alias> {
    let mut end = start;
    let alias = |(home, bytes): &Range| {
        end += bytes;
        Alias { address: end - bytes, home: *home, bytes: *bytes }
    };
    chunks.iter().map(alias).collect()
}
