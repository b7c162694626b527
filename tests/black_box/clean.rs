//! Programs that do not use CUDA do not notice the library, and what the library is made of.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::{Mode, Program, history, hooks, vramscope_library};

/// No file, no message, no thread, nothing in /dev/shm.
fn untouched(program: &Program) {
    let bare = program.run(Mode::Bare);
    bare.assert_success();
    let run = program.clone().unhooked().run(Mode::Pooled);
    run.assert_same(&bare);
    assert_eq!(run.stderr, bare.stderr, "{run}");
    let mut files: Vec<String> = fs::read_dir(run.folder.path())
        .expect("the folder")
        .flatten()
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .collect();
    files.sort();
    assert_eq!(files, ["stderr", "stdout"], "{run}");
    assert!(history::spools_of(run.pid, run.folder.path()).is_empty(), "{run} left a spool");
}

#[test]
fn programs_without_cuda() {
    untouched(&Program::at(Path::new("/bin/true")));
    untouched(&Program::at(Path::new("/bin/sh")).arg("-c").arg(":"));
    untouched(&Program::at(Path::new("/bin/bash")).arg("-c").arg(":; (exit 3); echo $?"));
    untouched(&Program::at(Path::new("/bin/ls")).arg("/"));
}

/// Threads are counted by the program itself, and what a fork and an exception of it do is as ever.
#[test]
fn python_without_cuda() {
    let python = Path::new("/usr/bin/env");
    untouched(&Program::at(python).arg("python3").arg("-c").arg("1"));
    untouched(
        &Program::at(python).arg("python3").arg("-c").arg("import os; print(len(os.listdir('/proc/self/task')))"),
    );
    untouched(&Program::at(python).arg("python3").arg("-c").arg(
        "import ctypes, subprocess, sys\nprint(ctypes.CDLL(None).abs(-3))\nprint(subprocess.run(['/bin/echo', 'x']).returncode)\n",
    ));
}

/// The driver is there and looked for, but never asked for memory.
#[test]
fn a_look_at_the_driver_alone() {
    let code = "import ctypes\nd = ctypes.CDLL('libcuda.so.1')\nn = ctypes.c_int()\nprint(d.cuInit(0), d.cuDeviceGetCount(ctypes.byref(n)), n.value)\n";
    untouched(&Program::at(Path::new("/usr/bin/env")).arg("python3").arg("-c").arg(code));
}

fn tool(name: &str, arguments: &[&str], path: &Path) -> String {
    let out = Command::new(name).args(arguments).arg(path).output().unwrap_or_else(|e| panic!("{name}: {e}"));
    assert!(out.status.success(), "{name} failed: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// A library that is not there would stop every program from starting; a CUDA of our own would be the wrong one.
#[test]
fn needs_only_the_c_library() {
    let dynamic = tool("readelf", &["-dW"], vramscope_library());
    let needed: Vec<&str> =
        dynamic.lines().filter(|l| l.contains("(NEEDED)")).filter_map(|l| l.split(['[', ']']).nth(1)).collect();
    assert!(!needed.is_empty());
    for library in &needed {
        let of_libc = [
            "libc.so.6",
            "libm.so.6",
            "libdl.so.2",
            "libpthread.so.0",
            "ld-linux-x86-64.so.2",
            "ld-linux-aarch64.so.1",
        ];
        assert!(of_libc.contains(library), "{needed:?}");
    }
    assert!(dynamic.contains("libvramscope.so"), "no soname");
}

/// What is exported is the list of hooks and no more, and no name has a version: torch asks for
/// `cudaMalloc@libcudart.so.13`, and a version of ours would be passed over.
#[test]
fn exports_the_hooks_and_nothing_else() {
    let symbols = tool("nm", &["-D", "--defined-only"], vramscope_library());
    let exported: BTreeSet<String> =
        symbols.lines().filter_map(|l| l.split_whitespace().nth(2)).map(str::to_owned).collect();
    let mut expected: BTreeSet<String> = hooks::driver_names().into_iter().chain(hooks::runtime_names()).collect();
    expected.extend(["dlsym", "dlclose", "__register_frame", "__deregister_frame"].map(str::to_owned));
    // PyTorch's report of its tensors, and of out of memory.
    let c10 = [
        "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE",
        "_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE",
    ];
    expected.extend(c10.map(str::to_owned));
    expected.extend(hooks::api_names());
    // What NVTX's header, and before it its library, calls.
    expected.extend(["InitializeInjectionNvtx2", "InitializeInjectionNvtx"].map(str::to_owned));
    let more: Vec<&String> = exported.difference(&expected).collect();
    let fewer: Vec<&String> = expected.difference(&exported).collect();
    assert!(more.is_empty() && fewer.is_empty(), "exported but not hooks: {more:?}; hooks but not exported: {fewer:?}");
    assert!(exported.iter().all(|n| !n.contains('@')), "versioned names");
}

/// Without debug information, as it is shipped, 8 MB are enough. (A release build is smaller still.)
#[test]
fn is_small() {
    let folder = tempfile::tempdir().expect("a folder");
    let copy = folder.path().join("libvramscope.so");
    fs::copy(vramscope_library(), &copy).expect("a copy");
    tool("strip", &["--strip-debug"], &copy);
    let bytes = fs::metadata(&copy).expect("the copy").len();
    assert!(bytes < 8_000_000, "{bytes} bytes");
}

/// Static constructors run in every program: Rust's own, and none of ours.
#[test]
fn has_no_constructor() {
    let sections = tool("readelf", &["-SW"], vramscope_library());
    let array = sections.lines().find(|l| l.contains(".init_array")).unwrap_or_default();
    let words: Vec<&str> = array.split_whitespace().collect();
    // [nr] name type address offset size
    let size = words.iter().position(|w| *w == "INIT_ARRAY").and_then(|i| words.get(i + 3)).map_or("0", |w| *w);
    let pointers = u64::from_str_radix(size, 16).expect("a size") / 8;
    // gcc's frame_dummy, and std's one that keeps argc and argv.
    assert!(pointers <= 2, "{pointers} constructors: {array}");
}
