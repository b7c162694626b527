//! Stream-ordered memory (`cudaMallocAsync`), bare, recorded and served (`VRAMSCOPE_POOL=on`): what a program reads, and every
//! answer it gets, is the same. The kernels of the simulated GPU act when they end, so a block that is handed out too early
//! is read as a wrong number; two drivers with a fault prove that this would be noticed.

use std::collections::BTreeMap;

use crate::support::{History, Link, Mode, Program, Run, build};
use vramscope_core::event::{Event, EventKind, Memory, Source};

pub fn ordered(case: &str) -> Program {
    Program::new("ordered", Link::Runtime13).arg(case)
}

/// With 64 MiB beside the context.
fn small(case: &str) -> Program {
    ordered(case).env("SIMGPU_MEMORY_MB", "320")
}

pub fn memory(case: &str) -> Program {
    Program::new("ordered_memory", Link::Runtime13).arg(case).env("SIMGPU_MEMORY_MB", "1024")
}

/// Bare and in all modes. What is wrong in the bare run as well would prove nothing.
pub fn same(program: &Program) -> Vec<Run> {
    let runs = program.same(Mode::ORDERED);
    runs[0].assert_success();
    let wrong = runs[0].stdout.lines().filter(|l| l.contains(" wrong") && !l.contains(" 0 wrong")).count();
    assert_eq!(wrong, 0, "{}", runs[0].stdout);
    runs
}

#[test]
fn blocks_of_streams() {
    for case in ["one_stream", "steal", "steal_alone", "freed_elsewhere", "freed_after_waiting", "legacy"] {
        same(&ordered(case));
    }
    same(&small("steal_when_full"));
    same(&small("held"));
    same(&small("held_by_an_ended_stream"));
}

#[test]
fn streams_that_come_and_go() {
    for case in ["ended_streams", "ended_threads", "many_streams", "reset"] {
        same(&ordered(case));
    }
}

#[test]
fn graphs_and_captures() {
    for case in ["graph", "captures", "freed_beside_capture"] {
        same(&ordered(case));
    }
}

/// Until a graph's first launch the driver knows nothing of the memory that its capture asked for. With the pool on the
/// questions that Triton and others ask are answered, as long as the capture goes on, and all others as ever.
#[test]
fn what_is_said_of_captured_memory() {
    let program = ordered("asked_in_capture");
    let runs = [Mode::Bare, Mode::Recording, Mode::Ordered].map(|mode| program.run(mode));
    for run in &runs {
        run.assert_success();
    }
    assert_eq!(runs[0].stdout, runs[1].stdout);
    let known = "pointer 0 1; type 0 2; managed 0 0; device 0 0; context 0; range 0 1; all at once 0 type 2 1 device 0 range 1; \
                 runtime 0 type 2 1";
    let nothing = "pointer 1 0; type 1 9; managed 1 9; device 1 -5; context 1; range 500 0; all at once 0 type 0 0 device -2 \
                   range 0; runtime 0 type 0 0";
    let answered = ["begin", "inside", "another thread", "of a stream that joined", "the other capture's"];
    for (bare, served) in runs[0].stdout.lines().zip(runs[2].stdout.lines()) {
        let (when, answer) = bare.split_once(": ").expect("a line of the program");
        if answered.contains(&when) {
            assert_eq!((answer, served), (nothing, format!("{when}: {known}").as_str()));
        } else {
            assert_eq!(bare, served);
        }
    }
    assert_eq!(runs[0].stdout.matches(nothing).count(), answered.len() + 3, "{}", runs[0].stdout);
}

/// These calls are refused and spoil the capture, though the arena needs no call of the driver for them.
#[test]
fn what_a_capture_forbids() {
    same(&ordered("forbidden"));
}

/// Under a memory checker: each kernel finds its blocks alive, until its stream has got to their frees.
#[test]
fn no_kernel_strays() {
    let strict = |p: Program| p.env("SIMGPU_STRICT", "1");
    for case in ["one_stream", "steal", "freed_elsewhere", "ended_streams", "graph", "captures"] {
        same(&strict(ordered(case)));
    }
    for case in ["combed", "threshold", "pools"] {
        same(&strict(memory(case)));
    }
    for case in ["past_the_end", "after_its_free"] {
        let program = ordered(case);
        assert!(program.run(Mode::Bare).stdout.contains("= 0\n"), "{case}: pages are looked at");
        assert!(strict(program).run(Mode::Bare).stdout.contains("= 700\n"), "{case}");
    }
}

