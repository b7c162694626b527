//! A ring: one thread writes, one consumer reads, nobody waits.
//!
//! A slot is 12 words; the first is its position + 1 and is stored last, with release, then the ring's head. So whatever
//! moment the process is killed at, what lies below the head is whole.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::definition::{Definition, PAYLOAD};
use crate::event::{Event, WORDS};

/// Words before the first slot: three groups on cache lines of their own (owner, producer, consumer).
pub(super) const HEAD: usize = 64;
const AT_STATE: usize = 0;
const AT_THREAD: usize = 1;
const AT_TID: usize = 2;
const AT_NAME: usize = 3; // two words
const AT_HEAD: usize = 16;
const AT_LOST: usize = 17;
const AT_SEQUENCE: usize = 18;
const AT_TAIL: usize = 32;

/// States of a ring: free → owned (by claim) → closed (the thread ended) → free (the consumer wrote all of it).
const FREE: u64 = 0;
const OWNED: u64 = 1;
const CLOSED: u64 = 2;

/// The words of a slot after its sequence.
pub(super) type Slot = [u64; WORDS - 1];

/// Where the last word of an event's slot keeps the event's number within its thread.
pub(super) const SEQUENCE: usize = WORDS - 2;

/// A ring over its part of the spool.
#[derive(Clone, Copy)]
pub(super) struct Ring<'a> {
    words: &'a [AtomicU64],
    slots: usize,
}

impl<'a> Ring<'a> {
    pub(super) fn new(words: &'a [AtomicU64], slots: usize) -> Ring<'a> {
        Ring { words, slots }
    }

    pub(super) fn is_free(&self) -> bool {
        self.words[AT_STATE].load(Relaxed) == FREE
    }

    /// Takes the ring if it is free.
    pub(super) fn claim(&self) -> bool {
        self.is_free() && self.words[AT_STATE].compare_exchange(FREE, OWNED, AcqRel, Relaxed).is_ok()
    }

    /// Gives a closed ring, of which everything is written, to the next thread.
    pub(super) fn free_if_closed(&self, written: u64) {
        // The state is read first: after a close no head can move.
        if self.words[AT_STATE].load(Acquire) == CLOSED && self.head() == written {
            self.words[AT_STATE].store(FREE, Release);
        }
    }

    pub(super) fn thread(&self) -> u32 {
        self.words[AT_THREAD].load(Relaxed) as u32
    }

    pub(super) fn tid(&self) -> u32 {
        self.words[AT_TID].load(Relaxed) as u32
    }

    pub(super) fn name(&self) -> String {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.words[AT_NAME].load(Relaxed).to_le_bytes());
        bytes[8..].copy_from_slice(&self.words[AT_NAME + 1].load(Relaxed).to_le_bytes());
        let end = bytes.iter().position(|&b| b == 0).unwrap_or(16);
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    }

    pub(super) fn lost(&self) -> u64 {
        self.words[AT_LOST].load(Relaxed)
    }

    /// Events of its thread, also those that were given up. After a kill it may be one too few.
    pub(super) fn sequence(&self) -> u64 {
        self.words[AT_SEQUENCE].load(Relaxed)
    }

    pub(super) fn head(&self) -> u64 {
        self.words[AT_HEAD].load(Acquire)
    }

    pub(super) fn tail(&self) -> u64 {
        self.words[AT_TAIL].load(Acquire)
    }

    pub(super) fn set_tail(&self, tail: u64) {
        self.words[AT_TAIL].store(tail, Release);
    }

    fn slot(&self, position: u64) -> &'a [AtomicU64] {
        let at = HEAD + (position as usize & (self.slots - 1)) * WORDS;
        &self.words[at..at + WORDS]
    }

    /// The words of a slot below the head; `None` if they are not of this position (a damaged spool).
    pub(super) fn read(&self, position: u64) -> Option<Slot> {
        let slot = self.slot(position);
        if slot[0].load(Acquire) != position + 1 {
            return None;
        }
        let mut words = [0; WORDS - 1];
        for (word, from) in words.iter_mut().zip(&slot[1..]) {
            *word = from.load(Relaxed);
        }
        Some(words)
    }

    /// The first two words of such a slot: kind and time.
    pub(super) fn peek(&self, position: u64) -> Option<(u64, u64)> {
        let slot = self.slot(position);
        (slot[0].load(Acquire) == position + 1).then(|| (slot[1].load(Relaxed), slot[2].load(Relaxed)))
    }

    fn write(&self, position: u64, words: &Slot) {
        let slot = self.slot(position);
        for (to, &word) in slot[1..].iter().zip(words) {
            to.store(word, Relaxed);
        }
        slot[0].store(position + 1, Release);
    }
}

