//! `vramscope import`: what PyTorch or RMM wrote, as a history.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use super::new_file::{self, Force, NewFile};
use super::say;
use crate::import::Kind;
use crate::import::lines::Lines;
use crate::report::text::{clean, plural};

/// Makes a history of what another tool wrote.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A memory snapshot of PyTorch (a pickle, which is read and never run), or a log of RMM
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The new history (default: FILE with .jsonl.zst for its ending); compressed if it ends with .zst; - is standard output
    #[arg(short, long, value_name = "OUT")]
    pub output: Option<PathBuf>,
    /// What the file is (default: what its first bytes say)
    #[arg(short, long, value_name = "FORMAT")]
    pub format: Option<Kind>,
    /// Whether a file is replaced.
    #[command(flatten)]
    pub force: Force,
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
    if let Ok(old) = std::fs::metadata(&output)
        && (old.dev(), old.ino()) == (there.dev(), there.ino())
    {
        bail!("{}: is the file itself; give another name with -o", output.display());
    }
    let stdout = output == Path::new("-");
    if !stdout {
        new_file::check(&output, &[], args.force)?;
    }
    let line = clean(&import(kind, path, &output)?);
    if stdout {
        say::line(&line)
    } else {
        say::print(&format!("{line}\n"))?
    }
    Ok(ExitCode::SUCCESS)
}

fn import(kind: Kind, path: &Path, output: &Path) -> Result<String> {
    let compressed = output.extension().is_some_and(|e| e == "zst");
    let place = || format!("{}: cannot be written (-o says where else)", output.display());
    let stdout = output == Path::new("-");
    let file = if stdout { NewFile::stdout(false) } else { NewFile::create(output, compressed) };
    let mut lines = Lines::new(file.with_context(place)?);
    let done = kind.import(path, &mut lines)?;
    if done.events == 0 && done.live == 0 {
        bail!("{}: nothing is in it: no memory was held, and nothing was recorded", path.display());
    }
    // Without a trace it is what was live at one moment, and no more.
    lines.finish(if done.events == 0 { "snapshot" } else { "stopped" }).with_context(place)?;
    for note in &done.notes {
        say::line(&clean(&format!("{}: {note}", path.display())));
    }
    let (events, live) = (plural(done.events, "event"), plural(done.live, "allocation"));
    let explains = if stdout { String::new() } else { format!("; vramscope report {} explains it", output.display()) };
    Ok(format!("{}: {events}, {live} live before them{explains}", output.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_becomes_a_history_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("log.dev0.csv");
        std::fs::write(&file, "Thread,Time,Action,Pointer,Size,Stream\n1,00:00:01.000000,allocate,0x10,512,0\n")
            .unwrap();
        let args = |output: Option<&Path>| Args {
            file: file.clone(),
            output: output.map(Path::to_path_buf),
            format: None,
            force: Force::default(),
        };
        run(&args(None)).unwrap();
        let e = run(&args(None)).unwrap_err();
        assert!(e.to_string().ends_with("log.dev0.jsonl.zst: is there already; --force replaces it"), "{e}");
        run(&Args { force: Force { force: true }, ..args(None) }).unwrap();
        let history = crate::report::History::read(&folder.path().join("log.dev0.jsonl.zst")).unwrap();
        assert_eq!(history.state.now.active(), 512);
        let e = run(&args(Some(&file))).unwrap_err();
        assert!(e.to_string().contains("is the file itself"), "{e}");
        let e = run(&args(Some(folder.path()))).unwrap_err();
        assert!(e.to_string().contains("is no file"), "{e}");
        // A log that was cut is taken as far as it goes, and that is said.
        let head = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, head.clone() + "1,00:00:02.0").unwrap();
        let mut lines = Lines::new(NewFile::create(&folder.path().join("cut.jsonl"), false).unwrap());
        let done = Kind::Rmm.import(&file, &mut lines).unwrap();
        assert!(done.events == 1 && done.notes[0].contains("is cut"), "{:?}", done.notes);
        drop(lines);
        std::fs::write(&file, head).unwrap();
        // All allocations of a log without stacks seem to be of one place: nothing is told to grow.
        assert!(
            history.is_placeless()
                && crate::report::growth::find(&history, &mut crate::symbols::Names::new(&[])).steps.is_none()
        );
        let e = run(&Args { format: Some(Kind::Torch), force: Force { force: true }, ..args(None) }).unwrap_err();
        assert!(format!("{e:#}").contains("log.dev0.csv: byte 0: "), "{e:#}");
        // Where nothing came of it, nothing is left.
        std::fs::write(&file, "Thread,Time,Action,Pointer,Size,Stream\n").unwrap();
        let out = folder.path().join("new.jsonl");
        let e = run(&args(Some(&out))).unwrap_err();
        assert!(format!("{e:#}").contains("nothing is in it"), "{e:#}");
        assert!(!out.exists() && std::fs::read_dir(folder.path()).unwrap().count() == 2);
    }
}
