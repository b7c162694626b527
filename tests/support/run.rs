//! Runs a program in a folder of its own, bare or under the library, with a limit of time.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;

use super::build::{Link, program, programs_dir, simgpu, vramscope_library};
use super::history::{self, History};

/// How a program is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Without the library.
    Bare,
    /// `VRAMSCOPE_POOL=off`.
    Recording,
    /// As by default.
    Pooled,
    /// `VRAMSCOPE_SYNC=device`.
    Device,
    /// `VRAMSCOPE_SYNC=host`.
    Host,
    /// `VRAMSCOPE_POOL=on`: stream-ordered memory is served, too.
    Ordered,
}

impl Mode {
    /// The modes of every program: what it does bare must be what it does recording and pooled.
    pub const ALL: &[Mode] = &[Mode::Recording, Mode::Pooled];
    /// The modes in which the host sees what it sees bare.
    pub const SYNC: &[Mode] = &[Mode::Recording, Mode::Pooled, Mode::Host];
    /// For programs whose order is the device's alone.
    pub const ORDER: &[Mode] = &[Mode::Recording, Mode::Pooled, Mode::Device, Mode::Host];

    /// For programs with stream-ordered memory.
    pub const ORDERED: &[Mode] = &[Mode::Recording, Mode::Ordered];

    fn settings(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Mode::Bare | Mode::Pooled => &[],
            Mode::Recording => &[("VRAMSCOPE_POOL", "off")],
            Mode::Device => &[("VRAMSCOPE_SYNC", "device")],
            Mode::Host => &[("VRAMSCOPE_SYNC", "host")],
            Mode::Ordered => &[("VRAMSCOPE_POOL", "on")],
        }
    }
}

/// A program and how it is to be run.
#[derive(Clone, Debug)]
pub struct Program {
    path: PathBuf,
    arguments: Vec<OsString>,
    variables: BTreeMap<OsString, OsString>,
    hooked: bool,
    quiet: bool,
    ends_well: bool,
    check: bool,
    limit: Duration,
    library: Option<OsString>,
}

impl Program {
    /// A program of `tests/programs`.
    pub fn new(name: &str, link: Link) -> Program {
        Program::at(&program(name, link))
    }

    /// Any program.
    pub fn at(path: &Path) -> Program {
        Program {
            path: path.to_owned(),
            arguments: Vec::new(),
            variables: BTreeMap::new(),
            hooked: true,
            quiet: true,
            ends_well: true,
            check: true,
            limit: Duration::from_secs(120),
            library: None,
        }
    }

    /// One more argument.
    pub fn arg(mut self, a: impl AsRef<OsStr>) -> Program {
        self.arguments.push(a.as_ref().to_owned());
        self
    }

