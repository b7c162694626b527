//! Stream captures: what one refuses and what spoils it is the driver's business, also with the pool in between.

use crate::support::{Link, Mode, same_in};

fn as_bare(cases: &[&str]) {
    for case in cases {
        same_in("capture", case, &[Link::Driver], Mode::ORDER);
    }
}

#[test]
fn allocations_and_frees_in_a_capture() {
    as_bare(&["global_same", "local_same", "relaxed_same", "exchanged"]);
}

#[test]
fn allocations_and_frees_beside_a_capture() {
    as_bare(&["global_other", "local_other", "relaxed_other"]);
}

#[test]
fn other_calls_in_a_capture() {
    as_bare(&["other_calls", "odd_ends", "fork"]);
}

#[test]
fn graphs_that_run_while_their_memory_is_freed() {
    as_bare(&["replay"]);
}

/// No capture is spoiled by a barrier that comes at the wrong moment.
#[test]
fn captures_begin_while_others_free() {
    as_bare(&["race"]);
}
