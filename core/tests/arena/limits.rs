//! Giving memory back, limits, and what happens when there is no more.

use crate::cases::{S, T, arena, get, put, sim};
use crate::sim::{Error, Held, PAGE, Sim};
use std::sync::atomic::Ordering::SeqCst;
use vramscope_core::arena::{Options, Reason};

fn with(sim: &Sim, set: impl FnOnce(&mut Options)) -> Held<'_> {
    let mut o = Options::default();
    o.least_chunk = o.chunk;
    set(&mut o);
    Held::new(sim, o)
}

#[test]
fn trim_gives_back_what_no_work_touches() {
    let sim = sim();
    let a = arena(&sim);
    let (b, c) = (get(&a, 8 << 20, S), get(&a, 8 << 20, S));
    put(&a, b, S);
    assert_eq!(a.trim(0), 0, "work is pending");
    sim.advance(S.0);
    assert_eq!(a.trim(0), 8 << 20);
    put(&a, c, S);
    let mark = a.mark();
    sim.sync_all();
    a.all_synced(mark);
    assert_eq!(a.trim(8 << 20), 0, "no more than that is mapped");
    assert_eq!((a.trim(1), sim.mapped(), a.counts().reserved.now), (8 << 20, 0, 0));
}

#[test]
fn the_highest_chunks_go_first() {
    let sim = sim();
    let a = arena(&sim);
    let blocks: Vec<_> = (0..4).map(|_| get(&a, 4 << 20, S)).collect();
    blocks.iter().for_each(|b| put(&a, *b, S));
    sim.advance(S.0);
    assert_eq!(a.trim(9 << 20), 8 << 20);
    let kept: Vec<u64> = a.snapshot().chunks.iter().map(|c| c.address).collect();
    assert_eq!(kept, [blocks[0].address, blocks[1].address]);
}

#[test]
fn a_sync_gives_back_what_is_above_the_threshold() {
    let sim = sim();
    let a = arena(&sim);
    let blocks: Vec<_> = (0..4).map(|_| get(&a, 4 << 20, S)).collect();
    blocks.iter().for_each(|b| put(&a, *b, S));
    a.set_release_threshold(8 << 20);
    let mark = a.mark();
    sim.sync_all();
    a.all_synced(mark);
    assert_eq!(sim.mapped(), 8 << 20);
    a.set_release_threshold(0);
    let mark = a.mark();
    sim.sync(S.0);
    a.stream_synced(S, mark);
    assert_eq!(sim.mapped(), 0);
}

#[test]
fn above_the_limit_free_memory_moves_and_then_a_request_fails() {
    let sim = sim();
    let a = with(&sim, |o| o.limit = 16 << 20);
    let blocks: Vec<_> = (0..4).map(|_| get(&a, 4 << 20, S)).collect();
    put(&a, blocks[0], S);
    put(&a, blocks[2], S);
    // 8 MiB are free, not together, and work is pending: it would help to wait.
    let f = a.alloc(8 << 20, S, 0).unwrap_err();
    assert_eq!((f.reason, f.tied), (Reason::OverLimit, 8 << 20));
    let mark = a.mark();
    sim.sync_all();
    a.all_synced(mark);
    let b = get(&a, 8 << 20, S);
    assert_eq!(sim.mapped(), 16 << 20);
    assert_eq!(a.alloc(512, T, 0).unwrap_err().reason, Reason::OverLimit);
    assert_eq!(a.alloc(17 << 20, T, 0).unwrap_err().reason, Reason::OverLimit);
    put(&a, b, S);
    a.set_limit(u64::MAX);
    get(&a, 17 << 20, T);
}

#[test]
fn a_full_device_gets_free_chunks_back_first() {
    let sim = Sim::new(32 << 20);
    let a = arena(&sim);
    let blocks: Vec<_> = (0..8).map(|_| get(&a, 4 << 20, S)).collect();
    for i in [0, 2, 4] {
        put(&a, blocks[i], S);
    }
    assert!(matches!(a.alloc(12 << 20, S, 0).unwrap_err().reason, Reason::Backing(Error::OutOfMemory)));
    sim.advance(S.0);
    get(&a, 12 << 20, S);
    assert_eq!(sim.mapped(), 32 << 20);
    assert!(a.counts().retries > 0 && a.counts().trims == 3);
}

