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
use super::pattern::Pattern;
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

impl Stitch {
    /// Bytes that are mapped for it: its chunks, of the first and the last of which it may use a part only.
    fn mapped(&self) -> u64 {
        self.aliases.iter().map(|a| a.bytes).sum()
    }
}

/// All of them, by record.
#[derive(Default)]
pub struct Stitches {
    all: Numbers<u32, Stitch>,
    /// Bytes and record of those that are `Spare`, but for those that could not be unmapped whole.
    spare: BTreeSet<(u64, u32)>,
    /// Where that is at home which a thread unmaps now, outside of the lock: once for each time it is.
    leaving: Vec<u64>,
    /// What is mapped for all together.
    bytes: u64,
    uses: u64,
}

impl Stitches {
    /// What is mapped a second time.
    pub fn aliases(&self) -> impl Iterator<Item = Alias> {
        self.all.values().flat_map(|s| s.aliases.iter().copied())
    }

    /// Work that may use their addresses yet.
    pub fn ties(&self) -> impl Iterator<Item = &Tie> {
        self.all.values().flat_map(|s| &s.ties)
    }

    /// Whether one of these chunks, sorted, is being unmapped elsewhere.
    pub fn any_leaves(&self, chunks: &[Range]) -> bool {
        self.leaving.iter().any(|home| is_among(chunks, *home))
    }

    /// Those of these chunks, sorted, that are mapped elsewhere, or may be.
    pub fn mapped_over(&self, chunks: &[Range]) -> BTreeSet<u64> {
        let homes = self.aliases().map(|a| a.home).chain(self.leaving.iter().copied());
        homes.filter(|home| is_among(chunks, *home)).collect()
    }

    /// Whether a record is one.
    pub fn has(&self, n: u32) -> bool {
        self.all.contains_key(&n)
    }
}
impl<B: Backing> Core<B> {
    /// Whether a range at home is free memory that needs no wait.
    pub fn is_idle(&self, m: &Map, range: Range, stream: u64) -> bool {
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
    pub fn lend(&mut self, m: &Map, range: Range) -> Vec<(u32, State)> {
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
        let n = fits.find(|n| self.suits(m, *n, bytes, stream))?;
        Some(self.take_this(m, n, bytes))
    }

    /// One of them, if it suits the request.
    pub fn take_spare(&mut self, m: &Map, n: u32, bytes: u64, stream: u64) -> Option<u32> {
        let spare = |s: &Stitch| s.bytes >= bytes && self.stitches.spare.contains(&(s.bytes, n));
        let known = self.stitches.all.get(&n).is_some_and(spare);
        (known && self.suits(m, n, bytes, stream)).then(|| self.take_this(m, n, bytes))
    }

    /// Whether a `Spare` one, which is large enough, can be used, and wastes no chunk.
    fn suits(&self, m: &Map, n: u32, bytes: u64, stream: u64) -> bool {
        let Some(s) = self.stitches.all.get(&n) else { return false };
        let last = s.aliases.last().map_or(0, |a| a.bytes);
        s.extent - last < bytes && first(&s.runs, bytes).all(|r| self.is_idle(m, r, stream))
    }

    fn take_this(&mut self, m: &Map, n: u32, bytes: u64) -> u32 {
        self.stitches.uses += 1;
        let uses = self.stitches.uses;
        let Some(stitch) = self.stitches.all.get_mut(&n) else { return n };
        stitch.used = uses;
        let (whole, runs) = (stitch.bytes, stitch.runs.clone());
        self.stitches.spare.remove(&(whole, n));
        for run in first(&runs, bytes) {
            for (home, _) in self.lend(m, run) {
                m.slots.get(home).set_state(State::Lent);
            }
        }
        let slot = m.slots.get(n);
        slot.set_state(State::Busy);
        slot.set_bytes(bytes);
        n
    }

    /// Nothing is made of it, though some may be mapped.
    pub fn unpick(&mut self, m: &Map, pattern: Pattern, aliases: Vec<Alias>) {
        self.roll_back(m, Claim { nodes: pattern.homes, owed: Vec::new(), maps: pattern.maps });
        let extent = m.slots.get(pattern.n).bytes();
        let stitch =
            Stitch { bytes: 0, extent, lead: pattern.lead, runs: Vec::new(), aliases, ties: Vec::new(), used: 0 };
        self.in_flight += 1;
        self.unstitched(m, pattern.n, stitch);
    }

    /// The block is made, for the request of so many bytes. Gives those that are too many now, and whose work is done.
    pub fn stitched(&mut self, m: &Map, pattern: Pattern, bytes: u64, evict: bool) -> Vec<(u32, Stitch)> {
        self.in_flight -= 1;
        // Of new memory there may be more than is needed.
        let excess = pattern.homes.iter().map(|h| m.slots.get(h.0).bytes()).sum::<u64>().saturating_sub(bytes);
        if excess > 0
            && let Some((last, _)) = pattern.homes.last()
        {
            let rest = self.split(m, *last, m.slots.get(*last).bytes() - excess);
            self.settle(m, rest, State::Free);
        }
        for (home, _) in &pattern.homes {
            m.slots.get(*home).set_state(State::Lent);
        }
        let slot = m.slots.get(pattern.n);
        slot.set_word(slot.word().with_whole(true));
        let extent = slot.bytes();
        slot.set_bytes(bytes);
        let s = &mut self.stitches;
        s.uses += 1;
        let start = pattern.lead.map_or(slot.address(), |lead| m.slots.get(lead).address());
        let aliases = aliases(start, &pattern.chunks);
        let stitch =
            Stitch { bytes, extent, lead: pattern.lead, runs: pattern.runs, aliases, ties: Vec::new(), used: s.uses };
        s.bytes += stitch.mapped();
        s.all.insert(pattern.n, stitch);
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
        let over = |a: &Alias| is_among(chunks, a.home);
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
        self.stitches.bytes -= stitch.mapped();
        self.stitches.leaving.extend(stitch.aliases.iter().map(|a| a.home));
        self.in_flight += 1;
        let slot = m.slots.get(n);
        slot.set_state(State::Busy);
        slot.set_bytes(stitch.extent);
        Some((n, stitch))
    }

    /// What was at home there is unmapped elsewhere, or that failed.
    pub fn left(&mut self, aliases: &[Alias]) {
        let leaving = &mut self.stitches.leaving;
        for alias in aliases {
            if let Some(n) = leaving.iter().position(|home| *home == alias.home) {
                leaving.swap_remove(n);
            }
        }
    }

    /// What was taken away is unmapped, or but for what is left: the next trim tries that again.
    pub fn unstitched(&mut self, m: &Map, n: u32, stitch: Stitch) {
        self.in_flight -= 1;
        if stitch.aliases.is_empty() {
            stitch.lead.into_iter().for_each(|lead| self.settle_hole(m, lead));
            return self.settle_hole(m, n);
        }
        m.slots.get(n).set_state(State::Spare);
        self.stitches.bytes += stitch.mapped();
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

/// Whether a chunk is one of these, sorted.
fn is_among(chunks: &[Range], home: u64) -> bool {
    chunks.binary_search_by_key(&home, |c| c.0).is_ok()
}

/// The first so many bytes of some ranges.
pub fn first(ranges: &[Range], bytes: u64) -> impl Iterator<Item = Range> {
    let mut left = bytes;
    ranges.iter().map_while(move |(address, length)| {
        let part = left.min(*length);
        left -= part;
        (part > 0).then_some((*address, part))
    })
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
