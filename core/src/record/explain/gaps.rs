//! Free pieces in what PyTorch holds: its segments by address, less the tensors in them.

use super::books::Books;
use crate::event::{EventKind, Memory};
use crate::record::live::Live;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Gaps {
    /// Bytes free in all.
    pub total: u64,
    /// The largest piece.
    pub largest: u64,
    /// Bytes of segments without any tensor: what could go back to the driver.
    pub whole: u64,
    /// Size, and bytes free, of each segment that is split: what is free in it lies beside a tensor.
    pub split: Vec<(u64, u64)>,
}

impl Gaps {
    pub(super) fn of(live: &Live, device: u32, books: &Books) -> Gaps {
        let here = |e: &crate::event::Event| live.device(e.context) == device;
        let mut tensors = Vec::new();
        let mut segments = Vec::new();
        for e in live.entries().map(|e| &e.event).filter(|e| e.kind == EventKind::Alloc && here(e)) {
            match e.memory {
                Memory::Tensor => tensors.push((e.address, e.address.saturating_add(e.bytes))),
                Memory::Device if books.is_segment(e.caller, e.memory) => {
                    segments.push((e.address, e.address.saturating_add(e.bytes)));
                }
                _ => {}
            }
        }
        // An expandable segment is memory mapped piece by piece, side by side.
        let mut mapped: Vec<(u64, u64)> = Vec::new();
        for map in live.maps() {
            let of = live.get(map.id).map(|e| &e.event);
            if !of.is_some_and(|e| here(e) && books.is_segment(e.caller, e.memory)) {
                continue;
            }
            match mapped.last_mut() {
                Some(last) if last.1 == map.address => last.1 = last.1.saturating_add(map.bytes),
                _ => mapped.push((map.address, map.address.saturating_add(map.bytes))),
            }
        }
        segments.extend(mapped);
        segments.sort_unstable();
        tensors.sort_unstable();
        Gaps::between(&segments, &tensors)
    }

    /// What the segments hold besides the tensors; both sorted.
    fn between(segments: &[(u64, u64)], tensors: &[(u64, u64)]) -> Gaps {
        let mut gaps = Gaps::default();
        let mut next = 0;
        for &(start, end) in segments {
            let mut at = start;
            let mut holds = false;
            let before = gaps.total;
            next += tensors[next..].iter().take_while(|t| t.1 <= start).count();
            while let Some(&(from, to)) = tensors.get(next).filter(|t| t.0 < end) {
                gaps.add(from.saturating_sub(at));
                at = at.max(to);
                holds = true;
                next += 1;
            }
            gaps.add(end.saturating_sub(at));
            let free = gaps.total - before;
            if !holds {
                gaps.whole = gaps.whole.saturating_add(end.saturating_sub(start));
            } else if free > 0 {
                gaps.split.push((end.saturating_sub(start), free));
            }
        }
        gaps
    }

    /// Bytes free in split segments larger than this.
    pub(super) fn split_over(&self, size: u64) -> u64 {
        self.split.iter().filter(|s| s.0 > size).fold(0, |sum, s| sum.saturating_add(s.1))
    }

    fn add(&mut self, bytes: u64) {
        self.total = self.total.saturating_add(bytes);
        self.largest = self.largest.max(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn between_segments_and_tensors() {
        let segments = [(0, 100), (100, 200), (500, 600), (700, 800)];
        let tensors = [(0, 10), (30, 40), (90, 100), (110, 200), (300, 310), (500, 600)];
        let gaps = Gaps::between(&segments, &tensors);
        let split = vec![(100, 70), (100, 10)];
        assert_eq!(gaps, Gaps { total: 20 + 50 + 10 + 100, largest: 100, whole: 100, split });
        assert_eq!((gaps.split_over(99), gaps.split_over(100)), (80, 0));
        assert_eq!(Gaps::between(&[], &tensors), Gaps::default());
        // A tensor that sticks out (an event was lost) does not make less than nothing.
        let split = vec![(10, 5)];
        let gaps = Gaps { total: 15, largest: 10, whole: 10, split };
        assert_eq!(Gaps::between(&[(0, 10), (10, 20)], &[(5, 15)]), gaps);
    }
}
