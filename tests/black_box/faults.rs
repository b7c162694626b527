//! Whatever breaks in vramscope, the program goes on as it would without, and it is said once.

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::support::{Link, Mode, Program, Run, program};
use vramscope_core::event::EventKind;
use vramscope_core::trace::Line;

fn busy() -> Program {
    Program::new("basics_rt", Link::Runtime13).arg("many")
}

/// The lines that vramscope said.
fn said(run: &Run) -> Vec<&str> {
    run.stderr.lines().filter(|l| l.starts_with("vramscope:")).collect()
}

/// Runs it with a fault: it prints and ends as bare, and exactly one line holds all these words.
fn one_message(faulty: &Program, words: &[&str]) -> Run {
    let bare = busy().run(Mode::Bare);
    bare.assert_success();
    let run = faulty.clone().unchecked().talks().run(Mode::Pooled);
    run.assert_same(&bare);
    let lines = said(&run);
    assert_eq!(lines.len(), 1, "{run} says {lines:?}");
    for word in words {
        assert!(lines[0].contains(word), "{run} says nothing of {word}: {}", lines[0]);
    }
    assert_eq!(run.remove_spools(), Vec::<PathBuf>::new(), "{run} ended in good order");
    run
}

#[test]
fn no_folder_for_the_history() {
    for path in ["/nonexistent/folder/a.jsonl", "/proc/a.jsonl", "/dev/null/a.jsonl"] {
        one_message(
            &busy().env("VRAMSCOPE_TRACE", path),
            &[path, "history", "Set VRAMSCOPE_TRACE to a file in a folder that can be written to"],
        );
    }
}

/// A folder gets the default name in it, as `vramscope run --trace FOLDER` does it.
#[test]
fn a_folder_for_the_history() {
    let folder = tempfile::tempdir().expect("a folder");
    let inside = folder.path().join("histories");
    fs::create_dir(&inside).expect("a folder");
    let run = busy().env("VRAMSCOPE_TRACE", &inside).unchecked().run(Mode::Pooled);
    run.assert_success();
    let path = inside.join(format!("vramscope-basics_rt-cudart13-{}.jsonl", run.pid));
    assert_eq!(crate::support::History::read(&path).allocations(), 600);
    assert_eq!(fs::read_dir(folder.path()).expect("the folder").count(), 1, "something lies beside the folder");
}

#[test]
fn a_full_disk() {
    one_message(&busy().env("VRAMSCOPE_TRACE", "/dev/full"), &["/dev/full", "recording stops"]);
}

/// A limit on the size of files: the kernel's answer to a write beyond it is a signal that kills.
#[test]
fn a_limit_on_file_sizes() {
    let bare = busy().run(Mode::Bare);
    let path = program("basics_rt", Link::Runtime13);
    for script in ["ulimit -f 8; exec \"$0\" many", "trap '' XFSZ; ulimit -f 8; exec \"$0\" many"] {
        let shell = Program::at(Path::new("/bin/sh")).arg("-c").arg(script).arg(&path);
        // The simulated driver keeps its device memory in files as well: where it can't, the program fails bare.
        let limited = shell.run(Mode::Bare);
        let run = shell.clone().unchecked().talks().run(Mode::Pooled);
        run.assert_same(&limited);
        if limited.status.success() {
            limited.assert_same_output(&bare);
            assert_eq!(said(&run).len(), 1, "{run} says {:?}", run.stderr);
        }
    }
}

/// A reader that leaves, and one that never comes.
#[test]
fn a_closed_pipe() {
    let folder = tempfile::tempdir().expect("a folder");
    let bare = busy().run(Mode::Bare);
    for reads in [0, 1, 5000] {
        let pipe = folder.path().join(format!("pipe{reads}"));
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
            .expect("a pipe");
        let path = pipe.clone();
        let reader = std::thread::spawn(move || {
            let mut file = fs::File::open(&path).expect("the pipe");
            let mut bytes = vec![0; reads];
            file.read_exact(&mut bytes).expect("the history's beginning");
            bytes
        });
        let run = busy().env("VRAMSCOPE_TRACE", &pipe).unchecked().talks().run(Mode::Pooled);
        run.assert_same(&bare);
        let lines = said(&run);
        assert!(lines.len() <= 1, "{run} says {lines:?}");
        let bytes = reader.join().expect("the reader");
        assert!(bytes.is_empty() || bytes[0] == b'{', "the pipe had something else in it");
    }
}

