//! What the library and the device say themselves, in samples and counters, against what the events add up to.
//!
//! Another thread may be in the middle of something while a sum is read: a difference that what other threads did around that
//! moment can explain is no violation.

use std::collections::{BTreeMap, HashMap, VecDeque};

use vramscope_core::counters::{COUNT, Counters, PER_EVENT};
use vramscope_core::event::{Event, EventKind, Memory};
use vramscope_core::spread::Spread;

use super::findings::{At, Findings, Kind};
use super::memory::{Books, Pool};
use crate::report::text::bytes;

/// How long around a moment something may be under way: also a call of the driver that waits for the GPU.
const AROUND: u64 = 100_000_000;
/// Changes remembered for that,
const RECENT: usize = 1 << 12;
/// and differences that wait for what comes.
const OPEN: usize = 1 << 6;

/// A sum that does not fit, unless what others do explains it.
#[derive(Debug)]
struct Open {
    kind: Kind,
    at: At,
    thread: u32,
    until: u64,
    difference: u64,
    explained: u64,
    what: String,
}

/// How far the device's own words were from ours.
#[derive(Clone, Copy, Debug, Default)]
struct Device {
    first: Option<i128>,
    most: i128,
    least: i128,
    room: u64,
}

/// The sums.
#[derive(Debug, Default)]
pub struct Sums {
    /// Changes of the pool: time, thread, bytes.
    recent: VecDeque<(u64, u32, u64)>,
    open: Vec<Open>,
    /// Differences that other threads explain.
    pub explained: u64,
    counters: [u64; COUNT],
    peak: Pool,
    /// The largest change of each thread: what it may have under way at the peak.
    largest: HashMap<u32, u64, Spread>,
    devices: BTreeMap<u64, Device>,
    /// Stream-ordered memory was served from the pool.
    ordered: bool,
    /// Samples and pages of counters that were compared.
    pub compared: u64,
}

impl Sums {
    /// Looks at an event, after the books did. `whole`: the history holds all from the beginning.
    pub fn event(&mut self, thread: u32, e: &Event, books: &Books, whole: bool, at: At, findings: &mut Findings) {
        self.ordered |= e.kind == EventKind::SegmentAlloc && e.memory == Memory::Async;
        if books.changed > 0 {
            self.change(thread, e.time, books);
        }
        if !self.open.is_empty() {
            self.settle(e.time, findings);
        }
        match e.kind {
            EventKind::Sample => self.sample(thread, e, books, at, findings),
            EventKind::Counters => self.page(thread, e, books, whole, at),
            _ => {}
        }
    }

    fn change(&mut self, thread: u32, time: u64, books: &Books) {
        let now = total(books);
        self.peak.active = self.peak.active.max(now.active);
        self.peak.reserved = self.peak.reserved.max(now.reserved);
        let largest = self.largest.entry(thread).or_default();
        *largest = books.changed.max(*largest);
        if self.recent.len() == RECENT || self.recent.front().is_some_and(|first| first.0.saturating_add(AROUND) < time)
        {
            self.recent.pop_front();
        }
        self.recent.push_back((time, thread, books.changed));
        for open in self.open.iter_mut().filter(|open| open.thread != thread) {
            open.explained = open.explained.saturating_add(books.changed);
        }
    }

    /// A difference: others' changes of the moment before count, and those to come.
    fn differs(&mut self, kind: Kind, (thread, time): (u32, u64), difference: u64, at: At, what: String) {
        let others = self.recent.iter().filter(|(then, who, _)| *who != thread && then.saturating_add(AROUND) >= time);
        let explained = others.fold(0u64, |sum, (_, _, bytes)| sum.saturating_add(*bytes));
        // One too many waits for nothing.
        let until = if self.open.len() < OPEN { time.saturating_add(AROUND) } else { 0 };
        self.open.push(Open { kind, at, thread, until, difference, explained, what });
    }

    fn settle(&mut self, time: u64, findings: &mut Findings) {
        let explained = &mut self.explained;
        self.open.retain_mut(|open| {
            if open.explained >= open.difference {
                *explained += 1;
                return false;
            }
            if open.until <= time {
                findings.add(open.kind, open.at, || std::mem::take(&mut open.what));
                return false;
            }
            true
        });
    }

