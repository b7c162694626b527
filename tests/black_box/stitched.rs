//! Blocks that are stitched together from memory in several places, and that each history of stream-ordered memory adds up: each
//! block lies in what the pool holds, each byte is one block's.

use std::collections::{BTreeMap, HashMap};

use crate::ordered::{memory, ordered, same};
use crate::support::{Link, Mode, Program, Run};
use vramscope_core::event::{Event, EventKind, Memory, Source};

/// At every moment the blocks in use lie in memory that the pool holds, and no two in one place.
fn layers_add_up(run: &Run) {
    let history = run.history();
    let mut events: Vec<&Event> = history.events().map(|(_, e)| e).collect();
    events.sort_by_key(|e| e.time);
    // What is mapped where: to its end, and where the memory is at home.
    let mut mapped: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    // The memory of the blocks in use: to its end.
    let mut owned: BTreeMap<u64, u64> = BTreeMap::new();
    let mut held: HashMap<u64, u64> = HashMap::new();
    let mut blocks: HashMap<u64, Vec<(u64, u64)>> = HashMap::new();
    let (mut reserved, mut active, mut most, mut served) = (0u64, 0u64, 0, 0);
    for e in events {
        match e.kind {
            EventKind::SegmentAlloc => {
                held.insert(e.id, e.address);
                mapped.insert(e.address, (e.address + e.bytes.max(e.block), e.address));
                reserved += e.bytes.max(e.block);
            }
            EventKind::SegmentFree => {
                let begin = held.remove(&e.id).expect("a segment that was taken");
                reserved -= mapped.remove(&begin).expect("its range").0 - begin;
            }
            EventKind::Map => drop(mapped.insert(e.address, (e.address + e.bytes, held[&e.id]))),
            EventKind::Unmap => drop(mapped.remove(&e.address).expect("what was mapped")),
            EventKind::Alloc
                if e.memory == Memory::Async
                    && matches!(Source::from_number(e.how), Some(Source::Hit | Source::Miss)) =>
            {
                let (mut at, end) = (e.address, e.address + e.block.max(e.bytes));
                let mut parts = Vec::new();
                while at < end {
                    let (start, (to, home)) = mapped.range(..=at).next_back().unwrap_or((&0, &(0, 0)));
                    assert!(*to > at, "{run}: {e:?} lies in no segment at {at:#x}");
                    let from = home + (at - start);
                    let part = (from, from + (*to).min(end) - at);
                    let other = owned.range(..part.1).next_back().filter(|o| *o.1 > part.0);
                    assert_eq!(other, None, "{run}: {e:?} and another block in one place");
                    owned.insert(part.0, part.1);
                    parts.push(part);
                    at = *to;
                }
                blocks.insert(e.id, parts);
                active += end - e.address;
                served += 1;
                most = most.max(active);
            }
            EventKind::Free => {
                for (from, to) in blocks.remove(&e.id).unwrap_or_default() {
                    owned.remove(&from);
                    active -= to - from;
                }
            }
            // (Nothing of these programs is plain memory of the pool.)
            EventKind::Sample => assert_eq!(e.extra[0] + e.extra[1], reserved, "{run}: active and inactive at {e:?}"),
            _ => {}
        }
        assert!(active <= reserved, "{run}: {active} bytes in use of {reserved} at {e:?}");
    }
    assert!(served > 0 && most > 0, "{run}: nothing was served");
}

/// Blocks that fit nowhere are stitched together from free chunks: not a byte more is mapped for them.
#[test]
fn blocks_stitched_together() {
    let program = memory("combed");
    for run in &same(&program)[1..] {
        let history = run.history();
        let mapped = |kind| move |(_, e): &(u32, &Event)| e.kind == kind && e.memory == Memory::Async;
        let count = |kind| history.events().filter(mapped(kind)).count();
        if run.mode != Mode::Ordered {
            assert_eq!(count(EventKind::Map), 0, "{run}");
            continue;
        }
        assert!(count(EventKind::Map) >= 40 && count(EventKind::Map) == count(EventKind::Unmap), "{run}");
        layers_add_up(run);
        let out = |command: &[&str]| {
            let mut c = std::process::Command::new(env!("CARGO_BIN_EXE_vramscope"));
            let out = c.args(command).arg(&run.traces()[0]).output().expect("the command");
            assert!(out.status.success(), "{run}: {}", String::from_utf8_lossy(&out.stderr));
            String::from_utf8_lossy(&out.stdout).into_owned()
        };
        assert!(out(&["verify"]).contains("whole"));
        println!("{}", out(&["report"]));
    }
    let off = program.env("VRAMSCOPE_STITCH", "off").run(Mode::Ordered);
    assert!(off.history().events().all(|(_, e)| e.kind != EventKind::Map), "{off}");
}

fn stitched(case: &str) -> Program {
    Program::new("stitched", Link::Runtime13).arg(case).env("SIMGPU_MEMORY_MB", "1024")
}

/// Nothing that a program can ask or do tells stitched blocks from others: not at the borders of their chunks, and not with
/// another device let in, in a child, after a reset, in a graph, on a full device.
#[test]
fn stitched_blocks_are_like_others() {
    for case in ["pointers", "copies", "peers", "fork", "reset", "graph", "numbers", "full"] {
        // (A full device is explained.)
        let program = if case == "full" { stitched(case).talks() } else { stitched(case) };
        for run in same(&program).iter().filter(|r| r.mode == Mode::Ordered) {
            let maps = run.history().of(EventKind::Map).filter(|e| e.memory == Memory::Async).count();
            assert!(maps > 10, "{run}: nothing was stitched");
        }
    }
}

#[test]
fn threads_that_stitch() {
    for seed in 0..6 {
        let memory = ["1500", "360", "420"][seed % 3];
        let program = stitched("threads").env("SIMGPU_MEMORY_MB", memory).env("SEED", seed.to_string()).talks();
        let run = program.run(Mode::Ordered);
        run.assert_success();
        assert_eq!(run.stdout.matches(": 0 wrong").count(), 4, "seed {seed}, {run}: {}", run.stdout);
        assert!(run.stdout.contains("used: 0, reserved: 0"), "seed {seed}, {run}: {}", run.stdout);
        assert!(run.history().of(EventKind::Map).count() > 0, "seed {seed}, {run}: nothing was stitched");
    }
}

#[test]
fn the_history_adds_up() {
    for case in ["one_stream", "steal", "ended_streams"] {
        layers_add_up(&ordered(case).run(Mode::Ordered));
    }
    for case in ["full", "threshold"] {
        layers_add_up(&memory(case).run(Mode::Ordered));
    }
}
