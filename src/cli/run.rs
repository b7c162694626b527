//! `vramscope run`: runs a program under the preload library, finishes its histories, and says in six lines what was.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};

use anyhow::Result;
use rustix::fs::Access;
use vramscope_core::rank;

use super::harvest::Harvest;
use super::run_dir::RunDir;
use super::settings::{DEFAULT_TRACE, Flags};
use super::{child, ending, frameworks, preload, program, say};

/// The default name of a rank's history: the ranks of a job may write to one folder from several hosts.
const RANKED_TRACE: &str = "vramscope-%n-rank%r-%h-%p.jsonl";

/// Runs a program under vramscope.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Say nothing at the end
    #[arg(short, long)]
    pub quiet: bool,
    /// The preload library [default: beside this program; env: VRAMSCOPE_LIB]
    #[arg(long, value_name = "PATH")]
    pub lib: Option<PathBuf>,
    /// The settings.
    #[command(flatten)]
    pub flags: Flags,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, required = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<ExitCode> {
    let Some(name) = args.program.first() else { return Ok(ExitCode::from(2)) };
    let words: Vec<OsString> = std::env::args_os().collect();
    if let Some(wrong) = misread(&words, &args.program, std::env::var_os("PATH").as_deref()) {
        say::line(&wrong);
        return Ok(ExitCode::from(2));
    }
    let library = preload::find(args.lib.as_deref())?;
    let program = match program::find(name, std::env::var_os("PATH").as_deref()) {
        Ok(path) => path,
        Err(e) => {
            say::line(&e.message);
            return Ok(ExitCode::from(e.code));
        }
    };
    let here = std::env::current_dir();
    let ranked = rank::rank(|n| std::env::var(n).ok()).is_some();
    let usual = if ranked { RANKED_TRACE } else { DEFAULT_TRACE };
    let trace = trace_pattern(args.flags.get("VRAMSCOPE_TRACE").cloned(), usual, here.ok())?;
    if let Some(line) = frameworks::idle(&args.flags) {
        say::line(&line);
    }
    let run_dir = RunDir::create()?;
    let command = command(args, &program, &library, &trace, run_dir.path())?;
    let (mut harvest, status) = match execute(command, run_dir) {
        Ok(done) => done,
        Err(e) => {
            say::line(&format!("{}: {e}{}", name.to_string_lossy(), hint(&e)));
            return Ok(ExitCode::from(126));
        }
    };
    harvest.end(child::code(status), &trace);
    if args.quiet {
        ending::say_renamed(&harvest, Path::new(&trace));
    } else {
        ending::say(&harvest, &program, args);
    }
    Ok(child::end_like(status))
}

/// Why the program's words (the last of all) cannot be meant as a program: a flag that is not ours, or a flag's value.
fn misread(words: &[OsString], program: &[OsString], path: Option<&OsStr>) -> Option<String> {
    if let Some(line) = program::no_flag("run", words, program) {
        return Some(line);
    }
    let name = program.first()?;
    let before = program::before(words, program);
    let shown = name.to_string_lossy();
    if before == Some(OsStr::new("--")) || program::find(name, path).is_ok() {
        return None;
    }
    program[1..].iter().any(|w| w == "--").then(|| {
        let after = before.map_or(String::new(), |b| format!(" after {}", b.to_string_lossy()));
        format!("'{shown}'{after} is neither a flag nor a program, and the program comes after --")
    })
}

/// Where the history goes: absolute, because the program may change its folder; a folder gets the `usual` name. Where
/// the current folder (`here`) was removed, the program runs all the same, and its history goes to the temporary one.
fn trace_pattern(flag: Option<OsString>, usual: &str, here: Option<PathBuf>) -> Result<OsString> {
    let given = flag.or_else(|| std::env::var_os("VRAMSCOPE_TRACE")).filter(|t| !t.is_empty());
    let mut path = PathBuf::from(given.unwrap_or_else(|| usual.into()));
    if path == Path::new("off") {
        return Ok(path.into());
    }
    if path.is_relative() {
        let here = here.unwrap_or_else(|| {
            let folder = std::env::temp_dir();
            say::line(&format!(
                "the current folder is gone: the history goes to {}; --trace with an absolute path says where else",
                folder.display()
            ));
            folder
        });
        path = here.join(path);
    }
    if path.is_dir() {
        path.push(usual);
    }
    let path = std::path::absolute(&path)?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    if !folder.to_string_lossy().contains('%') && !folder.is_dir() {
        anyhow::bail!("{}: no such folder; create it, or give another --trace", folder.display());
    }
    // A pipe or a device that is there is only opened.
    let opened = std::fs::metadata(&path).is_ok_and(|there| !there.is_file());
    if folder.is_dir() && !opened {
        rustix::fs::access(folder, Access::WRITE_OK | Access::EXEC_OK).map_err(|e| {
            anyhow::anyhow!("{}: the history can't be written there ({e}); give another --trace", folder.display())
        })?;
    }
    Ok(path.into())
}

