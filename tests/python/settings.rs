//! Which stacks are recorded is what the settings say.

use vramscope_core::event::EventKind;
use vramscope_core::trace::{Frame, Line};

use crate::notes::{Note, Recorded, Stacks, compare, compare_as};
use crate::pythons::{Python, each};
use crate::support::{Mode, Program, Run};

fn program(python: &Python) -> Program {
    python.script("frees.py")
}

fn run(program: &Program) -> Run {
    let run = program.run(Mode::Pooled);
    run.assert_success();
    run
}

/// `VRAMSCOPE_STACKS=python`: Python frames and no others.
#[test]
fn python_frames_alone() {
    each("python_frames_alone", |python, tally| {
        for script in ["frees.py", "splice.py"] {
            let run = run(&python.script(script).env("VRAMSCOPE_STACKS", "python"));
            // (Where the interpreter was entered can't be seen without native frames.)
            strip_runs(&run);
            compare_as(&run, python, tally, Stacks::Python);
        }
    });
}

/// Takes the rows out of the notes.
fn strip_runs(run: &Run) {
    let path = run.folder.path().join("notes");
    let text = std::fs::read_to_string(&path).expect("the notes");
    std::fs::write(&path, text.replace("\"runs\"", "\"rows\"")).expect("the notes");
}

/// `VRAMSCOPE_STACKS=native`: no Python frames, and no line of a place.
#[test]
fn native_frames_alone() {
    each("native_frames_alone", |python, tally| {
        let run = run(&program(python).env("VRAMSCOPE_STACKS", "native"));
        let recorded = Recorded::of(&run);
        tally.check(recorded.places().next().is_none(), || format!("{run}: places of Python"));
        for kind in [EventKind::Alloc, EventKind::Free] {
            for e in recorded.history.of(kind) {
                let native = |f: &Frame| matches!(f, Frame::Native(..) | Frame::Guessed(..));
                let right = recorded.stack(e).is_some_and(|s| s.frames.len() > 3 && s.frames.iter().all(native));
                tally.check(right, || format!("{run}: {e:?}: {:?}", recorded.stack(e)));
            }
        }
    });
}

/// `VRAMSCOPE_STACKS=off`: none.
#[test]
fn no_stacks() {
    each("no_stacks", |python, tally| {
        let run = run(&program(python).env("VRAMSCOPE_STACKS", "off"));
        let history = run.history();
        for (_, e) in history.events() {
            tally.check(e.stack == 0, || format!("{run}: {e:?}"));
        }
        let none = history.lines.iter().all(|l| !matches!(l, Line::Stack(_) | Line::Python(_)));
        tally.check(none, || format!("{run}: lines of stacks or places"));
    });
}

/// Frees have stacks by default, and none with `VRAMSCOPE_STACKS_ON_FREE=off`.
#[test]
fn stacks_of_frees() {
    each("stacks_of_frees", |python, tally| {
        for (value, expected) in [("on", true), ("off", false)] {
            let run = run(&program(python).env("VRAMSCOPE_STACKS_ON_FREE", value));
            let mut frees = 0;
            for e in run.history().of(EventKind::Free) {
                frees += 1;
                tally.check((e.stack != 0) == expected, || format!("{run}: {value}: {e:?}"));
            }
            assert_eq!(frees, 10, "{run}");
            if expected {
                compare(&run, python, tally);
            } else {
                // Those of allocations are whole.
                let recorded = Recorded::of(&run);
                let notes = Note::all(run.folder.path());
                let expected = notes.iter().filter(|n| n.number("alloc").is_some() && n.number("address").is_none());
                let found: Vec<_> = recorded.history.of(EventKind::Alloc).map(|e| recorded.python(e)).collect();
                let expected: Vec<_> = expected.map(Note::frames).collect();
                tally.check(expected == found, || format!("{run}: allocations: {expected:?} are {found:?}"));
            }
        }
    });
}

/// A few frames are the innermost few of each kind.
#[test]
fn few_frames() {
    each("few_frames", |python, tally| {
        for depth in [1, 4, 16] {
            for stacks in ["all", "python"] {
                let program = python.script("deep.py").arg("100").env("VRAMSCOPE_STACK_DEPTH", depth.to_string());
                let run = run(&program.env("VRAMSCOPE_STACKS", stacks));
                compare_as(&run, python, tally, if stacks == "all" { Stacks::All } else { Stacks::Python });
            }
        }
    });
}
