//! A set of numbers that are mostly given out one after the other: a bit each.

use std::collections::HashMap;

use vramscope_core::spread::Spread;

/// The set.
#[derive(Debug, Default)]
pub struct Numbers {
    // 256 numbers a page, so that a few wild ones cost little.
    pages: HashMap<u64, [u64; 4], Spread>,
}

impl Numbers {
    /// Puts a number in; whether it was not there.
    pub fn insert(&mut self, number: u64) -> bool {
        let (word, bit) = (number as usize >> 6 & 3, 1 << (number & 63));
        let word = &mut self.pages.entry(number >> 8).or_default()[word];
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    /// Whether it is there.
    pub fn contains(&self, number: u64) -> bool {
        self.pages.get(&(number >> 8)).is_some_and(|page| page[number as usize >> 6 & 3] >> (number & 63) & 1 == 1)
    }

    /// Takes all out.
    pub fn clear(&mut self) {
        self.pages.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_in_is_there() {
        let mut numbers = Numbers::default();
        let some = [0, 1, 63, 64, 255, 256, 1 << 40, u64::MAX];
        assert!(some.iter().all(|n| numbers.insert(*n)) && !some.iter().any(|n| numbers.insert(*n)));
        assert!(some.iter().all(|n| numbers.contains(*n)));
        assert!([2, 62, 65, 254, 257, (1 << 40) + 1].iter().all(|n| !numbers.contains(*n)));
        numbers.clear();
        assert!(!numbers.contains(0));
    }
}
