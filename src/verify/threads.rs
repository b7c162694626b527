//! The events of a thread are counted from 0, in order of time; a jump in the count is a loss.

use std::collections::HashMap;

use vramscope_core::event::Event;
use vramscope_core::spread::Spread;
use vramscope_core::trace::Thread;

use super::findings::{At, Findings, Kind};

#[derive(Debug, Default)]
struct State {
    next: u64,
    time: u64,
}

/// The threads of a history.
#[derive(Debug, Default)]
pub struct Threads {
    threads: HashMap<u32, State, Spread>,
    /// The history began before what was read of it.
    pub part: bool,
    /// Events that are missing by the threads' counts,
    pub jumped: u64,
    /// and where the first of them is.
    pub jump: At,
    /// Events read, and the latest time of one.
    pub events: u64,
    /// See there.
    pub time: u64,
}

impl Threads {
    /// No thread is known. `part`: see [`Threads::part`].
    pub fn new(part: bool) -> Threads {
        Threads { part, ..Threads::default() }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.threads.len()
    }

    /// A thread begins, or goes on at another number.
    pub fn line(&mut self, line: &Thread, at: At, findings: &mut Findings) {
        let new = !self.threads.contains_key(&line.thread);
        let state = self.threads.entry(line.thread).or_default();
        if line.sequence < state.next {
            let (thread, next) = (line.thread, state.next);
            findings.add(Kind::Sequence, at, || format!("thread {thread} goes from {next} back to {}", line.sequence));
        } else if line.sequence > state.next && !(new && self.part) {
            if self.jumped == 0 {
                self.jump = at;
            }
            self.jumped = self.jumped.saturating_add(line.sequence - state.next);
        }
        state.next = line.sequence;
    }

    /// Looks at an event.
    pub fn event(&mut self, thread: u32, e: &Event, at: At, findings: &mut Findings) {
        self.events += 1;
        self.time = self.time.max(e.time);
        let state = self.threads.entry(thread).or_insert_with(|| {
            findings.add(Kind::Undefined, at, || format!("thread {thread}"));
            State::default()
        });
        state.next += 1;
        if e.time < state.time {
            findings.add(Kind::TimeBack, at, || format!("thread {thread} goes from {} back to {}", state.time, e.time));
        }
        state.time = e.time;
    }
}
