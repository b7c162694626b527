//! Where the preload library is, and what LD_PRELOAD becomes.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::elf;
use super::program::is_sanitizer;

/// File name of the library.
pub const LIBRARY: &str = "libvramscope.so";

/// A function that it exports.
const OURS: &str = "vramscope_active";

/// Finds the library: the flag, `VRAMSCOPE_LIB`, beside this program, in `../lib`. Absolute.
pub fn find(flag: Option<&Path>) -> Result<PathBuf> {
    let given = flag.map(Path::to_path_buf).map(|p| ("--lib", p));
    let given = given.or_else(|| std::env::var_os("VRAMSCOPE_LIB").map(|p| ("VRAMSCOPE_LIB", p.into())));
    if let Some((by, path)) = given {
        if !path.is_file() {
            bail!("{} (from {by}) is not there; give the path of {LIBRARY}", path.display());
        }
        let ours = elf::read(&path)?.is_some_and(|facts| facts.exports.iter().any(|name| name == OURS));
        if !ours {
            bail!("{} (from {by}) is no {LIBRARY}", path.display());
        }
        return std::path::absolute(&path).context("the current folder is gone");
    }
    let me = std::env::current_exe().context("finding this program's own folder")?;
    let folder = me.parent().unwrap_or(Path::new("/"));
    let places =
        [folder.join(LIBRARY), folder.join("../lib").join(LIBRARY), folder.join("../lib/vramscope").join(LIBRARY)];
    match places.iter().find(|p| p.is_file()) {
        Some(path) => Ok(path.canonicalize().unwrap_or_else(|_| path.clone())),
        None => {
            let looked: Vec<_> = places.iter().map(|p| p.display().to_string()).collect();
            bail!(
                "{LIBRARY} not found (looked at {}); build it (cargo build --release --workspace), or give --lib PATH or VRAMSCOPE_LIB",
                looked.join(", ")
            )
        }
    }
}

/// Whether ld.so would take this path for something else: it splits at spaces and colons, and expands `$`.
pub fn splits(path: &Path) -> bool {
    path.as_os_str().as_bytes().iter().any(|b| b" \t\n:;$".contains(b))
}

/// The library by a path that ld.so takes whole: its own, or a link to it in the run directory.
pub fn plain_path(library: &Path, run_dir: &Path) -> Result<PathBuf> {
    if !splits(library) {
        return Ok(library.to_path_buf());
    }
    if splits(run_dir) {
        bail!(
            "{}: LD_PRELOAD cannot hold a path with spaces, colons or $; put the library elsewhere",
            library.display()
        );
    }
    let link = run_dir.join(LIBRARY);
    std::os::unix::fs::symlink(library, &link).with_context(|| link.display().to_string())?;
    Ok(link)
}

/// LD_PRELOAD with our library in it. What was there stays; sanitizers, there or needed by the program, come first:
/// they refuse to start, or miss calls, when something is before them.
pub fn value(existing: Option<&OsStr>, library: &Path, sanitizers: &[OsString]) -> OsString {
    let existing = existing.map_or(&[][..], OsStr::as_bytes);
    let entries: Vec<&[u8]> = existing.split(|b| *b == b' ' || *b == b':').filter(|e| !e.is_empty()).collect();
    let name = |e: &[u8]| String::from_utf8_lossy(e.rsplit(|b| *b == b'/').next().unwrap_or(e)).into_owned();
    let mut first: Vec<&[u8]> = entries.iter().copied().filter(|e| is_sanitizer(&name(e))).collect();
    for s in sanitizers {
        if !first.iter().any(|e| name(e).as_bytes() == s.as_bytes()) {
            first.push(s.as_bytes());
        }
    }
    let others = entries.iter().copied().filter(|e| !is_sanitizer(&name(e)) && name(e) != LIBRARY);
    let all: Vec<&[u8]> = first.into_iter().chain([library.as_os_str().as_bytes()]).chain(others).collect();
    OsString::from_vec(all.join(&b':'))
}

