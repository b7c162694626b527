//! The ways in which processes and threads begin and end: none of them may notice the library, and none loses its history.

use crate::support::{Link, Mode, Program};
use vramscope_cli::verify::{Kind, verify};
use vramscope_core::event::EventKind;
use vramscope_core::trace::Line;

fn process(case: &str) -> Program {
    Program::new("process", Link::Driver).arg(case)
}

fn as_bare(cases: &[&str], modes: &[Mode]) {
    for case in cases {
        process(case).same(modes)[0].assert_success();
    }
}

#[test]
fn forked_children() {
    as_bare(&["fork_exit", "fork__exit", "fork_cuda", "clone", "fork_threads"], Mode::SYNC);
}

#[test]
fn children_that_are_programs() {
    for case in ["fork_exec", "vfork", "fork_first"] {
        let runs = process(case).same(Mode::ALL);
        runs[0].assert_success();
        for run in &runs[1..] {
            let histories = run.histories();
            assert_eq!(histories.len(), 2, "{run}: one history each: {:?}", run.traces());
            assert!(histories.iter().all(|h| h.allocations() > 0));
        }
    }
}

/// exec keeps the process number: the history's name is taken already.
#[test]
fn exec_of_itself() {
    let bare = process("exec").run(Mode::Bare);
    bare.assert_success();
    for mode in Mode::ALL {
        let run = process("exec").unchecked().run(*mode);
        run.assert_same(&bare);
        assert_eq!(run.recovered().len(), 1, "{run}: the second program ended in good order");
        let histories = run.histories();
        assert_eq!(histories.len(), 2, "{run}: {:?}", run.traces());
        for h in &histories {
            h.check();
            assert_eq!((h.header().pid, h.allocations()), (run.pid, 11), "{run}");
        }
        assert_eq!(histories.iter().filter(|h| h.of(EventKind::Exit).count() == 1).count(), 1, "{run}");
    }
}

/// The exit handlers never run: what the rings hold is added by `recover`.
#[test]
fn ends_without_exit_handlers() {
    for case in ["_exit", "quick_exit", "abort", "segfault", "killed"] {
        let bare = process(case).run(Mode::Bare);
        for mode in Mode::ALL {
            let run = process(case).unchecked().run(*mode);
            run.assert_same(&bare);
            let mut histories = run.recovered();
            assert_eq!(histories.len(), 1, "{run}");
            let history = histories.remove(0);
            history.check();
            assert_eq!(history.allocations(), 11, "{run}");
            assert_eq!(history.of(EventKind::Free).count(), 10, "{run}");
            assert_eq!(history.footer().map(|f| f.end.as_str()), Some("killed"), "{run}");
        }
    }
}

#[test]
fn exits_from_elsewhere() {
    let runs = process("thread_exits").same(Mode::ALL);
    assert_eq!(runs[0].status.code(), Some(9));
    as_bare(&["main_ends"], Mode::ALL);
}

/// A signal handler ends the process in the middle of a hook: that frame never goes on, and the end is in the history.
#[test]
fn exits_in_a_handler() {
    for round in 0..24 {
        let program = process("exits_in_handler");
        let run = match round % 4 {
            3 => program.unchecked().launched(&["--quiet", "--trace", "a.jsonl"]).run(Mode::Bare),
            _ => program.unchecked().run(Mode::SYNC[round % Mode::SYNC.len()]),
        };
        run.assert_success();
        let history = run.histories().remove(0);
        assert_eq!(history.of(EventKind::Exit).count(), 1, "{run}");
        // What it interrupted may not be told: a free between its two halves, a sum of the pool's.
        let verdict = verify(&history.path).expect("a history");
        let allowed = [Kind::PoolSum, Kind::PoolPeak, Kind::Unfinished];
        let found: Vec<_> = verdict.violations.iter().filter(|v| !allowed.contains(&v.kind)).collect();
        assert!(found.is_empty(), "{run}: {found:?}");
    }
}

/// The process ends while another thread makes its first call, or soon after: what was set up meanwhile is taken away.
#[test]
fn ends_at_the_start() {
    for i in 0..40 {
        let run = process("exits_at_start").unhooked().run(Mode::ALL[i % Mode::ALL.len()]);
        run.assert_success();
    }
    for mode in Mode::ALL {
        process("exits_at_slow_start").unhooked().run(*mode).assert_success();
    }
}

