//! The private folder of a run, in memory where there is some: each traced process keeps its spool there, so that its
//! last events can be read when it was killed.

use std::fs::{DirBuilder, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Result, bail};
use rustix::fs::FlockOperation;

use super::process;

/// The folder; its owner removes it.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
    /// Locked as long as we live, which can be told from any pid namespace.
    _lock: Option<File>,
}

impl RunDir {
    /// Makes one in /dev/shm, else in `XDG_RUNTIME_DIR`, else in the temporary folder.
    pub fn create() -> Result<RunDir> {
        let run = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let places = [Some(PathBuf::from("/dev/shm")), run, Some(std::env::temp_dir())];
        RunDir::create_in(places.into_iter().flatten())
    }

    /// Makes one in the first of these folders that allows it.
    pub fn create_in(places: impl IntoIterator<Item = PathBuf>) -> Result<RunDir> {
        let mut tried = Vec::new();
        for place in places {
            match make(&place) {
                Ok(path) => return Ok(RunDir { _lock: lock(&path), path }),
                Err(e) => tried.push(format!("{}: {e}", place.display())),
            }
        }
        bail!("no folder for this run's files ({}); set TMPDIR to a writable one", tried.join(", "))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes it with all that is in it.
    pub fn remove(&self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

fn lock(path: &Path) -> Option<File> {
    let folder = File::open(path).ok()?;
    rustix::fs::flock(&folder, FlockOperation::NonBlockingLockExclusive).ok()?;
    Some(folder)
}

/// The number of the launcher whose run directory this is, as its name says; `None` if it is none.
pub fn launcher(folder: &Path) -> Option<u32> {
    folder.file_name()?.to_str()?.strip_prefix("vramscope.")?.split('.').next()?.parse().ok()
}

/// The launcher, if it lives: what is in its directory is its own business.
pub fn living_launcher(folder: &Path) -> Option<u32> {
    let pid = launcher(folder)?;
    let locked = File::open(folder).is_ok_and(|f| {
        matches!(rustix::fs::flock(&f, FlockOperation::NonBlockingLockShared), Err(rustix::io::Errno::AGAIN))
    });
    // Where locks do not work, its name has to do.
    (locked || process::is_vramscope(pid)).then_some(pid)
}

/// The run directories in a folder.
pub fn in_folder(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|e| e.path()).filter(|p| launcher(p).is_some() && p.is_dir()).collect()
}

fn make(place: &Path) -> std::io::Result<PathBuf> {
    let place = std::path::absolute(place)?;
    let nanos = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.subsec_nanos());
    for i in 0..100u32 {
        let path = place.join(format!("vramscope.{}.{:08x}", std::process::id(), nanos.wrapping_add(i)));
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            other => return other.map(|()| path),
        }
    }
    Err(std::io::ErrorKind::AlreadyExists.into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn it_is_private_and_goes_away() {
        let outside = tempfile::tempdir().unwrap();
        let places = || [PathBuf::from("/nowhere/at/all"), outside.path().to_path_buf()];
        let (a, b) = (RunDir::create_in(places()).unwrap(), RunDir::create_in(places()).unwrap());
        assert_ne!(a.path(), b.path());
        assert_eq!(std::fs::metadata(a.path()).unwrap().permissions().mode() & 0o777, 0o700);
        std::fs::write(a.path().join("x"), "").unwrap();
        let path = a.path().to_path_buf();
        assert_eq!(living_launcher(&path), Some(std::process::id()));
        assert_eq!(in_folder(outside.path()).len(), 2);
        let RunDir { _lock: lock, path } = a;
        drop(lock);
        assert_eq!(living_launcher(&path), None, "its lock is gone, and so is the launcher");
        RunDir { path: path.clone(), _lock: None }.remove();
        b.remove();
        assert!(!path.exists() && launcher(Path::new("/dev/shm/vramscope-spool.1.2")).is_none());
        let e = RunDir::create_in([PathBuf::from("/nowhere/at/all")]).unwrap_err();
        assert!(e.to_string().contains("TMPDIR"), "{e}");
    }
}
