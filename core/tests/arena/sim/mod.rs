//! A small device in virtual time. Each stream knows, for each other one, up to where its later work comes after that
//! one's (a vector clock), and so does the host. Whoever gets a block must come after all work that ever used its bytes:
//! by an order that was made, not by luck.

mod driver;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard};
use vramscope_core::arena::{Arena, Options};

pub const PAGE: u64 = 2 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    OutOfMemory,
    Broken,
    NoAddresses,
}

type Clock = BTreeMap<u64, u64>;

fn join(to: &mut Clock, from: &Clock) {
    for (s, at) in from {
        let t = to.entry(*s).or_default();
        *t = (*t).max(*at);
    }
}

#[derive(Default)]
struct Stream {
    /// What its later work comes after; of itself, how much it was given.
    clock: Clock,
    dead: bool,
}

struct Use {
    /// Where the memory is at home.
    from: u64,
    to: u64,
    /// By which address it is reached.
    by: u64,
    stream: u64,
    at: u64,
}

#[derive(Default)]
struct State {
    streams: BTreeMap<u64, Stream>,
    /// What is done, and what the host knows to be done.
    done: Clock,
    host: Clock,
    ranges: BTreeMap<u64, u64>,
    chunks: BTreeMap<u64, u64>,
    /// What is mapped once more: home and bytes.
    aliases: BTreeMap<u64, (u64, u64)>,
    /// Those that streams may touch.
    open: BTreeSet<u64>,
    uses: Vec<Use>,
    events: BTreeMap<u64, Clock>,
    next_event: u64,
    next_range: u64,
    /// What the program holds; and where that is at home.
    live: BTreeMap<u64, u64>,
    owned: BTreeMap<u64, u64>,
    /// The arena is about to be dropped: that waits for nothing.
    over: bool,
}

/// What happens elsewhere while a call is under way.
pub type Hook = Option<Box<dyn Fn(&Sim) + Send + Sync>>;

#[derive(Default)]
pub struct Sim {
    state: Mutex<State>,
    pub capacity: AtomicU64,
    /// In thousandths: how often a call fails without reason.
    pub fail_map: AtomicU64,
    pub fail_open: AtomicU64,
    pub fail_unmap: AtomicU64,
    pub fail_record: AtomicU64,
    pub fail_wait: AtomicU64,
    pub fail_reserve: AtomicU64,
    pub calls: AtomicU64,
    dice: AtomicU64,
    pub on_record: Hook,
    pub on_map: Hook,
    pub on_unmap: Hook,
}

pub struct Event(u64);

impl State {
    fn assert_vacant(&self, address: u64, bytes: u64) {
        assert!(bytes > 0 && bytes.is_multiple_of(PAGE) && address.is_multiple_of(PAGE));
        let (r, len) = self.ranges.range(..=address).next_back().expect("a range");
        assert!(address + bytes <= r + len, "outside of the range");
        let chunk = self.chunks.range(..address + bytes).next_back().map(|(a, b)| a + b);
        let alias = self.aliases.range(..address + bytes).next_back().map(|(a, (_, b))| a + b);
        assert!(chunk.max(alias).is_none_or(|end| end <= address), "mapped twice");
    }

    /// The memory of a block: for each part, where it is mapped, at home, and its bytes.
    fn memory(&self, address: u64, bytes: u64) -> Vec<(u64, u64, u64)> {
        let (mut at, end) = (address, address + bytes);
        let mut parts = Vec::new();
        while at < end {
            let chunk = self.chunks.range(..=at).next_back().map(|(a, b)| (*a, *a, *b));
            let alias = self.aliases.range(..=at).next_back().map(|(a, (home, b))| (*a, *home, *b));
            let found = [chunk, alias].into_iter().flatten().find(|(a, _, b)| at < a + b);
            let (a, home, b) = found.unwrap_or_else(|| panic!("no memory at {at:#x}"));
            assert!(self.open.contains(&a), "memory that no stream may touch");
            let length = (a + b).min(end) - at;
            parts.push((at, home + (at - a), length));
            at += length;
        }
        parts
    }
}

