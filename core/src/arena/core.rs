//! The shared part: records that tile the reserved ranges, and free memory in bins. Everything here is under one lock,
//! and short.

use super::backing::Backing;
use super::bins::Bins;
use super::habit::Habits;
use super::index::Index;
use super::options::Options;
use super::slot::{NIL, Slots, State, Word};
use super::stitch::Stitches;
use super::stream::{Numbers, Streams};
use std::collections::BTreeMap;

/// The records and the way to them; read without the lock.
pub struct Map {
    pub slots: Slots,
    pub index: Index,
}

/// Physical memory of a range.
#[derive(Clone, Copy)]
pub struct Chunk<C> {
    pub bytes: u64,
    pub handle: C,
    /// A thread is unmapping it.
    pub going: bool,
}

/// A stream, and up to which of its work.
pub type Tie = (u64, u64);

/// What the lock protects.
pub struct Core<B: Backing> {
    pub streams: Streams<B::Event>,
    /// Free memory that no stream's work touches.
    pub untied: Bins,
    /// Free blocks that are never split.
    pub whole: Vec<u32>,
    /// Ties of what is `Waiting`; the freeing stream's first.
    pub ties: Numbers<u32, Vec<Tie>>,
    pub waiting_bytes: u64,
    /// Who else uses what is `Shared`.
    pub users: Numbers<u32, Vec<u64>>,
    pub chunks: BTreeMap<u64, Chunk<B::Chunk>>,
    /// The first record of each range.
    pub heads: Vec<u32>,
    pub stitches: Stitches,
    pub habits: Habits,
    /// Bytes mapped, or about to be.
    pub committed: u64,
    /// The most it ever was.
    pub most: u64,
    /// Requests in a call of the backing.
    pub in_flight: u32,
    /// Some work was found done since free memory was last looked through.
    pub dirty: bool,
    pub options: Options,
    vacant: Vec<u32>,
    next: u32,
}

impl<B: Backing> Core<B> {
    pub fn new(options: Options) -> Core<B> {
        Core {
            streams: Streams::new(),
            untied: Bins::new(),
            whole: Vec::new(),
            ties: Numbers::default(),
            waiting_bytes: 0,
            users: Numbers::default(),
            chunks: BTreeMap::new(),
            heads: Vec::new(),
            stitches: Stitches::default(),
            habits: Habits::default(),
            committed: 0,
            most: 0,
            in_flight: 0,
            dirty: false,
            options,
            vacant: Vec::new(),
            next: 0,
        }
    }

    /// A new record, not a neighbour of any other yet.
    pub fn add(&mut self, m: &Map, address: u64, bytes: u64, state: State) -> u32 {
        let n = self.vacant.pop().unwrap_or_else(|| {
            let n = self.next;
            self.next = n.saturating_add(1).min(NIL - 1024);
            n
        });
        let slot = m.slots.get(n);
        slot.set_bytes(bytes);
        slot.set_prev(NIL);
        slot.set_next(NIL);
        slot.set_word(Word::new(address, state));
        m.index.set(address, n);
        n
    }

    /// Cuts a record after so many bytes; gives the new one behind it, of the same state and ties. In no bin, either.
    #[inline]
    pub fn split(&mut self, m: &Map, n: u32, bytes: u64) -> u32 {
        let slot = m.slots.get(n);
        let word = slot.word();
        let right = self.add(m, word.address() + bytes, slot.bytes() - bytes, word.state());
        let new = m.slots.get(right);
        new.set_stream(slot.stream());
        new.set_stamp(slot.stamp());
        new.set_prev(n);
        new.set_next(slot.next());
        if slot.next() != NIL {
            m.slots.get(slot.next()).set_prev(right);
        }
        slot.set_next(right);
        slot.set_bytes(bytes);
        right
    }

    /// Makes a record and the next one a single one. Neither is in a bin.
    #[inline]
    pub fn join(&mut self, m: &Map, left: u32, right: u32) {
        let (l, r) = (m.slots.get(left), m.slots.get(right));
        m.index.set(r.address(), NIL);
        l.set_bytes(l.bytes() + r.bytes());
        l.set_next(r.next());
        if r.next() != NIL {
            m.slots.get(r.next()).set_prev(left);
        }
        r.set_word(Word::new(0, State::Vacant));
        self.vacant.push(right);
    }

    /// Takes what is free out of its bin.
    #[inline]
    pub fn pull(&mut self, m: &Map, n: u32) {
        let slot = m.slots.get(n);
        let word = slot.word();
        if word.whole() && matches!(word.state(), State::Free | State::Tied) {
            self.whole.retain(|w| *w != n);
            return;
        }
        match word.state() {
            State::Free => self.untied.remove(&m.slots, n),
            State::Tied => self.streams.of(slot.stream()).bins.remove(&m.slots, n),
            State::Waiting => self.waiting_bytes = self.waiting_bytes.saturating_sub(slot.bytes()),
            _ => {}
        }
    }

