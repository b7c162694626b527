//! Points in streams' work: who records them, who waits for them, and what they let go.
//!
//! Why a point at `m` covers each free of its stream with a stamp up to `m`, also one of another thread: a free reads its
//! stamp under a lock, its lane's or the core's. Who makes a point lets the clock tick under the core's lock, *then* takes
//! and leaves the lane's, then calls the driver. If a free's section under a lock comes after, it reads a later stamp. If
//! before, the free, and with it the submission of the work before it, happened before the driver call.

use super::backing::{Backing, StreamId};
use super::{Arena, Core, counts::count};
use std::sync::Arc;
use std::sync::atomic::Ordering::*;

/// A moment: all frees before it are told apart from those after it.
#[derive(Clone, Copy, Debug)]
pub struct Mark(u64);

impl<B: Backing> Arena<B> {
    /// To be taken before the host begins to wait for a stream or the device, and to be given to
    /// [`stream_synced`](Self::stream_synced) or [`all_synced`](Self::all_synced) afterwards: what other threads free
    /// during the wait is not covered by it.
    pub fn mark(&self) -> Mark {
        let mark = self.clock.fetch_add(1, SeqCst);
        self.fronts.pass(None);
        drop(self.lock());
        Mark(mark)
    }

    /// The host has waited for all work that the stream had when the mark was taken. No call of the backing but releases
    /// of events, and what the release threshold asks for.
    pub fn stream_synced(&self, stream: StreamId, mark: Mark) {
        let mut core = self.lock();
        let Some(s) = core.streams.get_mut(stream.0) else { return };
        let over = s.complete(mark.0);
        self.after_sync(core, over);
    }

    /// The host has waited for all work that the device had when the mark was taken.
    pub fn all_synced(&self, mark: Mark) {
        let mut core = self.lock();
        core.streams.all_done = core.streams.all_done.max(mark.0);
        let over = core.streams.iter_mut().flat_map(|s| s.complete(mark.0)).collect();
        self.after_sync(core, over);
    }

    fn after_sync(&self, mut core: std::sync::MutexGuard<'_, Core<B>>, over: Vec<Arc<B::Event>>) {
        self.let_go(&mut core);
        let threshold = core.options.release_threshold;
        let above = core.committed > threshold;
        drop(core);
        self.bury(over);
        if above {
            self.trim(threshold);
        }
    }

    /// Some work is done: what waited only for it is free.
    fn let_go(&self, core: &mut Core<B>) {
        core.dirty = true;
        core.settle_waiting(&self.map);
        self.numbers.waiting.store(core.waiting_bytes, Relaxed);
        // Not while something is claimed: it may come back with ties to the stream, and would find it unknown.
        if core.in_flight > 0 {
            return;
        }
        let over = |s: &super::stream::Stream<B::Event>| s.ended.is_some() && s.events.is_empty() && s.recording == 0;
        let ended: Vec<u64> = core.streams.iter().filter(|s| over(s)).map(|s| s.id).collect();
        if ended.is_empty() {
            return;
        }
        core.settle_done(&self.map);
        for id in ended {
            let tied = core.streams.get(id).is_some_and(|s| s.bins.bytes() > 0)
                || core.whole.iter().any(|n| core.ties_of(&self.map, *n).iter().any(|t| t.0 == id))
                || core.ties.values().flatten().any(|t| t.0 == id && !core.streams.is_done(t.0, t.1))
                // Addresses of a stitched block, whose memory may be another's by now.
                || core.stitches.ties().any(|t| t.0 == id && !core.streams.is_done(t.0, t.1))
                // A live block that it uses: the end's event was refused, so its work may go on.
                || core.users.values().any(|u| u.contains(&id))
                    && core.streams.get(id).is_some_and(|s| !core.streams.is_done(id, s.ended.unwrap_or(u64::MAX)));
            if !tied {
                core.habits.forget(id);
                core.streams.forget(id);
                // All its work is done: nobody needs to wait for it when such a block is freed.
                core.users.values_mut().for_each(|users| users.retain(|u| *u != id));
            }
        }
    }

