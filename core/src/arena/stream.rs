//! What is known of streams: which of their work is done, and which stream waited for which.
//!
//! The arena has a clock that ticks whenever a point is made in a stream's work (an event, or the beginning of a
//! synchronisation). A free takes the clock's reading as its stamp, a point the reading before its tick. So a point at `m`
//! covers every free of its stream with a stamp up to `m`: see `order.rs` for why this also holds among threads.

use super::bins::Bins;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

/// A stream that has freed something, or waited.
pub struct Stream<E> {
    pub id: u64,
    /// Free blocks tied to it.
    pub bins: Bins,
    /// All its work up to this stamp is done.
    pub done: u64,
    /// Points not known to be done, oldest first.
    pub events: VecDeque<(u64, Arc<E>)>,
    /// Other streams, and up to which stamp of theirs its later work waits.
    pub waited: Vec<(u64, u64)>,
    /// Threads that are making a point of it now.
    pub recording: u32,
    /// Its end has begun: no more points.
    pub ending: bool,
    /// Its end is over, and nothing it did came after this stamp. With the last event done it is forgotten.
    pub ended: Option<u64>,
}

impl<E> Stream<E> {
    /// The earliest point that covers the stamp.
    pub fn covering(&self, stamp: u64) -> Option<(u64, Arc<E>)> {
        self.events.iter().find(|e| e.0 >= stamp).map(|(m, e)| (*m, e.clone()))
    }

    /// Adds a point; they may come in another order than they were made.
    pub fn add(&mut self, stamp: u64, event: Arc<E>) {
        let place = self.events.partition_point(|e| e.0 < stamp);
        self.events.insert(place, (stamp, event));
    }

    /// All work up to the stamp is done. Gives the events that are of no more use.
    pub fn complete(&mut self, stamp: u64) -> Vec<Arc<E>> {
        self.done = self.done.max(stamp);
        let old = self.events.partition_point(|e| e.0 <= stamp);
        self.events.drain(..old).map(|e| e.1).collect()
    }
}

/// Stream numbers are small and dense, or pointers: one multiplication spreads both.
#[derive(Default)]
pub struct Fold(u64);

impl Hasher for Fold {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.write_u64(u64::from(*b));
        }
    }
    fn write_u32(&mut self, n: u32) {
        self.write_u64(u64::from(n));
    }
    fn write_u64(&mut self, n: u64) {
        self.0 = fold(self.0 ^ n);
    }
}

/// Spreads a number over 64 bits.
#[inline]
pub fn fold(n: u64) -> u64 {
    let wide = u128::from(n ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93_u128;
    (wide >> 64) as u64 ^ wide as u64
}

/// A map from small numbers.
pub type Numbers<K, V> = HashMap<K, V, BuildHasherDefault<Fold>>;

/// All streams known.
pub struct Streams<E> {
    list: Vec<Stream<E>>,
    places: Numbers<u64, usize>,
    /// The whole device was synchronised at this stamp.
    pub all_done: u64,
}

impl<E> Streams<E> {
    pub fn new() -> Streams<E> {
        Streams { list: Vec::new(), places: Numbers::default(), all_done: 0 }
    }

    #[inline]
    fn place(&self, id: u64) -> Option<usize> {
        match self.list.first() {
            Some(s) if s.id == id => Some(0),
            _ => self.places.get(&id).copied(),
        }
    }

    #[inline]
    pub fn get(&self, id: u64) -> Option<&Stream<E>> {
        self.list.get(self.place(id)?)
    }

    #[inline]
    pub fn get_mut(&mut self, id: u64) -> Option<&mut Stream<E>> {
        let place = self.place(id)?;
        self.list.get_mut(place)
    }

    /// The stream, made known if it was not.
    #[inline]
    pub fn of(&mut self, id: u64) -> &mut Stream<E> {
        let place = self.place(id).unwrap_or_else(|| {
            self.list.push(Stream {
                id,
                bins: Bins::new(),
                done: 0,
                events: VecDeque::new(),
                waited: Vec::new(),
                recording: 0,
                ending: false,
                ended: None,
            });
            self.places.insert(id, self.list.len() - 1);
            self.list.len() - 1
        });
        &mut self.list[place]
    }

    pub fn iter(&self) -> impl Iterator<Item = &Stream<E>> {
        self.list.iter()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream<E>> {
        self.list.iter_mut()
    }

    /// Whether no more than one stream is known: then free memory need not be kept apart by stream.
    #[inline]
    pub fn sole(&self) -> bool {
        self.list.len() <= 1
    }

    /// Forgets a stream. From then on what was tied to it counts as done.
    pub fn forget(&mut self, id: u64) -> Option<Stream<E>> {
        let place = self.places.remove(&id)?;
        let gone = self.list.swap_remove(place);
        if let Some(moved) = self.list.get(place) {
            self.places.insert(moved.id, place);
        }
        for s in &mut self.list {
            s.waited.retain(|w| w.0 != id);
        }
        Some(gone)
    }

    /// Whether the work of a stream up to the stamp is done. One that is not known has none: whatever is tied to a
    /// stream makes it known.
    #[inline]
    pub fn is_done(&self, stream: u64, stamp: u64) -> bool {
        stamp <= self.all_done || self.get(stream).is_none_or(|s| stamp <= s.done)
    }

    /// Whether later work of `user` comes after the work of `stream` up to the stamp.
    #[inline]
    pub fn is_clear(&self, user: u64, stream: u64, stamp: u64) -> bool {
        user == stream
            || self.is_done(stream, stamp)
            || self.get(user).is_some_and(|u| u.waited.iter().any(|w| w.0 == stream && stamp <= w.1))
    }

    /// Later work of `user` waits for the work of `stream` up to the stamp.
    pub fn set_waited(&mut self, user: u64, stream: u64, stamp: u64) {
        let user = self.of(user);
        match user.waited.iter_mut().find(|w| w.0 == stream) {
            Some(w) => w.1 = w.1.max(stamp),
            None => user.waited.push((stream, stamp)),
        }
    }

    /// Whether an event that covers the stamp is there, or could be made.
    pub fn can_order(&self, stream: u64, stamp: u64) -> bool {
        self.get(stream).is_none_or(|s| !s.ending || s.events.back().is_some_and(|e| e.0 >= stamp))
    }
}