    /// A variable of its environment.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Program {
        self.variables.insert(name.into(), value.as_ref().to_owned());
        self
    }

    /// The program asks for no GPU memory, or is not to be touched: no history is expected.
    pub fn unhooked(mut self) -> Program {
        self.hooked = false;
        self
    }

    /// The library has something to say.
    pub fn talks(mut self) -> Program {
        self.quiet = false;
        self
    }

    /// The program's exit handlers do not run: the spool stays for `recover`.
    pub fn ends_badly(mut self) -> Program {
        self.ends_well = false;
        self
    }

    /// The history is damaged on purpose, or not a file.
    pub fn unchecked(mut self) -> Program {
        self.check = false;
        self
    }

    /// What `LD_PRELOAD` holds, in place of the library's path.
    pub fn preload(mut self, value: impl AsRef<OsStr>) -> Program {
        self.library = Some(value.as_ref().to_owned());
        self
    }

    /// The same program under `vramscope run` with these flags. To be run bare: the command sees to the rest.
    pub fn launched(&self, flags: &[&str]) -> Program {
        let mut p =
            Program::at(Path::new(env!("CARGO_BIN_EXE_vramscope"))).arg("run").arg("--lib").arg(vramscope_library());
        p = flags.iter().fold(p, |p, flag| p.arg(flag)).arg("--").arg(&self.path);
        p.arguments.extend(self.arguments.iter().cloned());
        p.variables.clone_from(&self.variables);
        p
    }

    /// The command that runs it in a mode, in a folder.
    pub fn command(&self, mode: Mode, folder: &Path) -> Command {
        let mut c = Command::new(&self.path);
        c.args(&self.arguments).current_dir(folder).stdin(Stdio::null());
        for (name, _) in std::env::vars_os() {
            let n = name.to_string_lossy();
            if n.starts_with("VRAMSCOPE") || n.starts_with("SIMGPU") || n == "LD_PRELOAD" {
                c.env_remove(&name);
            }
        }
        let mut libraries = simgpu().as_os_str().to_owned();
        libraries.push(":");
        libraries.push(programs_dir());
        c.env("LD_LIBRARY_PATH", libraries);
        if mode != Mode::Bare {
            c.env("LD_PRELOAD", self.library.as_deref().unwrap_or(vramscope_library().as_os_str()));
            c.env("VRAMSCOPE_TRACE", folder.join("%n-%p.jsonl"));
            c.envs(mode.settings().iter().copied());
        }
        c.envs(&self.variables);
        c
    }

    /// Runs it.
    pub fn run(&self, mode: Mode) -> Run {
        let folder = tempfile::Builder::new().prefix("vramscope-test.").tempdir().expect("a folder");
        let mut command = self.command(mode, folder.path());
        let (out, err) = (folder.path().join("stdout"), folder.path().join("stderr"));
        command.stdout(File::create(&out).expect("stdout")).stderr(File::create(&err).expect("stderr"));
        // A group of its own, so that a hang takes its children with it.
        command.process_group(0);
        let mut child = command.spawn().unwrap_or_else(|e| panic!("{}: {e}", self.path.display()));
        let pid = child.id();
        let begun = Instant::now();
        let status = loop {
            match child.try_wait().expect("wait") {
                Some(status) => break status,
                None if begun.elapsed() > self.limit => {
                    if let Some(group) = Pid::from_raw(pid as i32) {
                        let _ = kill_process_group(group, Signal::KILL);
                    }
                    let _ = child.wait();
                    let said = fs::read_to_string(&out).unwrap_or_default();
                    panic!("{} hangs {mode:?}; it said:\n{said}", self.name());
                }
                None => std::thread::sleep(Duration::from_millis(2)),
            }
        };
        let text = |p: &Path| String::from_utf8_lossy(&fs::read(p).unwrap_or_default()).into_owned();
        let run = Run { name: self.name(), mode, pid, status, stdout: text(&out), stderr: text(&err), folder };
        self.examine(&run);
        run
    }

    /// The program and its arguments.
    pub fn name(&self) -> String {
        let file = self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        self.arguments.iter().fold(file, |s, a| s + " " + &a.to_string_lossy())
    }

    fn examine(&self, run: &Run) {
        if run.mode == Mode::Bare {
            return;
        }
        if self.quiet {
            let said: Vec<&str> = unexplained(&run.stderr).filter(|l| l.contains("vramscope")).collect();
            assert!(said.is_empty(), "{run} says {said:?}");
        }
        if !self.check {
            return;
        }
        let histories = run.histories();
        for h in &histories {
            h.check();
        }
        if self.hooked {
            let mine = histories.iter().any(|h| h.header().pid == run.pid && h.allocations() > 0);
            assert!(
                mine,
                "{run}: the hooks were not active: no history of process {} with an allocation\n{}",
                run.pid, run.stderr
            );
        }
        let left = run.remove_spools();
        assert!(
            !self.ends_well || left.is_empty(),
            "{run} left {left:?}; it ended with {}\n{}{}",
            run.status,
            run.stdout,
            run.stderr
        );
    }

    /// Runs it bare and in these modes; what it prints and how it ends must be the same. Returns the runs, the bare one first.
    pub fn same(&self, modes: &[Mode]) -> Vec<Run> {
        let bare = self.run(Mode::Bare);
        let mut runs = vec![bare];
        for mode in modes {
            let run = self.run(*mode);
            run.assert_same(&runs[0]);
            runs.push(run);
        }
        runs
    }
}

