//! Each rule by itself: placement, frees, look-up, numbers.

use crate::sim::{Held, PAGE, Sim};
use std::sync::atomic::Ordering::SeqCst;
use vramscope_core::arena::{Arena, BadFree, Block, BlockState, Options, Reason, StreamId};

pub const S: StreamId = StreamId(1);
pub const T: StreamId = StreamId(2);

pub fn sim() -> Sim {
    Sim::new(1 << 40)
}

pub fn arena(sim: &Sim) -> Held<'_> {
    let mut o = Options::default();
    o.least_chunk = o.chunk;
    Held::new(sim, o)
}

/// A block, checked.
pub fn get(a: &Arena<&Sim>, bytes: u64, stream: StreamId) -> Block {
    let b = a.alloc(bytes, stream, bytes).unwrap();
    a.backing().check_handed_out(stream.0, b.address, b.bytes);
    b
}

/// Work on the block, and its free.
pub fn put(a: &Arena<&Sim>, b: Block, stream: StreamId) {
    a.backing().work(stream.0, b.address, b.bytes);
    a.backing().leave(b.address);
    assert_eq!(a.free(b.address, stream), Ok(b));
}

#[test]
fn a_stream_gets_its_own_block_again_without_a_call() {
    let sim = sim();
    let a = arena(&sim);
    for bytes in [1, 4096, 100 << 10, 3 << 20, 100 << 20] {
        let b = get(&a, bytes, S);
        assert_eq!(b.bytes, bytes.next_multiple_of(512));
        put(&a, b, S);
        sim.calls();
        let again = get(&a, bytes, S);
        assert_eq!((again, sim.calls()), (b, 0));
        put(&a, again, S);
    }
}

#[test]
fn small_blocks_share_a_chunk_and_neighbours_join() {
    let sim = sim();
    let a = arena(&sim);
    let blocks: Vec<Block> = (0..4).map(|_| get(&a, 512 << 10, S)).collect();
    assert_eq!(sim.mapped(), PAGE);
    for (i, b) in blocks.iter().enumerate() {
        assert_eq!(b.address, blocks[0].address + i as u64 * (512 << 10));
    }
    for i in [0, 2, 1, 3] {
        put(&a, blocks[i], S);
    }
    assert_eq!(get(&a, PAGE, S).address, blocks[0].address);
    assert_eq!(sim.mapped(), PAGE);
}

#[test]
fn the_best_fit_serves_and_of_equal_ones_the_lowest() {
    let sim = sim();
    let a = arena(&sim);
    let sizes = [4 << 20, 1 << 20, 3 << 20, 1 << 20, 3 << 20, 1 << 20];
    let blocks: Vec<Block> = sizes.iter().map(|s| get(&a, *s, S)).collect();
    for i in [4, 0, 2] {
        put(&a, blocks[i], S);
    }
    assert_eq!(get(&a, 3 << 20, S).address, blocks[2].address);
    assert_eq!(get(&a, 2 << 20, S).address, blocks[4].address);
}

#[test]
fn growth_takes_the_free_end_into_account() {
    let sim = sim();
    let a = arena(&sim);
    let b = get(&a, 10 << 20, S);
    put(&a, b, S);
    let b = get(&a, 12 << 20, S);
    assert_eq!((sim.mapped(), a.snapshot().chunks.len()), (12 << 20, 2));
    put(&a, b, S);
}

#[test]
fn memory_given_back_leaves_holes_that_are_filled_again() {
    let sim = sim();
    let mut o = Options::default();
    o.chunk = PAGE;
    let a = Held::new(&sim, o);
    let blocks: Vec<Block> = (0..6).map(|_| get(&a, PAGE, S)).collect();
    for i in [1, 2, 4] {
        put(&a, blocks[i], S);
    }
    sim.advance(S.0);
    assert_eq!(a.trim(0), 3 * PAGE);
    assert_eq!(sim.mapped(), 3 * PAGE);
    // The lowest hole, then what is left of it, then the next.
    assert_eq!(get(&a, PAGE, T).address, blocks[1].address);
    assert_eq!(get(&a, PAGE - 512, T).address, blocks[2].address);
    // Free memory above a hole: only the hole's end is mapped.
    put(&a, blocks[5], S);
    let b = get(&a, 2 * PAGE, S);
    assert_eq!((b.address, sim.mapped()), (blocks[4].address, 6 * PAGE));
}

#[test]
fn wrong_frees_are_told_apart() {
    let sim = sim();
    let a = arena(&sim);
    assert_eq!(a.free(0x1234, S), Err(BadFree::Unknown));
    assert_eq!(a.free(0, S), Err(BadFree::Unknown));
    let (small, large) = (get(&a, 1000, S), get(&a, 5 << 20, S));
    for b in [small, large] {
        assert_eq!(a.free(b.address + 512, S), Err(BadFree::Interior { block: b }));
        assert_eq!(a.free(b.address + 7, S), Err(BadFree::Interior { block: b }));
        assert_eq!(a.find(b.address + b.bytes - 1), Some(b));
        put(&a, b, S);
        assert_eq!(a.free(b.address, S), Err(BadFree::Double));
        assert_eq!(a.record_stream(b.address, T), Err(BadFree::Double));
        assert_eq!(a.find(b.address), None);
    }
    assert_eq!(a.free(large.address + (1 << 33), S), Err(BadFree::Unknown));
    assert_eq!(a.free(u64::MAX, S), Err(BadFree::Unknown));
    assert_eq!(a.counts().bad_frees, 12);
}

