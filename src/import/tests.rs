//! Files of other tools whose truth is known, files that are wrong, and ([`noise`]) files that follow no rule.

use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};
use vramscope_core::api::Api;
use vramscope_core::event::{Event, EventKind, FreeHow, Memory, Source as Served};
use vramscope_core::trace::{Frame, Line};

use super::*;
use crate::cli::new_file::NewFile;
use crate::export::testing::file;
use crate::export::torch::Torch;
use crate::export::torch::encode::{Encoder, Pickle};
use crate::export::torch::tests::backwards;
use crate::export::{Format, Selection, Source, Target};
use crate::report::History;
use crate::report::tally::Layer;
use crate::report::testing::{MIB, Script};

mod noise;

const GIB: u64 = 1 << 30;

/// A tree as a pickle.
fn pickled(tree: &Json) -> Vec<u8> {
    fn value(to: &mut Pickle, v: &Json) {
        match v {
            Json::Array(items) => {
                to.list();
                items.iter().for_each(|v| {
                    to.item();
                    value(to, v);
                });
                to.end_list();
            }
            Json::Object(map) => {
                to.dict();
                map.iter().for_each(|(k, v)| {
                    to.key(k);
                    value(to, v);
                });
                to.end_dict();
            }
            Json::String(text) => to.text(text),
            Json::Bool(flag) => to.flag(*flag),
            other => to.number(other.as_u64().unwrap()),
        }
    }
    let mut to = Pickle::default();
    value(&mut to, tree);
    to.finish();
    std::mem::take(to.buffer())
}

/// What became of a file.
fn imported(bytes: &[u8]) -> Result<(History, Done)> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, bytes).unwrap();
    imported_file(&path)
}

fn imported_file(path: &Path) -> Result<(History, Done)> {
    let out = path.with_extension("jsonl");
    let mut lines = Lines::new(NewFile::create(&out, false)?);
    let done = Kind::of(path)?.import(path, &mut lines)?;
    lines.finish("stopped")?;
    let history = History::read(&out)?;
    assert_eq!(history.damage, None);
    Ok((history, done))
}

fn error(bytes: &[u8]) -> String {
    let e = imported(bytes).map(drop).unwrap_err();
    // Without the folder that the test made.
    let text = format!("{e:#}");
    text.split_once("/file: ").map_or(text.clone(), |(_, what)| what.to_string())
}

fn tensors(history: &History) -> (u64, u64) {
    let now = history.state.now.layer(Layer::Tensor);
    (now.bytes, now.count)
}

fn frames() -> Json {
    json!([
        {"name": "torch::unwind::unwind()", "filename": "??", "line": 0},
        {"name": "c10::cuda::raw_alloc(unsigned long)", "filename": "??", "line": 0},
        {"name": "forward", "filename": "/job/train.py", "line": 20},
        {"name": "_PyEval_EvalFrameDefault", "filename": "??", "line": 0},
    ])
}

fn entry(action: &str, addr: u64, size: u64, time: u64) -> Json {
    json!({"action": action, "addr": addr, "size": size, "stream": 0, "time_us": time, "frames": frames()})
}

fn segment(address: u64, size: u64, blocks: &[(u64, &str)]) -> Json {
    let block =
        |(size, state): &(u64, &str)| json!({"size": size, "requested_size": size, "state": state, "frames": frames()});
    let blocks: Vec<Json> = blocks.iter().map(block).collect();
    json!({"device": 0, "address": address, "total_size": size, "stream": 0, "is_expandable": false, "blocks": blocks})
}

