//! Who gets what between streams, and at which price.

use crate::cases::{S, T, arena, get, put, sim};
use crate::sim::{Held, PAGE, Sim};
use std::sync::atomic::Ordering::SeqCst;
use vramscope_core::arena::{Arena, Options, StreamId};

const U: StreamId = StreamId(3);

fn calls(a: &Arena<&Sim>) -> (u64, u64, u64, u64) {
    let c = a.counts();
    (c.steals, c.records, c.waits, c.grows)
}

#[test]
fn another_stream_steals_behind_one_event() {
    let sim = sim();
    let a = arena(&sim);
    let blocks = [get(&a, 4 << 20, S), get(&a, 2 << 20, S), get(&a, 2 << 20, S)];
    put(&a, blocks[0], S);
    put(&a, blocks[2], S);
    assert_eq!(get(&a, 2 << 20, T).address, blocks[2].address);
    assert_eq!(calls(&a), (1, 1, 1, 3));
    // T's later work comes after all that S had then: no more calls for what was free by then.
    sim.calls();
    assert_eq!(get(&a, 4 << 20, T).address, blocks[0].address);
    assert_eq!((calls(&a), sim.calls()), ((1, 1, 1, 3), 0));
    // What S frees later needs a later event.
    put(&a, blocks[1], S);
    get(&a, 2 << 20, T);
    assert_eq!(calls(&a), (2, 2, 2, 3));
}

#[test]
fn what_is_done_needs_no_wait() {
    let sim = sim();
    let a = arena(&sim);
    let (b, c) = (get(&a, 2 << 20, S), get(&a, 2 << 20, S));
    put(&a, b, S);
    put(&a, c, S);
    get(&a, 2 << 20, T);
    sim.advance(S.0);
    // The event that T waited for is asked by U.
    get(&a, 2 << 20, U);
    assert_eq!(calls(&a), (1, 1, 1, 2));
}

/// Until a second stream is known, all free memory is the first one's.
fn make_known(a: &Arena<&Sim>) {
    for stream in [S, T] {
        let b = get(a, 100 << 10, stream);
        put(a, b, stream);
    }
    let mark = a.mark();
    a.backing().sync_all();
    a.all_synced(mark);
}

#[test]
fn untied_memory_comes_before_others() {
    let sim = sim();
    let a = arena(&sim);
    make_known(&a);
    let (big, _keep, other) = (get(&a, 8 << 20, S), get(&a, 5 << 20, S), get(&a, 2 << 20, S));
    let before = calls(&a).0;
    put(&a, big, S);
    let mark = a.mark();
    sim.sync_all();
    a.all_synced(mark);
    put(&a, other, S);
    let b = get(&a, 2 << 20, T);
    assert!(b.address < other.address);
    assert_eq!(calls(&a).0, before);
}

#[test]
fn a_sync_covers_what_was_freed_before_it_began() {
    let sim = sim();
    let a = arena(&sim);
    make_known(&a);
    let blocks = [get(&a, 2 << 20, S), get(&a, 4 << 20, S), get(&a, 2 << 20, S), get(&a, 4 << 20, S)];
    let (b, c, before) = (blocks[0], blocks[2], calls(&a));
    put(&a, b, S);
    let mark = a.mark();
    sim.sync(S.0);
    put(&a, c, S); // Another thread's, while the host waited.
    a.stream_synced(S, mark);
    assert_eq!(get(&a, 2 << 20, T).address, b.address);
    assert_eq!(calls(&a).0, before.0);
    assert_eq!(get(&a, 2 << 20, T).address, c.address);
    assert_eq!((calls(&a).0, calls(&a).2), (before.0 + 1, before.2 + 1));
}

#[test]
fn neighbours_of_several_streams_serve_together() {
    let sim = sim();
    let a = arena(&sim);
    let blocks: Vec<_> = [S, T, U, S].iter().map(|s| (get(&a, 2 << 20, *s), *s)).collect();
    let first = blocks[0].0.address;
    let keep = get(&a, 512, S);
    for (b, s) in blocks {
        put(&a, b, s);
    }
    let b = get(&a, 7 << 20, S);
    assert_eq!(b.address, first);
    assert_eq!(calls(&a), (1, 2, 2, 5));
    put(&a, b, S);
    put(&a, keep, S);
}

#[test]
fn a_block_waits_for_the_streams_that_use_it() {
    let sim = sim();
    let a = arena(&sim);
    for bytes in [1024, 200 << 10] {
        let b = get(&a, bytes, S);
        let before = calls(&a).1;
        sim.order(S.0, T.0);
        sim.work(T.0, b.address, b.bytes);
        a.record_stream(b.address, T).unwrap();
        put(&a, b, S);
        assert_eq!(calls(&a).1, before + 1, "the event is recorded at the free");
        let other = get(&a, b.bytes, S);
        assert_ne!(other.address, b.address);
        sim.advance(T.0);
        assert_eq!(get(&a, b.bytes, S).address, b.address);
        assert_eq!(calls(&a).2, 0);
    }
}

