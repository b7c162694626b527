//! A history as every command reads it: with what a spool still holds of it, if its program was killed. The files stay as they
//! are; what is read is then a finished copy.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use vramscope_core::record::Recovered;
use vramscope_core::trace::older_part;
use vramscope_core::trace::read::{ReadErrorKind, Reader};

use super::run_dir::RunDir;
use super::spool::SpoolFile;
use super::{recover, say};

/// A history's file, or a finished copy of it.
pub struct Whole {
    given: PathBuf,
    copy: Option<(RunDir, PathBuf)>,
}

impl Whole {
    /// The history of this name. What had to be done for it is said; what cannot be read at all is left to its reader.
    pub fn of(path: &Path) -> Whole {
        let as_it_is = Whole { given: path.to_path_buf(), copy: None };
        let header = match path.metadata() {
            // What is no file can be read once only.
            Ok(there) if !there.is_file() => return as_it_is,
            _ => Reader::open(path).map(|reader| reader.header().clone()),
        };
        let spool = match &header {
            Ok(header) => SpoolFile::of(header),
            // Killed before its first line was whole: a spool may hold all of it.
            Err(e) if matches!(e.kind, ReadErrorKind::Empty | ReadErrorKind::Io(_)) => recover::by_trace(path),
            _ => None,
        };
        let Some(spool) = spool else { return as_it_is };
        if spool.alive().unwrap_or(true) {
            let pid = spool.pid().unwrap_or_default();
            say::line(&format!("{}: process {pid} still runs: this is what it has written so far", path.display()));
            return as_it_is;
        }
        let from = spool.path().display();
        // The older part of one whose newer part was never begun: both are the same.
        let newer = recover::part_of(path, &spool);
        match finished_copy(newer.as_deref().unwrap_or(path), &spool) {
            Ok((folder, done)) => {
                let more = match done.events_added {
                    _ if header.is_err() => format!("holds no whole line: what is told comes from {from}"),
                    0 => "was never finished (nothing is missing)".to_string(),
                    1 => format!("was never finished: 1 event comes from {from}"),
                    n => format!("was never finished: {n} events come from {from}"),
                };
                say::line(&format!("{}: {more}; vramscope recover finishes it", path.display()));
                Whole { given: path.to_path_buf(), copy: Some((folder, done.path)) }
            }
            Err(e) => {
                say::line(&format!("{}: was never finished, and its spool cannot be used: {e:#}", path.display()));
                as_it_is
            }
        }
    }

    /// What to read.
    pub fn file(&self) -> &Path {
        self.copy.as_ref().map_or(&self.given, |(_, copy)| copy)
    }

    /// A text in which the copy has the name of the history.
    pub fn named(&self, text: &str) -> String {
        match &self.copy {
            Some((_, copy)) => text.replace(&copy.display().to_string(), &self.given.display().to_string()),
            None => text.to_owned(),
        }
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        if let Some((folder, _)) = &self.copy {
            folder.remove();
        }
    }
}

fn finished_copy(path: &Path, spool: &SpoolFile) -> Result<(RunDir, Recovered)> {
    let folder = RunDir::create_in([std::env::temp_dir()])?;
    match finish_copy(path, spool, folder.path()) {
        Ok(done) => Ok((folder, done)),
        Err(e) => {
            folder.remove();
            Err(e)
        }
    }
}