#[test]
fn a_whole_trace() {
    let snapshot = json!({
        "segments": [segment(GIB, 2 * MIB, &[(512, "active_allocated"), (2 * MIB - 512, "inactive")])],
        "device_traces": [[
            entry("segment_alloc", GIB, 2 * MIB, 1_000_000),
            entry("alloc", GIB, 4, 1_000_001),
            entry("alloc", GIB + 512, MIB - 512, 1_000_002),
            entry("free_requested", GIB + 512, MIB - 512, 1_000_005),
            entry("free_completed", GIB + 512, MIB - 512, 1_000_005),
            {"action": "oom", "size": 5 * GIB, "device_free": GIB, "stream": 0, "time_us": 1_000_009, "frames": frames()},
        ], []],
        "external_annotations": [
            {"stage": "START", "name": "step", "device": 0, "time_us": 1_000_000},
            {"stage": "END", "name": "step", "device": 0, "time_us": 1_000_007},
        ],
    });
    let (history, done) = imported(&pickled(&snapshot)).unwrap();
    assert_eq!((done.events, done.live, done.notes.len()), (7, 0, 0), "{done:?}");
    assert_eq!(history.header.start_seconds, 1);
    // Sizes are rounded as PyTorch does.
    assert_eq!(tensors(&history), (512, 1));
    assert_eq!(history.state.peak.totals.active(), 2 * MIB);
    assert_eq!(history.end, 9_000);
    let oom = &history.ooms[0];
    assert_eq!((oom.asked, oom.free, oom.pytorch_active, oom.pytorch_inactive), (5 * GIB, GIB, 512, 2 * MIB - 512));
    assert_eq!(oom.holders[0].bytes, 512);
    // The frames are named; those of the recorder and the interpreter are left out.
    assert_eq!(history.stacks.len(), 1);
    assert_eq!(history.stacks[&1].len(), 2);
    let place = history.python.values().next().unwrap();
    assert_eq!((place.function.as_str(), place.file.as_str(), place.line), ("forward", "/job/train.py", 20));
    assert!(history.symbols.values().any(|n| n[0].function.starts_with("c10::cuda::raw_alloc")));
}

#[test]
fn a_snapshot_of_an_h200() {
    // Of torch 2.15 with context and stacks "all", two steps of a small network; vramscope recorded the same run.
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/torch_snapshot.pickle.zst");
    let bytes = zstd::decode_all(File::open(path).unwrap()).unwrap();
    let (history, done) = imported(&bytes).unwrap();
    assert_eq!((done.events, done.live, done.notes.len()), (1149, 0, 0), "{done:?}");
    // What vramscope's own report says of PyTorch at that peak.
    let peak = &history.state.peak.totals;
    assert_eq!((peak.layer(Layer::Direct).count, peak.layer(Layer::Direct).bytes), (16, 171_966_464));
    assert_eq!((peak.layer(Layer::Tensor).count, peak.layer(Layer::Tensor).bytes), (45, 135_316_480));
    assert_eq!(history.devices.len(), 1);
    assert!(history.python.values().any(|p| p.function == "_call_impl" && p.file.ends_with("nn/modules/module.py")));
    assert_eq!(history.stacks.len(), 39);
}

#[test]
fn what_the_ring_has_lost_was_live_before() {
    let snapshot = json!({
        "segments": [segment(GIB, 2 * MIB, &[(512, "active_allocated"), (2 * MIB - 512, "inactive")])],
        "device_traces": [[
            entry("free_requested", GIB + 512, 512, 5),
            entry("free_completed", GIB + 512, 512, 5),
            entry("free_requested", 4 * GIB, MIB, 6),
            entry("free_completed", 4 * GIB, MIB, 6),
            entry("segment_free", 4 * GIB, 2 * MIB, 7),
        ]],
    });
    let (history, done) = imported(&pickled(&snapshot)).unwrap();
    assert_eq!((done.events, done.live), (3, 5), "{done:?}");
    assert!(done.notes[0].contains("5 allocations were live before"), "{done:?}");
    assert_eq!(tensors(&history), (512, 1));
    assert_eq!(history.state.peak.totals.active(), 4 * MIB);
    // The segments alone, as torch.cuda.memory_snapshot() gives them.
    let (history, done) = imported(&pickled(&snapshot["segments"])).unwrap();
    assert_eq!((done.events, done.live), (0, 2));
    assert_eq!(tensors(&history), (512, 1));
}