#[test]
fn a_waiting_block_is_stolen_before_growth() {
    let sim = sim();
    let a = arena(&sim);
    let b = get(&a, 2 << 20, S);
    sim.order(S.0, T.0);
    sim.work(T.0, b.address, b.bytes);
    a.record_stream(b.address, T).unwrap();
    put(&a, b, S);
    assert_eq!(get(&a, 2 << 20, S).address, b.address);
    assert_eq!(calls(&a), (1, 1, 1, 1));
    assert_eq!(a.counts().active.now, 2 << 20);
}

#[test]
fn an_ended_stream_leaves_an_event() {
    let sim = sim();
    let a = arena(&sim);
    let (b, small) = (get(&a, 2 << 20, S), get(&a, 1000, S));
    put(&a, b, S);
    put(&a, small, S);
    a.stream_ends(S);
    sim.destroy(S.0);
    assert_eq!(get(&a, 2 << 20, T).address, b.address);
    assert_eq!(calls(&a), (1, 1, 1, 2));
    assert_eq!(get(&a, 1000, U).address, small.address);
    sim.advance(S.0);
    get(&a, 64 << 20, T);
    assert_eq!(sim.events(), 0, "forgotten with its last event");
}

#[test]
fn a_user_may_end_before_the_free() {
    let sim = sim();
    let a = arena(&sim);
    let b = get(&a, 2 << 20, S);
    sim.order(S.0, T.0);
    sim.work(T.0, b.address, b.bytes);
    a.record_stream(b.address, T).unwrap();
    a.stream_ends(T);
    sim.destroy(T.0);
    put(&a, b, S);
    assert_eq!(a.counts().active.now, 2 << 20);
    sim.advance(T.0);
    assert_eq!(get(&a, 2 << 20, S).address, b.address);
}

#[test]
fn a_user_may_end_without_an_event() {
    let sim = sim();
    let a = arena(&sim);
    let b = get(&a, 2 << 20, S);
    sim.order(S.0, T.0);
    sim.work(T.0, b.address, b.bytes);
    a.record_stream(b.address, T).unwrap();
    sim.fail_record.store(1000, SeqCst);
    a.stream_ends(T);
    sim.destroy(T.0);
    put(&a, b, S);
    assert_ne!(get(&a, 2 << 20, S).address, b.address);
    let mark = a.mark();
    sim.sync_all();
    a.all_synced(mark);
    assert_eq!(get(&a, 2 << 20, S).address, b.address);
}

#[test]
fn where_an_event_is_refused_memory_stays_its_streams() {
    let sim = sim();
    let a = arena(&sim);
    let b = get(&a, 2 << 20, S);
    put(&a, b, S);
    sim.fail_record.store(1000, SeqCst);
    let c = get(&a, 2 << 20, T);
    assert_ne!(c.address, b.address);
    assert_eq!(get(&a, 2 << 20, S).address, b.address);
    put(&a, b, S);
    a.stream_ends(S);
    sim.destroy(S.0);
    assert_ne!(get(&a, 2 << 20, T).address, b.address);
    let mark = a.mark();
    sim.sync_all();
    a.all_synced(mark);
    assert_eq!(get(&a, 2 << 20, T).address, b.address);
}

#[test]
fn a_refused_wait_leaves_everything_as_it_was() {
    let sim = sim();
    let a = arena(&sim);
    let b = get(&a, 2 << 20, S);
    put(&a, b, S);
    sim.fail_wait.store(1000, SeqCst);
    assert_ne!(get(&a, 2 << 20, T).address, b.address);
    sim.fail_wait.store(0, SeqCst);
    sim.calls();
    assert_eq!(get(&a, 2 << 20, S).address, b.address);
    assert_eq!(sim.calls(), 0);
}

#[test]
fn a_stream_ends_after_the_points_others_are_making_in_it() {
    use std::sync::Barrier;
    use std::sync::atomic::AtomicBool;
    let barrier = std::sync::Arc::new(Barrier::new(2));
    let over = std::sync::Arc::new(AtomicBool::new(false));
    let mut sim = Sim::new(1 << 30);
    let (b, o) = (barrier.clone(), over.clone());
    let first = AtomicBool::new(true);
    sim.on_record = Some(Box::new(move |_| {
        if first.swap(false, SeqCst) {
            b.wait();
            std::thread::sleep(std::time::Duration::from_millis(50));
            assert!(!o.load(SeqCst), "the stream ended while a point was made in it");
        }
    }));
    let a = Held::new(&sim, Options::default());
    let block = get(&a, PAGE, S);
    put(&a, block, S);
    std::thread::scope(|s| {
        s.spawn(|| get(&a, PAGE, T));
        barrier.wait();
        a.stream_ends(S);
        over.store(true, SeqCst);
        sim.destroy(S.0);
    });
    assert_eq!(a.find(block.address).map(|b| b.id), Some(PAGE));
}
