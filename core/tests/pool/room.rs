//! What is kept and what goes back to the driver: refused fences, trims, pressure, out of memory.

use crate::cases::{C, MIB, kept, logged, why};
use crate::sim::{Call, Sim};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use vramscope_core::pool::{ContextId, Fence, Freed, How, Pool, Release, Scope, Trimmed};

#[test]
fn a_refused_fence_frees_really() {
    let (up, pool) = (Sim::new(64 * MIB), Pool::new());
    let a = pool.alloc(&up, C, 512, 1).unwrap();
    up.fence.store(3, SeqCst);
    assert_eq!(why(pool.free(&up, a.address)), Release::FenceRefused);
    let c = pool.counters();
    assert_eq!((c.barriers_refused, c.frees_driver, c.reserved, up.live()), (1, 1, 0, 0));
    for (n, fence) in [(0, Fence::NotNeeded), (1, Fence::Device), (2, Fence::Host)] {
        up.fence.store(n, SeqCst);
        let a = pool.alloc(&up, C, 512, 2 + n).unwrap();
        let Freed::Kept { fence: f, .. } = pool.free(&up, a.address) else { panic!("kept") };
        assert_eq!(f, fence);
    }
    let c = pool.counters();
    assert_eq!((c.no_barriers, c.device_barriers, c.host_barriers), (1, 1, 1));
}

#[test]
fn room_is_made_at_free() {
    let (up, pool) = (logged(1 << 30), Pool::new());
    let a = [2, 64, 4].map(|n| pool.alloc(&up, C, n * MIB, n).unwrap().address);
    up.max_cached.store(66 * MIB, SeqCst);
    assert!(kept(&pool.free(&up, a[0])));
    assert!(kept(&pool.free(&up, a[1])));
    up.take_calls();
    let Freed::Kept { shed, .. } = pool.free(&up, a[2]) else { panic!("kept") };
    assert_eq!((shed.blocks, up.take_calls()), (1, vec![Call::Free(64 * MIB)]), "the dearest idle block");
    let b = pool.alloc(&up, C, 80 * MIB, 9).unwrap();
    let freed = pool.free(&up, b.address);
    let Freed::Released { shed, .. } = freed else { panic!("no room for it at all") };
    assert_eq!((why(freed), shed.blocks), (Release::Shed, 0), "the others may stay");
    assert_eq!(pool.inactive_bytes(C), 6 * MIB);
}

#[test]
fn a_block_in_constant_use_stays_and_an_old_one_goes() {
    let (up, pool) = (Sim::new(1 << 30), Pool::new());
    let old = pool.alloc(&up, C, 8 * MIB, 1).unwrap();
    pool.free(&up, old.address);
    let hot = pool.alloc(&up, C, 16 * MIB, 2).unwrap();
    for n in 0..20 {
        pool.alloc(&up, C, 100 * n, 50 + n).ok(); // Misses: time passes.
    }
    pool.free(&up, hot.address);
    pool.trim(&up, Scope::AtLeast(1, C));
    assert!(pool.block_of(old.address).is_none());
    assert!(pool.block_of(hot.address).is_some());
}

#[test]
fn small_blocks_are_trimmed_last() {
    let (up, pool) = (Sim::new(1 << 30), Pool::new());
    let a: Vec<_> = (0..50).map(|n| pool.alloc(&up, C, MIB, n).unwrap().address).collect();
    let big = pool.alloc(&up, C, 2 * MIB, 99).unwrap();
    a.iter().for_each(|a| assert!(kept(&pool.free(&up, *a))));
    assert!(kept(&pool.free(&up, big.address)));
    assert_eq!(pool.trim(&up, Scope::AtLeast(MIB, C)), Trimmed { bytes: 2 * MIB, blocks: 1, failed: 0 });
    assert_eq!(pool.trim(&up, Scope::AtLeast(MIB + 1, C)), Trimmed { bytes: 2 * MIB, blocks: 2, failed: 0 });
    assert_eq!(pool.trim(&up, Scope::Context(ContextId(2))), Trimmed::default());
    assert_eq!(pool.trim(&up, Scope::Context(C)).blocks, 48);
    assert_eq!(up.live(), 0);
}

