//! Marks and regions: what the program called its moments and stretches of work.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use vramscope_core::event::{Event, EventKind};

/// A moment that the program marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// When.
    pub time: u64,
    /// Number of its text.
    pub text: u32,
}

/// A stretch of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Region {
    /// From when
    pub start: u64,
    /// to when.
    pub end: u64,
    /// Number of its name.
    pub text: u32,
    /// Number of the thread; 0: a stretch of the whole process.
    pub thread: u32,
    /// How many regions it lies in.
    pub depth: u32,
    /// It had not ended when the history did: how long it would have lasted is not known.
    pub open: bool,
}

impl Region {
    fn length(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Labels {
    /// The marks; every other one is dropped each time when they become too many.
    pub marks: Vec<Mark>,
    marked: u64,
    stride: u64,
    open: HashMap<u64, Region>,
    /// The regions that each thread is in, outermost first.
    inside: HashMap<u32, Vec<u64>>,
    longest: BinaryHeap<Reverse<(u64, Region)>>,
    most: usize,
}

/// Marks kept.
const MARKS: usize = 4_000;

impl Labels {
    /// No label yet; the longest regions are kept, so many.
    pub fn new(most: usize) -> Labels {
        Labels { most, stride: 1, ..Labels::default() }
    }

    /// Looks at an event.
    pub fn play(&mut self, thread: u32, e: &Event) {
        match e.kind {
            EventKind::Mark => self.mark(e),
            EventKind::RegionBegin => self.begin(thread, e),
            EventKind::RegionEnd => self.end(e.id, e.time),
            _ => {}
        }
    }

    /// The innermost region that a thread is in: number of its name, 0: none.
    pub fn innermost(&self, thread: u32) -> u32 {
        let id = self.inside.get(&thread).and_then(|ids| ids.last());
        id.and_then(|id| self.open.get(id)).map_or(0, |r| r.text)
    }

    /// The end of the history, and of regions that had none. The regions in the order of their beginnings.
    pub fn finish(&mut self, now: u64) -> Vec<Region> {
        let mut ids: Vec<u64> = self.open.keys().copied().collect();
        ids.sort_unstable();
        for id in ids {
            self.open.entry(id).and_modify(|r| r.open = true);
            self.end(id, now);
        }
        let mut regions: Vec<Region> = std::mem::take(&mut self.longest).into_iter().map(|r| r.0.1).collect();
        regions.sort_unstable_by_key(|r| (r.thread, r.start, r.depth, r.end, r.text));
        regions
    }

    fn mark(&mut self, e: &Event) {
        if self.marked.is_multiple_of(self.stride) {
            self.marks.push(Mark { time: e.time, text: e.extra[0] as u32 });
        }
        self.marked += 1;
        if self.marks.len() > MARKS {
            let mut i = 0;
            self.marks.retain(|_| {
                i += 1;
                i % 2 == 1
            });
            self.stride *= 2;
        }
    }

    fn begin(&mut self, thread: u32, e: &Event) {
        let whole = e.extra[2] != 0;
        let inside = self.inside.entry(thread).or_default();
        let region = Region {
            start: e.time.saturating_sub(e.extra[1]),
            end: 0,
            text: e.extra[0] as u32,
            thread: if whole { 0 } else { thread },
            depth: if whole { 0 } else { inside.len() as u32 },
            open: false,
        };
        if !whole {
            inside.push(e.id);
        }
        self.open.insert(e.id, region);
    }

    fn end(&mut self, id: u64, time: u64) {
        let Some(mut region) = self.open.remove(&id) else { return };
        if let Some(inside) = self.inside.get_mut(&region.thread) {
            inside.retain(|i| *i != id);
        }
        region.end = time.max(region.start);
        self.longest.push(Reverse((region.length(), region)));
        if self.longest.len() > self.most {
            self.longest.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: EventKind, time: u64, id: u64, extra: [u64; 3]) -> Event {
        Event { kind, time, id, extra, ..Event::default() }
    }

    #[test]
    fn regions_lie_in_regions_and_begin_when_they_began() {
        let mut l = Labels::new(10);
        l.play(1, &event(EventKind::RegionBegin, 100, 1, [5, 90, 0]));
        l.play(1, &event(EventKind::RegionBegin, 100, 2, [6, 0, 0]));
        l.play(2, &event(EventKind::RegionBegin, 120, 3, [7, 20, 1]));
        assert_eq!((l.innermost(1), l.innermost(2)), (6, 0));
        l.play(1, &event(EventKind::RegionEnd, 150, 2, [0; 3]));
        assert_eq!(l.innermost(1), 5);
        let regions = l.finish(200);
        assert_eq!(
            regions.iter().map(|r| (r.thread, r.start, r.end, r.depth, r.text, r.open)).collect::<Vec<_>>(),
            [(0, 100, 200, 0, 7, true), (1, 10, 200, 0, 5, true), (1, 100, 150, 1, 6, false)]
        );
    }

    #[test]
    fn the_longest_stay_and_marks_are_thinned() {
        let mut l = Labels::new(2);
        for i in 0..10 {
            l.play(1, &event(EventKind::RegionBegin, i * 100, i + 1, [1, 0, 0]));
            l.play(1, &event(EventKind::RegionEnd, i * 100 + i, i + 1, [0; 3]));
        }
        assert_eq!(l.finish(1000).iter().map(Region::length).collect::<Vec<_>>(), [8, 9]);
        for i in 0..10_000 {
            l.play(1, &event(EventKind::Mark, i, 0, [i, 0, 0]));
        }
        assert!(l.marks.len() <= MARKS && l.marks.len() > MARKS / 3, "{}", l.marks.len());
        assert!(l.marks.windows(2).all(|w| w[1].time - w[0].time == 4));
    }
}
