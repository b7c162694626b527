//! Threads that need one another while a call of one of them waits, and limits met at odd moments: what ends bare must end
//! under the library too, with the same output.

use crate::support::{Link, Mode, Program};
use vramscope_core::event::{EventKind, Source};

fn together(case: &str) -> Program {
    Program::new("together", Link::Driver).arg(case)
}

#[test]
fn a_context_that_ends_holds_up_nobody() {
    for case in ["destroy_beside_alloc", "destroy_beside_retain"] {
        together(case).same(Mode::SYNC)[0].assert_success();
    }
}

#[test]
fn a_forked_thread_that_ends_takes_nothing_from_its_parent() {
    together("a_forked_thread_ends").same(Mode::ALL)[0].assert_success();
}

#[test]
fn a_free_that_waits_holds_up_nobody_else() {
    together("free_beside_work").same(Mode::ALL)[0].assert_success();
}

#[test]
fn threads_without_a_ring_go_on() {
    let bare = together("more_threads_than_rings").run(Mode::Bare);
    bare.assert_success();
    // Events of the threads that got no ring are lost, and counted.
    together("more_threads_than_rings").unchecked().talks().run(Mode::Pooled).assert_same(&bare);
}

#[test]
fn a_file_size_limit_kills_nobody() {
    let bare = together("a_file_size_limit").run(Mode::Bare);
    bare.assert_success();
    let run = together("a_file_size_limit").unchecked().talks().run(Mode::Pooled);
    run.assert_same(&bare);
    run.remove_spools();
}

#[test]
fn the_pool_serves_after_a_capture_ended_with_its_context() {
    let runs = together("capture_ends_with_its_context").same(&[Mode::Pooled]);
    let history = runs[1].history();
    let hits = history.events().filter(|(_, e)| e.kind == EventKind::Alloc && e.how == Source::Hit as u8).count();
    assert!(hits >= 99, "{hits} of 100 came from the cache");
}