fn command(args: &Args, program: &Path, library: &Path, trace: &OsStr, run_dir: &Path) -> Result<Command> {
    let library = preload::plain_path(library, run_dir)?;
    let existing = std::env::var_os("LD_PRELOAD");
    let preload = preload::value(existing.as_deref(), &library, &program::sanitizers(program));
    let mut command = Command::new(&args.program[0]);
    command.args(&args.program[1..]);
    command.envs(args.flags.0.iter().map(|(variable, value)| (variable, value)));
    let wanted = frameworks::wanted(&args.flags, run_dir);
    wanted.lines(args.quiet).iter().for_each(|line| say::line(line));
    command.envs(wanted.set);
    command.env("ASAN_OPTIONS", preload::asan_options(std::env::var_os("ASAN_OPTIONS").as_deref()));
    if preload::is_nvtx_ours(std::env::var_os("NVTX_INJECTION64_PATH").as_deref()) {
        command.env("NVTX_INJECTION64_PATH", &library);
    }
    command.env("VRAMSCOPE_TRACE", trace).env("VRAMSCOPE_RUN_DIR", run_dir).env("LD_PRELOAD", preload);
    Ok(command)
}

/// Runs it to its end, and finishes meanwhile what its children leave.
fn execute(mut command: Command, run_dir: RunDir) -> std::io::Result<(Harvest, ExitStatus)> {
    let started = child::Signals::catch().and_then(|signals| Ok((signals, child::start(&mut command)?)));
    let (signals, mut child) = match started {
        Ok(started) => started,
        Err(e) => {
            run_dir.remove();
            return Err(e);
        }
    };
    let mut harvest = Harvest::new(run_dir, child.id());
    let status = harvest.meanwhile(|| signals.wait(&mut child))?;
    Ok((harvest, status))
}

fn hint(e: &std::io::Error) -> &'static str {
    match e.kind() {
        std::io::ErrorKind::NotFound => " (the interpreter in its first line, or its loader, is missing)",
        _ if e.raw_os_error() == Some(rustix::io::Errno::NOEXEC.raw_os_error()) => {
            " (no binary of this machine, and no #! line: name its interpreter)"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trace_is_absolute_and_a_folder_gets_the_default_name() {
        let folder = tempfile::tempdir().unwrap();
        let here = Some(folder.path().to_path_buf());
        let given =
            |p: &Path| trace_pattern(Some(p.as_os_str().to_owned()), RANKED_TRACE, here.clone()).map(PathBuf::from);
        assert_eq!(given(folder.path()).unwrap(), folder.path().join(RANKED_TRACE));
        assert_eq!(given(&folder.path().join("a.jsonl")).unwrap(), folder.path().join("a.jsonl"));
        assert_eq!(given(Path::new("x.jsonl")).unwrap(), folder.path().join("x.jsonl"));
        assert_eq!(given(Path::new("off")).unwrap(), Path::new("off"));
        assert!(given(&folder.path().join("%r/a.jsonl")).is_ok());
        let e = given(&folder.path().join("none/a.jsonl")).unwrap_err().to_string();
        assert!(e.contains("none: no such folder"), "{e}");
    }

    #[test]
    fn a_flag_that_is_not_ours_is_no_program() {
        // As clap hands on the words: from the first that is no flag of ours.
        let said = |before: &str, program: &str| {
            let words = |t: &str| t.split_whitespace().map(OsString::from).collect::<Vec<_>>();
            let all = words(&format!("vramscope run {before} {program}"));
            misread(&all, &words(program), Some(OsStr::new("/bin:/usr/bin")))
        };
        assert!(said("", "--bogus -- ./x").unwrap().starts_with("--bogus is no flag of vramscope run ("));
        assert!(said("", "--bogus=1 ./x").unwrap().starts_with("--bogus is no flag"));
        assert_eq!(said("--", "--bogus"), None);
        assert!(said("--max-cached 10", "% -- x").unwrap().contains("'%' after 10 is neither"));
        assert_eq!(said("", "true -- x"), None);
        assert_eq!(said("--", "nothing-of-this-name -- x"), None);
        assert_eq!(said("", "nothing-of-this-name x"), None);
    }

    #[test]
    fn a_program_runs_although_the_current_folder_is_gone() {
        let trace = |t: &str| trace_pattern(Some(t.into()), DEFAULT_TRACE, None).map(PathBuf::from).unwrap();
        assert_eq!(trace("x.jsonl"), std::env::temp_dir().join("x.jsonl"));
        assert_eq!(trace("/tmp/x.jsonl"), Path::new("/tmp/x.jsonl"));
    }
}
