//! A good history has no violation, and each way to break one is told by its name.

use super::*;
use vramscope_core::event::{Memory, Source};
use vramscope_core::trace::{Device, FORMAT, Footer, Frame, Module, Python, Stack, Text, Thread, VERSION, write};

#[path = "../../benches/training/mod.rs"]
mod training;

const MIB: u64 = 1 << 20;
const AT: u64 = 0x7f00_0000_0000;

fn alloc(id: u64, address: u64, bytes: u64) -> Event {
    let (kind, memory) = (EventKind::Alloc, Memory::Device);
    Event { kind, memory, id, address, bytes, context: 1, stack: 1, caller: 1, ..Event::default() }
}

fn tensor(id: u64, address: u64, bytes: u64) -> Event {
    Event { memory: Memory::Tensor, ..alloc(id, address, bytes) }
}

fn free(id: u64) -> Event {
    Event { kind: EventKind::Free, id, ..Event::default() }
}

fn segment(id: u64, address: u64, bytes: u64) -> Event {
    Event { kind: EventKind::SegmentAlloc, ..alloc(id, address, bytes) }
}

fn block(id: u64, segment: u64, address: u64, bytes: u64) -> Event {
    Event { how: Source::Hit as u8, extra: [segment, 0, 0], ..alloc(id, address, bytes) }
}

fn of_kind(kind: EventKind) -> Event {
    Event { kind, ..Event::default() }
}

/// A history with these events in its middle, in thread 1, and thread 2 standing by.
fn history(events: &[Event]) -> Vec<Line> {
    let exit = of_kind(EventKind::Exit);
    let mut lines = vec![
        Line::Header(Header { format: FORMAT.into(), version: VERSION, granularity: 2 * MIB, ..Header::default() }),
        Line::Device(Device { device: 0, bytes: 80 << 30, ..Device::default() }),
        Line::Module(Module { module: 1, ..Module::default() }),
        Line::Text(Text { text: 1, value: "forward".into() }),
        Line::Python(Python { python: 1, ..Python::default() }),
        Line::Stack(Stack { stack: 1, frames: vec![Frame::Native(1, 5), Frame::Python(1)], cut: false }),
        Line::Thread(Thread { thread: 1, ..Thread::default() }),
        Line::Thread(Thread { thread: 2, ..Thread::default() }),
        Line::Event(1, Event { kind: EventKind::Context, context: 1, ..Event::default() }),
    ];
    lines.extend(events.iter().chain([&exit]).map(|e| Line::Event(1, *e)));
    let mut time = 0;
    for line in &mut lines {
        if let Line::Event(_, e) = line {
            time += 1000;
            e.time = time;
        }
    }
    let events = events.len() as u64 + 2;
    lines.push(Line::Footer(Footer { time, events, end: "exit".into(), by: "launcher".into(), ..Footer::default() }));
    lines
}

fn of_lines(lines: &[Line]) -> Verdict {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.jsonl");
    let mut text = Vec::new();
    lines.iter().for_each(|line| write::line(&mut text, line));
    std::fs::write(&path, text).unwrap();
    verify(&path).unwrap()
}

/// The kinds of violation in a history, with line and count.
fn found(lines: &[Line]) -> Vec<(Kind, u64, u64)> {
    of_lines(lines).violations.iter().map(|v| (v.kind, v.line, v.count)).collect()
}

fn kinds(lines: &[Line]) -> Vec<Kind> {
    found(lines).iter().map(|f| f.0).collect()
}

#[test]
fn a_training_loop_has_none() {
    let folder = tempfile::tempdir().unwrap();
    for compress in [false, true] {
        let path = folder.path().join("x");
        let mut text = Vec::new();
        training::write_history(&mut text, 20_000, compress).unwrap();
        std::fs::write(&path, text).unwrap();
        let verdict = verify(&path).unwrap();
        assert!(verdict.violations.is_empty(), "{:?}", verdict.violations);
        assert!(verdict.events >= 20_000 && verdict.threads == 2 && verdict.stacks == 300, "{verdict:?}");
    }
}

