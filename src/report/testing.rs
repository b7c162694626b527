//! Histories made by hand, for the tests of this folder.

use std::collections::BTreeMap;
use std::path::Path;

use vramscope_core::api::Api;
use vramscope_core::event::{Event, EventKind, FreeHow, Memory, Source};
use vramscope_core::trace::{Device, Footer, Frame, Header, Line, Module, Python, Stack, Symbol, Thread};

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

    /// What was written becomes a snapshot: everything of it lives.
    pub fn becomes_snapshot(&mut self) {
        for line in &mut self.lines {
            match line {
                Line::Header(h) => h.events_before = 7,
                Line::Event(thread, event) => *line = Line::Live(*thread, *event),
                _ => {}
            }
        }
        self.footer("snapshot");
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

/// A history of a loop, as PyTorch makes them: tensors with Python stacks, some of them made in its backward thread.
pub struct Loop {
    pub script: Script,
    stacks: std::collections::HashMap<(String, u32), u32>,
    segment: u64,
}

/// The operator by which PyTorch adds a gradient to the one before it, as a graph.
pub const SUM: &str = "AccumulateGrad";
/// The thread of backward passes in [`Loop`].
pub const BACKWARD: u32 = 3;

impl Loop {
    pub fn new() -> Loop {
        let mut script = Script::new();
        script.module(4, "/usr/lib/libc10_cuda.so");
        for (thread, name) in [(1, "python3"), (BACKWARD, "pt_autograd_0")] {
            script.lines.push(Line::Thread(Thread { thread, tid: 4242 + thread, name: name.into(), sequence: 0 }));
        }
        Loop { script, stacks: Default::default(), segment: 0 }
    }

    /// The stack of an operator in a line of `train.py`; of line 0: of the backward pass. `torch/optim/adam.py:step` is a
    /// function of an installed package that the line calls, `/job/model.py:forward` one of the user's; with `<` between several, the innermost first.
    pub fn stack(&mut self, operator: &str, line: u32) -> u32 {
        let key = (operator.to_string(), line);
        if let Some(stack) = self.stacks.get(&key) {
            return *stack;
        }
        let offset = 0x1000 + self.stacks.len() as u64 * 16;
        let mut frames = vec![Frame::Native(4, offset)];
        if operator == SUM {
            let names =
                ["at::_ops::add_Tensor::call(at::Tensor const&)", "torch::autograd::AccumulateGrad::apply(...)"];
            let names = names.map(|function| named(function, "", 0)).to_vec();
            self.script.lines.push(Line::Symbol(Symbol { module: 4, offset, names }));
        }
        for (file, function) in operator.split('<').filter_map(|frame| frame.split_once(':')) {
            let file = Path::new("/usr/lib/python3/dist-packages").join(file).display().to_string();
            frames.push(self.script.python(function, &file, 7));
        }
        if line > 0 {
            frames.push(self.script.python("step", "/job/train.py", line));
            frames.push(self.script.python("<module>", "/job/train.py", 99));
        }
        let stack = self.script.stack_of(&frames);
        self.stacks.insert(key, stack);
        stack
    }

    /// A tensor. PyTorch's segments of 1 GiB hold them.
    pub fn tensor(&mut self, operator: &str, line: u32, bytes: u64) -> u64 {
        let stack = self.stack(operator, line);
        if self.segment == 0 {
            self.segment = self.script.id();
            let (kind, memory, how) = (EventKind::Alloc, Memory::Device, Source::Hoarder as u8);
            let segment =
                Event { kind, memory, how, id: self.segment, address: 1 << 40, bytes: 1 << 30, ..Event::default() };
            self.script.on(1, Event { caller: 4, context: 1, stack, ..segment });
        }
        let id = self.script.id();
        let thread = if line == 0 { BACKWARD } else { 1 };
        let (kind, memory) = (EventKind::Alloc, Memory::Tensor);
        let address = (1 << 40) + id * 4096;
        self.script.on(thread, Event { kind, memory, id, address, bytes, stack, context: 1, ..Event::default() });
        id
    }

    pub fn drop(&mut self, id: u64) {
        self.script.on(1, Event { kind: EventKind::Free, memory: Memory::Tensor, id, ..Event::default() });
    }

    /// The same from PyTorch's cudaMallocAsync backend: no segments, and each tensor is an allocation of libc10_cuda's.
    pub fn one_by_one(&self) -> Script {
        let lines = self.script.lines.iter().filter_map(|line| match line {
            Line::Event(_, e) if e.id == self.segment && e.id != 0 => None,
            Line::Event(thread, e) if e.memory == Memory::Tensor && e.kind == EventKind::Alloc => {
                let (memory, api, how) = (Memory::Async, Api::CudaMallocAsync, Source::Hit as u8);
                Some(Line::Event(*thread, Event { memory, api, how, caller: 4, block: e.bytes, ..*e }))
            }
            Line::Event(thread, e) if e.memory == Memory::Tensor => {
                Some(Line::Event(*thread, Event { memory: Memory::Async, ..*e }))
            }
            line => Some(line.clone()),
        });
        Script { lines: lines.collect(), ..Script::new() }
    }

    /// Freed by the backward pass.
    pub fn release(&mut self, id: u64) {
        self.script.on(BACKWARD, Event { kind: EventKind::Free, memory: Memory::Tensor, id, ..Event::default() });
    }
}