#[test]
fn expandable_segments_come_and_go_in_other_pieces() {
    let mut last = segment(GIB, 4 * MIB, &[(4 * MIB, "inactive")]);
    last["is_expandable"] = json!(true);
    let snapshot = json!({
        "segments": [last],
        "device_traces": [[
            // Mapped as one, unmapped in the middle; another was there before.
            entry("segment_map", GIB, 20 * MIB, 1),
            entry("segment_unmap", GIB + 8 * MIB, 4 * MIB, 2),
            entry("segment_unmap", GIB + 4 * MIB, 4 * MIB, 3),
            entry("segment_unmap", GIB + 12 * MIB, 10 * MIB, 4),
        ]],
    });
    let (history, done) = imported(&pickled(&snapshot)).unwrap();
    assert_eq!(done.live, 1, "{done:?}");
    let vmm = history.state.now.layer(Layer::Vmm);
    assert_eq!(vmm.bytes, 4 * MIB);
    assert_eq!(history.state.peak.totals.active(), 22 * MIB);
}

/// A training step as vramscope records it.
fn script() -> Script {
    let mut s = Script::new();
    s.module(2, "/usr/lib/libc10_cuda.so");
    let python = s.python("Net.forward", "/job/train.py", 20);
    let stack = s.stack_of(&[Frame::Native(1, 0x1000), python]);
    let alloc = |s: &mut Script, memory, address, bytes, caller| {
        let id = s.id();
        let how = if memory == Memory::Device { Served::Hoarder } else { Served::Driver } as u8;
        let (kind, api) = (EventKind::Alloc, Api::CudaMalloc);
        s.event(Event { kind, memory, api, how, id, address, bytes, caller, stack, context: 1, ..Event::default() });
        id
    };
    alloc(&mut s, Memory::Device, GIB, 20 * MIB, 2);
    let mut live = Vec::new();
    for i in 0..20 {
        live.push(alloc(&mut s, Memory::Tensor, GIB + i * MIB, 1000 * (i + 1), 0));
        if i % 3 == 2 {
            let id = live.remove(0);
            s.free(id, FreeHow::Driver);
        }
    }
    alloc(&mut s, Memory::Device, 2 * GIB, 3 * MIB + 5, 1);
    let (_, segment) = s.miss(100, 512, stack);
    for line in &mut s.lines {
        if let Line::Event(_, e) = line
            && (e.id == segment || e.extra[0] == segment)
            && e.address == 0
        {
            e.address = 9 * GIB;
        }
    }
    s.footer("exit");
    s
}

fn exported(s: &Script, format: impl Format, selection: Selection) -> (tempfile::TempDir, PathBuf) {
    let (folder, path) = file(s);
    let out = folder.path().join("file");
    let mut source = Source::open(&path, &[]).unwrap();
    source.selection = selection;
    format.write(&mut source, &Target::Path(out.clone())).unwrap();
    (folder, out)
}

#[test]
fn a_history_comes_back_from_a_pickle_with_the_same_bytes() {
    let s = script();
    let before = s.history();
    for selection in [Selection::default(), Selection { layer: Some(Layer::Tensor), ..Selection::default() }] {
        let (_folder, out) = exported(&s, Torch::Pickle, selection);
        let (after, done) = imported_file(&out).unwrap();
        assert!(done.notes.is_empty(), "{done:?}");
        let all = before.state.now.layer(Layer::Tensor).bytes;
        let rest = if selection.layer.is_some() { 0 } else { 3 * MIB + 5 + 512 };
        assert_eq!(tensors(&after).0, all + rest);
        if selection.layer.is_none() {
            // What everybody took from the driver, at the same moment.
            assert_eq!(after.state.peak.totals.active(), before.state.peak.totals.active());
            assert_eq!(after.state.now.active(), before.state.now.active());
        }
        assert_eq!(after.header.program, "/job/program");
        let python = after.python.values().next().unwrap();
        assert_eq!((python.function.as_str(), python.line), ("Net.forward", 20));
    }
    // Only the end of it: what was live then is live before.
    let selection = Selection { from: s.time / 2, ..Selection::default() };
    let (_folder, out) = exported(&s, Torch::Pickle, selection);
    let (after, done) = imported_file(&out).unwrap();
    assert!(done.live > 0 && done.notes.len() == 1, "{done:?}");
    assert_eq!(after.state.now.active(), before.state.now.active());
}

