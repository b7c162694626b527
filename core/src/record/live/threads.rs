//! The threads of a history: the number of each one's next event, and what it freed last.

use std::collections::HashMap;

use super::Entry;
use crate::spread::Spread;
use crate::trace::Thread;

#[derive(Clone, Debug)]
struct State {
    /// With the number of the next event.
    thread: Thread,
    /// The allocation and the segment freed last: a failed free brings them back.
    freed: Option<Box<[Option<Entry>; 2]>>,
}

/// Threads beyond which what the others freed last is forgotten now and then.
const MANY: usize = 4096;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Threads {
    all: Vec<State>,
    by_number: HashMap<u32, usize, Spread>,
    /// Most events come from the thread of the event before.
    last: (u32, usize),
}

impl Threads {
    pub(super) fn set(&mut self, thread: &Thread) {
        if let Some(at) = self.at(thread.thread) {
            self.all[at].thread = thread.clone();
            return;
        }
        if self.all.len() >= MANY && self.all.len().is_power_of_two() {
            self.all.iter_mut().for_each(|s| s.freed = None);
        }
        self.by_number.insert(thread.thread, self.all.len());
        self.all.push(State { thread: thread.clone(), freed: None });
    }

    fn at(&mut self, number: u32) -> Option<usize> {
        if self.last.0 != number || number == 0 {
            self.last = (number, *self.by_number.get(&number)?);
        }
        Some(self.last.1)
    }

    /// One more event of it.
    pub(super) fn count(&mut self, number: u32) {
        if let Some(at) = self.at(number) {
            let next = &mut self.all[at].thread.sequence;
            *next = next.saturating_add(1);
        }
    }

    /// It freed this; `None`: something that is not known.
    pub(super) fn freed(&mut self, number: u32, segment: bool, entry: Option<Entry>) {
        if let Some(at) = self.at(number) {
            self.all[at].freed.get_or_insert_with(Box::default)[usize::from(segment)] = entry;
        }
    }

    /// The free of `id` did not happen: what it was.
    pub(super) fn unfreed(&mut self, number: u32, id: u64) -> Option<Entry> {
        let at = self.at(number)?;
        let freed = self.all[at].freed.as_mut()?;
        freed.iter_mut().find(|e| e.is_some_and(|e| e.event.id == id))?.take()
    }

    /// All of them, by number.
    pub(super) fn lines(&self) -> Vec<&Thread> {
        let mut all: Vec<&Thread> = self.all.iter().map(|s| &s.thread).collect();
        all.sort_by_key(|t| t.thread);
        all
    }
}
