//! A rotated history keeps its last part, and that part can be read alone.

mod record_common;

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

use record_common::*;
use vramscope_core::event::{Event, EventKind, Memory};
use vramscope_core::record::{Definition, Options, Pushed, Spool, TraceFile, Writer, frame, recover, recover_trace};
use vramscope_core::trace::read::{Reader, parts};
use vramscope_core::trace::{Header, Line, write};

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
    }
}

/// A writer of small parts.
fn rotating<'a>(spool: Spool<'a>, path: &Path) -> Writer<'a, TraceFile> {
    let options = Options { compress: path.extension().is_some_and(|e| e == "zst"), max_bytes: Some(30_000) };
    Writer::new(spool, TraceFile::create(path).unwrap(), &options).unwrap()
}

/// A history of two parts at least, whose last events are in the spool only: (words, path, events pushed).
fn rotated(folder: &Folder, name: &str) -> (Vec<AtomicU64>, PathBuf, u64) {
    let path = folder.file(name);
    let words = words(2, 1024);
    let spool = spool(&words, 2, 1024);
    let mut writer = rotating(spool, &path);
    run(spool, &mut writer, 4_000);
    let pushed = 1 + 2 * 4_000 - 4_000 / 50 + 4_000 / 77 - 4_000 / 3850;
    (words, path, pushed)
}

fn older(path: &Path) -> PathBuf {
    format!("{}.1", path.display()).into()
}

/// What exit handlers do may fill more than the parts that are kept: that they ran stands in the openings of the later ones.
#[test]
fn an_exit_that_was_rotated_away() {
    let folder = Folder::new();
    for name in ["a.jsonl", "a.jsonl.zst"] {
        let path = folder.file(name);
        let words = words(2, 1024);
        let spool = spool(&words, 2, 1024);
        let mut writer = rotating(spool, &path);
        let mut ends = spool.claim_ring(2, b"ends").unwrap();
        assert_eq!(ends.push(&Event { kind: EventKind::Exit, time: 1, ..Event::default() }), Pushed::Yes);
        writer.flush(1, 1).unwrap();
        assert!(Reader::open(&path).unwrap().any(|line| line.exits()));
        run(spool, &mut writer, 4_000);
        let is_event = |line: &Line| matches!(line, Line::Event(_, e) if e.kind == EventKind::Exit);
        assert!(parts(&path).len() == 2 && !Reader::open(&path).unwrap().any(|line| is_event(&line)));
        // With the older part, alone, and where nobody has the spool to ask.
        let alone = folder.file("alone");
        std::fs::copy(&path, &alone).unwrap();
        for path in [&path, &alone] {
            assert_eq!(Reader::open(path).unwrap().filter(Line::exits).count(), 1, "{name}");
            assert_eq!(recover_trace(path, None, "test").unwrap().footer.end, "exit", "{name}");
        }
    }
}

/// What is wrong with a history, as its reader says.
fn damage(path: &Path) -> Option<String> {
    let mut reader = Reader::open(path).unwrap();
    reader.by_ref().for_each(drop);
    reader.damage().map(ToString::to_string)
}

