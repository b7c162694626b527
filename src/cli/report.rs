//! `vramscope report`: explains a history.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};

use super::run_dir::RunDir;
use super::spool::SpoolFile;
use super::{recover, say};
use crate::report::{self, History, Page, text::Paint};

/// Explains a history.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The history: a .jsonl or .jsonl.zst file
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,
    /// Entries of each list
    #[arg(long, default_value_t = 10, value_name = "N", value_parser = |t: &str| number(t, "--top"))]
    pub top: usize,
    /// Frames of each call stack
    #[arg(long, default_value_t = 6, value_name = "N", value_parser = |t: &str| number(t, "--frames"))]
    pub frames: usize,
    /// Show every frame, also Python's interpreter, CUDA's runtime and vramscope itself
    #[arg(long)]
    pub all_frames: bool,
    /// Folder with the programs and libraries that ran, or their debug files; may be given several times
    #[arg(long, value_name = "DIR")]
    pub symbols: Vec<PathBuf>,
    /// When to colour
    #[arg(long, default_value = "auto", value_name = "WHEN")]
    pub color: Color,
}

fn number(text: &str, flag: &str) -> Result<usize, String> {
    text.parse().map_err(|_| format!("{flag} wants a number"))
}

/// When to colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Color {
    /// On a terminal
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

impl Color {
    /// Colours for stdout.
    pub fn paint(self) -> Paint {
        let dumb = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty())
            || std::env::var_os("TERM").is_some_and(|t| t == "dumb");
        let on = match self {
            Color::Auto => !dumb && std::io::stdout().is_terminal(),
            Color::Always => true,
            Color::Never => false,
        };
        Paint { on }
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Result<ExitCode> {
    for folder in &args.symbols {
        if !folder.is_dir() {
            anyhow::bail!("{}: --symbols wants a folder", folder.display());
        }
    }
    if args.trace.is_dir() {
        anyhow::bail!("{} is a folder: give a history file", args.trace.display());
    }
    let history = read(&args.trace)?;
    if let Some(damage) = &history.damage {
        say::line(&format!("{damage}; all else was read"));
    }
    let mut page = Page::new(args.color.paint(), &args.symbols, args.top);
    page.frames = args.frames.max(1);
    page.all_frames = args.all_frames;
    report::write(&mut page, &history);
    say::print(&page.out)?;
    Ok(ExitCode::SUCCESS)
}

/// Reads a history, with what a spool still holds of it. The files stay as they are.
pub fn read(path: &Path) -> Result<History> {
    let history = match History::read(path) {
        Ok(history) => history,
        // Killed before its first line was whole: a spool may hold all of it.
        Err(e) => return by_spool_alone(path).ok_or(e),
    };
    if history.footer.is_some() || history.header.spool.is_empty() {
        return Ok(history);
    }
    let spool = match SpoolFile::read(Path::new(&history.header.spool)) {
        Ok(spool) => spool,
        // Without a launcher the library takes its spool away when all is written.
        Err(_) if history.exited => return Ok(history),
        Err(_) => {
            say::line("this history was never finished and its spool is gone: it may lack its last events");
            return Ok(history);
        }
    };
    // A spool of the same name may be another's by now.
    if spool.pid().ok() != Some(history.header.pid) {
        return Ok(history);
    }
    if spool.alive()? {
        say::line(&format!("process {} still runs: this is what it has written so far", history.header.pid));
        return Ok(history);
    }
    match with_spool(path, &spool) {
        Ok(mut whole) => {
            let more = whole.events.saturating_sub(history.events);
            say::line(&match more {
                0 => "this history was never finished (nothing is missing; vramscope recover adds the closing line)"
                    .to_string(),
                _ => format!(
                    "this history was never finished: {} from {} (vramscope recover finishes it)",
                    if more == 1 { "1 event comes".to_string() } else { format!("{more} events come") },
                    history.header.spool
                ),
            });
            whole.path = path.to_path_buf();
            Ok(whole)
        }
        Err(e) => {
            say::line(&format!("this history was never finished, and its spool cannot be used: {e:#}"));
            Ok(history)
        }
    }
}

fn by_spool_alone(path: &Path) -> Option<History> {
    let spool = recover::by_trace(path)?;
    if spool.alive().unwrap_or(true) {
        return None;
    }
    let mut whole = with_spool(path, &spool).ok()?;
    say::line(&format!(
        "this history holds no whole line: what is told comes from {} (vramscope recover finishes it)",
        spool.path().display()
    ));
    whole.path = path.to_path_buf();
    Some(whole)
}

fn with_spool(path: &Path, spool: &SpoolFile) -> Result<History> {
    let folder = RunDir::create_in([std::env::temp_dir()])?;
    let done = finish_copy(path, spool, folder.path());
    folder.remove();
    done
}

fn finish_copy(path: &Path, spool: &SpoolFile, folder: &Path) -> Result<History> {
    let copy = folder.join(path.file_name().unwrap_or_default());
    std::fs::copy(path, &copy).with_context(|| copy.display().to_string())?;
    // The older part of a rotated history is only read.
    let older = |p: &Path| PathBuf::from(format!("{}.1", p.display()));
    if older(path).exists() {
        let target = std::path::absolute(older(path))?;
        std::os::unix::fs::symlink(target, older(&copy)).with_context(|| older(&copy).display().to_string())?;
    }
    let done = spool.finish_in(&copy, None, "report")?;
    History::read(&done.path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::spool::tests::{DEAD, unwritten};
    use vramscope_core::trace::{FORMAT, Header, Line, VERSION, write};

    #[test]
    fn an_unfinished_history_is_read_with_its_spool_and_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let (spool, trace) = unwritten(folder.path(), DEAD);
        let header = Header {
            format: FORMAT.into(),
            version: VERSION,
            pid: DEAD,
            spool: spool.display().to_string(),
            ..Header::default()
        };
        let mut text = Vec::new();
        write::line(&mut text, &Line::Header(header));
        std::fs::write(&trace, &text).unwrap();
        let history = read(&trace).unwrap();
        assert_eq!((history.events, history.path.as_path()), (5, trace.as_path()));
        assert_eq!(std::fs::read(&trace).unwrap(), text);
        assert!(spool.exists());
    }
}
