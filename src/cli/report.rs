//! `vramscope report`: explains a history; as text, as JSON, or as a flame graph.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use vramscope_core::trace::Header;

use super::new_file::Force;
use super::whole::Whole;
use super::{new_file, say};
use crate::flame::{self, Flame};
use crate::html::zero;
use crate::moment::{Moment, moments};
use crate::reading::Batches;
use crate::report::answers::{Answers, Asked};
use crate::report::by::By;
use crate::report::{self, History, Page, text::Paint};

/// Explains a history.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The history: a .jsonl or .jsonl.zst file
    #[arg(value_name = "TRACE", required = true)]
    pub traces: Vec<PathBuf>,
    /// Write a page for the browser instead: one file, which needs no network; takes several histories (ranks)
    #[arg(long, value_name = "FILE.html", conflicts_with_all = ["json", "flamegraph"])]
    pub html: Option<PathBuf>,
    /// Entries of each list
    #[arg(long, default_value_t = 10, value_name = "N", allow_negative_numbers = true, value_parser = number)]
    pub top: usize,
    /// Frames of each call stack
    #[arg(long, default_value_t = 6, value_name = "N", allow_negative_numbers = true, value_parser = number)]
    pub frames: usize,
    /// Show every frame, also Python's interpreter, CUDA's runtime and vramscope itself
    #[arg(long)]
    pub all_frames: bool,
    /// Folder with the programs and libraries that ran, or their debug files; may be given several times
    #[arg(long, value_name = "DIR")]
    pub symbols: Vec<PathBuf>,
    /// Who holds memory at these moments.
    #[arg(long, value_name = "MOMENT", allow_hyphen_values = true, help = concat!(
        "Who holds memory at this moment: ", moments!(), "; may be given several times"))]
    pub at: Vec<Moment>,
    /// What to put holders together by
    #[arg(long, default_value = "stack", value_name = "WHAT")]
    pub by: By,
    /// One JSON object with all answers, as docs/report-json.md describes it
    #[arg(long, conflicts_with = "flamegraph")]
    pub json: bool,
    /// Draw who holds memory (at --at, or at the peak) as a flame graph into this file
    #[arg(long, value_name = "FILE.svg")]
    pub flamegraph: Option<PathBuf>,
    /// When to colour
    #[arg(long, default_value = "auto", value_name = "WHEN")]
    pub color: Color,
    /// Whether a file is replaced.
    #[command(flatten)]
    pub force: Force,
}

