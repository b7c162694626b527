//! PyTorch's tensors: what a caching allocator reports to libc10 under the real names is recorded inside the memory that
//! it took from the driver, and libc10's own functions get their calls, also when they throw.

use std::collections::{HashMap, HashSet};

use crate::support::{History, Link, Mode, Program, program};
use vramscope_core::event::{Event, EventKind, Memory};

fn tensors(case: &str) -> Program {
    program("c10", Link::PlainLibrary);
    program("c10_cuda", Link::OnC10);
    Program::new("tensors", Link::None).arg(case)
}

/// Events of tensors. A free tells no more than whose it is.
fn of_tensors(history: &History) -> Vec<Event> {
    let all = || history.events().map(|(_, e)| *e);
    let ids: HashSet<u64> = all().filter(|e| e.memory == Memory::Tensor).map(|e| e.id).collect();
    all().filter(|e| e.memory == Memory::Tensor || e.kind == EventKind::Free && ids.contains(&e.id)).collect()
}

#[test]
fn every_report_is_an_event_inside_a_segment() {
    for run in tensors("loop").same(Mode::ALL) {
        run.assert_success();
        if run.mode == Mode::Bare {
            continue;
        }
        let history = run.history();
        let events = of_tensors(&history);
        let count = |kind| events.iter().filter(|e| e.kind == kind).count();
        assert_eq!((count(EventKind::Alloc), count(EventKind::Free)), (108, 104));
        // The allocator printed what it gave out at most: `peak 3190784`.
        let said: u64 = run.stdout.split("peak ").nth(1).unwrap().split(',').next().unwrap().parse().unwrap();
        let (mut now, mut peak, mut sizes) = (0, 0, HashMap::new());
        for e in &events {
            match e.kind {
                EventKind::Alloc => {
                    now += e.bytes;
                    sizes.insert(e.id, e.bytes);
                }
                _ => now -= sizes.remove(&e.id).unwrap(),
            }
            peak = peak.max(now);
        }
        assert_eq!(peak, said);
        let segments: Vec<Event> = history
            .events()
            .filter(|(_, e)| e.kind == EventKind::Alloc && e.memory == Memory::Device)
            .map(|(_, e)| *e)
            .collect();
        for e in events.iter().filter(|e| e.kind == EventKind::Alloc) {
            let inside = |s: &&Event| s.address <= e.address && e.address + e.bytes <= s.address + s.bytes;
            assert!(segments.iter().any(|s| inside(&s)), "{e:?}");
            assert!(history.files_of(e).contains(&"libc10_cuda.so".to_owned()), "{:?}", history.files_of(e));
            assert!(history.files_of(e).contains(&"tensors-plain".to_owned()));
        }
    }
}

#[test]
fn a_profiler_that_throws_throws_at_its_caller() {
    tensors("throws").same(Mode::ALL);
}

#[test]
fn threads() {
    for run in tensors("threads").same(Mode::ALL) {
        if run.mode != Mode::Bare {
            let events = of_tensors(&run.history());
            assert_eq!(events.iter().filter(|e| e.kind == EventKind::Alloc).count(), 2001);
            assert_eq!(events.iter().filter(|e| e.kind == EventKind::Free).count(), 2000);
        }
    }
}

#[test]
fn out_of_memory_as_pytorch_reports_it() {
    let small = tensors("full").env("SIMGPU_MEMORY_MB", "1024").env("SIMGPU_CONTEXT_MB", "256").talks();
    for run in small.same(Mode::ALL) {
        run.assert_success();
        if run.mode != Mode::Bare {
            let failed: Vec<Event> =
                of_tensors(&run.history()).into_iter().filter(|e| e.kind == EventKind::AllocFailed).collect();
            assert_eq!(failed.len(), 1);
            assert_eq!((failed[0].bytes, failed[0].code), (100 << 20, 2));
            assert!(failed[0].stack != 0);
        }
    }
}
