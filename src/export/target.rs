//! Where an export goes: stdout, or a file that is there when it is whole.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::cli::new_file::{self, Force, NewFile};
use anyhow::{Context, Result, bail};

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Standard output.
    Stdout,
    /// A file, or a folder for the formats that are one.
    Path(PathBuf),
}

impl Target {
    /// The path; none is stdout.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Target::Stdout => None,
            Target::Path(path) => Some(path),
        }
    }

    /// Refuses a target that is the history itself, or something that no file can or should take the place of. Of a folder each
    /// file is looked at, once its name is known.
    pub fn check(&self, trace: &Path, folder: bool, force: Force) -> Result<()> {
        let Target::Path(path) = self else { return Ok(()) };
        if folder {
            return if fs::metadata(path).map_or(true, |there| there.is_dir()) {
                Ok(())
            } else {
                bail!("{}: is no folder, this format wants one", path.display())
            };
        }
        new_file::check(path, &[trace], force)
    }

    /// Begins to write there.
    pub fn create(&self) -> Result<Sink> {
        Ok(match self {
            Target::Stdout => Sink::Stdout(io::BufWriter::with_capacity(1 << 16, io::stdout()), false),
            Target::Path(path) => {
                let place = || format!("{}: cannot be written (-o says where else)", path.display());
                Sink::File(NewFile::create(path, false).with_context(place)?)
            }
        })
    }
}

/// What an export is written into. Without [`Sink::finish`] a file is not there.
pub enum Sink {
    /// Standard output, and whether its reader has gone.
    Stdout(io::BufWriter<io::Stdout>, bool),
    /// A new file.
    File(NewFile),
}

impl Sink {
    /// All was written.
    pub fn finish(self) -> io::Result<()> {
        match self {
            Sink::Stdout(mut out, gone) => match out.flush() {
                Err(e) if !gone && e.kind() != io::ErrorKind::BrokenPipe => Err(e),
                _ => Ok(()),
            },
            Sink::File(file) => file.finish(),
        }
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            // A reader that has gone (`| head`) has seen enough.
            Sink::Stdout(_, true) => Ok(bytes.len()),
            Sink::Stdout(out, gone) => match out.write(bytes) {
                Err(e) if e.kind() == io::ErrorKind::BrokenPipe => {
                    *gone = true;
                    Ok(bytes.len())
                }
                done => done,
            },
            Sink::File(file) => file.lines(bytes).map(|()| bytes.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_there_when_it_is_finished() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let target = Target::Path(path.clone());
        let mut sink = target.create().unwrap();
        sink.write_all(b"text").unwrap();
        drop(sink);
        assert!(!path.exists());
        let mut sink = target.create().unwrap();
        sink.write_all(b"text").unwrap();
        sink.finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"text");
        let e = target.check(&path, false, Force::default()).unwrap_err();
        assert!(e.to_string().contains("is the history itself"), "{e}");
        let e = Target::Path(folder.path().into()).check(&path, false, Force::default()).unwrap_err();
        assert!(e.to_string().contains("is no file"), "{e}");
        assert!(target.check(&path, true, Force::default()).is_err());
        let e = Target::Path(folder.path().join("none/x")).create().map(drop).unwrap_err();
        assert!(format!("{e:#}").contains("cannot be written (-o says where else)"), "{e:#}");
    }
}
