//! `vramscope export`: a history in the format of another tool.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, anyhow, bail};

use super::new_file::Force;
use super::say;
use super::whole::Whole;
use crate::export::select::layer;
use crate::export::source::Options;
use crate::export::{Kind, Selection, Source, Target};
use crate::moment::{Moment, moments};
use crate::report::tally::Layer;
use crate::report::text::{clean, time};

/// Writes a history in the format of another tool.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The history: a .jsonl or .jsonl.zst file; for perfetto, chrome, parquet and csv several, such as the ranks of a job
    #[arg(value_name = "TRACE", required = true)]
    pub traces: Vec<PathBuf>,
    /// The format
    #[arg(short, long, value_name = "FORMAT")]
    pub format: Kind,
    /// The new file, or folder (default: stdout)
    #[arg(short, long, value_name = "OUT")]
    pub output: Option<PathBuf>,
    /// What was before is left out.
    #[arg(long, value_name = "MOMENT", allow_hyphen_values = true, help = concat!("Leave out what was before: ", moments!()))]
    pub from: Option<Moment>,
    /// Leave out what came later
    #[arg(long, value_name = "MOMENT", allow_hyphen_values = true)]
    pub to: Option<Moment>,
    /// Only what is live at this moment
    #[arg(long, value_name = "MOMENT", allow_hyphen_values = true, conflicts_with_all = ["from", "to"])]
    pub at: Option<Moment>,
    /// Only memory of this layer: pool, device, async, vmm, managed, array, pinned, registered, imported, tensor
    #[arg(long, value_name = "LAYER", value_parser = layer)]
    pub layer: Option<Layer>,
    /// Only this device
    #[arg(long, value_name = "N")]
    pub device: Option<u32>,
    /// Every frame, also Python's interpreter, CUDA's runtime and vramscope itself
    #[arg(long)]
    pub all_frames: bool,
    /// folded, flamegraph, pprof: count all that was allocated, not what was live at the peak
    #[arg(long, conflicts_with = "at")]
    pub allocated: bool,
    /// perfetto, chrome: at most N allocations as slices, those with most bytes x time (default 100000)
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// parquet, csv: name of the run (default: the job's id, else the program and when it started)
    #[arg(long, value_name = "NAME")]
    pub run: Option<String>,
    /// Folder with the programs and libraries that ran, or their debug files; may be given several times
    #[arg(long, value_name = "DIR")]
    pub symbols: Vec<PathBuf>,
    /// Whether files are replaced.
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
    for trace in &args.traces {
        if trace.is_dir() {
            bail!("{} is a folder: give a history file", trace.display());
        }
        // It is read more than once, and what is no file may never end.
        if std::fs::metadata(trace).is_ok_and(|there| !there.is_file()) {
            bail!("{}: can't be read twice, as it is no regular file: write it to one first", trace.display());
        }
    }
    let format = args.format.format();
    let target = match &args.output {
        Some(path) if path != Path::new("-") => Target::Path(path.clone()),
        _ if format.folder() => bail!("this format is a folder of files: give it with -o"),
        _ if format.binary() && std::io::stdout().is_terminal() => {
            bail!("this format is no text for a terminal: give a file with -o")
        }
        _ => Target::Stdout,
    };
    let given = [("allocated", args.allocated), ("limit", args.limit.is_some()), ("run", args.run.is_some())];
    if let Some((flag, _)) = given.iter().find(|(flag, given)| *given && !format.flags().contains(flag)) {
        bail!("--{flag} says nothing to this format (vramscope export --help says to which it does)");
    }
    if args.traces.len() > 1 && !format.several() {
        bail!("this format holds one history: give one TRACE (perfetto, chrome, parquet and csv take several)");
    }
    for trace in &args.traces {
        target.check(trace, format.folder(), args.force)?;
    }
    let files: Vec<Whole> = args.traces.iter().map(|trace| Whole::of(trace)).collect();
    let mut sources = Vec::new();
    for (trace, file) in args.traces.iter().zip(&files) {
        let mut source = Source::open(file.file(), &args.symbols)?;
        (source.path, source.history.path) = (trace.clone(), trace.clone());
        source.selection = selection(args, &source)?;
        source.all_frames = args.all_frames;
        source.options =
            Options { allocated: args.allocated, limit: args.limit, run: args.run.clone(), force: args.force };
        warn(&source);
        sources.push(source);
    }
    let mut notes = match &mut sources[..] {
        [one] => format.write(one, &target)?,
        several => format.write_all(several, &target)?,
    };
    notes.extend(sources.iter_mut().flat_map(Source::notes));
    for note in notes {
        say::line(&clean(&note));
    }
    Ok(ExitCode::SUCCESS)
}