/// Killed between the two steps of a rotation, or while the new part was begun: at every byte of its opening.
#[test]
fn killed_in_a_rotation() {
    for name in ["run.jsonl", "run.jsonl.zst"] {
        let folder = Folder::new();
        let path = folder.file(name);
        let words = words(1, 1024);
        let spool = spool(&words, 1, 1024);
        let options = Options { compress: name.ends_with("zst"), max_bytes: Some(30_000) };
        let mut writer = Writer::new(spool, TraceFile::create(&path).unwrap(), &options).unwrap();
        let mut producer = spool.claim_ring(1, b"main").unwrap();
        let mut id = 0;
        let mut push = || {
            id += 1;
            assert_eq!(producer.push(&event(id, id)), Pushed::Yes);
            id
        };
        while !older(&path).exists() {
            let now = push();
            writer.flush(now, now).unwrap();
        }
        // Three that the writer had no time for.
        let pushed = (0..3).map(|_| push()).last().unwrap();
        let opening = std::fs::read(&path).unwrap();
        let before = std::fs::read(older(&path)).unwrap();
        for cut in (0..=opening.len()).rev().step_by(if cfg!(miri) { 500 } else { 23 }).chain([0]) {
            std::fs::write(&path, &opening[..cut]).unwrap();
            if cut == 0 {
                std::fs::remove_file(&path).unwrap();
            }
            let done = recover(&copy(&words), &path, None, "test").unwrap();
            assert_eq!((done.damage, done.footer.events), (None, pushed), "{name} cut at {cut}");
            assert_eq!(damage(&path), None, "{name} cut at {cut}");
            assert_eq!(live(Reader::open(&path).unwrap()).len() as u64, pushed, "{name} cut at {cut}");
            assert_eq!(std::fs::read(older(&path)).unwrap(), before);
        }
    }
}

/// A part that is missing, or not the one that it should be, or lacks lines, is said in one line.
#[test]
fn a_part_that_is_not_what_it_was() {
    for name in ["run.jsonl", "run.jsonl.zst"] {
        let folder = Folder::new();
        let (words, path, pushed) = rotated(&folder, name);
        let done = recover(&words, &path, None, "test").unwrap();
        assert_eq!((done.damage, done.footer.events, damage(&path)), (None, pushed, None));
        let there = std::fs::read(older(&path)).unwrap();
        let part = Reader::open(&path).unwrap().header().part;
        // By its own name it is no history, and nothing is written into it.
        let said =
            format!("{}: is a part of {1}, which is read with it: give {1}", older(&path).display(), path.display());
        assert_eq!(Reader::open(&older(&path)).unwrap_err().to_string(), said);
        assert_eq!(recover_trace(&older(&path), None, "x").unwrap_err().to_string(), said);
        assert_eq!(recover(&words, &older(&path), None, "x").unwrap_err().to_string(), said);
        assert!(std::fs::read(older(&path)).unwrap() == there && damage(&path).is_none());
        let other = Folder::new();
        let (_, another, _) = rotated(&other, name);
        // (Of the same process, by its header, but of another moment.)
        let first: Vec<u8> = {
            let mut text = Vec::new();
            write::header(&mut text, &Header { part: part - 1, ..header() });
            text
        };
        let foreign: Vec<u8> = {
            let mut text = Vec::new();
            write::header(&mut text, &Header { pid: 7, ..header() });
            text
        };
        let expected =
            format!("{}: part {part} of the history, which comes before {name}, is missing", older(&path).display());
        let all = [
            (None, expected.clone() + " (there is no such file)"),
            (Some(first), expected.clone() + &format!(" (here is part {})", part - 1)),
            (Some(foreign), expected.clone() + " (here is one of another run)"),
            (Some(b"rubbish".to_vec()), expected + " (this file cannot be read)"),
            (Some(shorter(&there)), "the part before holds".to_owned()),
        ];
        for (instead, said) in all {
            match &instead {
                Some(bytes) => std::fs::write(older(&path), bytes).unwrap(),
                None => std::fs::remove_file(older(&path)).unwrap(),
            }
            let found = damage(&path).unwrap();
            assert!(found.contains(&said), "{found}, and not {said}");
            for done in [recover(&words, &path, None, "x"), recover_trace(&path, None, "x")] {
                let done = done.unwrap();
                assert!(done.is_incomplete() && done.damage.as_ref() == Some(&found), "{done:?}");
            }
        }
        // The last part is gone: what is read is the one before.
        std::fs::rename(older(&another), older(&path)).unwrap();
        std::fs::remove_file(&path).unwrap();
        let found = damage(&path).unwrap();
        assert!(found.starts_with(&format!("{}: this last part of the history is missing", path.display())), "{found}");
    }
}

