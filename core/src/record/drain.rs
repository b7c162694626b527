//! The one consumer of all rings: the writer thread, or `recover`.
//!
//! A round reads every ring's head three times: for the events, then for the stacks, then for the other definitions; and
//! hands out the other definitions below the third reading, the stacks below the second, the events below the first. A
//! thread commits a definition before it tells its number to others, so whatever a record refers to lies, in whichever
//! ring, below a later reading than the record: modules come before the stacks in them, stacks before events.
//!
//! Events are handed out merged by time, and those newer than the round's time wait for the next round. With that, an
//! event that was caused by an event of another thread (a free, by an allocation) follows it in the file: its time is
//! later, and whatever is earlier than the round's time was in its ring before the heads were read.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::definition::{self, PAYLOAD, payload_words};
use super::ring::{Ring, SEQUENCE};
use super::spool::Spool;
use crate::event::Event;
use crate::trace::{Line, Thread};

/// How far one ring was read.
#[derive(Clone, Default)]
struct Cursor {
    /// Next slot to hand out.
    next: u64,
    /// Slots below are written and free.
    written: u64,
    /// Definitions other than stacks below were handed out,
    defined: u64,
    /// and stacks below.
    stacked: u64,
    /// Third and second reading of the head in this round.
    defined_head: u64,
    stacked_head: u64,
    /// First reading of the head, this round and the last.
    head: u64,
    head_before: u64,
    /// Number of the thread whose events these are; 0: none seen.
    thread: u32,
    /// The thread's next event number, if its line was handed out.
    expected: Option<u64>,
}

/// What a round hands out after the definitions.
pub(super) enum Item {
    /// The next event of this thread has this number.
    Thread(Thread),
    /// An event of a thread. Its time is raw.
    Event(u32, Event),
}

/// The consumer's state.
pub(super) struct Drain<'a> {
    spool: Spool<'a>,
    cursors: Vec<Cursor>,
    /// Raw time up to which events are handed out in this round.
    until: u64,
    /// The rings' next events, earliest first.
    order: BinaryHeap<Reverse<(u64, usize)>>,
    /// The ring being read, and up to which time it stays the earliest.
    current: Option<(usize, u64)>,
    /// Ring whose definitions come next: all rings' definitions other than stacks, then all rings' stacks.
    defining: usize,
    /// Recover: for each thread of the file, the number of its first event that the file does not hold.
    resume: HashMap<u32, u64>,
    /// Recover leaves the spool as it is.
    read_only: bool,
    /// Slots that could not be read (a damaged spool).
    pub(super) damaged: u64,
    /// Events that its threads counted and that were not handed out.
    pub(super) jumped: u64,
}

