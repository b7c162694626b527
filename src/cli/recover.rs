//! `vramscope recover`: finishes the histories of programs that were killed.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use vramscope_core::record::{Recovered, recover_trace};
use vramscope_core::trace::read::Reader;

use super::say;
use super::spool::{self, Outcome, SpoolFile};
use crate::report::text::{bytes, count, plural};

/// Finishes histories.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A history, or a folder with spools (/dev/shm/vramscope.* of a run, or /dev/shm itself)
    #[arg(value_name = "FOLDER|TRACE")]
    pub path: PathBuf,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<ExitCode> {
    let metadata = std::fs::metadata(&args.path).with_context(|| args.path.display().to_string())?;
    if metadata.is_dir() { folder(&args.path) } else { trace(&args.path) }
}

fn folder(path: &Path) -> Result<ExitCode> {
    let mut folders = vec![path.to_path_buf()];
    // Also the folders of runs in it.
    if let Ok(entries) = std::fs::read_dir(path) {
        let run =
            |p: &PathBuf| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("vramscope.")) && p.is_dir();
        folders.extend(entries.flatten().map(|e| e.path()).filter(run));
    }
    let mut found = false;
    let mut failed = false;
    for folder in &folders {
        for file in spool::in_folder(folder).with_context(|| folder.display().to_string())? {
            found = true;
            match SpoolFile::read(&file).and_then(|s| s.finish(|_| None, "recover")) {
                Ok(outcome) => say::print(&format!("{}\n", told(&file, &outcome)))?,
                Err(e) => {
                    failed = true;
                    say::line(&format!("{e:#}; {} stays", file.display()));
                }
            }
        }
        // The folder of a run has nothing else in it, but for a link to the library.
        if folder.file_name().is_some_and(|n| n.to_string_lossy().starts_with("vramscope.")) {
            remove_run_dir(folder);
        }
    }
    if !found {
        say::print(&format!("{}: no spools, nothing to recover\n", path.display()))?;
    }
    Ok(if failed { ExitCode::from(2) } else { ExitCode::SUCCESS })
}

/// Removes the folder of a run whose launcher is gone, if no spool is left in it.
fn remove_run_dir(folder: &Path) {
    let launcher = folder.file_name().and_then(|n| n.to_str()).and_then(|n| n.split('.').nth(1));
    if launcher.is_some_and(|pid| Path::new("/proc").join(pid).exists()) {
        return;
    }
    if spool::in_folder(folder).is_ok_and(|left| left.is_empty()) {
        let _ = std::fs::remove_file(folder.join(super::preload::LIBRARY));
        let _ = std::fs::remove_dir(folder);
    }
}

fn trace(path: &Path) -> Result<ExitCode> {
    let header = Reader::open(path).map(|r| r.header().clone());
    let spool = match &header {
        Ok(h) if !h.spool.is_empty() => {
            SpoolFile::read(Path::new(&h.spool)).ok().filter(|s| s.pid().ok() == Some(h.pid))
        }
        // Killed before its first line was whole: only the spools' names help.
        Err(_) => by_trace(path),
        Ok(_) => None,
    };
    let Some(spool) = spool else {
        if let Err(e) = header {
            bail!("{e}");
        }
        let done = recover_trace(path, None, "recover").with_context(|| path.display().to_string())?;
        let gone = if done.was_whole { "" } else { " (its spool is gone: what was not yet written is lost)" };
        say::print(&format!("{}{gone}\n", finished(&done)))?;
        return Ok(ExitCode::SUCCESS);
    };
    let outcome = match spool.alive()? {
        true => Outcome::Alive(spool.pid()?),
        // The history may have been moved since.
        false if spool.trace()? != std::path::absolute(path)? => {
            Outcome::Finished(spool.finish_in(path, None, "recover")?)
        }
        false => spool.finish(|_| None, "recover")?,
    };
    say::print(&format!("{}\n", told(path, &outcome)))?;
    Ok(ExitCode::SUCCESS)
}