/// Without its last events, but of whole lines and frames.
fn shorter(bytes: &[u8]) -> Vec<u8> {
    let compressed = bytes.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]);
    let text = if compressed { zstd::decode_all(bytes).unwrap() } else { bytes.to_vec() };
    let lines: Vec<&[u8]> = text.split_inclusive(|b| *b == b'\n').collect();
    let text = lines[..lines.len() - 5].concat();
    if compressed { zstd::encode_all(&*text, 1).unwrap() } else { text }
}

/// The file was removed while the program ran: what its spool still holds is not taken for all of it.
#[test]
fn a_file_that_is_gone() {
    let folder = Folder::new();
    let path = folder.file("run.jsonl");
    let words = words(1, 64);
    let spool = spool(&words, 1, 64);
    let mut writer = Writer::new(spool, TraceFile::create(&path).unwrap(), &Options::default()).unwrap();
    let mut producer = spool.claim_ring(1, b"").unwrap();
    let mut push = |ids: std::ops::RangeInclusive<u64>| {
        assert!(ids.into_iter().all(|id| producer.push(&event(id, id)) == Pushed::Yes))
    };
    push(1..=20);
    writer.flush(20, 20).unwrap();
    push(21..=25);
    std::fs::remove_file(&path).unwrap();
    let done = recover(&words, &path, None, "test").unwrap();
    assert_eq!((done.events_added, done.footer.events, done.is_incomplete()), (5, 25, true), "{done:?}");
    assert_eq!(done.damage.as_deref(), Some("20 events that were written are not there any more"));
}

/// Nothing is left but the older part: it gets no end, which would be damage should the newer part come.
#[test]
fn an_older_part_alone_gets_no_end() {
    let folder = Folder::new();
    for name in ["a.jsonl", "a.jsonl.zst"] {
        let (_, path, _) = rotated(&folder, name);
        std::fs::remove_file(&path).unwrap();
        let older = older(&path);
        let bytes = std::fs::read(&older).unwrap();
        for given in [&path, &older] {
            let e = recover_trace(given, None, "test").unwrap_err().to_string();
            assert!(e.starts_with(path.to_str().unwrap()) && e.contains(older.to_str().unwrap()), "{e}");
            assert!(damage(given).unwrap().contains("this last part of the history is missing"));
        }
        assert_eq!(std::fs::read(&older).unwrap(), bytes);
        // A name that a person gave it.
        let named = folder.file(&format!("{name}.copy"));
        std::fs::rename(&older, &named).unwrap();
        recover_trace(&named, None, "test").unwrap();
    }
}

/// The file lost its end, which the spool had given up: what is missing is counted, also where nothing follows it.
#[test]
fn a_file_that_lost_its_end() {
    for pushed_later in [0, 1, 5] {
        for cut in [1, 200, 700, 1500] {
            let folder = Folder::new();
            let path = folder.file("run.jsonl");
            let words = words(2, 64);
            let spool = spool(&words, 2, 64);
            let mut writer = Writer::new(spool, TraceFile::create(&path).unwrap(), &Options::default()).unwrap();
            let mut producers = [1, 2].map(|tid| spool.claim_ring(tid, b"").unwrap());
            let mut push = |ids: std::ops::Range<u64>| {
                assert!(ids.into_iter().all(|id| producers[id as usize % 2].push(&event(id, id)) == Pushed::Yes));
            };
            push(0..20);
            writer.flush(20, 20).unwrap();
            push(20..20 + pushed_later);
            let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            file.set_len(file.metadata().unwrap().len() - cut).unwrap();
            let done = recover(&words, &path, None, "test").unwrap();
            let told = Reader::open(&path).unwrap().filter(|line| matches!(line, Line::Event(..))).count() as u64;
            assert!(told < 20 + pushed_later && done.is_incomplete(), "{cut}, {pushed_later}: {told}, {done:?}");
            assert_eq!(done.footer.events, 20 + pushed_later, "{cut}, {pushed_later}: {told}, {done:?}");
        }
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
