//! What a program can ask and tell: the C API of include/vramscope.h, in a program that looks its functions up.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::process::Command;

use crate::support::build::root;
use crate::support::{History, Link, Mode, Program, Run, program};
use vramscope_core::event::{Event, EventKind, Memory};
use vramscope_core::trace::Line;

/// On devices of 1 GiB, of which a context takes 256 MiB.
fn api(case: &str) -> Program {
    Program::new("api", Link::Driver).arg(case).env("SIMGPU_MEMORY_MB", "1024").env("SIMGPU_CONTEXT_MB", "256")
}

fn said(run: &Run) -> Vec<&str> {
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
    let list = python.split("for name in (").nth(1).and_then(|t| t.split(')').next()).unwrap();
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
fn a_limit_that_the_program_sets() {
    for mode in [Mode::Pooled, Mode::Recording] {
        let run = api("limit").talks().run(mode);
        assert_eq!(
            said(&run),
            [
                "limited: 40 of 100 free, the device 100",
                "cuMemAlloc(&b, 60 * MB) = 2",
                "freed: 100 of 100 free, the device 100",
                "cuMemAlloc(&b, 80 * MB) = 0",
                "full: 20 of 100 free, the device 100",
                "cuMemAlloc(&c, 30 * MB) = 2",
                "cuMemAlloc(&c, 30 * MB) = 0",
                "a quarter: 256 of 256 free, the device 256",
                "cuMemAlloc(&c, 200 * MB) = 0",
                "none: 1024",
            ],
            "{run}"
        );
        let history = run.history();
        let limits = history.lines.iter().filter_map(|l| if let Line::Oom(o) = l { o.limit.clone() } else { None });
        let limits: Vec<(u64, String)> = limits.map(|l| (l.bytes >> 20, l.by)).collect();
        assert!(!limits.is_empty() && limits.iter().all(|l| *l == (100, "set_limit()".into())), "{run}: {limits:?}");
        assert!(run.stderr.contains("100 MiB by set_limit(), "), "{run}: {}", run.stderr);
        let codes: BTreeSet<u16> = history.of(EventKind::AllocFailed).map(|e| e.code).collect();
        assert_eq!(codes, BTreeSet::from([2]));
    }
}

#[test]
fn a_limit_that_is_set() {
    let ran = |limit: &str| {
        let run = api("set").env("SIMGPU_DEVICES", "2").env("VRAMSCOPE_LIMIT", limit).talks().run(Mode::Pooled);
        said(&run).join("\n")
    };
    let whole = "device 0: 1024 MiB, info 1024 MiB, 250 MiB = 0, limit 0 MiB";
    let second = |text: &str| text.replace("device 0", "device 1");
    let small = "device 0: 200 MiB, info 200 MiB, 250 MiB = 2, limit 200 MiB";
    let half = "device 0: 512 MiB, info 512 MiB, 250 MiB = 0, limit 512 MiB";
    assert_eq!(ran(""), format!("{whole}\n{}", second(whole)));
    assert_eq!(ran("200MiB"), format!("{small}\n{}", second(small)));
    assert_eq!(ran("50%"), format!("{half}\n{}", second(half)));
    assert_eq!(ran("0:200MiB,1:50%"), format!("{small}\n{}", second(half)));
    assert_eq!(ran("1:200MiB"), format!("{whole}\n{}", second(small)));
    assert_eq!(ran("200MiB,1:50%"), format!("{small}\n{}", second(half)));
    assert_eq!(ran("none"), ran(""));
    let run = api("set").env("SIMGPU_DEVICES", "2").env("VRAMSCOPE_LIMIT", "200MiB").talks().run(Mode::Pooled);
    assert!(run.stderr.contains("200 MiB by VRAMSCOPE_LIMIT, "), "{}", run.stderr);
    // Wrong: said, and no limit.
    let missing = api("set").env("SIMGPU_DEVICES", "2").env("VRAMSCOPE_LIMIT", "7:200MiB").talks().run(Mode::Pooled);
    assert_eq!(missing.stderr.matches("VRAMSCOPE_LIMIT: there is no device 7;").count(), 1, "{}", missing.stderr);
    assert_eq!(ran("much"), format!("{whole}\n{}", second(whole)));
    // A limit above what there is is none.
    assert_eq!(ran("100GiB").matches("1024 MiB, info 1024 MiB").count(), 2);
}

/// Texts of marks and regions, in their order, each with its thread: `+name`, `-name`, `!mark`, `a5` for 5 MiB, `f`.
fn labels(history: &History) -> Vec<String> {
    let (mut texts, mut open) = (HashMap::new(), HashMap::new());
    let mut all = Vec::new();
    for line in &history.lines {
        match line {
            Line::Text(t) => drop(texts.insert(u64::from(t.text), t.value.clone())),
            Line::Event(_, e) => match e.kind {
                EventKind::RegionBegin => {
                    let name = texts.get(&e.extra[0]).expect("its text comes before").clone();
                    all.push(format!("+{name}"));
                    assert!(open.insert(e.id, name).is_none());
                }
                EventKind::RegionEnd => all.push(format!("-{}", open.remove(&e.id).expect("an open region"))),
                EventKind::Pause => all.push("(".to_owned()),
                EventKind::Resume => all.push(")".to_owned()),
                EventKind::Mark => all.push(format!("!{}", texts[&e.extra[0]])),
                EventKind::Alloc => all.push(format!("a{}", e.bytes >> 20)),
                EventKind::Free => all.push("f".to_owned()),
                _ => {}
            },
            _ => {}
        }
    }
    all
}

#[test]
fn marks_and_regions() {
    let run = api("labels").run(Mode::Pooled);
    said(&run);
    let long = format!("+{}", "x".repeat(232));
    let all = labels(&run.history());
    let expected = [
        "+early",
        "!epoch 3",
        "+outer",
        "+inn\"er é",
        "a1",
        "-inn\"er é",
        "!epoch 3",
        "+other thread",
        "a1",
        "-other thread",
        "-outer",
        "+first",
        "+second",
        "f",
        "-first",
        "a3",
        "-second",
        &long,
        "a5",
        &long.replace('+', "-"),
        "-early",
    ];
    assert_eq!(all, expected);
    let history = run.history();
    let begun: Vec<&Event> = history.of(EventKind::RegionBegin).collect();
    assert!(begun.iter().all(|e| e.extra[1] > 0 && e.extra[2] == 0), "each was open before its line");
    let texts = history.lines.iter().filter(|l| matches!(l, Line::Text(_))).count();
    assert_eq!(texts, 8, "each text once, and none of regions in which nothing was");
    let notes = history.lines.iter().filter(|l| matches!(l, Line::Note(n) if n.message.contains("64 regions at once")));
    assert_eq!(notes.count(), 1);
}

#[test]
fn a_region_in_which_nothing_is_costs_little() {
    let run = api("cost").run(Mode::Pooled);
    said(&run);
    println!("{}", run.stderr);
    assert_eq!(run.history().of(EventKind::RegionBegin).count(), 0);
}

#[test]
fn a_pause() {
    let run = api("pause").talks().run(Mode::Pooled);
    said(&run);
    let history = run.history();
    let stacks: Vec<(u64, bool)> = history.of(EventKind::Alloc).map(|e| (e.bytes >> 20, e.stack != 0)).collect();
    assert_eq!(
        stacks,
        [(7, false), (1, true), (3, false), (5, true)],
        "what the driver gives is recorded, without stacks"
    );
    assert_eq!(labels(&history), ["(", "a7", ")", "a1", "(", "a3", "f", ")", "a5", "!seen"], "and when it was");
    let snapshot = History::read(&run.folder.path().join("paused.snapshot"));
    let kinds = snapshot.lines.iter().filter_map(|l| if let Line::Live(_, e) = l { Some(e.kind) } else { None });
    let told: Vec<EventKind> = kinds.filter(|k| matches!(k, EventKind::Pause | EventKind::Resume)).collect();
    assert_eq!(told, [EventKind::Pause, EventKind::Resume], "what lives may not be all");
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

// ---- Python ------------------------------------------------------------------------------------------------------------

fn python(script: &str) -> Program {
    Program::at(std::path::Path::new("/usr/bin/env"))
        .arg("python3")
        .arg(root().join("tests/programs/python").join(script))
        .env("PYTHONPATH", root().join("python"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("SIMGPU_MEMORY_MB", "1024")
        .env("SIMGPU_CONTEXT_MB", "256")
}

#[test]
fn from_python_without_the_library() {
    let run = python("api_absent.py").run(Mode::Bare);
    assert_eq!(said(&run), ["harmless"], "{}", run.stderr);
    let run = python("api_absent.py").env("VRAMSCOPE", "off").unhooked().run(Mode::Pooled);
    assert_eq!(said(&run), ["harmless"], "{}", run.stderr);
}

/// The pluggable allocator of PyTorch, with a stand-in of it.
#[test]
fn for_pytorch_in_code() {
    let folder = root().join("tests/programs/python/frameworks");
    let path = format!("{}:{}", root().join("python").display(), folder.display());
    let program = python("api_torch.py").env("PYTHONPATH", path).unhooked();
    let run = program.run(Mode::Pooled);
    assert_eq!(said(&run), ["done"], "{}", run.stderr);
    let run = program.arg("absent").run(Mode::Bare);
    assert_eq!(said(&run), ["done"], "{}", run.stderr);
}

#[test]
fn from_python() {
    let run = python("api_calls.py").talks().unchecked().run(Mode::Pooled);
    assert_eq!(said(&run), ["done"], "{}", run.stderr);
    let path = run.folder.path().join("live.jsonl.zst");
    let report = Command::new(env!("CARGO_BIN_EXE_vramscope")).arg("report").arg(&path).output().expect("the command");
    let text = String::from_utf8_lossy(&report.stdout);
    assert!(text.contains("api_calls.py"), "{text}");
    let mine = fs::read_dir(run.folder.path()).expect("the folder").flatten().map(|e| e.path());
    let name = format!("-{}.jsonl", run.pid);
    let whole = mine.filter(|p| p.to_string_lossy().ends_with(&name)).map(|p| History::read(&p)).next();
    whole.expect("its history").check();
}

#[test]
fn regions_from_python() {
    let run = python("api_regions.py").run(Mode::Pooled);
    assert_eq!(said(&run), ["done"], "{}", run.stderr);
    assert_eq!(
        labels(&run.history()),
        [
            "+step",
            "+forward",
            "a1",
            "-forward",
            "+raises",
            "a1",
            "-raises",
            "!after",
            "-step",
            "+decorated",
            "a1",
            "+decorated",
            "a1",
            "-decorated",
            "-decorated",
            "+one",
            "a1",
            "-one",
            "+two",
            "a1",
            "-two",
        ]
    );
}
