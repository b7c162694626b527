//! Live allocations summed up by who made them: one stack, one caller, one kind of memory; and how the sum was before.

use crate::event::{Event, Memory, Source};

/// How far the history is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moment {
    /// Events so far, in all parts.
    pub events: u64,
    /// Allocations freed so far.
    pub frees: u64,
    /// Time of the last event.
    pub time: u64,
}

/// What a group amounted to at an earlier moment.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    at: Moment,
    count: u64,
    bytes: u64,
}

/// Earlier moments kept a group.
const MARKS: usize = 8;

/// Stacks are numbered one after the other: a number beyond this comes from a damaged spool.
const STACKS: u32 = 1 << 24;

const NONE: u32 = u32::MAX;

/// Allocations of one stack, caller, context and kind.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// Their stack.
    pub stack: u32,
    /// The module that called.
    pub caller: u32,
    /// Their context.
    pub context: u16,
    /// Their kind.
    pub memory: Memory,
    /// The pool serves them.
    pub pooled: bool,
    /// How many are live,
    pub count: u64,
    /// and their bytes.
    pub bytes: u64,
    /// Most bytes at once.
    pub peak: u64,
    /// The next group of the same stack.
    next: u32,
    /// Marks, the oldest first: denser the younger.
    marks: [Mark; MARKS],
    marked: usize,
    /// Event from which the next mark is due.
    due: u64,
}

/// A group that grows: what it had before and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Growth {
    /// How many it had.
    pub count: u64,
    /// More bytes now.
    pub bytes: u64,
    /// Nanoseconds since.
    pub since: u64,
    /// Other memory was freed meanwhile, twice as often as this one grew: it is kept, and not just loaded.
    pub busy: bool,
}

impl Group {
    /// Remembers the sum as it is, before it changes. Costs one comparison most of the time.
    #[inline]
    fn mark(&mut self, now: &Moment) {
        if now.events >= self.due {
            self.mark_now(now);
        }
    }

    #[cold]
    fn mark_now(&mut self, now: &Moment) {
        if self.marked == MARKS {
            // The one whose going leaves the smallest hole, as seen from now: distances double into the past.
            let span = |i: usize| (now.events - self.marks[i].at.events).max(1);
            let hole = |i: &usize| span(i - 1) * 1024 / span(i + 1);
            let out = (1..MARKS - 1).min_by_key(hole).unwrap_or(1);
            self.marks.copy_within(out + 1.., out);
            self.marked -= 1;
        }
        self.marks[self.marked] = Mark { at: *now, count: self.count, bytes: self.bytes };
        self.marked += 1;
        let age = now.events - self.marks[0].at.events;
        self.due = now.events + (age / 64).max(8);
    }

    /// The sum nearest to an event, after the first.
    fn near(&self, event: u64) -> Mark {
        let later = self.marks[..self.marked].iter().skip(1);
        later.min_by_key(|m| m.at.events.abs_diff(event)).copied().unwrap_or(self.marks[0])
    }

    /// Whether it grew all along.
    pub(super) fn growth(&self, now: &Moment) -> Option<Growth> {
        let age = now.events.checked_sub(self.marks[0].at.events)?;
        if self.marked == 0 || self.count < 4 || self.bytes != self.peak {
            return None;
        }
        let mut then: Vec<Mark> = [2, 4, 8].map(|part| self.near(now.events - age / part)).into();
        then.dedup_by_key(|m| m.at.events);
        let first = then[0];
        // Loaded long ago: nothing came since.
        let still = now.events - self.marks[self.marked - 1].at.events > age / 4;
        let grew = !still
            && then.len() > 1
            && then.windows(2).all(|w| w[0].bytes < w[1].bytes)
            && then.last().is_some_and(|m| m.bytes < self.bytes)
            && first.count < self.count;
        // Weights that are loaded and the activations of a first pass grow as well, but nothing is freed meanwhile.
        let busy = grew && now.frees - first.at.frees >= 2 * (self.count - first.count);
        grew.then(|| Growth {
            count: first.count,
            bytes: self.bytes - first.bytes,
            since: now.time.saturating_sub(first.at.time),
            busy,
        })
    }
}

/// All groups.
#[derive(Debug, Default)]
pub(super) struct Groups {
    all: Vec<Group>,
    /// The first group of each stack.
    first: Vec<u32>,
}

impl Groups {
    pub(super) fn all(&self) -> &[Group] {
        &self.all
    }

