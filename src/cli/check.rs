//! `vramscope check`: asserts what a history must hold, for scripts and CI. One line a failed assertion.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use vramscope_core::size::{self, Size};

use super::{report, say};
use crate::report::answers::{Answers, Asked};
use crate::report::by::{self, List};
use crate::report::frames::Shown;
use crate::report::growth::suspect::Kind;
use crate::report::text::{Paint, bytes, clean, count, part, plural, time};
use crate::report::{History, Page};

/// Asserts what a history must hold: exit code 0 if all of it holds, 1 if not, 2 if the history cannot be read
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The history: a .jsonl or .jsonl.zst file
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,
    /// Most bytes active at once (20GiB, 512MiB)
    #[arg(long, value_name = "BYTES", value_parser = size)]
    pub max_peak: Option<u64>,
    /// Most bytes held from the driver at once
    #[arg(long, value_name = "BYTES", value_parser = size)]
    pub max_reserved: Option<u64>,
    /// Most bytes active at the end
    #[arg(long, value_name = "BYTES", value_parser = size)]
    pub max_end: Option<u64>,
    /// Most of what is reserved that is never needed: 1 - active at most / reserved at most (10%, 0.1)
    #[arg(long, value_name = "PART", value_parser = share)]
    pub max_waste: Option<f64>,
    /// Most pinned and registered host memory, at the peak and at the end
    #[arg(long, value_name = "BYTES", value_parser = size)]
    pub max_host: Option<u64>,
    /// Most allocations in a step, on average (needs steps in the history)
    #[arg(long, value_name = "N")]
    pub max_allocations_per_step: Option<u64>,
    /// Nothing grows from step to step, and nothing is left behind
    #[arg(long)]
    pub no_leaks: bool,
    /// No request for memory failed
    #[arg(long)]
    pub no_failures: bool,
    /// No double free, and no free of something unknown
    #[arg(long)]
    pub no_bad_frees: bool,
    /// No events were lost and the history is whole
    #[arg(long)]
    pub whole: bool,
    /// Folder with the programs and libraries that ran, or their debug files; may be given several times
    #[arg(long, value_name = "DIR")]
    pub symbols: Vec<PathBuf>,
}

fn size(text: &str) -> Result<u64, String> {
    match size::parse(text, false)? {
        Size::Bytes(bytes) => Ok(bytes),
        Size::Percent(_) => Err(format!("'{text}' is no size")),
    }
}

fn share(text: &str) -> Result<f64, String> {
    let (number, scale) = match text.trim().strip_suffix('%') {
        Some(percent) => (percent, 100.0),
        None => (text.trim(), 1.0),
    };
    let part = number.trim().parse::<f64>().ok().map(|n| n / scale).filter(|p| (0.0..=1.0).contains(p));
    part.ok_or_else(|| "wants a part, as 10% or 0.1".to_string())
}

