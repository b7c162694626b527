//! Names of functions and lines, found offline: from debug files wherever they may lie, from the cache, and from a
//! history that took them along.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{History, Link, Mode, Program, Run, program};
use tempfile::TempDir;

/// A copy of a program, run once under the library; and a folder for what a test does with it.
struct Ran {
    folder: TempDir,
    program: PathBuf,
    run: Run,
}

impl Ran {
    fn new(prepare: impl FnOnce(&Path)) -> Ran {
        let folder = tempfile::tempdir().expect("a folder");
        let copy = folder.path().join("bin/basics");
        fs::create_dir(folder.path().join("bin")).expect("a folder");
        fs::copy(program("basics_rt", Link::Runtime13), &copy).expect("a copy");
        prepare(&copy);
        let run = Program::at(&copy).arg("plain").run(Mode::Pooled);
        Ran { folder, program: copy, run }
    }

    /// One whose debug information was moved into `bin/basics.debug`.
    fn stripped() -> Ran {
        Ran::new(|copy| {
            let debug = copy.with_extension("debug");
            tool("objcopy", &["--only-keep-debug"], &[copy, &debug]);
            tool("objcopy", &["--strip-all"], &[copy]);
            let link = format!("--add-gnu-debuglink={}", debug.display());
            tool("objcopy", &[&link], &[copy]);
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn trace(&self) -> PathBuf {
        self.run.traces().remove(0)
    }

    fn build_id(&self) -> String {
        let history = History::read(&self.trace());
        let modules = history.modules();
        let mine = modules.values().find(|m| Path::new(&m.path) == self.program).expect("the program's module");
        assert!(mine.build_id.len() > 8, "a build id");
        mine.build_id.clone()
    }

    /// The command, which keeps nothing and knows of no debug files but those of the system.
    fn vramscope(&self, arguments: &[&str], variables: &[(&str, &Path)]) -> (String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vramscope"));
        command.env("HOME", self.path("home")).env("VRAMSCOPE_CACHE", "off");
        command.env_remove("XDG_CACHE_HOME").env_remove("DEBUGINFOD_CACHE_PATH").envs(variables.iter().copied());
        let out = command.args(arguments).output().expect("the command");
        let (text, said) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        assert!(out.status.success(), "{arguments:?}: {said}");
        (text.into_owned(), said.into_owned())
    }

    fn report(&self, trace: &Path, arguments: &[&str], variables: &[(&str, &Path)]) -> String {
        let trace = trace.display().to_string();
        let mut all = vec!["report", trace.as_str()];
        all.extend(arguments);
        let (text, said) = self.vramscope(&all, variables);
        assert_eq!(said, "");
        text
    }
}

fn tool(name: &str, arguments: &[&str], paths: &[&Path]) {
    let done = Command::new(name).args(arguments).args(paths).status().unwrap_or_else(|e| panic!("{name}: {e}"));
    assert!(done.success(), "{name} {arguments:?}");
}

/// Function, file and line of the place that asks for memory.
fn is_named(report: &str) -> bool {
    report.contains("case_plain") && report.contains("basics_rt.c:") && !report.contains("NAMES MISSING")
}

#[test]
fn a_history_to_take_along() {
    let ran = Ran::new(|_| {});
    let before = ran.report(&ran.trace(), &[], &[]);
    assert!(is_named(&before), "{before}");
    let trace = ran.trace().display().to_string();
    let (text, said) = ran.vramscope(&["symbolize", &trace], &[]);
    assert_eq!(said, "");
    let out = trace.replace(".jsonl", ".symbols.jsonl");
    assert!(text.starts_with(&format!("{out}: ")) && text.contains(" named, ") && text.lines().count() == 1, "{text}");
    // The same on another machine: the program is not there.
    fs::remove_file(&ran.program).expect("removed");
    let gone = ran.report(&ran.trace(), &[], &[]);
    assert!(!is_named(&gone) && gone.contains("basics is not at ") && gone.contains("basics+0x"), "{gone}");
    assert_eq!(ran.report(Path::new(&out), &[], &[]), before);
    History::read(Path::new(&out)).check();
    // What is missing is said by name; the history is made all the same.
    let other = ran.path("again.jsonl.zst");
    let (text, said) = ran.vramscope(&["symbolize", &trace, "-o", &other.display().to_string()], &[]);
    assert!(text.contains("missing: basics"), "{text}");
    assert!(said.contains("basics is not at ") && said.contains("--symbols DIR"), "{said}");
    assert!(History::read(&other).footer().is_some() == History::read(&ran.trace()).footer().is_some());
}

#[test]
fn a_second_report_comes_from_the_cache() {
    let ran = Ran::new(|_| {});
    let cache = ran.path("cache");
    let cached = [("VRAMSCOPE_CACHE", cache.as_path())];
    let first = ran.report(&ran.trace(), &[], &cached);
    assert!(is_named(&first), "{first}");
    let file = cache.join(format!("{}.names", ran.build_id()));
    assert!(file.exists());
    // Even without the file that ran: what was read from it stays true.
    fs::rename(&ran.program, ran.path("moved")).expect("moved");
    assert_eq!(ran.report(&ran.trace(), &[], &cached), first);
    // A damaged one is none.
    fs::write(&file, "vramscope-names 1 and more").expect("written");
    assert!(!is_named(&ran.report(&ran.trace(), &[], &cached)));
    // Nothing was written elsewhere.
    assert!(!ran.path("home").exists());
}

#[test]
fn debug_files_are_found_where_they_may_lie() {
    let ran = Ran::stripped();
    let trace = ran.trace();
    let (debug, id) = (ran.path("bin/basics.debug"), ran.build_id());
    // Next to the program, by the name that it refers to.
    let report = ran.report(&trace, &[], &[]);
    assert!(is_named(&report), "{report}");
    // Nowhere: stripped, it has no names.
    let away = ran.path("away.debug");
    fs::rename(&debug, &away).expect("moved");
    let report = ran.report(&trace, &[], &[]);
    assert!(!report.contains("case_plain") && report.contains("basics+0x"), "{report}");
    let put = |place: &Path| {
        fs::create_dir_all(place.parent().expect("a folder")).expect("a folder");
        fs::copy(&away, place).expect("a copy");
    };
    put(&ran.path("bin/.debug/basics.debug"));
    let report = ran.report(&trace, &[], &[]);
    assert!(is_named(&report), "{report}");
    fs::remove_dir_all(ran.path("bin/.debug")).expect("removed");
    // The folders that a person names, the program itself being gone.
    let by_id = format!(".build-id/{}/{}.debug", &id[..2], &id[2..]);
    for name in ["basics.debug", "basics", &by_id] {
        let folder = ran.path("symbols");
        put(&folder.join(name));
        fs::rename(&ran.program, ran.path("gone")).expect("moved");
        let report = ran.report(&trace, &["--symbols", &folder.display().to_string()], &[]);
        assert!(is_named(&report), "{name}: {report}");
        fs::rename(ran.path("gone"), &ran.program).expect("moved back");
        fs::remove_dir_all(folder).expect("removed");
    }
    // What a debuginfod client has fetched.
    let home = ran.path("home/.cache/debuginfod_client");
    put(&home.join(&id).join("debuginfo"));
    assert!(is_named(&ran.report(&trace, &[], &[])));
    fs::rename(&home, ran.path("fetched")).expect("moved");
    let fetched = ran.path("fetched");
    assert!(is_named(&ran.report(&trace, &[], &[("DEBUGINFOD_CACHE_PATH", &fetched)])));
}

/// Debug information that comes later is used, in place of what was kept without it; another program's is not.
#[test]
fn debug_files_that_come_later() {
    let ran = Ran::stripped();
    let debug = ran.path("bin/basics.debug");
    let cache = ran.path("cache");
    let cached = [("VRAMSCOPE_CACHE", cache.as_path())];
    fs::rename(&debug, ran.path("away")).expect("moved");
    assert!(!is_named(&ran.report(&ran.trace(), &[], &cached)));
    let other = program("basics_drv", Link::Driver);
    tool("objcopy", &["--only-keep-debug"], &[&other, &debug]);
    assert!(!is_named(&ran.report(&ran.trace(), &[], &cached)));
    fs::rename(ran.path("away"), &debug).expect("moved back");
    assert!(is_named(&ran.report(&ran.trace(), &[], &cached)));
}
