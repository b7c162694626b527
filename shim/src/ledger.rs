//! Live allocations that are not plain device memory: by address (or handle), so that a free finds what it frees.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Mutex;

use vramscope_core::event::Memory;

/// What is known of a live allocation.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Number in the history.
    pub id: u64,
    /// Kind of memory.
    pub memory: Memory,
    /// Number of its context.
    pub context: u16,
    /// References: handles of physical memory that are not released, or openings of another process's memory.
    pub count: u32,
    /// Mappings of physical memory: it lives until the last release and the last unmapping.
    pub maps: u32,
    /// Of the program's own, as opposed to what CUDA's runtime keeps for itself.
    pub own: bool,
    /// Bytes asked for.
    pub bytes: u64,
    /// Ordinal of the device; -1: none.
    pub device: i32,
    /// Asked for by a library that is a caching pool itself.
    pub hoarded: bool,
}

/// Addresses are multiples of 512 or page aligned: one multiplication spreads them.
#[derive(Default)]
pub struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.write_u64(u64::from(*b));
        }
    }
    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0 ^ n).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23);
    }
}

type Map = HashMap<u64, Entry, BuildHasherDefault<AddressHasher>>;

const SHARDS: usize = 16;

/// The table.
pub struct Ledger {
    shards: [Mutex<Option<Map>>; SHARDS],
}

impl Ledger {
    /// An empty table.
    pub const fn new() -> Ledger {
        Ledger { shards: [const { Mutex::new(None) }; SHARDS] }
    }

    fn with<T>(&self, key: u64, f: impl FnOnce(&mut Map) -> T) -> T {
        let shard = (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 60) as usize;
        let mut g = self.shards[shard].lock().unwrap_or_else(|e| e.into_inner());
        f(g.get_or_insert_with(Map::default))
    }

    /// Adds an allocation; gives back what the table still held there: it was freed behind our back.
    pub fn insert(&self, key: u64, e: Entry) -> Option<Entry> {
        self.with(key, |m| m.insert(key, e))
    }

    /// Looks one up.
    pub fn get(&self, key: u64) -> Option<Entry> {
        self.with(key, |m| m.get(&key).copied())
    }

    /// Takes one out.
    pub fn remove(&self, key: u64) -> Option<Entry> {
        self.with(key, |m| m.remove(&key))
    }

    /// Changes one in place.
    pub fn update<T>(&self, key: u64, f: impl FnOnce(&mut Entry) -> T) -> Option<T> {
        self.with(key, |m| m.get_mut(&key).map(f))
    }

    /// A context ended: its pinned, managed and pitched memory is gone; stream-ordered and VMM memory is not.
    pub fn drop_context(&self, number: u16) {
        for s in &self.shards {
            if let Some(m) = s.lock().unwrap_or_else(|e| e.into_inner()).as_mut() {
                m.retain(|_, e| {
                    let gone = e.context == number && !matches!(e.memory, Memory::Async | Memory::Vmm);
                    if gone {
                        crate::usage::gone(e);
                    }
                    !gone
                });
            }
        }
    }
}
