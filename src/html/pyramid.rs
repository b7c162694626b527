//! A curve at every zoom: buckets of a device's layers, and buckets of buckets, so that a browser draws millions of events
//! by looking at as many buckets as it has pixels.
//!
//! Buckets hold equally many changes, not equally much time: where much happens they are narrow. When they become too
//! many, two neighbours become one, so that memory is bounded whatever the length of the history.

use super::layers::{LAYERS, Sums, total};

/// Buckets of a level that become one of the next.
pub const FAN: usize = 8;

/// What happened from one time to the next bucket's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// When it begins: at its first change.
    pub time: u64,
    /// The least of each layer.
    pub min: Sums,
    /// The most of each layer.
    pub max: Sums,
    /// Each layer after its last change.
    pub last: Sums,
    /// All layers at the moment when they were most together: sums of peaks that were at different times are no peak.
    pub high: Sums,
}

impl Bucket {
    fn new(time: u64, sums: &Sums) -> Bucket {
        Bucket { time, min: *sums, max: *sums, last: *sums, high: *sums }
    }

    fn add(&mut self, other: &Bucket) {
        for i in 0..LAYERS.len() {
            self.min[i] = self.min[i].min(other.min[i]);
            self.max[i] = self.max[i].max(other.max[i]);
        }
        if total(&other.high) > total(&self.high) {
            self.high = other.high;
        }
        self.last = other.last;
    }
}

/// A curve while it grows.
#[derive(Clone, Debug)]
pub struct Pyramid {
    /// Buckets, the finest.
    leaves: Vec<Bucket>,
    /// Changes a full bucket holds.
    size: u64,
    /// Changes in the last bucket.
    filled: u64,
    /// Most buckets.
    most: usize,
}

impl Pyramid {
    /// A curve of at most so many buckets.
    pub fn new(most: usize) -> Pyramid {
        // Even, so that all are full when two of them become one.
        Pyramid { leaves: Vec::new(), size: 1, filled: 0, most: most.max(2) & !1 }
    }

    /// The layers after a change.
    pub fn push(&mut self, time: u64, sums: &Sums) {
        match self.leaves.last_mut() {
            // What changes in the same nanosecond is one change: nobody sees what was between.
            Some(last) if last.time == time || self.filled < self.size => {
                last.add(&Bucket::new(time, sums));
                self.filled += 1;
            }
            _ => {
                if self.leaves.len() >= self.most {
                    self.halve();
                }
                self.leaves.push(Bucket::new(time, sums));
                self.filled = 1;
            }
        }
    }

    fn halve(&mut self) {
        self.leaves = above(&self.leaves, 2);
        self.size *= 2;
    }

    /// Changes in a bucket of the finest level; 1: every change is there.
    pub fn leaf(&self) -> u64 {
        self.size
    }

    /// The levels, the finest first; the last has at most [`FAN`] buckets.
    pub fn levels(self) -> Vec<Vec<Bucket>> {
        let mut levels = vec![self.leaves];
        while let Some(level) = levels.last().filter(|l| l.len() > FAN) {
            levels.push(above(level, FAN));
        }
        levels
    }
}

fn above(level: &[Bucket], fan: usize) -> Vec<Bucket> {
    let join = |run: &[Bucket]| {
        let mut joined = run[0];
        run[1..].iter().for_each(|b| joined.add(b));
        joined
    };
    level.chunks(fan).map(join).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sums(a: u64, b: u64) -> Sums {
        let mut sums = Sums::default();
        (sums[0], sums[3]) = (a, b);
        sums
    }

    #[test]
    fn every_change_is_kept_while_they_are_few() {
        let mut p = Pyramid::new(100);
        for i in 0..20 {
            p.push(i * 10, &sums(i, 1));
        }
        // Two changes at one time are one.
        p.push(190, &sums(50, 1));
        assert_eq!(p.leaf(), 1);
        let levels = p.levels();
        assert_eq!(levels.iter().map(Vec::len).collect::<Vec<_>>(), [20, 3]);
        assert_eq!((levels[0][7].time, levels[0][7].last), (70, sums(7, 1)));
        assert_eq!((levels[1][1].time, levels[1][1].min, levels[1][1].max), (80, sums(8, 1), sums(15, 1)));
        assert_eq!((levels[0][19].min, levels[0][19].last), (sums(19, 1), sums(50, 1)));
    }

    #[test]
    fn the_high_is_a_moment_that_was() {
        let mut p = Pyramid::new(2);
        for (time, a, b) in [(1, 10, 0), (2, 6, 6), (3, 0, 10), (4, 1, 1), (5, 1, 1)] {
            p.push(time, &sums(a, b));
        }
        let levels = p.levels();
        let first = &levels[0][0];
        assert_eq!((first.high, first.max), (sums(6, 6), sums(10, 10)));
    }

    proptest! {
        #[test]
        fn no_level_loses_a_peak_or_the_end(values in prop::collection::vec((0u64..50, 0u64..50), 1..500), most in 2usize..40) {
            let mut p = Pyramid::new(most);
            for (i, (a, b)) in values.iter().enumerate() {
                p.push(i as u64, &sums(*a, *b));
            }
            let (leaf, levels) = (p.leaf(), p.levels());
            prop_assert!(levels[0].len() <= most);
            for level in &levels {
                let all = level.iter().copied().reduce(|mut a, b| { a.add(&b); a }).unwrap();
                prop_assert_eq!(all.max[0], values.iter().map(|v| v.0).max().unwrap());
                prop_assert_eq!(all.min[3], values.iter().map(|v| v.1).min().unwrap());
                prop_assert_eq!(total(&all.high), values.iter().map(|v| v.0 + v.1).max().unwrap());
                prop_assert_eq!(all.last, sums(values[values.len() - 1].0, values[values.len() - 1].1));
                prop_assert!(level.is_sorted_by_key(|b| b.time));
            }
            // A bucket says what was at its end.
            for (i, bucket) in levels[0].iter().enumerate() {
                let end = ((i as u64 + 1) * leaf).min(values.len() as u64) as usize - 1;
                prop_assert_eq!(bucket.last, sums(values[end].0, values[end].1));
            }
        }
    }
}
