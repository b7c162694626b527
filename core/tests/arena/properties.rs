//! Random programs, one thread: the arena against a model that knows only what the program did.

use crate::sim::{Held, PAGE, Sim};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::SeqCst;
use vramscope_core::arena::{BadFree, BlockState, Options, StreamId};

#[derive(Clone, Debug)]
pub enum Op {
    Alloc(usize, u64),
    Free(usize),
    FreeElsewhere(usize, usize),
    Work(usize),
    Share(usize, usize),
    Abandon(usize),
    Advance(usize),
    Sync(usize),
    SyncAll,
    LateSync(usize),
    End(usize),
    Trim(u64),
    Limit(u64),
    MaxSplit(u64),
    Bad(u64),
    Interior(usize),
    Double(usize),
    Fail(u8, u64),
}

fn size() -> impl Strategy<Value = u64> {
    prop_oneof![
        3 => 0u64..5000,
        4 => (0u32..22, 0u64..1000).prop_map(|(s, f)| (1 << s) + (f << s) / 1000),
        3 => (1u64 << 20)..(24 << 20),
        1 => Just(u64::MAX),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let stream = 0usize..4;
    prop_oneof![
        60 => (stream.clone(), size()).prop_map(|(s, b)| Op::Alloc(s, b)),
        50 => any::<usize>().prop_map(Op::Free),
        8 => (any::<usize>(), stream.clone()).prop_map(|(n, s)| Op::FreeElsewhere(n, s)),
        20 => any::<usize>().prop_map(Op::Work),
        10 => (any::<usize>(), stream.clone()).prop_map(|(n, s)| Op::Share(n, s)),
        3 => any::<usize>().prop_map(Op::Abandon),
        6 => stream.clone().prop_map(Op::Advance),
        2 => stream.clone().prop_map(Op::Sync),
        1 => Just(Op::SyncAll),
        2 => stream.clone().prop_map(Op::LateSync),
        2 => stream.prop_map(Op::End),
        3 => prop_oneof![Just(0), 0u64..64 << 20].prop_map(Op::Trim),
        1 => prop_oneof![Just(u64::MAX), 0u64..80 << 20].prop_map(Op::Limit),
        1 => prop_oneof![3 => Just(u64::MAX), 1 => PAGE..20 << 20].prop_map(Op::MaxSplit),
        1 => any::<u64>().prop_map(Op::Bad),
        2 => any::<usize>().prop_map(Op::Interior),
        2 => any::<usize>().prop_map(Op::Double),
        2 => (0u8..6, prop_oneof![2 => Just(0), 1 => 0u64..600]).prop_map(|(w, n)| Op::Fail(w, n)),
    ]
}

#[derive(Clone)]
struct Live {
    id: u64,
    requested: u64,
    bytes: u64,
    stream: u64,
}

struct Program<'s> {
    sim: &'s Sim,
    arena: Held<'s>,
    live: BTreeMap<u64, Live>,
    freed: Vec<u64>,
    streams: [u64; 4],
    next_stream: u64,
    ids: u64,
    limit: u64,
}