/// ASAN_OPTIONS for programs that are not seen before they start (a script's children): their AddressSanitizer is not
/// first in LD_PRELOAD, and would refuse to start because of that. What was asked for stays.
pub fn asan_options(existing: Option<&OsStr>) -> OsString {
    const OPTION: &[u8] = b"verify_asan_link_order";
    let existing = existing.map_or(&[][..], OsStr::as_bytes);
    if existing.windows(OPTION.len()).any(|w| w == OPTION) {
        return OsString::from_vec(existing.to_vec());
    }
    let mut options = existing.to_vec();
    if !options.is_empty() {
        options.push(b':');
    }
    options.extend_from_slice(b"verify_asan_link_order=0");
    OsString::from_vec(options)
}

/// Whether the variable that NVTX reads is to name our library: it is not set, or by another vramscope. Another tool's
/// (Nsight Systems) is left alone.
pub fn is_nvtx_ours(existing: Option<&OsStr>) -> bool {
    existing.is_none_or(|path| path.is_empty() || Path::new(path).file_name() == Some(OsStr::new(LIBRARY)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v(existing: &str, sanitizers: &[&str]) -> String {
        let sanitizers: Vec<OsString> = sanitizers.iter().map(OsString::from).collect();
        let existing = (!existing.is_empty()).then(|| OsStr::new(existing));
        value(existing, Path::new("/opt/libvramscope.so"), &sanitizers).into_string().unwrap()
    }

    #[test]
    fn what_was_there_stays_and_sanitizers_come_first() {
        assert_eq!(v("", &[]), "/opt/libvramscope.so");
        assert_eq!(v("/x/libjemalloc.so", &[]), "/opt/libvramscope.so:/x/libjemalloc.so");
        assert_eq!(
            v("/x/libjemalloc.so /y/libasan.so.8", &[]),
            "/y/libasan.so.8:/opt/libvramscope.so:/x/libjemalloc.so"
        );
        assert_eq!(v("", &["libasan.so.8"]), "libasan.so.8:/opt/libvramscope.so");
        assert_eq!(v("/y/libasan.so.8", &["libasan.so.8"]), "/y/libasan.so.8:/opt/libvramscope.so");
        assert_eq!(v("/old/libvramscope.so:a.so", &[]), "/opt/libvramscope.so:a.so");
    }

    #[test]
    fn sanitizers_of_children_do_not_refuse_to_start() {
        let options = |existing: Option<&str>| asan_options(existing.map(OsStr::new)).into_string().unwrap();
        assert_eq!(options(None), "verify_asan_link_order=0");
        assert_eq!(options(Some("detect_leaks=0")), "detect_leaks=0:verify_asan_link_order=0");
        assert_eq!(options(Some("verify_asan_link_order=1")), "verify_asan_link_order=1");
    }

    #[test]
    fn another_tool_keeps_nvtx() {
        let ours = |existing: Option<&str>| is_nvtx_ours(existing.map(OsStr::new));
        assert!(ours(None) && ours(Some("")) && ours(Some("/old/libvramscope.so")));
        assert!(!ours(Some("/opt/nsight/libToolsInjection64.so")));
    }

    #[test]
    fn a_path_that_splits_gets_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("my lib").join(LIBRARY);
        std::fs::create_dir(library.parent().unwrap()).unwrap();
        std::fs::write(&library, "x").unwrap();
        let run_dir = folder.path().join("run");
        std::fs::create_dir(&run_dir).unwrap();
        let link = plain_path(&library, &run_dir).unwrap();
        assert_eq!(link, run_dir.join(LIBRARY));
        assert_eq!(std::fs::read(&link).unwrap(), b"x");
        assert!(plain_path(&library, library.parent().unwrap()).unwrap_err().to_string().contains("spaces"));
        assert_eq!(plain_path(&link, &run_dir).unwrap(), link);
    }

    #[test]
    fn a_given_library_must_be_there() {
        let e = find(Some(Path::new("/nowhere/libvramscope.so"))).unwrap_err();
        assert_eq!(
            e.to_string(),
            "/nowhere/libvramscope.so (from --lib) is not there; give the path of libvramscope.so"
        );
        let other = std::env::current_exe().unwrap();
        let e = find(Some(&other)).unwrap_err().to_string();
        assert!(e.ends_with("(from --lib) is no libvramscope.so"), "{e}");
    }
}
