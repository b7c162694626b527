//! Spools: what a process had not yet written when it ended. Each is turned into the end of its history, then removed.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

use anyhow::{Context, Result};
use vramscope_core::record::{Recovered, Spool, recover};

/// A spool's memory, read from its file.
pub struct SpoolFile {
    path: PathBuf,
    words: Vec<AtomicU64>,
}

/// What became of a spool.
#[derive(Debug)]
pub enum Outcome {
    /// Its history is finished.
    Finished(Recovered),
    /// Its process lives: left alone.
    Alive(u32),
    /// Its history went into a pipe or device, which cannot be finished.
    Stream(PathBuf),
    /// Nothing was ever written with it: the process ended before its first event.
    Empty,
}

impl SpoolFile {
    /// Reads a spool.
    pub fn read(path: &Path) -> Result<SpoolFile> {
        let words = read_words(path).with_context(|| path.display().to_string())?;
        Ok(SpoolFile { path: path.to_path_buf(), words })
    }

    fn spool(&self) -> Result<Spool<'_>> {
        Spool::open(&self.words).with_context(|| self.path.display().to_string())
    }

    /// The history it belongs to.
    pub fn trace(&self) -> Result<PathBuf> {
        Ok(PathBuf::from(OsStr::from_bytes(&self.spool()?.path())))
    }

    /// The number of its process.
    pub fn pid(&self) -> Result<u32> {
        Ok(self.spool()?.pid())
    }

    /// Whether its process lives: one of that number that started at that time.
    pub fn alive(&self) -> Result<bool> {
        let spool = self.spool()?;
        Ok(started(spool.pid()).is_some_and(|t| spool.start_time() == 0 || t == spool.start_time()))
    }

    /// Finishes a history with it, in this file instead of its own.
    pub fn finish_in(&self, trace: &Path, status: Option<i32>, by: &str) -> Result<Recovered> {
        recover(&self.words, trace, status, by).with_context(|| trace.display().to_string())
    }

    /// Finishes its history and removes it, if its process is dead. `status` tells how a process ended.
    pub fn finish(&self, status: impl Fn(u32) -> Option<i32>, by: &str) -> Result<Outcome> {
        if self.words.iter().all(|w| w.load(std::sync::atomic::Ordering::Relaxed) == 0) {
            // Killed between creating the file and setting it up. Or about to: a live one is left alone.
            let pid = pid_of_name(&self.path);
            return match pid.filter(|p| started(*p).is_some()) {
                Some(pid) => Ok(Outcome::Alive(pid)),
                None => self.remove().map(|()| Outcome::Empty),
            };
        }
        let pid = self.pid()?;
        if self.alive()? {
            return Ok(Outcome::Alive(pid));
        }
        let trace = self.trace()?;
        if trace.as_os_str().is_empty() {
            self.remove()?;
            return Ok(Outcome::Empty);
        }
        if std::fs::metadata(&trace).is_ok_and(|m| !m.is_file()) {
            self.remove()?;
            return Ok(Outcome::Stream(trace));
        }
        let recovered = self.finish_in(&trace, status(pid), by)?;
        self.remove()?;
        Ok(Outcome::Finished(recovered))
    }

    fn remove(&self) -> Result<()> {
        std::fs::remove_file(&self.path).with_context(|| self.path.display().to_string())
    }
}

