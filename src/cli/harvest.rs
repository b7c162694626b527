//! What the processes of a run leave, and how it becomes whole histories: while the run goes on, so that the spools of
//! many short processes do not pile up in memory, and at its end.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, SystemTime};

use vramscope_core::record::Recovered;
use vramscope_core::unwritten;

use super::run_dir::RunDir;
use super::spool::{self, Outcome, SpoolFile};
use super::{process, stray};

/// How often it is looked for dead processes. A look is one listing and a line of /proc for each live process.
const EVERY: Duration = Duration::from_secs(1);

/// Spools younger than this are left for a later look: their processes may not have set them up yet.
const YOUNG: Duration = Duration::from_secs(2);

/// A finished history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Its file.
    pub path: PathBuf,
    /// Its process.
    pub pid: u32,
    /// Events in it; what could not be looked at counts as one.
    pub events: u64,
}

/// The harvest of a run.
#[derive(Debug)]
pub struct Harvest {
    run_dir: RunDir,
    /// The program itself: how it ended is known only when it was waited for.
    child: u32,
    begun: SystemTime,
    /// Spools that could not be finished: tried again at the end, and then said.
    failed: HashSet<PathBuf>,
    /// Histories, finished.
    pub histories: Vec<Finished>,
    /// Where histories went that cannot be read again.
    pub streams: Vec<PathBuf>,
    /// What a person should know.
    pub messages: Vec<String>,
    /// Processes that were traced at all.
    pub processes: usize,
}

impl Harvest {
    /// Nothing yet, of a run that begins.
    pub fn new(run_dir: RunDir, child: u32) -> Harvest {
        Harvest {
            run_dir,
            child,
            begun: SystemTime::now(),
            failed: HashSet::new(),
            histories: Vec::new(),
            streams: Vec::new(),
            messages: Vec::new(),
            processes: 0,
        }
    }

    /// Waits, and finishes meanwhile what other processes left.
    pub fn meanwhile<T>(&mut self, wait: impl FnOnce() -> T) -> T {
        let (stop, stopped) = channel::<()>();
        std::thread::scope(|scope| {
            let looking = scope.spawn(move || {
                while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                    self.look(YOUNG);
                }
            });
            let waited = wait();
            drop(stop);
            // Should it have panicked, the end is still to be told.
            let _ = looking.join();
            waited
        })
    }

    /// Finishes what is in the run directory of processes that are dead, but for the program itself and for spools that
    /// may be about to be set up.
    fn look(&mut self, young: Duration) {
        for path in spool::in_folder(self.run_dir.path()).unwrap_or_default() {
            let pid = spool::pid_of_name(&path).unwrap_or(self.child);
            let aged = || {
                let changed = std::fs::metadata(&path).and_then(|m| m.modified()).ok();
                changed.and_then(|t| t.elapsed().ok()).is_some_and(|age| age >= young)
            };
            if pid == self.child || self.failed.contains(&path) || process::started(pid).is_some() || !aged() {
                continue;
            }
            match finish(&path, |_| None) {
                Ok((pid, outcome)) => self.processes += usize::from(self.take(pid, outcome).is_none()),
                Err(_) => drop(self.failed.insert(path)),
            }
        }
    }

    /// Notes what became of a spool; a living process is handed back.
    fn take(&mut self, pid: u32, outcome: Outcome) -> Option<u32> {
        match outcome {
            Outcome::Alive(pid) => return Some(pid),
            Outcome::Finished(r) => self.history(pid, &r),
            Outcome::Stream { to, stopped: false } => self.streams.push(to),
            Outcome::Stream { to, stopped: true } => {
                self.messages.push(format!("recording ended early: not all of the history went to {}", to.display()));
            }
            Outcome::Empty => {}
        }
        None
    }

    fn history(&mut self, pid: u32, r: &Recovered) {
        self.histories.push(Finished { path: r.path.clone(), pid, events: r.footer.events });
    }

    /// Finishes everything, the program's with the code it ended with, and removes the run directory unless somebody
    /// still needs it. `trace`: the pattern of the histories' names.
    pub fn end(&mut self, code: i32, trace: &OsStr) {
        let child = self.child;
        let status = |pid| (pid == child).then_some(code);
        let run_dir = self.run_dir.path().to_path_buf();
        let mut keep = false;
        for path in spool::in_folder(&run_dir).unwrap_or_default() {
            keep |= !self.finish(&path, status);
        }
        self.strays(&run_dir, status, trace);
        self.unwritten(&run_dir);
        if !keep {
            self.run_dir.remove();
        }
    }

    /// What processes said that could not write a history.
    fn unwritten(&mut self, run_dir: &Path) {
        for entry in std::fs::read_dir(run_dir).into_iter().flatten().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(unwritten::pid_of) else { continue };
            let why = std::fs::read_to_string(entry.path()).unwrap_or_default();
            self.processes += 1;
            self.messages.push(format!("nothing was recorded of process {pid}: {why}"));
        }
    }

    /// Finishes a spool at the end, or says why not; false if it stays.
    fn finish(&mut self, path: &Path, status: impl Fn(u32) -> Option<i32>) -> bool {
        self.processes += 1;
        match finish(path, status) {
            Ok((pid, outcome)) => {
                let Some(pid) = self.take(pid, outcome) else { return true };
                let folder = path.parent().unwrap_or(path).display();
                self.messages.push(format!(
                    "process {pid} still runs and is recorded; when it has ended: vramscope recover {folder}"
                ));
            }
            Err(e) => self.messages.push(format!("{e:#}; what is left of it stays in {}", path.display())),
        }
        false
    }

    /// What processes left that could not use the run directory: another user's, or in a container.
    fn strays(&mut self, run_dir: &Path, status: impl Fn(u32) -> Option<i32> + Copy, trace: &OsStr) {
        let mut told = HashSet::new();
        for path in stray::spools(run_dir) {
            if !self.finish(&path, status) {
                told.insert(path);
            }
        }
        let known = self.histories.iter().map(|h| h.path.clone()).collect();
        for found in stray::histories(trace, run_dir, self.begun, &known) {
            // Those of spools that stay were said with them.
            if found.spool.starts_with(run_dir) || told.contains(&found.spool) {
                continue;
            }
            self.processes += 1;
            match found.finish(status(found.pid)) {
                Ok(Some(r)) => self.history(found.pid, &r),
                Ok(None) => self.messages.push(format!(
                    "{}: process {} has not ended yet, or its spool {} cannot be read by us",
                    found.path.display(),
                    found.pid,
                    found.spool.display()
                )),
                // It can be read at least.
                Err(_) => self.histories.push(Finished { path: found.path.clone(), pid: found.pid, events: 1 }),
            }
        }
    }
}

