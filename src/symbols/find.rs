//! Which files to read a module's names from: its separate debug file and the file that ran, known by its build id.
//! Nothing is fetched over a network; what a debuginfod client fetched before is used.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use vramscope_core::trace::Module;

use super::identity::{checksum, debug_link, same, section_build_id};

/// What was found for a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// These files have the module's names, the best first: debug files, then the file that ran.
    Files(Vec<PathBuf>),
    /// No file of that name is there.
    Missing,
    /// A file is there, but it is not the one that ran.
    Changed,
}

/// Where to look beside a module's own path.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// Folders that a person named: programs, libraries and debug files, by name or below `.build-id`.
    pub folders: Vec<PathBuf>,
    /// Roots of the system's debug files: below `.build-id`, or under the path of the library's folder.
    pub debug: Vec<PathBuf>,
    /// Caches of debuginfod clients: `BUILD-ID/debuginfo` and `BUILD-ID/executable`.
    pub caches: Vec<PathBuf>,
}

impl Places {
    /// These folders, and where this system keeps debug files.
    pub fn of_system(folders: &[PathBuf]) -> Places {
        let folder = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let home = folder("HOME");
        let cache = folder("XDG_CACHE_HOME").or_else(|| Some(home.as_ref()?.join(".cache")));
        let caches = match folder("DEBUGINFOD_CACHE_PATH") {
            Some(one) => vec![one],
            None => {
                let new = cache.map(|c| c.join("debuginfod_client"));
                new.into_iter().chain(home.map(|h| h.join(".debuginfod_client_cache"))).collect()
            }
        };
        Places { folders: folders.to_vec(), debug: vec!["/usr/lib/debug".into()], caches }
    }

    /// Where the parts of debug files lie that several share (`dwz`).
    pub fn links(&self) -> Vec<PathBuf> {
        self.folders.iter().chain(&self.debug).cloned().collect()
    }

    /// Finds the files for a module.
    pub fn find(&self, module: &Module) -> Found {
        self.look(module).0
    }

    /// The files for a module, and those that are called like them but are of another build.
    pub fn look(&self, module: &Module) -> (Found, Vec<PathBuf>) {
        let mut search = Search { id: &module.build_id, found: Vec::new(), seen: HashSet::new(), rejected: Vec::new() };
        let path = Path::new(&module.path);
        for folder in &self.folders {
            search.all(by_build_id(folder, &module.build_id));
            if let Some(name) = path.file_name() {
                let mut debug = name.to_os_string();
                debug.push(".debug");
                search.all([folder.join(debug), folder.join(name)]);
            }
            // A copy of another machine's whole tree.
            search.all(path.strip_prefix("/").map(|p| folder.join(p)));
        }
        for folder in &self.debug {
            search.all(by_build_id(folder, &module.build_id));
        }
        for folder in self.caches.iter().filter(|_| module.build_id.len() > 2) {
            let folder = folder.join(module.build_id.to_ascii_lowercase());
            search.all([folder.join("debuginfo"), folder.join("executable")]);
        }
        // A name without a folder (the kernel's page of code) is no file.
        let own = module.path.contains('/') && search.offer(path.to_path_buf());
        // A stripped file says what its debug file is called; without a debug file so far, look for that name.
        let links: Vec<PathBuf> = search.found.iter().filter(|f| !is_debug_file(f)).cloned().collect();
        for file in links {
            self.linked(&mut search, &file, path);
        }
        // What ran comes last: it has what the debug files lack, if anything.
        if own {
            search.found.retain(|f| f != path);
            search.found.push(path.to_path_buf());
        }
        let found = match search {
            Search { ref mut found, .. } if !found.is_empty() => Found::Files(std::mem::take(found)),
            Search { ref rejected, .. } if !rejected.is_empty() => Found::Changed,
            Search { .. } => Found::Missing,
        };
        (found, search.rejected)
    }