/// The spools in a folder: `spool.<pid>.<n>` of a run, `vramscope-spool.<pid>.<n>` of a program preloaded by hand.
pub fn in_folder(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if pid_of_name(&path).is_some() && path.is_file() {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn pid_of_name(path: &Path) -> Option<u32> {
    let name = path.file_name()?.to_str()?;
    let rest = name.strip_prefix("spool.").or(name.strip_prefix("vramscope-spool."))?;
    rest.split('.').next()?.parse().ok()
}

/// When the process of this number started, in clock ticks since boot; `None` if it is gone or only waits to be reaped.
fn started(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in brackets may hold anything.
    let mut fields = stat[stat.rfind(')')? + 1..].split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

fn read_words(path: &Path) -> io::Result<Vec<AtomicU64>> {
    let mut file = File::open(path)?;
    let bytes = file.metadata()?.len();
    let mut words = Vec::with_capacity((bytes / 8) as usize);
    let mut buffer = vec![0u8; 1 << 20];
    let mut kept = 0;
    loop {
        let n = file.read(&mut buffer[kept..])?;
        if n == 0 {
            return Ok(words);
        }
        let whole = (kept + n) / 8 * 8;
        for word in buffer[..whole].chunks_exact(8) {
            words.push(AtomicU64::new(u64::from_le_bytes(word.try_into().unwrap_or_default())));
        }
        buffer.copy_within(whole..kept + n, 0);
        kept = kept + n - whole;
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use vramscope_core::event::{Event, EventKind, Memory};
    use vramscope_core::record::{ClockKind, Setup};
    use vramscope_core::trace::{FORMAT, Header, VERSION};

    /// No process has such a number.
    pub(crate) const DEAD: u32 = 999_999_999;

    /// A spool in this folder, of a process that recorded 5 allocations of 1 MiB and wrote none: (spool, trace).
    pub(crate) fn unwritten(folder: &Path, pid: u32) -> (PathBuf, PathBuf) {
        let path = folder.join(format!("spool.{pid}.1"));
        let trace = folder.join(format!("trace-{pid}.jsonl"));
        let words: Vec<AtomicU64> = (0..Spool::size_in_words(2, 64)).map(|_| AtomicU64::new(0)).collect();
        let setup = Setup {
            rings: 2,
            slots: 64,
            usable_rings: 2,
            pid,
            start_time: started(pid).unwrap_or(0),
            clock: ClockKind::Monotonic,
            ticks_per_second: 0,
            zero_raw: 0,
            zero_ns: 0,
        };
        let spool = Spool::format(&words, &setup).unwrap();
        let header = Header {
            format: FORMAT.into(),
            version: VERSION,
            pid,
            spool: path.display().to_string(),
            ..Header::default()
        };
        spool.set_header(&header);
        assert!(spool.set_path(trace.as_os_str().as_bytes()));
        let mut ring = spool.claim_ring(1, b"main").unwrap();
        for id in 1..=5 {
            let event = Event {
                kind: EventKind::Alloc,
                memory: Memory::Device,
                id,
                time: id * 1000,
                bytes: 1 << 20,
                ..Event::default()
            };
            assert!(matches!(ring.push(&event), vramscope_core::record::Pushed::Yes));
        }
        let bytes: Vec<u8> =
            words.iter().flat_map(|w| w.load(std::sync::atomic::Ordering::Relaxed).to_le_bytes()).collect();
        std::fs::write(&path, bytes).unwrap();
        (path, trace)
    }

    #[test]
    fn the_events_of_a_killed_process_come_into_its_history() {
        let folder = tempfile::tempdir().unwrap();
        let (path, trace) = unwritten(folder.path(), DEAD);
        let spool = SpoolFile::read(&path).unwrap();
        let Outcome::Finished(done) = spool.finish(|p| (p == DEAD).then_some(137), "launcher").unwrap() else {
            panic!("it is dead");
        };
        assert_eq!((done.path.as_path(), done.events_added, done.footer.status), (trace.as_path(), 5, Some(137)));
        assert_eq!(done.footer.end, "killed");
        assert!(!path.exists());
        let history = crate::report::History::read(&trace).unwrap();
        assert_eq!((history.events, history.state.now.active()), (5, 5 << 20));
    }

    #[test]
    fn a_living_process_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (path, trace) = unwritten(folder.path(), std::process::id());
        let spool = SpoolFile::read(&path).unwrap();
        assert!(matches!(spool.finish(|_| None, "recover").unwrap(), Outcome::Alive(p) if p == std::process::id()));
        assert!(path.exists() && !trace.exists());
    }

    #[test]
    fn processes_live_or_not() {
        assert!(started(std::process::id()).is_some_and(|t| t > 0));
        assert_eq!(started(u32::MAX), None);
        let mut child = std::process::Command::new("true").spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(200));
        assert_eq!(started(child.id()), None, "one that waits to be reaped is dead");
        child.wait().unwrap();
    }

    #[test]
    fn spools_are_known_by_name() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["spool.12.0", "vramscope-spool.13.99", "spool.x.1", "other", "libvramscope.so"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let names: Vec<_> =
            in_folder(folder.path()).unwrap().iter().map(|p| p.file_name().unwrap().to_owned()).collect();
        assert_eq!(names, ["spool.12.0", "vramscope-spool.13.99"]);
    }

    #[test]
    fn words_are_read_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("spool.1.1");
        let bytes: Vec<u8> = (0..(3u32 << 18) + 1).flat_map(u32::to_le_bytes).collect();
        std::fs::write(&path, &bytes).unwrap();
        let words = read_words(&path).unwrap();
        assert_eq!(words.len(), bytes.len() / 8);
        let last = words.len() as u64 - 1;
        assert_eq!(words[last as usize].load(std::sync::atomic::Ordering::Relaxed), (2 * last) | (2 * last + 1) << 32);
    }

    #[test]
    fn a_foreign_file_is_said_with_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("spool.4000000000.1");
        std::fs::write(&path, [7; 4096]).unwrap();
        let e = SpoolFile::read(&path).unwrap().finish(|_| None, "recover").unwrap_err();
        assert!(format!("{e:#}").contains("spool.4000000000.1: this is not a spool"), "{e:#}");
        std::fs::write(&path, [0; 4096]).unwrap();
        assert!(matches!(SpoolFile::read(&path).unwrap().finish(|_| None, "recover").unwrap(), Outcome::Empty));
        assert!(!path.exists());
    }
}
