//! The recorder with threads: nothing lost, order within a thread, definitions before their use.

mod record_common;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use record_common::*;
use vramscope_core::event::{Event, EventKind};
use vramscope_core::record::{
    Definition, Failure, Options, Producer, Pushed, Spool, SpoolError, Writer, frame, python_frame,
};
use vramscope_core::trace::{Frame, Line};

fn push(producer: &mut Producer<'_>, event: &Event) {
    while producer.push(event) == Pushed::Full {
        std::thread::yield_now();
    }
}

fn define(producer: &mut Producer<'_>, definition: &Definition<'_>) {
    while producer.push_definition(definition) == Pushed::Full {
        std::thread::yield_now();
    }
}

/// A stack may name a module that another thread defined, in a ring that is read earlier or later.
#[test]
fn modules_come_before_the_stacks_that_name_them() {
    let words = words(2, 64);
    let spool = spool(&words, 2, 64);
    let memo = Memo::default();
    let mut writer = Writer::new(spool, memo.clone(), &Options::default()).unwrap();
    let mut rings = [spool.claim_ring(1, b"a").unwrap(), spool.claim_ring(2, b"b").unwrap()];
    for (definer, user, n) in [(1, 0, 1), (0, 1, 2)] {
        let module = Definition::Module { number: n, address: 0, bytes: 1, path: b"/m", build_id: b"" };
        define(&mut rings[definer], &module);
        define(&mut rings[user], &Definition::Stack { number: n, frames: &[frame(n as u16, 1, false)], cut: false });
    }
    writer.flush(u64::MAX, 1).unwrap();
    let folder = Folder::new();
    let path = folder.file("history.jsonl");
    memo.save(&path);
    let mut known = Vec::new();
    for line in lines(&path) {
        match line {
            Line::Module(m) => known.push(m.module),
            Line::Stack(s) => {
                assert!(s.frames.iter().all(|f| matches!(f, Frame::Native(m, _) if known.contains(m))), "{s:?}")
            }
            _ => {}
        }
    }
    assert_eq!(known.len(), 2);
}

/// A writer held up between the two readings of an anchor goes by it all the same, and so must recover: an anchor that was
/// left out must not reach the spool.
#[test]
fn the_spool_holds_the_anchors_that_count() {
    let words = words(1, 64);
    let spool = spool(&words, 1, 64);
    let (raw, ns) = spool.zero();
    let mut writer = Writer::new(spool, Memo::default(), &Options::default()).unwrap();
    writer.round(raw + 1_000, ns + 9_000).unwrap();
    assert_eq!(spool.anchor(), (raw + 1_000, ns + 9_000));
    writer.round(raw + 2_000, ns + 2_000).unwrap();
    assert_eq!(spool.anchor(), (raw + 1_000, ns + 9_000));
    writer.round(raw + 20_000, ns + 20_000).unwrap();
    assert_eq!(spool.anchor(), (raw + 20_000, ns + 20_000));
}

/// Threads that share a table of stacks, more threads than rings, and a writer beside them.
fn threads(compress: bool) {
    const THREADS: u64 = 12;
    const EVENTS: u64 = 3_000;
    let (rings, slots) = (5, 64);
    let words = words(rings, slots);
    let spool = spool(&words, rings, slots);
    let memo = Memo::default();
    let mut writer = Writer::new(spool, memo.clone(), &Options { compress, max_bytes: None }).unwrap();
    let time = AtomicU64::new(1);
    let table: Mutex<u32> = Mutex::new(0);
    let (done, running) = (AtomicBool::new(false), AtomicU64::new(THREADS));
    std::thread::scope(|scope| {
        for t in 0..THREADS {
            let (time, table, running, done) = (&time, &table, &running, &done);
            scope.spawn(move || {
                let mut producer = loop {
                    match spool.claim_ring(100 + t as u32, b"worker") {
                        Some(producer) => break producer,
                        None => std::thread::yield_now(),
                    }
                };
                for i in 0..EVENTS {
                    let stack = {
                        let mut last = table.lock().unwrap();
                        if i % 10 == 0 {
                            let frames: Vec<u64> = (0..i % 40).map(|f| frame(1, 16 * f, f % 3 == 0)).collect();
                            define(
                                &mut producer,
                                &Definition::Stack { number: *last + 1, frames: &frames, cut: false },
                            );
                            *last += 1;
                        }
                        *last
                    };
                    let now = time.fetch_add(1, SeqCst);
                    push(&mut producer, &Event { stack, ..event(now, t * EVENTS + i + 1) });
                }
                producer.close();
                if running.fetch_sub(1, SeqCst) == 1 {
                    done.store(true, SeqCst);
                }
            });
        }
        while !done.load(SeqCst) {
            let now = time.load(SeqCst);
            writer.round(now, now * 1000).unwrap();
        }
    });
    writer.flush(time.load(Relaxed), 0).unwrap();
    let folder = Folder::new();
    let path = folder.file("threads.jsonl");
    memo.save(&path);
    let threads = by_thread(&lines(&path));
    assert_eq!(threads.len(), THREADS as usize);
    let mut ids: Vec<u64> = Vec::new();
    for events in threads.values() {
        assert!(events.iter().enumerate().all(|(i, (sequence, _))| i as u64 == *sequence));
        assert!(events.windows(2).all(|w| w[0].1.id + 1 == w[1].1.id), "order within a thread");
        ids.extend(events.iter().map(|(_, e)| e.id));
    }
    ids.sort_unstable();
    assert!(ids.iter().copied().eq(1..=THREADS * EVENTS));
}

