//! The end of an interpreter, and forks.

use std::collections::HashSet;

use crate::notes::{Note, Recorded, compare};
use crate::pythons::{each, three_ways};
use crate::support::{Link, Mode, program};

/// Threads that call the driver while the interpreter ends: it ends as bare, and no frame is made up. 50 times.
#[test]
fn daemon_threads() {
    each("daemon_threads", |python, tally| {
        let program = python.script("finalize.py").arg("daemons");
        let bare = program.run(Mode::Bare);
        bare.assert_success();
        let mut with_frames = 0;
        for i in 0..50 {
            let run = program.run(if i % 10 == 9 { Mode::Recording } else { Mode::Pooled });
            run.assert_same(&bare);
            let recorded = Recorded::of(&run);
            let known: HashSet<&str> = HashSet::from([
                "daemons.<locals>.work",
                "daemons.<locals>.work.<locals>.allocate",
                "work",
                "allocate",
                "touch",
                "free",
                "<module>",
                "Thread.run",
                "Thread._bootstrap_inner",
                "Thread._bootstrap",
                "run",
                "_bootstrap_inner",
                "_bootstrap",
            ]);
            for (function, file, line) in recorded.places() {
                let right = known.contains(function.as_str()) && file.ends_with(".py") && (1..3000).contains(line);
                tally.check(right, || format!("{run}: a place {function:?} {file:?}:{line}"));
            }
            with_frames += recorded.history.events().filter(|(_, e)| recorded.python(e).len() > 3).count();
        }
        tally.check(with_frames > 500, || format!("only {with_frames} stacks have Python frames"));
    });
}

/// Exit handlers, and objects that die with their modules.
#[test]
fn handlers_and_deletions() {
    each("handlers_and_deletions", |python, tally| {
        for case in ["handlers", "deletions", "handlers-deletions"] {
            for run in three_ways(&python.script("finalize.py").arg(case)) {
                let before = tally.checks;
                compare(&run, python, tally);
                tally.check(tally.checks - before >= 5, || format!("{run}: nothing was called at the end"));
            }
        }
    });
}

/// All at once.
#[test]
fn everything_at_the_end() {
    each("everything_at_the_end", |python, tally| {
        for _ in 0..3 {
            for run in three_ways(&python.script("finalize.py").arg("daemons-handlers-deletions")) {
                tally.check(!Note::all(run.folder.path()).is_empty(), || format!("{run}: no notes"));
            }
        }
    });
}

/// Children that do nothing with the GPU end as bare; the parent's stacks stay right.
#[test]
fn forks() {
    each("forks", |python, tally| {
        for run in three_ways(&python.script("fork.py")) {
            compare(&run, python, tally);
        }
    });
}

/// A signal handler in C that allocates anywhere in the interpreter, also while it makes a frame.
#[test]
fn handlers_in_c() {
    let timer = program("ticks", Link::PlainLibrary);
    each("handlers_in_c", |python, tally| {
        for stacks in ["all", "python"] {
            let run = python.script("ticks.py").arg(&timer).env("VRAMSCOPE_STACKS", stacks).run(Mode::Pooled);
            tally.check(run.status.success(), || format!("{run} with {stacks} stacks ended with {}", run.status));
        }
    });
}

/// Objects that are not what a code object usually holds.
#[test]
fn file_names_of_another_class() {
    each("file_names_of_another_class", |python, tally| {
        let run = python.script("odd_files.py").run(Mode::Pooled);
        tally.check(run.status.success(), || format!("{run} ended with {}", run.status));
    });
}