/// A reader that is there and does not read: neither a program that goes on to the end nor its end is held up by it, also
/// where the pipe gets full only then.
#[test]
fn a_pipe_that_nobody_reads() {
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).expect("a pipe");
    // Opened for both, so that no open waits.
    let reader = fs::OpenOptions::new().read(true).write(true).open(&pipe).expect("the pipe");
    let busy = busy().env("VRAMSCOPE_TRACE", &pipe);
    let beside = Program::new("process", Link::Driver).arg("exits_beside").env("VRAMSCOPE_TRACE", &pipe);
    let atexit = Program::new("process", Link::Driver).arg("atexit_between").env("VRAMSCOPE_TRACE", &pipe);
    let much = Program::new("process", Link::Driver).arg("much_at_exit").env("VRAMSCOPE_TRACE", &pipe);
    for program in [busy, beside, atexit.clone(), atexit.clone(), atexit, much.clone()] {
        program.unchecked().talks().run(Mode::Recording).assert_success();
    }
    drop(reader);
    // Nobody opens it at all.
    much.unchecked().talks().run(Mode::Pooled).assert_success();
}

/// A pipe that is read to its end gives a whole history.
#[test]
fn a_pipe_that_is_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).expect("a pipe");
    let path = pipe.clone();
    let reader = std::thread::spawn(move || fs::read(path).expect("the pipe"));
    let run = busy().env("VRAMSCOPE_TRACE", &pipe).unchecked().run(Mode::Pooled);
    run.assert_success();
    let copy = folder.path().join("a.jsonl");
    fs::write(&copy, reader.join().expect("the reader")).expect("a copy");
    let history = crate::support::History::read(&copy);
    history.check();
    assert_eq!(history.allocations(), 600);
}

/// A hook waits for a stuck writer, and a signal handler jumps out of it: the thread counted as recording for good, and nothing
/// of it was recorded any more.
#[test]
fn a_jump_out_of_a_hook_that_waits() {
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).expect("a pipe");
    let [jumped, reading] = ["jumped", "reading"].map(|name| folder.path().join(name));
    let program = Program::new("left", Link::Driver).arg("jumps").env("VRAMSCOPE_TRACE", &pipe).unchecked().talks();
    let program = program.env("JUMPED", &jumped).env("READING", &reading);
    let path = pipe.clone();
    // Nobody reads before the jump.
    let reader = std::thread::spawn(move || {
        let begun = std::time::Instant::now();
        while !jumped.exists() && begun.elapsed() < std::time::Duration::from_secs(100) {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let mut pipe = fs::File::open(path).expect("the pipe");
        fs::write(reading, "").expect("a sign");
        let mut text = String::new();
        pipe.read_to_string(&mut text).expect("the pipe's text");
        text
    });
    let run = program.run(Mode::Recording);
    run.assert_success();
    assert_eq!(run.stdout, "jumped: 1\n");
    let text = reader.join().expect("the reader");
    let after = text.lines().filter(|l| l.contains("\"kind\":\"alloc\"") && l.contains("\"bytes\":7777")).count();
    assert_eq!(after, 50);
}

/// No place for the spool where the launcher wants it: it goes elsewhere.
#[test]
fn no_run_folder() {
    let runs = busy().env("VRAMSCOPE_RUN_DIR", "/nonexistent/folder").ends_badly().same(&[Mode::Pooled]);
    assert_eq!(runs[1].history().allocations(), 600);
}