#[test]
fn threads_plain() {
    threads(false);
}

#[test]
fn threads_compressed() {
    threads(true);
}

/// A thread frees what another allocated: the free comes after the allocation, in any history.
#[test]
fn effects_follow_their_causes() {
    let words = words(2, 256);
    let spool = spool(&words, 2, 256);
    let memo = Memo::default();
    let mut writer = Writer::new(spool, memo.clone(), &Options::default()).unwrap();
    let time = AtomicU64::new(1);
    let done = AtomicBool::new(false);
    let (give, take) = std::sync::mpsc::sync_channel::<u64>(1);
    std::thread::scope(|scope| {
        let (time, done) = (&time, &done);
        scope.spawn(move || {
            let mut producer = spool.claim_ring(1, b"giver").unwrap();
            for id in 1..5_000 {
                push(&mut producer, &event(time.fetch_add(1, SeqCst), id));
                give.send(id).unwrap();
            }
        });
        scope.spawn(move || {
            let mut producer = spool.claim_ring(2, b"taker").unwrap();
            while let Ok(id) = take.recv() {
                let free = Event { kind: EventKind::Free, ..event(time.fetch_add(1, SeqCst), id) };
                push(&mut producer, &free);
            }
            done.store(true, SeqCst);
        });
        for turn in 0.. {
            if done.load(SeqCst) {
                break;
            }
            let now = time.load(SeqCst);
            // Whatever is asked of the writer meanwhile.
            match turn % 3 {
                0 => assert!(writer.round(now, now).is_ok()),
                1 => writer.explain(&Failure::default(), now, now).1.unwrap(),
                _ => assert!(writer.snapshot(now, now).unwrap().len() <= 4),
            }
        }
    });
    writer.flush(u64::MAX, u64::MAX).unwrap();
    assert!(writer.live().is_some_and(|l| l.is_empty()), "what is live is what the file says");
    let folder = Folder::new();
    let path = folder.file("cause.jsonl");
    memo.save(&path);
    let mut live = std::collections::HashSet::new();
    let mut frees = 0;
    for line in lines(&path) {
        match line {
            Line::Event(_, e) if e.kind == EventKind::Alloc => assert!(live.insert(e.id)),
            Line::Event(_, e) if e.kind == EventKind::Free => {
                frees += 1;
                assert!(live.remove(&e.id), "{} is freed before it is allocated", e.id);
            }
            _ => {}
        }
    }
    assert_eq!(frees, 4_999);
}

#[test]
fn every_definition_arrives_and_is_cut_where_it_must_be() {
    let words = words(1, 64);
    let spool = spool(&words, 1, 64);
    let memo = Memo::default();
    let mut writer = Writer::new(spool, memo.clone(), &Options::default()).unwrap();
    let mut producer = spool.claim_ring(9, b"a name that is much too long").unwrap();
    let long = vec![frame(3, 77, true); 1_000];
    let path = "/opt/\"quoted\"/libx.so".as_bytes();
    let all = [
        Definition::Module { number: 1, address: 4096, bytes: 10, path, build_id: &[0xab, 0x01] },
        Definition::Text { number: 5, value: b"caf\xc3\xa9 \xff" },
        Definition::Python { number: 8, line: 41, file: &[b'f'; 500], function: &[b'q'; 90] },
        Definition::Stack { number: 3, frames: &[python_frame(8), frame(1, 9, false)], cut: false },
        Definition::Device { device: 0, bytes: 7, name: b"H200", uuid: b"GPU-0000" },
        Definition::Note { time: 3, message: b"" },
        Definition::Stack { number: 1, frames: &[], cut: true },
        Definition::Stack { number: 2, frames: &long, cut: false },
    ];
    for definition in &all {
        assert_eq!(producer.push_definition(definition), Pushed::Yes);
        writer.round(0, 0).unwrap();
    }
    assert_eq!(producer.push(&event(1, 1)), Pushed::Yes);
    writer.flush(1, 1).unwrap();
    let folder = Folder::new();
    let path = folder.file("definitions.jsonl");
    memo.save(&path);
    let lines = lines(&path);
    assert!(lines.iter().any(|l| matches!(l, Line::Module(m) if m.build_id == "ab01" && m.path.contains('"'))));
    assert!(lines.iter().any(|l| matches!(l, Line::Text(t) if t.value == "café \u{fffd}")));
    assert!(lines.iter().any(
        |l| matches!(l, Line::Python(p) if (p.python, p.line, p.file.len(), p.function.len()) == (8, 41, 500, 90))
    ));
    assert!(lines.iter().any(|l| matches!(l, Line::Stack(s) if s.frames == [Frame::Python(8), Frame::Native(1, 9)])));
    assert!(lines.iter().any(|l| matches!(l, Line::Device(d) if d.uuid == "GPU-0000" && d.bytes == 7)));
    assert!(lines.iter().any(|l| matches!(l, Line::Note(n) if n.time == 3)));
    assert!(lines.iter().any(|l| matches!(l, Line::Stack(s) if s.stack == 1 && s.frames.is_empty() && s.cut)));
    assert!(lines.iter().any(|l| {
        matches!(l, Line::Stack(s) if s.stack == 2 && s.cut && s.frames.len() == 31 * 11
            && s.frames.iter().all(|f| *f == Frame::Guessed(3, 77, 1)))
    }));
    assert!(lines.iter().any(|l| matches!(l, Line::Thread(t) if t.tid == 9 && t.name == "a name that is m")));
}

