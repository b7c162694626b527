//! A file that is there when it is whole, and not before: written under another name, then renamed.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context;
use vramscope_core::trace::read::parts;

/// Text in a zstd frame: a reader that meets damage goes on with the next.
const FRAME: usize = 1 << 20;
const LEVEL: i32 = 3;

/// The file while it is written. One that is dropped before it was finished is removed.
pub struct NewFile {
    path: PathBuf,
    /// Where it is written; none once it has its name.
    unfinished: Option<PathBuf>,
    file: File,
    compressed: bool,
    text: Vec<u8>,
}

/// Whether an output may take the place of a file that is there: the one rule of all commands.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct Force {
    /// Replace a file that is there already
    #[arg(long)]
    pub force: bool,
}

impl Force {
    /// Refuses to take the place of a file that is there, unless it was asked for.
    pub fn check(self, output: &Path) -> anyhow::Result<()> {
        if !self.force && output.symlink_metadata().is_ok() {
            anyhow::bail!("{}: is there already; --force replaces it", output.display());
        }
        Ok(())
    }
}

/// Refuses to take the place of what is no file (a device, a pipe, a folder), of a history that is being read, and, without
/// force, of any file. Links are followed for the question, and replaced by the file.
pub fn check(output: &Path, read: &[&Path], force: Force) -> anyhow::Result<()> {
    let Ok(there) = fs::metadata(output) else { return force.check(output) };
    if !there.is_file() {
        anyhow::bail!("{}: is no file", output.display());
    }
    let same = |p: &PathBuf| fs::metadata(p).is_ok_and(|m| (m.dev(), m.ino()) == (there.dev(), there.ino()));
    if read.iter().any(|trace| parts(trace).iter().any(same)) {
        anyhow::bail!("{}: is the history itself; give another name", output.display());
    }
    force.check(output)
}

/// Writes a whole file at once, or none.
pub fn write(output: &Path, bytes: &[u8], read: &[&Path], force: Force) -> anyhow::Result<()> {
    check(output, read, force)?;
    let put = || -> io::Result<()> {
        let mut new = NewFile::create(output, false)?;
        new.lines(bytes)?;
        new.finish()
    };
    put().with_context(|| format!("{}: cannot be written", output.display()))
}

impl NewFile {
    /// Begins it, readable by the user alone, as histories are.
    pub fn create(path: &Path, compressed: bool) -> io::Result<NewFile> {
        let mut name = OsString::from(".");
        name.push(path.file_name().unwrap_or_default());
        name.push(format!(".{}.new", std::process::id()));
        let unfinished = path.with_file_name(name);
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(&unfinished)?;
        let (path, unfinished) = (path.to_path_buf(), Some(unfinished));
        Ok(NewFile { path, unfinished, file, compressed, text: Vec::with_capacity(FRAME) })
    }

    /// Standard output in place of a file: what was written stays, whatever comes of the rest.
    pub fn stdout(compressed: bool) -> io::Result<NewFile> {
        let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        Ok(NewFile { path: PathBuf::from("-"), unfinished: None, file, compressed, text: Vec::with_capacity(FRAME) })
    }

    /// Adds whole lines.
    pub fn lines(&mut self, text: &[u8]) -> io::Result<()> {
        self.text.extend_from_slice(text);
        if self.text.len() < FRAME { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.compressed {
            _ if self.text.is_empty() => {}
            true => self.file.write_all(&zstd::bulk::compress(&self.text, LEVEL)?)?,
            false => self.file.write_all(&self.text)?,
        }
        self.text.clear();
        Ok(())
    }

    /// Gives it its name, in place of what had it.
    pub fn finish(mut self) -> io::Result<()> {
        self.flush()?;
        if let Some(unfinished) = &self.unfinished {
            fs::rename(unfinished, &self.path)?;
        }
        self.unfinished = None;
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(unfinished) = &self.unfinished {
            let _ = fs::remove_file(unfinished);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORCE: Force = Force { force: true };

    #[test]
    fn nothing_that_is_read_or_no_file_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let history = folder.path().join("h.jsonl");
        fs::write(&history, "history").unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&history, &link).unwrap();
        for path in [&history, &link] {
            let e = write(path, b"x", &[&history], FORCE).unwrap_err().to_string();
            assert!(e.contains("is the history itself"), "{e}");
        }
        for path in [Path::new("/dev/null"), folder.path()] {
            assert!(write(path, b"x", &[&history], FORCE).unwrap_err().to_string().contains("is no file"));
        }
        assert_eq!(fs::read(&history).unwrap(), b"history");
        write(&folder.path().join("new"), b"x", &[&history], Force::default()).unwrap();
    }

    #[test]
    fn a_file_that_is_there_stays_unless_force_is_given() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("a"), folder.path().join("link"));
        fs::write(&path, "before").unwrap();
        // Also one that leads nowhere is somebody's.
        std::os::unix::fs::symlink(folder.path().join("gone"), &link).unwrap();
        for path in [&path, &link] {
            let e = write(path, b"after", &[], Force::default()).unwrap_err().to_string();
            assert!(e.ends_with(": is there already; --force replaces it"), "{e}");
        }
        assert_eq!(fs::read(&path).unwrap(), b"before");
        write(&path, b"after", &[], FORCE).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"after");
    }

    #[test]
    fn it_is_there_when_it_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs::write(&path, "before").unwrap();
        drop(NewFile::create(&path, false).unwrap());
        let mut file = NewFile::create(&path, false).unwrap();
        file.lines(b"one\n").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"before");
        file.finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"one\n");
        let mut file = NewFile::create(&path, true).unwrap();
        let text = b"a line that comes again\n".repeat(100_000);
        text.chunks(24).for_each(|line| file.lines(line).unwrap());
        file.finish().unwrap();
        assert_eq!(zstd::decode_all(File::open(&path).unwrap()).unwrap(), text);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
