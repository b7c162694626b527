//! The history's lines: what is written is read again, and no bytes whatever make the reader panic.

mod record_common;

use std::io::Write as _;
use std::path::Path;

use proptest::prelude::*;
use record_common::*;
use vramscope_core::api::Api;
use vramscope_core::event::{Event, EventKind, FreeHow, Memory, Source, TrimWhy};
use vramscope_core::trace::read::{ReadErrorKind, Reader};
use vramscope_core::trace::{
    Device, Footer, Frame, Grew, Holder, Library, Line, Lost, Module, Name, Note, Oom, Python, Stack, Symbol, Text,
    Thread, write,
};

/// A small history with a line of every kind.
fn sample() -> Vec<Line> {
    let alloc = event(10, 1);
    let inlined = Name { function: "f<int>".into(), file: "f.h".into(), line: 3, inlined: true };
    vec![
        Line::Header(header()),
        Line::Device(Device { device: 0, name: "H200".into(), uuid: "GPU-1".into(), bytes: 1 << 37 }),
        Line::Thread(Thread { thread: 1, tid: 77, name: "main".into(), sequence: 0 }),
        Line::Module(Module { module: 1, path: "/a \"b\"".into(), build_id: "00ff".into(), address: 4096, bytes: 9 }),
        Line::Text(Text { text: 1, value: "snowman \u{2603}\n".into() }),
        Line::Python(Python { python: 5, function: "A.<locals>.f".into(), file: "/a \"b\".py".into(), line: 12 }),
        Line::Symbol(Symbol {
            module: 1,
            offset: 4660,
            names: vec![inlined, Name { function: "g".into(), ..Name::default() }],
        }),
        Line::Stack(Stack {
            stack: 1,
            frames: vec![Frame::Native(1, 4660), Frame::Python(5), Frame::Guessed(0, 22136, 1)],
            cut: true,
        }),
        Line::Stack(Stack { stack: 2, frames: vec![Frame::Python(5), Frame::Python(5)], cut: false }),
        Line::Live(1, alloc),
        Line::Live(1, Event { kind: EventKind::SegmentAlloc, ..alloc }),
        Line::Event(1, Event { how: Source::Hit as u8, extra: [4, u64::MAX, 6], stack: 1, caller: 1, ..alloc }),
        Line::Event(1, Event { kind: EventKind::Free, time: 11, id: 1, api: Api::CudaFree, ..Event::default() }),
        Line::Event(1, Event { kind: EventKind::Mark, time: 11, extra: [1, 0, 0], ..Event::default() }),
        Line::Event(1, Event { kind: EventKind::RegionBegin, time: 11, id: 8, extra: [1, 250, 1], ..Event::default() }),
        Line::Event(1, Event { kind: EventKind::RegionEnd, time: 11, id: 8, ..Event::default() }),
        Line::Oom(Box::new(Oom {
            time: 12,
            what: "cudaMalloc".into(),
            asked: 1 << 40,
            others: Some(0),
            libraries: vec![Library { module: 1, bytes: 7 }],
            holders: vec![Holder { stack: 1, grew: Some(Grew { from: 1, bytes: 2, since: 3 }), ..Holder::default() }],
            advice: vec!["less".into()],
            ..Oom::default()
        })),
        Line::Note(Note { time: 12, message: "careful".into() }),
        Line::Lost(Lost { time: 12, lost: 2, stacks_refused: 1 }),
        Line::Footer(Footer { time: 12, events: 2, end: "exit".into(), status: Some(0), ..Footer::default() }),
    ]
}

fn text(lines: &[Line]) -> Vec<u8> {
    let mut out = Vec::new();
    lines.iter().for_each(|line| write::line(&mut out, line));
    out
}

/// A frame for every so many lines.
fn compressed(lines: &[Line], each: usize) -> Vec<u8> {
    lines.chunks(each).flat_map(|lines| zstd::bulk::compress(&text(lines), 3).unwrap()).collect()
}

/// What can be read of these bytes, and whether damage was told.
fn read(path: &Path, bytes: &[u8]) -> Option<(Vec<Line>, bool)> {
    std::fs::File::create(path).unwrap().write_all(bytes).unwrap();
    let mut reader = Reader::open(path).ok()?;
    let lines = reader.by_ref().collect();
    Some((lines, reader.damage().is_some()))
}

#[test]
fn every_kind_of_line_comes_back() {
    let folder = Folder::new();
    let lines = sample();
    let path = folder.file("x");
    assert_eq!(read(&path, &text(&lines)), Some((lines.clone(), false)));
    for each in [1, 3, 100] {
        assert_eq!(read(&path, &compressed(&lines, each)), Some((lines.clone(), false)), "frames of {each} lines");
    }
}

