//! Who holds memory: allocations of one stack, caller, kind, thread and region, counted as a history goes by.

use std::collections::HashMap;

use vramscope_core::event::Event;

use super::live::{Kind, Live};

/// What the allocations of a group have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// Device, or [`super::live::HOST`].
    pub device: u32,
    /// Number of the stack, 0: none.
    pub stack: u32,
    /// Number of the calling module, 0: unknown.
    pub caller: u32,
    /// What they are.
    pub kind: Kind,
    /// Number of the thread.
    pub thread: u32,
    /// The innermost region they were made in: number of its text, 0: none.
    pub region: u32,
}

/// A group.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// What they have in common.
    pub key: Key,
    /// Bytes now.
    pub bytes: u64,
    /// How many now.
    pub count: u64,
    /// Most bytes at once.
    pub most: u64,
    /// Bytes of all there ever were.
    pub ever: u64,
    /// How many there ever were.
    pub times: u64,
}

/// What a group holds at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Its number.
    pub group: u32,
    /// Bytes.
    pub bytes: u64,
    /// How many allocations.
    pub count: u64,
}

/// All groups.
#[derive(Debug, Default)]
pub struct Holders {
    all: Vec<Group>,
    by_key: HashMap<Key, u32>,
}

/// Groups told apart; beyond, those of further regions and threads are put together with others of their stack.
const MOST: usize = 60_000;

impl Holders {
    /// The groups, by number.
    pub fn all(&self) -> &[Group] {
        &self.all
    }

    /// The number of the group an allocation belongs to.
    pub fn find(&mut self, e: &Event, live: &Live, kind: Kind, thread: u32, region: u32) -> u32 {
        let whole = self.all.len() >= MOST;
        let (thread, region) = if whole { (0, 0) } else { (thread, region) };
        let key = Key { device: live.device, stack: e.stack, caller: e.caller, kind, thread, region };
        *self.by_key.entry(key).or_insert_with(|| {
            self.all.push(Group { key, bytes: 0, count: 0, most: 0, ever: 0, times: 0 });
            self.all.len() as u32 - 1
        })
    }

    /// One more allocation; `new`: it was not live before.
    pub fn add(&mut self, group: u32, bytes: u64, new: bool) {
        let g = &mut self.all[group as usize];
        g.bytes = g.bytes.saturating_add(bytes);
        g.count += 1;
        g.most = g.most.max(g.bytes);
        if new {
            g.ever = g.ever.saturating_add(bytes);
            g.times += 1;
        }
    }

    /// One less.
    pub fn take(&mut self, group: u32, bytes: u64) {
        let g = &mut self.all[group as usize];
        g.bytes = g.bytes.saturating_sub(bytes);
        g.count = g.count.saturating_sub(1);
    }

    /// What they hold now, the largest of each device first.
    pub fn now(&self, most: usize) -> Vec<Share> {
        let live = self.all.iter().enumerate().filter(|(_, g)| g.count > 0);
        let share = |(i, g): (usize, &Group)| Share { group: i as u32, bytes: g.bytes, count: g.count };
        largest(live.map(share).collect(), most)
    }
}

/// The largest shares.
pub fn largest(mut shares: Vec<Share>, most: usize) -> Vec<Share> {
    shares.sort_by_key(|s| (std::cmp::Reverse(s.bytes), s.group));
    shares.truncate(most);
    shares
}
