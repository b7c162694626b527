//! What the writer knows of what is live: explanations of failed requests, and snapshots.

mod record_common;

use record_common::*;
use vramscope_core::api::Api;
use vramscope_core::event::{Event, EventKind, Memory, Source};
use vramscope_core::record::{
    Definition, Failure, Options, PYTORCH, Producer, Pushed, Spool, Told, Writer, frame, python_frame, recover,
};
use vramscope_core::trace::read::Reader;
use vramscope_core::trace::{Holder, Line, Oom, OomLimit};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

// Stacks.
const TRAIN: u32 = 1;
const EVAL: u32 = 2;
const TORCH: u32 = 3;
const NATIVE: u32 = 4;
// Modules.
const PROGRAM: u32 = 1;
const C10: u32 = 2;
const NCCL: u32 = 3;

/// A history being made, with the definitions of a training script.
struct Script<'a> {
    producer: Producer<'a>,
    writer: Writer<'a, Memo>,
    memo: Memo,
    time: u64,
    ids: u64,
}

impl<'a> Script<'a> {
    fn new(spool: Spool<'a>, options: &Options) -> Script<'a> {
        let memo = Memo::default();
        let writer = Writer::new(spool, memo.clone(), options).unwrap();
        let producer = spool.claim_ring(7, b"main").unwrap();
        let mut s = Script { producer, writer, memo, time: 0, ids: 0 };
        s.define(&Definition::Device { device: 0, bytes: 100 * GIB, name: b"NVIDIA H200", uuid: b"GPU-1" });
        for (number, path) in [(PROGRAM, "/bin/train"), (C10, "/t/libc10_cuda.so"), (NCCL, "/n/libnccl.so.2")] {
            let path = path.as_bytes();
            s.define(&Definition::Module { number, address: 0, bytes: 9, path, build_id: b"" });
        }
        let module = b"/usr/lib/python3.11/site-packages/torch/nn/modules/module.py";
        let (train, eval) = (b"/home/ann/train.py", b"/home/ann/eval.py");
        for (number, line, file, function) in [
            (1, 1750, &module[..], &b"Module._call_impl"[..]),
            (2, 20, train, b"Net.forward"),
            (3, 41, train, b"step"),
            (4, 7, eval, b"validate"),
        ] {
            s.define(&Definition::Python { number, line, file, function });
        }
        let [lib, forward, step, validate] = [1, 2, 3, 4].map(python_frame);
        let native = frame(PROGRAM as u16, 0x70, false);
        for (number, frames) in [
            (TRAIN, &[frame(C10 as u16, 0x10, false), lib, forward, lib, step, native][..]),
            (EVAL, &[frame(C10 as u16, 0x20, false), lib, validate]),
            (TORCH, &[frame(C10 as u16, 0x30, false), lib, step]),
            (NATIVE, &[frame(NCCL as u16, 0x77, false), frame(NCCL as u16, 0x78, false), native]),
        ] {
            s.define(&Definition::Stack { number, frames, cut: false });
        }
        s.event(&Event { kind: EventKind::Context, context: 1, ..Event::default() });
        s
    }

    fn define(&mut self, definition: &Definition<'_>) {
        assert_eq!(self.producer.push_definition(definition), Pushed::Yes);
        self.round();
    }

    fn event(&mut self, e: &Event) {
        self.time += 1_000_000;
        assert_eq!(self.producer.push(&Event { time: self.time, context: 1, ..*e }), Pushed::Yes);
        if self.time.is_multiple_of(100_000_000) {
            self.round();
        }
    }

    fn round(&mut self) {
        self.writer.round(self.time, self.time).unwrap();
    }

    fn alloc(&mut self, memory: Memory, address: u64, bytes: u64, stack: u32, caller: u32) -> u64 {
        self.ids += 1;
        let id = self.ids;
        self.event(&Event { kind: EventKind::Alloc, memory, id, address, bytes, stack, caller, ..Event::default() });
        id
    }

    /// A segment of PyTorch's.
    fn segment(&mut self, address: u64, bytes: u64) -> u64 {
        self.alloc(Memory::Device, address, bytes, TORCH, C10)
    }

    fn tensor(&mut self, address: u64, bytes: u64, stack: u32) -> u64 {
        self.alloc(Memory::Tensor, address, bytes, stack, 0)
    }

    fn free(&mut self, id: u64) {
        self.event(&Event { kind: EventKind::Free, id, ..Event::default() });
    }

    fn explain(&mut self, failure: &Failure) -> (Oom, String) {
        let (explanation, written) = self.writer.explain(failure, self.time, self.time);
        written.unwrap();
        println!("{}", explanation.text);
        let lines: Vec<&str> = explanation.text.lines().collect();
        assert!(lines.len() <= 32 && lines.iter().all(|l| l.chars().count() <= 100 && l.trim_end() == *l));
        (explanation.oom, explanation.text)
    }

    /// The lines of what was written.
    fn lines(&self) -> Vec<Line> {
        let folder = Folder::new();
        self.memo.save(&folder.file("x"));
        lines(&folder.file("x"))
    }
}

fn failure() -> Failure {
    Failure { what: PYTORCH.into(), stack: TRAIN, asked: 2 * GIB, free: GIB, total: 100 * GIB, ..Failure::default() }
}

fn with_script(test: impl FnOnce(&mut Script<'_>)) {
    let words = words(2, 1024);
    let spool = spool(&words, 2, 1024);
    test(&mut Script::new(spool, &Options::default()));
}

/// Segments of PyTorch's full of holes; a list that grows; NCCL beside it.
#[test]
fn pytorch_in_pieces() {
    with_script(|s| {
        let base = 0x7000_0000_0000;
        for i in 0..40 {
            s.segment(base + i * 2 * GIB, 2 * GIB);
        }
        s.alloc(Memory::Device, 0x10_0000_0000, 3 * GIB, NATIVE, NCCL);
        s.alloc(Memory::Pinned, 0x20_0000_0000, 50 * GIB, NATIVE, NCCL);
        for i in 0..40 {
            for _ in 0..5 {
                let passing = s.tensor(base + i * 2 * GIB + GIB, GIB / 2, TRAIN);
                s.free(passing);
            }
            // Kept: half of each segment, in its middle.
            s.tensor(base + i * 2 * GIB + GIB / 2, GIB, EVAL);
        }
        let (oom, text) = s.explain(&failure());
        assert_eq!((oom.pytorch_active, oom.pytorch_inactive, oom.pytorch_largest), (40 * GIB, 40 * GIB, GIB / 2));
        assert_eq!((oom.outside, oom.libraries.len(), oom.libraries[0].module), (3 * GIB, 1, NCCL));
        assert_eq!((oom.rest, oom.others), (16 * GIB, None));
        let first = &oom.holders[0];
        assert_eq!((first.stack, first.bytes, first.count), (EVAL, 40 * GIB, 40));
        assert!(
            first.grew.as_ref().is_some_and(|g| (8..=30).contains(&g.from) && g.bytes == (40 - g.from) * GIB),
            "{first:?}"
        );
        assert_eq!(oom.holders.len(), 2, "segments are no holders: {:?}", oom.holders);
        for part in [
            "vramscope: OUT OF MEMORY: PyTorch asked for 2.00 GiB on GPU 0 (NVIDIA H200, 100 GiB)\n",
            "asked at         ann/train.py:20 Net.forward < ann/train.py:41 step\n",
            "40.0 GiB active, 40.0 GiB inactive (largest free 512 MiB, fragmentation 99 %)",
            "3.00 GiB: libnccl.so.2 3.00 GiB",
            "1.  40.0 GiB in 40     ann/eval.py:7 validate\n",
            "2.  3.00 GiB in 1      libnccl.so.2+0x77 < train+0x70\n",
            "16.0 GiB context, modules, driver, other processes",
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
            "max_split_size_mb:512",
            "40 allocations, +",
            "at ann/eval.py:7 validate: kept in a list",
        ] {
            assert!(text.contains(part), "{part} is missing");
        }
        assert!(!text.contains("empty_cache"), "PyTorch does that by itself");
        // The same with the answers set: not said again.
        assert!(oom.advice[0].contains("40 allocations, +"), "a leak comes first: {:?}", oom.advice);
        let set = Some("expandable_segments:True, max_split_size_mb:128".to_owned());
        let (oom, _) = s.explain(&Failure { alloc_conf: set, ..failure() });
        assert!(oom.advice.iter().all(|a| !a.contains("CONF")), "{:?}", oom.advice);
        // A library asks: PyTorch's empty segments would help. What NVML says is taken for it.
        let library =
            Failure { what: "cudaMalloc".into(), others: Some(9 * GIB), other: Some((4711, 8 * GIB)), ..failure() };
        for i in 40..42 {
            s.segment(base + i * 2 * GIB, 2 * GIB);
        }
        let (oom, text) = s.explain(&library);
        assert!(text.contains("PyTorch keeps 4.00 GiB in segments without any tensor: torch.cuda.empty_cache()"));
        assert!(text.contains("other processes hold 9.00 GiB of this GPU, process 4711 8.00 GiB"));
        assert_eq!((oom.others, oom.rest), (Some(9 * GIB), 3 * GIB));
        let ooms = s.lines().into_iter().filter_map(|l| if let Line::Oom(oom) = l { Some(*oom) } else { None });
        assert_eq!(ooms.collect::<Vec<_>>().pop(), Some(oom));
    });
}

/// Expandable segments: physical memory under handles, mapped side by side.
#[test]
fn expandable_segments_join() {
    with_script(|s| {
        let base = 0x7000_0000_0000;
        for i in 0..8 {
            let id = s.alloc(Memory::Vmm, 0x1000 + i, GIB, TORCH, C10);
            let (address, bytes) = (base + i * GIB, GIB);
            s.event(&Event { kind: EventKind::Map, memory: Memory::Vmm, id, address, bytes, ..Event::default() });
        }
        s.tensor(base + GIB / 2, GIB, TRAIN);
        let (oom, _) = s.explain(&Failure { pytorch: Some(Told { allocated: GIB, reserved: 8 * GIB }), ..failure() });
        assert_eq!((oom.pytorch_active, oom.pytorch_inactive), (GIB, 7 * GIB));
        assert_eq!(oom.pytorch_largest, 13 * GIB / 2, "the mappings are one piece");
        // Two pieces in the middle are unmapped at once.
        let (address, bytes) = (base + 3 * GIB, 2 * GIB);
        s.event(&Event { kind: EventKind::Unmap, memory: Memory::Vmm, address, bytes, ..Event::default() });
        let (oom, _) = s.explain(&failure());
        assert_eq!(oom.pytorch_largest, 3 * GIB);
        // They grow by pages of 20 MiB, and by 2 MiB for tensors of up to 1 MiB.
        let takes = |asked: u64| {
            let set = Some(" expandable_segments : True ".to_owned());
            let (oom, text) = s.explain(&Failure { alloc_conf: set, asked, ..failure() });
            assert!(oom.expandable && !text.contains("new segment"), "{text}");
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            (oom.segment / MIB, text.contains("more of an expandable segment, on GPU 0"))
        };
        assert_eq!([MIB, 8 * MIB, 64 * MIB].map(takes), [(2, true), (20, true), (80, true)]);
    });
}

/// Without PyTorch: the pool, and what the driver's pages cost.
#[test]
fn a_program_of_its_own() {
    with_script(|s| {
        s.alloc(Memory::Device, 0x10_0000_0000, 60 * GIB - MIB, NATIVE, PROGRAM);
        for segment in 1000..1002 {
            s.event(&Event { kind: EventKind::SegmentAlloc, id: segment, bytes: 4 * GIB, ..Event::default() });
        }
        let block =
            Event { kind: EventKind::Alloc, memory: Memory::Device, how: Source::Hit as u8, ..Event::default() };
        s.event(&Event { id: 999, bytes: 3 * GIB, block: 4 * GIB, extra: [1000, 0, 0], ..block });
        let failure = Failure {
            what: "cuMemAlloc".into(),
            caller: PROGRAM,
            asked: 200 * GIB,
            pool_active: 4 * GIB,
            pool_inactive: 4 * GIB,
            ..failure()
        };
        let (oom, text) = s.explain(&failure);
        assert_eq!((oom.outside, oom.pool_largest, oom.rest), (60 * GIB, 4 * GIB, 31 * GIB));
        assert_eq!((oom.pytorch_active, oom.pytorch_inactive), (0, 0));
        let holders: Vec<(u32, u64)> = oom.holders.iter().map(|h| (h.stack, h.bytes)).collect();
        assert_eq!(holders, [(NATIVE, 60 * GIB - MIB), (0, 4 * GIB)]);
        assert!(text.starts_with("vramscope: OUT OF MEMORY: cuMemAlloc by train asked for 200 GiB on GPU 0"));
        assert!(text.contains("the request is larger than the whole GPU") && !text.contains("PyTorch  "));
        assert!(
            text.contains("(no stack recorded)")
                && text.contains("the biggest holder has 60.0 GiB (60.6 % of the 99.0 GiB in use on the GPU)")
        );
        // An exported block is its own, and no segment's any more; a context's end is the end of all of it.
        s.event(&Event { kind: EventKind::Export, id: 999, ..Event::default() });
        let (oom, _) = s.explain(&Failure { pool_active: 0, ..failure });
        assert_eq!(oom.outside, 64 * GIB);
        s.event(&Event { kind: EventKind::ContextEnd, ..Event::default() });
        let (oom, text) = s.explain(&Failure { pool_active: 0, pool_inactive: 0, asked: 0, ..self::failure() });
        assert_eq!((oom.outside, oom.holders, oom.rest), (0, vec![], 99 * GIB));
        assert!(text.contains("PyTorch found no memory on GPU 0"));
    });
}

/// Free memory is there, and yet it fails.
#[test]
fn a_limit_of_the_process() {
    with_script(|s| {
        let (_, text) = s.explain(&Failure { free: 50 * GIB, ..failure() });
        assert!(text.contains("50.0 GiB are free on the GPU: a limit of this process"));
        // PyTorch asks for a segment, which the limit has no room for, though it has for the tensor.
        for (asked, room, by_limit) in [(1, 1, true), (1, 2, false), (9, 10, true), (9, 20, false), (11, 11, true)] {
            let limit = Some(OomLimit { bytes: GIB, used: GIB - (room << 20), by: "set_limit()".into() });
            let (oom, text) = s.explain(&Failure { asked: (asked << 20) - 512, limit, free: 50 * GIB, ..failure() });
            assert_eq!(
                text.contains("the limit of this process (set_limit()) is 1.00 GiB, and"),
                by_limit,
                "{asked} of {room}: {text}"
            );
            assert_eq!(oom.refused_by().is_some(), by_limit);
            assert!(text.contains("1.00 GiB by set_limit(), "), "{text}");
            let segment =
                if asked < 10 { text.contains("which takes a new segment of ") } else { oom.segment == 12 << 20 };
            assert!(segment && oom.needs() == oom.segment, "{asked}: {text}");
            assert_eq!(text.contains("set_per_process_memory_fraction?"), !by_limit, "{asked} of {room}: {text}");
        }
    });
}

/// Holes in segments of PyTorch's usual size: not cutting up larger blocks would change nothing.
#[test]
fn max_split_size_is_advised_where_larger_segments_are_split() {
    for (size, advised) in [(20 * MIB, false), (32 * MIB, false), (34 * MIB, true), (512 * MIB, true)] {
        with_script(|s| {
            let base = 0x7000_0000_0000;
            for i in 0..60 {
                s.segment(base + i * size, size);
                s.tensor(base + i * size + 4 * MIB, size - 8 * MIB, TRAIN);
            }
            let (oom, text) = s.explain(&Failure { asked: 8 * MIB, free: 18 * MIB, ..failure() });
            assert!(text.contains("PyTorch asked for 8.00 MiB, which takes a new segment of 20.0 MiB, on GPU"));
            assert_eq!(oom.pytorch_largest, 4 * MIB);
            assert_eq!(text.contains("max_split_size_mb"), advised, "{size}: {text}");
        });
    }
}

/// A writer that cannot write still explains.
#[test]
fn the_explanation_is_there_without_its_line() {
    let words = words(1, 64);
    let spool = spool(&words, 1, 64);
    let memo = Memo { dies_at: Some(0), ..Memo::default() };
    let mut writer = Writer::new(spool, memo, &Options::default()).unwrap();
    let (explanation, written) = writer.explain(&failure(), 1, 1);
    assert!(written.is_err() && explanation.text.contains("OUT OF MEMORY"));
}

/// What a snapshot holds is what the history says at that moment, with what its numbers mean and no more.
#[test]
fn a_snapshot_is_a_history() {
    for (name, rotated) in [("s.jsonl", false), ("s.jsonl.zst", true)] {
        let words = words(2, 1024);
        let spool = spool(&words, 2, 1024);
        let mut s = Script::new(spool, &Options { max_bytes: rotated.then_some(4_000), ..Options::default() });
        let kept = s.tensor(0x7000, 512, TRAIN);
        let id = s.alloc(Memory::Vmm, 0x99, 4096, NATIVE, NCCL);
        s.event(&Event {
            kind: EventKind::Map,
            memory: Memory::Vmm,
            id,
            address: 0x8000,
            bytes: 64,
            ..Event::default()
        });
        s.event(&Event { kind: EventKind::SegmentAlloc, id: 500, bytes: 9, ..Event::default() });
        let mut refused = 0;
        for i in 0..200 {
            let id = s.alloc(Memory::Device, 0x9000 + i, 512, EVAL, PROGRAM);
            s.free(id);
            if i == 100 {
                s.event(&Event { kind: EventKind::FreeFailed, id, code: 1, ..Event::default() });
                refused = id;
            }
        }
        let snapshot = s.writer.snapshot(s.time, s.time).unwrap();
        s.free(kept);
        let folder = Folder::new();
        let path = snapshot.save(&folder.file(name)).unwrap();
        assert_ne!(snapshot.save(&folder.file(name)).unwrap(), path, "one that exists stays");
        let lines = lines(&path);
        let live: Vec<(EventKind, u64)> =
            lines.iter().filter_map(|l| if let Line::Live(1, e) = l { Some((e.kind, e.id)) } else { None }).collect();
        let (alloc, map) = (EventKind::Alloc, EventKind::Map);
        let context = (EventKind::Context, 0);
        let segment = (EventKind::SegmentAlloc, 500);
        assert_eq!(live, [context, segment, (alloc, kept), (alloc, id), (alloc, refused), (map, id)]);
        assert_eq!(lines.iter().filter(|l| matches!(l, Line::Stack(_))).count(), 3, "the fourth is in no use");
        assert_eq!(lines.iter().filter(|l| matches!(l, Line::Python(_))).count(), 4);
        let Some(Line::Footer(footer)) = lines.last() else { panic!("no footer") };
        assert_eq!((footer.end.as_str(), footer.by.as_str()), ("snapshot", "snapshot"));
        assert_eq!(footer.events, Reader::open(&path).unwrap().header().events_before);
        // It is finished: recover would have nothing to do.
        assert!(vramscope_core::record::recover_trace(&path, None, "test").unwrap().was_whole);
    }
}

/// The line of an out-of-memory is written at once and survives a kill; recover goes on after it.
#[test]
fn killed_after_it() {
    let words = words(2, 1024);
    let spool = spool(&words, 2, 1024);
    let mut s = Script::new(spool, &Options { compress: true, max_bytes: None });
    s.alloc(Memory::Device, 0x1000, 512, NATIVE, PROGRAM);
    s.explain(&failure());
    let folder = Folder::new();
    let path = folder.file("killed.jsonl.zst");
    s.memo.save(&path);
    assert!(matches!(lines(&path).last(), Some(Line::Oom(_))));
    s.alloc(Memory::Device, 0x2000, 512, NATIVE, PROGRAM);
    let done = recover(&words, &path, None, "test").unwrap();
    assert_eq!((done.events_added, done.footer.events), (1, 3));
    let lines = lines(&path);
    let oom = lines.iter().find_map(|l| if let Line::Oom(oom) = l { Some(oom) } else { None }).unwrap();
    assert_eq!(oom.holders, [Holder { stack: NATIVE, caller: PROGRAM, bytes: 512, count: 1, grew: None }]);
    let after = lines.iter().rev().find_map(|l| if let Line::Event(_, e) = l { Some(e.api) } else { None });
    assert_eq!(after, Some(Api::None));
}
