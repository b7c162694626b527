//! Places that allocate: one a call stack and kind of memory (without stacks, one a size). How many of each live goes into a
//! [`Curve`]; who frees them, how long they stay, and of which sizes those are that stay, is counted.

use std::collections::HashMap;

use vramscope_core::event::{Event, Memory};
use vramscope_core::spread::Spread;

use super::curve::{Curve, Point, Rhythm};
use super::ledger::{Alive, Holder};

/// Sizes kept apart of what a site keeps.
const SIZES: usize = 256;
/// An allocation that saw this many more of its site come is one that stays,
const STAYS: u64 = 8;
/// if these are one in so many of all so far.
const PART: u64 = 8;

/// How much at once, and when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Most {
    /// Allocations.
    pub count: u64,
    /// Bytes.
    pub bytes: u64,
    /// As which allocation of the history.
    pub ordinal: u64,
    /// When.
    pub time: u64,
}

/// A place.
#[derive(Clone, Debug, Default)]
pub struct Site {
    /// Number of its call stack, 0: none.
    pub stack: u32,
    /// Number of the calling module.
    pub caller: u32,
    /// Kind of memory.
    pub memory: Memory,
    /// It makes PyTorch's segments.
    pub torch: bool,
    /// It makes PyTorch's tensors.
    pub tensor: bool,
    /// Ordinal of the device of the first.
    pub device: u32,
    /// Allocations.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Live now: count and bytes.
    pub live: (u64, u64),
    /// Most live at once.
    pub most: Most,
    /// When the first came: time, and as which allocation of the history.
    pub first: (u64, u64),
    /// When the last came.
    pub last: (u64, u64),
    /// How what lives goes on.
    pub curve: Curve,
    /// How regularly they come.
    pub rhythm: Rhythm,
    /// Allocations made in a thread of PyTorch's backward pass.
    pub backward: u64,
    /// Frees,
    pub frees: u64,
    /// those before its last allocation,
    pub frees_before_last: u64,
    /// and those of them in such a thread.
    pub frees_backward: u64,
    /// Stacks that freed, a few of them, with how many.
    pub freed_by: Vec<(u32, u64)>,
    /// Freed before the next allocation of the history came: count and bytes.
    pub at_once: (u64, u64),
    /// Those that stayed long,
    pub stayed: u64,
    /// by size.
    pub sizes: HashMap<u64, u32>,
    /// The size of the last.
    pub last_bytes: u64,
    /// Live before the first free since an allocation of the history, of that number: number, count and bytes.
    freed_since: (u64, (u64, u64)),
}

impl Site {
    /// What was live when the last allocation of the history, of this number, came: what an exit freed is in it.
    pub fn at_last(&self, ordinal: u64) -> (u64, u64) {
        if self.freed_since.0 == ordinal { self.freed_since.1 } else { self.live }
    }
}

/// All places.
#[derive(Debug, Default)]
pub struct Sites {
    /// By number.
    pub all: Vec<Site>,
    by_key: HashMap<u64, u32, Spread>,
}

impl Sites {
    pub(super) fn of(&mut self, h: &Holder, e: &Event) -> u32 {
        let what = if h.stack == 0 { e.bytes.wrapping_mul(2) | 1 } else { u64::from(h.stack) * 2 };
        let key = what.wrapping_mul(64) + h.memory as u64 * 4 + u64::from(h.torch) * 2;
        let next = self.all.len() as u32;
        let site = *self.by_key.entry(key).or_insert(next);
        if site == next {
            self.all.push(Site {
                stack: h.stack,
                caller: h.caller,
                memory: h.memory,
                torch: h.torch,
                tensor: h.tensor,
                device: h.device,
                first: (e.time, 0),
                ..Site::default()
            });
        }
        site
    }

    /// One more; gives its number among those of its site.
    pub(super) fn came(&mut self, a: &Alive, e: &Event, backward: bool) -> u64 {
        let s = &mut self.all[a.site as usize];
        s.count += 1;
        s.bytes += a.bytes;
        s.backward += u64::from(backward);
        s.last_bytes = a.bytes;
        let (count, bytes) = s.live;
        s.curve.add(Point { nth: s.count, ordinal: a.ordinal, time: e.time, count, bytes });
        s.rhythm.beat(a.ordinal);
        s.frees_before_last = s.frees;
        s.live = (count + 1, bytes + a.bytes);
        if s.count == 1 {
            s.first = (e.time, a.ordinal);
        }
        s.last = (e.time, a.ordinal);
        if s.live.1 > s.most.bytes {
            s.most = Most { count: s.live.0, bytes: s.live.1, ordinal: a.ordinal, time: e.time };
        }
        s.count
    }

    fn site(&mut self, a: &Alive) -> Option<&mut Site> {
        self.all.get_mut(a.site as usize)
    }

    /// One less; `ordinal`: allocations of the history so far.
    pub(super) fn gone(&mut self, a: &Alive, stack: u32, backward: bool, ordinal: u64) {
        let Some(s) = self.site(a) else { return };
        if s.freed_since.0 != ordinal {
            s.freed_since = (ordinal, s.live);
        }
        s.live = (s.live.0.saturating_sub(1), s.live.1.saturating_sub(a.bytes));
        s.frees += 1;
        s.frees_backward += u64::from(backward);
        if let Some((_, n)) = s.freed_by.iter_mut().find(|(by, _)| *by == stack) {
            *n += 1;
        } else if s.freed_by.len() < 4 {
            s.freed_by.push((stack, 1));
        }
        stays(s, a);
    }

    /// It is live at the end.
    pub(super) fn still(&mut self, a: &Alive) {
        if let Some(s) = self.site(a) {
            stays(s, a);
        }
    }

    /// The free did not happen.
    pub(super) fn came_back(&mut self, a: &Alive) {
        let Some(s) = self.site(a) else { return };
        s.live = (s.live.0 + 1, s.live.1 + a.bytes);
        s.frees = s.frees.saturating_sub(1);
    }

    pub(super) fn at_once(&mut self, a: &Alive) {
        let Some(s) = self.site(a) else { return };
        s.at_once = (s.at_once.0 + 1, s.at_once.1 + a.bytes);
    }
}

fn stays(s: &mut Site, a: &Alive) {
    let saw = s.count.saturating_sub(a.nth);
    if saw >= STAYS && saw * PART >= s.count {
        s.stayed += 1;
        if let Some(n) = s.sizes.get_mut(&a.bytes) {
            *n += 1;
        } else if s.sizes.len() < SIZES {
            s.sizes.insert(a.bytes, 1);
        }
    }
}
