//! Contexts that come and go.

use crate::cases::{C, MIB, why};
use crate::sim::Sim;
use vramscope_core::pool::{Begun, ContextId, Freed, How, Pool, Release, Scope};

#[test]
fn contexts_do_not_share_blocks() {
    let (up, pool) = (Sim::new(64 * MIB), Pool::new());
    let a = pool.alloc(&up, C, 512, 1).unwrap();
    pool.free(&up, a.address);
    assert_eq!(pool.alloc(&up, ContextId(2), 512, 2).unwrap().how, How::Miss);
    assert_eq!((pool.inactive_bytes(C), pool.inactive_bytes(ContextId(2))), (512, 0));
}

#[test]
fn a_dying_context_neither_serves_nor_keeps() {
    let (up, pool) = (Sim::new(64 * MIB), Pool::new());
    let (a, b) = (pool.alloc(&up, C, 512, 1).unwrap(), pool.alloc(&up, C, 512, 2).unwrap());
    pool.free(&up, a.address);
    pool.mark_dying(C);
    assert_eq!(why(pool.free(&up, b.address)), Release::Dying);
    let d = pool.alloc(&up, C, 512, 3).unwrap();
    assert_eq!((d.how, d.block), (How::Direct, 512));
    assert_eq!(pool.trim(&up, Scope::All).blocks, 0);
    pool.revive(C);
    assert_eq!(pool.alloc(&up, C, 512, 4).unwrap().address, a.address);
    pool.free(&up, a.address);
    pool.mark_dying(C);
    up.destroy_context(C);
    let live = pool.drop_context(C);
    assert_eq!(live.iter().map(|b| b.id).collect::<Vec<_>>(), [3]);
    assert_eq!(pool.usage(C), Default::default());
    assert_eq!(pool.free(&up, a.address), Freed::Unknown);
    assert_eq!(pool.free(&up, d.address), Freed::Unknown);
    // Calls that come too late still work.
    let late = pool.alloc(&up, C, 512, 9).unwrap();
    assert_eq!(late.how, How::Direct);
    assert_eq!(pool.free(&up, late.address), Freed::Unknown, "untracked: the driver answers");
}

#[test]
fn a_dropped_contexts_number_serves_the_next() {
    let (up, pool) = (Sim::new(64 * MIB), Pool::new());
    for _ in 0..200 {
        assert!(pool.reopen(C));
        let a = pool.alloc(&up, C, 512, 1).unwrap();
        let b = pool.alloc(&up, C, 3 * MIB, 2).unwrap();
        assert_eq!((a.how, b.how), (How::Miss, How::Miss), "nothing of the last context is left");
        pool.free(&up, a.address);
        assert_eq!(pool.alloc(&up, C, 512, 3).unwrap().how, How::HitExact);
        pool.mark_dying(C);
        assert!(!pool.reopen(C), "not while it may yet live on");
        up.destroy_context(C);
        pool.drop_context(C);
        assert_eq!(pool.usage(C), Default::default());
    }
    // A free that the end overtook is still under way: its record must not be taken for one of the next context.
    assert!(pool.reopen(C));
    let a = pool.alloc(&up, C, 512, 1).unwrap();
    let Begun::Begun(free) = pool.begin_free(a.address) else { panic!("ours") };
    up.destroy_context(C);
    pool.drop_context(C);
    assert!(!pool.reopen(C));
    assert_eq!(why(free.finish(&up)), Release::Gone);
    assert!(pool.reopen(C));
}

#[test]
fn a_free_that_a_context_end_overtakes_is_gone() {
    let (up, pool) = (Sim::new(64 * MIB), Pool::new());
    let a = pool.alloc(&up, C, 512, 1).unwrap();
    let Begun::Begun(free) = pool.begin_free(a.address) else { panic!("ours") };
    up.destroy_context(C);
    assert_eq!(pool.drop_context(C), []);
    assert_eq!(why(free.finish(&up)), Release::Gone);
    assert_eq!((pool.usage(C), pool.counters().waiting), (Default::default(), 0));
}

#[test]
fn contexts_beyond_the_last_are_passed_through() {
    let (up, pool) = (Sim::new(64 * MIB), Pool::new());
    let a = pool.alloc(&up, ContextId(64), 512, 1).unwrap();
    assert_eq!((a.how, pool.free(&up, a.address)), (How::Direct, Freed::Unknown));
    pool.mark_dying(ContextId(u16::MAX));
    assert_eq!(pool.drop_context(ContextId(64)), []);
}
