//! Many threads at once: streams of their own, blocks handed from one to another, trims and syncs beside.

use crate::cases::{S, T, get, put};
use crate::sim::{Held, PAGE, Sim};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex};
use vramscope_core::arena::{Arena, Block, Counts, Options, StreamId};

/// A small generator: what matters is that each thread does something else.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % n
    }

    fn size(&mut self) -> u64 {
        match self.below(10) {
            0..6 => 1 + self.below(5000),
            6..9 => 1 + self.below(1 << 20),
            _ => 1 + self.below(8 << 20),
        }
    }
}

fn work(sim: &Sim, arena: &Arena<&Sim>, t: u64, rounds: u64, ids: &AtomicU64, handed: &Mutex<Vec<(Block, u64)>>) {
    let mut r = Random(0x9e37_79b9 + t);
    let mut stream = 100 * (t + 1);
    let mut mine: Vec<Block> = Vec::new();
    let free = |b: Block, stream: u64| {
        sim.work(stream, b.address, b.bytes);
        sim.leave(b.address);
        assert_eq!(arena.free(b.address, StreamId(stream)), Ok(b));
    };
    for _ in 0..rounds {
        match r.below(100) {
            0..50 if mine.len() < 40 => {
                let id = ids.fetch_add(1, SeqCst);
                let bytes = r.size();
                if let Ok(b) = arena.alloc(bytes, StreamId(stream), id) {
                    sim.check_handed_out(stream, b.address, b.bytes);
                    mine.push(b);
                }
            }
            50..60 => {
                let other = handed.lock().unwrap().pop();
                if let Some((b, from)) = other {
                    sim.order(from, stream);
                    mine.push(b);
                }
            }
            60..66 if !mine.is_empty() => {
                let b = mine.swap_remove(r.below(mine.len() as u64) as usize);
                handed.lock().unwrap().push((b, stream));
            }
            66..70 if !mine.is_empty() => {
                let b = mine[r.below(mine.len() as u64) as usize];
                let side = 1000 + r.below(2);
                sim.order(stream, side);
                sim.work(side, b.address, b.bytes);
                arena.record_stream(b.address, StreamId(side)).unwrap();
            }
            70 => {
                sim.order(stream, stream + 1);
                arena.stream_ends(StreamId(stream));
                stream += 1;
                // Others may still order something behind the old one: it is gone all the same.
            }
            71 => sim.advance(stream),
            _ if !mine.is_empty() => {
                let b = mine.swap_remove(r.below(mine.len() as u64) as usize);
                free(b, stream);
            }
            _ => {}
        }
    }
    mine.into_iter().for_each(|b| free(b, stream));
}

#[test]
fn eight_threads_of_random_work() {
    let mut o = Options::default();
    (o.chunk, o.reserve) = (4 << 20, 200 << 20);
    random_work(Sim::new(128 << 20), o, 6_000);
}

/// Chunks are lent, mapped a second time and given back, while others want to give the same ones back to the device.
#[test]
fn eight_threads_of_stitched_work() {
    for stitched in 0..6 {
        let mut o = Options::default();
        (o.chunk, o.reserve, o.stitch_above, o.stitched) = (PAGE << (stitched % 2), 800 << 20, PAGE, stitched);
        o.steal_first = stitched % 3 == 0;
        let mut sim = Sim::new(128 << 20);
        // The driver's calls take time.
        sim.on_unmap = Some(Box::new(|_| std::thread::sleep(std::time::Duration::from_micros(50))));
        let c = random_work(sim, o, 2_000);
        assert!(c.stitches > 0);
    }
}

