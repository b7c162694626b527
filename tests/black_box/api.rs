//! What a program can ask and tell: the C API of include/vramscope.h, in a program that looks its functions up.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use crate::regions::labels;
use crate::support::build::root;
use crate::support::{Link, Mode, Program, Run, program};
use vramscope_core::event::{EventKind, Memory};

/// On devices of 1 GiB, of which a context takes 256 MiB.
pub fn api(case: &str) -> Program {
    Program::new("api", Link::Driver).arg(case).env("SIMGPU_MEMORY_MB", "1024").env("SIMGPU_CONTEXT_MB", "256")
}

pub fn said(run: &Run) -> Vec<&str> {
    run.assert_success();
    run.stdout.lines().collect()
}

fn header() -> String {
    fs::read_to_string(root().join("include/vramscope.h")).expect("the header")
}

fn declared() -> BTreeSet<String> {
    crate::support::hooks::api_names().into_iter().collect()
}

#[test]
fn the_header_compiles_as_c_and_as_cpp() {
    let folder = tempfile::tempdir().expect("a folder");
    for (compiler, standard, name) in [("gcc", "c11", "x.c"), ("g++", "c++17", "x.cpp")] {
        let source = folder.path().join(name);
        fs::write(&source, "#include \"vramscope.h\"\n#include \"vramscope.h\"\nint main(void) { vramscope_stats_t s; (void)s; return 0; }\n")
            .expect("a source");
        let mut c = Command::new(compiler);
        c.arg(format!("-std={standard}")).args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only", "-I"]);
        let out = c.arg(root().join("include")).arg(&source).output().expect(compiler);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    }
}

/// Header, library and Python package have the same numbers in the same order.
#[test]
fn one_structure() {
    let header = header();
    let body = header.split("typedef struct vramscope_stats_t {").nth(1).and_then(|t| t.split('}').next()).unwrap();
    let in_c: Vec<&str> = body.lines().filter_map(|l| l.trim().strip_prefix("uint64_t ")?.split(';').next()).collect();
    let capi = fs::read_to_string(root().join("shim/src/capi.rs")).unwrap();
    let list = capi.split("stats!(").nth(1).and_then(|t| t.split(')').next()).unwrap();
    let in_rust: Vec<&str> = list.split(',').map(str::trim).filter(|w| !w.is_empty()).collect();
    let python = fs::read_to_string(root().join("python/vramscope/_library.py")).unwrap();
    let list = python.split("NAMES = (").nth(1).and_then(|t| t.split(')').next()).unwrap();
    let in_python: Vec<&str> = list.split(',').map(|w| w.trim().trim_matches('"')).filter(|w| !w.is_empty()).collect();
    assert_eq!(in_c.len(), 14);
    assert_eq!(in_c, in_rust);
    assert_eq!(in_c, in_python);
    // Every function that Python calls is declared.
    for name in python.split('"').filter(|w| w.starts_with("vramscope_") && !w.contains(' ')) {
        assert!(declared().contains(name), "{name}");
    }
}

#[test]
fn absent_without_the_library() {
    // (PyTorch's pluggable interface is `tests/black_box/ordered.rs, pluggable`.)
    let names: BTreeSet<String> = declared().into_iter().filter(|n| !n.starts_with("vramscope_torch_")).collect();
    assert!(names.len() == 14, "{names:?}");
    let runs = [api("absent").run(Mode::Bare), api("absent").run(Mode::Pooled)];
    for (run, word) in runs.iter().zip(["absent", "there"]) {
        let expected: BTreeSet<String> = names.iter().map(|n| format!("{n} {word}")).collect();
        assert_eq!(said(run).into_iter().map(str::to_owned).collect::<BTreeSet<_>>(), expected);
    }
}

#[test]
fn before_cuda_is_used() {
    let run = api("early").run(Mode::Pooled);
    let version: Vec<u32> = env!("CARGO_PKG_VERSION").split('.').map(|n| n.parse().unwrap()).collect();
    let number = version[0] * 1_000_000 + version[1] * 1000 + version[2];
    assert_eq!(
        said(&run),
        [
            format!("active 1 version {number}").as_str(),
            "stats -1, reset, trim 0, limit of none -1",
            "failures 0",
            "stats 0, null -1, of no device -2 -2",
            "limits -1 -1 -1 -1",
        ]
    );
}