#[test]
fn a_free_has_two_steps_and_can_be_abandoned() {
    let sim = sim();
    let a = arena(&sim);
    for bytes in [100, 1 << 20] {
        let b = get(&a, bytes, S);
        let free = a.begin_free(b.address).unwrap();
        assert_eq!(*free.block(), b);
        assert!(matches!(a.begin_free(b.address), Err(BadFree::Double)));
        assert_ne!(a.alloc(bytes, S, 0).unwrap().address, b.address);
        drop(free);
        assert_eq!(a.begin_free(b.address).unwrap().finish(S), b);
        assert_eq!(a.alloc(bytes, S, 0).unwrap().address, b.address);
    }
}

#[test]
fn in_a_child_each_block_is_freed_once() {
    let sim = sim();
    let a = arena(&sim);
    let (small, large, gone) = (get(&a, 1000, S), get(&a, 5 << 20, S), get(&a, 1 << 20, S));
    a.record_stream(large.address, T).unwrap();
    put(&a, gone, S);
    let wrong = [0, 0x1234, gone.address, large.address + 512, large.address + (1 << 33)];
    for address in wrong.into_iter().chain([small.address, large.address].map(|a| a + 7)) {
        assert!(!a.free_in_child(address), "{address:#x}");
    }
    for b in [small, large] {
        assert!(a.free_in_child(b.address) && !a.free_in_child(b.address));
        assert_eq!(a.free(b.address, S), Err(BadFree::Double));
    }
}

#[test]
fn any_size_is_answered() {
    let sim = Sim::new(64 << 20);
    let a = arena(&sim);
    assert_eq!(get(&a, 0, S).bytes, 512);
    for bytes in [u64::MAX, u64::MAX - 511, 1 << 63, (1 << 46) + 1] {
        assert_eq!(a.alloc(bytes, S, 1).unwrap_err().reason, Reason::TooLarge);
    }
    assert!(matches!(a.alloc(1 << 46, S, 1).unwrap_err().reason, Reason::Backing(_)));
    assert_eq!(get(&a, 512, S).bytes, 512);
    assert_eq!(a.counts().failures, 5);
}

#[test]
fn numbers_have_pytorchs_meanings() {
    let sim = sim();
    let a = arena(&sim);
    let b = get(&a, 1000, S);
    let big = get(&a, 3 << 20, S);
    let c = a.counts();
    assert_eq!((c.allocated.now, c.requested.now), (1024 + (3 << 20), 1000 + (3 << 20)));
    assert_eq!((c.reserved.now, c.inactive.now), (4 << 20, (4 << 20) - c.active.now));
    a.record_stream(big.address, T).unwrap();
    put(&a, big, S);
    let c = a.counts();
    assert_eq!((c.allocated.now, c.active.now), (1024, 1024 + (3 << 20)));
    put(&a, b, S);
    a.reset_peaks();
    let c = a.counts();
    assert_eq!((c.allocated.now, c.allocated.peak, c.requested.peak), (0, 0, 0));
    assert_eq!((c.active.peak, c.reserved.peak, c.allocs, c.frees), (3 << 20, 4 << 20, 2, 2));
    // Nobody else is at work: a small block's peak is exact, too.
    let b = get(&a, 700, S);
    put(&a, b, S);
    assert_eq!(a.counts().allocated.peak, 1024);
}

#[test]
fn a_snapshot_tiles_what_is_mapped() {
    let sim = sim();
    let a = arena(&sim);
    let (b, c) = (get(&a, 600, S), get(&a, 1 << 20, T));
    a.record_stream(c.address, S).unwrap();
    put(&a, c, T);
    let s = a.snapshot();
    let states: Vec<_> = s.blocks.iter().map(|v| (v.block.bytes, v.state, v.stream)).collect();
    let rest = PAGE - 1024 - (1 << 20);
    assert_eq!(
        states,
        [
            (1024, BlockState::Active, Some(S)),
            (1 << 20, BlockState::Waiting, Some(T)),
            (rest, BlockState::Inactive, None)
        ]
    );
    assert_eq!((s.blocks[0].block, s.chunks.len(), s.ranges.len()), (b, 1, 1));
}

#[test]
fn dropped_it_gives_everything_back() {
    let sim = sim();
    let mut o = Options::default();
    o.reserve = 8 << 20;
    let a = Held::new(&sim, o);
    for i in 1..20 {
        get(&a, i << 20, StreamId(i % 3));
    }
    let b = get(&a, 1 << 20, S);
    put(&a, b, S);
    get(&a, 1 << 20, T);
    assert!(a.snapshot().ranges.len() > 1);
    sim.over();
    drop(a);
    sim.assert_empty();
}

#[test]
fn a_full_front_goes_back_whole() {
    let sim = sim();
    let mut o = Options::default();
    o.front = 64 << 10;
    o.least_chunk = o.chunk;
    let a = Held::new(&sim, o);
    let blocks: Vec<Block> = (0..64).map(|_| get(&a, 32 << 10, S)).collect();
    let first = blocks[0].address;
    blocks.into_iter().for_each(|b| put(&a, b, S));
    // All joined but for what is at hand, and that comes back when it is needed.
    assert_eq!(get(&a, PAGE, S).address, first);
    assert_eq!((sim.mapped(), sim.calls.load(SeqCst)), (PAGE, 3));
}
