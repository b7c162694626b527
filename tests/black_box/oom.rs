//! Out of memory, explained at that moment; and snapshots of what is live.

use std::path::Path;
use std::process::Command;

use crate::support::{History, Link, Mode, Program, Run, program};
use vramscope_core::event::EventKind;
use vramscope_core::trace::{Line, Oom};

fn small_device(case: &str) -> Program {
    Program::new("oom", Link::Driver).arg(case).env("SIMGPU_MEMORY_MB", "1024").env("SIMGPU_CONTEXT_MB", "256")
}

fn ooms(history: &History) -> Vec<&Oom> {
    history.lines.iter().filter_map(|l| if let Line::Oom(oom) = l { Some(&**oom) } else { None }).collect()
}

/// The explanations on stderr.
fn said(run: &Run) -> Vec<Vec<&str>> {
    let mut all: Vec<Vec<&str>> = Vec::new();
    for line in run.stderr.lines() {
        match line.starts_with("vramscope: OUT OF MEMORY") {
            true => all.push(vec![line]),
            false if line.starts_with("  ") => all.last_mut().expect("an explanation").push(line),
            false => panic!("{run} also says {line}"),
        }
    }
    all
}

fn report(trace: &Path) -> String {
    let out = Command::new(env!("CARGO_BIN_EXE_vramscope")).arg("report").arg(trace).output().expect("the command");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(!text.is_empty(), "{}", String::from_utf8_lossy(&out.stderr));
    text
}

#[test]
fn a_full_device_is_explained() {
    for mode in [Mode::Recording, Mode::Pooled] {
        let run = small_device("fill").run(mode);
        run.assert_success();
        println!("{}", run.stderr);
        let all = said(&run);
        assert_eq!(all.len(), 1, "{run}: {}", run.stderr);
        let lines = &all[0];
        assert!(lines.len() <= 30 && lines.iter().all(|l| l.chars().count() <= 100), "{run}");
        let text = lines.join("\n");
        let head =
            "cuMemAlloc by oom-driver asked for 20.0 MiB on GPU 0 (Simulated GPU, 1.00 GiB) asked at oom-driver+0x";
        let words: Vec<&str> = text.split_whitespace().collect();
        assert!(words.join(" ").contains(head), "{run}");
        for part in ["  free ", "  the rest ", "the biggest holders:", "allocations, +"] {
            assert!(text.contains(part), "{run}: {part} is missing");
        }
        let layer = if mode == Mode::Pooled { "vramscope's pool" } else { "outside of it" };
        assert!(text.contains(layer), "{run}");
        // The same in the history, and in its report.
        let history = run.history();
        let [oom] = ooms(&history)[..] else { panic!("{run}: one line, not {:?}", ooms(&history)) };
        assert_eq!((oom.asked, oom.total, oom.what.as_str()), (20 << 20, 1 << 30, "cuMemAlloc"));
        assert!(oom.free < 20 << 20 && oom.stack != 0 && oom.thread != 0);
        let live: Vec<u64> = oom.holders.iter().map(|h| h.count).collect();
        let (kept, weights) = (live[0], &live[1..]);
        assert!(kept >= 20 && weights == [1, 1], "{run}: {live:?}");
        let grew = oom.holders[0].grew.as_ref().expect("the history grows");
        assert!(grew.from < kept && oom.holders[1].grew.is_none());
        let sum = oom.pool_active + oom.pool_inactive + oom.outside + oom.rest;
        assert_eq!(sum, oom.total - oom.free, "{run}: the layers add up");
        assert!(oom.rest >= 128 << 20 && oom.rest <= 300 << 20, "{run}: the context is {}", oom.rest);
        let failed = history.of(EventKind::AllocFailed).next().expect("the failure");
        assert!(failed.time <= oom.time && failed.stack == oom.stack);
        let text = report(&history.path);
        for part in [
            "OUT OF MEMORY  cuMemAlloc asked for 20.0 MiB at ",
            "keep_history",
            "load_weights",
            "grew from",
            "what would help",
        ] {
            assert!(text.contains(part), "{run}: {part} is missing in\n{text}");
        }
    }
}

#[test]
fn other_kinds_of_memory_are_explained() {
    let run = small_device("kinds").run(Mode::Pooled);
    run.assert_success();
    let heads: Vec<&str> = said(&run).iter().map(|lines| lines[0]).collect();
    assert_eq!(heads.len(), 3, "{}", run.stderr);
    for (head, api) in heads.iter().zip(["cuMemAllocPitch", "cuMemAllocAsync", "cuMemCreate"]) {
        assert!(head.contains(api) && head.contains("asked for"), "{head}");
    }
    assert_eq!(ooms(&run.history()).len(), 3);
}

/// A program that tries sizes hears it three times.
#[test]
fn not_again_and_again() {
    let run = small_device("tries").run(Mode::Pooled);
    assert_eq!(said(&run).len(), 3);
    assert!(run.stdout.contains("= 0"));
    assert_eq!((ooms(&run.history()).len(), run.history().of(EventKind::AllocFailed).count()), (3, 50));
}

/// One that tries the same again hears it once, and how often.
#[test]
fn the_same_is_said_once() {
    let run = small_device("retries").run(Mode::Pooled);
    run.assert_success();
    let all = said(&run);
    assert_eq!(all.len(), 2, "{}", run.stderr);
    let last = all[1].last().expect("lines");
    assert_eq!(*last, "  (the request that was explained before this one failed 19 times more)");
    assert_eq!((ooms(&run.history()).len(), run.history().of(EventKind::AllocFailed).count()), (2, 30));
}

