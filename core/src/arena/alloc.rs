//! Requests.

use super::backing::{Backing, StreamId};
use super::claim::{Ask, Claim, Plan};
use super::index::Region;
use super::options::PAGE;
use super::slot::{GRAIN, State};
use super::{Arena, counts::count, front};
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

/// Larger requests fail at once: no device has so much.
const LARGEST: u64 = 1 << 46;
/// How long a request that failed is tried again because other threads are at work: by time, for however often they are
/// through with something, it may be nothing that helps. (Not for ever: a signal handler may have jumped out of a call.)
const PATIENCE: Duration = Duration::from_secs(5);

/// A block of the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Where it begins: a multiple of 512.
    pub address: u64,
    /// Its size in bytes: a multiple of 512, and at least that.
    pub bytes: u64,
    /// The bytes asked for.
    pub requested: u64,
    /// The number that the caller gave the allocation.
    pub id: u64,
}

/// Why a request was not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason<E> {
    /// Larger than any device.
    TooLarge,
    /// It would need more memory than the limit allows.
    OverLimit,
    /// The driver's answer to a reservation or a mapping.
    Backing(E),
    /// The arena is off; see [`Arena::is_broken`].
    Broken,
}

/// A request that was not served, after all free memory that could go back went back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed<E> {
    /// Why.
    pub reason: Reason<E>,
    /// Free bytes that work of some stream may still touch. If there are any, it may help to wait for the device, say so
    /// with [`Arena::all_synced`], and ask again.
    pub tied: u64,
}

/// How a step ended that called the backing.
pub(super) enum Step<E> {
    Found(u32),
    Again,
    NoMemory(E, u64),
}

impl<B: Backing> Arena<B> {
    /// A block for work of the stream that is submitted after this returns. 0 bytes are served like one. `id` is the
    /// caller's number for it.
    pub fn alloc(&self, requested: u64, stream: StreamId, id: u64) -> Result<Block, Failed<B::Error>> {
        if requested > LARGEST {
            return self.fail(Reason::TooLarge);
        }
        let bytes = requested.max(1).next_multiple_of(1 << GRAIN);
        if bytes <= front::LARGEST
            && let Some(address) = self.fronts.take(&self.map, &self.numbers, stream.0, bytes, requested, id)
        {
            return Ok(Block { address, bytes, requested, id });
        }
        let mut core = self.lock();
        if core.waiting_bytes > 0 {
            drop(core);
            self.poll();
            core = self.lock();
        }
        if self.is_broken() {
            drop(core);
            return self.fail(Reason::Broken);
        }
        let large = bytes > front::LARGEST && core.repeats();
        let taken = if large { core.take_again(&self.map, bytes, stream.0) } else { None };
        if taken.is_some() {
            count(&self.numbers.repeats);
        }
        let taken = taken.or_else(|| core.take(&self.map, bytes, stream.0));
        let taken = taken.or_else(|| core.take_stitched(&self.map, bytes, stream.0));
        let n = match taken {
            Some(n) => n,
            None => {
                drop(core);
                let n = self.alloc_slowly(bytes, stream.0)?;
                core = self.lock();
                n
            }
        };
        if large {
            core.habits.learn(stream.0, bytes, self.map.slots.get(n).address());
        }
        drop(core);
        // Nobody else knows the number: it is in no bin, and no free of it can begin before its word says `Live`.
        let slot = self.map.slots.get(n);
        let (word, bytes) = (slot.word(), slot.bytes());
        slot.set_id(id);
        slot.set_stream(stream.0);
        slot.set_slack(u32::try_from(bytes.saturating_sub(requested)).unwrap_or(u32::MAX));
        slot.set_word(word.to(State::Live));
        self.numbers.alloc(bytes, requested);
        Ok(Block { address: word.address(), bytes, requested, id })
    }

    #[cold]
    fn fail<T>(&self, reason: Reason<B::Error>) -> Result<T, Failed<B::Error>> {
        count(&self.numbers.failures);
        Err(Failed { reason, tied: self.lock().tied_bytes() })
    }

    #[cold]
    fn alloc_slowly(&self, bytes: u64, stream: u64) -> Result<u32, Failed<B::Error>> {
        self.drain();
        self.poll();
        let mut ask = Ask {
            bytes,
            stream,
            refused: Vec::new(),
            must_steal: false,
            unstitched: false,
            looked: false,
            collected: false,
        };
        let (mut tries, mut until) = (0, None);
        loop {
            let mut core = self.lock();
            if self.is_broken() {
                drop(core);
                return self.fail(Reason::Broken);
            }
            if bytes > core.options.limit {
                drop(core);
                return self.fail(Reason::OverLimit);
            }
            let before = core.in_flight;
            let plan = core.plan(&self.map, &ask);
            self.numbers.waiting.store(core.waiting_bytes, Relaxed);
            drop(core);
            let (reason, need) = match plan {
                Plan::Found(n) => return Ok(n),
                Plan::Claim(claim) => match self.perform(&mut ask, claim) {
                    Step::Found(n) => return Ok(n),
                    Step::Again => continue,
                    Step::NoMemory(e, need) => (Reason::Backing(e), need),
                },
                Plan::Stitch(plan) => match self.sew(bytes, plan) {
                    Step::Found(n) => return Ok(n),
                    Step::Again => {
                        ask.unstitched = true;
                        continue;
                    }
                    Step::NoMemory(e, need) => (Reason::Backing(e), need),
                },
                Plan::Look => {
                    ask.looked = true;
                    self.trim(u64::MAX);
                    continue;
                }
                Plan::Collect(above, spared) => {
                    ask.collected = true;
                    let keep = self.lock().committed.saturating_sub(above);
                    self.trim_but(keep, spared);
                    continue;
                }
                Plan::OverLimit(need) => (Reason::OverLimit, need),
                Plan::Reserve => match self.reserve(bytes) {
                    Ok(()) => continue,
                    Err(e) => return self.fail(e),
                },
            };
            // First what others' work holds, then what is too much, then everything, then whatever others give back.
            if !ask.must_steal {
                ask.must_steal = true;
                if !self.lock().options.steal_first {
                    continue;
                }
            }
            match tries {
                0 => drop(self.give_back(need)),
                1 => drop(self.trim(0)),
                _ if before > 0 && Instant::now() < *until.get_or_insert_with(|| Instant::now() + PATIENCE) => {
                    self.wait_for_others();
                }
                _ => return self.fail(reason),
            }
            tries += 1;
            count(&self.numbers.retries);
        }
    }

