//! The rules that were worked out so far, by code address, for all threads.
//!
//! No lock: an entry is a pair of words, the first of which is the key mixed with the second, so
//! that a pair torn by two writers matches no key. What is lost is worked out again.
//!
//! It is small on purpose. In a live program the misses of the processor's caches are the largest
//! part of a capture, and a process knows some thousand call sites at most.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::rule::Rule;

const BITS: u32 = 14;
const SIZE: usize = 1 << BITS;
const MIX: u64 = 0xd6e8_feb8_6659_fd93;

#[repr(C, align(16))]
struct Entry {
    key: AtomicU64,
    rule: AtomicU64,
}

#[repr(C, align(64))]
struct Table([Entry; SIZE]);

static TABLE: Table = Table([const { Entry { key: AtomicU64::new(0), rule: AtomicU64::new(0) } }; SIZE]);

/// A code address and the generation it was seen in: 48 and 16 bits.
#[inline(always)]
fn key(at: u64, generation: u64) -> u64 {
    at ^ generation << 48
}

#[inline(always)]
fn home(at: u64) -> usize {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - BITS)) as usize
}

impl Entry {
    /// The rule and the key it belongs to.
    #[inline(always)]
    fn load(&self) -> (Rule, u64) {
        let rule = self.rule.load(Relaxed);
        (Rule(rule), self.key.load(Relaxed) ^ rule.wrapping_mul(MIX))
    }

    fn store(&self, key: u64, rule: Rule) {
        self.rule.store(rule.0, Relaxed);
        self.key.store(key ^ rule.0.wrapping_mul(MIX), Relaxed);
    }
}

/// The rule for the code at `at`, if it is known in this generation.
#[inline(always)]
pub(super) fn get(at: u64, generation: u64) -> Option<Rule> {
    let (key, i) = (key(at, generation), home(at));
    let (rule, of) = TABLE.0[i].load();
    if of == key {
        return Some(rule);
    }
    let (rule, of) = TABLE.0[i ^ 1].load();
    (of == key).then_some(rule)
}

/// Remembers a rule, in place of a stale one if there is one.
pub(super) fn put(at: u64, generation: u64, rule: Rule) {
    let (key, i) = (key(at, generation), home(at));
    let stale = |i: usize| (TABLE.0[i].load().1 ^ key) >> 48 != 0;
    let j = if stale(i) { i } else { i ^ 1 };
    TABLE.0[j].store(key, rule);
}

/// Forgets everything. Nobody may be about to read.
pub(super) fn clear() {
    for entry in &TABLE.0 {
        entry.key.store(0, Relaxed);
        entry.rule.store(0, Relaxed);
    }
}
