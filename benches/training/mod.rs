//! A history of any length that looks like a PyTorch training loop under vramscope: weights, steps of forward and
//! backward in two threads, tensors in segments that libc10 takes from the driver, cuBLAS's workspaces from the pool,
//! regions, marks, samples, and a whole beginning and end. The same every time. `vramscope verify` finds nothing in it.

use std::collections::BTreeMap;
use std::io::{self, Write};

use vramscope_core::api::Api;
use vramscope_core::counters::Counters;
use vramscope_core::event::{Event, EventKind, FreeHow, Memory, Source};
use vramscope_core::trace::{
    Device, FORMAT, Footer, Frame, Header, Line, Module, Python, Stack, Text, Thread, VERSION, write,
};

/// Text in a zstd frame, as the writer makes them.
const FRAME: usize = 256 << 10;
const GRAIN: u64 = 2 << 20;
const TOTAL: u64 = 150_754_820_096;
/// Tensors that a step's forward pass keeps for its backward pass.
const LAYERS: usize = 96;
const STACKS: u32 = 300;

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// A piece of memory that an allocator gives out again and again.
#[derive(Clone, Copy)]
struct Block {
    address: u64,
    bytes: u64,
    segment: u64,
}

/// Where lines go.
struct Lines<W> {
    out: W,
    text: Vec<u8>,
    compressor: Option<zstd::bulk::Compressor<'static>>,
}

impl<W: Write> Lines<W> {
    fn flush(&mut self) -> io::Result<()> {
        match &mut self.compressor {
            Some(compressor) => self.out.write_all(&compressor.compress(&self.text)?)?,
            None => self.out.write_all(&self.text)?,
        }
        self.text.clear();
        Ok(())
    }
}

struct Loop<W> {
    lines: Lines<W>,
    random: Random,
    time: u64,
    ids: u64,
    events: u64,
    /// What the driver gave, with its rounding.
    charged: u64,
    next_address: u64,
    /// Free tensors by size; what is left of libc10's last segment.
    tensors: BTreeMap<u64, Vec<Block>>,
    segment: Block,
    /// Free blocks of vramscope's pool by size.
    pool: BTreeMap<u64, Vec<Block>>,
    pool_active: u64,
    pool_inactive: u64,
    counters: Counters,
}

/// Writes a history of about so many events.
pub fn write_history(out: impl Write, events: u64, compress: bool) -> io::Result<()> {
    let compressor = if compress { Some(zstd::bulk::Compressor::new(3)?) } else { None };
    let mut l = Loop {
        lines: Lines { out, text: Vec::new(), compressor },
        random: Random(88_172_645_463_325_252),
        time: 1_000_000,
        ids: 0,
        events: 0,
        charged: 0,
        next_address: 0x7f12_0000_0000,
        tensors: BTreeMap::new(),
        segment: Block { address: 0, bytes: 0, segment: 0 },
        pool: BTreeMap::new(),
        pool_active: 0,
        pool_inactive: 0,
        counters: Counters::default(),
    };
    l.beginning()?;
    let weights: Vec<(u64, Block)> =
        (0..LAYERS).map(|i| l.tensor(1, 4096 << (i % 12), 1 + i as u32 % 20)).collect::<io::Result<_>>()?;
    let mut step = 0;
    while l.events < events {
        l.step(step)?;
        step += 1;
    }
    for (id, block) in weights {
        l.free_tensor(1, id, block, 1)?;
    }
    l.end()?;
    l.lines.flush()?;
    l.lines.out.flush()
}

impl<W: Write> Loop<W> {
    fn line(&mut self, line: &Line) -> io::Result<()> {
        write::line(&mut self.lines.text, line);
        if self.lines.text.len() >= FRAME { self.lines.flush() } else { Ok(()) }
    }

    fn event(&mut self, thread: u32, event: Event) -> io::Result<()> {
        self.time += 300 + self.random.below(4_000);
        self.events += 1;
        write::event(&mut self.lines.text, thread, &Event { time: self.time, ..event });
        if self.lines.text.len() >= FRAME { self.lines.flush() } else { Ok(()) }
    }

