//! `vramscope run`: runs a program under the preload library, finishes its histories, and says in six lines what was.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};

use anyhow::{Context, Result};

use super::run_dir::RunDir;
use super::settings::{DEFAULT_TRACE, Flags};
use super::spool::{self, Outcome, SpoolFile};
use super::{child, preload, program, say};
use crate::report::{History, summary, text};

/// Histories summed up in six lines each; of more, one line.
const SUMMED_UP: usize = 8;

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
    let library = preload::find(args.lib.as_deref())?;
    let program = match program::find(name, std::env::var_os("PATH").as_deref()) {
        Ok(path) => path,
        Err(e) => {
            say::line(&e.message);
            return Ok(ExitCode::from(e.code));
        }
    };
    let trace = trace_pattern(args.flags.get("VRAMSCOPE_TRACE").cloned())?;
    let run_dir = RunDir::create()?;
    let command = command(args, &program, &library, &trace, run_dir.path())?;
    let (pid, status) = match execute(command) {
        Ok(done) => done,
        Err(e) => {
            run_dir.remove();
            say::line(&format!("{}: {e}{}", name.to_string_lossy(), hint(&e)));
            return Ok(ExitCode::from(126));
        }
    };
    let code = child::code(status);
    let finished = finish(run_dir, |p| (p == pid).then_some(code));
    if !args.quiet {
        report(&finished, &program, args);
    }
    Ok(child::end_like(status))
}