impl<'s> Program<'s> {
    fn new(sim: &'s Sim, options: Options) -> Program<'s> {
        let arena = Held::new(sim, options);
        Program {
            sim,
            arena,
            live: BTreeMap::new(),
            freed: Vec::new(),
            streams: [1, 2, 3, 4],
            next_stream: 5,
            ids: 0,
            limit: u64::MAX,
        }
    }

    fn pick(&self, n: usize) -> Option<(u64, Live)> {
        self.live.iter().nth(n % self.live.len().max(1)).map(|(a, b)| (*a, b.clone()))
    }

    fn free(&mut self, a: u64, b: &Live, stream: u64) {
        self.sim.leave(a);
        self.live.remove(&a);
        let got = self.arena.free(a, StreamId(stream)).unwrap();
        assert_eq!((got.id, got.requested, got.bytes), (b.id, b.requested, b.bytes));
        self.freed.push(a);
    }

    fn run(&mut self, op: &Op) {
        match *op {
            Op::Alloc(s, bytes) => {
                let stream = self.streams[s];
                self.ids += 1;
                let before = self.sim.mapped();
                match self.arena.alloc(bytes, StreamId(stream), self.ids) {
                    Ok(b) => {
                        assert!(b.bytes >= bytes.max(1) && b.address % 512 == 0 && b.bytes % 512 == 0);
                        assert_eq!((b.requested, b.id), (bytes, self.ids));
                        self.sim.check_handed_out(stream, b.address, b.bytes);
                        self.live.insert(b.address, Live { id: b.id, requested: bytes, bytes: b.bytes, stream });
                        assert!(self.sim.mapped() <= self.limit.max(before), "over the limit");
                    }
                    Err(_) if bytes > 1 << 46 => {}
                    Err(f) => assert!(self.arena.counts().failures > 0, "{f:?}"),
                }
            }
            Op::Free(n) => {
                if let Some((a, b)) = self.pick(n) {
                    self.free(a, &b, b.stream);
                }
            }
            Op::FreeElsewhere(n, s) => {
                if let Some((a, b)) = self.pick(n) {
                    self.sim.order(b.stream, self.streams[s]);
                    self.free(a, &b, self.streams[s]);
                }
            }
            Op::Work(n) => {
                if let Some((a, b)) = self.pick(n) {
                    self.sim.work(b.stream, a, b.bytes);
                }
            }
            Op::Share(n, s) => {
                if let Some((a, b)) = self.pick(n) {
                    self.sim.order(b.stream, self.streams[s]);
                    self.sim.work(self.streams[s], a, b.bytes);
                    self.arena.record_stream(a, StreamId(self.streams[s])).unwrap();
                }
            }
            Op::Abandon(n) => {
                if let Some((a, b)) = self.pick(n) {
                    let free = self.arena.begin_free(a).unwrap();
                    assert_eq!(free.block().id, b.id);
                    assert!(matches!(self.arena.free(a, StreamId(1)), Err(BadFree::Double)));
                }
            }
            Op::Advance(s) => self.sim.advance(self.streams[s]),
            Op::Sync(s) => {
                let mark = self.arena.mark();
                self.sim.sync(self.streams[s]);
                self.arena.stream_synced(StreamId(self.streams[s]), mark);
            }
            Op::SyncAll => {
                let mark = self.arena.mark();
                self.sim.sync_all();
                self.arena.all_synced(mark);
            }
            Op::LateSync(n) => {
                // What is freed, by another thread, between the wait and the word of it.
                let mark = self.arena.mark();
                self.sim.sync_all();
                if let Some((a, b)) = self.pick(n) {
                    self.sim.work(b.stream, a, b.bytes);
                    self.free(a, &b, b.stream);
                }
                self.arena.all_synced(mark);
            }
            Op::End(s) => {
                let old = std::mem::replace(&mut self.streams[s], self.next_stream);
                self.next_stream += 1;
                for b in self.live.values_mut().filter(|b| b.stream == old) {
                    self.sim.order(old, self.streams[s]);
                    b.stream = self.streams[s];
                }
                self.arena.stream_ends(StreamId(old));
                self.sim.destroy(old);
            }
            Op::Trim(keep) => {
                let before = self.sim.mapped();
                let back = self.arena.trim(keep);
                assert_eq!(before - self.sim.mapped(), back);
                assert!(back == 0 || before > keep);
            }
            Op::Limit(bytes) => {
                self.limit = bytes;
                self.arena.set_limit(bytes);
            }
            Op::MaxSplit(bytes) => self.arena.set_max_split(bytes),
            Op::Bad(a) => assert_eq!(self.arena.free(a | 1 << 63, StreamId(1)), Err(BadFree::Unknown)),
            Op::Interior(n) => {
                if let Some((a, b)) = self.pick(n) {
                    for at in [a + 1, a + b.bytes / 2, a + b.bytes - 1] {
                        let Err(BadFree::Interior { block }) = self.arena.free(at, StreamId(1)) else { panic!() };
                        assert_eq!((block.id, block.address), (b.id, a));
                        assert_eq!(self.arena.find(at).map(|b| b.id), Some(b.id));
                    }
                }
            }
            Op::Double(n) => {
                let Some(&a) = self.freed.get(n % self.freed.len().max(1)) else { return };
                if !self.live.contains_key(&a) {
                    assert!(self.arena.free(a, StreamId(2)).is_err());
                    assert!(self.arena.record_stream(a, StreamId(2)).is_err());
                }
            }
            Op::Fail(what, n) => {
                let s = &self.sim;
                let which = [&s.fail_map, &s.fail_unmap, &s.fail_record, &s.fail_wait, &s.fail_reserve, &s.fail_open];
                // Memory that can neither be opened nor unmapped turns the arena off: another test's business.
                let armed = |n: usize| which[n].load(SeqCst) != 0;
                if !(what == 5 && armed(1) || what == 1 && armed(5)) {
                    which[usize::from(what)].store(n, SeqCst);
                }
            }
        }
    }

    fn check(&self) {
        let c = self.arena.counts();
        let sum = |f: fn(&Live) -> u64| self.live.values().map(f).sum::<u64>();
        assert_eq!(c.allocated.now, sum(|b| b.bytes));
        assert_eq!(c.requested.now, sum(|b| b.requested));
        assert_eq!(c.allocs - c.frees, self.live.len() as u64);
        assert_eq!(c.reserved.now, self.sim.mapped());
        assert_eq!(c.active.now + c.inactive.now, c.reserved.now);
        for l in [c.allocated, c.requested, c.active, c.inactive, c.reserved] {
            assert!(l.peak >= l.now && l.peak <= c.reserved.peak.max(l.now));
        }
        let s = self.arena.snapshot();
        assert_eq!(s.chunks.iter().map(|c| c.bytes).sum::<u64>(), c.reserved.now);
        let (mut chunk, mut at) = (0, 0);
        let mut sums = BTreeMap::new();
        for b in &s.blocks {
            // The blocks tile the chunks: each begins where the one before it ends, or where the next chunk does.
            if b.block.address != at {
                assert!(chunk == 0 || s.chunks[chunk - 1].address + s.chunks[chunk - 1].bytes == at);
                assert_eq!(s.chunks[chunk].address, b.block.address);
            }
            at = b.block.address + b.block.bytes;
            while chunk < s.chunks.len() && s.chunks[chunk].address < at {
                chunk += 1;
            }
            *sums.entry(b.state as u8).or_insert(0) += b.block.bytes;
            if b.state == BlockState::Active {
                assert_eq!(self.live[&b.block.address].id, b.block.id);
            }
        }
        assert_eq!(chunk, s.chunks.len());
        let of = |s: BlockState| sums.get(&(s as u8)).copied().unwrap_or(0);
        for b in &s.stitched {
            assert_eq!(self.live[&b.block.address].id, b.block.id);
        }
        assert_eq!(s.stitched.iter().map(|b| b.block.bytes).sum::<u64>(), of(BlockState::Lent));
        assert_eq!(of(BlockState::Active) + of(BlockState::Lent), c.allocated.now);
        assert_eq!(of(BlockState::Waiting), c.active.now - c.allocated.now);
        assert_eq!(of(BlockState::Inactive), c.inactive.now);
        for (a, b) in &self.live {
            let i = self.arena.find(a + b.bytes / 3).unwrap();
            assert_eq!((i.address, i.id, i.requested, i.bytes), (*a, b.id, b.requested, b.bytes));
        }
        assert!(self.sim.events() < 400, "events pile up");
    }

    /// After a wait for everything, all memory can go back.
    fn finish(mut self) {
        self.sim.fail_unmap.store(0, SeqCst);
        self.sim.fail_record.store(0, SeqCst);
        if self.ids.is_multiple_of(2) {
            while let Some((a, b)) = self.pick(0) {
                self.free(a, &b, b.stream);
            }
            let mark = self.arena.mark();
            self.sim.sync_all();
            self.arena.all_synced(mark);
            self.arena.trim(0);
            assert_eq!(self.sim.mapped(), 0, "{:?}", self.arena.snapshot());
            assert_eq!(self.sim.events(), 0);
        }
        self.sim.over();
        drop(self.arena);
        self.sim.assert_empty();
    }
}

/// With few, chunks of several sizes are side by side, as in a program that has grown.
fn parts() -> impl Strategy<Value = u64> {
    prop_oneof![1u64..6, Just(256)]
}

/// What a round of a loop is made of: no more lives at its end than a moment ago.
fn repeated() -> impl Strategy<Value = Op> {
    let stream = prop_oneof![8 => Just(0usize), 1 => 1usize..3];
    let size = prop_oneof![3 => (65u64 << 10)..(900 << 10), 2 => (1u64 << 20)..(9 << 20), 1 => 0u64..60_000];
    prop_oneof![
        20 => (stream.clone(), size).prop_map(|(s, b)| Op::Alloc(s, b)),
        20 => any::<usize>().prop_map(Op::Free),
        2 => (any::<usize>(), stream.clone()).prop_map(|(n, s)| Op::FreeElsewhere(n, s)),
        6 => any::<usize>().prop_map(Op::Work),
        2 => (any::<usize>(), stream.clone()).prop_map(|(n, s)| Op::Share(n, s)),
        2 => stream.prop_map(Op::Advance),
    ]
}

fn run(ops: &[Op], options: Options) {
    let sim = Sim::new(96 << 20);
    let mut p = Program::new(&sim, options);
    for op in ops {
        p.run(op);
        p.check();
    }
    p.finish();
}

proptest! {
    #[test]
    fn the_arena_does_what_the_program_expects(
        ops in prop::collection::vec(op(), 1..300),
        (chunk, front, steal_first, gc, reserve, stitch, stitched) in
            (1u64..17, 0u64..1 << 20, any::<bool>(), prop_oneof![Just(0), 1u32..1000], 8u64..400, 0u64..8, 0u64..4),
        parts in parts(),
    ) {
        let mut o = Options::default();
        o.parts = parts;
        (o.chunk, o.front, o.steal_first, o.gc_threshold, o.reserve) =
            (chunk << 21, front, steal_first, gc, reserve << 20);
        (o.stitch_above, o.stitched) = (if stitch > 4 { u64::MAX } else { stitch << 20 }, stitched);
        run(&ops, o);
    }

    /// A loop, of which each round is like the one before, but for a little that comes between.
    #[test]
    fn loops(
        round in prop::collection::vec(repeated(), 60..160),
        between in prop::collection::vec(prop::collection::vec(op(), 0..6), 5),
        (steal_first, stitch, stitched, least) in (any::<bool>(), 0u64..4, 1u64..6, 1u64..3),
        parts in parts(),
    ) {
        let mut o = Options::default();
        o.parts = parts;
        (o.steal_first, o.stitch_above, o.stitched, o.least_chunk) = (steal_first, stitch << 20, stitched, least << 21);
        let ops: Vec<Op> = between.iter().flat_map(|b| round.iter().chain(b)).cloned().collect();
        run(&ops, o);
    }
}
