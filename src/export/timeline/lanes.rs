//! Slices that overlap, put into lanes in which none do.

use std::collections::BTreeMap;

/// Most lanes of one place: more say no more.
pub const MOST: usize = 128;

/// Lanes of one place.
#[derive(Debug, Default)]
pub struct Lanes {
    /// Of each lane, when what is in it begins and ends.
    lanes: Vec<BTreeMap<u64, u64>>,
}

impl Lanes {
    /// The lane for a slice; none if all are full then.
    pub fn place(&mut self, from: u64, to: u64) -> Option<usize> {
        let fits = |lane: &BTreeMap<u64, u64>| {
            let before = lane.range(..=from).next_back();
            let after = lane.range(from..).next();
            // Two that begin at the same time would hide one another, also if one of them takes no time.
            before.is_none_or(|(start, end)| *start < from && *end <= from)
                && after.is_none_or(|(start, _)| to <= *start)
        };
        let at = match self.lanes.iter().position(fits) {
            Some(at) => at,
            None if self.lanes.len() < MOST => {
                self.lanes.push(BTreeMap::new());
                self.lanes.len() - 1
            }
            None => return None,
        };
        self.lanes[at].insert(from, to);
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_follows_shares_a_lane() {
        let mut lanes = Lanes::default();
        let slices = [(0, 10), (10, 20), (5, 8), (8, 30), (20, 20), (20, 25)];
        let at: Vec<_> = slices.iter().map(|(from, to)| lanes.place(*from, *to).unwrap()).collect();
        assert_eq!(at, [0, 0, 1, 1, 0, 2]);
    }

    #[test]
    fn a_place_has_so_many_lanes() {
        let mut lanes = Lanes::default();
        assert!((0..MOST).all(|i| lanes.place(i as u64, 1_000) == Some(i)));
        assert_eq!(lanes.place(500, 600), None);
        assert_eq!(lanes.place(1_000, 1_001), Some(0));
    }

    proptest! {
        #[test]
        fn none_overlap(slices in proptest::collection::vec((0u64..50, 0u64..20), 0..60)) {
            let mut lanes = Lanes::default();
            let mut placed: Vec<(usize, u64, u64)> = Vec::new();
            for (from, long) in slices {
                let to = from + long;
                let Some(at) = lanes.place(from, to) else { continue };
                for (_, f, t) in placed.iter().filter(|(lane, ..)| *lane == at) {
                    prop_assert!(to <= *f || from >= *t, "{from}-{to} and {f}-{t} in {at}");
                }
                placed.push((at, from, to));
            }
        }
    }
}