fn by_trace(path: &Path) -> Option<SpoolFile> {
    let path = std::path::absolute(path).ok()?;
    let shm = Path::new("/dev/shm");
    let runs = std::fs::read_dir(shm).ok()?.flatten().map(|e| e.path());
    let runs =
        runs.filter(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("vramscope.")) && p.is_dir());
    let folders = std::iter::once(shm.to_path_buf()).chain(runs);
    let mut spools =
        folders.filter_map(|f| spool::in_folder(&f).ok()).flatten().filter_map(|f| SpoolFile::read(&f).ok());
    spools.find(|s| s.trace().is_ok_and(|t| t == path))
}

fn told(file: &Path, outcome: &Outcome) -> String {
    match outcome {
        Outcome::Finished(r) => finished(r),
        Outcome::Alive(pid) => format!("{}: process {pid} still runs, left alone", file.display()),
        Outcome::Stream(to) => format!("{}: the history went to {}, which is no file", file.display(), to.display()),
        Outcome::Empty => format!("{}: held nothing", file.display()),
    }
}

fn finished(r: &Recovered) -> String {
    let path = r.path.display();
    if r.was_whole {
        return format!("{path}: is whole, {}", plural(r.footer.events, "event"));
    }
    let mut text = format!("{path}: finished, {} added to {}", plural(r.events_added, "event"), count(r.events_before));
    if r.bytes_cut > 0 {
        text += &format!(", {} of a cut line taken away", bytes(r.bytes_cut));
    }
    if r.footer.lost > 0 {
        text += &format!(", {} lost", plural(r.footer.lost, "event"));
    }
    if r.slots_damaged > 0 {
        text += &format!(", {} of the spool unreadable", plural(r.slots_damaged, "slot"));
    }
    text + match r.footer.end.as_str() {
        "exit" => "; the program had ended in good order",
        "killed" => "; the program was killed",
        "stopped" => "; recording had ended early",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::spool::tests::{DEAD, unwritten};

    #[test]
    fn a_folder_and_then_the_trace_again() {
        let outside = tempfile::tempdir().unwrap();
        let run_dir = outside.path().join(format!("vramscope.{DEAD}.00000000"));
        std::fs::create_dir(&run_dir).unwrap();
        let (spool, in_run) = unwritten(&run_dir, DEAD);
        let args = Args { path: outside.path().to_path_buf() };
        run(&args).unwrap();
        assert!(!spool.exists());
        let first = std::fs::read(&in_run).unwrap();
        run(&Args { path: in_run.clone() }).unwrap();
        assert_eq!(std::fs::read(&in_run).unwrap(), first);
    }

    #[test]
    fn what_cannot_be_recovered_is_said() {
        let outside = tempfile::tempdir().unwrap();
        let e = run(&Args { path: outside.path().join("none") }).unwrap_err();
        assert!(format!("{e:#}").contains("none: No such file"), "{e:#}");
        let empty = outside.path().join("empty.jsonl");
        std::fs::write(&empty, "").unwrap();
        let e = run(&Args { path: empty }).unwrap_err();
        assert!(format!("{e:#}").contains("line 1"), "{e:#}");
    }

    #[test]
    fn what_is_told() {
        let mut r = Recovered {
            path: "t.jsonl".into(),
            events_before: 1200,
            events_added: 1,
            bytes_cut: 40,
            ..Recovered::default()
        };
        r.footer.end = "killed".into();
        r.footer.lost = 2;
        assert_eq!(
            finished(&r),
            "t.jsonl: finished, 1 event added to 1,200, 40 B of a cut line taken away, 2 events lost; the program was killed"
        );
        assert_eq!(told(Path::new("spool.7.1"), &Outcome::Alive(7)), "spool.7.1: process 7 still runs, left alone");
    }
}
