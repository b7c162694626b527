//! A hash for tables by number. Ids are given out one after the other: a multiplication spreads them well enough.

use std::hash::{BuildHasherDefault, Hasher};

/// For tables by number.
pub type Spread = BuildHasherDefault<Numbers>;

/// Hashes a number.
#[derive(Clone, Copy, Debug, Default)]
pub struct Numbers(u64);

impl Hasher for Numbers {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.write_u64(u64::from(*b));
        }
    }

    fn write_u32(&mut self, n: u32) {
        self.write_u64(u64::from(n));
    }

    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0 ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 32;
    }
}
