//! The file (or pipe) that the history goes to.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use vramscope_core::rank;
use vramscope_core::record::{Output, TraceFile};
use vramscope_core::trace::{FORMAT, Header, VERSION};

use crate::settings::{self, invoked_name, program_path};
use crate::{clock, driver, recorder, spool, state};

/// The usual name of a rank of a distributed job, whose ranks may write to one folder from several hosts.
const RANKED_NAME: &str = "vramscope-%n-rank%r-%h-%p.jsonl";

/// The path with its `%` letters filled in, absolute. A folder means the usual name in it, and a rank of a distributed job
/// has a usual name of its own.
pub fn path_of(pattern: &str) -> PathBuf {
    let usual = if rank().is_some() { RANKED_NAME } else { settings::USUAL_NAME };
    if let Some(folder) = pattern.strip_suffix(settings::USUAL_NAME)
        && (folder.is_empty() || folder.ends_with('/'))
    {
        return expand(&format!("{folder}{usual}"));
    }
    let path = expand(pattern);
    if path.is_dir() { path.join(expand(usual).file_name().unwrap_or_default()) } else { path }
}

fn expand(pattern: &str) -> PathBuf {
    let mut s = String::new();
    let mut letters = pattern.chars();
    while let Some(c) = letters.next() {
        if c != '%' {
            s.push(c);
            continue;
        }
        match letters.next() {
            Some('p') => s.push_str(&std::process::id().to_string()),
            Some('h') => s.push_str(&host()),
            Some('n') => s.push_str(&invoked_name()),
            // A name and not a way: a variable may say anything.
            Some('r') => s.push_str(&rank().map_or("0".to_owned(), |r| r.replace('/', "_"))),
            Some('%') => s.push('%'),
            Some(other) => {
                s.push('%');
                s.push(other);
            }
            None => s.push('%'),
        }
    }
    let p = PathBuf::from(s);
    if p.is_absolute() { p } else { std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/")).join(p) }
}

/// A variable of the environment.
fn variable(name: &str) -> Option<String> {
    settings::variable(&CString::new(name).ok()?)
}

fn rank() -> Option<String> {
    rank::rank(variable)
}

fn host() -> String {
    let mut name = [0u8; 256];
    // SAFETY: a buffer, one byte longer than said.
    unsafe { libc::gethostname(name.as_mut_ptr().cast(), 255) };
    let end = name.iter().position(|b| *b == 0).unwrap_or(0);
    String::from_utf8_lossy(&name[..end]).into_owned()
}

/// The history's first line.
pub fn header() -> Header {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Header {
        format: FORMAT.to_owned(),
        version: VERSION,
        vramscope: env!("CARGO_PKG_VERSION").to_owned(),
        part: 0,
        pid: std::process::id(),
        parent: std::os::unix::process::parent_id(),
        host: host(),
        program: program_path(),
        arguments: arguments(),
        directory: std::env::current_dir().map(|d| d.to_string_lossy().into_owned()).unwrap_or_default(),
        start_seconds: now.as_secs(),
        start_nanoseconds: now.subsec_nanos(),
        clock: if clock::is_tsc() { "tsc" } else { "monotonic" }.to_owned(),
        rank: rank::VARIABLES.iter().filter_map(|n| Some(((*n).to_owned(), variable(n)?))).collect(),
        settings: settings::get().given.iter().cloned().collect(),
        spool: spool::path().to_owned(),
        granularity: 2 << 20,
        driver: driver::version(),
        ..Header::default()
    }
}

/// The command line of this process.
pub fn arguments() -> Vec<String> {
    let mut raw = Vec::new();
    let _ = File::open("/proc/self/cmdline").and_then(|mut f| f.read_to_end(&mut raw));
    let mut arguments: Vec<String> = raw.split(|b| *b == 0).map(|a| String::from_utf8_lossy(a).into_owned()).collect();
    arguments.pop();
    arguments
}

/// Where the history goes.
pub enum Trace {
    /// A file, new, with its identity.
    File {
        /// The file.
        file: TraceFile,
        /// Device and inode, to notice that the program closed our descriptor and opened another file on its number.
        identity: (u64, u64),
    },
    /// A pipe or device that was there, and its path.
    Stream(File, PathBuf),
    /// A pipe to be opened by the writer thread: opening waits for a reader.
    Later(PathBuf),
}

fn identity(f: &File) -> Option<(u64, u64)> {
    let m = f.metadata().ok()?;
    Some((m.dev(), m.ino()))
}

/// The same file on a high number: a program may count on getting the next low one.
fn high(f: &File) -> Option<File> {
    // SAFETY: a descriptor of ours.
    let fd = unsafe { libc::fcntl(f.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 512) };
    // SAFETY: a new descriptor that nobody else owns.
    (fd >= 0).then(|| unsafe { File::from_raw_fd(fd) })
}

impl Trace {
    /// Opens what a path names. The error says what is wrong with which path.
    pub fn open(path: &Path) -> io::Result<Trace> {
        let kind = std::fs::metadata(path).map(|m| m.file_type());
        if kind.is_ok_and(|k| k.is_fifo() || k.is_char_device() || k.is_socket()) {
            return Ok(Trace::Later(path.to_owned()));
        }
        let mut file = TraceFile::create(path)?;
        file.relocate(high);
        let identity = identity(file.file()).ok_or(io::ErrorKind::NotFound)?;
        Ok(Trace::File { file, identity })
    }

    /// The name that the file got.
    pub fn path(&self) -> &Path {
        match self {
            Trace::File { file, .. } => file.path(),
            Trace::Later(path) | Trace::Stream(_, path) => path,
        }
    }
}

impl Output for Trace {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.put(bytes)?;
        recorder::writer_moved();
        Ok(written)
    }

    fn next_part(&mut self) -> io::Result<()> {
        match self {
            Trace::File { file, identity: at } => {
                file.next_part()?;
                file.relocate(high);
                *at = identity(file.file()).ok_or(io::ErrorKind::NotFound)?;
                Ok(())
            }
            // A pipe's reader keeps what it wants.
            _ => Ok(()),
        }
    }
}