#[test]
fn wrong_settings_are_named_and_the_program_runs() {
    for (name, value, allowed) in [
        ("VRAMSCOPE_POOL", "yes", "auto, on, off"),
        ("VRAMSCOPE_SYNC", "maybe", "auto, device, host"),
        ("VRAMSCOPE_STACKS", "full", "off, native, python, all"),
        ("VRAMSCOPE_MAX_CACHED", "lots", "512MiB"),
        ("VRAMSCOPE_MAX_CACHED", "300%", "25%"),
        ("VRAMSCOPE_MAX_CACHED", "-5", "512MiB"),
        ("VRAMSCOPE_MAX_TRACE", "10%", "100MiB"),
        ("VRAMSCOPE_MAX_TRACE", "big", "100MiB"),
        ("VRAMSCOPE_MAX_SPLIT_SIZE", "2MiB", "20 MiB or more"),
        ("VRAMSCOPE_LIMIT", "0%", "0:24GiB"),
        ("VRAMSCOPE_POISON", "maybe", "on, off"),
        ("VRAMSCOPE_SNAPSHOT_SIGNAL", "KILL", "off, USR1, USR2"),
        ("VRAMSCOPE_LOG", "loud", "off, error, info, debug"),
    ] {
        let run = one_message(&busy().env(name, value), &[name, value, allowed]);
        let history = run.history();
        history.check();
        assert_eq!(history.allocations(), 600, "{run}");
    }
}

#[test]
fn odd_values_that_are_right() {
    for (name, value) in [
        ("VRAMSCOPE_POOL", ""),
        ("VRAMSCOPE_POOL", " auto "),
        ("VRAMSCOPE_MAX_CACHED", "0"),
        ("VRAMSCOPE_MAX_CACHED", "1.5GiB"),
        ("VRAMSCOPE_MAX_CACHED", "100%"),
        ("VRAMSCOPE_MAX_TRACE", "1GB"),
        ("VRAMSCOPE_POISON", "1"),
        ("VRAMSCOPE_LOG", "off"),
        ("VRAMSCOPE_STACKS", "all"),
    ] {
        let runs = busy().env(name, value).same(&[Mode::Pooled]);
        runs[0].assert_success();
    }
}

/// Without stacks every event has none.
#[test]
fn stacks_off() {
    let run = busy().env("VRAMSCOPE_STACKS", "off").run(Mode::Pooled);
    let history = run.history();
    assert!(history.stacks().is_empty());
    assert!(history.events().all(|(_, e)| e.stack == 0));
}

/// Poisoned memory is as good as any: nothing that the program wrote is overwritten.
#[test]
fn poison_spoils_nothing() {
    for (name, case) in [
        ("order", "reuse"),
        ("order", "legacy_copy"),
        ("basics_drv", "plain"),
        ("vmm", "ordered"),
        ("capture", "replay"),
    ] {
        let runs = Program::new(name, Link::Driver).arg(case).env("VRAMSCOPE_POISON", "on").same(Mode::SYNC);
        runs[0].assert_success();
    }
}

#[test]
fn switched_off() {
    for (name, value) in
        [("VRAMSCOPE", "off"), ("VRAMSCOPE_ONLY", "another_program"), ("VRAMSCOPE_ONLY", "a,b/basics_rt")]
    {
        let runs = busy().env(name, value).unhooked().same(Mode::ALL);
        for run in &runs {
            assert_eq!(run.traces(), Vec::<PathBuf>::new(), "{run} with {name}={value}");
            assert_eq!(run.stderr, "", "{run} with {name}={value}");
        }
    }
    let path = program("basics_rt", Link::Runtime13);
    for only in [OsStr::new("basics_rt-cudart13"), OsStr::new("x,basics_rt-cudart13,y"), path.as_os_str()] {
        let run = busy().env("VRAMSCOPE_ONLY", only).run(Mode::Pooled);
        assert_eq!(run.history().allocations(), 600, "{only:?}");
    }
}

