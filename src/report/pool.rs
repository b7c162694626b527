//! What did the pool do: served, missed, waited, grew, gave back?

use std::collections::{BTreeMap, HashSet};

use vramscope_core::api::Api;
use vramscope_core::counters::{COUNT, Counters, PER_EVENT};
use vramscope_core::event::{Event, EventKind, FreeHow, Source, TrimWhy};

use super::Page;
use super::history::History;
use super::sizes::{Price, Sizes, Times};
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
    /// Frees of stream-ordered memory that the pool kept.
    pub ordered_frees: u64,
    /// Blocks that left the pool.
    pub exported: u64,
    counters: [u64; COUNT],
    counted: bool,
    driver_frees: Times,
    contexts: HashSet<u16>,
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
                    // (The line of a free does not tell the memory's kind.)
                    self.ordered_frees += u64::from(matches!(e.api, Api::CuMemFreeAsync | Api::CudaFreeAsync));
                    self.free_took += e.extra[2];
                } else if e.extra[2] > 0 && !self.contexts.insert(e.context) {
                    self.driver_frees.add(e.extra[2]);
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

    /// As [`PoolWork::hits`], of plain memory.
    pub fn plain_hits(&self, sizes: &Sizes) -> u64 {
        self.hits().saturating_sub(sizes.ordered())
    }

    /// As [`PoolWork::kept`], of plain memory.
    pub fn plain_kept(&self) -> u64 {
        self.kept().saturating_sub(self.ordered_frees)
    }

    /// Frees after which only the GPU waited.
    pub fn device_barriers(&self) -> u64 {
        self.counters().map_or(0, |c| c.device_barriers).max(self.freed[FreeHow::CachedDevice as usize])
    }

    /// Frees in which the host waited.
    pub fn host_barriers(&self) -> u64 {
        self.counters().map_or(0, |c| c.host_barriers).max(self.freed[FreeHow::CachedHost as usize])
    }

    /// What the driver calls that the pool avoided would have taken, of plain memory: the driver's pool for stream-ordered
    /// memory was not asked, so what it would have taken is not known.
    pub fn avoided(&self, sizes: &Sizes) -> Avoided {
        let c = self.counters().unwrap_or_default();
        let (hits, kept) = (self.plain_hits(sizes), self.plain_kept());
        // Where the events do not tell (an older part of the history had them): the counters' mean, if of so many calls
        // that a slow first one does not weigh.
        let mean = |ns: u64, calls: u64, times: u64| {
            (calls >= 16).then(|| Price { ns: (ns as f64 / calls as f64 * times as f64) as u64, calls })
        };
        let allocations = sizes.avoided().or_else(|| mean(c.driver_alloc_ns, c.driver_allocs, hits));
        let by_events = || {
            let (ns, calls) = (self.driver_frees.median()?, self.driver_frees.count());
            Some(Price { ns: ns.saturating_mul(kept), calls })
        };
        let frees = match kept {
            0 => Some(Price::default()),
            kept => by_events().or_else(|| mean(c.driver_free_ns, c.driver_frees, kept)),
        };
        let mut timed = 0;
        if hits > 0 {
            timed += sizes.timed().max(c.driver_allocs);
        }
        if kept > 0 {
            timed += self.driver_frees.count().max(c.driver_frees);
        }
        Avoided { allocations, frees, timed }
    }
}

/// What driver calls would have taken; `None`: too few such calls were timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Avoided {
    /// For the allocations served from cached blocks.
    pub allocations: Option<Price>,
    /// For the frees that the pool kept.
    pub frees: Option<Price>,
    /// Driver calls timed, of the kinds that were avoided.
    pub timed: u64,
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
                "{}: {} waited for by the host, {} by the GPU only, {} without need to wait",
                super::text::count(kept),
                super::text::count(work.host_barriers()),
                super::text::count(work.device_barriers()),
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
            driver_alloc_ns: 4800,
            driver_allocs: 16,
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
        let price = Price { ns: 3600, calls: 16 };
        assert_eq!(
            work.avoided(&only_hits()),
            Avoided { allocations: Some(price), frees: Some(Price::default()), timed: 16 }
        );
    }

    fn only_hits() -> Sizes {
        let mut sizes = Sizes::default();
        sizes.buckets[9].hits = 12;
        sizes
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
        let avoided = Avoided { allocations: Some(Price::default()), frees: None, timed: 0 };
        assert_eq!(work.avoided(&Sizes::default()), avoided);
        assert_eq!((work.kept(), work.device_barriers(), work.host_barriers(), work.free_took), (1, 1, 0, 700));
    }
}