/// What is asked for.
fn selection(args: &Args, source: &Source) -> Result<Selection> {
    let (device, layer) = (args.device, args.layer);
    if let Some(n) = device.filter(|n| !source.history.devices.contains_key(n)) {
        let have: Vec<String> = source.history.devices.keys().map(ToString::to_string).collect();
        let have = if have.is_empty() { "none".to_string() } else { have.join(", ") };
        bail!("{}: has no device {n}; it has {have}", source.path.display());
    }
    if let Some(at) = &args.at {
        if let Some(why) = at.outside(&source.history, (source.start, source.end)) {
            bail!("{}: --at: {why}", source.path.display());
        }
        return Ok(Selection { device, layer, ..Selection::at(time_of("--at", at, source)?) });
    }
    let from = args.from.as_ref().map_or(Ok(0), |m| time_of("--from", m, source))?;
    let to = args.to.as_ref().map_or(Ok(u64::MAX), |m| time_of("--to", m, source))?;
    if from > to {
        bail!("--from ({}) is after --to ({})", time(from), time(to));
    }
    if from > source.end {
        bail!("{}: --from is after the last event, {}", source.path.display(), time(source.end));
    }
    Ok(Selection { from, to, device, layer, moment: false })
}

/// When a moment is.
fn time_of(flag: &str, moment: &Moment, source: &Source) -> Result<u64> {
    source.time(moment)?.ok_or_else(|| {
        let missing = moment.missing(source.marks.iter().map(|m| m.1.as_str()));
        anyhow!("{}: {flag}: {missing}", source.path.display())
    })
}

/// What a person should know of the history itself.
fn warn(source: &Source) {
    let h = &source.history;
    if let Some(damage) = &h.damage {
        say::line(&format!("{damage}; all else was read"));
    }
    if h.damage.is_none()
        && let Some(why) = h.incomplete(h.events)
    {
        say::line(&format!("{}: {why}", source.path.display()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use crate::cli::Command;
    use crate::export::testing::file;
    use crate::report::testing::sample;
    use clap::Parser;

    fn export(trace: &Path, more: &[&str]) -> Result<ExitCode> {
        let trace = trace.display().to_string();
        let words = ["vramscope", "export", &trace].into_iter().chain(more.iter().copied());
        let Command::Export(args) = Cli::try_parse_from(words)?.command else { panic!("export expected") };
        run(&args)
    }

    #[test]
    fn a_file_of_what_was_asked_for() {
        let (folder, path) = file(&sample());
        let out = folder.path().join("out");
        let name = out.display().to_string();
        for more in [&["--at", "peak"][..], &["--from", "10ms", "--to", "end"], &["--device", "0", "--layer", "pinned"]]
        {
            let mut words = vec!["-f", "rmm", "-o", &name];
            words.extend(more);
            if out.exists() {
                let e = export(&path, &words).unwrap_err();
                assert!(e.to_string().ends_with("is there already; --force replaces it"), "{e}");
                words.push("--force");
            }
            export(&path, &words).unwrap();
            assert!(std::fs::read_to_string(&out).unwrap().starts_with("Thread,Time,"));
        }
        assert_eq!(std::fs::read_to_string(&out).unwrap().lines().count(), 3);
    }

    #[test]
    fn wrong_wishes_are_said() {
        let (folder, path) = file(&sample());
        let there = path.display().to_string();
        for (more, what) in [
            (&["-f", "rmm", "--device", "3"][..], "has no device 3; it has 0"),
            (&["-f", "rmm", "--from", "2s", "--to", "1s"], "--from (2.00 s) is after --to (1.00 s)"),
            (&["-f", "rmm", "--from", "1h"], "--from is after the last event"),
            (&["-f", "rmm", "--at", "1h"], "--at: 1 h 00 min is not in it: the history ends at"),
            (
                &["-f", "rmm", "--at", "epoch 3"],
                "--at: no mark \"epoch 3\": the history has no marks; or give peak, end",
            ),
            (&["-f", "rmm", "--from", "7"], "--from: no mark \"7\""),
            (&["-f", "rmm", "--to", ""], "invalid value '' for '--to <MOMENT>': give peak, end, a time"),
            (&["-f", "rmm", "--layer", "tensors"], "no layer; allowed: pool, device"),
            (&["-f", "rmm", "--at", "1s", "--to", "2s"], "cannot be used with"),
            (&["-f", "rmm", "-o", &there], "is the history itself"),
            (&["-f", "rmm", "--symbols", "/none"], "--symbols wants a folder"),
            (&["-f", "excel"], "torch-pickle"),
            (&["-f", "folded", &there], "this format holds one history"),
            (&["-f", "parquet"], "this format is a folder of files: give it with -o"),
            (&["-f", "csv", "-o", "-"], "this format is a folder of files: give it with -o"),
            (&["-f", "folded", "--limit", "3"], "--limit says nothing to this format"),
            (&["-f", "perfetto", "--allocated"], "--allocated says nothing to this format"),
            (&["-f", "rmm", "--run", "x"], "--run says nothing to this format"),
        ] {
            let e = format!("{:#}", export(&path, more).unwrap_err());
            assert!(e.contains(what), "{more:?}: {e}");
        }
        let e = export(folder.path(), &["-f", "rmm"]).unwrap_err();
        assert!(e.to_string().contains("is a folder"), "{e}");
        let e = export(&folder.path().join("none"), &["-f", "rmm"]).unwrap_err();
        assert!(e.to_string().contains("cannot be read"), "{e}");
    }
}
