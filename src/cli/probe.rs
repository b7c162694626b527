//! The part of `vramscope doctor` that runs a program and shows which of its calls the library sees.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::doctor::{Args, Verdict, print_line};
use super::run_dir::RunDir;
use super::spool::{self, Outcome, SpoolFile};
use super::{child, preload, program, say};
use crate::report::text::{WIDTH, clean, plural};

/// What was seen of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// None of its calls.
    Nothing,
    /// Its calls, but it allocated nothing.
    Calls,
    /// Its allocations.
    Allocations,
}

/// Runs a program and shows what the library says of it.
pub fn probe(name: &OsString, args: &Args, library: &Path) -> Result<Seen> {
    let found = match program::find(name, std::env::var_os("PATH").as_deref()) {
        Ok(path) => path,
        Err(e) => anyhow::bail!(e.message),
    };
    if let Some(why) = program::closed(&found) {
        print_line("program", Verdict::Bad, &why)?;
        return Ok(Seen::Nothing);
    }
    let run_dir = RunDir::create()?;
    let told = observe(name, args, &found, library, &run_dir);
    let recorded = recorded(run_dir.path());
    run_dir.remove();
    let (said, status) = told?;
    let code = child::code(status);
    // Its exit code is its own affair.
    print_line("program", Verdict::Ok, &format!("{}, exit code {code}", found.display()))?;
    if said.is_empty() {
        let text =
            "the library said nothing: the program asked for no CUDA function (or its loader dropped the library)";
        print_line("seen", Verdict::Bad, text)?;
        return Ok(Seen::Nothing);
    }
    print_line("recorded", if recorded > 0 { Verdict::Ok } else { Verdict::Warn }, &plural(recorded, "event"))?;
    show(&said)?;
    Ok(if recorded > 0 { Seen::Allocations } else { Seen::Calls })
}

/// What the library printed: keys and values.
type Said = Vec<(String, String)>;

fn observe(
    name: &OsString,
    args: &Args,
    found: &Path,
    library: &Path,
    run_dir: &RunDir,
) -> Result<(Said, std::process::ExitStatus)> {
    let library = preload::plain_path(library, run_dir.path())?;
    let preload = preload::value(std::env::var_os("LD_PRELOAD").as_deref(), &library, &program::sanitizers(found));
    let mut command = Command::new(name);
    command.args(&args.program[1..]).stderr(Stdio::piped());
    command.env("LD_PRELOAD", preload).env("VRAMSCOPE_LOG", "doctor").env("VRAMSCOPE_RUN_DIR", run_dir.path());
    command.env("VRAMSCOPE_TRACE", run_dir.path().join("doctor-%p.jsonl"));
    let signals = child::Signals::catch()?;
    let mut child = child::start(&mut command).with_context(|| name.to_string_lossy().into_owned())?;
    let pipe = child.stderr.take();
    let reading = std::thread::spawn(move || pipe.map(read_said).unwrap_or_default());
    let status = signals.wait(&mut child)?;
    Ok((reading.join().unwrap_or_default(), status))
}

/// The library's lines; the program's own go on to our stderr.
fn read_said(pipe: impl std::io::Read) -> Said {
    let mut said = Said::new();
    let mut reader = BufReader::new(pipe);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
        let text = String::from_utf8_lossy(&line);
        match text.strip_prefix("vramscope-doctor: ") {
            Some(rest) => {
                let (key, value) = rest.trim().split_once(' ').unwrap_or((rest.trim(), ""));
                said.push((key.to_string(), value.to_string()));
            }
            None => say::raw(&line),
        }
        line.clear();
    }
    said
}

fn recorded(folder: &Path) -> u64 {
    let mut events = 0;
    for path in spool::in_folder(folder).unwrap_or_default() {
        if let Ok(Outcome::Finished(r)) = SpoolFile::read(&path).and_then(|s| s.finish(|_| None, "doctor")) {
            events += r.footer.events;
        }
    }
    events
}

