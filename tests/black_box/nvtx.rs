//! What programs say by NVTX becomes regions and marks, with NVIDIA's own header in a program that knows nothing of us.

use std::collections::HashMap;
use std::path::Path;

use crate::support::{History, Link, Mode, Program, Run, vramscope_library};
use vramscope_core::event::EventKind;
use vramscope_core::trace::Line;

fn nvtx(case: &str) -> Program {
    Program::new("nvtx", Link::Driver).arg(case)
}

fn followed(case: &str) -> Program {
    nvtx(case).env("NVTX_INJECTION64_PATH", vramscope_library()).env("FOLLOWED", "1")
}

/// Marks `!text`, regions `+name` and `-name` (`*` in place of `+`: of the process), allocations by their MiB.
fn labels(history: &History, thread: Option<u32>) -> Vec<String> {
    let (mut texts, mut open) = (HashMap::new(), HashMap::new());
    let mut all = Vec::new();
    for line in &history.lines {
        match line {
            Line::Text(t) => drop(texts.insert(u64::from(t.text), t.value.clone())),
            Line::Event(t, e) if thread.is_none_or(|wanted| wanted == *t) => match e.kind {
                EventKind::RegionBegin => {
                    let name = texts[&e.extra[0]].clone();
                    all.push(format!("{}{name}", if e.extra[2] == 1 { '*' } else { '+' }));
                    open.insert(e.id, name);
                }
                EventKind::RegionEnd => all.push(format!("-{}", open.remove(&e.id).expect("an open region"))),
                EventKind::Mark => all.push(format!("!{}", texts[&e.extra[0]])),
                EventKind::Alloc => all.push(format!("a{}", e.bytes >> 20)),
                _ => {}
            },
            _ => {}
        }
    }
    all
}

fn history(run: &Run) -> History {
    run.assert_success();
    run.history()
}

#[test]
fn ranges_and_marks() {
    nvtx("ranges").run(Mode::Bare).assert_success();
    for mode in Mode::ALL {
        let run = followed("ranges").run(*mode);
        assert_eq!(
            labels(&history(&run), None),
            [
                "+before CUDA",
                "+wide é一",
                "a1",
                "!a mark",
                "!a wide mark",
                "+by attributes",
                "a2",
                "!by attributes",
                "-by attributes",
                "-wide é一",
                "-before CUDA",
                "+after",
                "a3",
                "-after",
            ]
        );
    }
}

#[test]
fn domains_and_registered_strings() {
    nvtx("domains").run(Mode::Bare).assert_success();
    let run = followed("domains").run(Mode::Pooled);
    assert_eq!(
        labels(&history(&run), Some(1)),
        [
            "+registered",
            "+in b",
            "+wide é",
            "a1",
            "-in b",
            "a3",
            "-wide é",
            "-registered",
            "!in b",
            "*registered",
            "*started",
            "*third",
            "-registered",
            "-third",
        ]
    );
    let all = labels(&history(&run), None);
    assert!(all.contains(&"-started".to_owned()), "ended in another thread: {all:?}");
}

/// Beyond the depth each domain still counts for itself, which the program checks; the history says once what it lacks.
#[test]
fn deeper_than_is_followed() {
    nvtx("deep").run(Mode::Bare).assert_success();
    let history = history(&followed("deep").run(Mode::Pooled));
    assert_eq!(labels(&history, None).iter().filter(|l| *l == "+a").count(), 60);
    let notes = history.lines.iter().filter(|l| matches!(l, Line::Note(n) if n.message.contains("64 regions at once")));
    assert_eq!(notes.count(), 1);
}

#[test]
fn threads() {
    let run = followed("threads").run(Mode::Pooled);
    let mut all = labels(&history(&run), None);
    all.sort();
    assert_eq!(all, ["+t0", "+t1", "+t2", "+t3", "-t0", "-t1", "-t2", "-t3", "a1", "a1", "a1", "a1", "a3"]);
}

#[test]
fn a_range_in_which_nothing_is_costs_little() {
    let bare = nvtx("cost").run(Mode::Bare);
    let run = followed("cost").run(Mode::Pooled);
    println!("bare {}with  {}", bare.stdout, run.stdout);
    assert_eq!(labels(&history(&run), None), ["a1"]);
    let ns: f64 = run.stdout.split(' ').next().and_then(|w| w.parse().ok()).expect("a figure");
    // Promised are 200; this machine has other things to do.
    assert!(ns < 1000.0, "{ns} ns a pair");
}

#[test]
fn not_followed_where_it_is_switched_off() {
    for (name, value) in [("VRAMSCOPE_NVTX", "off"), ("VRAMSCOPE", "off")] {
        let mut program = nvtx("ranges").env("NVTX_INJECTION64_PATH", vramscope_library()).env(name, value);
        if name == "VRAMSCOPE" {
            program = program.unhooked();
        }
        let run = program.run(Mode::Pooled);
        run.assert_success();
        for h in run.histories() {
            assert_eq!(labels(&h, None), ["a1", "a2", "a3"]);
        }
    }
}

/// A fault of ours costs our work, not theirs.
#[test]
fn faults_of_ours() {
    for (what, case) in
        [("NVTX", "ranges"), ("an NVTX push", "cost"), ("an NVTX pop", "cost"), ("vramscope_mark", "domains")]
    {
        let mut program = nvtx(case).env("VRAMSCOPE_TEST_PANIC", what).talks();
        if what != "vramscope_mark" {
            // Its history ends where the fault was, and verify says so.
            program = program.env("NVTX_INJECTION64_PATH", vramscope_library()).unchecked();
        }
        let run = program.run(Mode::Pooled);
        run.assert_success();
        let said = run.stderr.matches(&format!("a fault of ours in {what}")).count();
        assert_eq!(said, usize::from(what != "vramscope_mark"), "{what}: {}", run.stderr);
    }
}

/// `vramscope run` sets the variable, unless another tool did.
#[test]
fn under_the_launcher() {
    let trace = |program: &Program, flags: &[&str]| {
        let mut all = vec!["--quiet", "--trace", "t.jsonl"];
        all.extend(flags);
        let run = program.launched(&all).run(Mode::Bare);
        run.assert_success();
        labels(&History::read(&run.folder.path().join("t.jsonl")), None)
    };
    let with = nvtx("ranges").env("FOLLOWED", "1");
    assert!(trace(&with, &[]).contains(&"+before CUDA".to_owned()));
    assert_eq!(trace(&nvtx("ranges"), &["--nvtx", "off"]), ["a1", "a2", "a3"]);
    // Another tool's library, which is not there: NVTX is off, as it would be without us.
    let other = nvtx("ranges").env("NVTX_INJECTION64_PATH", Path::new("/nowhere/libOther.so"));
    assert_eq!(trace(&other, &[]), ["a1", "a2", "a3"]);
}
