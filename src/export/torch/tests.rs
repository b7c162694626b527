//! Snapshots of histories whose truth is known, judged by the rules by which the viewer plays them backwards.

use std::collections::BTreeMap;

use serde_json::Value;
use vramscope_core::api::Api;
use vramscope_core::event::{Event, EventKind, FreeHow, Memory, Source as Served};
use vramscope_core::trace::{Line, Oom};

use super::*;
use crate::export::testing::{exported, file};
use crate::report::testing::{MIB, Script, sample};

const GIB: u64 = 1 << 30;

/// The snapshot as JSON, and what was said.
fn snapshot(script: &Script, change: impl Fn(&mut Source)) -> (Value, Vec<String>) {
    let (text, notes) = exported(script, &Torch::Json, change);
    let json: Value = serde_json::from_str(&text).unwrap();
    backwards(&json);
    (json, notes)
}

fn number(v: &Value, key: &str) -> u64 {
    v[key].as_u64().unwrap_or_else(|| panic!("no {key} in {v}"))
}

fn list<'v>(v: &'v Value, key: &str) -> &'v Vec<Value> {
    v[key].as_array().unwrap()
}

/// Plays each device's trace backwards from the last state; what the viewer breaks at is a failure.
pub fn backwards(snapshot: &Value) {
    for (device, trace) in list(snapshot, "device_traces").iter().enumerate() {
        let of = |s: &&Value| number(s, "device") == device as u64;
        let mut segments = BTreeMap::new();
        let mut blocks = BTreeMap::new();
        for s in list(snapshot, "segments").iter().filter(of) {
            assert!(segments.insert(number(s, "address"), number(s, "total_size")).is_none());
            let mut at = number(s, "address");
            for b in list(s, "blocks") {
                assert_eq!(number(b, "address"), at, "blocks tile their segment");
                if b["state"] == "active_allocated" {
                    blocks.insert(at, number(b, "size"));
                }
                at += number(b, "size");
            }
            assert_eq!(at, number(s, "address") + number(s, "total_size"));
        }
        let trace = trace.as_array().unwrap();
        for (i, e) in trace.iter().enumerate().rev() {
            let size = number(e, "size");
            let at = || number(e, "addr");
            match e["action"].as_str().unwrap() {
                "free_completed" => {
                    let request = &trace[i - 1];
                    assert!(request["action"] == "free_requested" && request["addr"] == e["addr"]);
                }
                "free_requested" => assert!(blocks.insert(at(), size).is_none(), "{e}"),
                "alloc" => assert!(blocks.remove(&at()).is_some(), "{e}"),
                "segment_free" | "segment_unmap" => assert!(segments.insert(at(), size).is_none(), "{e}"),
                "segment_alloc" => assert_eq!(segments.remove(&at()), Some(size), "{e}"),
                "segment_map" => {
                    let (start, whole) = segments.range(..=at()).next_back().map(|(a, s)| (*a, *s)).unwrap();
                    let (end, stop) = (at() + size, start + whole);
                    assert!(end <= stop, "{e}");
                    segments.remove(&start);
                    for (from, to) in [(start, at()), (end, stop)].into_iter().filter(|(from, to)| from < to) {
                        segments.insert(from, to - from);
                    }
                }
                "oom" => assert!(e["device_free"].is_u64()),
                other => panic!("{other}"),
            }
            for (at, size) in &blocks {
                let (mut reached, end) = (*at, at + size);
                while reached < end {
                    let (start, whole) = segments.range(..=reached).next_back().unwrap();
                    assert!(start + whole > reached, "{at:x} has no segment");
                    reached = start + whole;
                }
            }
        }
    }
}

fn actions(snapshot: &Value) -> Vec<String> {
    let name = |e: &Value| e["action"].as_str().unwrap().to_string();
    list(snapshot, "device_traces")[0].as_array().unwrap().iter().map(name).filter(|a| a != "free_completed").collect()
}

/// Bytes of the live blocks.
fn active(snapshot: &Value) -> u64 {
    list(snapshot, "segments").iter().map(|s| number(s, "active_size")).sum()
}

fn alloc(s: &mut Script, memory: Memory, address: u64, bytes: u64, how: Served, caller: u32) -> u64 {
    let id = s.id();
    let (kind, how) = (EventKind::Alloc, how as u8);
    let api = if memory == Memory::Tensor { Api::None } else { Api::CudaMalloc };
    s.event(Event { kind, memory, api, how, id, address, bytes, caller, context: 1, ..Event::default() });
    id
}

