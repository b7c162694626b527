//! Memory runs out: nothing fails that works bare, whoever asks, and the cache keeps within its limit.

use crate::support::{Link, Mode, Program};
use vramscope_core::event::{EventKind, FreeHow};

fn small_device(case: &str) -> Program {
    Program::new("pressure", Link::Driver).arg(case).env("SIMGPU_MEMORY_MB", "1024").env("SIMGPU_CONTEXT_MB", "256")
}

fn full_cache(cases: &[&str]) {
    for case in cases {
        // The floor of free memory that the pool keeps by itself is still there: so also with a limit of its own.
        for limit in ["100%", "64MiB", "0"] {
            let runs = small_device(case).env("VRAMSCOPE_MAX_CACHED", limit).same(Mode::ORDER);
            runs[0].assert_success();
        }
    }
}

#[test]
fn plain_memory_from_a_full_cache() {
    full_cache(&["large", "small", "too_much"]);
}

#[test]
fn other_memory_from_a_full_cache() {
    full_cache(&["pitch", "async", "vmm", "graph"]);
}

#[test]
fn contexts_and_modules_from_a_full_cache() {
    full_cache(&["context", "module", "contexts"]);
}

#[test]
fn threads_at_the_end_of_memory() {
    full_cache(&["threads", "pending"]);
}

/// A limit sheds at free; none given back is a cache that never grows past it.
#[test]
fn the_limit_holds() {
    let run = small_device("large").env("VRAMSCOPE_MAX_CACHED", "64MiB").run(Mode::Pooled);
    run.assert_success();
    let history = run.history();
    let (mut reserved, mut active, mut most) = (0i64, 0i64, 0i64);
    let mut sizes = std::collections::HashMap::new();
    for (_, e) in history.events() {
        match e.kind {
            EventKind::SegmentAlloc => {
                reserved += e.bytes as i64;
                sizes.insert(e.id, e.bytes as i64);
            }
            EventKind::SegmentFree => reserved -= sizes[&e.id],
            EventKind::Alloc if e.extra[0] != 0 => {
                active += sizes[&e.extra[0]];
                sizes.insert(e.id, sizes[&e.extra[0]]);
            }
            EventKind::Free => active -= sizes.get(&e.id).copied().unwrap_or(0),
            _ => {}
        }
        // Between two lines of one call the books are open: looked at where a block has just been kept.
        if e.kind == EventKind::Free && e.how != FreeHow::Driver as u8 {
            most = most.max(reserved - active);
        }
    }
    assert!(most > 0 && most <= 64 << 20, "{most} bytes were cached");
    assert!(history.of(EventKind::SegmentFree).count() > 0, "nothing was given back");
}