/// Opening a pipe waits for its reader; at the end of the process not for ever.
fn open_pipe(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true);
    if !state::exiting() {
        return options.open(path);
    }
    options.custom_flags(libc::O_NONBLOCK);
    for _ in 0..200 {
        match options.open(path) {
            Err(e) if e.raw_os_error() == Some(libc::ENXIO) => std::thread::sleep(Duration::from_millis(10)),
            done => return done,
        }
    }
    Err(io::Error::other("nobody reads it"))
}

/// A reader that does not read must not hold up the end of the process: where there is room now, there is some for PIPE_BUF.
fn wait_for_reader(f: &File) -> io::Result<()> {
    let mut poll = libc::pollfd { fd: f.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    // SAFETY: a pointer to one local, as said.
    match unsafe { libc::poll(&mut poll, 1, 2000) } {
        0 => Err(io::Error::other("its reader does not read")),
        n if n < 0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

impl Trace {
    fn put(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Trace::File { file, identity: at } => {
                if identity(file.file()) != Some(*at) {
                    // Whatever is on that number now is the program's: it must be neither written to nor closed.
                    let mut again = TraceFile::append(file.path())?;
                    again.relocate(high);
                    if identity(again.file()) != Some(*at) {
                        return Err(io::Error::other("the file was replaced by another"));
                    }
                    std::mem::forget(std::mem::replace(file, again));
                }
                file.write(bytes)
            }
            Trace::Stream(f, _) if state::exiting() => {
                wait_for_reader(f)?;
                f.write(&bytes[..bytes.len().min(libc::PIPE_BUF)])
            }
            Trace::Stream(f, _) => f.write(bytes),
            Trace::Later(path) => {
                let f = open_pipe(path)?;
                *self = Trace::Stream(high(&f).unwrap_or(f), std::mem::take(path));
                self.put(bytes)
            }
        }
    }
}
