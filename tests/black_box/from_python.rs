//! `import vramscope`: the C API from Python, and without the preload.

use std::fs;
use std::process::Command;

use crate::api::said;
use crate::regions::labels;
use crate::support::build::root;
use crate::support::{History, Mode, Program};

pub fn python(script: &str) -> Program {
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
    // A Python that was built without ctypes, or a sub-interpreter that may not have it.
    let run = python("api_absent.py").arg("no-ctypes").unhooked().run(Mode::Pooled);
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

/// A child that is forked before CUDA is used may use it, and is watched like any other process; what was asked for before the fork
/// holds in it.
#[test]
fn a_child_forked_before_cuda_is_used() {
    let run = python("api_forked.py").talks().run(Mode::Pooled);
    assert_eq!(said(&run), ["done"], "{}", run.stderr);
    let histories = run.histories();
    assert_eq!(histories.len(), 2, "{:?}", run.traces());
    for h in histories {
        let who = if h.header().pid == run.pid { "parent" } else { "child" };
        assert_eq!(labels(&h), [format!("+{who}"), "a1".into(), format!("-{who}"), format!("!{who}")]);
    }
}
