//! `vramscope run --pool on`: what CuPy is made to do by the file that Python runs at its start, in every Python there is,
//! also those whose frames are not read.

use crate::pythons::{Python, Tally, known, programs, strangers, with};
use crate::support::{Mode, Program, Run};

/// A script with the stand-ins of the frameworks, and with what `more` adds to PYTHONPATH.
fn script(python: &Python, name: &str, case: &str, more: &str) -> Program {
    let folder = programs();
    let path = format!("{}:{}/frameworks{more}", folder.display(), folder.display());
    python.script(name).arg(case).env("PYTHONPATH", path)
}

fn program(python: &Python, case: &str, more: &str) -> Program {
    script(python, "pool_on.py", case, more)
}

fn launched(program: &Program) -> Run {
    let run = program.launched(&["-q", "--pool", "on"]).run(Mode::Bare);
    run.assert_success();
    assert_eq!(run.stderr, "", "{run}");
    run
}

fn every(test: &str, body: impl Fn(&Python, &mut Tally)) {
    let all: Vec<&Python> = known().into_iter().chain(strangers()).collect();
    with(test, &all, body);
}

#[test]
fn cupy_gets_the_asynchronous_allocator() {
    every("cupy_gets_the_asynchronous_allocator", |python, tally| {
        for (case, broken, expected) in [
            ("plain", "", "['async 10', 'async 20', 'SourceFileLoader', None]\nout of memory (2000, -1, 0)\n"),
            ("looked for", "", "['async 10', 'async 20', 'SourceFileLoader', None]\nout of memory (2000, -1, 0)\n"),
            ("own", "", "['own 10', 'own 20', 'SourceFileLoader', None]\nown 2000\n"),
            ("plain", "async", "['usual 10', 'usual 20', 'SourceFileLoader', None]\nusual 2000\n"),
            ("plain", "import", "not imported: no CUDA\n"),
        ] {
            let run = launched(&program(python, case, "").env("BROKEN", broken));
            tally.check(run.stdout.ends_with(expected), || format!("{case} {broken}: {}", run.stdout));
            tally.check(run.stdout.contains("False False []\n"), || run.stdout.clone());
        }
    });
}

/// PyTorch's compiler records CUDA graphs without trees with the backend that was asked for; what the program sets stays, and
/// that it cannot work is said once.
#[test]
fn the_compiler_does_without_trees() {
    every("the_compiler_does_without_trees", |python, tally| {
        let compiled = |case| script(python, "compiled.py", case, "");
        let alone = "False cudaMallocAsync\nFalse\nf alone with 2 inputs\ng alone with 1 inputs\n1\n";
        tally.check(launched(&compiled("plain")).stdout == alone, || "with trees".to_owned());
        tally.check(launched(&compiled("never")).stdout == "False cudaMallocAsync\n", || {
            "without a compiler".to_owned()
        });
        let trees = "True\ntrees of f with 2 inputs\ntrees of g with 1 inputs\n1\n";
        let native = compiled("plain").env("PYTORCH_CUDA_ALLOC_CONF", "backend:native");
        let native = native.launched(&["-q", "--pool", "on"]).run(Mode::Bare);
        native.assert_success();
        let said = native.stderr.lines().count();
        tally.check(said == 1 && native.stderr.contains("keeps its own allocator"), || native.stderr.clone());
        tally.check(native.stdout == format!("False native\n{trees}"), || native.stdout.clone());
        let own = compiled("own").launched(&["-q", "--pool", "on"]).run(Mode::Bare);
        own.assert_success();
        tally.check(own.stdout == format!("False cudaMallocAsync\n{trees}"), || own.stdout.clone());
        let said = own.stderr.lines().filter(|l| l.starts_with("vramscope: pool on: ")).count();
        tally
            .check(said == 1 && own.stderr.contains("cudagraph_trees stays True as you set it"), || own.stderr.clone());
    });
}

/// A child without the preload keeps what CuPy has; one that looks at no environment has no hook.
#[test]
fn where_nothing_is_served_nothing_is_asked() {
    every("where_nothing_is_served_nothing_is_asked", |python, tally| {
        let run = launched(&program(python, "child", ""));
        tally.check(run.stdout.contains("'usual 10'") && run.stdout.contains("'async 10'"), || run.stdout.clone());
        let isolated =
            python.bare().arg("-E").arg("-c").arg(
                "import sys; print([type(f).__name__ for f in sys.meta_path if 'AfterImport' in type(f).__name__])",
            );
        tally.check(launched(&isolated).stdout == "[]\n", || "a hook with -E".to_owned());
        for flags in [&["--pool", "auto"][..], &["--pool", "on", "--off"]] {
            let run = program(python, "plain", "").launched(flags).run(Mode::Bare);
            let bare = run.stdout.contains("PYTORCH_CUDA_ALLOC_CONF None") && run.stdout.contains("'usual 10'");
            tally.check(bare && !run.stderr.contains("pool on"), || format!("{}{}", run.stdout, run.stderr));
        }
    });
}

#[test]
fn the_real_sitecustomize_runs() {
    every("the_real_sitecustomize_runs", |python, tally| {
        let more = format!(":{}/customized", programs().display());
        let run = launched(&program(python, "plain", &more));
        let once = run.stdout.matches("customized\n").count() == 1;
        tally.check(run.stdout.starts_with("customized\n") && once, || run.stdout.clone());
        tally.check(run.stdout.contains("'async 10'"), || run.stdout.clone());
    });
}

#[test]
fn it_says_whom_it_asks() {
    let python = known()[0];
    let run = program(python, "plain", "").launched(&["--pool", "on"]).run(Mode::Bare);
    let said = run.stderr.lines().filter(|l| l.starts_with("vramscope: pool on: ")).collect::<Vec<_>>();
    assert!(said.len() == 1 && said[0].contains("PyTorch (backend:cudaMallocAsync)"), "{said:?}");
    assert!(said[0].contains("torch.compile (triton.cudagraph_trees=False, by the same)"), "{said:?}");
    assert!(run.stdout.contains("PYTORCH_CUDA_ALLOC_CONF backend:cudaMallocAsync\n"), "{}", run.stdout);
    assert!(run.stdout.contains("XLA_PYTHON_CLIENT_ALLOCATOR cuda_async\n"), "{}", run.stdout);
    assert!(run.stdout.contains("XLA_PYTHON_CLIENT_PREALLOCATE false\n"), "{}", run.stdout);
    let conf = "expandable_segments:True,max_split_size_mb:128";
    let program = program(python, "plain", "").env("PYTORCH_ALLOC_CONF", conf);
    let run = program.env("VRAMSCOPE_POOL", "on").launched(&[]).run(Mode::Bare);
    assert!(run.stdout.contains("PYTORCH_ALLOC_CONF backend:cudaMallocAsync\n"), "{}", run.stdout);
    assert!(run.stderr.contains("expandable_segments:True is left out"), "{}", run.stderr);
    assert!(run.stderr.contains("VRAMSCOPE_MAX_SPLIT_SIZE=134217728"), "{}", run.stderr);
}
