//! Known histories, and what the state makes of them.

use vramscope_core::event::FreeHow;

use super::*;
use crate::report::leaks::unfreed;
use crate::report::owners::owners;
use crate::report::testing::{MIB, Script};

fn event(kind: EventKind, id: u64) -> Event {
    Event { kind, id, context: 1, ..Event::default() }
}

#[test]
fn the_peak_knows_what_every_stack_held_then() {
    let mut s = Script::new();
    let (a, b, c) = (s.stack(&[(1, 1)]), s.stack(&[(1, 2)]), s.stack(&[(1, 3)]));
    let first = s.direct(Memory::Device, 10 * MIB, a, 1);
    s.direct(Memory::Device, 20 * MIB, b, 1);
    s.free(first, FreeHow::Driver);
    let second = s.direct(Memory::Device, 30 * MIB, c, 1);
    let at = s.time;
    s.free(second, FreeHow::Driver);
    s.direct(Memory::Device, 5 * MIB, a, 1);
    let h = s.history();
    assert_eq!((h.state.peak.totals.active(), h.state.peak.time), (50 * MIB, at));
    let held: Vec<u64> = h.state.groups().iter().map(|g| h.state.at_peak(g).bytes / MIB).collect();
    assert_eq!(held, [0, 20, 30]);
    assert_eq!(unfreed(&h.state).device, Tally { count: 2, bytes: 25 * MIB, requested: 25 * MIB });
}

#[test]
fn reserved_is_active_and_inactive_and_direct() {
    let mut s = Script::new();
    let (id, segment) = s.miss(3 * MIB - 7, 4 * MIB, 0);
    s.free(id, FreeHow::CachedDevice);
    s.direct(Memory::Managed, 6 * MIB, 0, 0);
    s.direct(Memory::Pinned, 100 * MIB, 0, 0);
    let h = s.history();
    let now = h.state.now;
    assert_eq!((now.active(), now.inactive(), now.reserved()), (6 * MIB, 4 * MIB, 10 * MIB));
    assert_eq!((now.rounding, h.state.inactive_peak), (0, 4 * MIB));
    s.pooled(Source::Hit, 3 * MIB, 4 * MIB, 0, segment);
    s.event(event(EventKind::SegmentFree, 99));
    s.direct(Memory::Device, 3 * MIB, 0, 0);
    let now = s.history().state.now;
    assert_eq!((now.active(), now.inactive(), now.rounding), (13 * MIB, 0, MIB));
}

#[test]
fn a_free_that_failed_did_not_happen() {
    let mut s = Script::new();
    let id = s.direct(Memory::Device, MIB, 0, 0);
    s.free(id, FreeHow::Driver);
    s.event(event(EventKind::FreeFailed, id));
    assert_eq!(s.history().state.now.active(), MIB);
    s.free(id, FreeHow::Driver);
    assert_eq!(s.history().state.now.active(), 0);
}

#[test]
fn a_block_and_its_segment_may_fail_to_be_freed_together() {
    let mut s = Script::new();
    let (id, segment) = s.miss(MIB, 2 * MIB, 0);
    s.free(id, FreeHow::Driver);
    s.event(event(EventKind::SegmentFree, segment));
    s.event(event(EventKind::FreeFailed, segment));
    s.event(event(EventKind::FreeFailed, id));
    let now = s.history().state.now;
    assert_eq!((now.active(), now.pool_reserved(), now.inactive()), (2 * MIB, 2 * MIB, 0));
}

#[test]
fn a_free_may_come_before_its_allocation() {
    let mut state = State::new(0);
    state.play(1, &event(EventKind::Free, 7));
    state.play(0, &Event { memory: Memory::Device, bytes: MIB, ..event(EventKind::Alloc, 7) });
    assert_eq!((state.now.active(), state.groups()[0].ever.count), (0, 1));
}

