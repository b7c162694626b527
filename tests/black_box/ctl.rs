//! `vramscope ctl`: running processes are asked by it, and told.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Link, Mode, Program};
use serde_json::Value;
use tempfile::TempDir;

struct Running {
    child: Child,
    folder: TempDir,
}

fn program(case: &str) -> Program {
    Program::new("ctl", Link::Driver).arg(case).env("SIMGPU_MEMORY_MB", "1024").env("SIMGPU_CONTEXT_MB", "256")
}

fn within(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(30), "{what} does not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl Running {
    fn start(program: &Program, mode: Mode) -> Running {
        let folder = tempfile::Builder::new().prefix("vramscope-test.").tempdir().expect("a folder");
        let child = program.command(mode, folder.path()).stdout(Stdio::piped()).spawn().expect("the program");
        let running = Running { child, folder };
        running.waits_for("ready");
        running
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn socket(&self) -> PathBuf {
        PathBuf::from(format!("/dev/shm/vramscope-ctl.{}", self.pid()))
    }

    fn waits_for(&self, file: &str) {
        let path = self.folder.path().join(file);
        within(file, || path.exists());
    }

    fn step(&self, file: &str) {
        fs::write(self.folder.path().join(file), "").expect("a file");
    }

    fn ctl(&self, arguments: &[&str]) -> Output {
        ctl(&self.pid().to_string(), arguments, self.folder.path())
    }

    fn says(&self, arguments: &[&str]) -> String {
        let out = self.ctl(arguments);
        assert!(out.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8_lossy(&out.stdout).into_owned()
    }

    fn fails(&self, arguments: &[&str]) -> String {
        let out = self.ctl(arguments);
        assert_eq!(out.status.code(), Some(2), "{arguments:?}: {}", String::from_utf8_lossy(&out.stdout));
        String::from_utf8_lossy(&out.stderr).into_owned()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let mut all = arguments.to_vec();
        all.push("--json");
        serde_json::from_str(&self.says(&all)).expect("JSON")
    }

    /// Lets it end; what it printed.
    fn ends(mut self) -> String {
        for file in ["step1", "step2", "step3"] {
            self.step(file);
        }
        let mut text = String::new();
        self.child.stdout.take().expect("a pipe").read_to_string(&mut text).expect("what it printed");
        let status = self.child.wait().expect("its end");
        assert!(status.success(), "{status}");
        crate::support::history::remove_spools(self.folder.path());
        assert!(!self.socket().exists(), "its socket stays");
        text
    }
}

fn ctl(pid: &str, arguments: &[&str], folder: &Path) -> Output {
    let mut c = Command::new(env!("CARGO_BIN_EXE_vramscope"));
    c.arg("ctl");
    if !pid.is_empty() {
        c.arg(pid);
    }
    c.args(arguments).current_dir(folder).output().expect("the command")
}

const MB: u64 = 1 << 20;

#[test]
fn everything_that_can_be_asked() {
    let p = Running::start(&program("steps"), Mode::Pooled);
    let about = fs::symlink_metadata(p.socket()).expect("the socket");
    assert!(about.file_type().is_socket());
    assert_eq!(about.permissions().mode() & 0o777, 0o600);

    let text = p.says(&[]);
    assert_eq!(text, p.says(&["stats"]));
    println!("{text}");
    for part in [
        "/ctl-driver steps\n",
        "history  ",
        "GPU 0  Simulated GPU, 1.00 GiB",
        "10.0 MiB  30.0 MiB at most",
        "20.0 MiB kept for reuse",
    ] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    let stats = p.json(&["stats"]);
    assert_eq!(stats["pid"], p.pid());
    let device = &stats["devices"][0];
    assert_eq!((device["allocated"].as_u64(), device["pool_inactive"].as_u64()), (Some(10 * MB), Some(20 * MB)));
    assert_eq!((stats["devices"].as_array().map(Vec::len), device["total"].as_u64()), (Some(1), Some(1 << 30)));

    let list = String::from_utf8_lossy(&ctl("", &[], p.folder.path()).stdout).into_owned();
    let line = list.lines().find(|l| l.trim_start().starts_with(&p.pid().to_string())).expect("it is listed");
    assert!(line.contains("10.0 MiB") && line.contains("30.0 MiB") && line.ends_with("/ctl-driver steps"), "{line}");
    let list: Value = serde_json::from_slice(&ctl("", &["--json"], p.folder.path()).stdout).expect("JSON");
    assert!(list.as_array().is_some_and(|l| l.iter().any(|a| a["pid"] == p.pid())));

    assert_eq!(p.says(&["trim"]), "20.0 MiB given back\n");
    assert_eq!(p.json(&["trim"])["bytes"], 0);
    assert!(p.says(&["stats"]).contains("30.0 MiB at most"));
    assert!(!p.says(&["reset-peak"]).contains("30.0 MiB"));

    assert_eq!(p.json(&["limit", "50MiB"])["devices"][0]["limit"], 50 * MB);
    p.step("step1");
    p.waits_for("done1");
    assert_eq!(p.json(&["limit", "0.5", "--device", "0"])["devices"][0]["limit"], 512 * MB);
    assert_eq!(p.json(&["limit", "25%"])["devices"][0]["limit"], 256 * MB);
    assert_eq!(p.json(&["limit", "0:128MiB"])["devices"][0]["limit"], 128 * MB);
    p.says(&["limit", "25%"]);
    p.step("step2");
    p.waits_for("done2");
    assert_eq!(p.json(&["limit", "none"])["devices"][0]["limit"], 0);
    assert_eq!(p.json(&["stats"])["devices"][0]["failures"], 1);
    assert!(p.says(&["stats"]).contains("1 call failed"));
    for wrong in ["much", "0", "0%", "150%", "1.5", "24", "0:1GiB,0:2GiB"] {
        assert!(p.fails(&["limit", wrong]).contains("allowed: 24GiB, 80%, 0.8 (a share), none; or"), "{wrong}");
    }
    assert!(p.fails(&["limit", "0:50%,1:50%"]).contains("one device at a time"));
    assert!(p.fails(&["limit", "7:50%"]).contains("does not use device 7"));
    assert!(p.fails(&["limit", "50%", "--device", "5"]).contains("does not use device 5"));

    let path = p.says(&["snapshot"]);
    let folder = p.folder.path().canonicalize().expect("the folder");
    assert_eq!(Path::new(path.trim()), folder.join(format!("vramscope-snapshot-{}.jsonl", p.pid())));
    let named = p.json(&["snapshot", "live.jsonl.zst"]);
    for path in [Path::new(path.trim()), Path::new(named["path"].as_str().expect("a path"))] {
        let report = Command::new(env!("CARGO_BIN_EXE_vramscope")).arg("report").arg(path).output().expect("a report");
        let text = String::from_utf8_lossy(&report.stdout);
        assert!(text.contains("LIVE  70.0 MiB active") && text.contains("a snapshot"), "{text}");
    }
    assert!(p.fails(&["snapshot", "no/such/folder"]).contains("No such file"));

    assert!(p.says(&["pause"]).ends_with("paused\n") && p.says(&[]).contains("paused:"));
    assert_eq!(p.json(&["resume"])["paused"], false);
    assert_eq!(p.ends(), "cuMemAlloc(&p, 60 * MB) = 2\ncuMemAlloc(&p, 60 * MB) = 0\n");
}

#[test]
fn under_the_launcher() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = program("steps").launched(&["--quiet", "--trace", "t.jsonl"]).command(Mode::Bare, folder.path());
    let mut launcher = command.stdout(Stdio::null()).spawn().expect("the launcher");
    within("ready", || folder.path().join("ready").exists());
    let list: Value = serde_json::from_slice(&ctl("", &["--json"], folder.path()).stdout).expect("JSON");
    let here = folder.path().join("t.jsonl").canonicalize().expect("the history");
    let mine = list.as_array().and_then(|l| l.iter().find(|a| a["trace"] == *here.to_string_lossy()));
    let pid = mine.expect("it is listed")["pid"].as_u64().expect("its number").to_string();
    assert!(!Path::new(&format!("/dev/shm/vramscope-ctl.{pid}")).exists(), "it is in the launcher's folder");
    assert!(ctl(&pid, &["stats"], folder.path()).status.success());
    for file in ["step1", "step2", "step3"] {
        fs::write(folder.path().join(file), "").expect("a file");
    }
    assert!(launcher.wait().expect("its end").success());
    assert!(!ctl(&pid, &["stats"], folder.path()).status.success());
}

/// Clients that say nothing, say nonsense, or leave: the next one is served, and the program ends as ever.
#[test]
fn clients_that_misbehave() {
    let p = Running::start(&program("steps"), Mode::Pooled);
    let answer = |question: &[u8]| {
        let mut stream = UnixStream::connect(p.socket()).expect("it listens");
        stream.write_all(question).expect("a question");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        serde_json::from_str::<Value>(&text).ok()
    };
    let error = |question: &str| answer(question.as_bytes()).expect("an answer")["error"].as_str().unwrap().to_owned();
    assert!(error("nonsense\n").contains("no JSON"));
    assert!(error("{\"version\":99,\"ask\":\"stats\"}\n").contains("version 1"));
    assert!(error("{\"version\":1,\"ask\":\"dance\"}\n").contains("'dance'"));
    assert!(error("{\"version\":1,\"ask\":\"limit\"}\n").contains("share from 0 to 1"));
    assert!(error("{\"version\":1,\"ask\":\"limit\",\"share\":7}\n").contains("share from 0 to 1"));
    for device in ["-4", "1.5", "\"0\"", "true", "4294967296", "18446744073709551615", "[0]"] {
        let question = format!("{{\"version\":1,\"ask\":\"limit\",\"bytes\":1,\"device\":{device}}}\n");
        assert_eq!(error(&question), format!("device {device} is no number of a device"));
    }
    let more = format!("{{\"version\":1,\"ask\":\"stats\",\"device\":null}}\nmore{}", "\n".repeat(9000));
    assert_eq!(answer(more.as_bytes()).expect("an answer")["ok"]["pid"], p.pid());
    let silent: Vec<UnixStream> = (0..3).map(|_| UnixStream::connect(p.socket()).expect("it listens")).collect();
    drop(UnixStream::connect(p.socket()).expect("it listens"));
    let mut half = UnixStream::connect(p.socket()).expect("it listens");
    half.write_all(b"{\"version\":1").expect("half a line");
    drop(half);
    let begun = Instant::now();
    assert!(p.says(&["stats"]).contains("10.0 MiB"));
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    drop(silent);
    let _stuck = UnixStream::connect(p.socket()).expect("it listens");
    p.ends();
}

/// With its queue full, it would be waited for as long as it is stopped.
#[test]
fn one_that_is_stopped() {
    let p = Running::start(&program("steps"), Mode::Pooled);
    let signal = |name: &str| {
        let status = Command::new("kill").args([name, &p.pid().to_string()]).status().expect("kill");
        assert!(status.success());
    };
    signal("-STOP");
    let clients: Vec<_> = (0..12)
        .map(|_| {
            let socket = p.socket();
            std::thread::spawn(move || UnixStream::connect(socket))
        })
        .collect();
    std::thread::sleep(Duration::from_millis(300));
    let begun = Instant::now();
    let why = p.fails(&["stats"]);
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert!(why.contains("took no connection within 2 s") && why.lines().count() == 1, "{why}");
    signal("-CONT");
    clients.into_iter().for_each(|c| drop(c.join().expect("a thread")));
    p.ends();
}

#[test]
fn a_killed_one_is_cleared_away() {
    let run = program("killed").unchecked().ends_badly().run(Mode::Pooled);
    let socket = PathBuf::from(format!("/dev/shm/vramscope-ctl.{}", run.pid));
    // (Another process that started meanwhile may have been faster.)
    let out = ctl(&run.pid.to_string(), &[], run.folder.path());
    assert_eq!(out.status.code(), Some(2));
    assert!(!socket.exists());
    let out = ctl(&run.pid.to_string(), &[], run.folder.path());
    assert!(String::from_utf8_lossy(&out.stderr).contains("does not listen"));
    let out = ctl("", &["trim"], run.folder.path());
    assert!(String::from_utf8_lossy(&out.stderr).contains("which process?"));
}

/// The child of a process that is gone has its parent's socket no more.
#[test]
fn a_forked_child_is_not_asked() {
    let mut p = Running::start(&program("forks"), Mode::Pooled);
    p.step("step2");
    assert!(p.child.wait().expect("its end").success());
    let begun = Instant::now();
    let why = p.fails(&["stats"]);
    assert!(why.contains("can't be asked") || why.contains("does not listen"), "{why}");
    assert!(begun.elapsed() < Duration::from_secs(5));
    p.step("step3");
    crate::support::history::remove_spools(p.folder.path());
}

#[test]
fn a_program_that_closes_everything() {
    let p = Running::start(&program("closes"), Mode::Pooled);
    // Whoever asks first may still be served by the call that was waiting.
    p.ctl(&["stats"]);
    p.ctl(&["stats"]);
    assert_eq!(p.ends(), "alive\n");
}

#[test]
fn another_program_under_the_same_number() {
    let p = Running::start(&program("execs"), Mode::Pooled);
    assert!(p.says(&["stats"]).contains("30.0 MiB"));
    p.ends();
}

#[test]
fn without_a_history_nobody_listens() {
    let p = Running::start(&program("steps").env("VRAMSCOPE_TRACE", "off"), Mode::Pooled);
    assert!(p.fails(&["stats"]).contains("records nothing"));
    p.ends();
}