/// The name of a history can be made of the process, the host, the rank and the program.
#[test]
fn names_of_histories() {
    let run = busy().env("VRAMSCOPE_TRACE", "of-%n-%p-%h-%r-%%-%x.jsonl").env("RANK", "7").run(Mode::Pooled);
    let names: Vec<String> =
        run.traces().iter().map(|p| p.file_name().unwrap_or_default().to_string_lossy().into_owned()).collect();
    assert_eq!(names.len(), 1);
    assert!(names[0].starts_with(&format!("of-basics_rt-cudart13-{}-", run.pid)), "{names:?}");
    assert!(names[0].ends_with("-7-%-%x.jsonl"), "{names:?}");
    assert_eq!(run.history().header().rank.get("RANK").map(String::as_str), Some("7"));
}

/// A name that exists is never written over.
#[test]
fn an_existing_file_stays() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.jsonl");
    fs::write(&path, "mine").expect("a file");
    for round in 1..=3 {
        let run = busy().env("VRAMSCOPE_TRACE", &path).unchecked().talks().run(Mode::Pooled);
        run.assert_success();
        assert_eq!(fs::read_to_string(&path).expect("the file"), "mine");
        assert_eq!(fs::read_dir(folder.path()).expect("the folder").count(), 1 + round);
    }
}

/// A fault in each hook, once: the program is the same, and says it once.
#[test]
fn a_fault_in_each_hook() {
    let programs = [
        Program::new("basics_drv", Link::Driver).arg("kinds"),
        Program::new("vmm", Link::Driver).arg("map"),
        Program::new("vmm", Link::Driver).arg("ordered"),
        Program::new("truth", Link::Driver).arg("info"),
        Program::new("truth", Link::Driver).arg("attributes"),
        Program::new("contexts", Link::Driver).arg("green"),
        Program::new("ipc", Link::Driver).arg("reused"),
        Program::new("order", Link::Driver).arg("later_stream"),
    ];
    let bare: Vec<Run> = programs.iter().map(|p| p.run(Mode::Bare)).collect();
    for hook in [
        "cuMemAlloc",
        "cuMemFree",
        "cuMemAllocPitch",
        "cuMemAllocManaged",
        "cuMemAllocHost",
        "cuMemHostAlloc",
        "cuMemFreeHost",
        "cuMemHostRegister",
        "cuMemHostUnregister",
        "cuMemAllocAsync",
        "cuMemFreeAsync",
        "cuMemCreate",
        "cuMemRelease",
        "cuMemMap",
        "cuMemUnmap",
        "cuMemGetInfo",
        "pointer look-up",
        "cuStreamCreate",
        "cuCtxFromGreenCtx",
        "export",
        "cuIpcOpenMemHandle",
        "cuIpcCloseMemHandle",
        "start",
        "the writer",
        "exit",
    ] {
        let mut messages = 0;
        for (p, bare) in programs.iter().zip(&bare) {
            let run = p.clone().env("VRAMSCOPE_TEST_PANIC", hook).unchecked().talks().run(Mode::Pooled);
            // The one answer that a fault in it spoils is the driver's: the size and id of the segment, not of the block.
            if !(hook == "pointer look-up" && format!("{run}").contains("attributes")) {
                run.assert_same(bare);
            }
            // A child of the program has a fault of its own.
            let mut lines = said(&run);
            lines.sort();
            lines.dedup();
            assert!(lines.len() <= 1, "{run} says {lines:?}");
            assert!(lines.iter().all(|l| l.contains(hook)), "{run} says {lines:?} for a fault in {hook}");
            messages += lines.len();
            assert_eq!(
                run.remove_spools(),
                Vec::<PathBuf>::new(),
                "{run} ended in good order, after a fault in {hook}"
            );
        }
        assert!(messages > 0, "nothing was said of a fault in {hook}");
    }
}

/// The history of a program whose recording ended early says so.
#[test]
fn a_fault_is_in_the_history() {
    let run = busy().env("VRAMSCOPE_TEST_PANIC", "cuMemFree").unchecked().talks().run(Mode::Pooled);
    run.assert_success();
    let history = run.history();
    assert!(history.of(EventKind::Alloc).count() > 0);
    assert!(history.lines.iter().any(|l| matches!(l, Line::Note(n) if n.message.contains("fault"))), "no note");
}
