//! A history with a little of all that exports show, for the tests of this folder.

use tempfile::TempDir;
use vramscope_core::event::{Event, EventKind, FreeHow, Memory, Source as Served};
use vramscope_core::trace::{Line, Symbol, Text, Thread, write};

use super::Source;
use crate::report::testing::{MIB, Script, named};

/// Opens a history made by hand.
pub fn opened(script: &Script) -> (TempDir, Source) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.jsonl");
    let mut text = Vec::new();
    for line in &script.lines {
        write::line(&mut text, line);
    }
    std::fs::write(&path, text).unwrap();
    let source = Source::open(&path, &[]).unwrap();
    (folder, source)
}

/// What [`training`] has most of at once, as a report counts it: a segment of PyTorch, NCCL's, and a block of the pool.
pub const PEAK: u64 = (64 + 32 + 8) * MIB;
/// Tensors at that moment.
pub const TENSORS: u64 = 40 * MIB;

/// Two steps of a training loop with PyTorch's tensors in a segment, NCCL past them, the pool, pinned memory, a region and a
/// mark a step, a free that fails, a double free, and a request that fails.
pub fn training() -> Script {
    let mut s = Script::new();
    s.module(4, "/usr/lib/libc10_cuda.so");
    s.module(5, "/usr/lib/libnccl.so.2");
    for (module, offset, names) in [
        (4, 0x10, vec![named("c10::cuda::alloc<std::map<int; int>>()", "", 0)]),
        (
            1,
            0x10,
            vec![
                vramscope_core::trace::Name { inlined: true, ..named("helper", "/job/src/a.cpp", 3) },
                named("step", "/job/src/a.cpp", 30),
            ],
        ),
    ] {
        s.lines.push(Line::Symbol(Symbol { module, offset, names }));
    }
    s.lines.push(Line::Thread(Thread { thread: 1, tid: 4242, name: "python".into(), sequence: 0 }));
    s.lines.push(Line::Thread(Thread { thread: 2, tid: 4243, name: "loader".into(), sequence: 0 }));
    for (text, value) in [(1, "step"), (2, "forward"), (3, "step 1"), (4, "step 2")] {
        s.lines.push(Line::Text(Text { text, value: value.into() }));
    }
    let frame = s.python("Net.forward", "/job/train.py", 20);
    let main = s.python("<module>", "/job/train.py", 60);
    let tensor = s.stack_of(&[vramscope_core::trace::Frame::Native(4, 0x10), frame, main]);
    let nccl = s.stack(&[(5, 0x77), (1, 0x10)]);
    let begin = s.lines.len();
    s.direct(Memory::Device, 64 * MIB, tensor, 4);
    s.direct(Memory::Device, 32 * MIB, nccl, 5);
    s.direct(Memory::Pinned, MIB, 0, 0);
    s.event(Event { kind: EventKind::Sample, bytes: 138 << 30, block: 139 << 30, context: 1, ..Event::default() });
    for step in 0..2u64 {
        let region = |kind, id, text| Event { kind, id, extra: [text, 1000, 0], ..Event::default() };
        s.event(Event { kind: EventKind::Mark, extra: [3 + step, 0, 0], ..Event::default() });
        s.event(region(EventKind::RegionBegin, 100 + step, 1));
        s.event(region(EventKind::RegionBegin, 200 + step, 2));
        let large = s.direct(Memory::Tensor, 30 * MIB, tensor, 4);
        let small = s.direct(Memory::Tensor, 10 * MIB, tensor, 4);
        let (block, _) = s.miss(8 * MIB - 100, 8 * MIB, nccl);
        s.free(small, FreeHow::Driver);
        s.event(Event { kind: EventKind::FreeFailed, id: small, code: 1, ..Event::default() });
        s.event(region(EventKind::RegionEnd, 200 + step, 0));
        s.free(block, FreeHow::CachedDevice);
        s.free(large, FreeHow::Driver);
        s.free(small, FreeHow::Driver);
        s.event(region(EventKind::RegionEnd, 100 + step, 0));
    }
    let last = s.direct(Memory::Device, 2 * MIB, nccl, 5);
    s.free(last, FreeHow::Driver);
    s.event(Event { kind: EventKind::BadFree, id: last, address: 0x7000, stack: nccl, ..Event::default() });
    s.event(Event { kind: EventKind::AllocFailed, code: 2, bytes: 200 << 30, stack: nccl, ..Event::default() });
    s.event(Event { kind: EventKind::Exit, ..Event::default() });
    for line in &mut s.lines[begin..] {
        if let Line::Event(thread, e) = line {
            *thread = 1;
            if e.caller == 4 && e.memory == Memory::Device {
                e.how = Served::Hoarder as u8;
            }
        }
    }
    s.footer("exit");
    s
}

#[test]
fn the_report_says_the_same_of_it() {
    let history = training().history();
    assert_eq!(history.state.peak.totals.active(), PEAK);
}