/// Finishes a spool, and says whose it was.
fn finish(path: &Path, status: impl Fn(u32) -> Option<i32>) -> anyhow::Result<(u32, Outcome)> {
    let spool = SpoolFile::read(path)?;
    let pid = spool.pid().ok().or_else(|| spool::pid_of_name(path)).unwrap_or(0);
    Ok((pid, spool.finish(status, "launcher")?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::spool::tests::{DEAD, unwritten};

    fn harvest(outside: &Path, child: u32) -> (Harvest, PathBuf) {
        let run_dir = RunDir::create_in([outside.to_path_buf()]).unwrap();
        let path = run_dir.path().to_path_buf();
        (Harvest::new(run_dir, child), path)
    }

    #[test]
    fn dead_processes_are_finished_while_the_program_runs_and_the_program_at_its_end() {
        let outside = tempfile::tempdir().unwrap();
        let (mut harvest, run_dir) = harvest(outside.path(), DEAD);
        let (mine, _) = unwritten(&run_dir, DEAD);
        let (other, other_trace) = unwritten(&run_dir, DEAD - 1);
        let (living, _) = unwritten(&run_dir, std::process::id());
        harvest.look(YOUNG);
        assert!(other.exists(), "it may be about to be set up");
        harvest.look(Duration::ZERO);
        assert!(mine.exists() && living.exists() && !other.exists());
        assert_eq!(harvest.histories, [Finished { path: other_trace, pid: DEAD - 1, events: 5 }]);
        assert_eq!(harvest.processes, 1);
        harvest.end(7, OsStr::new("off"));
        assert!(!mine.exists() && living.exists() && run_dir.exists());
        assert_eq!((harvest.histories.len(), harvest.processes), (2, 3));
        let history = crate::report::History::read(&harvest.histories[1].path).unwrap();
        assert_eq!(history.footer.unwrap().status, Some(7));
        assert!(harvest.messages.iter().all(|m| m.contains("still runs")) && harvest.messages.len() == 1);
    }

    #[test]
    fn what_fails_is_tried_once_more_at_the_end_and_stays() {
        let outside = tempfile::tempdir().unwrap();
        let (mut harvest, run_dir) = harvest(outside.path(), DEAD);
        let (spool, trace) = unwritten(&run_dir, DEAD - 1);
        std::fs::write(&trace, "not ours").unwrap();
        harvest.look(Duration::ZERO);
        harvest.look(Duration::ZERO);
        assert!(harvest.messages.is_empty() && spool.exists());
        harvest.end(0, OsStr::new("off"));
        assert!(spool.exists() && harvest.messages.len() == 1, "{:?}", harvest.messages);
        assert!(harvest.messages[0].contains("stays in"), "{:?}", harvest.messages);
    }

    #[test]
    fn waiting_gives_what_was_waited_for() {
        let outside = tempfile::tempdir().unwrap();
        let (mut harvest, run_dir) = harvest(outside.path(), DEAD);
        assert_eq!(harvest.meanwhile(|| 42), 42);
        harvest.end(0, OsStr::new("off"));
        assert!(!run_dir.exists());
    }
}
