//! `vramscope import`: what PyTorch or RMM wrote, as a history.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use super::new_file::NewFile;
use super::say;
use crate::import::lines::Lines;
use crate::import::{Kind, torch};
use crate::report::text::{clean, plural};

/// Makes a history of what another tool wrote.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A memory snapshot of PyTorch (a pickle, which is read and never run), or a log of RMM
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The new history (default: FILE with .jsonl.zst for its ending); compressed if it ends with .zst
    #[arg(short, long, value_name = "OUT")]
    pub output: Option<PathBuf>,
    /// What the file is (default: what its first bytes say)
    #[arg(short, long, value_name = "FORMAT")]
    pub format: Option<Kind>,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<ExitCode> {
    let path = &args.file;
    let place = path.display();
    let there = std::fs::metadata(path).with_context(|| format!("{place}: cannot be read"))?;
    if !there.is_file() {
        bail!("{place}: is no regular file: write it to one first");
    }
    let kind = args.format.map_or_else(|| Kind::of(path), Ok)?;
    let output = args.output.clone().unwrap_or_else(|| path.with_extension("jsonl.zst"));
    if let Ok(old) = std::fs::metadata(&output) {
        if !old.is_file() {
            bail!("{}: is no file", output.display());
        }
        if (old.dev(), old.ino()) == (there.dev(), there.ino()) {
            bail!("{}: is the file itself; give another name with -o", output.display());
        }
    }
    let line = import(kind, path, &output)?;
    say::print(&format!("{}\n", clean(&line)))?;
    Ok(ExitCode::SUCCESS)
}

fn import(kind: Kind, path: &Path, output: &Path) -> Result<String> {
    let compressed = output.extension().is_some_and(|e| e == "zst");
    let place = || format!("{}: cannot be written (-o says where else)", output.display());
    let mut lines = Lines::new(NewFile::create(output, compressed).with_context(place)?);
    let done = kind.import(path, &mut lines)?;
    torch::check(&done).with_context(|| path.display().to_string())?;
    // Without a trace it is what was live at one moment, and no more.
    lines.finish(if done.events == 0 { "snapshot" } else { "stopped" }).with_context(place)?;
    for note in &done.notes {
        say::line(&clean(&format!("{}: {note}", path.display())));
    }
    Ok(format!(
        "{}: {}, {} live before them; vramscope report {} explains it",
        output.display(),
        plural(done.events, "event"),
        plural(done.live, "allocation"),
        output.display()
    ))
}