#[test]
fn a_line_in_another_shape_is_read_as_well() {
    let folder = Folder::new();
    let mut bytes = text(&sample()[..1]);
    bytes.extend_from_slice(
        br#"
 { "time" : 5, "thread":2 , "kind":"alloc", "id":3.0, "new":{"a":[1]}, "\u0061pi":"cudaMalloc", "address":"0xffffffffffffffff" }
{"kind":"free","thread":1,"time":6,"id":3,"how":"cached_device","later":null}
{"kind":"from_the_future","x":1}
{"kind":"alloc","thread":1,"time":6,"id":4,"memory":"quantum","api":"cuWarp","how":"teleport"}
{"kind":"stack","stack":2,"frames":[{"python":"f"},[1,2]]}
"#,
    );
    let (lines, damaged) = read(&folder.file("x"), &bytes).unwrap();
    assert!(!damaged);
    let first = Event {
        kind: EventKind::Alloc,
        time: 5,
        id: 3,
        memory: Memory::Device,
        api: Api::CudaMalloc,
        address: u64::MAX,
        ..Event::default()
    };
    assert_eq!(lines[1], Line::Event(2, first));
    let how = FreeHow::CachedDevice as u8;
    assert_eq!(lines[2], Line::Event(1, Event { kind: EventKind::Free, time: 6, id: 3, how, ..Event::default() }));
    assert_eq!(lines[3], Line::Unknown);
    assert_eq!(lines[4], Line::Event(1, Event { kind: EventKind::Alloc, time: 6, id: 4, ..Event::default() }));
    assert!(matches!(&lines[5], Line::Stack(s) if matches!(s.frames[..], [Frame::Other(_), Frame::Native(1, 2)])));
}