    /// Adds the debug file that this file's debug link is about.
    fn linked(&self, search: &mut Search<'_>, file: &Path, path: &Path) {
        let Some(link) = debug_link(file) else { return };
        let mut candidates: Vec<PathBuf> = self.folders.iter().map(|f| f.join(&link.name)).collect();
        for folder in [file.parent(), path.parent()].into_iter().flatten() {
            candidates.push(folder.join(&link.name));
            candidates.push(folder.join(".debug").join(&link.name));
            // The folder as it is called and as it is: /lib may be /usr/lib.
            for folder in [Some(folder.to_path_buf()), folder.canonicalize().ok()].into_iter().flatten() {
                let inside = folder.strip_prefix("/").unwrap_or(&folder).to_path_buf();
                candidates.extend(self.debug.iter().map(|d| d.join(&inside).join(&link.name)));
            }
        }
        for candidate in candidates {
            if !candidate.is_file() || !search.seen.insert(candidate.clone()) {
                continue;
            }
            // Build ids are sure and cheap; the checksum takes a reading of the whole file.
            let right = match section_build_id(&candidate) {
                Some(id) if !search.id.is_empty() => id.eq_ignore_ascii_case(search.id),
                _ => checksum(&candidate) == Some(link.checksum),
            };
            if right {
                search.found.insert(0, candidate);
                return;
            }
            search.rejected.push(candidate);
        }
    }
}

struct Search<'a> {
    id: &'a str,
    found: Vec<PathBuf>,
    seen: HashSet<PathBuf>,
    /// Of another build.
    rejected: Vec<PathBuf>,
}

impl Search<'_> {
    /// Takes a file if it is there and the right one.
    fn offer(&mut self, path: PathBuf) -> bool {
        if !path.is_file() || !self.seen.insert(path.clone()) {
            return false;
        }
        if same(&path, self.id) {
            self.found.push(path);
            return true;
        }
        self.rejected.push(path);
        false
    }

    fn all(&mut self, paths: impl IntoIterator<Item = PathBuf>) {
        for path in paths {
            self.offer(path);
        }
    }
}

/// `.build-id/ab/cdef.debug`, and what ran under the same name.
fn by_build_id(folder: &Path, id: &str) -> Vec<PathBuf> {
    let (Some(first), Some(rest)) = (id.get(..2), id.get(2..).filter(|r| !r.is_empty())) else { return Vec::new() };
    let folder = folder.join(".build-id").join(first.to_ascii_lowercase());
    let rest = rest.to_ascii_lowercase();
    vec![folder.join(format!("{rest}.debug")), folder.join(rest)]
}

/// Whether a file is named as debug files are.
fn is_debug_file(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "debug") || path.ends_with("debuginfo")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(path: &Path, build_id: &str) -> Module {
        Module { path: path.display().to_string(), build_id: build_id.to_string(), ..Module::default() }
    }

    fn me() -> (PathBuf, String) {
        let me = std::env::current_exe().unwrap();
        let id = section_build_id(&me).unwrap_or_default();
        (me, id)
    }

    #[test]
    fn by_path_and_build_id() {
        let (me, id) = me();
        let nowhere = Places::default();
        assert_eq!(nowhere.find(&module(&me, &id)), Found::Files(vec![me.clone()]));
        assert_eq!(nowhere.find(&module(&me, "00112233")), Found::Changed);
        assert_eq!(nowhere.find(&module(Path::new("/nowhere/lib.so"), &id)), Found::Missing);
        assert_eq!(nowhere.find(&module(Path::new("[vdso]"), "")), Found::Missing);
        let moved = Path::new("/nowhere").join(me.file_name().unwrap());
        let places = Places { folders: vec![me.parent().unwrap().to_path_buf()], ..Places::default() };
        assert_eq!(places.find(&module(&moved, &id)), Found::Files(vec![me]));
    }

    #[test]
    fn debug_files_lie_under_their_build_id() {
        let both = ["/d/.build-id/ab/cdef.debug", "/d/.build-id/ab/cdef"].map(PathBuf::from);
        assert_eq!(by_build_id(Path::new("/d"), "abCDef"), both);
        assert!(by_build_id(Path::new("/d"), "").is_empty() && by_build_id(Path::new("/d"), "ab").is_empty());
    }

    #[test]
    fn a_debuginfod_clients_cache_comes_before_the_file_that_ran() {
        let (me, id) = me();
        let folder = tempfile::tempdir().unwrap();
        let entry = folder.path().join(&id);
        std::fs::create_dir(&entry).unwrap();
        std::os::unix::fs::symlink(&me, entry.join("debuginfo")).unwrap();
        let places = Places { caches: vec![folder.path().to_path_buf()], ..Places::default() };
        assert_eq!(places.find(&module(&me, &id)), Found::Files(vec![entry.join("debuginfo"), me]));
    }
}
