//! What the tests of the formats share.

use std::path::PathBuf;

use super::{Format, Source, Target};
use crate::report::testing::Script;
use vramscope_core::trace::write;

/// The history of a script as a file, in a folder that lives as long as it is held.
pub fn file(script: &Script) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.jsonl");
    let mut text = Vec::new();
    script.lines.iter().for_each(|line| write::line(&mut text, line));
    std::fs::write(&path, text).unwrap();
    (folder, path)
}

/// What a format makes of a script, as text, and what it had to say.
pub fn exported(script: &Script, format: &impl Format, change: impl Fn(&mut Source)) -> (String, Vec<String>) {
    let (folder, path) = file(script);
    let mut source = Source::open(&path, &[]).unwrap();
    change(&mut source);
    let out = folder.path().join("out");
    let notes = format.write(&mut source, &Target::Path(out.clone())).unwrap();
    (std::fs::read_to_string(&out).unwrap(), notes)
}
