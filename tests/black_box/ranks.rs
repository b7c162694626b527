//! Distributed jobs under `vramscope run`: one history a rank, which says who it was, also by its name; nothing from processes
//! that touch no GPU; and what a killed rank leaves is finished.

use std::collections::BTreeSet;

use crate::support::build::root;
use crate::support::{History, Link, Mode, Program, Run};
use vramscope_core::event::EventKind;

fn ranks(case: &str) -> Program {
    Program::new("ranks", Link::Driver).arg(case)
}

fn host() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").expect("a host name").trim().to_owned()
}

/// Names of its histories' files.
fn names(run: &Run) -> BTreeSet<String> {
    run.traces().iter().map(|p| p.file_name().unwrap_or_default().to_string_lossy().into_owned()).collect()
}

/// The histories by rank, each finished and of the right process. The largest allocation tells the rank.
fn by_rank(run: &Run, count: u64) -> Vec<History> {
    let mut all = run.histories();
    let rank = |h: &History| h.header().rank.get("RANK").and_then(|r| r.parse::<u64>().ok()).expect("a rank");
    all.sort_by_key(rank);
    assert_eq!(all.iter().map(rank).collect::<Vec<_>>(), (0..count).collect::<Vec<_>>(), "{run}: {:?}", names(run));
    for (i, h) in (0..).zip(&all) {
        h.check();
        assert_eq!(h.of(EventKind::Alloc).map(|e| e.bytes).max(), Some(30000 + i), "{run}: {}", h.path.display());
        assert_eq!(h.header().rank.get("WORLD_SIZE"), Some(&count.to_string()), "{run}");
        assert_eq!(h.header().rank.get("LOCAL_RANK"), Some(&i.to_string()), "{run}");
        assert_eq!(h.header().host, host());
        assert_eq!(h.footer().map(|f| f.by.as_str()), Some("launcher"), "{run}");
    }
    let pids: BTreeSet<u32> = all.iter().map(|h| h.header().pid).collect();
    assert!(pids.len() == all.len() && !pids.contains(&run.pid), "{run}: {pids:?}");
    assert!(run.remove_spools().is_empty(), "{run}");
    all
}

#[test]
fn one_history_a_rank() {
    for case in ["exec", "spawn", "fork"] {
        let bare = ranks(case).run(Mode::Bare);
        bare.assert_success();
        let run = ranks(case).launched(&["--trace", "%h-%r-%p.jsonl"]).run(Mode::Bare);
        run.assert_same(&bare);
        let all = by_rank(&run, 3);
        let expected = all.iter().zip(0..).map(|(h, i)| format!("{}-{i}-{}.jsonl", host(), h.header().pid));
        assert_eq!(names(&run), expected.collect(), "{run}");
        // Each is summed up with its rank.
        for i in 0..3 {
            assert!(run.stderr.contains(&format!(", rank {i} of 3)")), "{run}: {}", run.stderr);
        }
    }
}

/// Whatever a variable says in place of a number, the history stays in its folder.
#[test]
fn a_rank_that_is_no_number() {
    for rank in ["../../elsewhere", "/", "-1", "1 2", "99999999999999999999"] {
        let program = Program::new("basics_drv", Link::Driver).arg("plain");
        let run = program.launched(&["--trace", "rank%r-%p.jsonl"]).env("RANK", rank).run(Mode::Bare);
        let names = names(&run);
        let name = format!("rank{}-", rank.replace('/', "_"));
        assert!(names.len() == 1 && names.iter().all(|n| n.starts_with(&name)), "{run}: {names:?} {}", run.stderr);
    }
}

/// By the default name alone nothing is lost or written over, nor by one name for all.
#[test]
fn names_without_a_rank() {
    for flags in [&[][..], &["--trace", "all.jsonl"]] {
        by_rank(&ranks("exec").launched(flags).run(Mode::Bare), 3);
    }
}

