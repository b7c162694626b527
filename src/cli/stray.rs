//! What processes of a run left outside of its run directory, which they could not use: they ran as another user, or in
//! a container that has no such folder. Only what names this run directory in its header is this run's.

use std::collections::{BTreeSet, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use vramscope_core::record::{Recovered, recover_trace};
use vramscope_core::trace::read::Reader;

use super::process::started;
use super::spool::{self, SpoolFile};

/// The spools of a run where the library puts them in the second place.
pub fn spools(run_dir: &Path) -> Vec<PathBuf> {
    let variable = |n| std::env::var_os(n).map(PathBuf::from);
    let mut places = BTreeSet::from([PathBuf::from("/dev/shm"), PathBuf::from("/tmp")]);
    places.extend(["XDG_RUNTIME_DIR", "TMPDIR"].into_iter().filter_map(variable));
    places.iter().flat_map(|place| spools_in(place, run_dir)).collect()
}

fn spools_in(place: &Path, run_dir: &Path) -> Vec<PathBuf> {
    let mut found = spool::in_folder(place).unwrap_or_default();
    found.retain(|path| {
        let by_hand = path.file_name().is_some_and(|n| n.as_bytes().starts_with(b"vramscope-spool."));
        by_hand && SpoolFile::read(path).and_then(|s| s.run_dir()).is_ok_and(|d| d.as_deref() == Some(run_dir))
    });
    found
}

/// A history that nobody told us of.
#[derive(Debug)]
pub struct Stray {
    /// Its file.
    pub path: PathBuf,
    /// Its process.
    pub pid: u32,
    /// Its spool; empty for a nameless one.
    pub spool: PathBuf,
}

impl Stray {
    /// Writes its last line. `None`: its process lives, or its spool is there and still to be used.
    pub fn finish(&self, status: Option<i32>) -> std::io::Result<Option<Recovered>> {
        let spooled = !self.spool.as_os_str().is_empty() && self.spool.symlink_metadata().is_ok();
        if spooled || started(self.pid).is_some() {
            return Ok(None);
        }
        recover_trace(&self.path, status, "launcher").map(Some)
    }
}

/// The histories of a run that lie where its pattern says and are not known: those whose spools were removed by their
/// own processes, which had ended in good order.
pub fn histories(trace: &OsStr, run_dir: &Path, since: SystemTime, known: &HashSet<PathBuf>) -> Vec<Stray> {
    let pattern = Path::new(trace);
    let (Some(folder), Some(name)) = (pattern.parent(), pattern.file_name()) else { return Vec::new() };
    let start = name.as_bytes().split(|b| *b == b'%').next().unwrap_or_default();
    // Without letters to fill in, a second process's file has a suffix before its extension.
    let start = start.strip_suffix(b".zst").unwrap_or(start);
    let start = start.strip_suffix(b".jsonl").unwrap_or(start);
    let since = since.checked_sub(Duration::from_secs(1)).unwrap_or(since);
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        // (The older part of a rotated history is read with it.)
        if !name.as_bytes().starts_with(start) || name.as_bytes().ends_with(b".1") || known.contains(&entry.path()) {
            continue;
        }
        let new = |m: std::fs::Metadata| m.is_file() && m.modified().is_ok_and(|t| t >= since);
        if !entry.metadata().is_ok_and(new) {
            continue;
        }
        let Ok(reader) = Reader::open(&entry.path()) else { continue };
        let header = reader.header();
        // A snapshot is of one of the programs, and no program's history.
        if header.is_snapshot() {
            continue;
        }
        if header.settings.get("VRAMSCOPE_RUN_DIR").is_some_and(|d| Path::new(d) == run_dir) {
            found.push(Stray { path: entry.path(), pid: header.pid, spool: PathBuf::from(&header.spool) });
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::spool::Outcome;
    use crate::cli::spool::tests::{DEAD, unwritten};

    #[test]
    fn only_spools_of_this_run_are_taken() {
        let folder = tempfile::tempdir().unwrap();
        let (path, _) = unwritten(folder.path(), DEAD);
        // (This spool says that its run directory is the folder it was made in.)
        let spool = folder.path().join("vramscope-spool.1.1");
        std::fs::rename(path, &spool).unwrap();
        std::fs::write(folder.path().join("vramscope-spool.2.2"), "no spool").unwrap();
        assert_eq!(spools_in(folder.path(), folder.path()), std::slice::from_ref(&spool));
        assert_eq!(spools_in(folder.path(), Path::new("/dev/shm/vramscope.1.2")), [] as [PathBuf; 0]);
        assert!(spools(folder.path()).is_empty());
    }

    #[test]
    fn a_history_without_a_spool_is_found_and_finished() {
        let folder = tempfile::tempdir().unwrap();
        let begun = SystemTime::now();
        let (path, trace) = unwritten(folder.path(), DEAD);
        let spool = SpoolFile::read(&path).unwrap();
        assert!(matches!(spool.finish(|_| None, "x").unwrap(), Outcome::Finished(_)));
        // As the library leaves it: without a footer.
        let text = std::fs::read_to_string(&trace).unwrap();
        let footer = text.trim_end().rfind('\n').unwrap() + 1;
        std::fs::write(&trace, &text[..footer]).unwrap();
        std::fs::write(folder.path().join("trace-2.jsonl"), "no history").unwrap();
        // A snapshot that it was asked for names the same run.
        let first = text.lines().next().unwrap().replacen("\"events_before\":0", "\"events_before\":5", 1);
        std::fs::write(folder.path().join("trace-3.jsonl"), first + "\n").unwrap();
        assert!(Reader::open(&folder.path().join("trace-3.jsonl")).unwrap().header().is_snapshot());
        let find = |pattern: &str, run_dir: &Path, known: &[&PathBuf]| {
            let known = known.iter().map(|p| p.to_path_buf()).collect();
            histories(folder.path().join(pattern).as_os_str(), run_dir, begun, &known)
        };
        assert!(find("other-%p.jsonl", folder.path(), &[]).is_empty());
        assert!(find("trace-%p.jsonl", Path::new("/another/run"), &[]).is_empty());
        assert!(find("trace-%p.jsonl", folder.path(), &[&trace]).is_empty());
        assert!(find("off", folder.path(), &[]).is_empty());
        for pattern in ["trace-%p.jsonl", "trace.jsonl.zst"] {
            let found = find(pattern, folder.path(), &[]);
            assert_eq!(found.len(), 1);
            let done = found[0].finish(Some(3)).unwrap().expect("its spool is gone");
            assert_eq!((done.path.as_path(), done.footer.status, done.footer.events), (trace.as_path(), Some(3), 5));
        }
        // While its spool is there it is left alone.
        std::fs::write(&path, "").unwrap();
        assert!(find("trace-%p.jsonl", folder.path(), &[])[0].finish(None).unwrap().is_none());
    }
}
