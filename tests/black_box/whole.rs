//! What a history lacks is in it, and every command says so: lost events, a recording that stopped, damage, a missing end or
//! part; with one exit code for each.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::{History, Link, Mode, Program};
use vramscope_core::event::{Event, EventKind, Memory};
use vramscope_core::trace::{FORMAT, Footer, Header, Line, Lost, Thread, VERSION, write};

fn vramscope(arguments: &[&str], trace: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vramscope"));
    command.args(arguments).arg(trace).env("VRAMSCOPE_CACHE", "off").output().expect("the command")
}

/// What it says, and its exit code.
pub fn said(arguments: &[&str], trace: &Path) -> (String, Option<i32>) {
    let out = vramscope(arguments, trace);
    let text = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    (text, out.status.code())
}

fn lost_line(history: &History) -> Option<&Lost> {
    history.lines.iter().rev().find_map(|l| if let Line::Lost(lost) = l { Some(lost) } else { None })
}

/// With a bare preload nobody writes a footer.
#[test]
fn lost_events_are_counted_in_the_history() {
    let program = Program::new("process", Link::Driver).arg("crowd").unchecked();
    program.run(Mode::Bare).assert_success();
    for run in [program.run(Mode::Recording), program.launched(&["--quiet", "--pool", "off"]).run(Mode::Bare)] {
        run.assert_success();
        let history = run.histories().remove(0);
        let told = history.allocations() as u64;
        let lost = lost_line(&history).map_or(0, |l| l.lost);
        // (What the device says of itself is an event, too.)
        assert!(told < 561 && told + lost >= 561, "{run}: {told} allocations are told of, {lost} lost");
        if let Some(footer) = history.footer() {
            assert_eq!(footer.lost, lost, "{run}");
        }
        let (report, code) = said(&["report"], &history.path);
        assert!(code == Some(0) && report.contains(&format!("{lost} events lost: a thread was faster")), "{report}");
        let (text, code) = said(&["check", "--whole"], &history.path);
        assert!(code == Some(1) && text.contains(&format!("FAILED --whole: {lost} events lost")), "{text}");
        let (text, code) = said(&["verify"], &history.path);
        assert!(code == Some(0) && text.contains(&format!("{lost} events lost, and counted")), "{text}");
    }
}

/// Killed: `recover` takes the number from the spool; without a spool from the history.
#[test]
fn what_a_fault_left_out_is_counted() {
    let program = Program::new("basics_rt", Link::Runtime13).arg("many").unchecked().talks();
    let program = program.env("VRAMSCOPE_TEST_PANIC", "cuMemFree").env("VRAMSCOPE_POOL", "off");
    for run in [program.run(Mode::Recording), program.launched(&["--quiet"]).run(Mode::Bare)] {
        run.assert_success();
        let history = run.histories().remove(0);
        let footer = history.footer().expect("a footer, although nobody launched it");
        let by = if run.mode == Mode::Bare { "launcher" } else { "library" };
        assert_eq!((&*footer.end, &*footer.by), ("stopped", by), "{run}");
        let told = history.of(EventKind::Alloc).chain(history.of(EventKind::Free)).count() as u64;
        assert!(footer.lost > 0 && told + footer.lost >= 1200, "{run}: {told} told of, {} lost", footer.lost);
        assert_eq!(run.remove_spools(), [] as [PathBuf; 0], "{run}");
        let (report, code) = said(&["report"], &history.path);
        assert!(
            code == Some(0) && report.contains("recording ended early") && report.contains("events lost"),
            "{report}"
        );
        assert_eq!(said(&["recover"], &history.path).1, Some(1));
    }
}

