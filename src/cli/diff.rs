//! `vramscope diff`: compares two runs.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail};

use super::new_file::{self, Force};
use super::report::{Color, number};
use super::say;
use super::whole::Whole;
use crate::diff::basis::Basis;
use crate::diff::run::Run;
use crate::diff::verdict::{Limit, failures};
use crate::diff::{self, flame, json, text};
use crate::moment::moments;
use crate::report::Page;
use crate::symbols::Names;

/// Compares two runs.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The history of the run before
    #[arg(value_name = "BEFORE")]
    pub before: PathBuf,
    /// The history of the run after
    #[arg(value_name = "AFTER")]
    pub after: PathBuf,
    /// What to compare.
    #[arg(long, default_value = "peak", value_name = "MOMENT", allow_hyphen_values = true, help = concat!(
        "What to compare: what was held at a moment (", moments!(),
        "), most (each stack when it held most), or total (all that was ever allocated)"))]
    pub at: Basis,
    /// End with code 1 if the memory compared (or, at the peak, what was reserved) grew by more: 5%, 200MiB
    #[arg(long, value_name = "LIMIT")]
    pub fail_if_grew: Option<Limit>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Write the difference as a flame graph (SVG)
    #[arg(long, value_name = "FILE")]
    pub flamegraph: Option<PathBuf>,
    /// Entries of each list
    #[arg(long, default_value_t = 10, value_name = "N", allow_negative_numbers = true, value_parser = number)]
    pub top: usize,
    /// Frames of each call stack
    #[arg(long, default_value_t = 6, value_name = "N", allow_negative_numbers = true, value_parser = number)]
    pub frames: usize,
    /// Show, and compare, every frame, also Python's interpreter, CUDA's runtime and vramscope itself
    #[arg(long)]
    pub all_frames: bool,
    /// Folder with the programs and libraries that ran, or their debug files; may be given several times
    #[arg(long, value_name = "DIR")]
    pub symbols: Vec<PathBuf>,
    /// When to colour
    #[arg(long, default_value = "auto", value_name = "WHEN")]
    pub color: Color,
    /// Whether a file is replaced.
    #[command(flatten)]
    pub force: Force,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<ExitCode> {
    for folder in &args.symbols {
        if !folder.is_dir() {
            bail!("{}: --symbols wants a folder", folder.display());
        }
    }
    if let Some(path) = &args.flamegraph {
        new_file::check(path, &[&args.before, &args.after], args.force)?;
    }
    let (before, after) = std::thread::scope(|scope| {
        let before = scope.spawn(|| read(&args.before, &args.at));
        let after = read(&args.after, &args.at);
        (before.join().unwrap_or_else(|_| bail!("{}: reading it failed", args.before.display())), after)
    });
    let (before, after) = (before?, after?);
    let (mut one, mut other) = (Names::new(&args.symbols), Names::new(&args.symbols));
    let diff = diff::compare(&before, &after, &args.at, [&mut one, &mut other], args.all_frames);
    let mut failed = args.fail_if_grew.map_or(Vec::new(), |limit| failures(&diff, limit));
    if args.fail_if_grew.is_some() {
        // What is not in a history may be what grew.
        let not_whole = |(name, run): (&str, &Run)| Some(format!("{name}: {}", run.incomplete()?));
        failed.extend([("before", &before), ("after", &after)].into_iter().filter_map(not_whole));
    }
    if let Some(path) = &args.flamegraph {
        new_file::write(path, flame::svg(&diff)?.as_ref(), &[&args.before, &args.after], args.force)?;
    }
    if args.json {
        say::print(&json::write(&diff, &before, &after, &failed))?;
    } else {
        let mut page = Page::new(args.color.paint(), &args.symbols, args.top);
        page.frames = args.frames.max(1);
        page.all_frames = args.all_frames;
        page.names.notes = notes(one, other);
        text::write(&mut page, &diff, &before, &after);
        say::print(&page.out)?;
    }
    for text in &failed {
        say::line(&format!("--fail-if-grew: {text}"));
    }
    Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn read(path: &Path, basis: &Basis) -> Result<Run> {
    if path.is_dir() {
        bail!("{} is a folder: give a history file (`vramscope merge` takes folders)", path.display());
    }
    let run = whole(path, basis)?;
    let Basis::At(moment) = basis else { return Ok(run) };
    // One time is given for both, and a snapshot has but one moment.
    let outside = moment.outside(&run.history, (run.start, run.end)).filter(|_| !run.is_snapshot());
    let missing = || moment.missing(run.marks.iter().map(|m| m.text.as_str()));
    match outside.or_else(|| (!run.held.has_moment()).then(missing)) {
        Some(why) => bail!("{}: --at: {why}", path.display()),
        None => Ok(run),
    }
}

/// A run, with what a spool still holds of it.
pub fn whole(path: &Path, basis: &Basis) -> Result<Run> {
    let mut run = Run::read(Whole::of(path).file(), basis)?;
    run.history.path = path.to_path_buf();
    Ok(run)
}

/// What was missing for names, each once: both runs may have used the same files.
pub fn notes(one: Names, other: Names) -> Vec<String> {
    let mut notes = one.notes;
    for note in other.notes {
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    notes
}
