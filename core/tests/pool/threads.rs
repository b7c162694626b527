//! Many threads at once. Each owner writes its id into its block, as a kernel would, and finds it there when it frees.

use crate::sim::Sim;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use vramscope_core::pool::{ContextId, Freed, How, Pool, Scope};

/// A small generator: what matters is that each thread does something else.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// What the blocks hold: base → id of the owner.
#[derive(Default)]
struct Contents([Mutex<HashMap<u64, u64>>; 16]);

impl Contents {
    fn shard(&self, a: u64) -> std::sync::MutexGuard<'_, HashMap<u64, u64>> {
        self.0[(a >> 9) as usize % 16].lock().unwrap()
    }
    fn take(&self, a: u64, id: u64) {
        assert_eq!(self.shard(a).insert(a, id), None, "{a:#x} has two owners");
    }
    fn leave(&self, a: u64, id: u64) {
        assert_eq!(self.shard(a).remove(&a), Some(id), "{a:#x} was overwritten");
    }
}

fn size(r: &mut Random) -> u64 {
    match r.below(10) {
        0..6 => 1 + r.below(5000),
        6..9 => 1 + r.below(1 << 20),
        _ => 1 + r.below(8 << 20),
    }
}

#[test]
fn eight_threads_of_random_work() {
    let (up, pool, contents) = (Sim::new(256 << 20), Pool::new(), Contents::default());
    let (ids, trimming) = (AtomicU64::new(1), AtomicBool::new(true));
    up.max_cached.store(128 << 20, SeqCst);
    // Blocks handed from one thread to another, as producers and consumers do.
    let handed: Mutex<Vec<(u64, u64)>> = Mutex::default();
    std::thread::scope(|s| {
        let workers: Vec<_> = (0..8)
            .map(|t| {
                let (up, pool, contents, ids, handed) = (&up, &pool, &contents, &ids, &handed);
                s.spawn(move || {
                    let mut r = Random(0x9e37_79b9 + t);
                    let mut mine: Vec<(u64, u64)> = Vec::new();
                    let free = |(a, id)| {
                        contents.leave(a, id);
                        up.used(a);
                        match pool.free(up, a) {
                            Freed::Kept { info, .. } => assert_eq!(info.id, id),
                            Freed::Released { info, result, .. } => assert_eq!((info.id, result), (id, Ok(()))),
                            f => panic!("{f:?}"),
                        }
                    };
                    for _ in 0..25_000 {
                        let busy = mine.len() as u64 > 10 + r.below(40);
                        if !busy {
                            let id = ids.fetch_add(1, SeqCst);
                            let (c, bytes) = (ContextId((t % 2) as u16), size(&mut r));
                            if let Ok(served) = pool.alloc(up, c, bytes, id) {
                                up.check_handed_out(&served);
                                assert!(served.block >= bytes && served.stale.is_none());
                                contents.take(served.address, id);
                                mine.push((served.address, id));
                            }
                        } else {
                            let b = mine.swap_remove(r.below(mine.len() as u64) as usize);
                            match r.below(4) {
                                0 => handed.lock().unwrap().push(b),
                                1 => {
                                    let other = handed.lock().unwrap().pop();
                                    other.into_iter().for_each(free);
                                    free(b);
                                }
                                _ => free(b),
                            }
                        }
                    }
                    mine.into_iter().for_each(free);
                })
            })
            .collect();
        let trimmer = s.spawn(|| {
            let mut r = Random(77);
            while trimming.load(SeqCst) {
                match r.below(3) {
                    0 => pool.trim(&up, Scope::All),
                    1 => pool.trim(&up, Scope::Context(ContextId(1))),
                    _ => pool.trim(&up, Scope::AtLeast(r.below(16 << 20), ContextId(0))),
                };
                std::thread::sleep(std::time::Duration::from_micros(r.below(500)));
                pool.counters();
            }
        });
        let results: Vec<_> = workers.into_iter().map(|w| w.join()).collect();
        trimming.store(false, SeqCst);
        trimmer.join().unwrap();
        results.into_iter().for_each(|r| r.unwrap());
    });
    for (a, id) in handed.into_inner().unwrap() {
        contents.leave(a, id);
        assert!(!matches!(pool.free(&up, a), Freed::Unknown | Freed::Double(_)));
    }
    let c = pool.counters();
    assert_eq!((c.active, c.waiting, c.bad_frees), (0, 0, 0));
    assert_eq!(c.inactive, c.reserved);
    // One fence for each block kept. A fence is in vain where another thread ran out of memory just then.
    let in_vain = up.fences.load(SeqCst) - c.frees_cached;
    assert!(in_vain <= c.frees_driver && in_vain < c.frees_cached / 100, "{in_vain}");
    assert_eq!(c.requests, ids.load(SeqCst) - 1);
    assert!(c.hits_exact > 1000 && c.hits_near > 0 && c.trims > 0, "{c:?}");
    pool.trim(&up, Scope::All);
    assert_eq!((pool.counters().reserved, up.live()), (0, 0));
}