/// A write that fails, here of a rotation: what the rings hold stays for `recover`, also without a launcher, and what came
/// after is counted.
#[test]
fn a_history_that_could_not_be_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.jsonl");
    let in_the_way = folder.path().join("a.jsonl.1");
    fs::create_dir_all(in_the_way.join("x")).expect("a folder");
    let program = Program::new("basics_rt", Link::Runtime13).arg("many").unchecked().talks();
    let program = program.env("VRAMSCOPE_TRACE", &path).env("VRAMSCOPE_MAX_TRACE", "64KiB");
    let run = program.run(Mode::Recording);
    run.assert_success();
    let messages: Vec<&str> = run.stderr.lines().collect();
    assert!(messages.len() == 1 && messages[0].contains("vramscope recover"), "{messages:?}");
    let (report, code) = said(&["report"], &path);
    assert!(code == Some(0) && report.contains("recording ended early"), "{report}");
    let (text, code) = said(&["check", "--max-peak", "100GiB"], &path);
    assert!(code == Some(1) && text.contains("recording ended before the program did"), "{text}");
    fs::remove_dir_all(&in_the_way).expect("the folder");
    let (text, code) = said(&["recover"], &path);
    assert!(code == Some(1) && text.contains("recording had ended early"), "{text}");
    let history = History::read(&path);
    let footer = history.footer().expect("a footer");
    let told = history.of(EventKind::Alloc).chain(history.of(EventKind::Free)).count() as u64;
    assert!(footer.lost > 0 && told + footer.lost >= 1200, "{told} told of, {} lost", footer.lost);
    assert_eq!(run.remove_spools(), [] as [PathBuf; 0], "recover took it");
}

/// A history of a few events, of a process that is gone.
fn lines(end: &str) -> Vec<Line> {
    let alloc = |id: u64| {
        let (kind, memory) = (EventKind::Alloc, Memory::Device);
        Line::Event(1, Event { kind, memory, id, time: id, address: id << 20, bytes: 1 << 20, ..Event::default() })
    };
    let header =
        Header { format: FORMAT.into(), version: VERSION, pid: 999_999_999, granularity: 2 << 20, ..Header::default() };
    let mut all = vec![Line::Header(header), Line::Thread(Thread { thread: 1, ..Thread::default() })];
    all.extend((1..=20).map(alloc));
    let mut events = 20;
    if end == "exit" {
        events += 1;
        all.push(Line::Event(1, Event { kind: EventKind::Exit, time: 20, ..Event::default() }));
    }
    all.push(Line::Footer(Footer { time: 20, events, end: end.into(), by: "launcher".into(), ..Footer::default() }));
    all
}

fn text(lines: &[Line]) -> Vec<u8> {
    let mut text = Vec::new();
    lines.iter().for_each(|line| write::line(&mut text, line));
    text
}

/// A file in this folder.
fn written(folder: &Path, name: &str, lines: &[Line]) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, text(lines)).expect("a file");
    path
}

/// The peak, a failure or a leak may have been in what is not there: nothing that is asserted of the whole run can be held.
fn passes_nothing(path: &Path, whole: &Path, why: &str) {
    for asserted in [
        &["--max-peak", "1GiB"][..],
        &["--max-reserved", "1GiB"],
        &["--max-end", "1GiB"],
        &["--max-waste", "100%"],
        &["--no-failures"],
        &["--no-leaks"],
        &["--no-bad-frees"],
        &["--whole"],
    ] {
        let (text, code) = said(&[&["check"], asserted].concat(), path);
        let mut failed = text.lines().filter(|l| l.starts_with("FAILED ") && l.contains(why));
        assert!(code == Some(1) && failed.next().is_some() && failed.next().is_none(), "{asserted:?}: {text}");
    }
    for [before, after] in [[whole, path], [path, whole]] {
        let (text, code) = said(&["diff", "--fail-if-grew", "1GiB", &before.display().to_string()], after);
        assert!(code == Some(1) && text.contains(why), "{text}");
    }
    let (report, code) = said(&["report", "--json"], path);
    let answers: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    let verdict = &answers["glance"]["verdict"];
    assert!(code == Some(0) && verdict["about"] != "fine", "{verdict}");
    assert!(verdict["text"].as_str().is_some_and(|t| t.contains(why)), "{verdict}");
    let out = path.with_extension("csv").display().to_string();
    assert!(said(&["export", "-f", "rmm", "--force", "-o", &out], path).0.contains(why));
    assert_eq!(
        (said(&["verify"], path).1, said(&["recover"], path).1),
        (Some(0), Some(0)),
        "the file is as it should be"
    );
}

