//! Batches are what the reader says, line for line, whatever the file and the number of threads.

use vramscope_core::event::{Event, EventKind, Memory};
use vramscope_core::trace::read::Reader;
use vramscope_core::trace::{FORMAT, Footer, Line, Note, Stack, VERSION, write};

use super::*;

fn header(part: u32) -> Header {
    let events_before = 8_000 * u64::from(part);
    Header { format: FORMAT.into(), version: VERSION, pid: 7, part, events_before, ..Header::default() }
}

/// Lines of about a megabyte: several chunks.
fn lines(part: u32) -> Vec<Line> {
    let mut lines = vec![Line::Header(header(part))];
    for i in 0..8_000u64 {
        let kind = if i % 2 == 0 { EventKind::Alloc } else { EventKind::Free };
        let memory = if i % 2 == 0 { Memory::Device } else { Memory::None };
        let bytes = if i % 2 == 0 { i * 4096 } else { 0 };
        lines.push(Line::Event(1, Event { kind, memory, time: i, id: 1 + i / 2, bytes, ..Event::default() }));
        match i % 400 {
            0 => lines.push(Line::Stack(Stack { stack: i as u32, ..Stack::default() })),
            7 => {
                lines.push(Line::Live(1, Event { kind: EventKind::Alloc, memory: Memory::Device, ..Event::default() }))
            }
            9 => lines.push(Line::Note(Note { time: i, message: "n".repeat(20_000) })),
            _ => {}
        }
    }
    lines.push(Line::Footer(Footer::default()));
    lines
}

fn text(lines: &[Line]) -> Vec<u8> {
    let mut text = Vec::new();
    lines.iter().for_each(|line| write::line(&mut text, line));
    text
}

fn frames(text: &[u8]) -> Vec<u8> {
    let mut frames = Vec::new();
    let mut from = 0;
    while from < text.len() {
        let at = text.len().min(from + 100_000);
        let end = text[at..].iter().position(|b| *b == b'\n').map_or(text.len(), |n| at + n + 1);
        frames.extend(zstd::bulk::compress(&text[from..end], 1).unwrap());
        from = end;
    }
    frames
}

/// What a reader says: lines with their numbers, and the damage.
fn by_reader(path: &Path) -> (Vec<(u64, Line)>, Option<Damage>) {
    let mut reader = Reader::open(path).unwrap();
    let mut lines = Vec::new();
    while let Some(line) = reader.next() {
        lines.push((reader.line(), line));
    }
    (lines, reader.damage().cloned())
}

fn same(path: &Path) -> (Vec<(u64, Line)>, Option<Damage>) {
    let expected = by_reader(path);
    for threads in [0, 1, 3] {
        let mut batches = Batches::with_threads(path, threads).unwrap();
        let header = Line::Header(batches.header().clone());
        assert_eq!(expected.0[0].1, header);
        let lines: Vec<(u64, Line)> = batches.by_ref().flatten().map(|(n, item)| (n, item.line())).collect();
        assert!(lines == expected.0[1..], "{threads} threads: {} lines, {} expected", lines.len(), expected.0.len());
        assert_eq!(batches.damage().cloned(), expected.1, "{threads} threads");
        assert!(batches.next().is_none());
    }
    expected
}

#[test]
fn plain_and_compressed_whole_and_cut() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    let plain = text(&lines(0));
    for bytes in [plain.clone(), frames(&plain), zstd::bulk::compress(&plain, 1).unwrap()] {
        fs::write(&path, &bytes).unwrap();
        let (got, damage) = same(&path);
        assert!(got.iter().map(|(_, line)| line).eq(&lines(0)) && damage.is_none());
        assert!(got.iter().enumerate().all(|(i, (number, _))| i as u64 + 1 == *number));
        for cut in [1, 100, bytes.len() / 3, bytes.len() / 2] {
            fs::write(&path, &bytes[..bytes.len() - cut]).unwrap();
            same(&path);
        }
    }
}

#[test]
fn damaged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    let plain = text(&lines(0));
    let middle = plain.len() / 2;
    // A line that is none, one without end, bytes that are no text, empty lines.
    let long = vec![b'x'; 17 << 20];
    for rubbish in [&b"\nrubbish\n{}\n\n\n"[..], b"\n{\"kind\":\"alloc\",\"thread\":tr\n", b"\0\xff\n", &long] {
        let bytes = [&plain[..middle], rubbish, &plain[middle..]].concat();
        fs::write(&path, &bytes).unwrap();
        let (got, damage) = same(&path);
        let damage = damage.unwrap();
        assert!(got.len() >= lines(0).len() - 1 && damage.line > 100 && damage.byte > 100_000, "{damage}");
        // The lines behind it have the numbers they have in an editor.
        assert_eq!(got.last().unwrap().0, bytes.iter().filter(|b| **b == b'\n').count() as u64);
        if rubbish.len() < 100 {
            fs::write(&path, frames(&bytes)).unwrap();
            same(&path);
        }
    }
    let mut bytes = frames(&plain);
    let middle = bytes.len() / 2;
    bytes[middle..middle + 9].fill(0x55);
    fs::write(&path, &bytes).unwrap();
    assert!(same(&path).1.is_some());
    // Another history behind it, and damage behind that, which is not this one's.
    let first = lines(0);
    fs::write(&path, [&plain[..], &plain[..], b"rubbish\n"].concat()).unwrap();
    let (got, damage) = same(&path);
    assert_eq!((got.len(), damage.map(|d| d.places)), (first.len(), Some(1)));
}

#[test]
fn parts() {
    let folder = tempfile::tempdir().unwrap();
    let (path, older) = (folder.path().join("x"), folder.path().join("x.1"));
    fs::write(&older, text(&lines(0))).unwrap();
    fs::write(&path, frames(&text(&lines(1)))).unwrap();
    let (got, damage) = same(&path);
    let live = |part: u32| lines(part).iter().filter(|l| matches!(l, Line::Live(..))).count();
    assert_eq!((got.len(), damage), (2 * lines(0).len() - 1 - live(1), None));
    // The older part lacks lines, or is another, or is gone; or the newer one is.
    let fewer = text(&lines(0)[..6_000]);
    let other = text(&[Line::Header(Header { pid: 8, ..header(0) })]);
    for (instead, line) in [(Some(fewer), 1), (Some(other), 0), (None, 0)] {
        match &instead {
            Some(bytes) => fs::write(&older, bytes).unwrap(),
            None => fs::remove_file(&older).unwrap(),
        }
        assert_eq!(same(&path).1.map(|damage| (damage.line, damage.places)), Some((line, 1)));
    }
    fs::rename(&path, &older).unwrap();
    assert_eq!(same(&path).1.map(|damage| (damage.line, damage.path)), Some((0, path)));
}

#[test]
fn who_wants_no_more_waits_for_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    fs::write(&path, text(&lines(0))).unwrap();
    for threads in [0, 1, 4] {
        let mut batches = Batches::with_threads(&path, threads).unwrap();
        assert!(batches.next().is_some());
    }
    assert!(Batches::open(&folder.path().join("none")).is_err());
}
