//! Neighbouring records that together serve a request, when no single free block does without a call: what they are tied
//! to must be waited for, and holes among them filled. While that happens, outside of the lock, they are `Busy`: nobody
//! else can have them.

use super::backing::Backing;
use super::core::{Core, Map, Tie};
use super::options::PAGE;
use super::pattern::Pattern;
use super::run::{Best, Part, best_of};
use super::slot::{NIL, State};

/// What a request may do about its lack of memory.
pub struct Ask {
    /// Rounded.
    pub bytes: u64,
    pub stream: u64,
    /// Streams that could not be waited for.
    pub refused: Vec<u64>,
    /// Growth failed, so that other streams' memory comes next in any case.
    pub must_steal: bool,
    /// Stitching failed: the request does without.
    pub unstitched: bool,
    /// What work is done was looked at already.
    pub looked: bool,
    /// Free memory went back already because of the collection threshold.
    pub collected: bool,
}

/// Records taken out of circulation.
pub struct Claim {
    /// Neighbours, and what they were.
    pub nodes: Vec<(u32, State)>,
    pub owed: Vec<Tie>,
    /// Bytes to map.
    pub maps: u64,
}

/// How to go on with a request.
pub enum Plan {
    /// Served.
    Found(u32),
    Claim(Claim),
    Stitch(Pattern),
    /// More is about to be mapped than ever was: first look at what work is done.
    Look,
    /// More memory is needed than the limit allows: so many bytes must go back first.
    OverLimit(u64),
    /// Growth would pass the collection threshold: so many bytes should go back first.
    Collect(u64, (u64, u64)),
    /// No range has room for so much.
    Reserve,
}

struct Search {
    holes: bool,
    waits: bool,
}

/// Whole pages, no more than asked for.
fn pages_within(bytes: u64) -> u64 {
    bytes / PAGE * PAGE
}

impl Claim {
    /// The addresses it spans.
    fn range(&self, m: &Map) -> (u64, u64) {
        let slots = || self.nodes.iter().map(|n| m.slots.get(n.0));
        (slots().map(|s| s.address()).min().unwrap_or(0), slots().map(|s| s.end()).max().unwrap_or(0))
    }
}

impl<B: Backing> Core<B> {
    /// What comes next for a request that [`Core::take`] could not serve.
    pub fn plan(&mut self, m: &Map, ask: &Ask) -> Plan {
        if self.dirty && !self.streams.sole() {
            self.settle_done(m);
        }
        if let Some(n) = self.take(m, ask.bytes, ask.stream) {
            return Plan::Found(n);
        }
        if let Some(n) = self.take_stitched(m, ask.bytes, ask.stream) {
            return Plan::Found(n);
        }
        let whole = ask.bytes > self.options.max_split;
        let may_wait = self.options.steal_first || ask.must_steal;
        if !whole && self.free_bytes() >= ask.bytes {
            if let Some(c) = self.search(m, ask, Search { holes: false, waits: false }) {
                return Plan::Claim(c);
            }
            if may_wait && let Some(c) = self.steal(m, ask) {
                return Plan::Claim(c);
            }
        } else if whole
            && may_wait
            && let Some(c) = self.steal_whole(m, ask)
        {
            return Plan::Claim(c);
        }
        let how = || Search { holes: true, waits: !whole && may_wait };
        let Some(c) = self.search(m, ask, how()) else {
            return Plan::Reserve;
        };
        let (maps, range) = (c.maps, c.range(m));
        if maps == 0 {
            return Plan::Claim(c);
        }
        let some_free = self.free_bytes() >= PAGE;
        if !ask.looked && some_free && self.committed.saturating_add(maps) > self.most {
            self.roll_back(m, c);
            return Plan::Look;
        }
        if whole || !some_free || ask.unstitched || ask.bytes < self.options.stitch_above {
            return self.within(m, ask, Plan::Claim(c), maps, range);
        }
        // What is claimed may be what is stitched.
        self.roll_back(m, c);
        if let Some(plan) = self.stitch(m, ask.bytes, ask.stream, maps) {
            let maps = plan.maps;
            return self.within(m, ask, Plan::Stitch(plan), maps, (0, 0));
        }
        match self.search(m, ask, how()) {
            Some(c) => {
                let maps = c.maps;
                self.within(m, ask, Plan::Claim(c), maps, range)
            }
            None => Plan::Reserve,
        }
    }

