//! How large are the allocations, and what does one of a size cost when the driver has to make it?

use std::collections::HashSet;

use vramscope_core::event::{Event, EventKind, Memory, Source};

use super::Page;
use super::history::History;
use super::text::{bytes, count, percent, time};

/// Allocations between a power of two and the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    /// How many.
    pub count: u64,
    /// Bytes asked for.
    pub bytes: u64,
    /// Served from a cached block.
    pub hits: u64,
    /// Of those, of stream-ordered memory: what the driver's own pool would have taken for them is not known.
    pub ordered: u64,
    /// Driver calls timed.
    pub timed: u64,
    /// Nanoseconds they took.
    pub took: u64,
}

/// Times of driver calls. A context's first call is left out: it also pays for what the driver does once.
#[derive(Clone, Debug, Default)]
pub struct Times {
    took: Vec<u64>,
}

/// Fewer times than this say nothing.
pub const ENOUGH: usize = 3;

impl Times {
    /// Times kept: more would not tell more.
    const MOST: usize = 1 << 16;

    /// One more.
    pub fn add(&mut self, ns: u64) {
        if self.took.len() < Times::MOST {
            self.took.push(ns);
        }
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.took.len() as u64
    }

    /// The one in the middle, if there are enough of them.
    pub fn median(&self) -> Option<u64> {
        if self.took.len() < ENOUGH {
            return None;
        }
        let mut took = self.took.clone();
        let middle = took.len() / 2;
        Some(*took.select_nth_unstable(middle).1)
    }
}

/// What driver calls that were avoided would have taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Price {
    /// Nanoseconds.
    pub ns: u64,
    /// Timed calls from which this was told.
    pub calls: u64,
}

/// Allocations of device memory by size: bucket n holds those above 2^(n-1) up to 2^n bytes.
#[derive(Clone, Debug)]
pub struct Sizes {
    /// The buckets.
    pub buckets: [Bucket; 65],
    times: Vec<Times>,
    contexts: HashSet<u16>,
}

impl Default for Sizes {
    fn default() -> Self {
        Sizes { buckets: [Bucket::default(); 65], times: vec![Times::default(); 65], contexts: HashSet::new() }
    }
}

impl Sizes {
    /// Looks at an event.
    pub fn play(&mut self, e: &Event) {
        if e.kind != EventKind::Alloc || !e.memory.on_device() {
            return;
        }
        let i = bucket(e.bytes);
        let b = &mut self.buckets[i];
        b.count += 1;
        b.bytes += e.bytes;
        if e.how == Source::Hit as u8 {
            b.hits += 1;
            b.ordered += u64::from(e.memory == Memory::Async);
        } else if e.memory == Memory::Device && e.extra[2] > 0 {
            b.timed += 1;
            b.took += e.extra[2];
            if !self.contexts.insert(e.context) {
                self.times[i].add(e.extra[2]);
            }
        }
    }

    /// Stream-ordered allocations that cached blocks served.
    pub fn ordered(&self) -> u64 {
        self.buckets.iter().map(|b| b.ordered).sum()
    }

    /// Driver calls timed, of all sizes.
    pub fn timed(&self) -> u64 {
        self.buckets.iter().map(|b| b.timed).sum()
    }

    /// What the driver would have taken for the plain memory that cached blocks served: each size at the median of the nearest
    /// size that was measured often enough; `None` if none was.
    pub fn avoided(&self) -> Option<Price> {
        let medians: Vec<(usize, u64)> =
            self.times.iter().enumerate().filter_map(|(i, t)| Some((i, t.median()?))).collect();
        let mut price = Price::default();
        let mut used = HashSet::new();
        for (i, b) in self.buckets.iter().enumerate().filter(|(_, b)| b.hits > b.ordered) {
            let (nearest, median) = medians.iter().min_by_key(|(t, _)| t.abs_diff(i))?;
            price.ns = price.ns.saturating_add((b.hits - b.ordered).saturating_mul(*median));
            if used.insert(*nearest) {
                price.calls += self.times[*nearest].count();
            }
        }
        Some(price)
    }
}

fn bucket(n: u64) -> usize {
    n.checked_next_power_of_two().map_or(64, |p| p.trailing_zeros() as usize)
}

/// Writes the section.
pub fn section(page: &mut Page, history: &History) {
    let buckets = &history.sizes.buckets;
    let most = buckets.iter().map(|b| b.count).max().unwrap_or(0);
    if most == 0 {
        return;
    }
    page.heading("SIZES of device allocations");
    // A column of nothing but dashes says nothing.
    let (hits, timed) = (buckets.iter().any(|b| b.hits > 0), buckets.iter().any(|b| b.timed > 0));
    let column = |there: bool, text: &str, width: usize| match there {
        true => format!("  {text:>width$}"),
        false => String::new(),
    };
    page.line(&page.paint.dim(&format!(
        "  {:>10}  {:>11}  {:>9}{}{}",
        "up to",
        "allocations",
        "bytes",
        column(hits, "from pool", 9),
        column(timed, "driver", 10)
    )));
    for (i, b) in buckets.iter().enumerate().filter(|(_, b)| b.count > 0) {
        let from_pool = if b.hits == 0 { "-".to_string() } else { percent(b.hits, b.count) };
        let driver = b.took.checked_div(b.timed).map_or("-".to_string(), time);
        let bar = "#".repeat((b.count * 36).div_ceil(most) as usize);
        page.line(&format!(
            "  {:>10}  {:>11}  {:>9}{}{}  {bar}",
            bytes(1u64.checked_shl(i as u32).unwrap_or(u64::MAX)),
            count(b.count),
            bytes(b.bytes),
            column(hits, &from_pool, 9),
            column(timed, &driver, 10)
        ));
    }
    if timed {
        page.line(&page.paint.dim("  driver: mean time of the driver calls for one allocation of that size"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alloc(bytes: u64, how: Source, took: u64) -> Event {
        Event {
            kind: EventKind::Alloc,
            memory: Memory::Device,
            bytes,
            how: how as u8,
            extra: [0, 0, took],
            ..Event::default()
        }
    }

    #[test]
    fn a_power_of_two_is_the_end_of_its_bucket() {
        assert_eq!([0, 1, 2, 3, 4, 5, 1024, 1025].map(bucket), [0, 0, 1, 2, 2, 3, 10, 11]);
        assert_eq!(bucket(u64::MAX), 64);
    }

    #[test]
    fn avoided_time_is_by_size() {
        let mut sizes = Sizes::default();
        // The first is cold.
        for took in [99_000, 2_000, 90_000, 3_000] {
            sizes.play(&alloc(1000, Source::Miss, took));
        }
        for _ in 0..3 {
            sizes.play(&alloc(1 << 30, Source::Driver, 500_000));
        }
        // Too few: the nearest size with enough of them counts.
        sizes.play(&alloc(200 << 20, Source::Miss, 7));
        for _ in 0..10 {
            sizes.play(&alloc(900, Source::Hit, 0));
            sizes.play(&alloc(200 << 20, Source::Hit, 0));
        }
        assert_eq!(sizes.avoided(), Some(Price { ns: 10 * 3_000 + 10 * 500_000, calls: 6 }));
        assert_eq!(
            sizes.buckets[10],
            Bucket { count: 14, bytes: 13_000, hits: 10, ordered: 0, timed: 4, took: 194_000 }
        );
        assert_eq!(sizes.timed(), 8);
        let mut untimed = Sizes::default();
        untimed.play(&alloc(1000, Source::Hit, 0));
        assert_eq!(untimed.avoided(), None);
        assert_eq!(Sizes::default().avoided(), Some(Price::default()));
    }
}
