//! `vramscope diff` and `vramscope merge` on histories of programs that really ran: another build of a program, whose code
//! and lines moved; the ranks of a job of which one was killed.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::build::program_at;
use crate::support::{Link, Mode, Program, Run};

fn vramscope(arguments: &[&str], paths: &[&Path]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vramscope"));
    command.env("VRAMSCOPE_CACHE", "off").args(arguments).args(paths).output().expect("the command")
}

fn text(out: &Output) -> String {
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// A program that holds `weights` and `forward` MiB at its peak. `more`: lines and code before its functions.
fn program(name: &str, forward: u32, more: &str) -> PathBuf {
    let folder = tempfile::tempdir().expect("a folder");
    let source = folder.path().join(format!("{name}.c"));
    let code = format!(
        r#"#line 1 "compare.c"
#include "common.h"
{more}
static __attribute__((noinline)) CUdeviceptr load_weights(void) {{
  CUdeviceptr p;
  MUST(cuMemAlloc(&p, 64 << 20));
  return p;
}}
static __attribute__((noinline)) CUdeviceptr forward(void) {{
  CUdeviceptr p;
  MUST(cuMemAlloc(&p, {forward} << 20));
  return p;
}}
int main(void) {{
  CUcontext c;
  MUST(cuInit(0));
  MUST(cuDevicePrimaryCtxRetain(&c, 0));
  MUST(cuCtxSetCurrent(c));
  CUdeviceptr weights = load_weights();
  for (int i = 0; i < 3; ++i) MUST(cuMemFree(forward()));
  MUST(cuMemFree(weights));
  return 0;
}}
"#
    );
    std::fs::write(&source, code).expect("a source file");
    program_at(&source, Link::Driver)
}

/// Its history, by the pool's library or without the pool.
fn ran(path: &Path) -> Run {
    let run = Program::at(path).run(Mode::Pooled);
    run.assert_success();
    run
}

#[test]
fn another_build_of_a_program() {
    let more = "\n\n/* A function more. */\nint added(int a);\nint added(int a) { for (int i = 0; i < a; ++i) a ^= i * a; return a; }\n";
    let (before, after) = (ran(&program("compare_before", 32, "")), ran(&program("compare_after", 96, more)));
    let (before, after) = (before.traces().remove(0), after.traces().remove(0));
    let out = vramscope(&["diff", "--json", "--fail-if-grew", "5%"], &[&before, &after]);
    assert_eq!(out.status.code(), Some(1), "{out:?}");
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    let stacks = json["stacks"].as_array().expect("stacks");
    assert_eq!(stacks.len(), 2, "{stacks:#?}");
    let first = |i: usize| (stacks[i]["frames"][0]["function"].as_str().unwrap_or(""), stacks[i]["change"].as_i64());
    assert_eq!((first(0), first(1)), (("forward", Some(64 << 20)), ("load_weights", Some(0))));
    assert!(stacks.iter().all(|s| s["match"] == "lines"), "{stacks:#?}");
    assert_eq!(json["failures"].as_array().map(Vec::len), Some(2));

    let svg = after.with_extension("svg");
    let out = vramscope(&["diff", "--flamegraph", &svg.display().to_string()], &[&before, &after]);
    assert!(out.status.success() && out.stderr.is_empty(), "{out:?}");
    let said = text(&out);
    assert!(said.contains("+64.0 MiB at the peak (+66.7 %, 96.0 MiB -> 160 MiB); 1 stack grew"), "{said}");
    assert!(said.contains("(before: ") && said.contains("GREW at the peak"), "{said}");
    assert!(std::fs::read_to_string(&svg).expect("an SVG").contains("forward"));
    // At the end both hold nothing, and nothing grew the other way round.
    let out = vramscope(&["diff", "--at", "end", "--fail-if-grew", "0"], &[&before, &after]);
    assert!(out.status.success() && text(&out).contains("the same at the end: 0 B"), "{}", text(&out));
    assert!(vramscope(&["diff", "--fail-if-grew", "0"], &[&after, &before]).status.success());
    let out = vramscope(&["diff", "--at", "epoch 3"], &[&before, &after]);
    assert!(
        out.status.code() == Some(2) && String::from_utf8_lossy(&out.stderr).contains("the history has no marks"),
        "{out:?}"
    );
}

#[test]
fn the_ranks_of_a_job_and_one_that_is_missing() {
    let program = Program::new("ranks", Link::Driver).arg("exec").env("DIES", "1");
    let run = program.launched(&["--trace", "%r-%p.jsonl"]).run(Mode::Bare);
    let traces = run.traces();
    assert_eq!(traces.len(), 3, "{run}");
    let folder = traces[0].parent().expect("a folder");
    std::fs::write(folder.join("metrics.jsonl"), "{\"loss\":1}\n").expect("another file");
    let out = vramscope(&["merge"], &[folder]);
    let said = text(&out);
    assert!(out.status.success() && out.stderr.is_empty(), "{out:?}");
    assert!(said.contains("3 ranks of 3 on 1 host") && said.contains("  killed\n"), "{said}");
    std::fs::remove_file(&traces[2]).expect("a rank less");
    let out = vramscope(&["merge", "--json"], &[folder]);
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    assert_eq!(json["missing"], serde_json::json!([2]), "{json}");
    assert_eq!(json["ranks"].as_array().map(Vec::len), Some(2));
    // What cannot be read is said, and the rest is shown.
    let out = vramscope(&["merge"], &[&traces[0], &folder.join("gone.jsonl")]);
    assert!(out.status.code() == Some(2) && text(&out).contains("RANKS"), "{out:?}");
    assert!(run.remove_spools().is_empty(), "{run}");
}

/// A number below zero is a value that is refused, not a flag that is not known; and so is a time before the start.
#[test]
fn a_number_below_zero_is_told_as_what_it_is() {
    let run = ran(&program("below", 8, ""));
    let trace = run.traces().into_iter().next().expect("a history");
    for command in ["report", "diff", "merge"] {
        let traces: &[&Path] = if command == "diff" { &[&trace, &trace] } else { &[&trace] };
        for flag in ["--top", "--frames"] {
            let out = vramscope(&[command, flag, "-3"], traces);
            let said = String::from_utf8_lossy(&out.stderr).into_owned();
            assert!(out.status.code() == Some(2) && said.contains("give a whole number"), "{command} {flag}: {said}");
        }
    }
    for arguments in
        [&["report", "--at", "-1s"][..], &["diff", "--at", "-1s"], &["export", "-f", "folded", "--at", "-1s"]]
    {
        let traces: &[&Path] = if arguments[0] == "diff" { &[&trace, &trace] } else { &[&trace] };
        let out = vramscope(arguments, traces);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.code() == Some(2) && said.contains("no mark \"-1s\""), "{arguments:?}: {said}");
    }
}