fn random_work(sim: Sim, o: Options, rounds: u64) -> Counts {
    sim.fail_record.store(30, SeqCst);
    sim.fail_wait.store(30, SeqCst);
    sim.fail_map.store(30, SeqCst);
    sim.fail_unmap.store(30, SeqCst);
    let arena = Arena::new(&sim, o);
    let (ids, going) = (AtomicU64::new(1), AtomicBool::new(true));
    let handed: Mutex<Vec<(Block, u64)>> = Mutex::default();
    std::thread::scope(|s| {
        let (sim, arena, ids, handed) = (&sim, &arena, &ids, &handed);
        let workers: Vec<_> = (0..8).map(|t| s.spawn(move || work(sim, arena, t, rounds, ids, handed))).collect();
        let going = &going;
        let other = s.spawn(move || {
            let mut r = Random(77);
            while going.load(SeqCst) {
                match r.below(5) {
                    0 => drop(arena.trim(r.below(64 << 20))),
                    1 => {
                        let mark = arena.mark();
                        sim.sync_all();
                        arena.all_synced(mark);
                    }
                    2 => {
                        let stream = 100 * (1 + r.below(8));
                        let mark = arena.mark();
                        sim.sync(stream);
                        arena.stream_synced(StreamId(stream), mark);
                    }
                    3 => drop(arena.snapshot()),
                    _ => arena.set_limit(if r.below(2) == 0 { u64::MAX } else { 100 << 20 }),
                }
                std::thread::sleep(std::time::Duration::from_micros(r.below(2000)));
                arena.counts();
            }
        });
        let results: Vec<_> = workers.into_iter().map(|w| w.join()).collect();
        going.store(false, SeqCst);
        other.join().unwrap();
        results.into_iter().for_each(|r| r.unwrap());
    });
    for (b, stream) in handed.into_inner().unwrap() {
        sim.leave(b.address);
        arena.free(b.address, StreamId(stream)).unwrap();
    }
    let c = arena.counts();
    assert_eq!(c.reserved.now, sim.mapped());
    assert!(c.steals > 0 && c.trims > 0);
    all_goes_back(&sim, arena);
    c
}

/// Nothing is in use: after a wait for everything all memory goes back.
fn all_goes_back(sim: &Sim, arena: Arena<&Sim>) {
    let c = arena.counts();
    assert_eq!((c.allocated.now, c.requested.now, c.bad_frees), (0, 0, 0));
    for f in [&sim.fail_record, &sim.fail_unmap] {
        f.store(0, SeqCst);
    }
    let mark = arena.mark();
    sim.sync_all();
    arena.all_synced(mark);
    arena.trim(0);
    assert_eq!(sim.mapped(), 0, "{:?}", arena.snapshot());
    drop(arena);
    sim.assert_empty();
}

#[test]
fn threads_under_a_tight_limit_wait_for_each_other() {
    let sim = Sim::new(1 << 40);
    let mut o = Options::default();
    (o.limit, o.chunk) = (8 * PAGE, PAGE);
    let arena = Held::new(&sim, o);
    std::thread::scope(|s| {
        for t in 0..8 {
            let (sim, arena) = (&sim, &arena);
            s.spawn(move || {
                let stream = t + 1;
                for i in 0..300 {
                    // What each needs is there, at any time, and in one piece: whole pages only.
                    let b = arena.alloc(PAGE, StreamId(stream), i).expect("room for eight");
                    sim.check_handed_out(stream, b.address, b.bytes);
                    sim.work(stream, b.address, b.bytes);
                    sim.leave(b.address);
                    arena.free(b.address, StreamId(stream)).unwrap();
                }
            });
        }
    });
    assert_eq!(arena.counts().failures, 0);
}