fn show(said: &Said) -> Result<()> {
    let mut said = said.clone();
    said.sort();
    said.dedup();
    let harmless = all_harmless(&said);
    for (key, value) in said.iter().filter(|(k, _)| k != "live" && k != "bypass") {
        let more = if key == "passed" && harmless { " (none of them gives memory)" } else { "" };
        say::print(&format!("{key:<14}       {}{more}\n", clean(value)))?;
    }
    let mut live: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (_, value) in said.iter().filter(|(k, _)| k == "live") {
        let (function, doors) = value.split_once(' ').unwrap_or((value, ""));
        live.entry(doors).or_default().push(function);
    }
    for (doors, functions) in live {
        say::print(&format!("\nHooked, asked for through {}:\n{}", doors.replace(' ', " and "), wrap(&functions)))?;
    }
    let passed = said.iter().filter(|(k, _)| k == "bypass").map(|(_, v)| v.split(' ').next().unwrap_or_default());
    let (memory, others): (Vec<&str>, Vec<&str>) = passed.partition(|f| gives_memory(f));
    if !memory.is_empty() {
        say::print(&format!("\nAsked for and NOT hooked; memory that they give is not seen:\n{}", wrap(&memory)))?;
    }
    if !others.is_empty() {
        say::print(&format!("\nAsked for and not hooked, no matter, they give no memory:\n{}", wrap(&others)))?;
    }
    Ok(())
}

/// Whether every look-up that was passed on is listed by name, and none of these functions gives memory.
fn all_harmless(said: &Said) -> bool {
    let first = |v: &str| v.split(' ').next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
    let of = |key: &'static str| said.iter().filter(move |(k, _)| k == key).map(|(_, v)| v.as_str());
    let passed: u64 = of("passed").map(first).sum();
    let mut listed = 0;
    for value in of("bypass") {
        let (function, times) = value.split_once(' ').unwrap_or((value, "1"));
        if gives_memory(function) {
            return false;
        }
        listed += first(times);
    }
    passed > 0 && listed >= passed
}

/// Whether a driver function that is not hooked may give memory, as far as its name tells.
fn gives_memory(function: &str) -> bool {
    let kinds = ["cuMem", "cuArray", "cuMipmappedArray", "cuImport", "cuExternal", "cuIpc", "cuMulticast"];
    let harmless = [
        "cuMemPool",
        "cuMemcpy",
        "cuMemset",
        "cuMemGet",
        "cuMemAddress",
        "cuMemRetain",
        "cuMemPrefetch",
        "cuMemAdvise",
        "cuArrayGet",
    ];
    let given = function == "cuMemPoolImportPointer" || !harmless.iter().any(|h| function.starts_with(h));
    given && kinds.iter().any(|k| function.starts_with(k))
}

/// Words as lines of the screen's width.
fn wrap(words: &[&str]) -> String {
    let mut text = String::new();
    let mut line = String::from(" ");
    for word in words {
        let word = clean(word);
        if line.len() + 1 + word.len() > WIDTH {
            text += &format!("{line}\n");
            line = String::from(" ");
        }
        line += &format!(" {word}");
    }
    text + &format!("{line}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_library_says_is_taken_out() {
        let said = read_said(&b"vramscope-doctor: live cuMemAlloc_v2 dlsym\nvramscope-doctor: hooks 90 of 96\n"[..]);
        assert_eq!(said, [("live".into(), "cuMemAlloc_v2 dlsym".into()), ("hooks".into(), "90 of 96".into())]);
    }

    #[test]
    fn look_ups_are_called_harmless_only_when_all_are_known() {
        let said =
            |lines: &[(&str, &str)]| -> Said { lines.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect() };
        let passed = ("passed", "3 look-ups of functions that are not hooked");
        assert!(all_harmless(&said(&[passed, ("bypass", "cuEventCreate 2"), ("bypass", "cuStreamCreate 1")])));
        assert!(!all_harmless(&said(&[passed, ("bypass", "cuEventCreate 2")])));
        assert!(!all_harmless(&said(&[passed, ("bypass", "cuEventCreate 2"), ("bypass", "cuArrayCreate_v2 1")])));
    }

    #[test]
    fn what_gives_memory() {
        for yes in
            ["cuMemAllocHost_v2", "cuArrayCreate_v2", "cuImportExternalMemory", "cuMemPoolImportPointer", "cuMemFree"]
        {
            assert!(gives_memory(yes), "{yes}");
        }
        for no in [
            "cuEventCreate",
            "cuMemPoolCreate",
            "cuThreadExchangeStreamCaptureMode",
            "cuMemcpyDtoH_v2",
            "cuStreamCreate",
        ] {
            assert!(!gives_memory(no), "{no}");
        }
    }
}