impl<'a> Drain<'a> {
    pub(super) fn new(spool: Spool<'a>) -> Drain<'a> {
        Drain {
            spool,
            cursors: Vec::new(),
            until: 0,
            order: BinaryHeap::new(),
            current: None,
            defining: 0,
            resume: HashMap::new(),
            read_only: false,
            damaged: 0,
            jumped: 0,
        }
    }

    /// For recover: hands out only what a file with these events of each thread lacks, and changes nothing.
    pub(super) fn resume(spool: Spool<'a>, next: HashMap<u32, u64>) -> Drain<'a> {
        Drain { resume: next, read_only: true, ..Drain::new(spool) }
    }

    /// Begins a round. Events with a raw time after `until` wait, but not for more than one round.
    pub(super) fn begin(&mut self, until: u64) {
        self.until = until;
        for i in self.cursors.len()..self.spool.usable_rings() {
            let tail = self.spool.ring(i).tail();
            self.cursors.push(Cursor {
                next: tail,
                written: tail,
                defined: tail,
                stacked: tail,
                head: tail,
                ..Cursor::default()
            });
        }
        for i in 0..self.cursors.len() {
            let ring = self.spool.ring(i);
            let head = self.clamp(self.cursors[i].next, ring.head());
            let cursor = &mut self.cursors[i];
            cursor.head_before = cursor.head;
            cursor.head = head;
            // The ring went to another thread only after all of it was written.
            if cursor.next < head && cursor.thread != ring.thread() {
                cursor.thread = ring.thread();
                cursor.expected = self.resume.get(&cursor.thread).copied();
            }
        }
        self.defining = 0;
        self.current = None;
        self.order.clear();
        self.read_definition_heads();
    }

    /// A head that cannot be (a damaged spool) holds nothing.
    fn clamp(&self, from: u64, head: u64) -> u64 {
        if head.wrapping_sub(from) <= self.spool.slots() as u64 { head } else { from }
    }

    /// The second and the third reading of the heads.
    fn read_definition_heads(&mut self) {
        for i in 0..self.cursors.len() {
            self.cursors[i].stacked_head = self.clamp(self.cursors[i].next, self.spool.ring(i).head());
        }
        for i in 0..self.cursors.len() {
            self.cursors[i].defined_head = self.clamp(self.cursors[i].next, self.spool.ring(i).head());
        }
    }

    /// The next definition. After the last one come the events.
    pub(super) fn next_definition(&mut self) -> Option<Line> {
        let rings = self.cursors.len();
        while self.defining < 2 * rings {
            let (i, stacks) = (self.defining % rings, self.defining >= rings);
            let ring = self.spool.ring(i);
            loop {
                let cursor = &mut self.cursors[i];
                let (at, head) = match stacks {
                    true => (&mut cursor.stacked, cursor.stacked_head),
                    false => (&mut cursor.defined, cursor.defined_head),
                };
                if *at >= head {
                    break;
                }
                let here = *at;
                let slots = slots_at(&ring, here, head);
                *at += slots;
                if definition::is_stack(ring.peek(here).map_or(0, |(kind, _)| kind)) == stacks
                    && (slots > 1 || is_definition(&ring, here))
                {
                    match decode(&ring, here, slots) {
                        Some(line) => return Some(line),
                        None => self.damaged += 1,
                    }
                }
            }
            self.defining += 1;
        }
        for i in 0..self.cursors.len() {
            if let Some(time) = self.peek(i) {
                self.order.push(Reverse((time, i)));
            }
        }
        None
    }

    /// The time of the ring's next event of this round. Steps over what holds no event for the file.
    fn peek(&mut self, i: usize) -> Option<u64> {
        let ring = self.spool.ring(i);
        let cursor = &mut self.cursors[i];
        while cursor.next < cursor.head {
            match ring.peek(cursor.next) {
                Some((kind, length)) if payload_words(kind, length).is_some() => {
                    cursor.next += slots_at(&ring, cursor.next, cursor.head);
                }
                Some((_, time)) if time <= self.until || cursor.next < cursor.head_before => return Some(time),
                Some(_) => return None,
                None => {
                    self.damaged += 1;
                    cursor.next += 1;
                }
            }
        }
        None
    }

    /// The next event, or the line of its thread that must come before.
    pub(super) fn next_event(&mut self) -> Option<Item> {
        loop {
            let (i, earliest_until) = match self.current {
                Some(current) => current,
                None => {
                    let Reverse((_, i)) = self.order.pop()?;
                    (i, self.order.peek().map_or(u64::MAX, |Reverse((time, _))| *time))
                }
            };
            self.current = Some((i, earliest_until));
            let item = self.take(i);
            // Is this ring still the earliest?
            if !matches!(item, Some(Item::Thread(_))) {
                match self.peek(i) {
                    Some(time) if time <= earliest_until => {}
                    Some(time) => {
                        self.order.push(Reverse((time, i)));
                        self.current = None;
                    }
                    None => self.current = None,
                }
            }
            if item.is_some() {
                return item;
            }
        }
    }

    /// The event at the cursor. `None`: it is in the file already, or cannot be read.
    fn take(&mut self, i: usize) -> Option<Item> {
        let ring = self.spool.ring(i);
        let cursor = &mut self.cursors[i];
        let Some((words, event)) = ring.read(cursor.next).and_then(|words| Some((words, Event::decode(&words)?)))
        else {
            cursor.next += 1;
            self.damaged += 1;
            return None;
        };
        let sequence = words[SEQUENCE];
        let in_file = self.read_only && self.resume.get(&cursor.thread).is_some_and(|&next| sequence < next);
        if in_file {
            cursor.next += 1;
            return None;
        }
        if cursor.expected != Some(sequence) {
            let before = cursor.expected.replace(sequence).unwrap_or(0);
            self.jumped = sequence.saturating_sub(before).saturating_add(self.jumped);
            let thread = cursor.thread;
            return Some(Item::Thread(Thread { thread, tid: ring.tid(), name: ring.name(), sequence }));
        }
        cursor.next += 1;
        cursor.expected = Some(sequence.saturating_add(1));
        Some(Item::Event(cursor.thread, event))
    }

    /// Recover, once all is handed out: events that the threads counted after the last one that the file or the spool has. Of a
    /// thread that neither has anything of, only if the file `begins` where the history does.
    pub(super) fn missing_at_the_end(&self, begins: bool) -> u64 {
        let missing = |(i, cursor): (usize, &Cursor)| {
            let ring = self.spool.ring(i);
            let thread = ring.thread();
            let handed_out = cursor.expected.filter(|_| cursor.thread == thread);
            let next = handed_out.or(self.resume.get(&thread).copied()).or(begins.then_some(0));
            next.map_or(0, |next| ring.sequence().saturating_sub(next))
        };
        self.cursors.iter().enumerate().map(missing).fold(0, u64::saturating_add)
    }

    /// All that was handed out is written: its slots are free again.
    pub(super) fn written(&mut self) {
        if self.read_only {
            return;
        }
        for (i, cursor) in self.cursors.iter_mut().enumerate() {
            let ring = self.spool.ring(i);
            if cursor.written != cursor.next {
                cursor.written = cursor.next;
                ring.set_tail(cursor.next);
            }
            ring.free_if_closed(cursor.written);
        }
    }

    /// How full the fullest ring is with what is not written yet, in percent.
    pub(super) fn fullness(&self) -> u32 {
        let fullest = self.cursors.iter().map(|c| c.head.saturating_sub(c.written)).max().unwrap_or(0);
        (fullest * 100 / self.spool.slots() as u64) as u32
    }

    /// What it drains.
    pub(super) fn spool(&self) -> Spool<'a> {
        self.spool
    }
}

fn is_definition(ring: &Ring<'_>, at: u64) -> bool {
    ring.peek(at).is_some_and(|(kind, length)| payload_words(kind, length).is_some())
}

/// Slots of the record at `at`: 1 for an event; never beyond `head`.
fn slots_at(ring: &Ring<'_>, at: u64, head: u64) -> u64 {
    let words = ring.peek(at).and_then(|(kind, length)| payload_words(kind, length)).unwrap_or(0);
    (1 + words.div_ceil(PAYLOAD as u64)).min(head - at)
}

fn decode(ring: &Ring<'_>, at: u64, slots: u64) -> Option<Line> {
    let first = ring.read(at)?;
    let mut payload = Vec::new();
    for i in 1..slots {
        payload.extend(ring.read(at + i)?);
    }
    payload.truncate(first[1] as usize);
    definition::decode(&first, &payload)
}
