//! What each rule of the pool means, one case each.

use crate::sim::{Call, Error, Sim};
use std::sync::atomic::Ordering::SeqCst;
use vramscope_core::pool::{Begun, ContextId, Fence, Freed, How, Pool, Release, Scope, State, Trimmed};

pub const C: ContextId = ContextId(1);
pub const MIB: u64 = 1 << 20;

pub fn logged(capacity: u64) -> Sim {
    let mut up = Sim::new(capacity);
    up.log = true;
    up
}

pub fn kept<E: std::fmt::Debug>(f: &Freed<E>) -> bool {
    matches!(f, Freed::Kept { .. })
}

pub fn why<E: std::fmt::Debug>(f: Freed<E>) -> Release {
    match f {
        Freed::Released { why, .. } => why,
        f => panic!("not released: {f:?}"),
    }
}

#[test]
fn a_freed_block_serves_the_next_request() {
    let (up, pool) = (logged(64 * MIB), Pool::new());
    let a = pool.alloc(&up, C, 1000, 1).unwrap();
    assert_eq!((a.block, a.how), (1024, How::Miss));
    assert_ne!(a.segment, 0);
    assert!(kept(&pool.free(&up, a.address)));
    let b = pool.alloc(&up, C, 600, 2).unwrap();
    assert_eq!((b.address, b.block, b.how, b.segment), (a.address, 1024, How::HitExact, a.segment));
    let info = pool.find_active(b.address).unwrap();
    assert_eq!((info.id, info.requested, info.block, info.context), (2, 600, 1024, C));
    assert_eq!(up.take_calls(), [Call::Alloc(1024, true)]);
    let c = pool.counters();
    assert_eq!((c.requests, c.hits_exact, c.misses, c.frees_cached, c.device_barriers), (2, 1, 1, 1, 1));
    assert_eq!(
        (c.active, c.inactive, c.reserved, c.active_peak, c.reserved_peak, c.waiting),
        (1024, 0, 1024, 1024, 1024, 0)
    );
}

#[test]
fn the_newest_block_of_a_class_comes_first() {
    let (up, pool) = (Sim::new(64 * MIB), Pool::new());
    let a: Vec<u64> = (0..3).map(|n| pool.alloc(&up, C, 512, n).unwrap().address).collect();
    for a in &a {
        assert!(kept(&pool.free(&up, *a)));
    }
    let again: Vec<u64> = (0..3).map(|n| pool.alloc(&up, C, 512, 10 + n).unwrap().address).collect();
    assert_eq!(again, [a[2], a[1], a[0]]);
}

#[test]
fn a_larger_block_serves_down_to_seven_eighths() {
    for (cached, asked, how) in [
        (16 * MIB, 14 * MIB, How::HitNear),
        (16 * MIB, 14 * MIB - 1, How::Miss),
        (2 * MIB, MIB + 1, How::HitExact), // The class is the driver's grain: nothing is lost.
        (9 * 512, 8 * 512, How::HitNear),
        (9 * 512, 7 * 512 + 1, How::Miss),
    ] {
        let (up, pool) = (Sim::new(64 * MIB), Pool::new());
        let a = pool.alloc(&up, C, cached, 1).unwrap();
        pool.free(&up, a.address);
        assert_eq!(pool.alloc(&up, C, asked, 2).unwrap().how, how, "{asked} of {cached}");
    }
}

#[test]
fn the_exact_class_wins_over_a_newer_larger_block() {
    let (up, pool) = (Sim::new(128 * MIB), Pool::new());
    let (a, b, c) = (
        pool.alloc(&up, C, 28 * MIB, 1).unwrap(),
        pool.alloc(&up, C, 30 * MIB, 2).unwrap(),
        pool.alloc(&up, C, 32 * MIB, 3).unwrap(),
    );
    for x in [&a, &b, &c] {
        pool.free(&up, x.address);
    }
    assert_eq!(pool.alloc(&up, C, 28 * MIB, 4).unwrap().address, a.address);
    assert_eq!(pool.alloc(&up, C, 28 * MIB, 5).unwrap().address, b.address, "the smallest larger one");
    assert_eq!(pool.alloc(&up, C, 28 * MIB, 6).unwrap().address, c.address);
}

