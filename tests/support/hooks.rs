//! The list of hooked functions, as `shim/src/hooks.rs` and `shim/src/runtime.rs` have it; and of those that a program may
//! call, as `include/vramscope.h` declares them.

use std::fs;

use super::build::root;

fn names(file: &str, prefix: &str) -> Vec<String> {
    let source = fs::read_to_string(root().join("shim/src").join(file)).expect("the list of hooks");
    let mut names = Vec::new();
    for line in source.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        // `2 cuMemAlloc_v2(out: …) = …;`, `cuMemcpyAsync @ "rcx";`, `cuMemcpy_ptds;`
        let word = match words.as_slice() {
            ["none" | "0" | "1" | "2" | "3" | "4" | "5", name, ..] if name.contains('(') => name.split('(').next(),
            [name, "@", ..] => Some(*name),
            [name] => name.strip_suffix(';'),
            _ => None,
        };
        names.extend(
            word.filter(|w| w.starts_with(prefix) && w.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'))
                .map(str::to_owned),
        );
    }
    assert!(names.len() > 10, "{file} was not understood");
    names
}

/// Hooked names of the driver.
pub fn driver_names() -> Vec<String> {
    names("hooks.rs", "cu")
}

/// Labelled names of the runtime.
pub fn runtime_names() -> Vec<String> {
    names("runtime.rs", "cuda")
}

/// Functions for programs.
pub fn api_names() -> Vec<String> {
    let header = fs::read_to_string(root().join("include/vramscope.h")).expect("the header");
    let name = |line: &str| {
        let (before, _) = line.split_once('(').filter(|_| line.ends_with(");"))?;
        before.split([' ', '*']).next_back().filter(|n| n.starts_with("vramscope_")).map(str::to_owned)
    };
    let names: Vec<String> = header.lines().filter_map(name).collect();
    assert!(names.len() > 10, "the header was not understood");
    names
}
