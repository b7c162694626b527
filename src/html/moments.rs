//! Moments that a long history is kept whole at: its peak, its end, every out-of-memory, some marks, and many in between.
//! At a moment the page knows who held how much, and every allocation that can be seen.

use std::collections::{BTreeMap, HashMap};

use super::books::Books;
use super::holders::{Share, largest};
use super::kept::{ALIVE, Kept};
use super::live::Live;

/// A moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    /// When.
    pub time: u64,
    /// What is special about it; empty: nothing.
    pub label: String,
    /// The device of which `shares` tell; none: all.
    pub device: Option<u32>,
    /// Who held most; empty where the page has all allocations and can tell by itself.
    pub shares: Vec<Share>,
    /// Allocations that are not among those the page holds.
    pub untold: u64,
}

/// Keeps what lives at a moment, the largest first, at most so many new ones; says how many are left out.
pub fn keep(books: &Books, kept: &mut Kept, most: usize) -> u64 {
    let mut new: Vec<&Live> = books.live().filter(|l| !kept.has(l.id)).collect();
    new.sort_unstable_by_key(|l| (std::cmp::Reverse(l.bytes), l.id));
    for live in new.iter().take(most) {
        kept.keep(live, ALIVE);
    }
    new.len().saturating_sub(most) as u64
}

/// The moment of a device's peak, while it may still turn out to be another: what lived then and ended since is
/// remembered, so that it need not be known beforehand. Bounded by what lives at the peak.
#[derive(Clone, Debug, Default)]
pub struct Peak {
    /// When.
    pub time: u64,
    /// Bytes that somebody could use then.
    pub active: u64,
    ended: Vec<(Live, u64)>,
}

impl Peak {
    /// A device's active bytes after an event.
    pub fn measure(&mut self, time: u64, active: u64) {
        if active > self.active {
            *self = Peak { time, active, ended: std::mem::take(&mut self.ended) };
            self.ended.clear();
        }
    }

    /// An allocation ended.
    pub fn died(&mut self, live: &Live, now: u64) {
        if live.time <= self.time {
            self.ended.push((*live, now));
        }
    }

    /// It had not ended after all.
    pub fn reopen(&mut self, id: u64) {
        self.ended.retain(|(l, _)| l.id != id);
    }

    /// What lived then, with its end.
    pub fn lives(&self, device: u32, books: &Books) -> Vec<(Live, u64)> {
        let still = books.live().filter(|l| l.device == device && l.time <= self.time);
        self.ended.iter().copied().chain(still.map(|l| (*l, ALIVE))).collect()
    }
}

/// Who held some allocations.
pub fn shares(lives: &[(Live, u64)], most: usize) -> Vec<Share> {
    let mut by_group: HashMap<u32, Share> = HashMap::new();
    for (live, _) in lives {
        let share = by_group.entry(live.group).or_insert(Share { group: live.group, bytes: 0, count: 0 });
        share.bytes = share.bytes.saturating_add(live.bytes);
        share.count += 1;
    }
    largest(by_group.into_values().collect(), most)
}

/// The peaks of all devices.
pub type Peaks = BTreeMap<u32, Peak>;