#[test]
fn a_chunk_that_fails_leaves_the_others_as_free_memory() {
    let sim = Sim::new(10 << 20);
    let a = with(&sim, |o| o.chunk = PAGE);
    sim.fail_unmap.store(1000, SeqCst);
    assert!(a.alloc(12 << 20, S, 0).is_err());
    let c = a.counts();
    assert_eq!((c.reserved.now, c.inactive.now, sim.mapped()), (10 << 20, 10 << 20, 10 << 20));
    get(&a, 10 << 20, S);
}

#[test]
fn a_chunk_that_can_not_be_unmapped_stays_in_use() {
    let sim = sim();
    let a = arena(&sim);
    let b = get(&a, 8 << 20, S);
    put(&a, b, S);
    sim.advance(S.0);
    sim.fail_unmap.store(1000, SeqCst);
    assert_eq!((a.trim(0), sim.mapped()), (0, 8 << 20));
    assert_eq!(get(&a, 8 << 20, T).address, b.address);
    sim.fail_unmap.store(0, SeqCst);
    put(&a, b, T);
    sim.advance(T.0);
    assert_eq!(a.trim(0), 8 << 20);
}

#[test]
fn blocks_above_max_split_stay_whole() {
    let sim = sim();
    let a = with(&sim, |o| o.max_split = 32 << 20);
    let big = get(&a, 64 << 20, S);
    put(&a, big, S);
    let small = get(&a, 1 << 20, S);
    assert!(small.address >= big.address + big.bytes, "not cut from the large one");
    let other = get(&a, 40 << 20, S);
    assert_ne!(other.address, big.address, "it would leave 24 MiB unused");
    let near = get(&a, 50 << 20, S);
    assert_eq!((near.address, near.bytes), (big.address, 64 << 20));
    put(&a, near, S);
    sim.calls();
    let stolen = get(&a, 64 << 20, T);
    assert_eq!((stolen.address, a.counts().steals), (big.address, 1));
    put(&a, stolen, T);
    sim.advance(S.0);
    sim.advance(T.0);
    assert_eq!(a.trim(0), 64 << 20);
}

#[test]
fn free_memory_goes_back_before_growth_above_the_collection_threshold() {
    let sim = sim();
    let a = with(&sim, |o| (o.limit, o.gc_threshold, o.chunk) = (100 << 20, 500, PAGE));
    let blocks: Vec<_> = (0..20).map(|_| get(&a, PAGE, S)).collect();
    blocks.iter().step_by(2).for_each(|b| put(&a, *b, S));
    sim.advance(S.0);
    let before = sim.mapped();
    get(&a, 16 << 20, S);
    assert_eq!((before, sim.mapped()), (40 << 20, 50 << 20));
}

#[test]
fn ranges_are_added_and_may_be_refused() {
    let sim = sim();
    let a = with(&sim, |o| o.reserve = 8 << 20);
    get(&a, 6 << 20, S);
    get(&a, 6 << 20, S);
    get(&a, 100 << 20, S);
    assert_eq!(a.snapshot().ranges.len(), 3);
    sim.fail_reserve.store(1000, SeqCst);
    assert_eq!(a.alloc(100 << 20, S, 0).unwrap_err().reason, Reason::Backing(Error::NoAddresses));
    get(&a, 1 << 20, S);
}

#[test]
fn what_can_not_be_opened_is_not_there() {
    let sim = sim();
    let a = Held::new(&sim, Options::default());
    sim.fail_open.store(1000, SeqCst);
    assert!(matches!(a.alloc(8 << 20, S, 0).unwrap_err().reason, Reason::Backing(Error::Broken)));
    assert_eq!((sim.mapped(), a.counts().reserved.now), (0, 0));
    sim.fail_open.store(0, SeqCst);
    let b = get(&a, 8 << 20, S);
    assert_eq!(sim.mapped(), 8 << 20);
    put(&a, b, S);
    // What can't be unmapped, either, lies in the way: nothing is served any more.
    sim.fail_open.store(1000, SeqCst);
    sim.fail_unmap.store(1000, SeqCst);
    assert!(a.alloc(64 << 20, S, 0).is_err());
    assert!(a.is_broken());
    // It would not come back when the arena is dropped, either.
    std::mem::forget(a);
}