#[test]
fn the_default_name_of_a_rank() {
    // A launcher that starts `vramscope run` itself: srun, mpirun.
    for variable in ["RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"] {
        let program = Program::new("basics_rt", Link::Runtime13).arg("plain").env(variable, "7");
        let run = program.launched(&[]).run(Mode::Bare);
        run.assert_success();
        let history = &run.histories()[0];
        let expected = format!("vramscope-basics_rt-cudart13-rank7-{}-{}.jsonl", host(), history.header().pid);
        assert_eq!(names(&run), BTreeSet::from([expected]), "{run}");
    }
}

/// A launcher under `vramscope run`: torchrun, accelerate.
#[test]
fn the_default_name_under_a_launcher() {
    let run = ranks("exec").launched(&[]).run(Mode::Bare);
    let expected = by_rank(&run, 3);
    let expected = expected.iter().zip(0..);
    let expected = expected.map(|(h, i)| format!("vramscope-ranks-rank{i}-{}-{}.jsonl", host(), h.header().pid));
    assert_eq!(names(&run), expected.collect(), "{run}");
}

#[test]
fn a_killed_rank_leaves_its_history() {
    for case in ["exec", "spawn", "fork"] {
        let program = ranks(case).env("DIES", "1");
        let bare = program.run(Mode::Bare);
        assert!(bare.stdout.contains("rank 1: exited 0 with 0, signal 9") && bare.status.code() == Some(1), "{bare}");
        let run = program.launched(&["--trace", "%r-%p.jsonl"]).run(Mode::Bare);
        run.assert_same(&bare);
        let ends = by_rank(&run, 3).iter().map(|h| h.footer().expect("just seen").end.clone()).collect::<Vec<_>>();
        assert_eq!(ends, ["exit", "killed", "exit"], "{run}");
    }
}

/// Python's own ways of starting processes, with helpers of each rank as a DataLoader has them.
#[test]
fn ranks_of_python() {
    for case in ["subprocess", "spawn", "fork", "forkserver"] {
        let script = root().join("tests/programs/python/ranks.py");
        let program = Program::at("/usr/bin/env".as_ref()).arg("python3").arg(script).arg(case);
        let bare = program.run(Mode::Bare);
        bare.assert_success();
        let run = program.launched(&["--trace", "%r-%p.jsonl"]).run(Mode::Bare);
        run.assert_same(&bare);
        let all = by_rank(&run, 2);
        assert_eq!(names(&run), all.iter().zip(0..).map(|(h, i)| format!("{i}-{}.jsonl", h.header().pid)).collect());
    }
}

/// What launchers say of a job is in the header, and the innermost of them names the rank.
#[test]
fn the_header_has_what_launchers_say() {
    let mut program = Program::new("basics_rt", Link::Runtime13).arg("plain");
    let said = [
        ("OMPI_COMM_WORLD_RANK", "1"),
        ("OMPI_COMM_WORLD_SIZE", "4"),
        ("PMIX_RANK", "1"),
        ("SLURM_PROCID", "0"),
        ("SLURM_NTASKS", "2"),
        ("SLURM_JOB_ID", "7701"),
        ("TORCHELASTIC_RUN_ID", "none"),
    ];
    for (name, value) in said {
        program = program.env(name, value);
    }
    let run = program.launched(&["--trace", "%r.jsonl"]).run(Mode::Bare);
    run.assert_success();
    assert_eq!(names(&run), BTreeSet::from(["1.jsonl".to_string()]), "{run}");
    let histories = run.histories();
    let header = histories[0].header();
    for (name, value) in said {
        assert_eq!(header.rank.get(name).map(String::as_str), Some(value), "{name}");
    }
    let known = (header.rank(), header.world(), header.job());
    assert_eq!(known, (Some("1"), Some(("OMPI_COMM_WORLD_SIZE", "4")), Some("7701")), "{run}");
}