/// Where the history goes: absolute, because the program may change its folder; a folder gets the default name.
fn trace_pattern(flag: Option<OsString>) -> Result<OsString> {
    let given = flag.or_else(|| std::env::var_os("VRAMSCOPE_TRACE")).filter(|t| !t.is_empty());
    let mut path = PathBuf::from(given.unwrap_or_else(|| DEFAULT_TRACE.into()));
    if path == Path::new("off") {
        return Ok(path.into());
    }
    if path.is_dir() {
        path.push(DEFAULT_TRACE);
    }
    let path = std::path::absolute(&path).context("the current folder is gone")?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    if !folder.to_string_lossy().contains('%') && !folder.is_dir() {
        anyhow::bail!("{}: no such folder; create it, or give another --trace", folder.display());
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
    command.env("VRAMSCOPE_TRACE", trace).env("VRAMSCOPE_RUN_DIR", run_dir).env("LD_PRELOAD", preload);
    Ok(command)
}

fn execute(mut command: Command) -> std::io::Result<(u32, ExitStatus)> {
    let signals = child::Signals::catch()?;
    let mut child = child::start(&mut command)?;
    let status = signals.wait(&mut child)?;
    Ok((child.id(), status))
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

/// What was found in a run's folder after the program.
#[derive(Debug, Default)]
pub struct Finished {
    /// Histories, finished.
    pub histories: Vec<PathBuf>,
    /// Where histories went that cannot be read again.
    pub streams: Vec<PathBuf>,
    /// What a person should know.
    pub messages: Vec<String>,
    /// Processes that were traced at all.
    pub processes: usize,
}

/// Finishes all histories of a run, and removes its folder unless somebody still needs it.
fn finish(run_dir: RunDir, status: impl Fn(u32) -> Option<i32>) -> Finished {
    let mut finished = Finished::default();
    let mut keep = false;
    let spools = spool::in_folder(run_dir.path()).unwrap_or_default();
    let mut alive = Vec::new();
    for path in spools {
        finished.processes += 1;
        match SpoolFile::read(&path).and_then(|s| s.finish(&status, "launcher")) {
            Ok(Outcome::Finished(r)) => finished.histories.push(r.path),
            Ok(Outcome::Stream(path)) => finished.streams.push(path),
            Ok(Outcome::Empty) => {}
            Ok(Outcome::Alive(pid)) => alive.push(pid.to_string()),
            Err(e) => {
                keep = true;
                finished.messages.push(format!("{e:#}; what is left of it stays in {}", path.display()));
            }
        }
    }
    if !alive.is_empty() {
        keep = true;
        let folder = run_dir.path().display();
        finished.messages.push(format!(
            "process {} still runs and is recorded; when it has ended: vramscope recover {folder}",
            alive.join(", ")
        ));
    }
    if !keep {
        run_dir.remove();
    }
    finished
}

fn report(finished: &Finished, program: &Path, args: &Args) {
    let mut histories = Vec::new();
    for path in &finished.histories {
        match History::read(path) {
            Ok(h) if h.has_events() => histories.push(h),
            Ok(_) => {}
            Err(e) => say::line(&format!("{e:#}")),
        }
    }
    let several = histories.len() > 1;
    for history in histories.iter().take(SUMMED_UP) {
        if several {
            say::line(&format!("---- {} (process {})", text::clean(history.program()), history.header.pid));
        }
        say::raw(summary::text(history).as_bytes());
        incomplete(history);
    }
    for history in histories.iter().skip(SUMMED_UP) {
        let peak = text::bytes(history.state.peak.totals.active());
        say::line(&format!(
            "{} (process {}): peak {peak}, {}",
            text::clean(history.program()),
            history.header.pid,
            history.path.display()
        ));
    }
    for stream in &finished.streams {
        say::line(&format!("the history went to {}", stream.display()));
    }
    for message in &finished.messages {
        say::line(message);
    }
    if histories.is_empty() && finished.streams.is_empty() && finished.messages.is_empty() {
        say::line(&nothing(finished, program, args));
    }
}

/// Says what a history lacks.
fn incomplete(history: &History) {
    if let Some(damage) = &history.damage {
        say::line(damage);
    }
    let footer = history.footer.as_ref();
    let lost = footer.map_or(0, |f| f.lost);
    if lost > 0 {
        say::line(&format!("{} lost: the numbers above may be off by them", text::plural(lost, "event")));
    }
    if footer.is_some_and(|f| f.end == "stopped") {
        let why = history.notes.last().map_or("see the report", |n| n.message.as_str());
        say::line(&format!("recording ended early: {}", text::clean(why)));
    }
}

/// Why there is no history.
fn nothing(finished: &Finished, program: &Path, args: &Args) -> String {
    if args.flags.get("VRAMSCOPE").is_some() || std::env::var_os("VRAMSCOPE").is_some_and(|v| v == "off" || v == "0") {
        return "nothing was recorded: vramscope was off (VRAMSCOPE=off)".to_string();
    }
    if args.flags.get("VRAMSCOPE_TRACE").map(OsString::as_os_str) == Some(OsStr::new("off")) {
        return "nothing was recorded: --trace off".to_string();
    }
    match program::closed(program) {
        Some(why) if finished.processes == 0 => format!("nothing was recorded: {why}"),
        _ if finished.processes > 0 => "nothing was recorded: no GPU memory was asked for".to_string(),
        _ => "nothing was recorded: no CUDA call seen".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trace_is_absolute_and_a_folder_gets_the_default_name() {
        let folder = tempfile::tempdir().unwrap();
        let given = |p: &Path| trace_pattern(Some(p.as_os_str().to_owned())).map(PathBuf::from);
        assert_eq!(given(folder.path()).unwrap(), folder.path().join(DEFAULT_TRACE));
        assert_eq!(given(&folder.path().join("a.jsonl")).unwrap(), folder.path().join("a.jsonl"));
        assert!(given(Path::new("x.jsonl")).unwrap().is_absolute());
        assert_eq!(given(Path::new("off")).unwrap(), Path::new("off"));
        assert!(given(&folder.path().join("%r/a.jsonl")).is_ok());
        let e = given(&folder.path().join("none/a.jsonl")).unwrap_err().to_string();
        assert!(e.contains("none: no such folder"), "{e}");
    }
}