    /// Until one of the requests under way now is through.
    fn wait_for_others(&self) {
        let core = self.lock();
        if core.in_flight > 0 {
            drop(self.changed.wait_timeout(core, PATIENCE));
        }
    }

    /// Gives so many bytes back, if there are.
    fn give_back(&self, bytes: u64) -> u64 {
        let keep = self.lock().committed.saturating_sub(bytes);
        self.trim(keep)
    }

    /// What a claim needs: waits, then memory; then it is a block, or everything is as it was.
    fn perform(&self, ask: &mut Ask, mut claim: Claim) -> Step<B::Error> {
        let mut stolen = false;
        for (stream, stamp) in std::mem::take(&mut claim.owed) {
            if !self.order(ask.stream, stream, stamp) {
                ask.refused.push(stream);
                self.undo(claim);
                return Step::Again;
            }
            stolen = true;
        }
        let holes = claim.nodes.iter().filter(|n| n.1 == State::Hole).map(|n| n.0).collect::<Vec<_>>();
        if let Err(e) = self.fill(&holes, &mut claim.maps) {
            count(&self.numbers.failed_grows);
            let need = claim.maps;
            self.undo(claim);
            return Step::NoMemory(e, need);
        }
        let mut core = self.lock();
        let now = self.clock.load(Relaxed);
        let n = core.commit(&self.map, ask, claim, now);
        drop(core);
        self.changed.notify_all();
        if stolen {
            count(&self.numbers.steals);
        }
        n.map_or(Step::Again, Step::Found)
    }

    /// Maps memory into holes that nobody else sees. On an error some may be filled, and usable; `left` counts the others.
    pub(super) fn fill(&self, holes: &[u32], left: &mut u64) -> Result<(), B::Error> {
        let mut done = Ok(());
        let mut fresh: Vec<(u64, u64)> = Vec::new();
        for n in holes {
            let slot = self.map.slots.get(*n);
            let (address, bytes) = (slot.address(), slot.bytes());
            match self.backing.map(address, bytes) {
                Ok(handle) => {
                    let reserved = self.numbers.reserved.add(bytes);
                    self.numbers.reserved.rise(reserved);
                    count(&self.numbers.grows);
                    self.lock().chunks.insert(address, super::core::Chunk { bytes, handle, going: false });
                    *left -= bytes;
                    match fresh.last_mut() {
                        Some((start, length)) if *start + *length == address => *length += bytes,
                        _ => fresh.push((address, bytes)),
                    }
                }
                Err(e) => {
                    done = Err(e);
                    break;
                }
            }
        }
        for (start, length) in fresh {
            if let Err(e) = self.backing.open(start, length) {
                done = Err(e);
                self.close(start, length, left);
            }
        }
        done
    }

    /// What could not be made usable is as if it had never been mapped.
    fn close(&self, start: u64, length: u64, left: &mut u64) {
        let chunks: Vec<_> = self.lock().chunks.range(start..start + length).map(|(a, c)| (*a, *c)).collect();
        for (address, chunk) in chunks {
            if self.backing.unmap(address, chunk.bytes, chunk.handle).is_err() {
                // Memory that nobody may touch lies where the arena would have some: it can't go on.
                self.broken.store(true, Relaxed);
            }
            self.lock().chunks.remove(&address);
            self.numbers.reserved.add(chunk.bytes.wrapping_neg());
            *left += chunk.bytes;
        }
    }

    fn undo(&self, claim: Claim) {
        let mut core = self.lock();
        core.committed = core.committed.saturating_sub(claim.maps);
        core.roll_back(&self.map, claim);
        self.numbers.waiting.store(core.waiting_bytes, Relaxed);
        drop(core);
        self.changed.notify_all();
    }

    /// A new range, with room for so much.
    fn reserve(&self, bytes: u64) -> Result<(), Reason<B::Error>> {
        let least = bytes.next_multiple_of(PAGE);
        let core = self.lock();
        let (size, ranges) = (core.options.reserve.max(least), core.heads.len());
        drop(core);
        let (address, size) = match self.backing.reserve(size) {
            Ok(address) => (address, size),
            Err(_) => (self.backing.reserve(least).map_err(Reason::Backing)?, least),
        };
        let region = Region::new(address, size);
        let mut core = self.lock();
        // Of many first requests at once one makes the range; the others look again.
        let made = core.heads.len() > ranges;
        if made || !self.map.index.add(region) {
            drop(core);
            self.backing.unreserve(address, size);
            return if made { Ok(()) } else { Err(Reason::TooLarge) };
        }
        let n = core.add(&self.map, address, size, State::Hole);
        core.heads.push(n);
        Ok(())
    }
}
