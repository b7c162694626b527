//! A process is killed at any moment; recover finds every event whose push had returned, once.

mod record_common;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use proptest::prelude::*;
use record_common::*;
use vramscope_core::event::Event;
use vramscope_core::record::{Definition, Options, Producer, Pushed, Writer, recover, recover_trace};
use vramscope_core::trace::Line;

#[derive(Clone, Debug)]
enum Step {
    Push(usize),
    Define(usize, usize),
    Lose(usize),
    End(usize),
    Round,
    Wait,
    Flush,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..3usize).prop_map(Step::Push),
        3 => (0..3usize, 0..40usize).prop_map(|(t, n)| Step::Define(t, n)),
        1 => (0..3usize).prop_map(Step::Lose),
        1 => (0..3usize).prop_map(Step::End),
        3 => Just(Step::Round),
        1 => Just(Step::Wait),
        1 => Just(Step::Flush),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost(
        steps in prop::collection::vec(step(), 0..250),
        compress in any::<bool>(),
        dies_at in prop_oneof![Just(None), (0..12_000usize).prop_map(Some)],
        at_once in prop_oneof![Just(None), (1..400usize).prop_map(Some)],
    ) {
        let (rings, slots) = (4, 32);
        let words = words(rings, slots);
        let spool = spool(&words, rings, slots);
        let memo = Memo { dies_at, at_once, ..Memo::default() };
        let mut writer = Writer::new(spool, memo.clone(), &Options { compress, max_bytes: None }).unwrap();
        let mut producers: Vec<Option<(Producer<'_>, u64)>> = vec![None, None, None];
        let mut pushed: BTreeMap<u32, Vec<(u64, u64)>> = BTreeMap::new();
        let (mut time, mut stack, mut lost) = (1, 0, 0);
        for step in steps {
            time += 1;
            match step {
                Step::Push(t) | Step::Define(t, _) | Step::Lose(t) => {
                    if producers[t].is_none() {
                        producers[t] = spool.claim_ring(t as u32, b"t").map(|p| (p, 0));
                    }
                    let Some((producer, sequence)) = &mut producers[t] else { continue };
                    match step {
                        Step::Define(_, frames) => {
                            let definition = Definition::Stack { number: stack + 1, frames: &vec![7; frames], cut: false };
                            stack += u32::from(producer.push_definition(&definition) == Pushed::Yes);
                        }
                        Step::Push(_) => {
                            let event = Event { stack, ..event(time, time) };
                            if producer.push(&event) == Pushed::Yes {
                                pushed.entry(producer.thread()).or_default().push((*sequence, time));
                            } else {
                                producer.lost();
                                lost += 1;
                            }
                            *sequence += 1;
                        }
                        _ => {
                            producer.lost();
                            lost += 1;
                            *sequence += 1;
                        }
                    }
                }
                Step::End(t) => {
                    if let Some((producer, _)) = producers[t].take() {
                        producer.close();
                    }
                }
                // After "no space left" the writer tries again, and fails again.
                Step::Round => drop(writer.round(time, time)),
                Step::Wait => drop(writer.round(time, time + 1_000_000_000)),
                Step::Flush => drop(writer.flush(time, time)),
            }
        }
        let folder = Folder::new();
        let path = folder.file(if compress { "run.jsonl.zst" } else { "run.jsonl" });
        if !memo.bytes().is_empty() {
            memo.save(&path);
        }
        let words = copy(&words);
        let done = recover(&words, &path, Some(137), "test").unwrap();
        let all = lines(&path);
        let found: BTreeMap<u32, Vec<(u64, u64)>> = by_thread(&all)
            .into_iter()
            .map(|(thread, events)| (thread, events.iter().map(|(sequence, e)| (*sequence, e.id)).collect()))
            .collect();
        prop_assert_eq!(&found, &pushed);
        let total: usize = pushed.values().map(Vec::len).sum();
        prop_assert_eq!(done.footer.events, total as u64);
        prop_assert_eq!(done.footer.lost, lost);
        prop_assert_eq!(&done.footer.end, "killed");
        prop_assert!(matches!(all.last(), Some(Line::Footer(footer)) if *footer == done.footer));
        // Once more, and in the middle of itself.
        let before = std::fs::read(&path).unwrap();
        prop_assert!(recover(&words, &path, None, "again").unwrap().was_whole);
        prop_assert_eq!(&std::fs::read(&path).unwrap(), &before);
        std::fs::write(&path, &before[..before.len() - before.len().min(70 + total % 500)]).unwrap();
        recover(&words, &path, Some(137), "test").unwrap();
        let again: usize = by_thread(&lines(&path)).values().map(Vec::len).sum();
        // What was cut off beyond the spool's memory is gone, but nothing comes twice.
        prop_assert!(again <= total);
    }
}

