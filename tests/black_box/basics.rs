//! Programs that use every kind of memory: bare, recording and pooled they print and end the same.

use crate::support::{Link, Mode, same_in};

#[test]
fn plain_memory_through_the_runtime() {
    for case in ["plain", "many"] {
        same_in("basics_rt", case, &Link::RUNTIME, Mode::SYNC);
    }
}

#[test]
fn every_kind_of_memory_through_the_runtime() {
    for case in ["kinds", "ordered", "devices"] {
        same_in("basics_rt", case, &Link::RUNTIME, Mode::ALL);
    }
}

#[test]
fn errors_through_the_runtime() {
    same_in("basics_rt", "errors", &Link::RUNTIME, Mode::ALL);
}

#[test]
fn every_kind_of_memory_through_the_driver() {
    for case in ["plain", "kinds", "other_thread"] {
        same_in("basics_drv", case, &[Link::Driver], Mode::SYNC);
    }
}

#[test]
fn nonsense_gets_the_drivers_own_answer() {
    for case in ["bad_frees", "no_context"] {
        same_in("basics_drv", case, &[Link::Driver], Mode::SYNC);
    }
}

fn as_bare(program: &str, cases: &[&str], modes: &[Mode]) {
    for case in cases {
        same_in(program, case, &[Link::Driver], modes);
    }
}

#[test]
fn the_driver_is_quoted_truly() {
    as_bare("truth", &["info", "ranges", "attributes", "set"], Mode::SYNC);
}

#[test]
fn memory_shared_with_another_process() {
    as_bare("ipc", &["sizes", "reused", "handles", "order"], Mode::SYNC);
}

#[test]
fn contexts_that_end() {
    as_bare("contexts", &["reset", "release", "retained_twice", "created"], Mode::SYNC);
}

#[test]
fn contexts_beside_each_other() {
    as_bare("contexts", &["two_orders", "devices", "peers", "green"], Mode::ORDER);
}

#[test]
fn many_contexts() {
    for case in ["racing", "hundred"] {
        let runs = crate::support::Program::new("contexts", Link::Driver)
            .arg(case)
            .env("SIMGPU_CONTEXT_MB", "4")
            .same(Mode::SYNC);
        runs[0].assert_success();
    }
}

#[test]
fn mapped_and_ordered_memory() {
    as_bare("vmm", &["map", "ordered", "plain_async", "pools", "graph_memory", "shareable"], Mode::ORDER);
}
