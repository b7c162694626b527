//! What did the pool do: served, missed, waited, grew, gave back?

use std::collections::BTreeMap;

use vramscope_core::counters::{COUNT, Counters, PER_EVENT};
use vramscope_core::event::{Event, EventKind, FreeHow, Source, TrimWhy};

use super::Page;
use super::history::History;
use super::sizes::Sizes;
use super::text::{bytes, percent, plural, time};

/// What the pool did, counted from events and from the counters that the library wrote.
#[derive(Clone, Debug, Default)]
pub struct PoolWork {
    /// Allocations by [`Source`].
    pub served: [u64; 7],
    /// Frees by [`FreeHow`].
    pub freed: [u64; 4],
    /// Nanoseconds of barriers and waits in frees that the pool kept.
    pub free_took: u64,
    /// Segments taken from the driver.
    pub segments: u64,
    /// Their bytes.
    pub segment_bytes: u64,
    /// Segments given back.
    pub returned: u64,
    /// Idle memory given back, by reason: times and bytes.
    pub trims: BTreeMap<u16, (u64, u64)>,
    /// Blocks that left the pool.
    pub exported: u64,
    counters: [u64; COUNT],
    counted: bool,
}

impl PoolWork {
    /// Looks at an event.
    pub fn play(&mut self, e: &Event) {
        match e.kind {
            EventKind::Alloc if e.memory.on_device() => {
                // What a newer library says here that this version does not know counts as the driver's.
                let how = Some(usize::from(e.how)).filter(|h| *h < self.served.len());
                self.served[how.unwrap_or(0)] += 1;
            }
            EventKind::Free => {
                self.freed[usize::from(e.how).min(3)] += 1;
                if e.how != FreeHow::Driver as u8 {
                    self.free_took += e.extra[2];
                }
            }
            EventKind::SegmentAlloc => {
                self.segments += 1;
                self.segment_bytes += e.bytes.max(e.block);
            }
            EventKind::SegmentFree => self.returned += 1,
            EventKind::Trim => {
                let trim = self.trims.entry(e.code).or_default();
                trim.0 += 1;
                trim.1 += e.bytes;
            }
            EventKind::Export => self.exported += 1,
            EventKind::Counters => self.page(e),
            _ => {}
        }
    }

    /// One page of counters. They only grow, except those that say what is now.
    fn page(&mut self, e: &Event) {
        let [a, b, c] = e.extra;
        let first = usize::from(e.code) * PER_EVENT;
        for (i, value) in [e.id, e.address, e.bytes, e.block, a, b, c].into_iter().enumerate() {
            if let Some(counter) = self.counters.get_mut(first + i) {
                *counter = value;
                self.counted = true;
            }
        }
    }

    /// The library's counters, if it wrote any.
    pub fn counters(&self) -> Option<Counters> {
        self.counted.then(|| Counters::from_array(&self.counters))
    }

    /// Served from a cached block. (The counters know what was lost; the events, what came after the last counters.)
    pub fn hits(&self) -> u64 {
        let counted = self.counters().map_or(0, |c| c.hits_exact + c.hits_near);
        counted.max(self.served[Source::Hit as usize])
    }

    /// Allocations of device memory in all.
    pub fn allocations(&self) -> u64 {
        let counted = self.counters().map_or(0, |c| c.requests.saturating_sub(c.failures));
        counted.max(self.served.iter().sum())
    }

    /// Frees that the pool kept.
    pub fn kept(&self) -> u64 {
        let events = self.freed[1..].iter().sum();
        self.counters().map_or(0, |c| c.frees_cached).max(events)
    }

    /// Frees after which only the GPU waited.
    pub fn device_barriers(&self) -> u64 {
        let events = self.freed[FreeHow::CachedDevice as usize] + self.freed[FreeHow::CachedHost as usize];
        self.counters().map_or(0, |c| c.device_barriers).max(events)
    }

    /// Frees in which the host waited.
    pub fn host_barriers(&self) -> u64 {
        self.counters().map_or(0, |c| c.host_barriers).max(self.freed[FreeHow::CachedHost as usize])
    }

    /// What the driver calls that the pool avoided would have taken.
    pub fn avoided(&self, sizes: &Sizes) -> Avoided {
        let c = self.counters().unwrap_or_default();
        let mean =
            |ns: u64, calls: u64, times: u64| (calls > 0).then(|| (ns as f64 / calls as f64 * times as f64) as u64);
        let allocations = sizes.avoided().or_else(|| mean(c.driver_alloc_ns, c.driver_allocs, self.hits()));
        let frees = if self.kept() == 0 { Some(0) } else { mean(c.driver_free_ns, c.driver_frees, self.kept()) };
        Avoided { allocations, frees }
    }
}

/// Nanoseconds that driver calls would have taken; `None`: no such call was timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Avoided {
    /// For the allocations served from cached blocks.
    pub allocations: Option<u64>,
    /// For the frees that the pool kept.
    pub frees: Option<u64>,
}

