//! Spools: what a process had not yet written when it ended. Each is turned into the end of its history, then removed.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

use anyhow::{Context, Result};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use vramscope_core::record::{Recovered, Spool, recover};
use vramscope_core::trace::Header;

use super::process::started;

/// A spool's memory, read from its file.
pub struct SpoolFile {
    path: PathBuf,
    file: File,
    words: Vec<AtomicU64>,
}

/// What became of a spool.
#[derive(Debug)]
pub enum Outcome {
    /// Its history is finished.
    Finished(Recovered),
    /// Its process lives: left alone.
    Alive(u32),
    /// Its history went into a pipe or device, which cannot be finished; all of it, unless recording stopped.
    Stream {
        /// Which.
        to: PathBuf,
        /// Recording stopped before the program ended.
        stopped: bool,
    },
    /// Nothing was ever written with it: the process ended before its first event.
    Empty,
}

impl SpoolFile {
    /// Reads a spool.
    pub fn read(path: &Path) -> Result<SpoolFile> {
        let file = open(path).with_context(|| path.display().to_string())?;
        let words = used_words(&file).with_context(|| path.display().to_string())?;
        Ok(SpoolFile { path: path.to_path_buf(), file, words })
    }

    fn spool(&self) -> Result<Spool<'_>> {
        Spool::open(&self.words).with_context(|| self.path.display().to_string())
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The first line of its history.
    pub fn header_line(&self) -> Result<Vec<u8>> {
        Ok(self.spool()?.header_line())
    }

    /// The history it belongs to.
    pub fn trace(&self) -> Result<PathBuf> {
        Ok(PathBuf::from(OsStr::from_bytes(&self.spool()?.path())))
    }

    /// The spool that a history's header names, unless it is another process's of the same name by now.
    pub fn of(header: &Header) -> Option<SpoolFile> {
        if header.spool.is_empty() {
            return None;
        }
        SpoolFile::read(Path::new(&header.spool)).ok().filter(|s| s.pid().ok() == Some(header.pid))
    }

    /// The number of its process.
    pub fn pid(&self) -> Result<u32> {
        Ok(self.spool()?.pid())
    }

    /// The run directory that its process was given, if `vramscope run` started it.
    pub fn run_dir(&self) -> Result<Option<PathBuf>> {
        let header: Header = serde_json::from_slice(&self.header_line()?)?;
        Ok(header.settings.get("VRAMSCOPE_RUN_DIR").map(PathBuf::from))
    }

    /// Whether its process lives: one of that number that started at that time, or one that holds its lock (it may be in
    /// another pid namespace). From a `false` on, this file has the lock until it is dropped.
    pub fn alive(&self) -> Result<bool> {
        let spool = self.spool()?;
        let here = started(spool.pid()).is_some_and(|t| spool.start_time() == 0 || t == spool.start_time());
        Ok(here || self.locked())
    }

    /// Whether another process has it locked: the one that records into it, or one that finishes its history.
    fn locked(&self) -> bool {
        let lock = |how| rustix::fs::fcntl_lock(&self.file, how);
        let done = match lock(FlockOperation::NonBlockingLockExclusive) {
            // Opened for reading only.
            Err(Errno::BADF) => lock(FlockOperation::NonBlockingLockShared),
            done => done,
        };
        // Where locks do not work, nobody can have one.
        matches!(done, Err(Errno::AGAIN | Errno::ACCESS))
    }

    /// Finishes a history with it, in this file instead of its own.
    pub fn finish_in(&self, trace: &Path, status: Option<i32>, by: &str) -> Result<Recovered> {
        recover(&self.words, trace, status, by).map_err(|e| super::recover::named(trace, e))
    }