/// Natively a request gets new memory before it is made to wait for another stream's.
#[test]
fn nobody_waits_for_an_endless_kernel() {
    same(&ordered("endless"));
}

#[test]
fn threads() {
    for case in ["handed_over", "threads"] {
        same(&ordered(case));
    }
}

/// The program that tells on hardware what a thread may leave behind when it ends.
#[test]
fn what_a_thread_leaves() {
    let program = Program::at(&build::program_at(&build::root().join("scripts/gpu/thread_ends.c"), Link::Runtime13));
    for row in ["no_pool", "live_and_work_pending", "free_and_work_pending", "the_same_own_pool", "handed_over"] {
        for mode in [Mode::Bare, Mode::Ordered] {
            let run = program.clone().arg(row).run(mode);
            run.assert_success();
            assert!(run.stdout.ends_with("main ends\n"), "{row}, {run}: {}", run.stdout);
        }
    }
}

/// Threads that wait for the one that starts the recorder, or for a ring, woke so often that it got no processor: now and
/// then seconds for what takes a tenth of one. And what a thread without a ring did was lost, always some, the segments that it
/// took among it: then others' blocks lay in none. (A machine that stalls for long still loses some. Not three times.)
#[test]
fn short_threads() {
    let whole = |run: &Run| {
        let history = run.history();
        let mut segments = BTreeMap::new();
        let (mut served, mut outside) = (0, 0);
        for (_, e) in history.events() {
            if e.kind == EventKind::SegmentAlloc {
                segments.insert(e.address, e.address + e.bytes);
            } else if e.kind == EventKind::Alloc && e.memory == Memory::Async {
                let inside = segments.range(..=e.address).next_back().is_some_and(|(_, end)| *end > e.address);
                outside += u32::from(!inside);
                served += 1;
            }
        }
        println!("{run}: {served} served, {outside} outside, {} freed", history.of(EventKind::Free).count());
        (served, outside, history.of(EventKind::Free).count()) == (8 * 1400, 0, 8 * 1400)
    };
    let program = ordered("short_threads").unchecked();
    let runs: Vec<Run> = (0..3).map(|_| program.same(&[Mode::Ordered]).remove(1)).collect();
    assert!(runs.iter().any(whole));
}

#[test]
fn devices_and_contexts() {
    for case in ["devices", "no_access", "contexts"] {
        same(&ordered(case));
    }
}

#[test]
fn through_every_runtime() {
    for link in Link::RUNTIME {
        for case in ["steal_alone", "threads"] {
            same(&Program::new("ordered", link).arg(case));
        }
    }
}

#[test]
fn a_full_device() {
    for case in ["full", "full_beside_capture", "others"] {
        same(&memory(case));
    }
}

#[test]
fn what_is_said_of_memory() {
    for case in ["info", "attributes", "threshold"] {
        same(&memory(case));
    }
}

#[test]
fn what_is_said_of_pointers() {
    for case in ["pointers", "errors"] {
        same(&memory(case));
    }
}

#[test]
fn pools_of_the_program() {
    for case in ["pools", "two_pools", "pool_of_threads"] {
        same(&memory(case));
    }
}

#[test]
fn a_limit() {
    for mode in Mode::ORDERED {
        let run = memory("limited").env("VRAMSCOPE_LIMIT", "300MiB").run(*mode);
        run.assert_success();
        assert_eq!(run.stdout.matches("18 blocks, total 300 MiB, 1\n").count(), 2, "{run}: {}", run.stdout);
        assert!(run.stdout.contains("more at once: no"), "{run}: {}", run.stdout);
    }
}

/// A child that forgets to exec, and a parent that goes on.
#[test]
fn forked() {
    same(&memory("fork"));
    same(&memory("fork_beside_captures"));
}

/// The allocations that were never freed, by their sizes.
fn live(history: &History) -> Vec<u64> {
    let freed = history.freed();
    let left = history.of(EventKind::Alloc).filter(|e| e.memory == Memory::Async && !freed.contains(&e.id));
    left.map(|e| e.bytes).collect()
}