/// The same with real threads; they are stopped, not killed, but the writer stops long before.
#[test]
fn threads_outlive_the_writer() {
    for compress in [false, true] {
        let (rings, slots) = (4, 1024);
        let words = words(rings, slots);
        let spool = spool(&words, rings, slots);
        let memo = Memo { at_once: Some(5_000), ..Memo::default() };
        let mut writer = Writer::new(spool, memo.clone(), &Options { compress, max_bytes: None }).unwrap();
        let (stop, time) = (AtomicBool::new(false), AtomicU64::new(1));
        let pushed: Vec<u64> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..4)
                .map(|t| {
                    let (stop, time) = (&stop, &time);
                    scope.spawn(move || {
                        let mut producer = spool.claim_ring(t, b"w").unwrap();
                        let mut n = 0;
                        while !stop.load(SeqCst) {
                            if producer.push(&event(time.fetch_add(1, SeqCst), n)) == Pushed::Yes {
                                n += 1;
                            }
                        }
                        n
                    })
                })
                .collect();
            for _ in 0..200 {
                let now = time.load(SeqCst);
                writer.round(now, now).unwrap();
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
            stop.store(true, SeqCst);
            workers.into_iter().map(|w| w.join().unwrap()).collect()
        });
        let folder = Folder::new();
        let path = folder.file("run.jsonl");
        memo.save(&path);
        let done = recover(&copy(&words), &path, None, "test").unwrap();
        let total: u64 = pushed.iter().sum();
        assert_eq!(done.footer.events, total);
        let threads = by_thread(&lines(&path));
        let mut found: Vec<usize> = threads.values().map(Vec::len).collect();
        let mut pushed: Vec<usize> = pushed.iter().map(|&n| n as usize).filter(|&n| n > 0).collect();
        found.sort_unstable();
        pushed.sort_unstable();
        assert_eq!(found, pushed);
    }
}