#[test]
fn good_ones() {
    let map =
        Event { kind: EventKind::Map, memory: Memory::Vmm, address: AT, bytes: 2 * MIB, id: 1, ..Event::default() };
    let region = Event { kind: EventKind::RegionBegin, id: 1, extra: [1, 0, 0], ..Event::default() };
    let end = |id| Event { kind: EventKind::RegionEnd, id, ..Event::default() };
    for events in [
        &[][..],
        // The address is used again, also in the middle of a larger piece.
        &[alloc(1, AT, 4 * MIB), free(1), alloc(2, AT + MIB, MIB), free(2)],
        // A free that failed did not happen.
        &[alloc(1, AT, MIB), free(1), Event { kind: EventKind::FreeFailed, code: 1, ..free(1) }, free(1)],
        &[segment(1, AT, 4 * MIB), block(2, 1, AT, 4 * MIB), free(2), block(3, 1, AT, 4 * MIB)],
        // Nor did that of its segment.
        &[
            segment(1, AT, 4 * MIB),
            block(2, 1, AT, 4 * MIB),
            free(2),
            Event { kind: EventKind::SegmentFree, ..free(1) },
            Event { kind: EventKind::FreeFailed, code: 1, ..free(1) },
            Event { kind: EventKind::FreeFailed, code: 1, ..free(2) },
            free(2),
            block(3, 1, AT, 4 * MIB),
        ],
        &[alloc(1, AT, 20 * MIB), tensor(2, AT, MIB), tensor(3, AT + MIB, MIB), free(2), free(3), free(1)],
        // A tensor over two mappings of physical memory.
        &[
            Event { memory: Memory::Vmm, ..alloc(1, 77, 2 * MIB) },
            map,
            Event { address: AT + 2 * MIB, ..map },
            tensor(2, AT + MIB, 2 * MIB),
            free(2),
            Event { kind: EventKind::Unmap, bytes: 4 * MIB, id: 0, ..map },
            free(1),
        ],
        // What the program did wrong is told, and free of what nobody saw.
        &[Event { kind: EventKind::BadFree, id: 9, ..Event::default() }, free(0)],
        &[region, Event { id: 2, ..region }, end(1), end(2)],
        &[alloc(1, AT, MIB), Event { kind: EventKind::ContextEnd, context: 1, ..Event::default() }],
        &[Event { kind: EventKind::Mark, extra: [1, 0, 0], ..Event::default() }],
    ] {
        assert_eq!(found(&history(events)), [], "{events:?}");
    }
}

#[test]
fn memory_that_does_not_add_up() {
    let sample = |used: u64, active, inactive| Event {
        kind: EventKind::Sample,
        bytes: (80 << 30) - used,
        block: 80 << 30,
        extra: [active, inactive, 0],
        context: 1,
        ..Event::default()
    };
    let pool = [segment(1, AT, 4 * MIB), block(2, 1, AT, 4 * MIB)];
    let with = |events: &[Event]| [&pool[..], events].concat();
    // The events, the kind, and the line of the first after the nine of the beginning.
    for (events, kind, line) in [
        (vec![alloc(0, AT, 1)], Kind::NoId, 1),
        (vec![alloc(1, AT, 1), free(1), alloc(1, AT, 1)], Kind::IdTwice, 3),
        (vec![free(7), free(8)], Kind::FreeUnknown, 1),
        (vec![alloc(1, AT, 1), free(1), free(1)], Kind::FreeTwice, 3),
        (vec![free(1), alloc(1, AT, 1)], Kind::FreeEarly, 1),
        (vec![Event { kind: EventKind::FreeFailed, ..free(1) }], Kind::FreeFailedAlone, 1),
        (vec![Event { kind: EventKind::Export, ..free(1) }], Kind::UseUnknown, 1),
        (vec![alloc(1, AT, MIB), alloc(2, AT + MIB - 1, 1)], Kind::Overlap, 2),
        (with(&[block(3, 1, AT + MIB, MIB)]), Kind::Overlap, 3),
        (with(&[block(3, 1, AT + 4 * MIB, 1)]), Kind::OutsideSegment, 3),
        (vec![block(3, 1, AT, 1)], Kind::OutsideSegment, 1),
        (with(&[Event { kind: EventKind::SegmentFree, ..free(1) }]), Kind::SegmentInUse, 3),
        (vec![tensor(1, AT, 1)], Kind::TensorOutside, 1),
        (vec![alloc(1, AT, MIB), tensor(2, AT, 1), free(1)], Kind::TensorLeft, 3),
        (with(&[sample(MIB << 10, 0, 4 * MIB)]), Kind::PoolSum, 3),
        (with(&[sample(2 * MIB, 4 * MIB, 0)]), Kind::Charged, 3),
        (vec![Event { kind: EventKind::RegionEnd, ..free(1) }], Kind::Region, 1),
    ] {
        let found = found(&history(&events));
        assert_eq!((found.len(), found[0].0, found[0].1), (1, kind, 9 + line), "{events:?}");
    }
    assert_eq!(found(&history(&with(&[sample(MIB << 10, 4 * MIB, 0)]))), []);
    // Another thread was in the middle of it.
    let mut lines = history(&with(&[sample(MIB << 10, 0, 4 * MIB)]));
    let Line::Event(thread, _) = &mut lines[10] else { panic!() };
    *thread = 2;
    assert_eq!(found(&lines), []);
}