/// Writes the section.
pub fn section(page: &mut Page, history: &History) {
    let work = &history.pool;
    let all = work.allocations();
    if all == 0 {
        return;
    }
    page.heading("POOL");
    let setting = history.setting("VRAMSCOPE_POOL", "auto");
    let hits = work.hits();
    let mut rows: Vec<(String, String)> = Vec::new();
    let of_all = |n: u64| format!("{} ({})", super::text::count(n), percent(n, all));
    if setting == "off" {
        rows.push(("off".into(), "by VRAMSCOPE_POOL=off: every request went to the driver".into()));
    }
    let counters = work.counters();
    if hits > 0 {
        let near = match &counters {
            Some(c) if c.hits_near > 0 => format!(", {} of them from a larger block", super::text::count(c.hits_near)),
            _ => String::new(),
        };
        rows.push(("from cache".into(), format!("{} of {}{near}", of_all(hits), plural(all, "request"))));
    }
    let misses = counters.as_ref().map_or(0, |c| c.misses).max(work.served[Source::Miss as usize]);
    if misses > 0 {
        rows.push(("new from driver".into(), of_all(misses)));
    }
    let why = [
        (Source::Driver, "of a kind that is only recorded"),
        (Source::Capture, "a stream was capturing"),
        (Source::Hoarder, "the caller keeps a cache of its own"),
        (Source::Large, "a quarter of the device or more"),
        (Source::LowMemory, "the device had little memory left"),
    ];
    for (source, why) in why {
        let n = work.served[source as usize];
        if n > 0 && setting != "off" {
            rows.push(("past the pool".into(), format!("{}: {why}", of_all(n))));
        }
    }
    if work.segments > 0 {
        rows.push((
            "growth".into(),
            format!(
                "{} from the driver, {} in all; {} given back",
                plural(work.segments, "segment"),
                bytes(work.segment_bytes),
                super::text::count(work.returned)
            ),
        ));
        let waiting = counters.as_ref().map_or(0, |c| c.waiting);
        rows.push((
            "inactive".into(),
            format!(
                "{} at most, {} at the end{}",
                bytes(history.state.inactive_peak),
                bytes(history.state.now.inactive()),
                if waiting > 0 { format!(", {} waiting for the GPU", bytes(waiting)) } else { String::new() }
            ),
        ));
    }
    let kept = work.kept();
    if kept > 0 {
        let none = counters.as_ref().map_or(0, |c| c.no_barriers).max(work.freed[FreeHow::Cached as usize]);
        rows.push((
            "frees kept".into(),
            format!(
                "{}: {}, {}, {} without need to wait",
                super::text::count(kept),
                plural(work.device_barriers(), "device barrier"),
                plural(work.host_barriers(), "host wait"),
                super::text::count(none)
            ),
        ));
        if work.free_took > 0 {
            rows.push((
                "".into(),
                format!("{} in barriers and waits, {} each", time(work.free_took), time(work.free_took / kept)),
            ));
        }
    }
    let refused = counters.as_ref().map_or(0, |c| c.barriers_refused);
    if refused > 0 {
        rows.push((
            "no barrier".into(),
            format!("{} (capture, callback, old driver or error): the driver freed", super::text::count(refused)),
        ));
    }
    for (code, (times, amount)) in &work.trims {
        let why = match u8::try_from(*code).ok().and_then(TrimWhy::from_number) {
            Some(TrimWhy::MaxCached) => "cached memory passed its limit (VRAMSCOPE_MAX_CACHED)",
            Some(TrimWhy::LowMemory) => "the device ran low",
            Some(TrimWhy::OutOfMemory) => "an allocation had failed",
            Some(TrimWhy::Asked) => "the program asked",
            None => "reason not known to this version",
        };
        rows.push(("gave back".into(), format!("{} {}: {why}", bytes(*amount), times_text(*times))));
    }
    if work.exported > 0 {
        rows.push(("left the pool".into(), format!("{} (IPC, dma-buf, RDMA)", plural(work.exported, "block"))));
    }
    for (name, text) in rows {
        page.row(&name, &text);
    }
}

fn times_text(n: u64) -> String {
    if n == 1 { "once".to_string() } else { format!("in {} times", super::text::count(n)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramscope_core::event::Memory;

    #[test]
    fn counters_come_in_pages_and_events_may_know_more() {
        let c = Counters {
            requests: 10,
            hits_exact: 5,
            hits_near: 2,
            driver_alloc_ns: 900,
            driver_allocs: 3,
            failures: 1,
            ..Counters::default()
        };
        let array = c.to_array();
        let mut work = PoolWork::default();
        for (page, values) in array.chunks(PER_EVENT).enumerate() {
            let get = |i: usize| values.get(i).copied().unwrap_or(0);
            work.play(&Event {
                kind: EventKind::Counters,
                code: page as u16,
                id: get(0),
                address: get(1),
                bytes: get(2),
                block: get(3),
                extra: [get(4), get(5), get(6)],
                ..Event::default()
            });
        }
        assert_eq!(work.counters(), Some(c));
        assert_eq!((work.hits(), work.allocations()), (7, 9));
        for _ in 0..12 {
            work.play(&Event {
                kind: EventKind::Alloc,
                memory: Memory::Device,
                how: Source::Hit as u8,
                ..Event::default()
            });
        }
        assert_eq!((work.hits(), work.allocations()), (12, 12));
        assert_eq!(work.avoided(&Sizes { buckets: only_hits() }), Avoided { allocations: Some(3600), frees: Some(0) });
    }

    fn only_hits() -> [super::super::sizes::Bucket; 65] {
        let mut buckets = Sizes::default().buckets;
        buckets[9].hits = 12;
        buckets
    }

    #[test]
    fn frees_that_were_never_timed_are_not_guessed() {
        let mut work = PoolWork::default();
        work.play(&Event {
            kind: EventKind::Free,
            how: FreeHow::CachedDevice as u8,
            extra: [0, 0, 700],
            ..Event::default()
        });
        assert_eq!(work.avoided(&Sizes::default()), Avoided { allocations: Some(0), frees: None });
        assert_eq!((work.kept(), work.device_barriers(), work.host_barriers(), work.free_took), (1, 1, 0, 700));
    }
}