/// The process ends while threads go on as fast as they can: all that was done before is in the history, which is whole, and
/// all that the thread does that ends it.
#[test]
fn exits_beside_busy_threads() {
    let program = process("exits_beside");
    program.run(Mode::Bare).assert_success();
    for round in 0..32 {
        let trace = if round % 2 == 0 { "a.jsonl" } else { "a.jsonl.zst" };
        let run = match round % 8 {
            7 => program.launched(&["--quiet", "--trace", trace]).run(Mode::Bare),
            _ => program.clone().env("VRAMSCOPE_TRACE", trace).run(Mode::ORDER[round / 2 % Mode::ORDER.len()]),
        };
        run.assert_success();
        let history = run.histories().remove(0);
        history.check();
        assert_eq!(history.of(EventKind::Exit).count(), 1, "{run}");
        let thread = |tid: u32| {
            let threads = history.lines.iter().filter_map(|l| if let Line::Thread(t) = l { Some(t) } else { None });
            threads.filter(|t| t.tid == tid).map(|t| t.thread).next()
        };
        let mut printed = 0;
        for line in run.stdout.lines() {
            let (tid, done) = line.split_once(' ').expect("a thread and a number");
            let number = thread(tid.parse().expect("a thread"));
            let told = history.events().filter(|(t, e)| Some(*t) == number && e.kind == EventKind::Alloc).count();
            let done: usize = done.parse().expect("a number");
            assert!(told >= done, "{run}: thread {tid} had made {done} allocations, {told} are told of");
            if printed == 0 {
                let frees = history.events().filter(|(t, e)| Some(*t) == number && e.kind == EventKind::Free).count();
                assert_eq!(frees, 300, "{run}: all at the very end");
            }
            printed += 1;
        }
        assert_eq!(printed, 13, "{run}: {}", run.stdout);
    }
}

/// What is freed after our own exit handler is still in the history; what the driver no longer takes was not freed.
#[test]
fn frees_at_the_very_end() {
    for (case, frees) in [("atexit", 10), ("atexit_between", 11), ("atexit_late", 11), ("destructor", 10)] {
        let runs = process(case).same(Mode::SYNC);
        runs[0].assert_success();
        for run in &runs[1..] {
            let history = run.history();
            assert_eq!(history.freed().len(), frees, "{run}");
            assert_eq!(history.of(EventKind::Exit).count(), 1, "{run}");
        }
    }
}

#[test]
fn threads_that_end() {
    as_bare(&["thread_destructor", "threads_one_by_one"], Mode::ALL);
}

#[test]
fn many_threads_at_once() {
    let runs = process("threads_at_once").same(Mode::ALL);
    runs[0].assert_success();
    for run in &runs[1..] {
        assert_eq!(run.history().allocations(), 64 * 50 + 12, "{run}");
    }
}

/// What is recorded of a context comes before what was allocated in it, whichever thread met it first.
#[test]
fn a_context_comes_before_what_is_in_it() {
    let runs = process("threads_first").env("SIMGPU_NAME_US", "50000").same(Mode::ALL);
    runs[0].assert_success();
    for run in &runs[1..] {
        assert_eq!(run.history().allocations(), 8 * 20 + 12, "{run}");
    }
}

#[test]
fn the_smallest_stack() {
    as_bare(&["small_stack"], Mode::SYNC);
}

/// A thread is cancelled inside the driver: the cancellation passes through the hooks, and the others go on.
#[test]
fn cancelled_threads() {
    for case in ["cancel", "cancel_unpooled"] {
        // The calls take long, so that the cancellation finds the thread in one; its log makes each a cancellation point.
        let runs = process(case)
            .env("SIMGPU_LOG", "calls.log")
            .env("SIMGPU_FREE_US", "2000")
            .env("SIMGPU_MALLOC_US", "2000")
            .env("VRAMSCOPE_MAX_CACHED", "0")
            .same(Mode::SYNC);
        runs[0].assert_success();
    }
    as_bare(&["cancel_waiting"], &[Mode::Recording, Mode::Pooled, Mode::Host, Mode::Device]);
}

#[test]
fn signals() {
    as_bare(&["signals", "handler_allocates"], Mode::SYNC);
    as_bare(&["signals_and_a_slow_disk"], &[Mode::Recording, Mode::Pooled]);
}

#[test]
fn descriptors() {
    as_bare(&["close_all", "numbers", "chdir"], Mode::ALL);
    // Its stdout is closed, so its history's messages would have nowhere to go; there are none.
    as_bare(&["close_standard"], Mode::ALL);
}
