//! Which file to read a module's names from: the one that ran, known by its build id, or its separate debug file.

use std::path::{Path, PathBuf};

use vramscope_core::trace::Module;

/// What was found for a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// This file has the module's names.
    File(PathBuf),
    /// No file of that name is there.
    Missing,
    /// A file is there, but it is not the one that ran.
    Changed,
}

/// Where distributions put separate debug files.
const DEBUG: &str = "/usr/lib/debug";

/// Finds the file for a module: `folders` first (by name, then `.build-id/xx/yyyy.debug`), then the debug files of the
/// system, then the path it had when it ran.
pub fn find(module: &Module, folders: &[PathBuf]) -> Found {
    let path = Path::new(&module.path);
    let mut changed = false;
    let mut candidates = Vec::new();
    for folder in folders {
        candidates.extend(path.file_name().map(|name| folder.join(name)));
        candidates.extend(by_build_id(folder, &module.build_id));
    }
    candidates.extend(by_build_id(Path::new(DEBUG), &module.build_id));
    candidates.push(path.to_path_buf());
    for candidate in candidates {
        if !candidate.is_file() {
            continue;
        }
        if same(&candidate, &module.build_id) {
            return Found::File(candidate);
        }
        changed = true;
    }
    if changed { Found::Changed } else { Found::Missing }
}

fn by_build_id(folder: &Path, id: &str) -> Option<PathBuf> {
    let (first, rest) = (id.get(..2)?, id.get(2..)?);
    (!rest.is_empty()).then(|| folder.join(".build-id").join(first).join(format!("{rest}.debug")))
}

/// Whether the file has this build id. One without, recorded so, can't be told apart: it is believed.
fn same(path: &Path, recorded: &str) -> bool {
    let now = blazesym::helper::read_elf_build_id(&path).ok().flatten();
    let text = |id: &[u8]| id.iter().map(|b| format!("{b:02x}")).collect::<String>();
    now.map(|id| text(&id)).unwrap_or_default().eq_ignore_ascii_case(recorded)
        || loaded_build_ids(path).iter().any(|id| text(id).eq_ignore_ascii_case(recorded))
}

/// The build ids in the parts of a file that are loaded. Tools that rewrite libraries (patchelf, as Python wheels are
/// made) may leave the section and the loaded note with different ones, and the process saw the loaded one.
fn loaded_build_ids(path: &Path) -> Vec<Vec<u8>> {
    use object::elf::{FileHeader64, NT_GNU_BUILD_ID};
    use object::read::ReadCache;
    use object::read::elf::{FileHeader, ProgramHeader};
    let read = || -> Option<Vec<Vec<u8>>> {
        let data = ReadCache::new(std::fs::File::open(path).ok()?);
        let header = FileHeader64::<object::Endianness>::parse(&data).ok()?;
        let endian = header.endian().ok()?;
        let mut ids = Vec::new();
        for segment in header.program_headers(endian, &data).ok()? {
            let Ok(Some(mut notes)) = segment.notes(endian, &data) else { continue };
            while let Ok(Some(note)) = notes.next() {
                if note.name() == b"GNU" && note.n_type(endian) == NT_GNU_BUILD_ID {
                    ids.push(note.desc().to_vec());
                }
            }
        }
        Some(ids)
    };
    read().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(path: &Path, build_id: &str) -> Module {
        Module { path: path.display().to_string(), build_id: build_id.to_string(), ..Module::default() }
    }

    #[test]
    fn by_path_and_build_id() {
        let me = std::env::current_exe().unwrap();
        let id = blazesym::helper::read_elf_build_id(&me).unwrap();
        let id: String = id.unwrap_or_default().iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(find(&module(&me, &id), &[]), Found::File(me.clone()));
        assert_eq!(find(&module(&me, "00112233"), &[]), Found::Changed);
        assert_eq!(find(&module(Path::new("/nowhere/lib.so"), &id), &[]), Found::Missing);
        let moved = Path::new("/nowhere").join(me.file_name().unwrap());
        assert_eq!(find(&module(&moved, &id), &[me.parent().unwrap().to_path_buf()]), Found::File(me));
    }

    #[test]
    fn debug_files_lie_under_their_build_id() {
        assert_eq!(by_build_id(Path::new("/d"), "abcdef"), Some(PathBuf::from("/d/.build-id/ab/cdef.debug")));
        assert_eq!(by_build_id(Path::new("/d"), ""), None);
        assert_eq!(by_build_id(Path::new("/d"), "ab"), None);
    }
}
