//! The spool: the memory that holds the rings, and what `recover` must know to finish a history without the process.
//!
//! The head (24 KiB) holds the state words, the path of the trace and the finished header line; the rings follow, each
//! a whole number of pages, so that they can be backed by memory one after the other. A hole in a file on a full tmpfs
//! is a SIGBUS in somebody's program: nothing here touches a ring at or beyond `usable_rings`.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::ring::{self, Producer, Ring};
use super::setup::{ClockKind, LAYOUT, Setup, SpoolError};
use crate::trace::{FORMAT, Header, VERSION, write};

const MAGIC: u64 = u64::from_le_bytes(*b"vramspl\x01");
const PAGE: usize = 512;

// The state words.
const AT_MAGIC: usize = 0;
const AT_LAYOUT: usize = 1;
const AT_RINGS: usize = 2;
const AT_SLOTS: usize = 3;
const AT_USABLE: usize = 4;
const AT_PID: usize = 5;
const AT_START: usize = 6;
const AT_CLOCK: usize = 7;
const AT_TICKS: usize = 8;
const AT_ZERO: usize = 9; // raw, ns
const AT_ANCHOR: usize = 11; // which of two pairs, then raw, ns, raw, ns
const AT_FLAGS: usize = 16;
const AT_PATH_LEN: usize = 17;
const AT_HEADER_LEN: usize = 18;
const AT_LOST: usize = 19;
const AT_REFUSED: usize = 20;
// Words that many threads change get lines of their own.
const AT_THREADS: usize = 24;
const AT_IDS: usize = 32;
const AT_PATH: usize = 64;
const PATH_WORDS: usize = 512;
const AT_HEADER: usize = 1024;
const HEADER_WORDS: usize = 2048;
const HEAD: usize = AT_HEADER + HEADER_WORDS;

const FLAG_EXIT: u64 = 1;
const FLAG_STOPPED: u64 = 2;

/// A spool over borrowed words. Cheap to copy.
#[derive(Clone, Copy)]
pub struct Spool<'a> {
    words: &'a [AtomicU64],
    rings: usize,
    slots: usize,
}

impl fmt::Debug for Spool<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spool").field("rings", &self.rings).field("slots", &self.slots).finish_non_exhaustive()
    }
}

impl<'a> Spool<'a> {
    /// Words of the head.
    pub const HEAD_WORDS: usize = HEAD;

    /// Words a spool of so many rings and slots takes.
    pub const fn size_in_words(rings: usize, slots: usize) -> usize {
        HEAD + rings * Self::ring_words(slots)
    }

    /// Words of one ring, a whole number of pages.
    pub const fn ring_words(slots: usize) -> usize {
        (ring::HEAD + slots * crate::event::WORDS).next_multiple_of(PAGE)
    }

    /// Words that must be backed by memory before rings 0..`rings` may be used: a prefix of the spool.
    pub const fn prefix_in_words(rings: usize, slots: usize) -> usize {
        Self::size_in_words(rings, slots)
    }