#[test]
fn a_full_ring_says_so_and_losses_show() {
    let words = words(1, 8);
    let spool = spool(&words, 1, 8);
    let memo = Memo::default();
    let mut writer = Writer::new(spool, memo.clone(), &Options::default()).unwrap();
    let mut producer = spool.claim_ring(1, b"").unwrap();
    for id in 1..=8 {
        assert_eq!(producer.push(&event(id, id)), Pushed::Yes);
    }
    assert_eq!(producer.push(&event(9, 9)), Pushed::Full);
    producer.lost();
    assert!(writer.round(8, 8).unwrap().fullness == 100);
    assert_eq!(producer.push(&event(10, 10)), Pushed::Yes);
    writer.flush(10, 10).unwrap();
    spool.count_lost(2);
    assert_eq!(spool.lost(), 3);
    let folder = Folder::new();
    let path = folder.file("lost.jsonl");
    memo.save(&path);
    let threads = by_thread(&lines(&path));
    let numbers: Vec<u64> = threads[&1].iter().map(|(sequence, _)| *sequence).collect();
    assert_eq!(numbers, [0, 1, 2, 3, 4, 5, 6, 7, 9]);
}

#[test]
fn rings_beyond_the_usable_ones_are_not_touched() {
    let (rings, slots) = (3, 8);
    let words = words(rings, slots);
    spool(&words, rings, slots);
    // As if only one ring were backed: the slice ends behind it.
    let short: Vec<AtomicU64> = copy(&words).into_iter().take(Spool::prefix_in_words(1, slots)).collect();
    short[4].store(1, Relaxed);
    let spool = Spool::open(&short).unwrap();
    assert!(spool.needs_more());
    let producer = spool.claim_ring(1, b"").unwrap();
    assert!(spool.claim_ring(2, b"").is_none());
    let mut writer = Writer::new(spool, Memo::default(), &Options::default()).unwrap();
    writer.round(0, 0).unwrap();
    producer.close();
    writer.round(1, 1).unwrap();
    let again = spool.claim_ring(3, b"").unwrap();
    assert_eq!(again.thread(), 2, "a thread number is never used again");
}

#[test]
fn what_is_no_spool_is_refused() {
    let good = words(1, 8);
    spool(&good, 1, 8);
    assert_eq!(Spool::open(&[]).err(), Some(SpoolError::Foreign));
    assert_eq!(Spool::open(&words(1, 8)).err(), Some(SpoolError::Foreign));
    for len in 1..good.len() {
        let cut: Vec<AtomicU64> = copy(&good).into_iter().take(len).collect();
        assert!(matches!(Spool::open(&cut), Err(SpoolError::Cut { .. })), "{len} words");
    }
    for (at, value) in [(1, 99), (2, u64::MAX), (3, 7), (3, u64::MAX), (4, 99)] {
        let bad = copy(&good);
        bad[at].store(value, Relaxed);
        assert!(Spool::open(&bad).is_err(), "word {at}");
    }
}

#[test]
fn a_header_that_is_too_long_is_cut() {
    let words = words(1, 8);
    let spool = spool(&words, 1, 8);
    let mut long = header();
    long.arguments = (0..10_000).map(|i| format!("--argument-{i}")).collect();
    spool.set_header(&long);
    let line = String::from_utf8(spool.header_line()).unwrap();
    assert!(line.ends_with("}\n") && line.len() <= 16 << 10 && line.contains("--argument-0"));
    long.program = "x".repeat(20_000);
    spool.set_header(&long);
    assert!(String::from_utf8(spool.header_line()).unwrap().contains("\"pid\":42"));
    assert!(spool.set_path(b"/tmp/x.jsonl") && !spool.set_path(&[b'x'; 5000]));
    assert_eq!(spool.path(), b"/tmp/x.jsonl");
}
