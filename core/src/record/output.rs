//! Where the history goes.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::trace::older_part;

/// Where the writer puts its bytes.
pub trait Output {
    /// Writes some of the bytes, as `write(2)`. After an error the writer goes on at the same byte in its next round.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Begins the next part: what was written so far becomes the older part (the one before it is dropped).
    fn next_part(&mut self) -> io::Result<()>;
}

/// Writes the bytes from `at` on, and moves it on as far as they are written.
pub(super) fn write_all(output: &mut impl Output, bytes: &[u8], at: &mut usize) -> io::Result<()> {
    while *at < bytes.len() {
        match output.write(&bytes[*at..]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => *at += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// A history in a file.
#[derive(Debug)]
pub struct TraceFile {
    file: File,
    path: PathBuf,
}

impl TraceFile {
    /// Creates the file, for its owner only, and never an existing one: a suffix is put before the extension then.
    pub fn create(path: &Path) -> io::Result<TraceFile> {
        for n in 1..1000 {
            let candidate = if n == 1 { path.to_owned() } else { with_suffix(path, n) };
            match create_new(&candidate) {
                Ok(file) => return Ok(TraceFile { file, path: candidate }),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// An existing file, to go on at its end.
    pub fn append(path: &Path) -> io::Result<TraceFile> {
        Ok(TraceFile { file: OpenOptions::new().append(true).open(path)?, path: path.to_owned() })
    }

    /// Puts another descriptor of the same file in the place of this one, which is closed.
    pub fn relocate(&mut self, other: impl FnOnce(&File) -> Option<File>) {
        if let Some(file) = other(&self.file) {
            self.file = file;
        }
    }

    /// The open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The name that the file got.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create_new(true).mode(0o600).open(path)
}

/// `a/run.jsonl.zst` → `a/run-2.jsonl.zst`
fn with_suffix(path: &Path, n: u32) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let (stem, extension) = match [".jsonl.zst", ".jsonl"].iter().find_map(|e| Some((name.strip_suffix(e)?, *e))) {
        Some(split) => split,
        None => (&*name, ""),
    };
    path.with_file_name(format!("{stem}-{n}{extension}"))
}

impl Output for TraceFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn next_part(&mut self) -> io::Result<()> {
        match fs::rename(&self.path, older_part(&self.path)) {
            Ok(()) => {}
            // The rename of an earlier try went well and the creation did not.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
        self.file = create_new(&self.path)?;
        Ok(())
    }
}
