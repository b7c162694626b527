//! Ranges of the address space: the mapped pieces of expandable segments, which come and go in other ranges than they
//! came in.

use std::collections::{BTreeMap, BTreeSet};

/// Ranges that do not overlap, with something for each.
#[derive(Clone, Debug)]
pub struct Pieces<T> {
    /// Where a range begins: its end, and what it is.
    ranges: BTreeMap<u64, (u64, T)>,
}

impl<T> Default for Pieces<T> {
    fn default() -> Pieces<T> {
        Pieces { ranges: BTreeMap::new() }
    }
}

impl<T: Clone> Pieces<T> {
    /// The parts of a range that no piece covers.
    pub fn gaps(&self, from: u64, to: u64) -> Vec<(u64, u64)> {
        let mut gaps = Vec::new();
        let mut at = from;
        let before = self.ranges.range(..from).next_back().map(|(_, (end, _))| *end);
        at = at.max(before.unwrap_or(0));
        for (start, (end, _)) in self.ranges.range(from..to.max(from)) {
            if *start > at {
                gaps.push((at, *start));
            }
            at = at.max(*end);
        }
        if at < to {
            gaps.push((at, to));
        }
        gaps
    }

    /// Takes pieces out that begin in a range; a piece that begins before it and reaches into it is cut.
    pub fn take(&mut self, from: u64, to: u64) -> Vec<(u64, u64, T)> {
        self.cut(from);
        self.cut(to);
        let starts: Vec<u64> = self.ranges.range(from..to.max(from)).map(|(at, _)| *at).collect();
        starts.into_iter().filter_map(|at| self.ranges.remove(&at).map(|(end, what)| (at, end, what))).collect()
    }

    /// Makes a piece of two, if it lies across this address.
    fn cut(&mut self, at: u64) {
        if let Some((_, (end, what))) = self.ranges.range_mut(..at).next_back()
            && *end > at
        {
            let (rest, what) = (std::mem::replace(end, at), what.clone());
            self.ranges.insert(at, (rest, what));
        }
    }

    /// Adds a piece to where none is.
    pub fn add(&mut self, from: u64, to: u64, what: T) {
        if from < to {
            self.ranges.insert(from, (to, what));
        }
    }

    /// The pieces, by address.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64, &T)> {
        self.ranges.iter().map(|(at, (end, what))| (*at, *end, what))
    }
}

/// A range, cut where these addresses lie in it.
pub fn cut(from: u64, to: u64, at: &BTreeSet<u64>) -> Vec<(u64, u64)> {
    if from >= to {
        return Vec::new();
    }
    let inner = at.range(from + 1..to).copied();
    let starts: Vec<u64> = std::iter::once(from).chain(inner).collect();
    let ends = starts[1..].iter().copied().chain([to]);
    starts.iter().copied().zip(ends).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_and_taken() {
        let mut p = Pieces::default();
        p.add(10, 30, 'a');
        p.add(40, 50, 'b');
        assert_eq!(p.gaps(0, 60), [(0, 10), (30, 40), (50, 60)]);
        assert_eq!(p.gaps(15, 45), [(30, 40)]);
        assert!(p.gaps(12, 20).is_empty());
        assert_eq!(p.take(20, 45), [(20, 30, 'a'), (40, 45, 'b')]);
        assert_eq!(p.iter().map(|(a, b, _)| (a, b)).collect::<Vec<_>>(), [(10, 20), (45, 50)]);
        assert_eq!(cut(0, 9, &BTreeSet::from([0, 3, 7, 9, 12])), [(0, 3), (3, 7), (7, 9)]);
        assert!(cut(5, 5, &BTreeSet::new()).is_empty());
    }
}
