//! `vramscope verify`: is a history whole and consistent?

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use serde_json::json;

use super::say;
use super::whole::Whole;
use crate::report::text::{clean, plural};
use crate::verify::{Verdict, verify};

/// Checks histories.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Histories: .jsonl or .jsonl.zst files
    #[arg(value_name = "TRACE", required = true)]
    pub traces: Vec<PathBuf>,
    /// One JSON object a history
    #[arg(long)]
    pub json: bool,
    /// Say nothing of what is allowed
    #[arg(short, long)]
    pub quiet: bool,
}

/// Runs the command: 0 if all are whole and consistent, 1 if something was found, 2 if one cannot be read.
pub fn run(args: &Args) -> Result<ExitCode> {
    let mut code = 0;
    for trace in &args.traces {
        let file = Whole::of(trace);
        match verify(file.file()) {
            Ok(verdict) => {
                code = code.max(u8::from(!verdict.violations.is_empty()));
                say::print(&file.named(&if args.json { json(&verdict) } else { text(&verdict, args.quiet) }))?;
            }
            Err(e) => {
                code = 2;
                say::line(&say::plain(&file.named(&e.to_string())));
            }
        }
    }
    Ok(ExitCode::from(code))
}

/// For a program.
fn json(verdict: &Verdict) -> String {
    let violations: Vec<_> = verdict
        .violations
        .iter()
        .map(|v| {
            json!({
                "kind": v.kind.name(), "rule": v.kind.rule(), "count": v.count,
                "file": v.path.display().to_string(), "line": v.line, "what": v.what,
            })
        })
        .collect();
    let object = json!({
        "trace": verdict.path.display().to_string(), "consistent": violations.is_empty(), "events": verdict.events,
        "threads": verdict.threads, "stacks": verdict.stacks, "violations": violations, "allowed": verdict.allowed,
    });
    format!("{object}\n")
}

/// For a person.
fn text(verdict: &Verdict, quiet: bool) -> String {
    let (events, threads) = (plural(verdict.events, "event"), plural(verdict.threads as u64, "thread"));
    let stacks = plural(verdict.stacks, "stack");
    let path = clean(&verdict.path.display().to_string());
    let what = match verdict.violations.len() {
        0 => "whole and consistent".to_owned(),
        1 => "1 kind of violation".to_owned(),
        n => format!("{n} kinds of violation"),
    };
    let mut out = format!("{path}: {what}: {events} of {threads}, {stacks}\n");
    for v in &verdict.violations {
        let times = if v.count > 1 { format!(", {} in all", v.count) } else { String::new() };
        let what = if v.what.is_empty() { String::new() } else { format!(" ({})", clean(&v.what)) };
        out += &format!("  {}:{}: {}{what}{times}\n", clean(&v.path.display().to_string()), v.line, v.kind.rule());
    }
    if !quiet {
        for allowed in &verdict.allowed {
            out += &format!("  allowed: {}\n", clean(allowed));
        }
    }
    out
}