/// Killed at every single byte of a small history.
#[test]
fn killed_at_every_byte() {
    let folder = Folder::new();
    for compress in [false, true] {
        for dies_at in 0..if compress { 600 } else { 1_700 } {
            let words = words(2, 16);
            let spool = spool(&words, 2, 16);
            let memo = Memo { dies_at: Some(dies_at), ..Memo::default() };
            let mut writer = Writer::new(spool, memo.clone(), &Options { compress, max_bytes: None }).unwrap();
            let mut producer = spool.claim_ring(1, b"main").unwrap();
            let mut pushed = Vec::new();
            for i in 1..=10 {
                let stack = Definition::Stack { number: i, frames: &[u64::from(i)], cut: false };
                let stack = if producer.push_definition(&stack) == Pushed::Yes { i } else { 0 };
                if producer.push(&Event { stack, ..event(u64::from(i), u64::from(i)) }) == Pushed::Yes {
                    pushed.push(u64::from(i));
                }
                let _ = writer.flush(u64::from(i), u64::from(i));
            }
            let path = folder.file(&format!("run{dies_at}.jsonl{}", if compress { ".zst" } else { "" }));
            memo.save(&path);
            recover(&words, &path, None, "test").unwrap();
            let found: Vec<u64> = by_thread(&lines(&path))[&1].iter().map(|(_, e)| e.id).collect();
            assert_eq!(found, pushed, "killed at byte {dies_at}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn a_damaged_spool_is_no_reason_to_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>(), any::<u64>()), 1..60),
    ) {
        let words = words(2, 16);
        let spool = spool(&words, 2, 16);
        for t in 0..2 {
            let mut producer = spool.claim_ring(t, b"main").unwrap();
            let stack = Definition::Stack { number: 1, frames: &[1, 2, 3], cut: false };
            let _ = producer.push_definition(&stack);
            assert!((0..14).all(|i| producer.push(&event(i, i)) == Pushed::Yes));
        }
        for (at, bit, value) in changes {
            let word = &words[at.index(words.len())];
            word.store(if bit { word.load(SeqCst) ^ 1 << (value % 64) } else { value }, SeqCst);
        }
        let folder = Folder::new();
        let path = folder.file("run.jsonl");
        if recover(&words, &path, None, "test").is_ok() {
            prop_assert!(matches!(lines(&path).last(), Some(Line::Footer(_))));
        }
    }
}

#[test]
fn a_trace_without_spool_is_ended() {
    let folder = Folder::new();
    let path = folder.file("run.jsonl");
    let words = words(1, 64);
    let spool = spool(&words, 1, 64);
    let memo = Memo::default();
    let mut writer = Writer::new(spool, memo.clone(), &Options::default()).unwrap();
    let mut producer = spool.claim_ring(1, b"main").unwrap();
    for i in 1..20 {
        assert_eq!(producer.push(&event(i, i)), Pushed::Yes);
        writer.round(i, i).unwrap();
    }
    let bytes = memo.bytes();
    std::fs::write(&path, &bytes[..bytes.len() - 9]).unwrap();
    let done = recover_trace(&path, Some(9), "test").unwrap();
    assert_eq!((done.footer.events, done.footer.end.as_str(), done.footer.status), (18, "killed", Some(9)));
    assert!(done.bytes_cut > 0);
    assert_eq!(by_thread(&lines(&path))[&1].len(), 18);
    assert!(recover_trace(&path, None, "test").unwrap().was_whole);
    // With the spool at hand after all, the last one comes back.
    let done = recover(&words, &path, None, "test").unwrap();
    assert_eq!(done.events_added, 0, "the writer had given its slot back");
    assert!(recover_trace(&folder.file("none.jsonl"), None, "test").is_err());
    // Of a part of a copy nobody knows how its program ended, nor can a line in its midst be mended.
    let part = folder.file("part.jsonl");
    let mut text: Vec<&[u8]> = bytes.split_inclusive(|b| *b == b'\n').collect();
    text.truncate(text.len() / 2);
    std::fs::write(&part, text.concat()).unwrap();
    let done = recover_trace(&part, None, "test").unwrap();
    assert_eq!((done.footer.end.as_str(), done.damage), ("cut", None));
    text.insert(text.len() - 1, b"garbage\n");
    std::fs::write(&part, text.concat()).unwrap();
    assert!(recover_trace(&part, None, "test").unwrap().damage.is_some_and(|d| d.contains("line")));
    assert!(recover_trace(&part, None, "test").unwrap().damage.is_some());
}

#[test]
fn what_is_not_ours_is_left_alone() {
    let folder = Folder::new();
    let words = words(1, 8);
    spool(&words, 1, 8);
    for foreign in [&b"precious"[..], b"precious\nlines\n", b"{\"a\":1}\n"] {
        let path = folder.file("precious");
        std::fs::write(&path, foreign).unwrap();
        assert!(recover(&words, &path, None, "test").is_err());
        assert!(recover_trace(&path, None, "test").is_err());
        assert_eq!(std::fs::read(&path).unwrap(), foreign);
    }
    assert!(recover(&[], &folder.file("x"), None, "test").is_err());
}
