//! Which files are meant: histories by name, and those in folders.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use vramscope_core::trace::read::{ReadError, ReadErrorKind, Reader};

/// The histories that these paths name, in order, each once. Of a folder: what is named like a history, without the
/// older parts of rotated ones (which are read with their newer part).
pub fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut found: Vec<PathBuf> = Vec::new();
    for path in paths {
        if !path.is_dir() {
            found.push(path.clone());
            continue;
        }
        let inside = in_folder(path)?;
        if inside.is_empty() {
            bail!("{}: no history in it (a .jsonl or .jsonl.zst file)", path.display());
        }
        found.extend(inside);
    }
    let mut once = Vec::new();
    found.retain(|path| {
        let same = std::fs::canonicalize(path).unwrap_or_else(|_| path.clone());
        let new = !once.contains(&same);
        once.push(same);
        new
    });
    Ok(found)
}

/// The histories in a folder, in order.
pub fn in_folder(path: &Path) -> Result<Vec<PathBuf>> {
    let mut inside = Vec::new();
    for entry in std::fs::read_dir(path).with_context(|| path.display().to_string())? {
        let file = entry.with_context(|| path.display().to_string())?.path();
        if is_history(&file) && file.is_file() && !is_another(&file) {
            inside.push(file);
        }
    }
    inside.sort();
    Ok(inside)
}

fn is_history(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let history = name.ends_with(".jsonl") || name.ends_with(".jsonl.zst");
    history && !name.starts_with('.')
}

/// Whether it is some other program's file of lines, as may lie beside histories. One that cannot be read is no such
/// file: it may be a rank.
fn is_another(path: &Path) -> bool {
    // A rank that was killed within its first line begins as a history does.
    const OURS: &[u8] = b"{\"kind\":\"header\"";
    let mut head = Vec::new();
    let read = std::fs::File::open(path).and_then(|f| f.take(OURS.len() as u64).read_to_end(&mut head));
    if read.is_ok() && OURS.starts_with(&head) {
        return false;
    }
    matches!(Reader::open(path), Err(ReadError { kind: ReadErrorKind::NotHistory, .. }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histories_of_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["b.jsonl", "a.jsonl.zst", "a.jsonl.1", "notes.txt", ".x.jsonl"] {
            std::fs::write(at(name), "").unwrap();
        }
        std::fs::create_dir(at("c.jsonl")).unwrap();
        std::fs::write(at("metrics.jsonl"), "{\"loss\": 1.5}\n").unwrap();
        std::fs::write(at("cut.jsonl"), "{\"kind\":\"header\",\"format\":\"vramsc").unwrap();
        let all = files(&[folder.path().into(), at("b.jsonl"), at("gone.jsonl")]).unwrap();
        assert_eq!(all, [at("a.jsonl.zst"), at("b.jsonl"), at("cut.jsonl"), at("gone.jsonl")]);
        let empty = tempfile::tempdir().unwrap();
        assert!(files(&[empty.path().into()]).unwrap_err().to_string().contains("no history"));
    }
}