#[test]
fn bad_frees() {
    let (up, pool) = (logged(64 * MIB), Pool::new());
    assert_eq!(pool.free(&up, 0xdead), Freed::Unknown);
    let a = pool.alloc(&up, C, 4096, 7).unwrap();
    assert_eq!(pool.free(&up, a.address + 512), Freed::Unknown);
    assert!(kept(&pool.free(&up, a.address)));
    let Freed::Double(info) = pool.free(&up, a.address) else { panic!("a second free") };
    assert_eq!((info.id, info.state), (7, State::Inactive));
    assert_eq!(pool.counters().bad_frees, 1);
    assert_eq!(up.take_calls().len(), 1);
}

#[test]
fn a_free_not_finished_did_not_happen() {
    let (up, pool) = (Sim::new(64 * MIB), Pool::new());
    let a = pool.alloc(&up, C, 4096, 7).unwrap();
    {
        let Begun::Begun(free) = pool.begin_free(a.address) else { panic!("ours") };
        assert_eq!(free.info().id, 7);
        assert_eq!(pool.block_of(a.address).unwrap().state, State::Freeing);
        assert_eq!(pool.counters().waiting, 4096);
        assert!(matches!(pool.begin_free(a.address), Begun::Double(_)));
    }
    assert_eq!(pool.find_active(a.address).unwrap().id, 7);
    assert_eq!(pool.counters().waiting, 0);
    assert!(kept(&pool.free(&up, a.address)));
}

#[test]
fn out_of_memory_gives_everything_back_and_asks_for_the_exact_size() {
    let (up, pool) = (logged(16 * MIB), Pool::new());
    let small = pool.alloc(&up, ContextId(2), 512, 1).unwrap();
    let large = pool.alloc(&up, C, 8 * MIB, 2).unwrap();
    pool.free(&up, small.address);
    pool.free(&up, large.address);
    up.take_calls();
    let a = pool.alloc(&up, C, 15 * MIB, 3).unwrap();
    assert_eq!(
        up.take_calls(),
        [Call::Alloc(16 * MIB, false), Call::Free(8 * MIB), Call::Free(512), Call::Alloc(15 * MIB, true)]
    );
    assert_eq!(a.trimmed, Trimmed { bytes: 8 * MIB + 512, blocks: 2, failed: 0 });
    assert_eq!(why(pool.free(&up, a.address)), Release::Exact);
    assert_eq!((pool.usage(C), up.live()), (Default::default(), 0));
}

#[test]
fn a_request_that_only_fits_exactly_is_served() {
    // One page, of which just so much is left; the class would be 245,760 B.
    const LEFT: u64 = 232_960;
    let (up, pool) = (Sim::new(2 * MIB), Pool::new());
    pool.alloc_direct(&up, C, MIB, 1).unwrap();
    pool.alloc_direct(&up, C, MIB - LEFT, 2).unwrap();
    let a = pool.alloc(&up, C, LEFT, 3).unwrap();
    assert_eq!((a.block, a.how), (LEFT, How::Miss));
    assert_eq!(why(pool.free(&up, a.address)), Release::Exact);
    assert_eq!(pool.usage(C).reserved, 0);
}

fn up_alloc(up: &Sim, bytes: u64) -> u64 {
    use vramscope_core::pool::Upstream;
    up.alloc(C, bytes, 0).unwrap()
}