    fn id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }

    fn beginning(&mut self) -> io::Result<()> {
        self.line(&Line::Header(Header {
            format: FORMAT.into(),
            version: VERSION,
            vramscope: env!("CARGO_PKG_VERSION").into(),
            pid: 4711,
            parent: 4700,
            host: "gpu7".into(),
            program: "/usr/bin/python3".into(),
            arguments: vec!["python3".into(), "train.py".into()],
            directory: "/home/ann".into(),
            start_seconds: 1_764_453_600,
            clock: "tsc".into(),
            granularity: GRAIN,
            driver: 13_000,
            ..Header::default()
        }))?;
        let device = Device { device: 0, name: "NVIDIA H200".into(), uuid: "GPU-5f0c1d2e".into(), bytes: TOTAL };
        self.line(&Line::Device(device))?;
        let modules =
            ["/usr/bin/python3", "/torch/lib/libtorch_cpu.so", "/torch/lib/libc10_cuda.so", "/cuda/libcublas.so"];
        for (i, path) in modules.into_iter().enumerate() {
            let module = i as u32 + 1;
            let address = 0x5500_0000_0000 + (u64::from(module) << 32);
            let (path, build_id) = (path.to_owned(), format!("{module:040x}"));
            self.line(&Line::Module(Module { module, path, build_id, address, bytes: 1 << 30 }))?;
        }
        for python in 1..=40 {
            let file = if python <= 8 { "/home/ann/train.py" } else { "/site-packages/torch/nn/modules/module.py" };
            let function = format!("Net.layer_{python}");
            self.line(&Line::Python(Python { python, function, file: file.into(), line: 10 * python }))?;
        }
        for stack in 1..=STACKS {
            let native = |f: u32| Frame::Native(1 + (f + stack) % 4, u64::from(stack * 977 + f * 7919));
            let python = |f: u32| Frame::Python(1 + (f * 5 + stack) % 40);
            let frames = (0..30).map(native).chain((0..8).map(python)).collect();
            self.line(&Line::Stack(Stack { stack, frames, cut: false }))?;
        }
        for (i, name) in ["forward", "backward", "optimizer"].into_iter().enumerate() {
            self.line(&Line::Text(Text { text: i as u32 + 1, value: name.into() }))?;
        }
        for (thread, name) in [(1, "python3"), (2, "pt_autograd_0")] {
            self.line(&Line::Thread(Thread { thread, tid: 4710 + thread, name: name.into(), sequence: 0 }))?;
        }
        let handle = 0x5581_0000_0000;
        let context =
            Event { kind: EventKind::Context, address: handle, context: 1, extra: [0, 1, 0], ..Event::default() };
        self.event(1, context)
    }

    fn end(&mut self) -> io::Result<()> {
        let counters = self.counters.to_array();
        for (page, chunk) in counters.chunks(7).enumerate() {
            let at = |i: usize| chunk.get(i).copied().unwrap_or(0);
            let kind = EventKind::Counters;
            let extra = [at(4), at(5), at(6)];
            let (id, address, bytes, block) = (at(0), at(1), at(2), at(3));
            self.event(1, Event { kind, code: page as u16, id, address, bytes, block, extra, ..Event::default() })?;
        }
        self.event(1, Event { kind: EventKind::Exit, ..Event::default() })?;
        let (time, events) = (self.time, self.events);
        let (end, by) = ("exit".to_owned(), "launcher".to_owned());
        self.line(&Line::Footer(Footer { time, events, end, by, status: Some(0), ..Footer::default() }))
    }

    /// What the driver gives.
    fn driver(&mut self, bytes: u64) -> u64 {
        let charge = bytes.next_multiple_of(GRAIN);
        self.charged += charge;
        self.next_address += charge;
        self.next_address - charge
    }

    fn tensor(&mut self, thread: u32, bytes: u64, stack: u32) -> io::Result<(u64, Block)> {
        let bytes = bytes.next_multiple_of(512);
        let block = match self.tensors.get_mut(&bytes).and_then(Vec::pop) {
            Some(block) => block,
            None => self.new_tensor(thread, bytes, stack)?,
        };
        let id = self.id();
        let (kind, memory, address) = (EventKind::Alloc, Memory::Tensor, block.address);
        self.event(
            thread,
            Event { kind, memory, id, address, bytes, stack, caller: 3, context: 1, ..Event::default() },
        )?;
        Ok((id, block))
    }

    fn new_tensor(&mut self, thread: u32, bytes: u64, stack: u32) -> io::Result<Block> {
        if self.segment.bytes < bytes {
            let size = bytes.max(20 << 20).next_multiple_of(GRAIN);
            let (id, address) = (self.id(), self.driver(size));
            self.segment = Block { address, bytes: size, segment: id };
            let alloc = Event {
                kind: EventKind::Alloc,
                memory: Memory::Device,
                api: Api::CudaMalloc,
                how: Source::Hoarder as u8,
                id,
                address,
                bytes: size,
                context: 1,
                stack,
                caller: 3,
                extra: [0, 0, 164_000],
                ..Event::default()
            };
            self.event(thread, alloc)?;
        }
        let block = Block { bytes, ..self.segment };
        self.segment.address += bytes;
        self.segment.bytes -= bytes;
        Ok(block)
    }

    fn free_tensor(&mut self, thread: u32, id: u64, block: Block, stack: u32) -> io::Result<()> {
        self.tensors.entry(block.bytes).or_default().push(block);
        self.event(thread, Event { kind: EventKind::Free, id, stack, caller: 3, ..Event::default() })
    }

    /// A workspace that cuBLAS takes and gives back.
    fn workspace(&mut self, thread: u32, bytes: u64, stack: u32) -> io::Result<()> {
        let class = bytes.next_multiple_of(GRAIN);
        self.counters.requests += 1;
        let (block, how) = match self.pool.get_mut(&class).and_then(Vec::pop) {
            Some(block) => {
                self.counters.hits_exact += 1;
                self.pool_inactive -= class;
                (block, Source::Hit)
            }
            None => {
                self.counters.misses += 1;
                self.counters.reserved += class;
                self.counters.reserved_peak = self.counters.reserved;
                let (segment, address) = (self.id(), self.driver(class));
                let kind = EventKind::SegmentAlloc;
                let memory = Memory::Device;
                self.event(
                    thread,
                    Event { kind, memory, id: segment, address, bytes: class, context: 1, ..Event::default() },
                )?;
                (Block { address, bytes: class, segment }, Source::Miss)
            }
        };
        self.pool_active += class;
        self.counters.active_peak = self.counters.active_peak.max(self.pool_active);
        let id = self.id();
        let alloc = Event {
            kind: EventKind::Alloc,
            memory: Memory::Device,
            api: Api::CudaMalloc,
            how: how as u8,
            id,
            address: block.address,
            bytes,
            block: class,
            context: 1,
            stack,
            caller: 4,
            extra: [block.segment, 0, if how == Source::Miss { 70_000 } else { 0 }],
            ..Event::default()
        };
        self.event(thread, alloc)?;
        self.counters.frees_cached += 1;
        self.pool_active -= class;
        self.pool_inactive += class;
        self.pool.entry(class).or_default().push(block);
        let how = FreeHow::CachedDevice as u8;
        self.event(
            thread,
            Event { kind: EventKind::Free, api: Api::CudaFree, how, id, stack, caller: 4, ..Event::default() },
        )
    }

    fn region(&mut self, thread: u32, text: u64) -> io::Result<u64> {
        let id = self.id();
        self.event(thread, Event { kind: EventKind::RegionBegin, id, extra: [text, 250, 0], ..Event::default() })?;
        Ok(id)
    }

    fn leave(&mut self, thread: u32, id: u64) -> io::Result<()> {
        self.event(thread, Event { kind: EventKind::RegionEnd, id, ..Event::default() })
    }

    fn step(&mut self, step: u64) -> io::Result<()> {
        let mark = 10 + step;
        self.line(&Line::Text(Text { text: mark as u32, value: format!("step {step}") }))?;
        self.event(1, Event { kind: EventKind::Mark, extra: [mark, 0, 0], ..Event::default() })?;
        let region = self.region(1, 1)?;
        let mut kept = Vec::new();
        for layer in 0..LAYERS {
            let stack = 1 + layer as u32 * 3 % STACKS;
            // One request in twenty is of another size.
            let odd = if self.random.below(20) == 0 { 512 * self.random.below(8) } else { 0 };
            let bytes = (2048 << (layer * 7 % 13)) + odd;
            kept.push(self.tensor(1, bytes, stack)?);
            let temporary = self.tensor(1, bytes / 2, stack)?;
            if layer % 4 == 0 {
                self.workspace(1, (1 << 20) + 4096 * (layer as u64 % 3), 1 + (stack + 7) % STACKS)?;
            }
            self.free_tensor(1, temporary.0, temporary.1, stack)?;
        }
        self.leave(1, region)?;
        let region = self.region(2, 2)?;
        let mut gradients = Vec::new();
        while let Some((id, block)) = kept.pop() {
            let stack = 1 + (200 + kept.len() as u32) % STACKS;
            gradients.push(self.tensor(2, 4096 << (kept.len() % 12), stack)?);
            self.free_tensor(2, id, block, stack)?;
        }
        self.leave(2, region)?;
        let region = self.region(1, 3)?;
        for (id, block) in gradients {
            self.free_tensor(1, id, block, 299)?;
        }
        self.leave(1, region)?;
        let (bytes, block) = (TOTAL - (600 << 20) - self.charged, TOTAL);
        let extra = [self.pool_active, self.pool_inactive, 0];
        self.event(1, Event { kind: EventKind::Sample, bytes, block, extra, context: 1, ..Event::default() })
    }
}
