//! The allocations that the page holds one by one: all of a short history; of a long one, those that are seen.

use std::collections::HashMap;

use vramscope_core::spread::Spread;

use super::live::{Live, Segment};

/// Still there at the end.
pub const ALIVE: u64 = u64::MAX;

/// An allocation and its end.
#[derive(Clone, Copy, Debug)]
pub struct Life {
    /// What it was.
    pub live: Live,
    /// When it ended, or [`ALIVE`].
    pub end: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Kept {
    lives: Vec<Life>,
    by_id: HashMap<u64, u32, Spread>,
}

impl Kept {
    /// Keeps an allocation, if it is not kept yet; gives its place.
    pub fn keep(&mut self, live: &Live, end: u64) -> u32 {
        *self.by_id.entry(live.id).or_insert_with(|| {
            self.lives.push(Life { live: *live, end });
            self.lives.len() as u32 - 1
        })
    }

    /// It ended: where it was in the end is where it was.
    pub fn end(&mut self, live: &Live, end: u64) {
        if let Some(at) = self.by_id.get(&live.id) {
            self.lives[*at as usize] = Life { live: *live, end };
        }
    }

    /// It did not end.
    pub fn reopen(&mut self, id: u64) {
        if let Some(at) = self.by_id.get(&id) {
            self.lives[*at as usize].end = ALIVE;
        }
    }

    /// Whether it is kept.
    pub fn has(&self, id: u64) -> bool {
        self.by_id.contains_key(&id)
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.lives.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.lives.is_empty()
    }

    /// The allocations in the order of their beginnings, and for each place its new place.
    pub fn sorted(self) -> (Vec<Life>, Vec<u32>) {
        let mut order: Vec<u32> = (0..self.lives.len() as u32).collect();
        order.sort_by_key(|i| (self.lives[*i as usize].live.time, self.lives[*i as usize].live.id));
        let mut places = vec![0; order.len()];
        for (new, old) in order.iter().enumerate() {
            places[*old as usize] = new as u32;
        }
        (order.iter().map(|i| self.lives[*i as usize]).collect(), places)
    }
}

/// A segment and its end.
#[derive(Clone, Copy, Debug)]
pub struct Stay {
    /// What it was.
    pub segment: Segment,
    /// When it ended, or [`ALIVE`].
    pub end: u64,
}
