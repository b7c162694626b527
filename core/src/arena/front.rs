//! The front cache: small blocks that a stream freed, by size, at hand for its next request. A lane a stream, as a rule,
//! each with a lock of its own; the shared part is not touched.
//!
//! What lies here is not joined with its neighbours. So it is little, and goes back when the shared part can't serve.

use super::core::Map;
use super::counts::{Numbers, Tally};
use super::slot::{GRAIN, NIL, State};
use super::stream::fold;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Mutex, MutexGuard};

/// The largest block kept here, in bytes.
pub const LARGEST: u64 = 64 << 10;
const CLASSES: usize = (LARGEST >> GRAIN) as usize + 1;
const LANES: usize = 64;

/// Blocks of one stream.
struct Front {
    stream: u64,
    /// A list a size, linked by `bin_next`.
    heads: Box<[u32]>,
    bytes: u64,
}

#[derive(Default)]
struct Inner {
    fronts: Vec<Front>,
    tally: Tally,
}

/// Two cache lines: processors fetch them in pairs.
#[derive(Default)]
#[repr(align(128))]
struct Lane {
    inner: Mutex<Inner>,
    /// Bytes in it, roughly; to pass over empty ones.
    filled: AtomicU64,
}

/// All of them.
pub struct Fronts {
    lanes: Box<[Lane]>,
    made: AtomicU32,
    broken: AtomicBool,
}

impl Front {
    fn take_all(&mut self, map: &Map, out: &mut Vec<u32>) {
        for head in &mut self.heads {
            let mut n = std::mem::replace(head, NIL);
            while n != NIL {
                let slot = map.slots.get(n);
                slot.set_state(State::Busy);
                out.push(n);
                n = slot.bin_next();
            }
        }
        self.bytes = 0;
    }
}

impl Fronts {
    pub fn new() -> Fronts {
        Fronts {
            lanes: (0..LANES).map(|_| Lane::default()).collect(),
            made: AtomicU32::new(0),
            broken: AtomicBool::new(false),
        }
    }

    /// A panic left a lane half-changed.
    pub fn is_broken(&self) -> bool {
        self.broken.load(Relaxed)
    }

    #[inline]
    fn lock<'a>(&self, lane: &'a Lane) -> MutexGuard<'a, Inner> {
        lane.inner.lock().unwrap_or_else(|p| {
            self.broken.store(true, Relaxed);
            p.into_inner()
        })
    }

    #[inline]
    fn lane(&self, stream: u64) -> &Lane {
        &self.lanes[(fold(stream) >> 32) as usize % LANES]
    }

    #[inline]
    fn alone(&self) -> bool {
        self.made.load(Relaxed) <= 1
    }

    /// A block of exactly this size, handed out.
    #[inline]
    pub fn take(&self, map: &Map, numbers: &Numbers, stream: u64, bytes: u64, requested: u64, id: u64) -> Option<u64> {
        let lane = self.lane(stream);
        let mut inner = self.lock(lane);
        let Inner { fronts, tally } = &mut *inner;
        let front = fronts.iter_mut().find(|f| f.stream == stream)?;
        let head = front.heads.get_mut((bytes >> GRAIN) as usize)?;
        let n = *head;
        if n == NIL {
            return None;
        }
        let slot = map.slots.get(n);
        *head = slot.bin_next();
        front.bytes -= bytes;
        slot.set_id(id);
        slot.set_slack((bytes - requested) as u32);
        let word = slot.word();
        slot.set_word(word.to(State::Live));
        numbers.alloc_in(tally, bytes, requested, self.alone());
        Some(word.address())
    }

    /// Keeps a block that the caller is freeing. Gives what must go to the shared part instead: nothing, or everything,
    /// because it was full.
    #[inline]
    #[allow(clippy::too_many_arguments, reason = "one caller, and each is a plain number")]
    pub fn keep(
        &self,
        map: &Map,
        numbers: &Numbers,
        clock: &AtomicU64,
        stream: u64,
        n: u32,
        requested: u64,
        most: u64,
    ) -> Vec<u32> {
        let lane = self.lane(stream);
        let mut out = Vec::new();
        let mut inner = self.lock(lane);
        let Inner { fronts, tally } = &mut *inner;
        let place = fronts.iter().position(|f| f.stream == stream).unwrap_or_else(|| {
            self.made.fetch_add(1, Relaxed);
            fronts.push(Front { stream, heads: vec![NIL; CLASSES].into(), bytes: 0 });
            fronts.len() - 1
        });
        let Some(front) = fronts.get_mut(place) else { return out };
        let slot = map.slots.get(n);
        let bytes = slot.bytes();
        if front.bytes + bytes > most {
            front.take_all(map, &mut out);
        }
        let Some(head) = front.heads.get_mut((bytes >> GRAIN) as usize) else { return out };
        slot.set_stream(stream);
        // Read under the lock: see `Arena::record`.
        slot.set_stamp(clock.load(Relaxed));
        slot.set_bin_next(*head);
        *head = n;
        front.bytes += bytes;
        slot.set_state(State::Front);
        numbers.free_in(tally, bytes, requested, self.alone());
        lane.filled.store(front.bytes, Relaxed);
        out
    }

    /// Everything that all lanes, or one stream, keep: `Busy`, and the caller's to give to the shared part. Of the one
    /// stream nothing is left.
    pub fn drain(&self, map: &Map, stream: Option<u64>) -> Vec<u32> {
        let mut out = Vec::new();
        let lanes = self.lanes.iter().filter(|l| l.filled.load(Relaxed) > 0 || stream.is_some());
        for lane in lanes {
            let mut inner = self.lock(lane);
            let ours = |f: &Front| stream.is_none_or(|s| f.stream == s);
            inner.fronts.iter_mut().filter(|f| ours(f)).for_each(|f| f.take_all(map, &mut out));
            if let Some(stream) = stream {
                let before = inner.fronts.len();
                inner.fronts.retain(|f| f.stream != stream);
                self.made.fetch_sub((before - inner.fronts.len()) as u32, Relaxed);
            }
            lane.filled.store(inner.fronts.iter().map(|f| f.bytes).sum(), Relaxed);
        }
        out
    }

    /// Returns when no free of the stream that began before is under this lock any more; of every stream, for `None`.
    pub fn pass(&self, stream: Option<u64>) {
        match stream {
            Some(s) => drop(self.lock(self.lane(s))),
            None => self.lanes.iter().for_each(|l| drop(self.lock(l))),
        }
    }

    /// Moves all tallies into the gauges. Gives allocations and frees counted here.
    pub fn flush(&self, numbers: &Numbers) -> (u64, u64) {
        let mut sum = (0, 0);
        for lane in &self.lanes {
            let mut inner = self.lock(lane);
            numbers.flush(&mut inner.tally);
            sum = (sum.0 + inner.tally.allocs, sum.1 + inner.tally.frees);
        }
        sum
    }
}
