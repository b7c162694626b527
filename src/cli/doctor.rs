//! `vramscope doctor`: can vramscope work here, and what does it see of a program?

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;

use super::probe::{self, Seen};
use super::run_dir::RunDir;
use super::{elf, preload, program, say};
use crate::report::text::bytes;

/// Checks this machine, and a program.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The preload library [default: beside this program; env: VRAMSCOPE_LIB]
    #[arg(long, value_name = "PATH")]
    pub lib: Option<PathBuf>,
    /// A program to run, to see which of its calls are seen
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Fine.
    Ok,
    /// Works, with less.
    Warn,
    /// Does not work.
    Bad,
}

/// A check's line.
struct Check(&'static str, Verdict, String);

/// Runs the command.
pub fn run(args: &Args) -> Result<ExitCode> {
    let words: Vec<OsString> = std::env::args_os().collect();
    if let Some(line) = program::no_flag("doctor", &words, &args.program) {
        say::line(&line);
        return Ok(ExitCode::from(2));
    }
    let mut wrong: Vec<String> = Vec::new();
    let library = preload::find(args.lib.as_deref());
    let mut checks = vec![driver(), devices()];
    checks.extend(library_checks(library.as_deref().ok(), library.as_ref().err()));
    checks.extend([memory(), clock()]);
    for Check(name, verdict, text) in &checks {
        if *verdict == Verdict::Bad {
            wrong.push(text.clone());
        }
        print_line(name, *verdict, text)?;
    }
    if let (Some(name), Ok(library)) = (args.program.first(), &library) {
        match probe::probe(name, args, library)? {
            Seen::Nothing => wrong.push(format!("{} is not seen", name.to_string_lossy())),
            // The proof is stronger than what was looked for.
            Seen::Allocations if !wrong.is_empty() => {
                say::print(&format!("=> works here: the program was recorded, although {}\n", wrong.join("; ")))?;
                return Ok(ExitCode::SUCCESS);
            }
            Seen::Calls | Seen::Allocations => {}
        }
    }
    say::print(&match wrong.as_slice() {
        [] => "=> works here\n".to_string(),
        wrong => format!("=> cannot work here: {}\n", wrong.join("; ")),
    })?;
    Ok(ExitCode::from(u8::from(!wrong.is_empty())))
}

/// Writes a check's line.
pub fn print_line(name: &str, verdict: Verdict, text: &str) -> Result<()> {
    let word = match verdict {
        Verdict::Ok => "ok",
        Verdict::Warn => "warn",
        Verdict::Bad => "BAD",
    };
    say::print(&format!("{name:<14} {word:<5} {text}\n"))
}

fn driver() -> Check {
    let version = std::fs::read_to_string("/proc/driver/nvidia/version").ok().and_then(|t| version(&t));
    match (find_library("libcuda.so.1"), version) {
        (Some(path), Some(v)) => Check("driver", Verdict::Ok, format!("NVIDIA {v}, {}", path.display())),
        (Some(path), None) => Check(
            "driver",
            Verdict::Warn,
            format!("{} is there, but the kernel has no NVIDIA driver loaded", path.display()),
        ),
        (None, Some(v)) => Check(
            "driver",
            Verdict::Bad,
            format!("the kernel has NVIDIA {v}, but libcuda.so.1 is not found (in a container: run it with --gpus)"),
        ),
        (None, None) => Check("driver", Verdict::Bad, "libcuda.so.1 is not found: no NVIDIA driver here".to_string()),
    }
}

/// The number in `NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.03  Tue …`.
fn version(text: &str) -> Option<String> {
    let line = text.lines().find(|l| l.starts_with("NVRM version"))?;
    let number = |w: &&str| w.contains('.') && w.chars().all(|c| c.is_ascii_digit() || c == '.');
    line.split_whitespace().find(number).map(str::to_string)
}

/// Finds a library as the loader would: LD_LIBRARY_PATH, the loader's cache, the usual folders.
fn find_library(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let own =
        std::env::split_paths(&path).filter(|p| !p.as_os_str().is_empty()).map(|p| p.join(name)).find(|p| p.is_file());
    own.or_else(|| cached(&std::fs::read("/etc/ld.so.cache").ok()?, name)).or_else(|| {
        let arch = std::env::consts::ARCH;
        let folders = [
            format!("/lib/{arch}-linux-gnu"),
            format!("/usr/lib/{arch}-linux-gnu"),
            "/lib64".into(),
            "/usr/lib64".into(),
            "/usr/lib".into(),
            "/usr/local/nvidia/lib64".into(),
            "/usr/local/cuda/compat".into(),
        ];
        folders.into_iter().map(|f| Path::new(&f).join(name)).find(|p| p.is_file())
    })
}

/// The file of a library in the bytes of ld.so.cache: names and paths are its strings, one after the other's NUL.
fn cached(cache: &[u8], name: &str) -> Option<PathBuf> {
    let strings = cache.split(|b| *b == 0).filter_map(|s| std::str::from_utf8(s).ok());
    let paths = strings.filter(|s| s.starts_with('/') && s.rsplit('/').next() == Some(name)).map(PathBuf::from);
    paths.filter(|p| elf::read(p).ok().flatten().is_some_and(|f| !f.foreign)).find(|p| p.is_file())
}

fn devices() -> Check {
    let names =
        std::fs::read_dir("/dev").into_iter().flatten().flatten().map(|e| e.file_name().to_string_lossy().into_owned());
    let cards: Vec<String> = names
        .filter(|n| n.strip_prefix("nvidia").is_some_and(|r| !r.is_empty() && r.bytes().all(|b| b.is_ascii_digit())))
        .collect();
    if cards.is_empty() {
        return Check("GPUs", Verdict::Bad, "no GPU here: no /dev/nvidia0, nor one of another number".to_string());
    }
    let closed: Vec<&String> = cards
        .iter()
        .filter(|c| std::fs::OpenOptions::new().read(true).write(true).open(format!("/dev/{c}")).is_err())
        .collect();
    match closed.first() {
        None => Check("GPUs", Verdict::Ok, format!("{} in /dev", cards.len())),
        Some(c) => Check(
            "GPUs",
            Verdict::Bad,
            format!("/dev/{c} can't be opened by this user ({} of {})", closed.len(), cards.len()),
        ),
    }
}

fn library_checks(path: Option<&Path>, error: Option<&anyhow::Error>) -> Vec<Check> {
    let Some(path) = path else {
        return vec![Check("library", Verdict::Bad, error.map(|e| format!("{e:#}")).unwrap_or_default())];
    };
    let facts = match elf::read(path) {
        Ok(Some(facts)) if !facts.foreign => facts,
        Ok(_) => {
            return vec![Check("library", Verdict::Bad, format!("{} is no library for this machine", path.display()))];
        }
        Err(e) => return vec![Check("library", Verdict::Bad, format!("{e:#}"))],
    };
    vec![library(path, &facts), glibc(&facts)]
}

/// Names that must be exported, for the three doors.
const EXPORTS: [&str; 8] = [
    "dlsym",
    "cuGetProcAddress",
    "cuGetProcAddress_v2",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemGetInfo_v2",
    "cudaMalloc",
    "cudaFree",
];
/// Libraries that it must not be linked with: they would come into programs that have none, or another one.
const NOT_NEEDED: [&str; 4] = ["libcuda.", "libcudart.", "libgcc_s.", "libstdc++."];

fn library(path: &Path, facts: &elf::Facts) -> Check {
    let missing: Vec<&str> = EXPORTS.into_iter().filter(|e| !facts.exports.iter().any(|x| x == e)).collect();
    let wrong: Vec<&str> =
        facts.needed.iter().map(String::as_str).filter(|n| NOT_NEEDED.iter().any(|w| n.starts_with(w))).collect();
    if !missing.is_empty() {
        return Check("library", Verdict::Bad, format!("{} lacks {}", path.display(), missing.join(", ")));
    }
    if !wrong.is_empty() {
        return Check("library", Verdict::Bad, format!("{} is linked with {}", path.display(), wrong.join(", ")));
    }
    let hooks = facts.exports.iter().filter(|e| e.starts_with("cu")).count();
    Check(
        "library",
        Verdict::Ok,
        format!("{}, {hooks} CUDA functions, needs {}", path.display(), facts.needed.join(" ")),
    )
}

fn glibc(facts: &elf::Facts) -> Check {
    let here =
        find_library("libc.so.6").and_then(|p| elf::read(&p).ok().flatten()).and_then(|f| f.glibc.last().copied());
    let wanted = facts.glibc.last().copied().unwrap_or_default();
    match here {
        None => {
            Check("glibc", Verdict::Warn, "libc.so.6 is not found: is this musl? The library needs glibc".to_string())
        }
        Some(h) if h < wanted => Check(
            "glibc",
            Verdict::Bad,
            format!("{}.{}, but the library needs {}.{}: build it here", h.0, h.1, wanted.0, wanted.1),
        ),
        Some(h) => Check("glibc", Verdict::Ok, format!("{}.{}", h.0, h.1)),
    }
}

/// Bytes a spool may take.
const SPOOL: u64 = 64 << 20;

fn memory() -> Check {
    const NAME: &str = "shared memory";
    let free = rustix::fs::statvfs("/dev/shm").map(|s| s.f_bavail * s.f_frsize);
    match (free, RunDir::create_in([PathBuf::from("/dev/shm")])) {
        (Ok(free), Ok(folder)) => {
            folder.remove();
            if free < SPOOL {
                let text = format!(
                    "/dev/shm has only {} free: a spool takes up to {} (in a container: --shm-size=1g)",
                    bytes(free),
                    bytes(SPOOL)
                );
                return Check(NAME, Verdict::Warn, text);
            }
            Check(NAME, Verdict::Ok, format!("/dev/shm, {} free", bytes(free)))
        }
        (_, Err(e)) => Check(NAME, Verdict::Warn, format!("{e:#}; spools go elsewhere")),
        (Err(e), _) => Check(NAME, Verdict::Warn, format!("/dev/shm: {e}; spools go elsewhere")),
    }
}

fn clock() -> Check {
    let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    match std::fs::read_to_string(path) {
        Ok(c) if c.trim() == "tsc" => Check("clock", Verdict::Ok, "tsc".to_string()),
        Ok(c) => Check("clock", Verdict::Ok, format!("{}: times cost more than with tsc", c.trim())),
        Err(_) => Check("clock", Verdict::Ok, "not known: times are read by the system's clock".to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_version_line() {
        let text =
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.03  Tue Aug 12 2025\nGCC version: gcc 12.2.0\n";
        assert_eq!(version(text).unwrap(), "580.159.03");
        assert_eq!(version("nothing"), None);
    }

    #[test]
    fn a_library_of_the_loaders_cache() {
        assert!(find_library("libc.so.6").is_some());
        assert_eq!(find_library("libnothing-of-this-name.so.7"), None);
    }

    #[test]
    fn a_library_that_lacks_its_doors_is_bad() {
        let facts = elf::Facts { exports: EXPORTS.map(str::to_string).to_vec(), ..elf::Facts::default() };
        assert_eq!(library(Path::new("x"), &facts).1, Verdict::Ok);
        let linked = elf::Facts { needed: vec!["libcudart.so.13".into()], ..facts.clone() };
        assert_eq!(library(Path::new("x"), &linked).1, Verdict::Bad);
        assert_eq!(library(Path::new("x"), &elf::Facts::default()).1, Verdict::Bad);
    }
}