#[test]
fn the_oldest_of_a_class_goes_first() {
    let (up, pool) = (Sim::new(1 << 30), Pool::new());
    let (a, b) = (pool.alloc(&up, C, 2 * MIB, 1).unwrap(), pool.alloc(&up, C, 2 * MIB, 2).unwrap());
    pool.free(&up, b.address);
    pool.free(&up, a.address);
    assert_eq!(pool.trim(&up, Scope::AtLeast(1, C)).blocks, 1);
    assert!(pool.block_of(b.address).is_none() && pool.block_of(a.address).is_some());
}

#[test]
fn who_is_out_of_memory_waits_for_what_others_are_giving_back() {
    let (mut up, pool) = (Sim::new(16 * MIB), Pool::new());
    let (taken_tx, taken_rx) = std::sync::mpsc::channel();
    up.on_free = Some(Box::new(move |_| {
        taken_tx.send(()).unwrap();
        // The driver waits for the device, while the other thread finds the cache empty.
        std::thread::sleep(std::time::Duration::from_millis(50));
    }));
    let a = pool.alloc(&up, C, 16 * MIB, 1).unwrap();
    pool.free(&up, a.address);
    std::thread::scope(|s| {
        s.spawn(|| pool.trim(&up, Scope::AtLeast(1, C)));
        taken_rx.recv().unwrap();
        let b = pool.alloc(&up, C, 16 * MIB, 2).expect("what the driver alone could have served");
        assert_eq!((b.how, b.trimmed.blocks), (How::Miss, 0));
    });
}

#[test]
fn under_pressure_frees_are_real() {
    let (up, pool) = (Sim::new(64 * MIB), Pool::new());
    let a = pool.alloc(&up, C, 512, 1).unwrap();
    {
        let _pressure = pool.pressure();
        assert_eq!(why(pool.free(&up, a.address)), Release::OutOfMemory);
    }
    let a = pool.alloc(&up, C, 512, 2).unwrap();
    assert!(kept(&pool.free(&up, a.address)));
}

#[test]
fn what_changes_during_the_fence_counts() {
    let pool = Arc::new(Pool::new());
    let mut up = Sim::new(64 * MIB);
    let p = pool.clone();
    up.on_fence = Some(Box::new(move |_| std::mem::forget(p.pressure())));
    let a = pool.alloc(&up, C, 512, 1).unwrap();
    assert_eq!(why(pool.free(&up, a.address)), Release::OutOfMemory);
    let pool = Arc::new(Pool::new());
    let p = pool.clone();
    up.on_fence = Some(Box::new(move |_| p.mark_dying(C)));
    let a = pool.alloc(&up, C, 512, 3).unwrap();
    assert_eq!(why(pool.free(&up, a.address)), Release::Dying);
}

#[test]
fn what_others_free_while_memory_is_short_reaches_the_driver() {
    let pool = Arc::new(Pool::new());
    let mut up = Sim::new(16 * MIB);
    let (cached, other) = (pool.alloc(&up, C, 4 * MIB, 1).unwrap(), pool.alloc(&up, C, 12 * MIB, 2).unwrap());
    pool.free(&up, cached.address);
    let (p, calls) = (pool.clone(), AtomicU64::new(0));
    up.on_alloc = Some(Box::new(move |up| {
        // Between the trim and the last call.
        if calls.fetch_add(1, SeqCst) == 1 {
            assert_eq!(why(p.free(up, other.address)), Release::OutOfMemory);
        }
    }));
    assert!(pool.alloc(&up, C, 16 * MIB, 3).is_ok());
}
