//! From an address to its record: a hash table in shards, each under a short lock of its own.

use super::lock;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};

const SHARDS: usize = 64;

/// Base addresses to record numbers.
pub struct Table {
    shards: [Shard; SHARDS],
}

/// Two cache lines: processors fetch them in pairs.
#[repr(align(128))]
struct Shard(Mutex<Entries>, AtomicU64);

type Entries = HashMap<u64, u32, Fold>;

/// A shard, locked.
pub struct Locked<'t> {
    entries: MutexGuard<'t, Entries>,
    begun: &'t AtomicU64,
}

impl Deref for Locked<'_> {
    type Target = Entries;
    fn deref(&self) -> &Entries {
        &self.entries
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Entries {
        &mut self.entries
    }
}

impl Locked<'_> {
    /// Notes that a free of so many bytes began. Only the lock's holder writes, so that no atomic addition is needed.
    #[inline]
    pub fn note_begun(&self, bytes: u64) {
        self.begun.store(self.begun.load(Relaxed).wrapping_add(bytes), Relaxed);
    }
}

impl Table {
    pub const fn new() -> Table {
        Table { shards: [const { Shard(Mutex::new(HashMap::with_hasher(Fold)), AtomicU64::new(0)) }; SHARDS] }
    }

    /// The shard of this address, locked.
    #[inline]
    pub fn shard(&self, address: u64) -> Locked<'_> {
        // Bits between those that hashbrown takes for the place (low) and for the tag (the top 7).
        let shard = &self.shards[(fold(address) >> 48) as usize % SHARDS];
        Locked { entries: lock(&shard.0), begun: &shard.1 }
    }

    /// Bytes of all frees ever begun, wrapping.
    pub fn begun(&self) -> u64 {
        self.shards.iter().fold(0, |sum, s| sum.wrapping_add(s.1.load(Relaxed)))
    }

    /// Forgets an address if it still leads to this record; tells whether it did.
    pub fn forget(&self, address: u64, n: u32) -> bool {
        let mut s = self.shard(address);
        let ours = s.get(&address) == Some(&n);
        if ours {
            s.remove(&address);
        }
        ours
    }
}

/// Hashes an address by one multiplication, both halves of its product folded: addresses are multiples of 512 B, often
/// 2 MiB apart, and nobody who could pick them gains by a collision.
#[inline]
fn fold(address: u64) -> u64 {
    let p = u128::from(address ^ 0x9e37_79b9_7f4a_7c15) * 0xd1342543de82ef95_u128;
    p as u64 ^ (p >> 64) as u64
}

/// The hasher of the table, and its state.
#[derive(Clone, Copy, Default)]
pub struct Fold;

/// A hash under way.
pub struct Folded(u64);

impl BuildHasher for Fold {
    type Hasher = Folded;
    #[inline]
    fn build_hasher(&self) -> Folded {
        Folded(0)
    }
}

impl Hasher for Folded {
    #[inline]
    fn write_u64(&mut self, n: u64) {
        self.0 = fold(self.0 ^ n);
    }

    fn write(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.write_u64(u64::from(*b));
        }
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_addresses_spread_over_shards_and_places() {
        for step in [512, 2 << 20, 1 << 30] {
            let (mut shards, mut places) = ([0; SHARDS], HashMap::new());
            for n in 0..64 * 64 {
                let h = fold(0x7f00_0000_0000 + n * step);
                shards[(h >> 48) as usize % SHARDS] += 1;
                *places.entry(h & 0xfff).or_insert(0) += 1;
            }
            assert!(shards.iter().all(|&n| (16..256).contains(&n)), "step {step}: {shards:?}");
            assert!(places.values().all(|&n| n < 64), "step {step}");
        }
    }
}