fn finish_copy(path: &Path, spool: &SpoolFile, folder: &Path) -> Result<Recovered> {
    let copy = folder.join(path.file_name().unwrap_or_default());
    let (older, beside) = (older_part(path), older_part(&copy));
    let duplicate = |from: &Path, to: &Path| std::fs::copy(from, to).with_context(|| to.display().to_string());
    match (path.exists(), older.exists()) {
        // Killed between the two steps of a rotation: a cut line of the only part there is goes.
        (false, true) => drop(duplicate(&older, &beside)?),
        // The older part of a rotated history is only read.
        (true, true) => {
            let target = std::path::absolute(older)?;
            std::os::unix::fs::symlink(target, &beside).with_context(|| beside.display().to_string())?;
            duplicate(path, &copy)?;
        }
        (true, false) => drop(duplicate(path, &copy)?),
        (false, false) => {}
    }
    spool.finish_in(&copy, None, "report")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::spool::tests::{DEAD, unwritten};
    use crate::cli::{Cli, Command};
    use crate::report::History;
    use clap::Parser;
    use vramscope_core::trace::{FORMAT, Header, Line, VERSION, write};

    /// Killed between the two steps of a rotation: both names mean all that there is.
    #[test]
    fn a_part_that_was_never_begun_is_not_missing() {
        let folder = tempfile::tempdir().unwrap();
        let (spool, trace) = unwritten(folder.path(), DEAD - 9);
        let line = SpoolFile::read(&spool).unwrap().header_line().unwrap();
        let mut header: Header = serde_json::from_slice(&line).unwrap();
        header.settings.insert("VRAMSCOPE_MAX_TRACE".into(), "64KiB".into());
        let mut text = Vec::new();
        write::line(&mut text, &Line::Header(header));
        let older = older_part(&trace);
        std::fs::write(&older, &text).unwrap();
        for given in [&trace, &older] {
            let whole = Whole::of(given);
            let history = History::read(whole.file()).unwrap();
            assert_eq!((history.events, history.damage), (5, None));
        }
        // Without the spool it is.
        std::fs::remove_file(&spool).unwrap();
        for given in [&trace, &older] {
            let damage = History::read(Whole::of(given).file()).unwrap().damage.unwrap();
            assert!(damage.contains("this last part of the history is missing"), "{damage}");
        }
    }

    #[test]
    fn an_unfinished_history_is_read_with_its_spool_and_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let (spool, trace) = unwritten(folder.path(), DEAD);
        let header = Header {
            format: FORMAT.into(),
            version: VERSION,
            pid: DEAD,
            spool: spool.display().to_string(),
            ..Header::default()
        };
        let mut text = Vec::new();
        write::line(&mut text, &Line::Header(header));
        std::fs::write(&trace, &text).unwrap();
        let whole = Whole::of(&trace);
        assert_eq!(History::read(whole.file()).unwrap().events, 5);
        assert_eq!(whole.named(&format!("{}:7", whole.file().display())), format!("{}:7", trace.display()));
        let copy = whole.file().to_owned();
        drop(whole);
        assert!(!copy.exists() && spool.exists());
        assert_eq!(std::fs::read(&trace).unwrap(), text);
        // Whatever reads it reads the same.
        let out = |name: &str| folder.path().join(name).display().to_string();
        let run = |words: &[&str]| {
            match Cli::try_parse_from([&["vramscope"], words].concat()).unwrap().command {
                Command::Export(args) => crate::cli::export::run(&args),
                Command::Symbolize(args) => crate::cli::symbolize::run(&args),
                _ => unreachable!(),
            }
            .unwrap()
        };
        let name = trace.display().to_string();
        run(&["export", &name, "-f", "rmm", "-o", &out("before.csv")]);
        run(&["symbolize", &name, "-o", &out("named.jsonl")]);
        let compared = crate::cli::diff::whole(&trace, &crate::diff::basis::Basis::default()).unwrap();
        assert_eq!((compared.events, &compared.history.path), (5, &trace));
        assert_eq!(History::read(Path::new(&out("named.jsonl"))).unwrap().events, 5);
        assert_eq!(crate::verify::verify(Whole::of(&trace).file()).unwrap().events, 5);
        let read = crate::cli::report::read(&trace).unwrap();
        assert_eq!((read.events, &read.path), (5, &trace));
        recover::run(&recover::Args { path: trace.clone() }).unwrap();
        run(&["export", &name, "-f", "rmm", "-o", &out("after.csv")]);
        assert_eq!(std::fs::read(out("before.csv")).unwrap(), std::fs::read(out("after.csv")).unwrap());
    }
}
