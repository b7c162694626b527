//! The real PyTorch on the simulated GPU (`tests/simgpu/torch`). Half a gigabyte is not for every check: these run where
//! `VRAMSCOPE_TEST_TORCH` names a Python that has the CUDA build.

use std::path::Path;
use std::process::{Command, Output};

use crate::support::build::{profile_dir, root};
use crate::support::vramscope_library;

/// `run.sh`, with what it needs to be told; `None` without such a Python.
fn on_simgpu() -> Option<(Command, String)> {
    let Ok(python) = std::env::var("VRAMSCOPE_TEST_TORCH") else {
        println!("VRAMSCOPE_TEST_TORCH is not set");
        return None;
    };
    vramscope_library();
    let mut command = Command::new(root().join("tests/simgpu/torch/run.sh"));
    command.env("PYTHON", &python).env("BUILD", profile_dir().join("simtorch")).env("OMP_NUM_THREADS", "1");
    Some((command, python))
}

fn text(out: &Output) -> String {
    format!("{}\n{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}

#[test]
fn pytorch_does_under_vramscope_what_it_does_without() {
    let Some((mut command, _)) = on_simgpu() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    command.arg(root().join("scripts/gpu/pytorch.sh")).arg(folder.path().join("logs"));
    command.args(["transformer", "graphs", "expandable", "mistakes"]).env("MODES", "auto off on").env("LIMIT", "300");
    let out = command.env("VRAMSCOPE", env!("CARGO_BIN_EXE_vramscope")).output().expect("run.sh");
    assert!(out.status.success() && text(&out).contains(" 0 wrong, 0 skipped"), "{}", text(&out));
}

/// A script of `scripts/pytorch`, and what the verdict says of it, whoever gives out the tensors.
const VERDICTS: [(&str, &[&str]); 9] = [
    ("healthy", &["nothing wrong"]),
    ("healthy_habits", &["nothing wrong"]),
    ("kept_in_list", &["kept_in_list.py:23", "references kept"]),
    ("loss_with_graph", &["loss_with_graph.py:27", "graph retained"]),
    ("gradients_never_zeroed", &["gradients_never_zeroed.py:2", "gradients accumulating"]),
    ("gradient_penalty_kept", &["gradient_penalty_kept.py:26", "references kept"]),
    ("validation_without_no_grad", &["validation_without_no_grad.py:38", "graph retained (no_grad missing?)"]),
    ("retain_graph", &["retain_graph.py:26", "graph retained"]),
    ("cache_growing", &["cache_growing.py:23", "cache growing"]),
];

#[test]
fn mistakes_are_named_with_and_without_the_pool() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut wrong = Vec::new();
    for (script, words) in VERDICTS {
        for pool in ["auto", "on"] {
            let Some((mut command, python)) = on_simgpu() else { return };
            let trace = folder.path().join(format!("{script}-{pool}.jsonl"));
            command.args([env!("CARGO_BIN_EXE_vramscope"), "run", "--pool", pool, "--trace"]).arg(&trace);
            command.arg("--").arg(python).arg(root().join(format!("scripts/pytorch/{script}.py")));
            let out = command.output().expect("run.sh");
            assert!(out.status.success(), "{script} {pool}: {}", text(&out));
            let said = verdict(&trace);
            if !words.iter().all(|w| said.contains(w)) {
                wrong.push(format!("{script} {pool}: {said}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The report's verdict, on one line.
fn verdict(trace: &Path) -> String {
    let out = Command::new(env!("CARGO_BIN_EXE_vramscope")).arg("report").arg(trace).output().expect("the command");
    let said = text(&out);
    let lines = said.lines().skip_while(|l| !l.starts_with("  verdict")).take_while(|l| !l.starts_with("  peak"));
    lines.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
}