    /// The plan, if what it maps is within the limits.
    fn within(&mut self, m: &Map, ask: &Ask, plan: Plan, maps: u64, range: (u64, u64)) -> Plan {
        let after = self.committed.saturating_add(maps);
        let instead = if maps > 0 && after > self.options.limit {
            Plan::OverLimit(after - self.options.limit)
        } else if maps > 0 && !ask.collected && after > self.options.collect_above() {
            Plan::Collect(after - self.options.collect_above(), range)
        } else {
            self.committed = after;
            self.most = self.most.max(after);
            return plan;
        };
        match plan {
            Plan::Claim(c) => self.roll_back(m, c),
            Plan::Stitch(plan) => self.unpick(m, plan, Vec::new()),
            _ => {}
        }
        instead
    }

    /// Another stream's block, or neighbours of several streams.
    fn steal(&mut self, m: &Map, ask: &Ask) -> Option<Claim> {
        let others = self.streams.iter().filter(|s| s.id != ask.stream && !ask.refused.contains(&s.id));
        let found = others.filter_map(|s| {
            let n = s.bins.find(&m.slots, ask.bytes)?;
            let slot = m.slots.get(n);
            self.streams.can_order(s.id, slot.stamp()).then_some((slot.bytes(), slot.address(), n))
        });
        match found.min() {
            Some((_, _, n)) => Some(self.claim(m, ask, &[n], 0)),
            None => self.search(m, ask, Search { holes: false, waits: true }),
        }
    }

    fn steal_whole(&mut self, m: &Map, ask: &Ask) -> Option<Claim> {
        let usable = |n: &u32| {
            let bytes = m.slots.get(*n).bytes();
            let fits = bytes >= ask.bytes && bytes - ask.bytes < super::options::UNUSED;
            fits && self.usable(m, ask, *n, true)
        };
        let n = self.whole.iter().copied().filter(usable).min_by_key(|n| m.slots.get(*n).bytes())?;
        Some(self.claim(m, ask, &[n], 0))
    }

    fn usable(&self, m: &Map, ask: &Ask, n: u32, waits: bool) -> bool {
        let ties = self.ties_of(m, n);
        ties.iter().all(|(s, stamp)| {
            self.streams.is_clear(ask.stream, *s, *stamp)
                || waits && !ask.refused.contains(s) && self.streams.can_order(*s, *stamp)
        })
    }

    /// The neighbours that need the fewest bytes mapped; of those without any the tightest; then the lowest.
    fn search(&mut self, m: &Map, ask: &Ask, how: Search) -> Option<Claim> {
        let whole = ask.bytes > self.options.max_split;
        let mut best: Best = None;
        let mut run: Vec<Part> = Vec::new();
        for &head in &self.heads {
            let mut n = head;
            while n != NIL {
                let slot = m.slots.get(n);
                let word = slot.word();
                let usable = match word.state() {
                    State::Hole => how.holes,
                    State::Free | State::Tied | State::Waiting => {
                        !whole && !word.whole() && self.usable(m, ask, n, how.waits)
                    }
                    _ => false,
                };
                if usable {
                    let hole = word.state() == State::Hole;
                    run.push(Part { n, address: word.address(), bytes: slot.bytes(), hole });
                } else if !run.is_empty() {
                    best_of(&run, ask.bytes, how.holes, &mut best);
                    run.clear();
                }
                n = slot.next();
            }
            best_of(&run, ask.bytes, how.holes, &mut best);
            run.clear();
        }
        let (_, nodes) = best?;
        let extra = if whole { 0 } else { self.step() };
        Some(self.claim(m, ask, &nodes, extra))
    }

    /// How large a chunk is: small ones move more easily, but each costs calls of the driver.
    pub fn chunk(&self, bytes: u64) -> u64 {
        let most = self.options.chunk;
        let usual = pages_within(self.committed / 1024).clamp(self.options.least_chunk, most);
        usual
            .max((bytes / self.options.parts).next_multiple_of(PAGE).min(most))
            .max((bytes / 1024).next_multiple_of(PAGE))
    }

    /// How much is mapped at least, when something is: about half a hundredth of what there is.
    fn step(&self) -> u64 {
        pages_within(self.committed / 256).clamp(PAGE, self.options.chunk.min(20 << 20))
    }

