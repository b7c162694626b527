//! Histories made by hand, for the tests of this folder.

use std::collections::BTreeMap;

use vramscope_core::api::Api;
use vramscope_core::event::{Event, EventKind, FreeHow, Memory, Source};
use vramscope_core::trace::{Device, Footer, Frame, Header, Line, Module, Python, Stack};

use super::History;
use crate::symbols::{Name, Names};

pub const MIB: u64 = 1 << 20;

/// A history being written.
pub struct Script {
    pub lines: Vec<Line>,
    pub time: u64,
    ids: u64,
    stacks: u32,
    places: u32,
}

impl Script {
    pub fn new() -> Script {
        let header = Header {
            format: vramscope_core::trace::FORMAT.into(),
            version: vramscope_core::trace::VERSION,
            pid: 4242,
            host: "gpu07".into(),
            program: "/job/program".into(),
            arguments: vec!["./program".into(), "--steps".into(), "100".into()],
            directory: "/job".into(),
            granularity: 2 << 20,
            driver: 13000,
            rank: BTreeMap::from([("RANK".into(), "0".into())]),
            settings: BTreeMap::from([("VRAMSCOPE_POOL".into(), "auto".into())]),
            ..Header::default()
        };
        let device = Device { device: 0, name: "NVIDIA H200".into(), uuid: "GPU-01234567".into(), bytes: 139 << 30 };
        let mut s =
            Script { lines: vec![Line::Header(header), Line::Device(device)], time: 0, ids: 0, stacks: 0, places: 0 };
        s.module(1, "/job/program");
        let context = Event { kind: EventKind::Context, context: 1, extra: [0, 1, 0], ..Event::default() };
        s.event(context);
        s
    }

    pub fn module(&mut self, module: u32, path: &str) {
        self.lines.push(Line::Module(Module { module, path: path.into(), ..Module::default() }));
    }

    pub fn stack(&mut self, frames: &[(u32, u64)]) -> u32 {
        let frames: Vec<Frame> = frames.iter().map(|(m, o)| Frame::Native(*m, *o)).collect();
        self.stack_of(&frames)
    }

    /// A stack of frames of any kind.
    pub fn stack_of(&mut self, frames: &[Frame]) -> u32 {
        self.stacks += 1;
        self.lines.push(Line::Stack(Stack { stack: self.stacks, frames: frames.to_vec(), cut: false }));
        self.stacks
    }

    /// A frame of Python code, at a place of its own.
    pub fn python(&mut self, function: &str, file: &str, line: u32) -> Frame {
        self.places += 1;
        let place = Python { python: self.places, function: function.into(), file: file.into(), line };
        self.lines.push(Line::Python(place));
        Frame::Python(self.places)
    }

    pub fn event(&mut self, e: Event) {
        self.on(0, e);
    }

    pub fn on(&mut self, thread: u32, e: Event) {
        self.time += 1_000_000;
        self.lines.push(Line::Event(thread, Event { time: self.time, ..e }));
    }

    pub fn id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }

    /// An allocation past the pool.
    pub fn direct(&mut self, memory: Memory, bytes: u64, stack: u32, caller: u32) -> u64 {
        let id = self.id();
        let api = if memory == Memory::Pinned { Api::CudaMallocHost } else { Api::CuMemAlloc };
        self.event(Event {
            kind: EventKind::Alloc,
            api,
            memory,
            id,
            bytes,
            stack,
            caller,
            context: 1,
            extra: [0, 0, 60_000],
            ..Event::default()
        });
        id
    }

    /// An allocation by the pool with a new segment: (allocation, segment).
    pub fn miss(&mut self, bytes: u64, block: u64, stack: u32) -> (u64, u64) {
        let segment = self.id();
        self.event(Event {
            kind: EventKind::SegmentAlloc,
            memory: Memory::Device,
            id: segment,
            bytes: block,
            context: 1,
            ..Event::default()
        });
        (self.pooled(Source::Miss, bytes, block, stack, segment), segment)
    }

    /// An allocation by the pool from a cached block.
    pub fn pooled(&mut self, how: Source, bytes: u64, block: u64, stack: u32, segment: u64) -> u64 {
        let id = self.id();
        let took = if how == Source::Miss { 67_000 } else { 0 };
        self.event(Event {
            kind: EventKind::Alloc,
            api: Api::CudaMalloc,
            memory: Memory::Device,
            how: how as u8,
            id,
            bytes,
            block,
            stack,
            caller: 1,
            context: 1,
            extra: [segment, 0, took],
            ..Event::default()
        });
        id
    }

    pub fn free(&mut self, id: u64, how: FreeHow) {
        let took = if how == FreeHow::CachedDevice { 900 } else { 0 };
        self.event(Event {
            kind: EventKind::Free,
            api: Api::CudaFree,
            how: how as u8,
            id,
            extra: [0, 0, took],
            ..Event::default()
        });
    }

    pub fn footer(&mut self, end: &str) {
        let events = self.lines.iter().filter(|l| matches!(l, Line::Event(..))).count() as u64;
        let footer = Footer {
            time: self.time,
            events,
            end: end.into(),
            status: Some(0),
            by: "launcher".into(),
            ..Footer::default()
        };
        self.lines.push(Line::Footer(footer));
    }

    pub fn history(&self) -> History {
        History::of_lines(self.lines.iter().cloned())
    }
}