/// What became of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Pushed {
    /// It is in the spool and will be in the history, whatever happens to the process.
    Yes,
    /// The ring is full. Push again after a while, or give up and call [`Producer::lost`].
    Full,
}

/// A thread's writing end. Not shared between threads; plain data, so that it may live in any memory.
pub struct Producer<'a> {
    ring: Ring<'a>,
    head: u64,
    /// The consumer's tail when last looked at: looked at again only when the ring seems full.
    tail: u64,
    sequence: u64,
    thread: u32,
}

impl std::fmt::Debug for Producer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Producer").field("thread", &self.thread).field("head", &self.head).finish_non_exhaustive()
    }
}

impl Ring<'_> {
    /// For the writer: closes the ring if a thread owns it that `gone` says has ended without closing it.
    pub(super) fn close_if_gone(&self, gone: impl FnOnce(u32) -> bool) {
        let state = &self.words[AT_STATE];
        if state.load(Acquire) == OWNED && self.head() == self.tail() && self.head() != 0 && gone(self.tid()) {
            let _ = state.compare_exchange(OWNED, CLOSED, AcqRel, Relaxed);
        }
    }
}

impl<'a> Producer<'a> {
    pub(super) fn new(ring: Ring<'a>, thread: u32, tid: u32, name: &[u8]) -> Producer<'a> {
        let mut bytes = [0; 16];
        let len = name.len().min(16);
        bytes[..len].copy_from_slice(&name[..len]);
        ring.words[AT_TID].store(u64::from(tid), Relaxed);
        for (i, word) in super::definition::words_of(&bytes).enumerate() {
            ring.words[AT_NAME + i].store(word, Relaxed);
        }
        // Before the thread's number: whatever moment the process is killed at, these are not the events of the thread before.
        ring.words[AT_SEQUENCE].store(0, Relaxed);
        // Read by the consumer after the first push, whose release publishes it.
        ring.words[AT_THREAD].store(u64::from(thread), Release);
        let head = ring.head();
        Producer { ring, head, tail: ring.tail(), sequence: 0, thread }
    }

    /// The thread's number in the history.
    pub fn thread(&self) -> u32 {
        self.thread
    }

    /// Slots free for sure; more may be.
    fn has_room(&mut self, slots: u64) -> bool {
        let full = self.ring.slots as u64;
        if self.head.wrapping_sub(self.tail) + slots <= full {
            return true;
        }
        self.tail = self.ring.tail();
        self.head.wrapping_sub(self.tail) + slots <= full
    }

    /// Records an event. A few nanoseconds, never waits.
    #[inline]
    pub fn push(&mut self, event: &Event) -> Pushed {
        if !self.has_room(1) {
            return Pushed::Full;
        }
        let mut words = event.encode();
        words[SEQUENCE] = self.sequence;
        self.ring.write(self.head, &words);
        self.head += 1;
        self.sequence += 1;
        self.ring.words[AT_HEAD].store(self.head, Release);
        self.ring.words[AT_SEQUENCE].store(self.sequence, Relaxed);
        Pushed::Yes
    }

    /// Records what a number means; publish the number only after this said [`Pushed::Yes`]. All or nothing. What would
    /// take more than half the ring is cut (a stack is then marked cut).
    pub fn push_definition(&mut self, definition: &Definition<'_>) -> Pushed {
        let most = (self.ring.slots / 2 - 1) * PAYLOAD;
        let (first, slots) = definition.encode(most);
        if !self.has_room(1 + slots) {
            return Pushed::Full;
        }
        let mut payload = definition.payload(most);
        for i in 0..slots {
            let mut words = [0; PAYLOAD];
            for (to, word) in words.iter_mut().zip(&mut payload) {
                *to = word;
            }
            self.ring.write(self.head + 1 + i, &words);
        }
        self.ring.write(self.head, &first);
        self.head += 1 + slots;
        self.ring.words[AT_HEAD].store(self.head, Release);
        Pushed::Yes
    }

    /// Counts an event that was given up. The history shows the gap.
    pub fn lost(&mut self) {
        self.sequence += 1;
        // Only this thread writes the word: no need for an atomic addition.
        let lost = &self.ring.words[AT_LOST];
        lost.store(lost.load(Relaxed) + 1, Relaxed);
        self.ring.words[AT_SEQUENCE].store(self.sequence, Relaxed);
    }

    /// The thread ended: the ring goes to another thread once all of it is written.
    pub fn close(self) {
        self.ring.words[AT_STATE].store(CLOSED, Release);
    }
}
