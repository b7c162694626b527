//! A rotated history keeps its last part, and that part can be read alone.

mod record_common;

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;

use record_common::*;
use vramscope_core::event::{Event, EventKind, Memory};
use vramscope_core::record::{Definition, Options, Pushed, Spool, TraceFile, Writer, frame, recover};
use vramscope_core::trace::Line;
use vramscope_core::trace::read::{Reader, parts};

/// Allocates and frees; every 50th allocation stays. Returns the live ids.
fn run(spool: Spool<'_>, writer: &mut Writer<'_, TraceFile>, events: u64) -> Vec<u64> {
    let mut producer = spool.claim_ring(1, b"main").unwrap();
    let stack = Definition::Stack { number: 1, frames: &[frame(0, 5, false)], cut: false };
    assert_eq!(producer.push_definition(&stack), Pushed::Yes);
    let mut push = |e: &Event| assert_eq!(producer.push(e), Pushed::Yes);
    push(&Event { kind: EventKind::Context, time: 1, context: 1, address: 0xabc, ..Event::default() });
    let mut live = Vec::new();
    for id in 1..=events {
        push(&Event { stack: 1, ..event(id, id) });
        if id % 50 == 0 {
            live.push(id);
        } else {
            push(&Event { kind: EventKind::Free, time: id, id, ..Event::default() });
        }
        // One that did not happen.
        if id % 77 == 0 && id % 50 != 0 {
            push(&Event { kind: EventKind::FreeFailed, time: id, id, code: 1, ..Event::default() });
            live.push(id);
        }
        writer.round(id, id * 1_000_000).unwrap();
    }
    live
}

/// What is live at the end, by these lines alone.
fn live(lines: impl Iterator<Item = Line>) -> Vec<u64> {
    let mut live = BTreeMap::new();
    let mut freed = None;
    for line in lines {
        match line {
            Line::Live(_, e) | Line::Event(_, e) if e.kind == EventKind::Alloc => drop(live.insert(e.id, e)),
            Line::Event(_, e) if e.kind == EventKind::Free => freed = live.remove(&e.id),
            Line::Event(_, e) if e.kind == EventKind::FreeFailed => drop(live.insert(e.id, freed.take().unwrap())),
            _ => {}
        }
    }
    live.into_values().inspect(|e| assert_eq!((e.bytes, e.memory), (512, Memory::Device))).map(|e| e.id).collect()
}

#[test]
fn the_last_part_stands_alone() {
    for (name, limit) in [("run.jsonl", 30_000), ("run.jsonl.zst", 30_000)] {
        let folder = Folder::new();
        let path = folder.file(name);
        let words = words(2, 1024);
        let spool = spool(&words, 2, 1024);
        let output = TraceFile::create(&path).unwrap();
        let options = Options { compress: name.ends_with("zst"), max_bytes: Some(limit) };
        let mut writer = Writer::new(spool, output, &options).unwrap();
        let expected = run(spool, &mut writer, 4_000);
        let done = recover(&words, &path, Some(0), "test").unwrap();
        let pushed = 1 + 2 * 4_000 - 4_000 / 50 + 4_000 / 77 - 4_000 / 3850;
        assert_eq!(done.footer.events, pushed, "{name}");
        let files = parts(&path);
        assert_eq!(files.len(), 2);
        let bytes: u64 = files.iter().map(|f| f.metadata().unwrap().len()).sum();
        assert!(bytes < 2 * limit, "{bytes} bytes of {limit}");
        // Alone, and together with the older part.
        let alone = folder.file("alone");
        std::fs::copy(&path, &alone).unwrap();
        assert!(Reader::open(&alone).unwrap().header().part > 1);
        assert_eq!(live(Reader::open(&alone).unwrap()), expected, "{name}");
        assert_eq!(live(Reader::open(&path).unwrap()), expected, "{name}");
        let stacks = Reader::open(&alone).unwrap().filter(|l| matches!(l, Line::Stack(_))).count();
        assert_eq!(stacks, 1);
        let contexts =
            Reader::open(&alone).unwrap().filter(|l| matches!(l, Line::Live(_, e) if e.kind == EventKind::Context));
        assert_eq!(contexts.count(), 1);
        // Killed between the two steps of a rotation.
        std::fs::remove_file(&path).unwrap();
        assert_eq!(parts(&path), [files[0].clone()]);
        recover(&words, &path, None, "test").unwrap();
        assert!(path.exists() && !files[0].exists());
    }
}

#[test]
fn files_are_private_and_never_replaced() {
    let folder = Folder::new();
    let names: Vec<String> = (0..3)
        .map(|_| {
            let file = TraceFile::create(&folder.file("run.jsonl.zst")).unwrap();
            assert_eq!(file.path().metadata().unwrap().permissions().mode() & 0o777, 0o600);
            file.path().file_name().unwrap().to_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(names, ["run.jsonl.zst", "run-2.jsonl.zst", "run-3.jsonl.zst"]);
}
