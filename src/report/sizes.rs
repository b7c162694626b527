//! How large are the allocations, and what does one of a size cost when the driver has to make it?

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
    /// Driver calls timed.
    pub timed: u64,
    /// Nanoseconds they took.
    pub took: u64,
}

/// Allocations of device memory by size: bucket n holds those above 2^(n-1) up to 2^n bytes.
#[derive(Clone, Debug)]
pub struct Sizes {
    /// The buckets.
    pub buckets: [Bucket; 65],
}

impl Default for Sizes {
    fn default() -> Self {
        Sizes { buckets: [Bucket::default(); 65] }
    }
}

impl Sizes {
    /// Looks at an event.
    pub fn play(&mut self, e: &Event) {
        if e.kind != EventKind::Alloc || !e.memory.on_device() {
            return;
        }
        let b = &mut self.buckets[bucket(e.bytes)];
        b.count += 1;
        b.bytes += e.bytes;
        if e.how == Source::Hit as u8 {
            b.hits += 1;
        } else if e.memory == Memory::Device && e.extra[2] > 0 {
            b.timed += 1;
            b.took += e.extra[2];
        }
    }

    /// What the driver would have taken for everything that cached blocks served: each size at the mean of the nearest
    /// size that was measured; `None` if none was.
    pub fn avoided(&self) -> Option<u64> {
        let timed: Vec<usize> = (0..self.buckets.len()).filter(|i| self.buckets[*i].timed > 0).collect();
        let mut sum = 0.0;
        for (i, b) in self.buckets.iter().enumerate().filter(|(_, b)| b.hits > 0) {
            let nearest = timed.iter().min_by_key(|t| t.abs_diff(i))?;
            let measured = &self.buckets[*nearest];
            sum += b.hits as f64 * measured.took as f64 / measured.timed as f64;
        }
        Some(sum as u64)
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
    page.line(&page.paint.dim(&format!(
        "  {:>10}  {:>11}  {:>9}  {:>9}  {:>10}",
        "up to", "allocations", "bytes", "from pool", "driver"
    )));
    for (i, b) in buckets.iter().enumerate().filter(|(_, b)| b.count > 0) {
        let hits = if b.hits == 0 { "-".to_string() } else { percent(b.hits, b.count) };
        let driver = b.took.checked_div(b.timed).map_or("-".to_string(), time);
        let bar = "#".repeat((b.count * 36).div_ceil(most) as usize);
        page.line(&format!(
            "  {:>10}  {:>11}  {:>9}  {:>9}  {:>10}  {bar}",
            bytes(1u64.checked_shl(i as u32).unwrap_or(u64::MAX)),
            count(b.count),
            bytes(b.bytes),
            hits,
            driver
        ));
    }
    if buckets.iter().any(|b| b.timed > 0) {
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
        sizes.play(&alloc(1000, Source::Miss, 2_000));
        sizes.play(&alloc(1000, Source::Miss, 4_000));
        sizes.play(&alloc(1 << 30, Source::Driver, 500_000));
        for _ in 0..10 {
            sizes.play(&alloc(900, Source::Hit, 0));
            sizes.play(&alloc(600 << 20, Source::Hit, 0));
        }
        assert_eq!(sizes.avoided(), Some(10 * 3_000 + 10 * 500_000));
        assert_eq!(sizes.buckets[10], Bucket { count: 12, bytes: 11_000, hits: 10, timed: 2, took: 6_000 });
        let mut untimed = Sizes::default();
        untimed.play(&alloc(1000, Source::Hit, 0));
        assert_eq!(untimed.avoided(), None);
        assert_eq!(Sizes::default().avoided(), Some(0));
    }
}