    /// The stream is about to be destroyed: what is tied to it waits for an event recorded now. Waits for other threads'
    /// points in the same stream; after its return the backing is never asked about the stream again. Where the event is
    /// refused, that memory is used again only after [`all_synced`](Self::all_synced) or
    /// [`stream_synced`](Self::stream_synced).
    pub fn stream_ends(&self, stream: StreamId) {
        let nodes = self.fronts.drain(&self.map, Some(stream.0));
        self.fronts.flush(&self.numbers);
        let mut core = self.lock();
        self.give_all(&mut core, nodes);
        // A live block that it uses will be tied to it.
        if core.streams.get(stream.0).is_none() && !core.users.values().any(|u| u.contains(&stream.0)) {
            return;
        }
        core.streams.of(stream.0).ending = true;
        while core.streams.get(stream.0).is_some_and(|s| s.recording > 0) {
            core = self.wait_change(core);
        }
        let stamp = self.clock.fetch_add(1, SeqCst);
        drop(core);
        self.fronts.pass(Some(stream.0));
        let event = self.backing.record(stream).map(Arc::new);
        count(if event.is_some() { &self.numbers.records } else { &self.numbers.refusals });
        let mut core = self.lock();
        let s = core.streams.of(stream.0);
        (s.ending, s.ended) = (true, Some(stamp));
        if let Some(event) = event {
            s.add(stamp, event);
        } else {
            self.let_go(&mut core);
        }
    }

    /// A point in a stream's work, now.
    pub(super) fn record(&self, stream: u64) -> Option<(u64, Arc<B::Event>)> {
        let mut core = self.lock();
        let s = core.streams.of(stream);
        if s.ending {
            return None;
        }
        s.recording += 1;
        let stamp = self.clock.fetch_add(1, SeqCst);
        drop(core);
        self.fronts.pass(Some(stream));
        let event = self.backing.record(StreamId(stream)).map(Arc::new);
        count(if event.is_some() { &self.numbers.records } else { &self.numbers.refusals });
        let mut core = self.lock();
        let s = core.streams.of(stream);
        s.recording = s.recording.saturating_sub(1);
        let event = event.inspect(|e| s.add(stamp, e.clone()));
        drop(core);
        self.changed.notify_all();
        Some((stamp, event?))
    }

    /// Puts later work of `user` behind the work of `stream` up to the stamp. `false`: it can't be done now.
    pub(super) fn order(&self, user: u64, stream: u64, stamp: u64) -> bool {
        let core = self.lock();
        if core.streams.is_clear(user, stream, stamp) {
            return true;
        }
        let event = core.streams.get(stream).and_then(|s| s.covering(stamp));
        drop(core);
        let Some((stamp, event)) = event.or_else(|| self.record(stream)) else { return false };
        let ok = self.backing.wait(StreamId(user), &event);
        count(if ok { &self.numbers.waits } else { &self.numbers.refusals });
        if ok {
            self.lock().streams.set_waited(user, stream, stamp);
        }
        self.bury(vec![event]);
        ok
    }

    /// Asks events whether they are done, each stream's oldest first.
    pub(super) fn poll(&self) {
        loop {
            let oldest: Vec<(u64, u64, Arc<B::Event>)> = {
                let core = self.lock();
                let first = |s: &super::stream::Stream<B::Event>| {
                    Some((s.id, s.events.front()?.0, s.events.front()?.1.clone()))
                };
                core.streams.iter().filter_map(first).collect()
            };
            let (done, pending): (Vec<_>, Vec<_>) = oldest.into_iter().partition(|e| self.backing.is_done(&e.2));
            let mut over: Vec<_> = pending.into_iter().map(|e| e.2).collect();
            let progress = !done.is_empty();
            if progress {
                let mut core = self.lock();
                for (stream, stamp, event) in done {
                    over.push(event);
                    if let Some(s) = core.streams.get_mut(stream) {
                        over.extend(s.complete(stamp));
                    }
                }
                self.let_go(&mut core);
            }
            self.bury(over);
            if !progress {
                return;
            }
        }
    }

    /// Makes a point in each stream that free memory is tied to, if none covers it.
    pub(super) fn probe(&self) {
        let streams: Vec<u64> = {
            let core = self.lock();
            let uncovered = |id: u64, stamp: u64| {
                !core.streams.is_done(id, stamp) && core.streams.get(id).is_some_and(|s| s.covering(stamp).is_none())
            };
            let of = |n: u32| core.ties_of(&self.map, n);
            let tied = core.streams.iter().flat_map(|s| s.bins.all(&self.map.slots));
            let mut ties: Vec<_> = tied.chain(core.whole.iter().copied()).flat_map(of).collect();
            ties.extend(core.ties.values().flatten());
            let mut streams: Vec<u64> = ties.into_iter().filter(|t| uncovered(t.0, t.1)).map(|t| t.0).collect();
            streams.sort_unstable();
            streams.dedup();
            streams
        };
        for stream in streams {
            if let Some((_, event)) = self.record(stream) {
                self.bury(vec![event]);
            }
        }
    }

    /// Lets go of events. Whoever is the last one to hold one gives it back.
    pub(super) fn bury(&self, events: Vec<Arc<B::Event>>) {
        events.into_iter().filter_map(Arc::into_inner).for_each(|e| self.backing.release(e));
    }
}