#[test]
fn of_many_frees_of_one_block_one_wins() {
    let (up, pool) = (Sim::new(64 << 20), Pool::new());
    for id in 1..2000 {
        let a = pool.alloc(&up, ContextId(0), 512, id).unwrap().address;
        let barrier = std::sync::Barrier::new(2);
        let won: usize = std::thread::scope(|s| {
            let frees: Vec<_> = (0..2)
                .map(|_| {
                    s.spawn(|| {
                        barrier.wait();
                        match pool.free(&up, a) {
                            Freed::Kept { .. } => 1,
                            Freed::Double(info) => {
                                assert_eq!(info.id, id);
                                0
                            }
                            f => panic!("{f:?}"),
                        }
                    })
                })
                .collect();
            frees.into_iter().map(|f| f.join().unwrap()).sum()
        });
        assert_eq!(won, 1);
    }
    assert_eq!(pool.counters().bad_frees, 1999);
}

/// Threads that together never hold more than the device has must never be refused, though the cache takes all the rest
/// and some thread is always in the midst of giving memory back.
#[test]
fn memory_cached_or_on_its_way_is_never_missed() {
    let (up, pool) = (Sim::new(32 << 20), Pool::new());
    std::thread::scope(|s| {
        for t in 0..4u64 {
            let (up, pool) = (&up, &pool);
            s.spawn(move || {
                let mut r = Random(t + 1);
                for n in 0..3000 {
                    // Four times 8 MiB at most. Each thread has a context of its own, so that blocks are seldom shared.
                    let bytes = (1 + r.below(4)) * (2 << 20);
                    let served = pool.alloc(up, ContextId(t as u16), bytes, t << 32 | n);
                    let a = served.expect("the device has room for all four").address;
                    up.used(a);
                    assert!(!matches!(pool.free(up, a), Freed::Unknown | Freed::Double(_)));
                }
            });
        }
    });
    assert!(pool.counters().trims > 0);
}

#[test]
fn contexts_end_while_threads_work_in_others() {
    let (up, pool) = (Sim::new(1 << 30), Pool::new());
    std::thread::scope(|s| {
        let worker = s.spawn(|| {
            let mut r = Random(3);
            for n in 0..40_000u64 {
                let served = pool.alloc(&up, ContextId(0), size(&mut r), n).unwrap();
                up.used(served.address);
                assert!(matches!(pool.free(&up, served.address), Freed::Kept { .. }));
            }
        });
        for c in 1..60u16 {
            let c = ContextId(c);
            let a: Vec<u64> = (0..40).map(|n| pool.alloc(&up, c, 1000 * (n + 1), n).unwrap().address).collect();
            for a in &a[..20] {
                up.used(*a);
                pool.free(&up, *a);
            }
            pool.mark_dying(c);
            assert_eq!(pool.alloc(&up, c, 1000, 99).unwrap().how, How::Direct);
            // Forgotten before the memory can be another's: the order the driver's own bookkeeping has.
            assert_eq!(pool.drop_context(c).len(), 21);
            up.destroy_context(c);
            assert_eq!(pool.usage(c), Default::default());
        }
        worker.join().unwrap();
    });
    assert_eq!((pool.stale_addresses(), pool.counters().active), (0, 0));
}
