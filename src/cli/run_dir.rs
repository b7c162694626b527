//! The private folder of a run, in memory where there is some: each traced process keeps its spool there, so that its
//! last events can be read when it was killed.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Result, bail};

/// The folder; its owner removes it.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
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
                Ok(path) => return Ok(RunDir { path }),
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
    pub fn remove(self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
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
        a.remove();
        b.remove();
        assert!(!path.exists());
        let e = RunDir::create_in([PathBuf::from("/nowhere/at/all")]).unwrap_err();
        assert!(e.to_string().contains("TMPDIR"), "{e}");
    }
}
