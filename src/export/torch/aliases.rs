//! Addresses at which memory of the pool is mapped once more, for blocks that are stitched together from several places.

use std::collections::BTreeMap;

/// Second mappings, by address: their bytes, and where the memory lies first.
#[derive(Debug, Default)]
pub struct Aliases {
    all: BTreeMap<u64, (u64, u64)>,
}

impl Aliases {
    /// Memory that lies at `home` is mapped here, too.
    pub fn add(&mut self, address: u64, bytes: u64, home: u64) {
        self.all.insert(address, (bytes, home));
    }

    /// It is not any more.
    pub fn remove(&mut self, address: u64, bytes: u64) {
        let gone: Vec<u64> = self.all.range(address..address.saturating_add(bytes)).map(|(at, _)| *at).collect();
        for at in gone {
            self.all.remove(&at);
        }
    }

    /// Where the memory of this range lies, and how much in each place. None: the range is no second mapping.
    pub fn pieces(&self, address: u64, bytes: u64) -> Option<Vec<(u64, u64)>> {
        let end = address.checked_add(bytes)?;
        let first = *self.all.range(..=address).next_back().filter(|(at, (bytes, _))| *at + bytes > address)?.0;
        let mut pieces: Vec<(u64, u64)> = Vec::new();
        for (at, (bytes, home)) in self.all.range(first..end) {
            let (from, to) = (address.max(*at), end.min(at + bytes));
            let (home, bytes) = (home + (from - at), to - from);
            match pieces.last_mut() {
                // Neighbours at home, too.
                Some((last, size)) if *last + *size == home => *size += bytes,
                _ => pieces.push((home, bytes)),
            }
        }
        Some(pieces)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_across_mappings_lies_in_several_places() {
        let mut aliases = Aliases::default();
        aliases.add(0x9000, 0x1000, 0x1000);
        aliases.add(0xa000, 0x1000, 0x2000);
        aliases.add(0xb000, 0x1000, 0x5000);
        assert_eq!(aliases.pieces(0x9800, 0x2000), Some(vec![(0x1800, 0x1800), (0x5000, 0x800)]));
        assert_eq!((aliases.pieces(0x8000, 0x1000), aliases.pieces(0xc000, 1)), (None, None));
        aliases.remove(0x9000, 0x2000);
        assert_eq!((aliases.pieces(0x9000, 1), aliases.pieces(0xb000, 1)), (None, Some(vec![(0x5000, 1)])));
    }
}