#[test]
fn nothing_is_said_where_nothing_is_wanted() {
    let run = small_device("fill").env("VRAMSCOPE_LOG", "off").run(Mode::Pooled);
    assert_eq!(run.stderr, "");
    assert_eq!(ooms(&run.history()).len(), 1, "the history has it all the same");
}

/// Without a history the device and the pool still say what they know.
#[test]
fn without_a_history() {
    let run = small_device("fill").env("VRAMSCOPE_TRACE", "off").unhooked().run(Mode::Pooled);
    let all = said(&run);
    assert_eq!(all.len(), 1, "{}", run.stderr);
    let text = all[0].join("\n");
    assert!(
        text.contains("asked for 20.0 MiB") && text.contains("vramscope's pool") && !text.contains("holders"),
        "{text}"
    );
}

/// A pipe that nobody reads: the writer is stuck, the program hears of its end all the same and goes on.
#[test]
fn with_a_writer_that_is_stuck() {
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).expect("a pipe");
    let run = small_device("tries").env("VRAMSCOPE_TRACE", &pipe).unchecked().ends_badly().run(Mode::Pooled);
    run.assert_success();
    assert_eq!(said(&run).len(), 3, "{}", run.stderr);
}

#[test]
fn killed_after_it() {
    for trace in ["%n-%p.jsonl", "%n-%p.jsonl.zst"] {
        let run = small_device("killed").env("VRAMSCOPE_TRACE", trace).unchecked().ends_badly().run(Mode::Pooled);
        let [history] = &run.recovered()[..] else { panic!("{run}: one history") };
        history.check();
        assert_eq!(ooms(history).len(), 1);
        assert_eq!(history.footer().map(|f| f.end.as_str()), Some("killed"));
    }
}

#[test]
fn a_signal_makes_a_snapshot() {
    let run = small_device("snapshot").env("VRAMSCOPE_SNAPSHOT_SIGNAL", "USR2").unchecked().run(Mode::Pooled);
    run.assert_success();
    assert_eq!((run.stderr.as_str(), run.stdout.as_str()), ("", "alive\n"));
    let name = format!("oom-driver-{}", run.pid);
    let whole = History::read(&run.folder.path().join(format!("{name}.jsonl")));
    whole.check();
    for (number, live) in [(1, 3), (2, 2)] {
        let path = run.folder.path().join(format!("{name}.snapshot-{number}.jsonl"));
        let snapshot = History::read(&path);
        assert_eq!(snapshot.footer().map(|f| f.end.as_str()), Some("snapshot"));
        let ids: Vec<u64> = snapshot
            .lines
            .iter()
            .filter_map(|l| match l {
                Line::Live(_, e) if e.kind == EventKind::Alloc => Some(e.id),
                _ => None,
            })
            .collect();
        let expected: Vec<u64> = whole.of(EventKind::Alloc).map(|e| e.id).take(live).collect();
        assert_eq!(ids, expected, "snapshot {number}");
        let text = report(&path);
        println!("{text}");
        let size = if number == 1 { "LIVE  190 MiB active" } else { "LIVE  160 MiB active" };
        for part in ["a snapshot of a running program", size, "HOLDERS, by call stack", "load_weights"] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        assert!(!text.contains("NEVER FREED"));
    }
}

/// Off by default: the signal does what it always did.
#[test]
fn without_the_setting_the_signal_is_the_programs() {
    let run = small_device("signal").unchecked().ends_badly().run(Mode::Pooled);
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&run.status), Some(12), "{}", run.status);
}

/// Who sends it does not want the program's end: where there is no history, which is said, nothing happens.
#[test]
fn without_a_history_the_signal_does_nothing() {
    let program = small_device("signal").env("VRAMSCOPE_SNAPSHOT_SIGNAL", "USR2").talks().unhooked();
    for (trace, said) in [("off", "VRAMSCOPE_SNAPSHOT_SIGNAL: no snapshots"), ("no/such/folder", "nothing is recorded")]
    {
        let run = program.clone().env("VRAMSCOPE_TRACE", trace).run(Mode::Pooled);
        run.assert_success();
        assert_eq!(run.stdout, "alive\n");
        assert_eq!(run.stderr.matches(said).count(), 1, "{}", run.stderr);
    }
}

/// PyTorch's own cache tries again and reports when it gives up; its cudaMallocAsync backend asks once and reports nothing.
#[test]
fn pytorchs_backends_are_each_explained_once() {
    program("c10", Link::PlainLibrary);
    program("c10_cuda", Link::OnC10);
    for case in ["full", "async_full"] {
        let small = Program::new("tensors", Link::None).arg(case);
        let small = small.env("SIMGPU_MEMORY_MB", "1024").env("SIMGPU_CONTEXT_MB", "256").talks();
        for mode in [Mode::Recording, Mode::Pooled, Mode::Ordered] {
            let run = small.clone().run(mode);
            run.assert_success();
            assert!(run.stdout.contains("out of memory after 7"), "{run}: {}", run.stdout);
            let history = run.history();
            let [oom] = ooms(&history)[..] else { panic!("{run}: {:?}", ooms(&history)) };
            assert_eq!((oom.asked, oom.device), (100 << 20, 0), "{run}");
        }
    }
}