    /// Puts what is `Free` or `Tied` into its bin, as it is.
    #[inline]
    pub fn put(&mut self, m: &Map, n: u32) {
        let slot = m.slots.get(n);
        let word = slot.word();
        let tied = word.state() == State::Tied;
        // Whatever is tied to a stream makes it known: an unknown one has no work.
        let stream = tied.then(|| self.streams.of(slot.stream()));
        match (word.whole(), stream) {
            (true, _) => self.whole.push(n),
            (false, Some(stream)) => stream.bins.insert(&m.slots, n),
            (false, None) => self.untied.insert(&m.slots, n),
        }
    }

    /// Whether two free neighbours become one, and then of which state.
    #[inline]
    fn joined(&self, m: &Map, a: u32, b: u32, apart: bool) -> Option<State> {
        let (x, y) = (m.slots.get(a), m.slots.get(b));
        let (v, w) = (x.word(), y.word());
        if v.whole() || w.whole() {
            return None;
        }
        match (v.state(), w.state()) {
            (State::Free, State::Free) => Some(State::Free),
            (State::Tied, State::Tied) if x.stream() == y.stream() => Some(State::Tied),
            _ if apart => None,
            // What is untied is everybody's: a stream that is not alone takes it in only where it is the lesser part.
            (State::Free, State::Tied) if self.streams.sole() || x.bytes() <= y.bytes() => Some(State::Tied),
            (State::Tied, State::Free) if self.streams.sole() || y.bytes() <= x.bytes() => Some(State::Tied),
            _ => None,
        }
    }

    /// A record has become free: joins it with its neighbours and puts it into a bin. Of a tied one stream and stamp are
    /// set.
    #[inline]
    pub fn settle(&mut self, m: &Map, n: u32, state: State) {
        self.settle_with(m, n, state, false);
    }

    /// The same. `apart`: what is untied is not joined with what is tied.
    #[inline]
    fn settle_with(&mut self, m: &Map, n: u32, state: State, apart: bool) {
        let mut n = n;
        m.slots.get(n).set_state(state);
        let before = m.slots.get(n).prev();
        if before != NIL
            && let Some(state) = self.joined(m, before, n, apart)
        {
            self.pull(m, before);
            self.tie_as(m, before, n, state);
            self.join(m, before, n);
            n = before;
        }
        let after = m.slots.get(n).next();
        if after != NIL
            && let Some(state) = self.joined(m, n, after, apart)
        {
            self.pull(m, after);
            self.tie_as(m, n, after, state);
            self.join(m, n, after);
        }
        self.put(m, n);
    }

    /// The first gets the ties of both.
    #[inline]
    fn tie_as(&self, m: &Map, to: u32, other: u32, state: State) {
        let (x, y) = (m.slots.get(to), m.slots.get(other));
        match (x.state(), y.state()) {
            (State::Tied, State::Tied) => x.set_stamp(x.stamp().max(y.stamp())),
            (_, State::Tied) => {
                x.set_stream(y.stream());
                x.set_stamp(y.stamp());
            }
            _ => {}
        }
        x.set_state(state);
    }

    /// Addresses without memory again; joined with others of the kind.
    pub fn settle_hole(&mut self, m: &Map, n: u32) {
        let slot = m.slots.get(n);
        slot.set_word(slot.word().with_whole(false).to(State::Hole));
        let hole = |n: u32| n != NIL && m.slots.get(n).state() == State::Hole;
        if hole(slot.next()) {
            self.join(m, n, slot.next());
        }
        if hole(slot.prev()) {
            self.join(m, slot.prev(), n);
        }
    }

    /// Out of its bin and cut to the size, and `Busy`: a neighbour that becomes free must not join it. The rest stays free.
    #[inline]
    pub fn carve(&mut self, m: &Map, n: u32, bytes: u64) -> u32 {
        self.pull(m, n);
        self.carved(m, n, bytes)
    }

    /// The same of what is in no bin.
    #[inline]
    fn carved(&mut self, m: &Map, n: u32, bytes: u64) -> u32 {
        if m.slots.get(n).bytes() > bytes {
            let rest = self.split(m, n, bytes);
            self.put(m, rest);
        }
        m.slots.get(n).set_state(State::Busy);
        n
    }

    /// A new free block of a stream.
    #[inline]
    pub fn give(&mut self, m: &Map, n: u32, stream: u64, stamp: u64) {
        let slot = m.slots.get(n);
        slot.set_stream(stream);
        slot.set_stamp(stamp);
        self.settle(m, n, State::Tied);
    }

    /// What a free block still waits for.
    pub fn ties_of(&self, m: &Map, n: u32) -> Vec<Tie> {
        let slot = m.slots.get(n);
        match slot.state() {
            State::Tied => vec![(slot.stream(), slot.stamp())],
            State::Waiting => self.ties.get(&n).cloned().unwrap_or_default(),
            _ => Vec::new(),
        }
    }

