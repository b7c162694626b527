//! `vramscope merge`: the ranks of a distributed job as one view.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Result, anyhow, bail};

use super::report::{Color, number};
use super::{diff, say};
use crate::diff::basis::Basis;
use crate::diff::run::Run;
use crate::merge::{Job, choose, find, json, text};
use crate::report::Page;
use crate::symbols::Names;

/// Shows the ranks of a distributed job side by side.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The ranks' histories, or folders with them
    #[arg(value_name = "TRACE", required = true)]
    pub traces: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Entries of each list
    #[arg(long, default_value_t = 10, value_name = "N", allow_negative_numbers = true, value_parser = number)]
    pub top: usize,
    /// Frames of each call stack
    #[arg(long, default_value_t = 6, value_name = "N", allow_negative_numbers = true, value_parser = number)]
    pub frames: usize,
    /// Folder with the programs and libraries that ran, or their debug files; may be given several times
    #[arg(long, value_name = "DIR")]
    pub symbols: Vec<PathBuf>,
    /// When to colour
    #[arg(long, default_value = "auto", value_name = "WHEN")]
    pub color: Color,
}

/// Readers at once: each holds some hundred thousand events.
const READERS: usize = 8;

/// Runs the command.
pub fn run(args: &Args) -> Result<ExitCode> {
    for folder in &args.symbols {
        if !folder.is_dir() {
            bail!("{}: --symbols wants a folder", folder.display());
        }
    }
    let files = find::files(&args.traces)?;
    let mut broken = Vec::new();
    let mut runs: Vec<Run> = Vec::new();
    for run in read_all(&files) {
        match run {
            Ok(run) => runs.push(run),
            Err(e) => broken.push(e),
        }
    }
    let (ranks, left_out) = choose::ranks(runs);
    for e in &broken {
        say::line(&say::plain(&format!("{e:#}")));
    }
    if ranks.is_empty() {
        bail!("none of {} could be read", crate::report::text::plural(files.len() as u64, "file"));
    }
    let mut job = Job::of(ranks);
    job.world.says.extend(left_out);
    job.world.says.extend(choose::aside("file", "could not be read", broken.iter().map(|e| format!("{e:#}"))));
    let (mut one, mut other) = (Names::new(&args.symbols), Names::new(&args.symbols));
    job.look_closer([&mut one, &mut other]);
    if args.json {
        say::print(&json::write(&job))?;
    } else {
        let mut page = Page::new(args.color.paint(), &args.symbols, args.top);
        page.frames = args.frames.max(1);
        page.names.notes = diff::notes(one, other);
        text::write(&mut page, &job);
        say::print(&page.out)?;
    }
    // The view lacks what could not be read.
    Ok(if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(2) })
}

/// Reads histories, several at a time.
fn read_all(files: &[PathBuf]) -> Vec<Result<Run>> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<Option<Result<Run>>>> = Mutex::new(files.iter().map(|_| None).collect());
    let readers = std::thread::available_parallelism().map_or(1, usize::from).min(READERS).min(files.len());
    std::thread::scope(|scope| {
        for _ in 0..readers {
            scope.spawn(|| {
                while let Some((i, file)) = take(&next, files) {
                    let run = diff::whole(file, &Basis::default());
                    done.lock().unwrap_or_else(|e| e.into_inner())[i] = Some(run);
                }
            });
        }
    });
    let done = done.into_inner().unwrap_or_else(|e| e.into_inner());
    let or_lost = |(run, file): (Option<Result<Run>>, &PathBuf)| {
        run.unwrap_or_else(|| Err(anyhow!("{}: reading it failed", file.display())))
    };
    done.into_iter().zip(files).map(or_lost).collect()
}

fn take<'a>(next: &AtomicUsize, files: &'a [PathBuf]) -> Option<(usize, &'a Path)> {
    let i = next.fetch_add(1, Ordering::Relaxed);
    files.get(i).map(|file| (i, file.as_path()))
}