/// A training step: two of PyTorch's segments, tensors in them, and what NCCL took.
fn pytorch() -> Script {
    let mut s = Script::new();
    s.module(2, "/usr/lib/libc10_cuda.so");
    s.module(3, "/usr/lib/libnccl.so.2");
    let first = alloc(&mut s, Memory::Device, GIB, 20 * MIB, Served::Hoarder, 2);
    let a = alloc(&mut s, Memory::Tensor, GIB, 4 * MIB, Served::Driver, 0);
    alloc(&mut s, Memory::Tensor, GIB + 8 * MIB, MIB, Served::Driver, 0);
    alloc(&mut s, Memory::Device, 2 * GIB, 32 * MIB, Served::Driver, 3);
    alloc(&mut s, Memory::Pinned, 3 * GIB, MIB, Served::Driver, 3);
    let second = alloc(&mut s, Memory::Device, 4 * GIB, 2 * MIB, Served::Hoarder, 2);
    s.free(a, FreeHow::Driver);
    alloc(&mut s, Memory::Tensor, GIB, 512, Served::Driver, 0);
    s.free(second, FreeHow::Driver);
    assert_eq!(first, 1);
    s
}

#[test]
fn tensors_lie_in_pytorchs_segments_and_the_rest_is_a_segment_of_one_block() {
    let (json, notes) = snapshot(&pytorch(), |_| {});
    assert!(notes.is_empty(), "{notes:?}");
    let actions = actions(&json);
    let expected = "segment_alloc alloc alloc segment_alloc alloc segment_alloc free_requested alloc segment_free";
    assert_eq!(actions.join(" "), expected);
    assert_eq!(active(&json), MIB + 32 * MIB + 512);
    let segments = list(&json, "segments");
    assert_eq!(segments.len(), 2);
    let states: Vec<&str> = list(&segments[0], "blocks").iter().map(|b| b["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["active_allocated", "inactive", "active_allocated", "inactive"]);
    // PyTorch alone, and the rest alone.
    let (json, _) = snapshot(&pytorch(), |s| s.selection.layer = Some(Layer::Tensor));
    assert_eq!((active(&json), list(&json, "segments").len()), (MIB + 512, 1));
    let (json, _) = snapshot(&pytorch(), |s| s.selection.layer = Some(Layer::Pinned));
    assert_eq!(active(&json), MIB);
}

#[test]
fn a_window_begins_with_what_is_live() {
    let (json, _) = snapshot(&pytorch(), |s| s.selection = Selection { from: 7_000_000, ..s.selection });
    // Of the trace the frees are left, of the state everything.
    assert_eq!(actions(&json).join(" "), "free_requested alloc segment_free");
    assert_eq!(active(&json), MIB + 32 * MIB + 512);
    let (json, _) = snapshot(&pytorch(), |s| s.selection = Selection::at(4_000_000));
    assert!(actions(&json).is_empty());
    assert_eq!(active(&json), 5 * MIB);
}

#[test]
fn the_pools_blocks_lie_in_its_segments() {
    let mut s = sample();
    // Addresses, which the sample does without.
    let mut next = GIB;
    for line in &mut s.lines {
        let Line::Event(_, e) = line else { continue };
        if e.kind == EventKind::SegmentAlloc || e.kind == EventKind::Alloc && e.extra[0] == 0 {
            e.address = next;
            next += GIB;
        }
    }
    let of = |id, lines: &[Line]| {
        lines.iter().find_map(|l| match l {
            Line::Event(_, e) if e.kind == EventKind::SegmentAlloc && e.id == id => Some(e.address),
            _ => None,
        })
    };
    let copy = s.lines.clone();
    for line in &mut s.lines {
        if let Line::Event(_, e) = line
            && e.kind == EventKind::Alloc
            && e.extra[0] != 0
        {
            e.address = of(e.extra[0], &copy).unwrap();
        }
    }
    let history = s.history();
    let (json, notes) = snapshot(&s, |_| {});
    assert!(notes.is_empty(), "{notes:?}");
    assert_eq!(active(&json), history.state.now.active());
    let reserved: u64 = list(&json, "segments").iter().map(|s| number(s, "total_size")).sum();
    assert_eq!(reserved, history.state.now.reserved());
}

#[test]
fn mapped_pieces_are_expandable_segments() {
    let mut s = Script::new();
    s.module(2, "/usr/lib/libc10_cuda.so");
    let mut ids = Vec::new();
    for i in 0..3 {
        let id = alloc(&mut s, Memory::Vmm, 7 + i, 2 * MIB, Served::Driver, 2);
        let (kind, memory) = (EventKind::Map, Memory::Vmm);
        s.event(Event { kind, memory, id, address: GIB + i * 2 * MIB, bytes: 2 * MIB, context: 1, ..Event::default() });
        ids.push(id);
    }
    let tensor = alloc(&mut s, Memory::Tensor, GIB + MIB, 4 * MIB, Served::Driver, 0);
    // A mapping that is nobody's pool.
    let other = alloc(&mut s, Memory::Vmm, 99, 8 * MIB, Served::Driver, 1);
    s.event(Event {
        kind: EventKind::Map,
        id: other,
        address: 8 * GIB,
        bytes: 8 * MIB,
        context: 1,
        ..Event::default()
    });
    let (json, _) = snapshot(&s, |_| {});
    let segments = list(&json, "segments");
    assert_eq!((segments.len(), number(&segments[0], "total_size")), (2, 6 * MIB));
    assert_eq!(segments[0]["is_expandable"], true);
    assert_eq!(active(&json), 12 * MIB);
    s.free(tensor, FreeHow::Driver);
    s.event(Event { kind: EventKind::Unmap, address: GIB, bytes: 6 * MIB, ..Event::default() });
    s.event(Event { kind: EventKind::Unmap, address: 8 * GIB, bytes: 8 * MIB, ..Event::default() });
    let (json, notes) = snapshot(&s, |_| {});
    assert!(notes.is_empty(), "{notes:?}");
    assert_eq!(actions(&json).iter().filter(|a| *a == "segment_unmap").count(), 4);
    assert!(list(&json, "segments").is_empty());
}

#[test]
fn a_stitched_block_lies_at_home_and_its_memory_counts_once() {
    let mut s = Script::new();
    let memory = Memory::Async;
    let mut event = |kind, id, address, bytes| {
        let how = Served::Hit as u8;
        s.event(Event { kind, memory, how, id, address, bytes, context: 1, ..Event::default() });
    };
    for (id, n) in [(1, 0), (2, 1), (3, 2)] {
        event(EventKind::SegmentAlloc, id, GIB + n * 2 * MIB, 2 * MIB);
    }
    event(EventKind::Alloc, 4, GIB + 2 * MIB, 2 * MIB);
    event(EventKind::Map, 1, 9 * GIB, 2 * MIB);
    event(EventKind::Map, 3, 9 * GIB + 2 * MIB, 2 * MIB);
    event(EventKind::Alloc, 5, 9 * GIB, 4 * MIB);
    let (json, notes) = snapshot(&s, |_| {});
    assert!(notes.is_empty(), "{notes:?}");
    let sizes = |json: &Value| list(json, "segments").iter().map(|s| number(s, "total_size")).collect::<Vec<_>>();
    assert_eq!((active(&json), sizes(&json)), (6 * MIB, vec![6 * MIB]));
    let blocks = list(&list(&json, "segments")[0], "blocks").clone();
    assert_eq!(blocks.iter().map(|b| number(b, "address")).collect::<Vec<_>>(), [GIB, GIB + 2 * MIB, GIB + 4 * MIB]);
    s.free(5, FreeHow::Cached);
    s.event(Event { kind: EventKind::Unmap, memory, address: 9 * GIB, bytes: 4 * MIB, ..Event::default() });
    let (json, notes) = snapshot(&s, |_| {});
    assert!(notes.is_empty(), "{notes:?}");
    assert_eq!((active(&json), sizes(&json)), (2 * MIB, vec![6 * MIB]));
}

#[test]
fn whatever_a_history_says_the_viewer_can_play_it() {
    let mut s = pytorch();
    // A tensor whose segment came before the history; two at one place; a segment that ends before its tensors.
    alloc(&mut s, Memory::Tensor, 77 * GIB, MIB, Served::Driver, 0);
    alloc(&mut s, Memory::Tensor, GIB, 2 * MIB, Served::Driver, 0);
    s.free(1, FreeHow::Driver);
    alloc(&mut s, Memory::Array, 0, MIB, Served::Driver, 1);
    alloc(&mut s, Memory::Device, u64::MAX - 5, MIB, Served::Driver, 1);
    let thread = 1;
    s.lines.push(Line::Oom(Box::new(Oom { time: s.time, thread, asked: 5, free: 3, ..Oom::default() })));
    let (json, notes) = snapshot(&s, |_| {});
    assert_eq!(active(&json), 33 * MIB);
    assert_eq!(notes.len(), 2, "{notes:?}");
    assert!(notes[0].contains("overlapped") && notes[1].contains("no address"), "{notes:?}");
    assert!(actions(&json).contains(&"oom".to_string()));
}

#[test]
fn a_file_that_is_too_large_for_the_viewer_is_cut_to_its_end() {
    let mut s = Script::new();
    s.module(2, "/usr/lib/libc10_cuda.so");
    alloc(&mut s, Memory::Device, GIB, 20 * MIB, Served::Hoarder, 2);
    for i in 0..5_000 {
        let id = alloc(&mut s, Memory::Tensor, GIB + i % 7 * MIB, 512, Served::Driver, 0);
        s.free(id, FreeHow::Driver);
    }
    let (_folder, path) = file(&s);
    let source = Source::open(&path, &[]).unwrap();
    let holders = Holders::find(&source).unwrap();
    let snapshot = Snapshot { source: &source, holders: &holders, layer: None };
    let size = |selection: Selection| {
        let mut encoder = Json::default();
        snapshot.write_part(selection, &mut encoder, &mut |_, _, _| Ok(())).unwrap();
        encoder.buffer().len() as u64
    };
    let whole = size(source.selection);
    assert_eq!(snapshot.fit(Torch::Json, whole + 1).unwrap(), source.selection);
    let cut = snapshot.fit(Torch::Json, whole * 3 / 4).unwrap();
    assert!(cut.from > 0 && cut.to == u64::MAX, "{cut:?}");
    let part = size(cut);
    assert!(part <= whole * 3 / 4 && part > whole / 4, "{part} of {whole}");
}
