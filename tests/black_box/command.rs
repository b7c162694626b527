//! `vramscope run` around real programs: they print and end as bare, and their histories are finished.

use std::path::Path;
use std::process::Command;

use crate::support::{Link, Mode, Program, Run};
use vramscope_core::event::EventKind;

fn process(case: &str) -> Program {
    Program::new("process", Link::Driver).arg(case)
}

/// What `vramscope` says at the end, without its name.
fn summary(run: &Run) -> Vec<&str> {
    run.stderr.lines().filter_map(|l| l.strip_prefix("vramscope: ")).collect()
}

#[test]
fn a_program_and_its_summary() {
    let program = Program::new("basics_rt", Link::Runtime13).arg("many");
    let bare = program.run(Mode::Bare);
    let run = program.launched(&[]).run(Mode::Bare);
    run.assert_same(&bare);
    let said = summary(&run);
    let heads: Vec<&str> = said.iter().filter_map(|l| l.split("  ").next()).collect();
    assert_eq!(heads, ["peak", "allocations", "time saved", "never freed", "sync", "history"], "{}", run.stderr);
    assert!(said[1].contains("600, 200 "), "{}", said[1]);
    assert!(said[3].contains("0 B"), "{}", said[3]);
    let histories = run.histories();
    assert_eq!(histories.len(), 1);
    histories[0].check();
    assert_eq!(histories[0].allocations(), 600);
    let footer = histories[0].footer().expect("a footer");
    assert_eq!((footer.end.as_str(), footer.status, footer.by.as_str()), ("exit", Some(0), "launcher"));
    assert!(run.remove_spools().is_empty(), "the spool is not needed any more");
    // Nothing at all with --quiet.
    let quiet = program.launched(&["--quiet"]).run(Mode::Bare);
    quiet.assert_same(&bare);
    assert_eq!(quiet.stderr, "");
}

/// A device that takes nothing: where the history went is not said of what never arrived.
#[test]
fn a_stream_that_broke() {
    let program = Program::new("basics_rt", Link::Runtime13).arg("many");
    let run = program.launched(&["--trace", "/dev/full"]).unchecked().run(Mode::Bare);
    run.assert_success();
    let said = summary(&run);
    assert!(said.iter().any(|l| l.starts_with("recording ended early") && l.ends_with("/dev/full")), "{}", run.stderr);
    assert!(!said.iter().any(|l| l.starts_with("the history went")), "{}", run.stderr);
}

/// Exit codes and signals are the program's.
#[test]
fn ends_as_the_program_ends() {
    for (case, end, code) in [
        ("thread_exits", "exit", 9),
        ("_exit", "killed", 7),
        ("abort", "killed", 134),
        ("segfault", "killed", 139),
        ("killed", "killed", 137),
    ] {
        let bare = process(case).run(Mode::Bare);
        let run = process(case).launched(&[]).run(Mode::Bare);
        run.assert_same(&bare);
        let histories = run.histories();
        assert_eq!(histories.len(), 1, "{run}");
        histories[0].check();
        assert_eq!(histories[0].allocations(), 11, "{run}");
        let footer = histories[0].footer().expect("a footer");
        assert_eq!((footer.end.as_str(), footer.status), (end, Some(code)), "{run}");
        assert!(run.remove_spools().is_empty(), "{run}");
    }
}

/// Each process gets a history of its own, also after exec, and all are finished.
#[test]
fn children_and_exec() {
    for (case, count) in
        [("fork_exec", 2), ("vfork", 2), ("exec", 2), ("fork_first", 2), ("fork_exit", 1), ("clone", 1)]
    {
        let bare = process(case).run(Mode::Bare);
        let run = process(case).launched(&[]).run(Mode::Bare);
        run.assert_same(&bare);
        let histories = run.histories();
        assert_eq!(histories.len(), count, "{run}: {:?}", run.traces());
        for h in &histories {
            h.check();
            assert!(h.footer().is_some() && h.allocations() >= 11, "{run}: {}", h.path.display());
        }
    }
}

/// Flags are the settings.
#[test]
fn flags() {
    let program = Program::new("basics_rt", Link::Runtime13).arg("plain");
    let bare = program.run(Mode::Bare);
    let run = program.launched(&["--pool", "off", "--stacks", "off", "--trace", "mine-%n.jsonl.zst"]).run(Mode::Bare);
    run.assert_same(&bare);
    let history = &run.histories()[0];
    assert!(history.path.ends_with("mine-basics_rt-cudart13.jsonl.zst"), "{}", history.path.display());
    assert!(history.stacks().is_empty());
    assert_eq!(history.of(EventKind::SegmentAlloc).count(), 0, "the pool was off");
    let sync = Program::new("order", Link::Driver).arg("legacy_copy");
    let poisoned = sync.launched(&["--poison", "on", "--stitch", "off", "--quiet"]).run(Mode::Bare);
    assert_eq!(summary(&poisoned), ["--stitch has no effect without --pool on"], "{}", poisoned.stderr);
    let run = sync.launched(&["--sync", "host"]).run(Mode::Bare);
    assert!(summary(&run).iter().any(|l| l.starts_with("sync") && l.contains("host: ")), "{}", run.stderr);
}

/// A program that cannot be run is said, with the codes of a shell.
#[test]
fn programs_that_cannot_be_run() {
    for (path, code) in [("/nonexistent/program", 127), ("/", 126)] {
        let run = Program::at(Path::new(path)).launched(&[]).run(Mode::Bare);
        assert_eq!(run.status.code(), Some(code), "{path}: {}", run.stderr);
        assert!(run.stderr.starts_with("vramscope: ") && run.stderr.contains(path), "{}", run.stderr);
    }
}

/// A report of what a real program left reads without a warning, and names the place in its source.
/// A folder that is known only when the program runs, or another library.
#[test]
fn what_was_not_recorded_is_told_with_its_reason() {
    let program = Program::new("basics_rt", Link::Runtime13).arg("many");
    let run = program.launched(&["--trace", "none-%p/x.jsonl"]).run(Mode::Bare);
    let last = summary(&run).pop().expect("a line");
    assert!(
        last.starts_with("nothing was recorded of process ") && last.contains("/x.jsonl: the history can't"),
        "{}",
        run.stderr
    );
    let other = Program::at(Path::new(env!("CARGO_BIN_EXE_vramscope")));
    let other = other.arg("run").arg("--lib").arg("/bin/sh").arg("/bin/true").run(Mode::Bare);
    assert_eq!(other.status.code(), Some(2), "{}", other.stderr);
    assert!(other.stderr.contains("/bin/sh (from --lib) is no libvramscope.so"), "{}", other.stderr);
}

#[test]
fn a_report_of_a_real_history() {
    let run = Program::new("basics_rt", Link::Runtime13).arg("many").launched(&[]).run(Mode::Bare);
    let out = Command::new(env!("CARGO_BIN_EXE_vramscope"))
        .arg("report")
        .arg(&run.traces()[0])
        .output()
        .expect("the command");
    let (text, said) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success() && said.is_empty(), "{said}");
    for words in ["case_many", "basics_rt.c:", "everything was freed", "200 (33.3 %) of 600 requests"] {
        assert!(text.contains(words), "no {words:?} in:\n{text}");
    }
}