/// A name at an address.
pub fn named(function: &str, file: &str, line: u32) -> Name {
    Name { function: function.into(), file: file.into(), line, inlined: false }
}

/// A history with a stack as PyTorch makes them, of a step of `train.py`. [`names`] has its names.
pub fn trained() -> (Script, u32) {
    const TORCH: &str = "/usr/lib/python3.11/site-packages/torch/nn/modules";
    let mut s = Script::new();
    s.module(2, "/opt/libvramscope.so");
    s.module(3, "/usr/lib/libcudart.so.13");
    s.module(4, "/usr/lib/libc10_cuda.so");
    s.module(5, "/usr/lib/libtorch_cpu.so");
    s.module(6, "/usr/lib/libpython3.11.so.1.0");
    s.module(7, "/usr/bin/python3.11");
    s.module(8, "/usr/lib/libc.so.6");
    let (linear, module) = (format!("{TORCH}/linear.py"), format!("{TORCH}/module.py"));
    let frames = [
        Frame::Native(2, 0x99),
        Frame::Native(3, 0x20),
        Frame::Native(4, 0x10),
        Frame::Native(5, 0x10),
        Frame::Native(6, 0x20),
        s.python("Linear.forward", &linear, 125),
        s.python("Module._call_impl", &module, 1750),
        Frame::Native(6, 0x10),
        Frame::Native(6, 0x20),
        s.python("Net.forward", "/job/train.py", 20),
        s.python("Module._call_impl", &module, 1750),
        s.python("main", "/job/train.py", 41),
        s.python("<module>", "/job/train.py", 60),
        Frame::Native(6, 0x10),
        Frame::Native(7, 0x70),
        Frame::Native(8, 0x90),
    ];
    let stack = s.stack_of(&frames);
    (s, stack)
}

/// Names for the addresses of [`trained`].
pub fn names() -> Names {
    let mut names = Names::new(&[]);
    for (module, offset, function) in [
        (4, 0x10, "c10::cuda::raw_alloc(unsigned long)"),
        (5, 0x10, "at::linear(at::Tensor const&)"),
        (6, 0x10, "_PyEval_EvalFrameDefault"),
        (6, 0x20, "method_vectorcall_VARARGS_KEYWORDS"),
        (7, 0x70, "main"),
    ] {
        names.insert(module, offset, vec![named(function, "", 0)]);
    }
    names
}

/// A small program that does a little of everything.
pub fn sample() -> Script {
    let mut s = Script::new();
    s.module(2, "/opt/libvramscope.so");
    s.module(3, "/usr/lib/libcublasLt.so.13");
    s.module(4, "/usr/lib/libnccl.so.2");
    let weights = s.stack(&[(2, 0x99), (1, 0x1000), (1, 0x2000)]);
    let step = s.stack(&[(2, 0x99), (1, 0x1100), (1, 0x2000)]);
    let blas = s.stack(&[(2, 0x99), (3, 0x10), (3, 0x20), (3, 0x30), (1, 0x1200), (1, 0x2000)]);
    let nccl = s.stack(&[(2, 0x99), (4, 0x77), (1, 0x1300), (1, 0x2000)]);
    for _ in 0..12 {
        s.miss(64 * MIB - 100, 64 * MIB, weights);
    }
    s.direct(Memory::Device, 33 * MIB, nccl, 4);
    s.direct(Memory::Pinned, 16 * MIB, nccl, 4);
    let (first, segment) = s.miss(20 * MIB, 20 * MIB, step);
    s.free(first, FreeHow::CachedDevice);
    let (workspace, _) = s.miss(8 * MIB, 8 * MIB, blas);
    for _ in 0..200 {
        let id = s.pooled(Source::Hit, 19 * MIB, 20 * MIB, step, segment);
        s.free(id, FreeHow::CachedDevice);
    }
    s.event(Event { kind: EventKind::Sample, bytes: 138 << 30, block: 139 << 30, context: 1, ..Event::default() });
    s.free(workspace, FreeHow::CachedDevice);
    s.event(Event {
        kind: EventKind::AllocFailed,
        api: Api::CudaMalloc,
        code: 2,
        bytes: 200 << 30,
        stack: weights,
        ..Event::default()
    });
    s.event(Event {
        kind: EventKind::BadFree,
        api: Api::CudaFree,
        id: first,
        address: 0x7f00_0000_0000,
        stack: step,
        ..Event::default()
    });
    s.event(Event { kind: EventKind::Exit, ..Event::default() });
    s.footer("exit");
    s
}