#[test]
fn the_end_of_a_context_frees_what_is_its_own() {
    let mut s = Script::new();
    let (id, _) = s.miss(MIB, MIB, 0);
    s.direct(Memory::Device, 2 * MIB, 0, 0);
    s.direct(Memory::Pinned, 3 * MIB, 0, 0);
    s.direct(Memory::Vmm, 4 * MIB, 0, 0);
    s.event(Event { context: 2, ..event(EventKind::ContextEnd, 0) });
    assert_eq!(s.history().state.now.reserved(), 7 * MIB);
    s.event(event(EventKind::ContextEnd, 0));
    s.free(id, FreeHow::Driver);
    let h = s.history();
    assert_eq!((h.state.now.active(), h.state.now.reserved()), (4 * MIB, 4 * MIB));
    let sum = unfreed(&h.state);
    assert_eq!((sum.device.count, sum.host.count, sum.reset.count, sum.reset.bytes), (1, 0, 3, 6 * MIB));
}

#[test]
fn a_block_that_was_exported_is_direct_from_then_on() {
    let mut s = Script::new();
    let (id, _) = s.miss(3 * MIB, 4 * MIB, 5);
    s.event(event(EventKind::Export, id));
    let h = s.history();
    assert_eq!((h.state.now.pool_reserved(), h.state.now.layer(Layer::Direct).bytes), (0, 4 * MIB));
    assert_eq!(owners(&h)[0].now.bytes, 4 * MIB);
    s.free(id, FreeHow::Driver);
    assert_eq!(s.history().state.now.reserved(), 0);
}

#[test]
fn devices_are_told_apart_by_their_contexts() {
    let mut s = Script::new();
    s.event(Event { kind: EventKind::Context, context: 2, extra: [1, 1, 0], ..Event::default() });
    s.direct(Memory::Device, 2 * MIB, 0, 0);
    s.event(Event {
        kind: EventKind::Alloc,
        memory: Memory::Device,
        id: 50,
        bytes: 8 * MIB,
        context: 2,
        ..Event::default()
    });
    s.event(Event { kind: EventKind::Sample, bytes: 90 * MIB, block: 100 * MIB, context: 2, ..Event::default() });
    let state = s.history().state;
    assert_eq!(state.peak.devices[&1].active(), 8 * MIB);
    assert_eq!(state.peak.devices[&0].active(), 2 * MIB);
    let sample = state.samples[&1];
    assert_eq!((sample.used, sample.ours), (10 * MIB, 8 * MIB));
}

#[test]
fn what_another_process_owns_is_not_counted() {
    let mut s = Script::new();
    s.direct(Memory::Imported, MIB, 0, 0);
    let h = s.history();
    assert_eq!((h.state.now.reserved(), unfreed(&h.state)), (0, Default::default()));
}

#[test]
fn a_later_part_begins_with_what_was_live() {
    let mut state = State::new(0);
    state.was_live(&Event { memory: Memory::Device, bytes: MIB, ..event(EventKind::Alloc, 7) });
    assert_eq!((state.now.active(), state.groups()[0].ever.count, state.peak.totals.active()), (MIB, 0, MIB));
    state.play(0, &event(EventKind::Free, 7));
    assert_eq!(state.now.active(), 0);
}

proptest::proptest! {
    /// Against the obvious way: keep everything, look for the largest moment afterwards.
    #[test]
    fn the_peak_is_what_a_second_look_finds(ops in proptest::collection::vec((0u32..4, 1u64..9, proptest::bool::ANY), 1..80)) {
        let mut s = Script::new();
        let mut live: Vec<(u64, u32, u64)> = Vec::new();
        let mut best: (u64, Vec<u64>) = (0, vec![0; 5]);
        for (stack, size, free) in ops {
            if free && !live.is_empty() {
                let (id, ..) = live.remove(stack as usize % live.len());
                s.free(id, FreeHow::Driver);
                continue;
            }
            let id = s.direct(Memory::Device, size, stack + 1, 1);
            live.push((id, stack + 1, size));
            let sum = live.iter().map(|l| l.2).sum();
            if sum > best.0 {
                let of = |n: u32| live.iter().filter(|l| l.1 == n).map(|l| l.2).sum();
                best = (sum, (0..5).map(of).collect());
            }
        }
        let h = s.history();
        proptest::prop_assert_eq!(h.state.peak.totals.active(), best.0);
        for g in h.state.groups() {
            proptest::prop_assert_eq!(h.state.at_peak(g).bytes, best.1[g.stack as usize]);
        }
        let left: u64 = live.iter().map(|l| l.2).sum();
        proptest::prop_assert_eq!(unfreed(&h.state).device.requested, left);
    }
}
