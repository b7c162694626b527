//! What `run` says when its program has ended: six lines for each process, or why there are none.

use std::ffi::OsStr;
use std::path::Path;

use vramscope_core::trace::Header;

use super::harvest::{Finished, Harvest};
use super::{program, run, say};
use crate::report::{History, summary, text};

/// Processes summed up in six lines each: those that did most. Of more, one line for all.
const SUMMED_UP: usize = 10;

/// Says it.
pub fn say(harvest: &Harvest, program: &Path, args: &run::Args) {
    let (told, rest) = choose(&harvest.histories);
    let several = told.len() > 1;
    for one in &told {
        match History::read(&one.path) {
            Ok(history) => sum_up(&history, several),
            Err(e) => say::line(&format!("{e:#}")),
        }
    }
    if let Some(line) = others(&rest) {
        say::line(&line);
    }
    for stream in &harvest.streams {
        say::line(&format!("the history went to {}", stream.display()));
    }
    for message in &harvest.messages {
        say::line(message);
    }
    if told.is_empty() && harvest.streams.is_empty() && harvest.messages.is_empty() {
        say::line(&nothing(harvest.processes, program, args));
    }
}

/// With `--quiet`, the one thing that must be known all the same: that a history is not in the file that was named,
/// because there was one.
pub fn say_renamed(harvest: &Harvest, trace: &Path) {
    if let Some(line) = renamed(&harvest.histories, trace) {
        say::line(&line);
    }
}

fn renamed(all: &[Finished], trace: &Path) -> Option<String> {
    if trace.to_string_lossy().contains('%') || all.iter().any(|h| h.path == trace) {
        return None;
    }
    let (first, rest) = all.split_first()?;
    let more = if rest.is_empty() { String::new() } else { format!(" (and {} more)", rest.len()) };
    Some(format!("{} was there: the history is {}{more}", trace.display(), first.path.display()))
}

/// The histories to be told, in the order of their processes, and the rest.
fn choose(all: &[Finished]) -> (Vec<&Finished>, Vec<&Finished>) {
    let mut some: Vec<&Finished> = all.iter().filter(|h| h.events > 0).collect();
    some.sort_by_key(|h| std::cmp::Reverse(h.events));
    let rest = some.split_off(some.len().min(SUMMED_UP));
    some.sort_by_key(|h| h.pid);
    (some, rest)
}

fn others(rest: &[&Finished]) -> Option<String> {
    let folder = rest.first()?.path.parent();
    let what = text::plural(rest.len() as u64, "more history").replace("historys", "histories");
    Some(match folder.filter(|f| rest.iter().all(|h| h.path.parent() == Some(f))) {
        Some(folder) => format!("and {what}, of processes that did less, in {}", folder.display()),
        None => format!("and {what}, of processes that did less, {} for one", rest[0].path.display()),
    })
}

fn sum_up(history: &History, several: bool) {
    if several {
        let header = &history.header;
        say::line(&format!("---- {} (process {}{})", text::clean(history.program()), header.pid, rank(header)));
    }
    say::raw(summary::text(history).as_bytes());
    // What it lacks.
    if let Some(damage) = &history.damage {
        say::line(damage);
    }
    let footer = history.footer.as_ref();
    let lost = history.lost();
    if lost > 0 {
        say::line(&format!("{} lost: the numbers above may be off by them", text::plural(lost, "event")));
    }
    if footer.is_some_and(|f| f.end == "stopped") {
        let why = history.notes.last().map_or("see the report", |n| n.message.as_str());
        say::line(&format!("recording ended early: {}", text::clean(why)));
    }
}

/// `, rank 3 of 8` of a distributed job.
fn rank(header: &Header) -> String {
    let Some(rank) = header.rank() else { return String::new() };
    let of = header.world().map_or(String::new(), |(_, n)| format!(" of {}", text::clean(n)));
    format!(", rank {}{of}", text::clean(rank))
}