    /// Counts an allocation; gives its group.
    pub(super) fn add(&mut self, e: &Event, bytes: u64, now: &Moment) -> u32 {
        let at = self.find(e, now);
        let g = &mut self.all[at as usize];
        g.mark(now);
        g.count += 1;
        g.bytes = g.bytes.saturating_add(bytes);
        g.peak = g.peak.max(g.bytes);
        at
    }

    /// Counts one out.
    pub(super) fn take(&mut self, group: u32, bytes: u64, now: &Moment) {
        let g = &mut self.all[group as usize];
        g.mark(now);
        g.count = g.count.saturating_sub(1);
        g.bytes = g.bytes.saturating_sub(bytes);
    }

    #[inline]
    fn find(&mut self, e: &Event, now: &Moment) -> u32 {
        let stack = if e.stack < STACKS { e.stack } else { 0 };
        let pooled = e.how == Source::Hit as u8 || e.how == Source::Miss as u8;
        let first = self.first.get(stack as usize).copied().unwrap_or(NONE);
        let mut at = first;
        while let Some(g) = self.all.get(at as usize) {
            if (g.caller, g.context, g.memory, g.pooled) == (e.caller, e.context, e.memory, pooled) {
                return at;
            }
            at = g.next;
        }
        self.make(e, stack, pooled, first, now)
    }

    #[cold]
    fn make(&mut self, e: &Event, stack: u32, pooled: bool, next: u32, now: &Moment) -> u32 {
        let at = self.all.len() as u32;
        if self.first.len() <= stack as usize {
            self.first.resize(stack as usize + 1, NONE);
        }
        self.first[stack as usize] = at;
        self.all.push(Group {
            stack,
            caller: e.caller,
            context: e.context,
            memory: e.memory,
            pooled,
            count: 0,
            bytes: 0,
            peak: 0,
            next,
            marks: [Mark::default(); MARKS],
            marked: 0,
            due: now.events,
        });
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays `rounds` of a loop that frees `temporaries` and keeps one allocation of `kept` bytes.
    fn looped(rounds: u64, temporaries: u64, kept: bool) -> (Groups, Moment) {
        let (mut groups, mut now) = (Groups::default(), Moment::default());
        let mut step = |stack: u32, free: bool| {
            now.events += 1;
            now.time += 1000;
            let e = Event { stack, ..Event::default() };
            let group = groups.add(&e, 100, &now);
            if free {
                now.events += 1;
                now.frees += 1;
                groups.take(group, 100, &now);
            }
        };
        for _ in 0..rounds {
            (0..temporaries).for_each(|_| step(1, true));
            step(2, !kept);
        }
        (groups, now)
    }

    #[test]
    fn what_is_kept_in_a_loop_grows() {
        for rounds in [10, 100, 10_000] {
            let (groups, now) = looped(rounds, 5, true);
            let growth = groups.all()[1].growth(&now).unwrap_or_else(|| panic!("{rounds} rounds"));
            assert!(
                growth.busy && growth.count <= rounds * 3 / 4 && growth.count >= rounds / 5,
                "{growth:?} of {rounds}"
            );
            assert_eq!(growth.bytes, (rounds - growth.count) * 100);
            assert_eq!(groups.all()[0].growth(&now), None, "temporaries");
        }
    }

    #[test]
    fn what_is_loaded_or_freed_does_not() {
        let (groups, now) = looped(1000, 0, true);
        assert!(groups.all()[0].growth(&now).is_some_and(|g| !g.busy), "nothing was freed meanwhile");
        let (groups, now) = looped(1000, 5, false);
        assert!(groups.all().iter().all(|g| g.growth(&now).is_none() && g.count == 0));
    }

    #[test]
    fn a_group_a_stack_caller_and_kind() {
        let mut groups = Groups::default();
        let now = Moment::default();
        let e = Event { stack: 7, caller: 1, memory: Memory::Device, ..Event::default() };
        let a = groups.add(&e, 10, &now);
        let b = groups.add(&Event { caller: 2, ..e }, 10, &now);
        let c = groups.add(&Event { how: Source::Hit as u8, ..e }, 10, &now);
        assert_eq!(groups.add(&e, 10, &now), a);
        assert!(a != b && b != c && groups.all().len() == 3);
        assert_eq!((groups.all()[a as usize].count, groups.all()[a as usize].peak), (2, 20));
        // A number that cannot be makes no table of its size.
        groups.add(&Event { stack: u32::MAX, ..e }, 10, &now);
        assert_eq!(groups.first.len(), 8);
    }
}