/// One thread gives back the page that another needs, and that takes long. Others are through with something all the time, and
/// it never helps.
#[test]
fn a_request_waits_for_what_helps() {
    let (began, over) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let mut sim = Sim::new(1 << 40);
    let (b, o, first) = (began.clone(), over.clone(), AtomicBool::new(true));
    sim.on_unmap = Some(Box::new(move |_| {
        if first.swap(false, SeqCst) {
            b.wait();
            o.wait();
        }
    }));
    let mut o = Options::default();
    (o.limit, o.chunk) = (2 * PAGE, PAGE);
    let arena = Held::new(&sim, o);
    let (kept, back) = (get(&arena, PAGE, S), get(&arena, PAGE, S));
    put(&arena, back, S);
    sim.advance(S.0);
    std::thread::scope(|s| {
        s.spawn(|| assert_eq!(arena.trim(0), PAGE));
        began.wait();
        let request = s.spawn(|| arena.alloc(PAGE, T, 1));
        for _ in 0..60 {
            arena.trim(0);
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        over.wait();
        assert!(request.join().unwrap().is_ok());
    });
    put(&arena, kept, S);
}

/// Rounds that are all alike, of threads that share streams: what one thread frees is where the other's next request goes.
#[test]
fn loops_of_threads() {
    for kind in 0..6 {
        let mut o = Options::default();
        (o.chunk, o.reserve, o.stitch_above, o.stitched) = (PAGE << (kind % 2), 800 << 20, PAGE, 1 + kind);
        o.steal_first = kind % 3 == 0;
        let sim = Sim::new(160 << 20);
        for (f, often) in [(&sim.fail_record, 10), (&sim.fail_wait, 10), (&sim.fail_map, 5), (&sim.fail_unmap, 10)] {
            f.store(often * (kind % 2), SeqCst);
        }
        let arena = Arena::new(&sim, o);
        std::thread::scope(|s| {
            for t in 0..6u64 {
                let (sim, arena) = (&sim, &arena);
                s.spawn(move || a_loop(sim, arena, t, 12));
            }
        });
        let c = arena.counts();
        println!(
            "{kind}: {} requests, {} where they went before, {} stitched, {} failed",
            c.allocs, c.repeats, c.stitches, c.failures
        );
        assert!(c.repeats > 0 && c.stitches > 0);
        all_goes_back(&sim, arena);
    }
}

/// Of two threads each a stream is.
fn a_loop(sim: &Sim, arena: &Arena<&Sim>, t: u64, rounds: u64) {
    let stream = 1 + t / 2;
    let mut old: Vec<Block> = Vec::new();
    for round in 0..rounds {
        let (mut r, mut live) = (Random(0x9e37_79b9 + t), Vec::new());
        let mut free = |b: Block| {
            sim.work(stream, b.address, b.bytes);
            sim.leave(b.address);
            assert_eq!(arena.free(b.address, StreamId(stream)), Ok(b));
        };
        for i in 0..90 {
            let bytes = if r.below(8) == 0 { r.below(12 << 20) } else { (65 << 10) + r.below(900 << 10) };
            if let Ok(b) = arena.alloc(bytes, StreamId(stream), i) {
                sim.check_handed_out(stream, b.address, b.bytes);
                sim.work(stream, b.address, b.bytes);
                live.push(b);
            }
            match r.below(30) {
                // A neighbour uses it, too.
                0 if !live.is_empty() => {
                    let (b, side) = (live[0], 1 + (stream + 1) % 3);
                    sim.order(stream, side);
                    sim.work(side, b.address, b.bytes);
                    arena.record_stream(b.address, StreamId(side)).unwrap();
                }
                1..14 if !live.is_empty() => free(live.swap_remove(r.below(live.len() as u64) as usize)),
                _ => {}
            }
            if i == 60 {
                std::mem::take(&mut old).into_iter().for_each(&mut free);
            }
            while live.len() > 14 {
                free(live.remove(0));
            }
        }
        // Some live until the middle of the next round.
        old = live.split_off(live.len() - live.len().min(5));
        live.into_iter().for_each(&mut free);
        match (round + t) % 5 {
            0 => drop(arena.trim(40 << 20)),
            1 => {
                let mark = arena.mark();
                sim.sync(stream);
                arena.stream_synced(StreamId(stream), mark);
            }
            2 => sim.advance(stream),
            _ => {}
        }
    }
    for b in old {
        sim.leave(b.address);
        arena.free(b.address, StreamId(stream)).unwrap();
    }
}