#[test]
fn errors_come_back_unchanged() {
    let (up, pool) = (logged(16 * MIB), Pool::new());
    let a = pool.alloc(&up, C, 4 * MIB, 1).unwrap();
    pool.free(&up, a.address);
    up.break_allocs.store(1, SeqCst);
    let e = pool.alloc(&up, C, MIB, 2).unwrap_err();
    assert_eq!((e.error, e.trimmed.blocks), (Error::Broken, 0));
    assert_eq!(pool.inactive_bytes(C), 4 * MIB, "nothing given back for it");
    let e = pool.alloc(&up, C, 17 * MIB, 3).unwrap_err();
    assert_eq!((e.error, e.trimmed.blocks), (Error::OutOfMemory, 1));
    assert_eq!(pool.alloc(&up, C, 0, 4).unwrap_err().error, Error::InvalidValue);
    assert_eq!(pool.alloc(&up, C, u64::MAX / 2, 5).unwrap_err().error, Error::OutOfMemory);
    assert_eq!(pool.counters().failures, 4);
}

#[test]
fn a_failed_real_free_leaves_the_block_active() {
    let (up, pool) = (Sim::new(16 * MIB), Pool::new());
    let a = pool.alloc(&up, C, 4 * MIB, 1).unwrap();
    assert_eq!(pool.export(a.address), Some(1));
    up.break_frees.store(1, SeqCst);
    let Freed::Released { result: Err(Error::Broken), .. } = pool.free(&up, a.address) else {
        panic!("the driver's error")
    };
    assert_eq!(pool.find_active(a.address).unwrap().id, 1);
    assert_eq!(pool.usage(C).active, 4 * MIB);
    assert_eq!(why(pool.free(&up, a.address)), Release::Exported);
    assert_eq!(pool.free(&up, a.address), Freed::Unknown, "the driver answers for what it took back");
}

#[test]
fn direct_blocks_are_known_and_really_freed() {
    let (up, pool) = (Sim::new(64 * MIB), Pool::new());
    let address = up_alloc(&up, 1000);
    assert_eq!(pool.insert_direct(address, C, 1000, 5), None);
    let d = pool.alloc_direct(&up, C, 3000, 6).unwrap();
    let info = pool.find_active(address).unwrap();
    assert_eq!((info.id, info.block, info.direct, info.segment), (5, 1000, true, 0));
    let usage = pool.usage(C);
    assert_eq!((usage.direct, usage.reserved), (4000, 0));
    assert_eq!(why(pool.free(&up, address)), Release::Direct);
    assert_eq!(why(pool.free(&up, d.address)), Release::Direct);
    assert_eq!((pool.usage(C).direct, up.live(), pool.counters().direct), (0, 0, 2));
}

#[test]
fn an_address_freed_behind_our_back_is_replaced() {
    for cached in [false, true] {
        let (up, pool) = (Sim::new(64 * MIB), Pool::new());
        let a = pool.alloc(&up, C, 4 * MIB, 1).unwrap();
        if cached {
            pool.free(&up, a.address);
        }
        assert!(up.behind_its_back(a.address));
        let b = pool.alloc(&up, C, 8 * MIB, 2).unwrap();
        assert_eq!(b.address, a.address);
        let stale = b.stale.unwrap();
        assert_eq!((stale.id, stale.state), (1, if cached { State::Inactive } else { State::Active }));
        assert_eq!(pool.stale_addresses(), 1);
        assert_eq!(pool.usage(C).reserved, 8 * MIB);
        assert_eq!(pool.inactive_bytes(C), 0);
        assert_eq!(pool.alloc(&up, C, 4 * MIB, 3).unwrap().how, How::Miss, "the stale block is in no list");
    }
}

#[test]
fn a_block_whose_address_is_given_out_while_it_is_freed_is_gone() {
    let (up, pool) = (Sim::new(64 * MIB), Pool::new());
    let a = pool.alloc(&up, C, 4 * MIB, 1).unwrap();
    let Begun::Begun(free) = pool.begin_free(a.address) else { panic!("ours") };
    assert!(up.behind_its_back(a.address));
    let b = pool.alloc(&up, C, 4 * MIB, 2).unwrap();
    assert_eq!((b.address, b.stale.unwrap().state), (a.address, State::Freeing));
    assert_eq!(why(free.finish(&up)), Release::Gone);
    assert_eq!(pool.find_active(b.address).unwrap().id, 2);
    assert_eq!(pool.usage(C).active, 4 * MIB);
}