    /// Takes neighbours out of circulation, and cuts off what is too much.
    fn claim(&mut self, m: &Map, ask: &Ask, nodes: &[u32], step: u64) -> Claim {
        let mut c = Claim { nodes: Vec::with_capacity(nodes.len()), owed: Vec::new(), maps: 0 };
        let mut excess = nodes.iter().map(|n| m.slots.get(*n).bytes()).sum::<u64>().saturating_sub(ask.bytes);
        for (i, &n) in nodes.iter().enumerate() {
            let (slot, last) = (m.slots.get(n), i + 1 == nodes.len());
            let (state, bytes, mut n) = (slot.state(), slot.bytes(), n);
            self.pull(m, n);
            if state == State::Hole {
                if last {
                    let mut spare = pages_within(excess).min(bytes);
                    let part = bytes - spare;
                    if part < step {
                        // Growth has a least size, if the limit lets it.
                        let more = (step - part).min(spare);
                        let room = self.options.limit.saturating_sub(self.committed);
                        spare -= if c.maps + part + more <= room { more } else { 0 };
                    }
                    if spare > 0 && spare < bytes {
                        self.split(m, n, bytes - spare);
                    }
                } else if i == 0 && !nodes.last().is_some_and(|l| m.slots.get(*l).state() == State::Hole) {
                    let spare = pages_within(excess).min(bytes);
                    if spare > 0 && spare < bytes {
                        n = self.split(m, n, spare);
                        excess -= spare;
                    }
                }
                // A record a chunk, so that each is undone by itself if the next can't be mapped.
                let chunk = self.chunk(m.slots.get(n).bytes());
                while m.slots.get(n).bytes() > chunk {
                    let rest = self.split(m, n, chunk);
                    m.slots.get(n).set_state(State::Busy);
                    c.nodes.push((n, state));
                    c.maps += chunk;
                    n = rest;
                }
                c.maps += m.slots.get(n).bytes();
            } else {
                c.owed.extend(self.owed(m, ask.stream, n));
                if last && excess > 0 && excess < bytes && !slot.word().whole() {
                    self.cut(m, n, bytes - excess);
                }
            }
            m.slots.get(n).set_state(State::Busy);
            c.nodes.push((n, state));
        }
        self.in_flight += 1;
        c
    }

    /// Cuts a free block that is in no bin; the rest goes back to where the block was.
    fn cut(&mut self, m: &Map, n: u32, bytes: u64) {
        let rest = self.split(m, n, bytes);
        if let State::Waiting = m.slots.get(rest).state() {
            let ties = self.ties.get(&n).cloned().unwrap_or_default();
            self.wait(m, rest, ties);
        } else {
            self.put(m, rest);
        }
    }

    /// A free block waits for several streams.
    pub fn wait(&mut self, m: &Map, n: u32, ties: Vec<Tie>) {
        let slot = m.slots.get(n);
        self.ties.insert(n, ties);
        self.waiting_bytes += slot.bytes();
        slot.set_state(State::Waiting);
    }

    /// What a stream must wait for before it may use a free block.
    fn owed(&self, m: &Map, stream: u64, n: u32) -> Vec<Tie> {
        let mut ties = self.ties_of(m, n);
        ties.retain(|t| !self.streams.is_clear(stream, t.0, t.1));
        ties
    }

    /// Everything as it was, except that holes may have been filled meanwhile: then they are free memory.
    pub fn roll_back(&mut self, m: &Map, c: Claim) {
        self.in_flight -= 1;
        for (n, state) in c.nodes {
            match state {
                State::Hole if self.chunks.contains_key(&m.slots.get(n).address()) => self.settle(m, n, State::Free),
                State::Hole => self.settle_hole(m, n),
                State::Waiting => {
                    let ties = self.ties.remove(&n).unwrap_or_default();
                    self.wait(m, n, ties);
                }
                state => self.settle(m, n, state),
            }
        }
    }

    /// One block of it all, for the request that claimed it. What is over goes back: as free memory if it was mapped just
    /// now, else tied to the stream that waited for it, as of `now`.
    pub fn commit(&mut self, m: &Map, ask: &Ask, c: Claim, now: u64) -> Option<u32> {
        self.in_flight -= 1;
        let mut nodes = c.nodes.into_iter();
        let (n, mut last) = nodes.next()?;
        self.ties.remove(&n);
        let mut joined = m.slots.get(n).bytes();
        let mut before_last = 0;
        for (next, state) in nodes {
            self.ties.remove(&next);
            (before_last, last) = (joined, state);
            joined += m.slots.get(next).bytes();
            self.join(m, n, next);
        }
        let slot = m.slots.get(n);
        if ask.bytes > self.options.max_split {
            slot.set_word(slot.word().with_whole(true));
        } else if joined > ask.bytes {
            let rest = self.split(m, n, ask.bytes);
            if last == State::Hole && ask.bytes >= before_last {
                self.settle(m, rest, State::Free);
            } else {
                self.give(m, rest, ask.stream, now);
            }
        }
        Some(n)
    }
}