    /// Finishes its history and removes it, if its process is dead. `status` tells how a process ended.
    pub fn finish(&self, status: impl Fn(u32) -> Option<i32>, by: &str) -> Result<Outcome> {
        if Spool::never_set_up(&self.words) {
            // Killed between creating the file and setting it up. Or about to: a live one is left alone.
            let pid = pid_of_name(&self.path).unwrap_or(0);
            return match started(pid).is_some() || self.locked() {
                true => Ok(Outcome::Alive(pid)),
                false => self.remove().map(|()| Outcome::Empty),
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
            let stopped = self.spool()?.stopped();
            self.remove()?;
            return Ok(Outcome::Stream { to: trace, stopped });
        }
        let recovered = self.finish_in(&trace, status(pid), by)?;
        self.remove()?;
        Ok(Outcome::Finished(recovered))
    }

    fn remove(&self) -> Result<()> {
        match std::fs::remove_file(&self.path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e).context(self.path.display().to_string()),
            _ => Ok(()),
        }
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

/// Opens a spool: for writing too, which its lock wants.
fn open(path: &Path) -> io::Result<File> {
    // Whatever else has such a name, a pipe for one, must not hold us up.
    let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let open = |write| OpenOptions::new().read(true).write(write).custom_flags(flags).open(path);
    open(true).or_else(|_| open(false))
}

/// The number of the process that a spool's name says.
pub fn pid_of_name(path: &Path) -> Option<u32> {
    let name = path.file_name()?.to_str()?;
    let rest = name.strip_prefix("spool.").or(name.strip_prefix("vramscope-spool."))?;
    rest.split('.').next()?.parse().ok()
}

/// The spool as far as it can hold anything, or all of a file that is none. (It is 52 MB long, most of it a hole.)
fn used_words(file: &File) -> io::Result<Vec<AtomicU64>> {
    let mut words = Vec::new();
    read_words(file, Spool::HEAD_WORDS, &mut words)?;
    if let Ok(used) = Spool::used_words(&words) {
        read_words(file, used.saturating_sub(words.len()), &mut words)?;
    }
    Ok(words)
}

/// Adds at most so many words of a file.
fn read_words(file: &File, most: usize, words: &mut Vec<AtomicU64>) -> io::Result<()> {
    let mut file = file.take(most as u64 * 8);
    let mut buffer = vec![0u8; (most * 8).min(1 << 20)];
    let mut kept = 0;
    loop {
        let n = file.read(&mut buffer[kept..])?;
        if n == 0 {
            return Ok(());
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
    use vramscope_core::trace::{FORMAT, VERSION};

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
            settings: [("VRAMSCOPE_RUN_DIR".to_string(), folder.display().to_string())].into(),
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
    fn only_the_used_rings_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let (path, _) = unwritten(folder.path(), DEAD);
        let whole = SpoolFile::read(&path).unwrap();
        assert_eq!(whole.words.len(), Spool::size_in_words(2, 64));
        // As the library makes it: much longer, with a hole.
        OpenOptions::new().write(true).open(&path).unwrap().set_len(1 << 40).unwrap();
        let spool = SpoolFile::read(&path).unwrap();
        assert_eq!(spool.words.len(), whole.words.len());
        assert!(matches!(spool.finish(|_| None, "recover").unwrap(), Outcome::Finished(r) if r.events_added == 5));
        // One that was cut is said.
        let (path, _) = unwritten(folder.path(), DEAD);
        OpenOptions::new().write(true).open(&path).unwrap().set_len(Spool::HEAD_WORDS as u64 * 8).unwrap();
        let e = SpoolFile::read(&path).unwrap().finish(|_| None, "recover").unwrap_err();
        assert!(format!("{e:#}").contains("the spool is cut"), "{e:#}");
    }

    #[test]
    fn words_are_read_in_pieces() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("spool.1.1");
        let bytes: Vec<u8> = (0..(3u32 << 18) + 1).flat_map(u32::to_le_bytes).collect();
        std::fs::write(&path, &bytes).unwrap();
        let file = File::open(&path).unwrap();
        let mut words = Vec::new();
        read_words(&file, 1000, &mut words).unwrap();
        assert_eq!(words.len(), 1000);
        read_words(&file, bytes.len(), &mut words).unwrap();
        assert_eq!(words.len(), bytes.len() / 8);
        let last = words.len() as u64 - 1;
        assert_eq!(words[last as usize].load(std::sync::atomic::Ordering::Relaxed), (2 * last) | (2 * last + 1) << 32);
    }

    #[test]
    fn a_locked_spool_is_in_use_although_no_such_process_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let (path, trace) = unwritten(folder.path(), DEAD);
        // A lock does not hold off its own process: another one takes it.
        let script = "import fcntl,sys\nf=open(sys.argv[1],'r+b')\nfcntl.lockf(f,fcntl.LOCK_EX)\nprint('locked',flush=True)\nsys.stdin.read()";
        let child = std::process::Command::new("python3")
            .args(["-c", script])
            .arg(&path)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn();
        // check.sh needs python3 too.
        let Ok(mut child) = child else { return };
        let mut said = [0; 6];
        child.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
        assert!(matches!(SpoolFile::read(&path).unwrap().finish(|_| None, "x").unwrap(), Outcome::Alive(DEAD)));
        assert!(path.exists() && !trace.exists());
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(matches!(SpoolFile::read(&path).unwrap().finish(|_| None, "x").unwrap(), Outcome::Finished(_)));
        assert!(!path.exists());
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