#[test]
fn what_is_in_use() {
    let pooled = api("stats").run(Mode::Pooled);
    assert_eq!(
        said(&pooled),
        [
            "plain: allocated 310 (310) reserved 310 (310) pool 10+0 tensors 0 hoarded 0 pinned 0, 2 allocations, 0 failures, limit 0",
            "all: allocated 330 (330) reserved 330 (330) pool 10+0 tensors 0 hoarded 0 pinned 2, 7 allocations, 0 failures, limit 0",
            "others gone: allocated 10 (330) reserved 10 (330) pool 10+0 tensors 0 hoarded 0 pinned 0, 7 allocations, 0 failures, limit 0",
            "new peaks: allocated 10 (10) reserved 10 (10) pool 10+0 tensors 0 hoarded 0 pinned 0, 7 allocations, 0 failures, limit 0",
            "all gone: allocated 0 (10) reserved 10 (10) pool 0+10 tensors 0 hoarded 0 pinned 0, 7 allocations, 0 failures, limit 0",
            "empty_cache 10",
            "empty: allocated 0 (10) reserved 0 (10) pool 0+0 tensors 0 hoarded 0 pinned 0, 8 allocations, 0 failures, limit 0",
        ]
    );
    // Without the pool nothing is kept.
    let recorded = api("stats").run(Mode::Recording);
    let expected: Vec<String> = said(&pooled)
        .into_iter()
        .map(|l| l.replace("pool 10+0", "pool 0+0").replace("reserved 10 (10) pool 0+10", "reserved 0 (10) pool 0+0"))
        .map(|l| l.replace("empty_cache 10", "empty_cache 0"))
        .collect();
    assert_eq!(said(&recorded), expected);
    // Without a history as well.
    let untold = api("stats").env("VRAMSCOPE_TRACE", "off").unhooked().run(Mode::Pooled);
    assert_eq!(said(&untold), said(&pooled));
}

#[test]
fn tensors_inside_a_librarys_own_cache() {
    program("c10", Link::PlainLibrary);
    program("c10_cuda", Link::OnC10);
    let run = api("tensors").run(Mode::Pooled);
    assert_eq!(
        said(&run),
        [
            "one: allocated 3 (4) reserved 4 (4) pool 2+0 tensors 1 hoarded 2 pinned 0, 3 allocations, 0 failures, limit 0",
            "two: allocated 13 (13) reserved 14 (14) pool 2+0 tensors 11 hoarded 12 pinned 0, 5 allocations, 0 failures, limit 0",
            "freed: allocated 3 (13) reserved 14 (14) pool 2+0 tensors 1 hoarded 12 pinned 0, 5 allocations, 0 failures, limit 0",
            "none: allocated 2 (13) reserved 14 (14) pool 2+0 tensors 0 hoarded 12 pinned 0, 5 allocations, 0 failures, limit 0",
            "paused: allocated 3 (13) reserved 14 (14) pool 2+0 tensors 1 hoarded 12 pinned 0, 6 allocations, 0 failures, limit 0",
            "freed after it: allocated 2 (13) reserved 14 (14) pool 2+0 tensors 0 hoarded 12 pinned 0, 6 allocations, 0 failures, limit 0",
            "context reset: allocated 2 (13) reserved 2 (14) pool 2+0 tensors 0 hoarded 0 pinned 0, 7 allocations, 0 failures, limit 0",
        ]
    );
    let tensors = |run: &Run| run.history().of(EventKind::Alloc).filter(|e| e.memory == Memory::Tensor).count();
    assert_eq!(tensors(&run), 2, "the one of the pause is counted, not recorded");
    let untold = api("tensors").env("VRAMSCOPE_TRACE", "off").unhooked().run(Mode::Pooled);
    assert_eq!(said(&untold), said(&run));
}

#[test]
fn a_snapshot() {
    let run = api("snapshot").talks().run(Mode::Pooled);
    assert_eq!(said(&run), ["snapshot 0, in no folder -1, null -1", "device -1, pipe -1, folder -1"]);
    assert_eq!(run.stderr.lines().count(), 5, "{}", run.stderr);
    assert_eq!(run.stderr.matches("is no regular file").count(), 3, "{}", run.stderr);
    assert!(!run.stderr.contains("os error"), "{}", run.stderr);
    let path = run.folder.path().join("live.snapshot");
    let report = Command::new(env!("CARGO_BIN_EXE_vramscope")).arg("report").arg(&path).output().expect("the command");
    let text = String::from_utf8_lossy(&report.stdout);
    assert!(text.contains("LIVE  4.00 MiB active") && text.contains("api.c:"), "{text}");
}

#[test]
fn called_when_memory_runs_out() {
    let run = api("oom").talks().run(Mode::Pooled);
    assert_eq!(said(&run), ["called: device 0, 2000 MiB", "cuMemAlloc(&p, 2000 * MB) = 2", "woken at 2"]);
}

#[test]
fn a_forked_child_is_not_watched() {
    let run = api("fork").talks().run(Mode::Pooled);
    assert_eq!(
        said(&run),
        ["child: active 0 stats -1 trim 0 limit -1 snapshot -1", "child ended with 0, parent: active 1"]
    );
    assert_eq!(labels(&run.history()), ["a1"]);
}

#[test]
fn switched_off() {
    for (name, value) in [("VRAMSCOPE", "off"), ("VRAMSCOPE_ONLY", "another")] {
        let run = api("off").env(name, value).talks().unhooked().run(Mode::Pooled);
        assert_eq!(said(&run), ["active 0 stats -1 limit -1 snapshot -1 region 0"]);
    }
}