    /// A block that needs no call: of the stream's own, of nobody's, or of another stream whose work is done or was
    /// waited for. It is in no bin afterwards.
    #[inline]
    pub fn take(&mut self, m: &Map, bytes: u64, stream: u64) -> Option<u32> {
        if bytes > self.options.max_split {
            return self.take_whole(m, bytes, stream);
        }
        let own = self.streams.get(stream).and_then(|s| s.bins.find(&m.slots, bytes));
        let n = match (own, self.untied.find(&m.slots, bytes)) {
            (None, None) => self.find_clear(m, bytes, stream)?,
            (Some(own), Some(untied)) => {
                // Both are free of cost, so the better fit decides.
                let key = |n: u32| (m.slots.get(n).bytes(), m.slots.get(n).address());
                if key(own) <= key(untied) { own } else { untied }
            }
            (Some(n), None) | (None, Some(n)) => n,
        };
        Some(self.carve(m, n, bytes))
    }

    /// Whether it matters where requests went. Without stitching it is no gain: until a loop is settled a good fit matters more.
    pub fn repeats(&self) -> bool {
        self.options.repeat && self.options.stitch_above != u64::MAX
    }

    /// The block where the same request of the last round went, if that is free, and without a call.
    pub fn take_again(&mut self, m: &Map, bytes: u64, stream: u64) -> Option<u32> {
        let split = bytes <= self.options.max_split;
        let address = if split { self.habits.guess(stream, bytes) } else { None }?;
        let n = m.index.covering(address).filter(|n| *n != NIL)?;
        let slot = m.slots.get(n);
        if slot.state() == State::Spare {
            return (slot.address() == address).then(|| self.take_spare(m, n, bytes, stream)).flatten();
        }
        if slot.end() < address + bytes || !self.is_idle(m, (address, bytes), stream) {
            return None;
        }
        self.pull(m, n);
        let before = address - slot.address();
        if before == 0 {
            return Some(self.carved(m, n, bytes));
        }
        let own = self.split(m, n, before);
        self.put(m, n);
        Some(self.carved(m, own, bytes))
    }

    fn find_clear(&self, m: &Map, bytes: u64, stream: u64) -> Option<u32> {
        let others = self.streams.iter().filter(|s| s.id != stream);
        let found = others.filter_map(|s| {
            let n = s.bins.find(&m.slots, bytes)?;
            let slot = m.slots.get(n);
            self.streams.is_clear(stream, s.id, slot.stamp()).then_some((slot.bytes(), slot.address(), n))
        });
        found.min().map(|f| f.2)
    }

    /// A block that is never split serves only what leaves little of it unused.
    fn take_whole(&mut self, m: &Map, bytes: u64, stream: u64) -> Option<u32> {
        let fits = |n: &u32| {
            let b = m.slots.get(*n).bytes();
            b >= bytes && b - bytes < super::options::UNUSED
        };
        let clear = |n: &u32| self.ties_of(m, *n).iter().all(|t| self.streams.is_clear(stream, t.0, t.1));
        let key = |n: &u32| (m.slots.get(*n).bytes(), m.slots.get(*n).address());
        let n = self.whole.iter().copied().filter(|n| fits(n) && clear(n)).min_by_key(key)?;
        self.pull(m, n);
        m.slots.get(n).set_state(State::Busy);
        Some(n)
    }

    /// Free memory, whether or not it can be used now.
    pub fn free_bytes(&self) -> u64 {
        self.untied.bytes() + self.tied_bytes()
    }

    /// Free memory that some stream's work may still touch, as far as is known.
    pub fn tied_bytes(&self) -> u64 {
        self.streams.iter().map(|s| s.bins.bytes()).sum::<u64>() + self.waiting_bytes
    }

    /// What waited only for work that is done becomes its own stream's, or everybody's.
    pub fn settle_waiting(&mut self, m: &Map) {
        let over = |ties: &Vec<Tie>| ties.iter().skip(1).all(|t| self.streams.is_done(t.0, t.1));
        let ready: Vec<u32> = self.ties.iter().filter(|(_, ties)| over(ties)).map(|(n, _)| *n).collect();
        for n in ready {
            if m.slots.get(n).state() != State::Waiting {
                continue; // Claimed: whoever did puts it back, if at all.
            }
            self.pull(m, n);
            match self.ties.remove(&n).and_then(|t| t.first().copied()) {
                Some((stream, stamp)) if !self.streams.is_done(stream, stamp) => self.give(m, n, stream, stamp),
                _ => self.settle(m, n, State::Free),
            }
        }
    }

    /// Whatever is tied to work that is done becomes everybody's.
    pub fn settle_done(&mut self, m: &Map) {
        self.settle_waiting(m);
        let mut tied: Vec<u32> = self.streams.iter().flat_map(|s| s.bins.all(&m.slots)).collect();
        tied.extend(self.whole.iter().copied());
        tied.retain(|n| {
            let slot = m.slots.get(*n);
            slot.state() == State::Tied && self.streams.is_done(slot.stream(), slot.stamp())
        });
        // All are free before the first is joined: what is tied would draw its untied neighbours back in.
        for n in &tied {
            self.pull(m, *n);
            m.slots.get(*n).set_state(State::Busy);
        }
        for n in tied {
            self.settle_with(m, n, State::Free, true);
        }
        self.dirty = false;
    }
}
