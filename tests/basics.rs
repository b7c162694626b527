//! Programs that use every kind of memory: bare, recording and pooled they print and end the same.

mod support;

use support::{Link, Mode, same_in};

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