impl Sim {
    pub fn new(capacity: u64) -> Sim {
        let sim = Sim::default();
        sim.capacity.store(capacity, SeqCst);
        sim
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn fails(&self, thousandths: &AtomicU64) -> bool {
        self.calls.fetch_add(1, SeqCst);
        let n = self.dice.fetch_add(1, SeqCst).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (n ^ n >> 29) % 1000 < thousandths.load(SeqCst)
    }

    pub fn calls(&self) -> u64 {
        self.calls.swap(0, SeqCst)
    }

    /// Work of a stream that uses a block.
    pub fn work(&self, stream: u64, address: u64, bytes: u64) {
        let mut s = self.state();
        let st = s.streams.entry(stream).or_default();
        assert!(!st.dead, "the test uses a dead stream");
        let at = st.clock.entry(stream).or_default();
        *at += 1;
        let at = *at;
        for (by, from, length) in s.memory(address, bytes) {
            s.uses.push(Use { from, to: from + length, by, stream, at });
        }
    }

    /// The program puts later work of one stream behind that of another.
    pub fn order(&self, before: u64, after: u64) {
        let mut s = self.state();
        let clock = s.streams.entry(before).or_default().clock.clone();
        join(&mut s.streams.entry(after).or_default().clock, &clock);
    }

    /// All that a stream was given gets done; the host does not know.
    pub fn advance(&self, stream: u64) {
        let mut s = self.state();
        let clock = s.streams.entry(stream).or_default().clock.clone();
        join(&mut s.done, &clock);
    }

    /// The host waits for a stream.
    pub fn sync(&self, stream: u64) {
        self.advance(stream);
        let mut s = self.state();
        let clock = s.streams.entry(stream).or_default().clock.clone();
        join(&mut s.host, &clock);
        let State { uses, host, .. } = &mut *s;
        uses.retain(|u| host.get(&u.stream).is_none_or(|h| *h < u.at));
    }

    pub fn sync_all(&self) {
        let streams: Vec<u64> = self.state().streams.keys().copied().collect();
        streams.into_iter().for_each(|s| self.sync(s));
    }

    /// The program destroys a stream. Its work goes on.
    pub fn destroy(&self, stream: u64) {
        self.state().streams.entry(stream).or_default().dead = true;
    }

    /// A stream got a block.
    pub fn check_handed_out(&self, stream: u64, address: u64, bytes: u64) {
        let mut s = self.state();
        let end = address + bytes;
        if let Some((a, len)) = s.live.range(..end).next_back() {
            assert!(a + len <= address, "{address:#x}+{bytes:#x} has another owner: {a:#x}+{len:#x}");
        }
        s.live.insert(address, bytes);
        let known = s.streams.entry(stream).or_default().clock.clone();
        for (_, from, length) in s.memory(address, bytes) {
            let to = from + length;
            if let Some((a, end)) = s.owned.range(..to).next_back() {
                assert!(*end <= from, "{address:#x}+{bytes:#x} has another's memory: {a:#x} to {end:#x}");
            }
            s.owned.insert(from, to);
            for u in s.uses.iter().filter(|u| u.from < to && from < u.to) {
                let after = |c: &Clock| c.get(&u.stream).is_some_and(|at| u.at <= *at);
                assert!(
                    u.stream == stream || after(&known) || after(&s.host),
                    "{address:#x}+{bytes:#x} given to stream {stream} while work {} of stream {} may use it",
                    u.at,
                    u.stream
                );
            }
        }
    }

    /// The program is about to free a block.
    pub fn leave(&self, address: u64) {
        let mut s = self.state();
        let bytes = s.live.remove(&address).expect("a live block");
        for (_, home, _) in s.memory(address, bytes) {
            s.owned.remove(&home).expect("the memory of a live block");
        }
    }

    pub fn mapped(&self) -> u64 {
        self.state().chunks.values().sum()
    }

    pub fn events(&self) -> usize {
        self.state().events.len()
    }

    /// The arena is dropped next.
    pub fn over(&self) {
        self.state().over = true;
        self.fail_unmap.store(0, SeqCst);
    }

    /// Everything was given back.
    pub fn assert_empty(&self) {
        let s = self.state();
        assert!(s.chunks.is_empty(), "{} chunks are left", s.chunks.len());
        assert!(s.aliases.is_empty(), "{} aliases are left", s.aliases.len());
        assert!(s.ranges.is_empty(), "{} ranges are left", s.ranges.len());
        assert!(s.events.is_empty(), "{} events are left", s.events.len());
    }
}

/// An arena that may be dropped while work is pending.
pub struct Held<'s>(Arena<&'s Sim>);

impl<'s> Held<'s> {
    pub fn new(sim: &'s Sim, options: Options) -> Held<'s> {
        Held(Arena::new(sim, options))
    }
}

impl<'s> Deref for Held<'s> {
    type Target = Arena<&'s Sim>;
    fn deref(&self) -> &Arena<&'s Sim> {
        &self.0
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.backing().over();
    }
}