impl Args {
    fn asserts(&self) -> bool {
        let numbers = [self.max_peak, self.max_reserved, self.max_end, self.max_host, self.max_allocations_per_step];
        let flags = [self.no_leaks, self.no_failures, self.no_bad_frees, self.whole];
        numbers.iter().any(Option::is_some) || self.max_waste.is_some() || flags.contains(&true)
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Result<ExitCode> {
    if !args.asserts() {
        anyhow::bail!("check asserts nothing: give --max-peak, --no-leaks, --max-waste or another (--help lists them)");
    }
    report::readable(&args.trace, &args.symbols)?;
    let history = report::read(&args.trace)?;
    let mut page = Page::new(Paint::default(), &args.symbols, 10);
    let answers = Answers::of(&mut page, &history, &Asked::default()).map_err(anyhow::Error::msg)?;
    let failed = failures(args, &answers, &history);
    if failed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let lines: Vec<String> = failed.iter().map(|f| format!("FAILED {f}\n")).collect();
    say::print(&lines.concat())?;
    Ok(ExitCode::FAILURE)
}

/// What does not hold, one line each.
pub fn failures(args: &Args, a: &Answers, history: &History) -> Vec<String> {
    let mut failed = Vec::new();
    let g = &a.glance;
    let top = |moment: &str| a.holders.iter().find(|h| h.moment == moment).map_or(String::new(), |h| most(&h.list));
    let mut limit = |flag: &str, most: Option<u64>, is: u64, when: u64, top: String| {
        if let Some(most) = most.filter(|m| is > *m) {
            let (most, is) = told_apart(most, is);
            failed.push(format!("{flag} {most}: {is} at {}{top}", time(when)));
        }
    };
    limit("--max-peak", args.max_peak, g.peak.active, g.peak.time, top("peak"));
    limit("--max-reserved", args.max_reserved, g.reserved_peak, g.reserved_peak_time, top("peak"));
    limit("--max-end", args.max_end, g.end.active, a.program.time, top("end"));
    let host = |m: &crate::report::glance::Moment| -> u64 {
        m.layers.iter().filter(|l| l.layer.contains("host memory")).map(|l| l.active).sum()
    };
    limit("--max-host", args.max_host, host(&g.peak).max(host(&g.end)), g.peak.time, String::new());
    if let Some(most) = args.max_waste.filter(|m| g.waste > *m) {
        let shares = match (part(most), part(g.waste)) {
            (one, other) if one == other => (format!("{} %", most * 100.0), format!("{} %", g.waste * 100.0)),
            shares => shares,
        };
        let pin = a.holes.as_ref().and_then(|h| h.pins.first());
        let pin = pin.map_or(String::new(), |p| format!("; {} of it behind tensors of {}", bytes(p.free), p.place));
        failed.push(format!(
            "--max-waste {}: {} ({} of {} reserved are never needed{pin})",
            shares.0,
            shares.1,
            bytes(g.waste_bytes),
            bytes(g.reserved_peak)
        ));
    }
    if args.no_leaks {
        for s in &a.leaks.suspects {
            let stack = path(&s.stack);
            let what = if s.kind == Kind::NeverFreed { s.rate() } else { format!("{}, {} in all", s.rate(), s.size()) };
            failed.push(format!("--no-leaks: {} at {}{stack}: {what}", s.kind.name(), s.place));
        }
    }
    if let Some(most) = args.max_allocations_per_step {
        match &a.leaks.steps {
            Some(steps) if steps.allocations > most => {
                let (is, steps) = (steps.allocations, plural(steps.count, "step"));
                failed.push(format!("--max-allocations-per-step {most}: {is} a step, over {steps}"));
            }
            Some(_) => {}
            None => failed.push(format!("--max-allocations-per-step {most}: no steps were found in this history")),
        }
    }
    if args.no_failures && g.failed > 0 {
        let first = history.errors.failed.iter().min_by_key(|(_, f)| f.first);
        let first =
            first.map_or(String::new(), |(_, f)| format!(", the first of {} at {}", bytes(f.largest), time(f.first)));
        let at = a.out_of_memory.first().and_then(|oom| Some((by::line(by::own(&oom.stack)?), path(&oom.stack))));
        let at = at.map_or(String::new(), |(line, more)| format!(", by {line}{more}"));
        failed.push(format!("--no-failures: {}{first}{at}", plural(g.failed, "failed request")));
    }
    if args.no_bad_frees && g.bad_frees > 0 {
        failed.push(format!("--no-bad-frees: {} of something that is not live", plural(g.bad_frees, "free")));
    }
    if history.is_snapshot() {
        let flags = [
            (args.no_leaks, "--no-leaks"),
            (args.no_failures, "--no-failures"),
            (args.no_bad_frees, "--no-bad-frees"),
            (args.max_waste.is_some(), "--max-waste"),
        ];
        for (_, flag) in flags.iter().filter(|(asked, _)| *asked) {
            failed.push(format!("{flag}: this is a snapshot, and one moment cannot tell"));
        }
    }
    if args.no_leaks && history.is_placeless() {
        failed.push("--no-leaks: this history has no call stacks, and what grows cannot be told".to_string());
    }
    // What is left of a history may hold what the whole does not, whatever is asserted.
    if let Some(why) = &a.program.incomplete {
        failed.push(format!("{}{why}", if args.whole { "--whole: " } else { "" }));
    }
    if args.whole {
        for what in [
            (g.lost > 0).then(|| format!("{} lost", plural(g.lost, "event"))),
            history.killed().then(|| a.program.end.clone()),
        ] {
            failed.extend(what.map(|w| format!("--whole: {}", clean(&w))));
        }
    }
    failed
}

/// Two sizes, to the byte if they round alike.
fn told_apart(most: u64, is: u64) -> (String, String) {
    match (bytes(most), bytes(is)) {
        (one, other) if one == other => (format!("{} bytes", count(most)), format!("{} bytes", count(is))),
        both => both,
    }
}

/// `; most (1.20 GiB) by train.py:20 forward < train.py:41 main`
fn most(list: &List) -> String {
    list.entries
        .first()
        .map_or(String::new(), |e| format!("; most ({}) by {}{}", bytes(e.bytes), e.name, path(&e.stack)))
}

/// The lines of the user's that led there, from the inside out.
fn path(stack: &[Shown]) -> String {
    let own = by::own(stack).map(by::line);
    let user = stack.iter().filter(|s| s.whose == crate::report::python::Whose::User).map(by::line);
    let more: Vec<String> = user.filter(|l| Some(l) != own.as_ref()).take(3).collect();
    more.iter().map(|l| format!(" < {l}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing::{MIB, sample};
    use vramscope_core::event::EventKind;
    use vramscope_core::trace::Line;

    fn args() -> Args {
        Args {
            trace: PathBuf::new(),
            max_peak: None,
            max_reserved: None,
            max_end: None,
            max_waste: None,
            max_host: None,
            max_allocations_per_step: None,
            no_leaks: false,
            no_failures: false,
            no_bad_frees: false,
            whole: false,
            symbols: Vec::new(),
        }
    }

    fn check(change: impl Fn(&mut Args)) -> Vec<String> {
        let history = sample().history();
        let mut page = Page::new(Paint::default(), &[], 10);
        let answers = Answers::of(&mut page, &history, &Asked::default()).unwrap();
        let mut args = args();
        change(&mut args);
        failures(&args, &answers, &history)
    }

    #[test]
    fn what_holds_is_not_spoken_of() {
        let failed = check(|a| {
            a.max_peak = Some(829 * MIB);
            a.max_waste = Some(0.1);
            a.whole = true;
        });
        assert!(failed.is_empty(), "{failed:?}");
    }

    #[test]
    fn what_rounds_alike_is_told_apart() {
        let failed = check(|a| {
            a.max_peak = Some(829 * MIB - 1);
            a.max_end = None;
        });
        assert!(failed[0].starts_with("--max-peak 869,269,503 bytes: 869,269,504 bytes at "), "{}", failed[0]);
        assert_eq!(told_apart(MIB, 2 * MIB), ("1.00 MiB".into(), "2.00 MiB".into()));
    }

    #[test]
    fn what_is_left_of_a_history_passes_nothing() {
        let mut script = sample();
        let ends =
            |l: &Line| matches!(l, Line::Footer(_)) || matches!(l, Line::Event(_, e) if e.kind == EventKind::Exit);
        script.lines.retain(|l| !ends(l));
        let history = script.history();
        let answers = Answers::of(&mut Page::new(Paint::default(), &[], 10), &history, &Asked::default()).unwrap();
        let failed = failures(&Args { max_peak: Some(900 * MIB), ..args() }, &answers, &history);
        assert_eq!((failed.len(), failed[0].contains("is not finished")), (1, true), "{failed:?}");
    }

    #[test]
    fn what_does_not_is_one_line_with_its_numbers() {
        let failed = check(|a| {
            a.max_peak = Some(500 * MIB);
            a.max_end = Some(0);
            a.max_host = Some(MIB);
            a.no_failures = true;
            a.no_bad_frees = true;
            a.max_allocations_per_step = Some(0);
        });
        println!("{failed:#?}");
        assert_eq!(failed.len(), 6);
        assert!(failed[0].starts_with("--max-peak 500 MiB: 829 MiB at 33.0 ms; most (768 MiB) by"), "{}", failed[0]);
        assert!(failed[2].starts_with("--max-host 1.00 MiB: 16.0 MiB"), "{}", failed[2]);
        assert!(failed[4].starts_with("--no-failures: 1 failed request, the first of 200 GiB"), "{}", failed[4]);
    }

    #[test]
    fn parts_and_sizes() {
        assert_eq!(share("10%"), Ok(0.1));
        assert_eq!(share("0.25"), Ok(0.25));
        assert!(share("110%").is_err() && share("x").is_err());
        assert_eq!(size("2GiB"), Ok(2 << 30));
        assert!(size("lots").is_err());
    }
}