/// What was said on stderr but for explanations of out-of-memory, which every program gets that runs into it.
fn unexplained(stderr: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    stderr.lines().filter(move |l| {
        inside = l.starts_with("vramscope: OUT OF MEMORY") || inside && l.starts_with("  ");
        !inside
    })
}

/// A program of `tests/programs` with a case, run bare and in these modes, once for every way of linking.
pub fn same_in(name: &str, case: &str, links: &[Link], modes: &[Mode]) {
    for link in links {
        let runs = Program::new(name, *link).arg(case).same(modes);
        runs[0].assert_success();
    }
}

/// What a run left.
#[derive(Debug)]
pub struct Run {
    /// The program and its arguments.
    pub name: String,
    /// How it was run.
    pub mode: Mode,
    /// Its process.
    pub pid: u32,
    /// How it ended.
    pub status: ExitStatus,
    /// What it printed.
    pub stdout: String,
    /// What it complained.
    pub stderr: String,
    /// Its folder, removed with this.
    pub folder: TempDir,
}

impl std::fmt::Display for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({:?})", self.name, self.mode)
    }
}

impl Run {
    /// It must have printed and ended as the other.
    pub fn assert_same(&self, bare: &Run) {
        let show = |r: &Run| format!("---- {r}, {}\n{}{}", r.status, r.stdout, r.stderr);
        assert!(
            self.stdout == bare.stdout && self.status.into_raw() == bare.status.into_raw(),
            "{self} differs:\n{}\n{}",
            show(bare),
            show(self)
        );
    }

    /// It must have printed as the other.
    pub fn assert_same_output(&self, other: &Run) {
        assert_eq!(self.stdout, other.stdout, "{self} prints something else than {other}");
    }

    /// It must have ended with 0. (A program that fails bare as well proves nothing.)
    pub fn assert_success(&self) -> &Run {
        assert!(self.status.success(), "{self} ended with {}\n{}{}", self.status, self.stdout, self.stderr);
        self
    }

    /// Paths of its histories.
    pub fn traces(&self) -> Vec<PathBuf> {
        let mut all: Vec<PathBuf> = fs::read_dir(self.folder.path())
            .expect("the run's folder")
            .flatten()
            .map(|e| e.path())
            .filter(|p| {
                let n = p.file_name().unwrap_or_default().to_string_lossy().into_owned();
                // (The older part of a rotated history ends in .1 and is read with it.)
                n.ends_with(".jsonl") || n.ends_with(".jsonl.zst")
            })
            .collect();
        all.sort();
        all
    }

    /// Its histories, one a process (or more, after exec).
    pub fn histories(&self) -> Vec<History> {
        self.traces().iter().map(|p| History::read(p)).collect()
    }

    /// The history of the program itself.
    pub fn history(&self) -> History {
        let mut mine = self.histories();
        mine.retain(|h| h.header().pid == self.pid);
        assert_eq!(mine.len(), 1, "{self}: histories of process {}: {:?}", self.pid, self.traces());
        mine.remove(0)
    }

    /// Finishes its histories with the spools that it left; those whose program ended in good order are whole already.
    pub fn recovered(&self) -> Vec<History> {
        history::spools_of(self.pid, self.folder.path()).iter().map(|spool| history::recover(spool)).collect()
    }

    /// Removes the spools that it left in /dev/shm and says which: a program that ends in good order leaves none.
    pub fn remove_spools(&self) -> Vec<PathBuf> {
        let mut left = history::remove_spools(self.folder.path());
        // The control socket of one that was killed.
        let _ = fs::remove_file(format!("/dev/shm/vramscope-ctl.{}", self.pid));
        // Those of histories that went elsewhere.
        left.extend(
            history::spools_of(self.pid, self.folder.path()).into_iter().filter(|spool| fs::remove_file(spool).is_ok()),
        );
        left
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.remove_spools();
    }
}
