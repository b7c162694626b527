//! The allocations worth drawing: those that held most bytes for the longest time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::export::lives::Life;

/// Keeps the largest so many.
pub struct Largest {
    most: usize,
    heap: BinaryHeap<Reverse<Sized>>,
    /// How many were left out.
    pub left_out: u64,
}

/// A life by its size in the picture.
struct Sized {
    area: u128,
    id: u64,
    life: Life,
}

impl Largest {
    /// At most so many.
    pub fn new(most: usize) -> Largest {
        Largest { most, heap: BinaryHeap::new(), left_out: 0 }
    }

    /// Takes one, which was there so long.
    pub fn add(&mut self, life: &Life, ns: u64) {
        let area = u128::from(life.allocation.block()) * u128::from(ns.max(1));
        if self.heap.len() >= self.most {
            self.left_out += 1;
            if self.heap.peek().is_none_or(|least| least.0.area >= area) {
                return;
            }
            self.heap.pop();
        }
        self.heap.push(Reverse(Sized { area, id: life.allocation.event.id, life: life.clone() }));
    }

    /// All that were kept, the largest first.
    pub fn sorted(self) -> Vec<Life> {
        self.heap.into_sorted_vec().into_iter().map(|s| s.0.life).collect()
    }
}

impl PartialEq for Sized {
    fn eq(&self, other: &Sized) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Sized {}

impl PartialOrd for Sized {
    fn partial_cmp(&self, other: &Sized) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Sized {
    fn cmp(&self, other: &Sized) -> std::cmp::Ordering {
        // Of equals the one that came first.
        (self.area, Reverse(self.id)).cmp(&(other.area, Reverse(other.id)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::play::Allocation;
    use crate::report::tally::Layer;
    use vramscope_core::event::Event;

    #[test]
    fn the_largest_by_bytes_and_time() {
        let mut largest = Largest::new(3);
        for (id, bytes, ns) in [(1, 10, 10), (2, 1, 1000), (3, 5, 5), (4, 100, 1), (5, 2000, 0), (6, 10, 10)] {
            let event = Event { id, bytes, ..Event::default() };
            let allocation = Allocation { event, thread: 0, device: 0, layer: Layer::Direct };
            largest.add(&Life { allocation, ended: None, around: Default::default() }, ns);
        }
        assert_eq!(largest.left_out, 3);
        let ids: Vec<u64> = largest.sorted().iter().map(|l| l.allocation.event.id).collect();
        assert_eq!(ids, [5, 2, 1]);
    }
}