#[test]
fn lines_that_do_not_add_up() {
    let good = history(&[alloc(1, AT, 1), alloc(2, AT + 4096, 1)]);
    type Change = fn(&mut Vec<Line>);
    let cases: &[(Change, &[Kind])] = &[
        (|_| {}, &[]),
        (|l| drop(l.remove(5)), &[Kind::Undefined]),
        (|l| drop(l.remove(2)), &[Kind::Undefined]),
        (|l| drop(l.remove(6)), &[Kind::Undefined]),
        (|l| drop(l.remove(8)), &[Kind::FooterEvents, Kind::Undefined]),
        (|l| l.insert(6, l[5].clone()), &[Kind::DefinedTwice]),
        (|l| l.insert(10, Line::Thread(Thread { thread: 1, ..Thread::default() })), &[Kind::Sequence]),
        (
            |l| l.insert(10, Line::Thread(Thread { thread: 1, sequence: 9, ..Thread::default() })),
            &[Kind::LossUncounted],
        ),
        (|l| l.swap(9, 10), &[Kind::TimeBack]),
        (|l| drop(l.remove(10)), &[Kind::FooterEvents]),
        (|l| l.truncate(12), &[]),
        (|l| l.truncate(11), &[Kind::Unfinished]),
        (|l| l.swap(11, 12), &[Kind::AfterFooter]),
        (|l| l[11] = l[8].clone(), &[Kind::FooterTime, Kind::FooterEnd, Kind::TimeBack]),
        (|l| l.push(l[0].clone()), &[Kind::Damaged]),
    ];
    for (i, (change, expected)) in cases.iter().enumerate() {
        let mut lines = good.clone();
        change(&mut lines);
        assert_eq!(kinds(&lines), *expected, "case {i}");
    }
}

#[test]
fn what_was_lost_and_counted_is_allowed_for() {
    let mut lines = history(&[free(7)]);
    lines.insert(9, Line::Thread(Thread { thread: 1, sequence: 2, ..Thread::default() }));
    assert_eq!(kinds(&lines), [Kind::LossUncounted, Kind::FreeUnknown]);
    let Some(Line::Footer(footer)) = lines.last_mut() else { panic!() };
    footer.lost = 1;
    let verdict = of_lines(&lines);
    assert!(verdict.violations.is_empty());
    assert!(verdict.allowed.iter().any(|a| a.contains("x.jsonl:11: a free of something")), "{:?}", verdict.allowed);
}

#[test]
fn a_later_part_and_a_snapshot_begin_with_what_was_live() {
    let mut lines = history(&[free(5)]);
    lines.insert(8, Line::Live(1, alloc(5, AT, MIB)));
    // The context's line is an event here, and comes after.
    lines.swap(8, 9);
    let Line::Header(header) = &mut lines[0] else { panic!() };
    (header.part, header.events_before) = (3, 100);
    let Line::Thread(thread) = &mut lines[6] else { panic!() };
    thread.sequence = 70;
    let Some(Line::Footer(footer)) = lines.last_mut() else { panic!() };
    footer.events += 100;
    // The part before it should lie beside it.
    assert_eq!(found(&lines), [(Kind::Damaged, 0, 1)]);
    let Line::Header(header) = &mut lines[0] else { panic!() };
    header.dropped = true;
    assert_eq!(found(&lines), []);
}