/// Why there is no history.
fn nothing(processes: usize, program: &Path, args: &run::Args) -> String {
    let value = |name: &str| args.flags.get(name).cloned().or_else(|| std::env::var_os(name));
    let why = if args.flags.get("VRAMSCOPE").is_some()
        || std::env::var_os("VRAMSCOPE").is_some_and(|v| v == "off" || v == "0")
    {
        "vramscope was off (VRAMSCOPE=off)".to_string()
    } else if value("VRAMSCOPE_TRACE").as_deref() == Some(OsStr::new("off")) {
        let flag = args.flags.get("VRAMSCOPE_TRACE").is_some();
        let by = if flag { "--trace off" } else { "VRAMSCOPE_TRACE=off" };
        let pool = value("VRAMSCOPE_POOL").as_deref() != Some(OsStr::new("off")) && program::closed(program).is_none();
        return format!("no history was kept ({by}){}", if pool { "; the pool works without one" } else { "" });
    } else if processes > 0 {
        "no GPU memory was asked for".to_string()
    } else if let Some(why) = program::closed(program) {
        why
    } else if let Some(only) = value("VRAMSCOPE_ONLY") {
        format!("no CUDA call seen of a program named in {} (--only)", only.to_string_lossy())
    } else {
        "no CUDA call seen (processes of another user, or without LD_PRELOAD in their environment, cannot be seen)"
            .to_string()
    };
    format!("nothing was recorded: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_named() {
        let named = |all: &[(&str, &str)]| {
            let variables = all.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
            rank(&Header { rank: variables, ..Header::default() })
        };
        assert_eq!(named(&[("RANK", "3"), ("WORLD_SIZE", "8"), ("LOCAL_RANK", "1")]), ", rank 3 of 8");
        assert_eq!(named(&[("SLURM_PROCID", "2")]), ", rank 2");
        assert_eq!(named(&[("OMPI_COMM_WORLD_RANK", "2"), ("OMPI_COMM_WORLD_SIZE", "4")]), ", rank 2 of 4");
        assert_eq!(named(&[("CUDA_VISIBLE_DEVICES", "0")]), "");
    }

    #[test]
    fn a_history_under_another_name_is_said() {
        let all = |names: &[&str]| {
            let one = |name: &&str| Finished { path: Path::new("/t").join(name), pid: 1, events: 1 };
            names.iter().map(one).collect::<Vec<_>>()
        };
        let said = |names: &[&str], trace: &str| renamed(&all(names), Path::new(trace));
        assert_eq!(said(&["a-2.jsonl"], "/t/a.jsonl").unwrap(), "/t/a.jsonl was there: the history is /t/a-2.jsonl");
        assert!(said(&["a-2.jsonl", "a-3.jsonl"], "/t/a.jsonl").unwrap().ends_with("(and 1 more)"));
        assert_eq!(said(&["a.jsonl", "a-2.jsonl"], "/t/a.jsonl"), None, "a child's, as the README says");
        assert_eq!((said(&["a-7.jsonl"], "/t/a-%p.jsonl"), said(&[], "/t/a.jsonl")), (None, None));
    }

    #[test]
    fn the_busiest_are_told_and_the_rest_is_one_line() {
        let one = |pid: u32, events: u64| Finished { path: format!("/t/{pid}.jsonl").into(), pid, events };
        let mut all: Vec<Finished> = (1..=12).map(|pid| one(pid, 100 - u64::from(pid))).collect();
        all.push(one(13, 0));
        all.push(one(14, 1000));
        all.reverse();
        let (told, rest) = choose(&all);
        let pids: Vec<u32> = told.iter().map(|h| h.pid).collect();
        assert_eq!(pids, [1, 2, 3, 4, 5, 6, 7, 8, 9, 14]);
        assert_eq!(others(&rest).unwrap(), "and 3 more histories, of processes that did less, in /t");
        let elsewhere = Finished { path: "/u/1.jsonl".into(), pid: 1, events: 1 };
        assert!(others(&[rest[0], &elsewhere]).unwrap().ends_with("10.jsonl for one"));
        assert_eq!(others(&rest[..1]).unwrap(), "and 1 more history, of processes that did less, in /t");
        assert_eq!(others(&[]), None);
    }
}