/// How many are shown.
pub fn number(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| "give a whole number, 0 or more".to_string())
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
    args.traces.iter().try_for_each(|trace| readable(trace, &args.symbols))?;
    if args.flamegraph.is_some() && args.at.len() > 1 {
        anyhow::bail!("--flamegraph draws one moment: give --at once");
    }
    if args.traces.len() > 1 && args.html.is_none() {
        anyhow::bail!("give one history at a time, or several with --html FILE");
    }
    // Before the work, not after it.
    let traces: Vec<&Path> = args.traces.iter().map(PathBuf::as_path).collect();
    for file in args.html.iter().chain(&args.flamegraph) {
        new_file::check(file, &traces, args.force)?;
    }
    if let Some(file) = &args.html {
        return html(file, &args.traces, &args.symbols, args.force);
    }
    let [trace] = &args.traces[..] else { anyhow::bail!("give a history") };
    let history = &said(trace, &Whole::of(trace), &args.at)?;
    let mut page = Page::new(args.color.paint(), &args.symbols, args.top);
    page.frames = args.frames.max(1);
    page.all_frames = args.all_frames;
    if let Some(file) = &args.flamegraph {
        return draw(&mut page, history, args.at.first().unwrap_or(&Moment::Peak), file, args.force);
    }
    let asked = Asked { at: args.at.clone(), by: args.by };
    let answers = Answers::of(&mut page, history, &asked).map_err(anyhow::Error::msg)?;
    if args.json {
        say::print(&(serde_json::to_string(&answers)? + "\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    report::write(&mut page, history, &answers);
    say::print(&page.out)?;
    Ok(ExitCode::SUCCESS)
}

/// Whether what was given can be what it should be.
pub fn readable(trace: &Path, symbols: &[PathBuf]) -> Result<()> {
    for folder in symbols {
        if !folder.is_dir() {
            anyhow::bail!("{}: --symbols wants a folder", folder.display());
        }
    }
    if trace.is_dir() {
        anyhow::bail!("{} is a folder: give a history file", trace.display());
    }
    Ok(())
}

/// Draws who holds memory at a moment.
fn draw(page: &mut Page, history: &History, moment: &Moment, file: &Path, force: Force) -> Result<ExitCode> {
    page.names.know(&history.symbols);
    let stacks = report::holders::folded(page, history, moment).map_err(anyhow::Error::msg)?;
    if stacks.is_empty() {
        anyhow::bail!("nothing was active at that moment: there is nothing to draw");
    }
    let bytes: u64 = stacks.iter().map(|s| s.1).sum();
    let title = format!("{}: {} active {moment}", history.program(), report::text::bytes(bytes));
    let line = |(path, bytes): &(Vec<String>, u64)| {
        let path: Vec<String> = path.iter().map(|f| flame::frame(f)).collect();
        format!("{} {bytes}", path.join(";"))
    };
    let lines: Vec<String> = stacks.iter().map(line).collect();
    let mut svg = Vec::new();
    Flame { title: &title, subtitle: None }.draw(&lines, &mut svg)?;
    new_file::write(file, &svg, &[&history.path], force)?;
    Ok(ExitCode::SUCCESS)
}

/// A history, and what had to be left out of it said.
fn said(trace: &Path, file: &Whole, at: &[Moment]) -> Result<History> {
    let history = read_at(trace, file, at)?;
    if let Some(damage) = &history.damage {
        say::line(&format!("{damage}; all else was read"));
    }
    Ok(history)
}

/// Histories for one page: those of the ranks of a job with one zero of time.
fn together(traces: &[PathBuf], files: &[Whole]) -> Result<Vec<History>> {
    let header = |file: &Whole| Batches::open(file.file()).map_or_else(|_| Header::default(), |b| b.header().clone());
    let headers: Vec<Header> = if traces.len() > 1 { files.iter().map(header).collect() } else { Vec::new() };
    let mut shifts = zero::of_headers(&headers);
    shifts.resize(traces.len(), 0);
    let later = |path: &Path, file: &Whole, shift: u64| -> Result<History> {
        Ok(History { path: path.to_owned(), ..History::read_later(file.file(), &[], shift)? })
    };
    let read = |((path, file), shift): ((&PathBuf, &Whole), &u64)| match shift {
        0 => said(path, file, &[]),
        // Only a history that is finished has times to be counted on from another's.
        shift => match later(path, file, *shift) {
            Ok(history) if history.footer.is_some() || history.exited => Ok(history),
            _ => said(path, file, &[]),
        },
    };
    let mut histories = traces.iter().zip(files).zip(&shifts).map(read).collect::<Result<Vec<History>>>()?;
    if let Some((right, says)) = zero::put_right(&histories, &shifts) {
        says.iter().for_each(|text| say::line(text));
        for ((history, (path, file)), shift) in histories.iter_mut().zip(traces.iter().zip(files)).zip(right) {
            if history.shift != shift {
                *history = later(path, file, shift)?;
            }
        }
    }
    Ok(histories)
}

/// Writes the page. It has its name when it is whole, and not before.
fn html(file: &Path, traces: &[PathBuf], symbols: &[PathBuf], force: Force) -> Result<ExitCode> {
    let files: Vec<Whole> = traces.iter().map(|trace| Whole::of(trace)).collect();
    let histories = together(traces, &files)?;
    let read: Vec<&Path> = histories.iter().map(|h| h.path.as_path()).collect();
    let mut text = Vec::new();
    crate::html::write(&mut text, &histories, symbols)?;
    new_file::write(file, &text, &read, force)?;
    say::line(&format!("{}: {}", file.display(), report::text::bytes(text.len() as u64)));
    Ok(ExitCode::SUCCESS)
}

/// Reads a history, with what a spool still holds of it. The files stay as they are.
pub fn read(path: &Path) -> Result<History> {
    read_at(path, &Whole::of(path), &[])
}

/// The same, of one that was looked at, and keeps what was held at these moments.
fn read_at(path: &Path, file: &Whole, at: &[Moment]) -> Result<History> {
    let mut history = History::read_at(file.file(), at)?;
    history.path = path.to_path_buf();
    let spool = Path::new(&history.header.spool);
    // Without a launcher the library takes its spool away when all is written.
    if history.footer.is_none() && !history.exited && !spool.as_os_str().is_empty() && !spool.exists() {
        say::line("this history was never finished and its spool is gone: it may lack its last events");
    }
    Ok(history)
}