#[test]
fn the_last_part_of_a_run_passes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let whole = written(folder.path(), "whole.jsonl", &lines("exit"));
    // Parts 3 and 4 of a run: 100 events were before them.
    let (mut older, mut newer) = (lines("killed"), lines("exit"));
    older.pop();
    newer.drain(2..22);
    for (all, part, before) in [(&mut older, 3, 100), (&mut newer, 4, 120)] {
        if let Line::Header(header) = &mut all[0] {
            (header.part, header.events_before) = (part, before);
        }
    }
    if let Some(Line::Footer(footer)) = newer.last_mut() {
        footer.events = 121;
    }
    if let Line::Thread(thread) = &mut newer[1] {
        thread.sequence = 20;
    }
    written(folder.path(), "run.jsonl.1", &older);
    let run = written(folder.path(), "run.jsonl", &newer);
    passes_nothing(&run, &whole, "only the last part of the run is left: 100 events before it were dropped");
    let (text, code) = said(&["symbolize"], &run);
    assert_eq!(code, Some(0), "{text}");
    // The older part is no history of its own: above all, nothing is written into it.
    let older_part = folder.path().join("run.jsonl.1");
    let bytes = fs::read(&older_part).expect("the older part");
    for command in ["report", "check --whole", "verify", "recover", "symbolize", "merge", "export -f rmm"] {
        let (text, code) = said(&command.split(' ').collect::<Vec<_>>(), &older_part);
        assert!(code == Some(2) && text.contains(&format!("give {}", run.display())), "{command}: {text}");
    }
    assert_eq!(fs::read(&older_part).expect("the older part"), bytes);
    let copy = folder.path().join("run.symbols.jsonl");
    passes_nothing(&copy, &whole, "only the last part of the run is left");
    // Nothing was dropped of a run of two parts.
    let all = [(&mut older, 0, 0), (&mut newer, 1, 20)];
    for (all, part, before) in all {
        if let Line::Header(header) = &mut all[0] {
            (header.part, header.events_before) = (part, before);
        }
    }
    if let Some(Line::Footer(footer)) = newer.last_mut() {
        footer.events = 21;
    }
    written(folder.path(), "run.jsonl.1", &older);
    written(folder.path(), "run.jsonl", &newer);
    assert_eq!(said(&["check", "--max-peak", "1GiB", "--no-failures", "--whole"], &run), (String::new(), Some(0)));
}

/// What was made in a pause may be most of what there was.
#[test]
fn a_paused_recording_passes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let whole = written(folder.path(), "whole.jsonl", &lines("exit"));
    let event = |kind, time| Line::Event(1, Event { kind, time, ..Event::default() });
    let with = |pauses: &[(EventKind, usize)]| {
        let mut all = lines("exit");
        for (kind, at) in pauses.iter().rev() {
            all.insert(2 + at, event(*kind, *at as u64));
        }
        if let Some(Line::Footer(footer)) = all.last_mut() {
            footer.events += pauses.len() as u64;
        }
        all
    };
    let (pause, resume) = (EventKind::Pause, EventKind::Resume);
    for (pauses, why) in [
        (
            &[(pause, 3), (resume, 9)][..],
            "recording was paused from 3 ns to 9 ns (6 ns): what happened then is unknown",
        ),
        (&[(pause, 0)], "recording was paused from 0 s on"),
        (&[(pause, 1), (resume, 2), (pause, 3), (resume, 4)], "recording was paused 2 times, from 1 ns to 4 ns"),
    ] {
        let path = written(folder.path(), "paused.jsonl", &with(pauses));
        passes_nothing(&path, &whole, why);
        assert!(said(&["verify"], &path).0.contains(why));
    }
    // What a snapshot holds is what was recorded.
    let mut snapshot = lines("exit");
    snapshot.drain(2..23);
    let alloc = Event { kind: EventKind::Alloc, memory: Memory::Device, id: 1, address: 1 << 20, ..Event::default() };
    let live = [(pause, 3), (resume, 9)].map(|(kind, time)| Event { kind, time, ..Event::default() });
    let live = live.into_iter().chain([Event { bytes: 1 << 20, ..alloc }]);
    snapshot.splice(2..2, live.map(|e| Line::Live(1, e)));
    if let Line::Header(header) = &mut snapshot[0] {
        header.events_before = 22;
    }
    if let Some(Line::Footer(footer)) = snapshot.last_mut() {
        (footer.events, footer.end) = (22, "snapshot".into());
    }
    let path = written(folder.path(), "snapshot.jsonl", &snapshot);
    let (text, code) = said(&["check", "--max-peak", "1GiB"], &path);
    assert!(code == Some(1) && text.contains("recording was paused from 3 ns to 9 ns"), "{text}");
    let report = said(&["report"], &path).0.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(report.contains("; and recording was paused"), "{report}");
}