#[test]
fn off_means_the_driver() {
    let (up, pool) = (Sim::new(64 * MIB), Pool::new());
    let (a, b) = (pool.alloc(&up, C, 512, 1).unwrap(), pool.alloc(&up, C, 512, 2).unwrap());
    pool.free(&up, a.address);
    pool.turn_off();
    assert_eq!(pool.alloc(&up, C, 512, 3).unwrap().how, How::Direct);
    assert_eq!(why(pool.free(&up, b.address)), Release::Off);
    assert_eq!(pool.trim(&up, Scope::All).blocks, 1);
}

#[test]
fn the_driver_may_give_an_address_out_before_its_free_returned() {
    // Another thread's miss gets the address between the driver's free and our clearing up: it must not be forgotten then.
    use std::sync::mpsc::channel;
    let (freed_tx, freed_rx) = channel();
    let (go_tx, go_rx) = channel();
    struct Slow(Sim, std::sync::Mutex<Option<(std::sync::mpsc::Sender<()>, std::sync::mpsc::Receiver<()>)>>);
    impl vramscope_core::pool::Upstream for Slow {
        type Error = Error;
        fn alloc(&self, c: ContextId, bytes: u64, s: u64) -> Result<u64, Error> {
            self.0.alloc(c, bytes, s)
        }
        fn free(&self, s: &vramscope_core::pool::Segment) -> Result<(), Error> {
            let r = self.0.free(s);
            if let Some((freed, go)) = self.1.lock().unwrap().take() {
                freed.send(()).unwrap();
                go.recv().unwrap();
            }
            r
        }
        fn out_of_memory(e: Error) -> bool {
            Sim::out_of_memory(e)
        }
        fn next_id(&self) -> u64 {
            self.0.next_id()
        }
        fn fence(&self, c: ContextId) -> Fence {
            self.0.fence(c)
        }
    }
    let (up, pool) = (Slow(Sim::new(64 * MIB), Some((freed_tx, go_rx)).into()), Pool::new());
    let a = pool.alloc(&up, C, 4 * MIB, 1).unwrap();
    pool.export(a.address);
    std::thread::scope(|s| {
        s.spawn(|| assert_eq!(why(pool.free(&up, a.address)), Release::Exported));
        freed_rx.recv().unwrap();
        let b = pool.alloc(&up, C, 4 * MIB, 2).unwrap();
        assert_eq!((b.address, b.stale), (a.address, None), "not behind our back");
        go_tx.send(()).unwrap();
    });
    assert_eq!(pool.find_active(a.address).unwrap().id, 2);
    assert_eq!(pool.usage(C).reserved, 4 * MIB);
}

#[test]
fn a_cancelled_thread_leaves_the_pool_usable() {
    let (mut up, pool) = (Sim::new(64 * MIB), Pool::new());
    up.on_free = Some(Box::new(|_| panic!("cancelled")));
    let (a, b) = (pool.alloc(&up, C, 512, 1).unwrap(), pool.alloc(&up, C, 512, 2).unwrap());
    pool.free(&up, a.address);
    let catch = |f: &dyn Fn()| std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).is_err();
    assert!(catch(&|| _ = pool.trim(&up, Scope::All)));
    pool.export(b.address);
    assert!(catch(&|| _ = pool.free(&up, b.address)));
    assert_eq!(pool.usage(C), Default::default());
    let calm = Sim::new(64 * MIB);
    assert_eq!(pool.trim(&calm, Scope::All), Trimmed::default(), "nobody waits for the lost thread");
    let c = pool.alloc(&calm, C, 512, 3).unwrap();
    assert!(kept(&pool.free(&calm, c.address)));
    assert!(!pool.is_off());
}