#[test]
fn what_is_no_history_is_refused_with_advice() {
    let folder = Folder::new();
    let path = folder.file("x");
    let kind = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        let error = Reader::open(&path).unwrap_err();
        assert!(error.to_string().starts_with(path.to_str().unwrap()));
        error.kind
    };
    assert!(matches!(kind(b""), ReadErrorKind::Empty));
    assert!(matches!(kind(b"\n\n"), ReadErrorKind::Empty));
    assert!(matches!(kind(br#"{"kind":"header","for"#), ReadErrorKind::Empty));
    assert!(matches!(kind(b"hello"), ReadErrorKind::NotHistory));
    assert!(matches!(kind(br#"{"kind":"memory","thread":1}"#), ReadErrorKind::NotHistory));
    assert!(matches!(kind(b"{\"loss\":1}\n{\"kind\": \"text\", \"text\": \"1\"}\n"), ReadErrorKind::NotHistory));
    // Emptied, or cut, while its program wrote it: nothing tells that but what follows.
    let alloc = "{\"kind\":\"alloc\",\"thread\":1,\"time\":5,\"id\":1}\n";
    let frame = zstd::encode_all(alloc.as_bytes(), 1).unwrap();
    let beginnings = [
        "",
        "read\":1,\"time\":4}\n",
        "{\"kind\":\"header\",\"form",
        "{\"kind\":\"text\",\"text\":1,\"value\":\"a\"}\n",
    ];
    for beginning in beginnings {
        let text = format!("{beginning}{alloc}");
        assert!(matches!(kind(text.as_bytes()), ReadErrorKind::NoBeginning) || beginning.ends_with("form"), "{text}");
        assert!(matches!(kind((text + alloc).as_bytes()), ReadErrorKind::NoBeginning), "{beginning}");
    }
    assert!(matches!(kind(&frame), ReadErrorKind::NoBeginning));
    assert!(matches!(kind(br#"{"kind":"header","format":"tar"}"#), ReadErrorKind::NotHistory));
    assert!(matches!(kind(&[0x28, 0xb5, 0x2f, 0xfd, 1, 2]), ReadErrorKind::Empty | ReadErrorKind::NotHistory));
    let newer = br#"{"kind":"header","format":"vramscope-history","version":99}"#;
    assert!(matches!(kind(newer), ReadErrorKind::Newer(99)));
    assert!(matches!(Reader::open(&folder.file("none")).unwrap_err().kind, ReadErrorKind::Io(_)));
}

#[test]
fn a_history_cut_anywhere_is_read_up_to_there() {
    let folder = Folder::new();
    let path = folder.file("x");
    let lines = sample();
    let bytes = text(&lines);
    for len in 0..bytes.len() {
        let whole = bytes[..len].iter().filter(|&&b| b == b'\n').count();
        match read(&path, &bytes[..len]) {
            Some((got, damaged)) => {
                // A line that lacks nothing but its end of line counts.
                assert!(got.len() == whole || got.len() == whole + 1);
                assert_eq!(got[..], lines[..got.len()]);
                let rest = bytes[..len].last() != Some(&b'\n');
                assert_eq!(damaged, rest && got.len() == whole, "cut at {len}");
            }
            None => assert_eq!(whole, 0, "cut at {len}"),
        }
    }
    for each in [1, 2, 5] {
        let bytes = compressed(&lines, each);
        for len in 0..bytes.len() {
            if let Some((got, _)) = read(&path, &bytes[..len]) {
                assert_eq!(got[..], lines[..got.len()], "frames of {each} lines cut at {len}");
            }
        }
    }
}

#[test]
fn damage_in_the_middle_costs_only_what_it_hit() {
    let folder = Folder::new();
    let path = folder.file("x");
    let lines = sample();
    let mut bytes = text(&lines[..8]);
    bytes.extend_from_slice(b"\xff\xfegarbage\n{\"kind\":\"alloc\",\"thread\":tr\n");
    bytes.extend(text(&lines[8..]));
    std::fs::write(&path, &bytes).unwrap();
    let mut reader = Reader::open(&path).unwrap();
    assert!(reader.by_ref().eq(lines.iter().cloned()));
    let damage = reader.damage().unwrap();
    assert_eq!((damage.line, damage.byte, damage.places), (9, text(&lines[..8]).len() as u64, 2));
    // A frame in the middle: those around it are read.
    let mut bytes = compressed(&lines, 2);
    let second = zstd::bulk::compress(&text(&lines[..2]), 3).unwrap().len();
    bytes[second + 12] ^= 0x55;
    bytes[second + 13] ^= 0x55;
    let (got, damaged) = read(&path, &bytes).unwrap();
    assert!(damaged && got.starts_with(&lines[..2]) && got.ends_with(&lines[4..]));
}

#[test]
fn of_two_histories_in_one_file_the_first_is_read() {
    let folder = Folder::new();
    let path = folder.file("x");
    let lines = sample();
    let plain = text(&lines);
    // Also where the first has no end, or its last line lacks its own.
    for cut in [0, 1, 30] {
        let first = &plain[..plain.len() - cut];
        let kept = if cut > 1 { lines.len() - 1 } else { lines.len() };
        std::fs::write(&path, [first, &plain].concat()).unwrap();
        let mut reader = Reader::open(&path).unwrap();
        let got: Vec<Line> = reader.by_ref().collect();
        if cut == 0 {
            assert_eq!(got[..], lines[..kept]);
        } else {
            assert_eq!(got[..], lines[..lines.len() - 1], "the broken line is lost");
        }
        assert!(reader.meets_another() && reader.next().is_none());
        let damage = reader.damage().unwrap();
        assert!(damage.what.contains("another history") && damage.places == 1, "{damage}");
        assert_eq!(damage.line, if cut == 0 { lines.len() as u64 + 1 } else { lines.len() as u64 });
        // Recover could only cut one of them away.
        let e = vramscope_core::record::recover_trace(&path, None, "test").unwrap_err();
        assert!(e.to_string().contains("another history follows"), "{e}");
        assert_eq!(std::fs::read(&path).unwrap(), [first, &plain].concat());
    }
    let twice = [compressed(&lines, 3), compressed(&lines, 3)].concat();
    assert_eq!(read(&path, &twice), Some((lines, true)));
}

#[test]
fn a_compressed_history_cut_in_its_first_frame_is_no_other_file() {
    let folder = Folder::new();
    let path = folder.file("x.zst");
    let whole = compressed(&sample(), 100);
    for len in [1, 3, 4, 20, whole.len() / 2, whole.len() - 1] {
        std::fs::write(&path, &whole[..len]).unwrap();
        match Reader::open(&path) {
            Ok(mut reader) => assert!(reader.by_ref().count() > 0 && reader.damage().is_some(), "cut at {len}"),
            Err(e) => assert!(matches!(e.kind, ReadErrorKind::Empty), "cut at {len}: {e}"),
        }
    }
    // A frame of several blocks is read as far as they are whole.
    let alloc = Line::Event(1, event(10, 1));
    let lines: Vec<Line> = sample().into_iter().take(8).chain(std::iter::repeat_n(alloc, 20_000)).collect();
    let whole = compressed(&lines, usize::MAX);
    let (got, damaged) = read(&path, &whole[..whole.len() * 3 / 4]).unwrap();
    assert!(damaged && got.len() > 1000 && got[..] == lines[..got.len()]);
}

#[test]
fn a_line_without_end_is_not_kept_in_memory() {
    let folder = Folder::new();
    let mut bytes = text(&sample()[..2]);
    bytes.resize(bytes.len() + (65 << 20), b'x');
    bytes.push(b'\n');
    bytes.extend(text(&sample()[2..3]));
    for bytes in [zstd::bulk::compress(&bytes, 1).unwrap(), bytes] {
        let (lines, damaged) = read(&folder.file("x"), &bytes).unwrap();
        assert!(damaged);
        assert_eq!(lines, sample()[..3]);
    }
}

#[test]
fn numbers_stay_below_what_json_keeps() {
    let all = u64::MAX;
    for kind in (0..=255).filter_map(EventKind::from_number) {
        let event = Event {
            kind,
            time: all,
            id: all,
            address: all,
            bytes: all,
            block: all,
            extra: [all; 3],
            ..Event::default()
        };
        let mut line = Vec::new();
        write::event(&mut line, u32::MAX, &event);
        let value: serde_json::Value = serde_json::from_slice(&line).unwrap();
        let object = value.as_object().unwrap();
        let too_large = object.values().filter_map(|v| v.as_u64()).find(|&n| n >= 1 << 53);
        assert_eq!(too_large, None, "{kind:?}");
    }
}

fn small() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 0..1000u64, 0..1u64 << 53]
}

prop_compose! {
    /// Events as hooks make them.
    fn any_event()(
        kind in (1..17u8).prop_map(|n| EventKind::from_number(n).unwrap()),
        memory in (0..10u8).prop_map(|n| Memory::from_number(n).unwrap()),
        api in any::<u8>().prop_map(|n| Api::from_number(n).unwrap_or_default()),
        how in 0..9u8, context in any::<u16>(), code in 0..999u16,
        time in small(), id in small(), address in prop_oneof![small(), any::<u64>()], bytes in small(),
        block in small(), stack in any::<u32>(), caller in 0..99u32, a in small(),
        b in prop_oneof![small(), any::<u64>()], c in small(),
    ) -> Event {
        let mut e = Event { kind, time, api, memory, how, context, code, id, address, bytes, block, stack, caller, extra: [a, b, c] };
        // What a line of this kind does not carry.
        let d = Event { kind, time, ..Event::default() };
        match kind {
            EventKind::Alloc => e.how %= 6,
            EventKind::Free => {
                e.how %= 4;
                if id != 0 {
                    e = Event { how: e.how, id, api, code, stack, caller, extra: [0, b, c], ..d };
                }
            }
            EventKind::Counters => {
                let page = code % 4;
                let keep = |i: u16, v: u64| if page * 7 + i < 25 { v.min(write::LARGEST) } else { 0 };
                e = Event {
                    code: page, id, address: keep(1, address), bytes: keep(2, bytes), block: keep(3, block),
                    extra: [keep(4, a), keep(5, b), keep(6, c)], ..d
                };
            }
            EventKind::Sample => e = Event { bytes, block, extra: [a, b.min(write::LARGEST), 0], memory, api, how, context, code, stack, caller, ..d },
            EventKind::Context => e = Event { address, extra: [a, b.min(write::LARGEST), 0], memory, api, how, context, code, stack, caller, ..d },
            EventKind::Trim => e = Event { code: TrimWhy::from_number((code % 5) as u8).map_or(0, |w| w as u16), id: 0, address: 0, extra: [0, b, c], ..e },
            _ => {}
        }
        e
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn events_come_back(events in prop::collection::vec((any::<u32>(), any_event()), 1..20)) {
        let folder = Folder::new();
        let mut lines = vec![Line::Header(header())];
        lines.extend(events.into_iter().map(|(thread, event)| Line::Event(thread, event)));
        let (got, damaged) = read(&folder.file("x"), &text(&lines)).unwrap();
        prop_assert!(!damaged);
        prop_assert_eq!(got, lines);
    }

    #[test]
    fn no_bytes_make_it_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3u8), 1..12),
        each in prop_oneof![Just(0usize), 1..6usize],
    ) {
        let folder = Folder::new();
        let lines = sample();
        let mut bytes = if each == 0 { text(&lines) } else { compressed(&lines, each) };
        for (at, byte, how) in changes {
            let at = at.index(bytes.len());
            match how {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ => drop(bytes.remove(at)),
            }
        }
        if let Some((got, _)) = read(&folder.file("x"), &bytes) {
            prop_assert!(got.len() <= 3 * lines.len());
        }
        // Recover copes as well.
        let path = folder.file("x");
        if vramscope_core::record::recover_trace(&path, None, "test").is_ok() {
            prop_assert!(vramscope_core::record::recover_trace(&path, None, "test").unwrap().was_whole);
        }
    }

    #[test]
    fn random_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300), magic in any::<bool>()) {
        let folder = Folder::new();
        let mut all = if magic { vec![0x28, 0xb5, 0x2f, 0xfd] } else { text(&sample()[..2]) };
        all.extend(bytes);
        read(&folder.file("x"), &all);
    }
}