/// One rule for all commands: what judges a history ends with 1 where it may not hold all that its program did; what shows
/// or converts it says so on stderr, and ends with 0; nothing that can be read is 2.
#[test]
fn exit_codes() {
    let folder = tempfile::tempdir().expect("a folder");
    let whole = folder.path().join("whole.jsonl");
    fs::write(&whole, text(&lines("exit"))).expect("a file");
    let without = |end: &str, left_out: std::ops::Range<usize>| {
        let mut all = lines(end);
        all.drain(left_out);
        text(&all)
    };
    let replaced = |end: &str, line: usize, by: &[u8]| {
        let bytes = text(&lines(end));
        let mut all: Vec<&[u8]> = bytes.split_inclusive(|b| *b == b'\n').collect();
        all[line] = by;
        all.concat()
    };
    let later_part = {
        let mut all = lines("exit");
        if let Line::Header(header) = &mut all[0] {
            (header.part, header.events_before) = (3, 100);
        }
        if let Some(Line::Footer(footer)) = all.last_mut() {
            footer.events += 100;
        }
        text(&all)
    };
    let cut = text(&lines("exit"));
    let frames = |text: &[u8]| zstd::encode_all(text, 1).expect("zstd");
    let middle = cut.len() / 2 + cut[cut.len() / 2..].iter().position(|b| *b == b'\n').expect("a line's end") + 1;
    let compressed = [frames(&cut[..middle]), frames(&cut[middle..])].concat();
    // (Its name, its bytes, whether it is whole.)
    let all: Vec<(&str, Vec<u8>, bool)> = vec![
        ("whole", text(&lines("exit")), true),
        ("killed", text(&lines("killed")), true),
        ("no footer but exited", without("exit", 23..24), true),
        ("damaged in the middle", replaced("exit", 9, b"rubbish\n"), false),
        ("a line is missing", without("exit", 9..10), false),
        ("not finished", without("killed", 22..23), false),
        ("cut in a line", cut[..cut.len() / 2].to_vec(), false),
        ("cut in a frame", compressed[..compressed.len() - 4].to_vec(), false),
        ("end lost", text(&lines("cut")), false),
        ("stopped", text(&lines("stopped")), false),
        ("part missing", later_part, false),
    ];
    for (name, bytes, is_whole) in all {
        let path = folder.path().join(format!("{name}.jsonl"));
        let code = |arguments: &[&str]| {
            fs::write(&path, &bytes).expect("a file");
            let (text, code) = said(arguments, &path);
            assert!(is_whole || !text.trim().is_empty(), "{name}: {arguments:?} says nothing");
            code
        };
        let shown = folder.path().join("out").display().to_string();
        for arguments in [
            &["report"][..],
            &["report", "--json"],
            &["report", "--force", "--html", &shown],
            &["export", "-f", "rmm", "--force", "-o", &shown],
            &["symbolize", "--force", "-o", &shown],
            &["merge"],
            &["diff", &whole.display().to_string()],
        ] {
            assert_eq!(code(arguments), Some(0), "{name}: {arguments:?}");
        }
        let found = Some(i32::from(!is_whole));
        for arguments in [
            &["check", "--max-peak", "1GiB"][..],
            &["verify"],
            &["diff", "--fail-if-grew", "1GiB", &whole.display().to_string()],
            &["recover"],
        ] {
            assert_eq!(code(arguments), found, "{name}: {arguments:?}");
        }
        // Once more: what is finished now is no more whole than it was.
        assert_eq!(said(&["recover"], &path).1, found, "{name}, recovered again");
        assert_eq!(said(&["check", "--max-peak", "1GiB"], &path).1, found, "{name}, recovered");
    }
    for (name, bytes) in [("empty", &b""[..]), ("other", b"rubbish\n"), ("cut", b"{\"kind\":\"header\",\"for")] {
        let path = folder.path().join(name);
        fs::write(&path, bytes).expect("a file");
        let none = folder.path().join("none");
        for path in [&path, &none] {
            for arguments in [
                &["report"][..],
                &["export", "-f", "rmm"],
                &["symbolize"],
                &["merge"],
                &["diff", &whole.display().to_string()],
                &["check", "--whole"],
                &["verify"],
                &["recover"],
            ] {
                assert_eq!(said(arguments, path).1, Some(2), "{}: {arguments:?}", path.display());
            }
        }
    }
}
