//! What happens to a history at its end, or from there on: a disk that gets full, parts that go, a file that is emptied. What is left of
//! it, and what not, every command says.

use std::fs;
use std::path::PathBuf;

use crate::support::{History, Link, Mode, Program};
use crate::whole::said;
use vramscope_core::event::EventKind;

/// A disk that gets full only while exit handlers run, when all was written and the spool was gone: it is there again.
#[test]
fn a_disk_that_gets_full_at_the_very_end() {
    for trace in ["a.jsonl", "a.jsonl.zst"] {
        let program = Program::new("process", Link::Driver).arg("full_at_exit").unchecked().talks();
        let program = program.env("VRAMSCOPE_TRACE", trace);
        let run = program.run(Mode::Recording);
        run.assert_success();
        let messages: Vec<&str> = run.stderr.lines().collect();
        assert!(messages.len() == 1 && messages[0].contains("vramscope recover"), "{messages:?}");
        let path = run.folder.path().join(trace);
        let (report, code) = said(&["report"], &path);
        assert!(code == Some(0) && report.contains("recording ended early"), "{report}");
        let (text, code) = said(&["check", "--max-peak", "100GiB"], &path);
        assert!(code == Some(1) && text.contains("recording ended before the program did"), "{text}");
        let (text, code) = said(&["recover"], &path);
        assert!(code == Some(1) && text.contains("recording had ended early"), "{text}");
        let history = History::read(&path);
        let footer = history.footer().expect("a footer");
        let told = history.freed().len() as u64;
        assert!(told >= 100 && footer.lost > 0, "{told} told of, {} lost", footer.lost);
        assert!(told + footer.lost >= 300, "{told} told of, {} lost", footer.lost);
        // The one whose write failed (a free, or what the device said of itself).
        assert!(text.contains("finished, 1 event added"), "{text}");
        assert_eq!(run.remove_spools(), [] as [PathBuf; 0], "recover took it");
        // Nor is there memory: that is said, at least.
        let run = program.env("FULL_MEMORY", "1").run(Mode::Recording);
        run.assert_success();
        let messages: Vec<&str> = run.stderr.lines().collect();
        assert!(messages.len() == 1 && messages[0].contains("What memory still held of it is lost"), "{messages:?}");
    }
}

/// Exit handlers fill more than what `--max-trace` keeps.
fn much_at_exit() -> Program {
    let program = Program::new("process", Link::Driver).arg("much_at_exit");
    program.env("MUCH", "1000").env("VRAMSCOPE_MAX_TRACE", "64KiB")
}

/// What exit handlers do may fill more than what `--max-trace` keeps: the program ended in good order all the same.
#[test]
fn an_exit_that_was_rotated_away() {
    let program = much_at_exit();
    for trace in ["a.jsonl", "a.jsonl.zst"] {
        let run = program.clone().env("VRAMSCOPE_TRACE", trace).run(Mode::Recording);
        run.assert_success();
        let history = run.history();
        assert!(history.header().part > 1 && history.of(EventKind::Exit).count() == 0, "{run}");
        let (report, code) = said(&["report"], &history.path);
        assert!(code == Some(0) && report.contains("the program ended in good order"), "{report}");
        let (text, code) = said(&["verify"], &history.path);
        assert_eq!(code, Some(0), "{text}");
        let (text, code) = said(&["recover"], &history.path);
        assert!(code == Some(0) && text.contains("the program had ended in good order"), "{text}");
        assert_eq!(said(&["verify"], &history.path).1, Some(0));
    }
}

/// Emptied while its program wrote it, a history has no beginning: that is what all commands say, and nothing is made of it.
#[test]
fn a_history_that_was_emptied() {
    let program = Program::new("process", Link::Driver).arg("emptied").unchecked();
    for (trace, killed) in [("a.jsonl", false), ("a.jsonl.zst", false), ("a.jsonl", true)] {
        let program = program.clone().env("VRAMSCOPE_TRACE", trace);
        let run = if killed { program.env("KILLED", "1") } else { program }.run(Mode::Recording);
        assert_eq!(run.status.success(), !killed, "{run}");
        let path = run.folder.path().join(trace);
        let bytes = fs::read(&path).expect("the history");
        for command in ["report", "check --whole", "verify", "recover", "symbolize", "merge", "export -f rmm"] {
            let (text, code) = said(&command.split(' ').collect::<Vec<_>>(), &path);
            let what = format!("{trace}: line 1: no header, but lines of a history follow: its beginning is gone");
            let lines = text.lines().filter(|l| l.contains(&what)).count();
            assert!(code == Some(2) && lines == 1, "{command}: {text}");
        }
        assert_eq!(fs::read(&path).expect("the history"), bytes);
    }
}

/// The older part of a rotated history, of which the rest is gone, gets no end.
#[test]
fn an_older_part_alone() {
    let program = much_at_exit();
    let run = program.env("VRAMSCOPE_TRACE", "a.jsonl").run(Mode::Recording);
    let (path, older) = (run.folder.path().join("a.jsonl"), run.folder.path().join("a.jsonl.1"));
    fs::remove_file(&path).expect("the last part");
    let bytes = fs::read(&older).expect("the older part");
    for given in [&path, &older] {
        let (text, code) = said(&["recover"], given);
        let what = format!("{}: this last part of the history is missing", path.display());
        assert!(code == Some(1) && text.contains(&what), "{text}");
        let (text, code) = said(&["check", "--whole"], given);
        assert!(code == Some(1) && text.contains("this last part of the history is missing"), "{text}");
        let (text, code) = said(&["report"], given);
        assert!(code == Some(0) && text.contains("this last part of the history is missing"), "{text}");
    }
    assert_eq!(fs::read(&older).expect("the older part"), bytes);
}
