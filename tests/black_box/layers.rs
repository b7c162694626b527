//! The rooms of the project and the arrows between them, as ARCHITECTURE.md has them: read from the manifests and the sources.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All Rust files below a folder.
fn sources(folder: &str) -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())).flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = fs::read_to_string(&path).expect("a source file");
                files.push((path, text));
            }
        }
    }
    assert!(!files.is_empty(), "{folder} is empty");
    files
}

/// A line without its comment. (A `//` inside a text hides the rest of the line as well: good enough here.)
fn code(line: &str) -> &str {
    line.split("//").next().unwrap_or_default()
}

/// None of the files below a folder names any of these.
fn never(folder: &str, names: &[&str]) {
    for (path, text) in sources(folder) {
        for (number, line) in text.lines().enumerate() {
            for name in names {
                assert!(
                    !code(line).contains(name),
                    "{}:{}: {folder} must not know {name}: {line}",
                    path.display(),
                    number + 1
                );
            }
        }
    }
}

/// Dependencies of a manifest, without those for tests and builds.
fn dependencies(manifest: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join(manifest)).expect("a manifest");
    let mut names = Vec::new();
    let mut inside = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            inside = line == "[dependencies]";
        } else if inside && !line.is_empty() && !line.starts_with('#') {
            names.push(line.split(['=', '.', ' ']).next().unwrap_or_default().to_owned());
        }
    }
    names
}

#[test]
fn the_pool_knows_nothing_of_cuda_events_or_files() {
    never("core/src/pool", &["crate::event", "crate::trace", "crate::record", "crate::api"]);
    never(
        "core/src/pool",
        &["super::super::", "std::fs", "std::io", "std::time", "std::thread::spawn", "libc::", "cuda", "CUresult"],
    );
}

#[test]
fn the_history_knows_events_only() {
    never("core/src/trace", &["crate::pool", "crate::record"]);
    let event = fs::read_to_string(root().join("core/src/event.rs")).expect("event.rs");
    for name in ["crate::pool", "crate::record", "crate::trace"] {
        assert!(!event.contains(name), "core/src/event.rs must not know {name}");
    }
}

#[test]
fn the_recorder_knows_no_pool() {
    never("core/src/record", &["crate::pool"]);
}

/// The core runs inside every program: few dependencies, no system calls of its own, nothing unsafe.
#[test]
fn the_core_is_small() {
    let allowed = ["serde", "serde_json", "zstd", "memchr"];
    let found = dependencies("core/Cargo.toml");
    assert!(found.iter().all(|d| allowed.contains(&d.as_str())), "core depends on {found:?}");
    never("core/src", &["libc::", "std::env", "std::process", "std::net"]);
}

/// The command reads histories and finishes them; it neither pools nor records.
#[test]
fn the_command_uses_no_pool_and_of_the_recorder_only_recover() {
    never("src", &["vramscope_core::pool", "vramscope_shim"]);
    for (path, text) in sources("src") {
        // What stands behind it are the tests of that file.
        let program = text.split("#[cfg(test)]").next().unwrap_or_default();
        for line in program.lines().map(code).filter(|l| l.contains("vramscope_core::record")) {
            let names = line.rsplit("record::").next().unwrap_or_default();
            for name in names.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|n| !n.is_empty()) {
                let allowed = ["recover", "recover_trace", "Recovered", "Spool"];
                assert!(allowed.contains(&name), "{}: the command must not use {name} of the recorder", path.display());
            }
        }
    }
}

#[test]
fn nothing_depends_on_the_shim() {
    for manifest in ["Cargo.toml", "core/Cargo.toml"] {
        assert!(!dependencies(manifest).iter().any(|d| d.contains("shim")), "{manifest}");
    }
    assert!(
        !dependencies("core/Cargo.toml").iter().any(|d| d.starts_with("vramscope")),
        "core stands on nothing of ours"
    );
    assert!(!dependencies("shim/Cargo.toml").iter().any(|d| d == "vramscope"), "the shim reaches for the command");
    never("shim/src", &["vramscope_cli"]);
}

/// The border of the shim is the border of what is unsafe.
#[test]
fn unsafe_code_is_in_the_shim_only() {
    // In two pieces, so that this file does not name it either.
    let word = concat!("un", "safe");
    for folder in ["core", "src", "tests", "benches"] {
        for (path, text) in sources(folder) {
            for (number, line) in text.lines().enumerate() {
                let line = code(line);
                let named = line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|w| w == word);
                assert!(!named, "{}:{}: {line}", path.display(), number + 1);
            }
        }
    }
    for file in ["core/src/lib.rs", "src/lib.rs", "src/main.rs"] {
        let text = fs::read_to_string(root().join(file)).expect("a source file");
        assert!(text.contains(&format!("#![forbid({word}_code)]")), "{file} does not forbid it");
    }
}

/// The C in the library is what Rust cannot say, and no more.
#[test]
fn one_c_file_in_the_shim() {
    let c: Vec<_> = fs::read_dir(root().join("shim/src"))
        .expect("shim/src")
        .flatten()
        .map(|e| e.path())
        .filter(|p| p.extension().is_some_and(|e| e == "c" || e == "h" || e == "cpp" || e == "S"))
        .collect();
    assert_eq!(c, [root().join("shim/src/shim.c")]);
}
