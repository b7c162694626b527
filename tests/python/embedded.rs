//! Programs that have Python inside.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::notes::compare;
use crate::pythons::{Python, Tally, each, programs, three_ways};
use crate::support::build::{root, simgpu};
use crate::support::{Link, Mode, Program, program};

/// `embed.c` linked with this library.
fn linked(library: &Path) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let source = root().join("tests/programs/embed.c");
    let mut gcc = Command::new("gcc");
    gcc.args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-DLINKED", "-I"]).arg(root().join("tests/simgpu"));
    gcc.arg("-o").arg(folder.path().join("embed")).arg(source).arg("-Wl,--no-as-needed").arg(library);
    gcc.arg("-L").arg(simgpu()).args(["-l:libcuda.so.1", "-ldl", "-Wl,--allow-shlib-undefined"]);
    let out = gcc.output().expect("gcc");
    assert!(out.status.success(), "embed.c: {}", String::from_utf8_lossy(&out.stderr));
    folder
}

/// The program's script, three interpreters one after the other, compared.
fn embedded(path: &Path, library: &Path, python: &Python, tally: &mut Tally) {
    let mut folders = simgpu().as_os_str().to_owned();
    folders.push(":");
    folders.push(library.parent().unwrap_or(Path::new("/")));
    let program = python.environment(Program::at(path).arg(library).arg(programs().join("embedded.py")));
    let program = program.env("LD_LIBRARY_PATH", folders).env("PYTHONHOME", &python.prefix);
    let mut three_times = program.clone().arg("3");
    let bare = three_times.run(Mode::Bare);
    if !bare.status.success() {
        // 3.12.1, linked: `free(): invalid pointer` in the second Py_Initialize.
        tally.not_run.push(format!("three interpreters, one after the other: bare it ends with {}", bare.status));
        three_times = program.arg("1");
    }
    for run in three_ways(&three_times) {
        compare(&run, python, tally);
    }
}

/// The interpreter's library, if it is one that this program can load.
fn library(python: &Python, tally: &mut Tally) -> Option<PathBuf> {
    let loader = |p: &Path| fs::read(p).is_ok_and(|b| b.windows(15).any(|w| w == b"/lib64/ld-linux"));
    let found = python.library.clone().filter(|_| loader(&python.path));
    if found.is_none() {
        tally.not_run.push("it has no shared library that programs of this machine can load".to_owned());
    }
    found
}

/// Linked with libpython; the interpreter begins and ends three times.
#[test]
fn python_in_a_program() {
    each("python_in_a_program", |python, tally| {
        let Some(library) = library(python, tally) else { return };
        let folder = linked(&library);
        embedded(&folder.path().join("embed"), &library, python, tally);
    });
}

/// libpython in a scope of its own: its functions are found by no name.
#[test]
fn python_behind_dlopen() {
    each("python_behind_dlopen", |python, tally| {
        let Some(library) = library(python, tally) else { return };
        embedded(&program("embed", Link::Driver), &library, python, tally);
    });
}

/// A library that comes while other threads allocate, and goes again: nothing in it is called before it is ready or after.
#[test]
fn a_plugin_that_comes_and_goes() {
    each("a_plugin_that_comes_and_goes", |python, tally| {
        let Some(library) = library(python, tally) else { return };
        for case in ["loading", "unloaded"] {
            let program = Program::new("plugin_python", Link::Driver).arg(case).arg(&library).env("ONCE", "1");
            for run in python.environment(program).env("PYTHONHOME", &python.prefix).same(Mode::ALL) {
                tally.check(run.status.success(), || format!("{run} ended with {}", run.status));
            }
        }
    });
}