    fn sample(&mut self, thread: u32, e: &Event, books: &Books, at: At, findings: &mut Findings) {
        self.compared += 1;
        let device = books.device(e.context);
        let ours = books.pool.get(&device).copied().unwrap_or_default();
        let [active, inactive, _] = e.extra;
        let difference = active.abs_diff(ours.active).max(active.saturating_add(inactive).abs_diff(ours.reserved));
        if difference > 0 {
            let what = format!(
                "the pool says {active} bytes active and {inactive} inactive; the events say {} and {}",
                ours.active,
                ours.reserved.saturating_sub(ours.active)
            );
            self.differs(Kind::PoolSum, (thread, e.time), difference, at, what);
        }
        let used = e.block.saturating_sub(e.bytes);
        let charged = books.charged.get(&device).copied().unwrap_or(0);
        if charged > used {
            findings.add(Kind::Charged, at, || format!("{charged} bytes were taken, the device says {used} are used"));
        }
        let rest = i128::from(used) - i128::from(charged);
        let state = self.devices.entry(device).or_default();
        let change = rest - *state.first.get_or_insert(rest);
        state.most = state.most.max(change);
        state.least = state.least.min(change);
        state.room = state.room.max((2 << 20) * books.allocations.get(&device).copied().unwrap_or(0));
    }

    /// A page of counters; the last one completes them.
    fn page(&mut self, thread: u32, e: &Event, books: &Books, whole: bool, at: At) {
        let [a, b, c] = e.extra;
        let first = usize::from(e.code) * PER_EVENT;
        for (i, value) in [e.id, e.address, e.bytes, e.block, a, b, c].into_iter().enumerate() {
            if let Some(counter) = self.counters.get_mut(first + i) {
                *counter = value;
            }
        }
        if first + PER_EVENT < COUNT || !whole {
            return;
        }
        self.compared += 1;
        let c = Counters::from_array(&self.counters);
        let now = total(books);
        let difference = c.active.abs_diff(now.active).max(c.reserved.abs_diff(now.reserved));
        if difference > 0 {
            let what = format!(
                "the pool counts {} bytes active and {} reserved; the events say {} and {}",
                c.active, c.reserved, now.active, now.reserved
            );
            self.differs(Kind::PoolSum, (thread, e.time), difference, at, what);
        }
        let Pool { active, reserved } = self.peak;
        let difference = c.active_peak.abs_diff(active).max(c.reserved_peak.abs_diff(reserved));
        let under_way = self.largest.values().fold(0u64, |sum, bytes| sum.saturating_add(*bytes));
        // The peaks of stream-ordered memory are of each device and private pool by itself, and true to 256 KiB a stream:
        // their sum need never have been.
        if self.largest.len() > 1 && (1..=under_way).contains(&difference) {
            self.explained += 1;
        } else if difference > 0 && !self.ordered {
            let what = format!(
                "the pool counts at most {} bytes active and {} reserved; the events say {active} and {reserved}",
                c.active_peak, c.reserved_peak
            );
            self.differs(Kind::PoolPeak, (thread, e.time), difference, at, what);
        }
    }

    /// What still does not fit at the end.
    pub fn finish(&mut self, findings: &mut Findings) {
        self.settle(u64::MAX, findings);
    }

    /// How the device's words and ours moved apart, in one line a device.
    pub fn said(&self) -> impl Iterator<Item = String> {
        self.devices.iter().filter(|(_, d)| (d.most, d.least) != (0, 0)).map(|(device, d)| {
            let size = |n: i128| bytes(u64::try_from(n).unwrap_or(u64::MAX));
            let (more, less, room) = (size(d.most), size(-d.least), bytes(d.room));
            format!(
                "GPU {device}: between samples its used memory changed by up to {more} more and {less} less than what was \
                 taken from it; {room} may be the driver's pages, the rest is modules, contexts and other processes"
            )
        })
    }
}

fn total(books: &Books) -> Pool {
    books.pool.values().fold(Pool::default(), |sum, pool| Pool {
        active: sum.active.saturating_add(pool.active),
        reserved: sum.reserved.saturating_add(pool.reserved),
    })
}
