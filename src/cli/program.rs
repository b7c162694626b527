//! The program to run: where it is, and whether a preloaded library can get into it.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::elf;

/// Why a program cannot be run, and the exit code that shells give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unrunnable {
    /// 127 not found, 126 not executable.
    pub code: u8,
    /// For a person.
    pub message: String,
}

/// Finds a program as a shell would: a path as it is, a name along `PATH`.
pub fn find(name: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, Unrunnable> {
    let shown = name.to_string_lossy();
    let not_found = |message| Unrunnable { code: 127, message };
    let refused = |p: &Path, why: &str| Unrunnable { code: 126, message: format!("{}: {why}", p.display()) };
    if name.as_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        return match std::fs::metadata(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => Err(refused(&path, "permission denied")),
            Err(_) => Err(not_found(format!("{shown}: no such file"))),
            Ok(m) if m.is_dir() => Err(refused(&path, "is a folder")),
            Ok(m) if m.permissions().mode() & 0o111 == 0 => {
                Err(refused(&path, "is not executable (chmod +x, or name its interpreter)"))
            }
            Ok(_) => Ok(path),
        };
    }
    let mut seen = None;
    for folder in std::env::split_paths(path.unwrap_or(OsStr::new("/bin:/usr/bin"))) {
        let candidate = folder.join(name);
        match std::fs::metadata(&candidate) {
            Ok(m) if m.is_file() && m.permissions().mode() & 0o111 != 0 => return Ok(candidate),
            Ok(m) if m.is_file() => seen = seen.or(Some(candidate)),
            _ => {}
        }
    }
    match seen {
        Some(path) => Err(refused(&path, "is not executable")),
        None => Err(not_found(format!("{shown}: command not found"))),
    }
}

/// Follows `#!` lines to the binary that really runs.
pub fn binary(program: &Path) -> PathBuf {
    let mut path = program.to_path_buf();
    for _ in 0..4 {
        let Some(line) = first_line(&path) else { break };
        let mut words = line.split(|b| *b == b' ' || *b == b'\t').filter(|w| !w.is_empty());
        let Some(interpreter) = words.next() else { break };
        path = PathBuf::from(OsStr::from_bytes(interpreter));
        // `#!/usr/bin/env python3`: what env will find.
        if interpreter.ends_with(b"/env")
            && let Some(name) = words.find(|w| !w.starts_with(b"-"))
            && let Ok(found) = find(OsStr::from_bytes(name), std::env::var_os("PATH").as_deref())
        {
            path = found;
        }
    }
    path
}

fn first_line(path: &Path) -> Option<Vec<u8>> {
    let mut start = [0u8; 256];
    let n = std::fs::File::open(path).ok()?.read(&mut start).ok()?;
    let rest = start[..n].strip_prefix(b"#!")?;
    rest.split(|b| *b == b'\n').next().map(<[u8]>::to_vec)
}

/// Why the library cannot have been loaded into this program, if that can be told from its file.
pub fn closed(program: &Path) -> Option<String> {
    let binary = binary(program);
    let shown = binary.display();
    let mode = std::fs::metadata(&binary).ok()?.permissions().mode();
    if mode & 0o6000 != 0 {
        return Some(format!("{shown} is setuid or setgid, so the loader ignores LD_PRELOAD"));
    }
    match elf::read(&binary).ok()?? {
        f if f.foreign => Some(format!("{shown} is a program for another processor or word size")),
        f if !f.dynamic => Some(format!("{shown} is statically linked, so nothing can be preloaded")),
        _ => None,
    }
}

/// Libraries of a sanitizer that the program is linked with: they must be the first that the loader loads.
pub fn sanitizers(program: &Path) -> Vec<OsString> {
    let facts = elf::read(&binary(program)).ok().flatten().unwrap_or_default();
    facts.needed.into_iter().filter(|n| is_sanitizer(n)).map(OsString::from).collect()
}

/// Whether a library's file name is a sanitizer's.
pub fn is_sanitizer(name: &str) -> bool {
    [
        "libasan.",
        "libtsan.",
        "liblsan.",
        "libubsan.",
        "libhwasan.",
        "libclang_rt.asan",
        "libclang_rt.tsan",
        "libclang_rt.ubsan",
    ]
    .iter()
    .any(|s| name.starts_with(s))
}

/// The word before the program's words, which are the last of all.
pub fn before<'a>(words: &'a [OsString], program: &[OsString]) -> Option<&'a OsStr> {
    words.len().checked_sub(program.len() + 1).and_then(|i| words.get(i)).map(OsString::as_os_str)
}

/// Why the program's words begin with a flag: it is none of the `command`'s.
pub fn no_flag(command: &str, words: &[OsString], program: &[OsString]) -> Option<String> {
    let shown = program.first()?.to_string_lossy();
    if !shown.starts_with('-') || before(words, program) == Some(OsStr::new("--")) {
        return None;
    }
    let flag = shown.split('=').next().unwrap_or_default();
    Some(format!(
        "{flag} is no flag of vramscope {command} (vramscope {command} --help shows them); a program whose name begins with - goes after --"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(folder: &Path, name: &str, mode: u32, text: &str) -> PathBuf {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn found_as_a_shell_finds_it() {
        let folder = tempfile::tempdir().unwrap();
        let good = file(folder.path(), "good", 0o755, "#!/bin/sh\n");
        let bad = file(folder.path(), "bad", 0o644, "");
        let path = Some(folder.path().as_os_str());
        assert_eq!(find(OsStr::new("good"), path).unwrap(), good);
        assert_eq!(find(good.as_os_str(), None).unwrap(), good);
        assert_eq!(find(OsStr::new("bad"), path).unwrap_err().code, 126);
        assert_eq!(find(bad.as_os_str(), None).unwrap_err().code, 126);
        assert_eq!(find(folder.path().as_os_str(), None).unwrap_err().code, 126);
        let none = find(OsStr::new("none"), path).unwrap_err();
        assert_eq!((none.code, none.message.as_str()), (127, "none: command not found"));
        assert_eq!(find(OsStr::new("./none"), path).unwrap_err().code, 127);
    }

    #[test]
    fn scripts_lead_to_their_interpreter() {
        let folder = tempfile::tempdir().unwrap();
        let script = file(folder.path(), "script", 0o755, "#! /bin/sh -e\necho\n");
        assert_eq!(binary(&script), Path::new("/bin/sh"));
        assert!(closed(&script).is_none());
        let env = file(folder.path(), "env-script", 0o755, "#!/usr/bin/env sh\n");
        assert!(binary(&env).ends_with("sh"));
    }

    #[test]
    fn setuid_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("p");
        std::fs::copy("/bin/true", &program).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o4755)).unwrap();
        assert!(closed(&program).unwrap().contains("setuid"));
    }
}