#[test]
fn what_is_alive_at_the_end() {
    for run in &same(&memory("leak"))[1..] {
        let history = run.history();
        assert_eq!(live(&history), [1 << 20, 3 << 20, 5 << 20, 7 << 20, 9 << 20], "{run}");
        assert_eq!(history.of(EventKind::Exit).count(), 1, "{run}");
    }
}

// ---- random programs ----

const OPERATIONS: u64 = 400_000;
const RUNS: u64 = 24;

/// A seed that fails can be run by itself: `ordered_random-driver SEED THREADS OPERATIONS CAPTURE`.
fn random(seed: u64, threads: u64, operations: u64, capture: bool) -> Program {
    let program = Program::new("ordered_random", Link::Driver).arg(seed.to_string()).arg(threads.to_string());
    program.arg(operations.to_string()).arg(if capture { "1" } else { "0" })
}

fn all_right(run: &Run, threads: u64) -> bool {
    run.status.success() && run.stdout.matches(" 0 wrong, 0 refused").count() as u64 == threads
}

fn seeds(seeds: impl Iterator<Item = u64>, capture: bool) {
    for seed in seeds {
        let threads = 1 + seed * 3 % 8;
        println!("seed {seed}: {threads} threads");
        let mut program = random(seed, threads, OPERATIONS / RUNS / threads, capture);
        if seed % 3 == 1 {
            // Little memory: chunks come and go, blocks are taken from others.
            program = program.env("SIMGPU_MEMORY_MB", "640");
        }
        let runs = program.same(Mode::ORDERED);
        assert!(all_right(&runs[0], threads), "{}", runs[0].stdout);
    }
}

#[test]
fn random_programs() {
    seeds(0..RUNS / 2, false);
}

#[test]
fn random_programs_with_captures() {
    seeds(RUNS / 2..RUNS, true);
}

// ---- the proof that a fault would be noticed ----

/// A driver with a fault: the program is right bare and recorded, and wrong where the library relies on what is broken.
fn noticed(fault: &str, case: &str) {
    let mut libraries = build::simgpu_with(fault).into_os_string();
    libraries.push(":");
    libraries.push(build::simgpu());
    let right = |mode| {
        let run = small(case).env("LD_LIBRARY_PATH", &libraries).run(mode);
        println!("{run}: {}{}", run.stdout, run.stderr);
        run.status.success() && run.stdout.contains(" 0 wrong")
    };
    assert!(right(Mode::Bare), "the program itself relies on it");
    assert!(right(Mode::Recording), "a library that only records relies on it");
    assert!(!right(Mode::Ordered), "{fault} was not noticed");
}

/// Waits of one stream for another that do nothing: memory of a busy stream is written too early.
#[test]
fn a_lost_wait_is_noticed() {
    noticed("no_stream_wait.cpp", "held");
}

/// Events that have always come to pass: the same.
#[test]
fn an_event_taken_for_done_is_noticed() {
    noticed("no_pending.cpp", "held_by_an_ended_stream");
}

/// What the reports make of it: active and inactive are what the pool holds.
#[test]
fn the_report_adds_up() {
    let run = memory("leak").run(Mode::Ordered);
    let out = std::process::Command::new(env!("CARGO_BIN_EXE_vramscope"))
        .arg("report")
        .arg(&run.traces()[0])
        .output()
        .expect("the command");
    let text = String::from_utf8_lossy(&out.stdout);
    println!("{text}");
    assert!(text.contains("25.0 MiB"), "{run}: what is alive is not told");
}

/// PyTorch's pluggable interface, which is there in every mode.
#[test]
fn pluggable() {
    let runs = Program::new("pluggable", Link::Runtime13).same(&[Mode::Pooled, Mode::Ordered]);
    runs[0].assert_success();
    assert!(!runs[0].stdout.contains(" 1 wrong") && runs[0].stdout.contains("graphs: 54 blocks looked at, 0 wrong"));
    assert!(runs[0].stdout.contains("two captures: 9 blocks looked at, 0 wrong"));
    assert!(runs[0].stdout.contains("two streams in a capture: 24 blocks looked at, 0 wrong"));
    for run in &runs[1..] {
        let history = run.history();
        let served = |e: &&Event| {
            e.kind == EventKind::Alloc && matches!(Source::from_number(e.how), Some(Source::Hit | Source::Miss))
        };
        let count = history.events().map(|(_, e)| e).filter(|e| e.memory == Memory::Async).filter(served).count();
        assert!(count > 80, "{count} served");
    }
}
