//! What hangs on cudaFree's wait: order on the device, what the host sees, and who must not wait.

use crate::support::{Link, Mode, Program, Run, same_in};

fn in_order(case: &str) {
    same_in("order", case, &[Link::Driver], Mode::ORDER);
}

#[test]
fn legacy_copy_after_a_free() {
    in_order("legacy_copy");
    in_order("sizes");
}

#[test]
fn other_streams_after_a_free() {
    in_order("second_stream");
    in_order("later_stream");
    in_order("first_stream");
    in_order("destroyed_stream");
}

#[test]
fn per_thread_streams_after_a_free() {
    in_order("per_thread_handle");
    in_order("per_thread_names");
    in_order("other_thread");
}

#[test]
fn graphs_around_a_free() {
    in_order("graph");
}

#[test]
fn a_block_still_read_is_not_overwritten() {
    in_order("reuse");
    in_order("reuse_first_stream");
}

#[test]
fn many_frees_and_other_frees() {
    in_order("many_frees");
    in_order("other_frees");
}

const SIGHT: [&str; 10] = [
    "pinned",
    "host_alloc",
    "registered",
    "managed",
    "pinned_copy",
    "host_function",
    "callback",
    "managed_variable",
    "managed_library_variable",
    "legacy_only",
];

#[test]
fn the_host_sees_what_it_sees_bare() {
    for case in SIGHT {
        same_in("sight", case, &[Link::Driver], Mode::SYNC);
    }
}

/// `device` promises order on the device only: the program still runs to its end.
#[test]
fn device_mode_ends_well() {
    for case in SIGHT {
        Program::new("sight", Link::Driver).arg(case).run(Mode::Device).assert_success();
    }
}

#[test]
fn nothing_waits_that_does_not_wait_bare() {
    for case in ["alloc", "other_allocs", "first_stream", "per_thread", "failing", "first_launch"] {
        same_in("spin", case, &[Link::Driver], Mode::ORDER);
    }
}

/// Where kernels are loaded late, as is the default, the first launch of one waits for the context's work, bare as well. (An H200
/// hung in a program that had the host end a kernel only after another's first launch. The programs here have theirs loaded early.)
#[test]
fn a_kernel_that_is_loaded_late_waits() {
    let first_launch = Program::new("spin", Link::Driver).arg("first_launch");
    for mode in [Mode::Bare, Mode::Pooled] {
        let beside = |run: Run| run.stdout.trim_end().rsplit(' ').next().map(str::to_string);
        assert_eq!(beside(first_launch.run(mode)).as_deref(), Some("600"), "not ready: the first kernel still ran");
        let late = first_launch.clone().env("CUDA_MODULE_LOADING", "LAZY").run(mode);
        assert_eq!(beside(late).as_deref(), Some("0"));
    }
}
