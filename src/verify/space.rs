//! Ranges of addresses that are in use: no byte twice.

use std::collections::BTreeMap;

/// Live ranges by their address.
#[derive(Debug, Default)]
pub struct Space {
    ranges: BTreeMap<u64, (u64, u64)>,
}

impl Space {
    /// Puts in the range of this id; the id of one that it shares memory with comes back.
    pub fn enter(&mut self, address: u64, bytes: u64, id: u64) -> Option<u64> {
        let end = address.saturating_add(bytes);
        if address == 0 || bytes == 0 {
            return None;
        }
        let other = self.ranges.range(..end).next_back().filter(|(_, (other, _))| *other > address);
        let shared = other.map(|(_, (_, id))| *id);
        self.ranges.insert(address, (end, id));
        shared
    }

    /// Takes out the range of this id at an address.
    pub fn leave(&mut self, address: u64, id: u64) {
        if self.ranges.get(&address).is_some_and(|(_, there)| *there == id) {
            self.ranges.remove(&address);
        }
    }

    /// Takes out all ranges that begin in these bytes.
    pub fn clear(&mut self, address: u64, bytes: u64) {
        while let Some(at) = self.ranges.range(address..address.saturating_add(bytes)).next().map(|(at, _)| *at) {
            self.ranges.remove(&at);
        }
    }

    /// The id of a range that lies, or begins, in these bytes.
    pub fn first_in(&self, address: u64, bytes: u64) -> Option<u64> {
        let end = address.saturating_add(bytes);
        let last = self.ranges.range(..end).next_back();
        last.filter(|(_, (end, _))| *end > address).map(|(_, (_, id))| *id)
    }

    /// Whether ranges cover these bytes, one behind the other.
    pub fn covers(&self, address: u64, bytes: u64) -> bool {
        let end = address.saturating_add(bytes);
        let mut at = address;
        while at < end {
            match self.ranges.range(..=at).next_back() {
                Some((_, (covered, _))) if *covered > at => at = *covered,
                _ => return false,
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        let mut space = Space::default();
        assert_eq!(space.enter(100, 10, 1), None);
        assert_eq!(space.enter(110, 10, 2), None);
        assert_eq!(space.enter(105, 1, 3), Some(1));
        space.leave(105, 3);
        assert!(space.covers(100, 20) && space.covers(109, 2) && !space.covers(100, 21) && !space.covers(99, 2));
        assert_eq!((space.first_in(90, 10), space.first_in(90, 11), space.first_in(120, 1)), (None, Some(1), None));
        space.leave(100, 9);
        space.leave(100, 1);
        assert!(!space.covers(100, 20) && space.covers(110, 10));
        space.clear(0, 1000);
        assert_eq!(space.first_in(0, 1000), None);
        // Nothing is at no address, and nothing shares no bytes.
        assert_eq!((space.enter(0, 10, 4), space.enter(7, 0, 5), space.first_in(0, 10)), (None, None, None));
        assert_eq!(space.enter(u64::MAX - 1, 9, 6), None);
    }
}
