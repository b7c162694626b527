//! Which allocations are worth drawing: those that cover most of a picture (bytes times time), for the whole history, its
//! sixteenths, their sixteenths, and once more. A browser that shows a part of the history takes the tiles that cover it; what no tile
//! holds is drawn as one band.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::books::Books;
use super::kept::{ALIVE, Kept};
use super::live::Live;

/// The allocations of a device that cover most of a stretch of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tile {
    /// 0: the whole.
    pub level: usize,
    /// The device.
    pub device: u32,
    /// From when
    pub start: u64,
    /// to when.
    pub end: u64,
    /// Their places in [`Kept`].
    pub members: Vec<u32>,
}

/// Tiles a tile of the level above is cut into.
const CUT: u64 = 16;

struct Level {
    /// Events of a tile.
    size: u64,
    /// Allocations of a tile.
    most: usize,
    start: u64,
    best: BTreeMap<u32, Best>,
}

/// See the module.
pub struct Tiles {
    levels: Vec<Level>,
    events: u64,
    done: Vec<Tile>,
}

/// An allocation and the picture it covers.
#[derive(Clone, Copy, Debug)]
struct Covered {
    area: u64,
    live: Live,
    end: u64,
}

impl PartialEq for Covered {
    fn eq(&self, other: &Covered) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Covered {}

impl PartialOrd for Covered {
    fn partial_cmp(&self, other: &Covered) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Covered {
    fn cmp(&self, other: &Covered) -> std::cmp::Ordering {
        (self.area, Reverse(self.live.id)).cmp(&(other.area, Reverse(other.live.id)))
    }
}

/// The ones that cover most.
#[derive(Debug, Default)]
struct Best {
    heap: BinaryHeap<Reverse<Covered>>,
}

impl Best {
    fn offer(&mut self, most: usize, live: &Live, start: u64, end: u64, now: u64) {
        let time = end.min(now).saturating_sub(live.time.max(start));
        // As bits, numbers that are not negative keep their order.
        let area = (live.bytes as f64 * time as f64).to_bits();
        let full = self.heap.len() >= most;
        if full && self.heap.peek().is_some_and(|least| least.0.area >= area) {
            return;
        }
        self.heap.push(Reverse(Covered { area, live: *live, end }));
        if full {
            self.heap.pop();
        }
    }
}

impl Tiles {
    /// Tiles of a history of so many events, with at most so many allocations of a device in a tile of each level.
    pub fn new(events: u64, most: &[usize]) -> Tiles {
        let mut size = events.max(1);
        let level = |most: &usize| {
            let level = Level { size, most: *most, start: 0, best: BTreeMap::new() };
            size = size.div_ceil(CUT).max(1);
            level
        };
        Tiles { levels: most.iter().map(level).collect(), events: 0, done: Vec::new() }
    }

    /// An allocation ended.
    pub fn died(&mut self, live: &Live, now: u64) {
        for level in &mut self.levels {
            level.best.entry(live.device).or_default().offer(level.most, live, level.start, now, now);
        }
    }

    /// The next event is about to be played: tiles that are full are closed.
    pub fn event(&mut self, now: u64, books: &Books, kept: &mut Kept) {
        for i in 1..self.levels.len() {
            if self.events > 0 && self.events.is_multiple_of(self.levels[i].size) {
                self.close(i, now, books, kept);
            }
        }
        self.events += 1;
    }

    fn close(&mut self, i: usize, now: u64, books: &Books, kept: &mut Kept) {
        let level = &mut self.levels[i];
        for live in books.live() {
            level.best.entry(live.device).or_default().offer(level.most, live, level.start, ALIVE, now);
        }
        for (device, best) in std::mem::take(&mut level.best) {
            let members = best.heap.into_iter().map(|c| kept.keep(&c.0.live, c.0.end)).collect();
            self.done.push(Tile { level: i, device, start: level.start, end: now, members });
        }
        level.start = now;
    }

    /// The end of the history.
    pub fn finish(mut self, now: u64, books: &Books, kept: &mut Kept) -> Vec<Tile> {
        for i in 0..self.levels.len() {
            self.close(i, now, books, kept);
        }
        self.done
    }
}