    /// Sets up a spool in words that are all zero. Touches only the head.
    pub fn format(words: &'a [AtomicU64], setup: &Setup) -> Result<Spool<'a>, SpoolError> {
        let needed = shape(setup.rings as u64, setup.slots as u64, setup.usable_rings as u64)?;
        if words.len() < needed {
            return Err(SpoolError::Cut { needed, found: words.len() });
        }
        let spool = Spool { words, rings: setup.rings, slots: setup.slots };
        spool.set(AT_LAYOUT, LAYOUT);
        spool.set(AT_RINGS, setup.rings as u64);
        spool.set(AT_SLOTS, setup.slots as u64);
        spool.set(AT_USABLE, setup.usable_rings as u64);
        spool.set(AT_PID, u64::from(setup.pid));
        spool.set(AT_START, setup.start_time);
        spool.set(AT_CLOCK, u64::from(setup.clock == ClockKind::Tsc));
        spool.set(AT_TICKS, setup.ticks_per_second);
        spool.set(AT_ZERO, setup.zero_raw);
        spool.set(AT_ZERO + 1, setup.zero_ns);
        spool.set(AT_THREADS, 1);
        spool.set(AT_IDS, 1);
        spool.set_anchor(setup.zero_raw, setup.zero_ns);
        words[AT_MAGIC].store(MAGIC, Release);
        Ok(spool)
    }

    /// The spool in these words, which may come from a file that anything can have happened to. Words beyond
    /// [`Spool::used_words`] may be missing.
    pub fn open(words: &'a [AtomicU64]) -> Result<Spool<'a>, SpoolError> {
        let needed = Self::used_words(words)?;
        if words.len() < needed {
            return Err(SpoolError::Cut { needed, found: words.len() });
        }
        let at = |i: usize| words[i].load(Relaxed) as usize;
        Ok(Spool { words, rings: at(AT_RINGS), slots: at(AT_SLOTS) })
    }

    /// How many words can hold anything, of the spool that begins with this head ([`Spool::HEAD_WORDS`] of them): the rest
    /// of a file is a hole, and need not be read.
    pub fn used_words(head: &[AtomicU64]) -> Result<usize, SpoolError> {
        if head.first().is_none_or(|w| w.load(Acquire) != MAGIC) {
            return Err(SpoolError::Foreign);
        }
        if head.len() < HEAD {
            return Err(SpoolError::Cut { needed: HEAD, found: head.len() });
        }
        let at = |i: usize| head[i].load(Relaxed);
        if at(AT_LAYOUT) != LAYOUT {
            return Err(SpoolError::Version(at(AT_LAYOUT)));
        }
        shape(at(AT_RINGS), at(AT_SLOTS), at(AT_USABLE))
    }

    /// Whether its process ended before the spool was set up: nothing can be in it.
    pub fn never_set_up(head: &[AtomicU64]) -> bool {
        let at = |i: usize| head.get(i).map_or(0, |w| w.load(Acquire));
        at(AT_MAGIC) == 0 && (at(AT_LAYOUT) == LAYOUT || head.iter().all(|w| w.load(Relaxed) == 0))
    }

    fn get(&self, at: usize) -> u64 {
        self.words[at].load(Relaxed)
    }

    fn set(&self, at: usize, value: u64) {
        self.words[at].store(value, Relaxed);
    }

    // ---- what the process is ----

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.get(AT_PID) as u32
    }

    /// When the process started (field 22 of /proc/pid/stat).
    pub fn start_time(&self) -> u64 {
        self.get(AT_START)
    }

    /// What raw times are.
    pub fn clock(&self) -> ClockKind {
        if self.get(AT_CLOCK) == 1 { ClockKind::Tsc } else { ClockKind::Monotonic }
    }

    /// Ticks a second, 0 if unknown.
    pub fn ticks_per_second(&self) -> u64 {
        self.get(AT_TICKS)
    }

    /// Time zero: raw clock and nanoseconds.
    pub fn zero(&self) -> (u64, u64) {
        (self.get(AT_ZERO), self.get(AT_ZERO + 1))
    }

    /// Slots a ring.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Writes down the newest anchor. Two pairs in turn, so that a kill between two words leaves the older pair whole.
    pub(super) fn set_anchor(&self, raw: u64, ns: u64) {
        let turn = (self.get(AT_ANCHOR) & 1) ^ 1;
        let at = AT_ANCHOR + 1 + 2 * turn as usize;
        self.set(at, raw);
        self.set(at + 1, ns);
        self.words[AT_ANCHOR].store(turn, Release);
    }

    /// The anchor before the newest. After a kill in the middle of writing one down it may hold the raw clock of a later
    /// moment: it counts only if both of its numbers are below the newest one's.
    pub(super) fn older_anchor(&self) -> (u64, u64) {
        let turn = (self.words[AT_ANCHOR].load(Acquire) & 1) ^ 1;
        let at = AT_ANCHOR + 1 + 2 * turn as usize;
        (self.get(at), self.get(at + 1))
    }

    /// The newest anchor: raw clock and nanoseconds.
    pub fn anchor(&self) -> (u64, u64) {
        let turn = self.words[AT_ANCHOR].load(Acquire) & 1;
        let at = AT_ANCHOR + 1 + 2 * turn as usize;
        (self.get(at), self.get(at + 1))
    }

    /// The program's exit handlers ran.
    pub fn mark_exit(&self) {
        self.words[AT_FLAGS].fetch_or(FLAG_EXIT, Release);
    }

    /// Whether the program's exit handlers ran.
    pub fn exited(&self) -> bool {
        self.get(AT_FLAGS) & FLAG_EXIT != 0
    }

    /// Recording ended before the program did.
    pub fn mark_stopped(&self) {
        self.words[AT_FLAGS].fetch_or(FLAG_STOPPED, Release);
    }

    /// Whether recording ended before the program did.
    pub fn stopped(&self) -> bool {
        self.get(AT_FLAGS) & FLAG_STOPPED != 0
    }

    // ---- what is counted ----

    /// A number for an allocation, never given again. From 1.
    pub fn new_id(&self) -> u64 {
        self.new_ids(1)
    }

    /// `n` such numbers at once, for a thread that keeps some in store; the first of them.
    pub fn new_ids(&self, n: u64) -> u64 {
        self.words[AT_IDS].fetch_add(n, Relaxed)
    }

    /// The number that the next allocation will get.
    pub fn ids(&self) -> u64 {
        self.get(AT_IDS)
    }

    /// Events were lost of a thread that has no ring. (A thread with a ring calls [`Producer::lost`].)
    pub fn count_lost(&self, n: u64) {
        self.words[AT_LOST].fetch_add(n, Relaxed);
    }

    /// Events lost in all.
    pub fn lost(&self) -> u64 {
        (0..self.usable_rings()).fold(self.get(AT_LOST), |lost, i| lost.saturating_add(self.ring(i).lost()))
    }

    /// A stack could not be stored.
    pub fn count_stack_refused(&self) {
        self.words[AT_REFUSED].fetch_add(1, Relaxed);
    }

    /// Stacks that could not be stored.
    pub fn stacks_refused(&self) -> u64 {
        self.get(AT_REFUSED)
    }

    // ---- texts ----

    /// Stores the header as the finished line. One that is too long loses arguments, then settings, from the end.
    pub fn set_header(&self, header: &Header) {
        let mut header = header.clone();
        let mut line = Vec::new();
        loop {
            line.clear();
            write::header(&mut line, &header);
            if self.set_bytes(AT_HEADER_LEN, AT_HEADER, HEADER_WORDS, &line) {
                return;
            }
            if header.arguments.len() > 1 {
                header.arguments.truncate(header.arguments.len() / 2);
            } else if header.settings.pop_last().is_none() && header.rank.pop_last().is_none() {
                header = self.bare_header();
            }
        }
    }

    /// The header line, with its end of line; a bare one if none was stored before the process died.
    pub fn header_line(&self) -> Vec<u8> {
        let stored = serde_json::from_slice(&self.bytes(AT_HEADER_LEN, AT_HEADER, HEADER_WORDS));
        let header = match stored {
            Ok(Header { format, version, .. }) if format != FORMAT || version > VERSION => self.bare_header(),
            Ok(header) => header,
            Err(_) => self.bare_header(),
        };
        let mut line = Vec::new();
        write::header(&mut line, &header);
        line
    }

    fn bare_header(&self) -> Header {
        Header { format: FORMAT.into(), version: VERSION, pid: self.pid(), ..Header::default() }
    }

    /// Stores the path of the trace. False if it is longer than 4 KiB.
    pub fn set_path(&self, path: &[u8]) -> bool {
        self.set_bytes(AT_PATH_LEN, AT_PATH, PATH_WORDS, path)
    }

    /// The path of the trace; empty if none was stored.
    pub fn path(&self) -> Vec<u8> {
        self.bytes(AT_PATH_LEN, AT_PATH, PATH_WORDS)
    }

    fn set_bytes(&self, at_len: usize, at: usize, room: usize, bytes: &[u8]) -> bool {
        if bytes.len() > room * 8 {
            return false;
        }
        for (i, word) in super::definition::words_of(bytes).enumerate() {
            self.set(at + i, word);
        }
        self.words[at_len].store(bytes.len() as u64, Release);
        true
    }

    fn bytes(&self, at_len: usize, at: usize, room: usize) -> Vec<u8> {
        let len = (self.words[at_len].load(Acquire) as usize).min(room * 8);
        let mut bytes: Vec<u8> = (at..at + len.div_ceil(8)).flat_map(|i| self.get(i).to_le_bytes()).collect();
        bytes.truncate(len);
        bytes
    }

    // ---- rings ----

    /// Rings backed by memory.
    pub fn usable_rings(&self) -> usize {
        (self.words[AT_USABLE].load(Acquire) as usize).min(self.rings)
    }

    /// Rings in all.
    pub fn rings(&self) -> usize {
        self.rings
    }

    /// Rings 0..`n` are now backed by memory (see [`Spool::prefix_in_words`]). Never fewer than before.
    pub fn set_usable_rings(&self, n: usize) {
        self.words[AT_USABLE].fetch_max(n.min(self.rings) as u64, AcqRel);
    }

    /// Whether the writer thread should back some more rings: fewer than two are free.
    pub fn needs_more(&self) -> bool {
        let usable = self.usable_rings();
        usable < self.rings && (0..usable).filter(|&i| self.ring(i).is_free()).take(2).count() < 2
    }

    /// Gives up the rings of threads that ended without a word (a raw exit system call, a destructor that came after ours).
    /// `gone` says of a thread id whether it is no thread of the process any more. The writer's work.
    pub fn close_rings_of_ended_threads(&self, gone: impl Fn(u32) -> bool) {
        for i in 0..self.usable_rings() {
            self.ring(i).close_if_gone(&gone);
        }
    }

    /// A ring for the calling thread, with a thread number never used before. `None`: all usable rings are taken; count
    /// the event with [`Spool::count_lost`] and try again later. Allocates nothing. `name` is cut to 16 bytes.
    pub fn claim_ring(&self, tid: u32, name: &[u8]) -> Option<Producer<'a>> {
        let ring = (0..self.usable_rings()).map(|i| self.ring(i)).find(|r| r.claim())?;
        let thread = self.words[AT_THREADS].fetch_add(1, Relaxed) as u32;
        Some(Producer::new(ring, thread, tid, name))
    }

    pub(super) fn ring(&self, i: usize) -> Ring<'a> {
        let size = Self::ring_words(self.slots);
        let at = HEAD + i * size;
        Ring::new(&self.words[at..at + size], self.slots)
    }
}

/// Words up to the end of the rings that were used: a file may be shorter than all its rings, but not than those.
fn shape(rings: u64, slots: u64, usable: u64) -> Result<usize, SpoolError> {
    if !slots.is_power_of_two() || !(8..=1 << 24).contains(&slots) || rings > 1 << 20 || usable > rings {
        return Err(SpoolError::Shape);
    }
    Ok(Spool::size_in_words(usable as usize, slots as usize))
}
