//! Random programs of 1 to 8 threads and 1 to 4 streams, also with captures in the middle: what they read back and every code
//! they get is the same bare and in every mode. A seed that fails is printed and can be run by itself:
//! `random-driver SEED THREADS STREAMS OPERATIONS CAPTURE`.

use crate::support::{Link, Mode, Program, build};

/// Operations of the whole test.
const OPERATIONS: u64 = 1_000_000;
const RUNS: u64 = 40;

fn random(seed: u64, threads: u64, operations: u64, capture: bool) -> Program {
    let streams = 1 + seed % 4;
    Program::new("random", Link::Driver)
        .arg(seed.to_string())
        .arg(threads.to_string())
        .arg(streams.to_string())
        .arg(operations.to_string())
        .arg(if capture { "1" } else { "0" })
}

/// Runs these seeds; each in two of the modes.
fn seeds(seeds: impl Iterator<Item = u64>, capture: bool) {
    for seed in seeds {
        let threads = 1 + seed * 3 % 8;
        let modes = [Mode::ORDER[seed as usize % 4], Mode::Pooled];
        println!("seed {seed}: {threads} threads, modes {modes:?}");
        let runs = random(seed, threads, OPERATIONS / RUNS / threads, capture).same(&modes);
        runs[0].assert_success();
        // Wrong in the bare run as well would prove nothing.
        assert!(
            !runs[0].stdout.contains(" 1 wrong")
                && runs[0].stdout.matches(" 0 wrong, 0 refused").count() as u64 == threads,
            "{}",
            runs[0].stdout
        );
    }
}

#[test]
fn random_programs_1() {
    seeds(0..RUNS / 4, false);
}

#[test]
fn random_programs_2() {
    seeds(RUNS / 4..RUNS / 2, false);
}

#[test]
fn random_programs_with_captures_1() {
    seeds(RUNS / 2..RUNS / 4 * 3, true);
}

#[test]
fn random_programs_with_captures_2() {
    seeds(RUNS / 4 * 3..RUNS, true);
}

/// The proof that the comparison can fail: with a barrier that makes nothing wait, a program reads wrong numbers.
#[test]
fn a_lost_barrier_is_noticed() {
    let broken = build::simgpu_with("no_wait.cpp");
    let all_right = |seed, mode| {
        let run = random(seed, 2, 4000, false).env("LD_LIBRARY_PATH", &broken).run(mode);
        run.status.success() && run.stdout.matches(" 0 wrong, 0 refused").count() == 2
    };
    assert!(all_right(0, Mode::Bare), "nothing else of the driver is broken");
    let noticed = (0..6).any(|seed| !all_right(seed, Mode::Device));
    assert!(noticed, "no seed read a wrong number without the barrier");
}