#[test]
fn a_history_comes_back_from_rmms_log() {
    let s = script();
    let (_folder, out) = exported(&s, crate::export::rmm::Rmm, Selection::default());
    let (after, done) = imported_file(&out).unwrap();
    assert!(done.notes.is_empty() && done.live == 0, "{done:?}");
    // The log has what was asked for, not how it was rounded.
    assert_eq!(after.state.now.active(), s.history().state.now.device().requested);
}

#[test]
fn rmms_log() {
    let log = "Thread,Time,Action,Pointer,Size,Stream\n\
        71,23:59:59.000000,allocate,0x7f00,1024,0\n\
        72,23:59:59.500000,free,0x6000,512,0x55aa\n\
        71,00:00:01.000000,allocate failure,(nil),4096,0\n\
        71,00:00:02.000000,free,0x7f00,1024,default\n\
        71,00:00:03.000000,free,0x6000,512,0\n\
        71,00:00:04.00";
    let (history, done) = imported(log.as_bytes()).unwrap();
    assert_eq!((done.events, done.live), (4, 1), "{done:?}");
    assert!(
        done.notes[0].contains("is cut")
            && done.notes[1].contains("1 lines do not fit")
            && done.notes[2].contains("1 allocations were live"),
        "{done:?}"
    );
    assert_eq!((history.state.now.active(), history.state.peak.totals.active()), (0, 1536));
    // Past midnight.
    assert_eq!((history.header.start_seconds, history.end), (86_399, 3_000_000_000));
    let e = error(&log.as_bytes()[..100].iter().copied().chain(*b"x\nmore\n").collect::<Vec<_>>());
    assert!(e.starts_with("line 3: '"), "{e}");
    for (line, what) in [
        ("1,00:00:01.0,alloc,0x10,5,0\n", "line 2: 'alloc' is no action"),
        ("1,00:00:01.0,allocate,xyz,5,0\n", "line 2: 'xyz' is no pointer"),
        ("1,00:00:01.0,allocate,0x10,many,0\n", "line 2: 'many' is no size"),
        ("1,99999999999:00:01.0,allocate,0x10,5,0\n", "'99999999999:00:01.0' is no time"),
        ("1,noon,allocate,0x10,5,0\n", "line 2: 'noon' is no time"),
        ("1,00:00:01.0,allocate,0xffffffffffffffff,5,0\n", "is no range of a device"),
        ("1\n", "line 2: '' is no action"),
    ] {
        let text = format!("Thread,Time,Action,Pointer,Size,Stream\n{line}");
        assert!(error(text.as_bytes()).contains(what), "{}", error(text.as_bytes()));
    }
}

#[test]
fn what_is_no_snapshot_is_said_in_a_line() {
    let lists = |segments: Json, traces: Json| error(&pickled(&json!({"segments": segments, "device_traces": traces})));
    for (e, what) in [
        (error(b""), "neither a snapshot of PyTorch"),
        (error(b"\x7fELF"), "neither a snapshot of PyTorch"),
        (error(b"PK\x03\x04"), "a zip archive"),
        (error(b"{\"kind\":\"header\"}"), "a history of vramscope"),
        (error(b"{\"segments\":[]}"), "JSON; give the pickle"),
        (error(b"\x80\x02cos\nsystem\n."), "byte 2: the pickle would call or load os.system"),
        (error(&pickled(&json!({"a": 1}))), "no list `segments`"),
        (lists(json!([{"address": 1}]), json!([])), "segments[0] has no total_size"),
        (lists(json!([{"address": u64::MAX >> 1, "total_size": 99, "blocks": []}]), json!([])), "is no range"),
        (lists(json!([segment(GIB, 10, &[(20, "inactive")])]), json!([])), "does not lie in it"),
        (lists(json!([]), json!([[{"size": 1}]])), "device_traces[0][0] has no action"),
        (lists(json!([]), json!([[{"action": "alloc", "size": 1}]])), "device_traces[0][0] has no addr"),
        (lists(json!([]), json!([7])), "device_traces[0] is no list"),
        (lists(json!([{"device": 9999, "address": 1, "total_size": 0, "blocks": []}]), json!([])), "10000 devices"),
    ] {
        assert!(e.contains(what), "{what}: {e}");
        assert!(!e.contains('\n'));
    }
}
