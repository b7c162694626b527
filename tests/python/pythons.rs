//! The Python interpreters of the machine, and a test run once for each of them.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::support::build::root;
use crate::support::{Mode, Program, Run};

/// The minor versions of Python 3 whose frames are read.
const MINORS: std::ops::RangeInclusive<u32> = 9..=14;

/// The names that interpreters may have: older, newer and free-threaded ones too, whose frames are not read.
const NAMES: [&str; 11] = ["6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "14t"];

/// An interpreter.
#[derive(Clone, Debug)]
pub struct Python {
    /// Its program, no link.
    pub path: PathBuf,
    /// 9 for Python 3.9.
    pub minor: u32,
    /// As `3.11.2`, and how it was built.
    pub name: String,
    /// Where it lives (`sys.prefix`).
    pub prefix: PathBuf,
    /// Its library, if it has a shared one.
    pub library: Option<PathBuf>,
    /// Whether `greenlet` can be imported.
    pub greenlet: bool,
    /// Whether its frames are read: it is of one of the versions, and has a GIL.
    pub is_known: bool,
}

const ASK: &str = "import sys, os, sysconfig as c, importlib.util as u
lib = os.path.join(c.get_config_var('LIBDIR') or '', c.get_config_var('INSTSONAME') or '')
shared = ('libpython3.%d.so' % sys.version_info[1]).encode() in open(sys.executable, 'rb').read()
print(os.path.realpath(sys.executable), sys.version_info[1], sys.version.split()[0], 'shared' if shared else 'static',
      sys.prefix, lib if '.so' in lib else '', u.find_spec('greenlet') is not None,
      bool(c.get_config_var('Py_GIL_DISABLED')), sep='\\n')";

/// What one says of itself.
fn ask(path: &Path) -> Option<Python> {
    let out = Command::new(path).arg("-c").arg(ASK).env_remove("LD_PRELOAD").output().ok()?;
    let text = String::from_utf8(out.stdout).ok()?;
    let words: Vec<&str> = text.lines().collect();
    let &[path, minor, version, kind, prefix, library, greenlet, no_gil] = words.as_slice() else { return None };
    let (minor, no_gil) = (minor.parse().ok()?, no_gil != "False");
    let library = Some(PathBuf::from(library)).filter(|p| p.is_file());
    Some(Python {
        path: path.into(),
        minor,
        name: format!("{version} ({kind}{})", if no_gil { ", free-threaded" } else { "" }),
        prefix: prefix.into(),
        library,
        greenlet: greenlet == "True",
        is_known: MINORS.contains(&minor) && !no_gil,
    })
}

/// Where interpreters may lie.
fn candidates() -> Vec<PathBuf> {
    if let Some(list) = env::var_os("VRAMSCOPE_TEST_PYTHONS") {
        return env::split_paths(&list).collect();
    }
    let mut all = Vec::new();
    for folder in env::split_paths(&env::var_os("PATH").unwrap_or_default()) {
        all.extend(NAMES.map(|m| folder.join(format!("python3.{m}"))));
    }
    let pyenv = env::var_os("PYENV_ROOT").map(PathBuf::from);
    let pyenv = pyenv.or_else(|| env::var_os("HOME").map(|h| Path::new(&h).join(".pyenv")));
    let versions = pyenv.and_then(|p| fs::read_dir(p.join("versions")).ok()).into_iter().flatten().flatten();
    let mut versions: Vec<PathBuf> = versions.map(|v| v.path()).collect();
    versions.sort();
    for version in versions {
        all.extend(NAMES.map(|m| version.join(format!("bin/python3.{m}"))));
    }
    all.push("/usr/bin/python3".into());
    all
}

/// All of them, oldest first.
fn found() -> &'static [Python] {
    static FOUND: OnceLock<Vec<Python>> = OnceLock::new();
    FOUND.get_or_init(|| {
        let mut found: BTreeMap<PathBuf, Python> = BTreeMap::new();
        for path in candidates().iter().filter(|p| p.is_file()) {
            // (pyenv's shims are scripts that may answer for another version, or for none.)
            if let Some(python) = ask(path) {
                found.insert(python.path.clone(), python);
            }
        }
        let mut found: Vec<Python> = found.into_values().collect();
        found.sort_by(|a, b| (a.minor, &a.name).cmp(&(b.minor, &b.name)));
        found
    })
}

/// Those whose frames are read. At least one must be there.
pub fn known() -> Vec<&'static Python> {
    let known: Vec<&Python> = found().iter().filter(|p| p.is_known).collect();
    assert!(!known.is_empty(), "no Python 3.9 to 3.14 was found: put one into VRAMSCOPE_TEST_PYTHONS");
    known
}

/// The others.
pub fn strangers() -> Vec<&'static Python> {
    found().iter().filter(|p| !p.is_known).collect()
}

impl Python {
    /// This interpreter with the environment that every test wants.
    pub fn bare(&self) -> Program {
        self.environment(Program::at(&self.path))
    }

    /// The environment, for any program that runs this interpreter.
    pub fn environment(&self, program: Program) -> Program {
        let mut path = programs().into_os_string();
        if let Some(more) = env::var_os("PYTHONPATH") {
            path.push(":");
            path.push(more);
        }
        program
            .env("PYTHONPATH", path)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("PYTHONHASHSEED", "0")
            // (Warnings name files, whose folder may be called vramscope.)
            .env("PYTHONWARNINGS", "ignore")
            .env("PYTHONIOENCODING", "utf-8")
    }

    /// A script of `tests/programs/python`.
    pub fn script(&self, name: &str) -> Program {
        self.bare().arg(programs().join(name))
    }
}

/// The folder of the Python programs.
pub fn programs() -> PathBuf {
    root().join("tests/programs/python")
}

/// What was compared, for one test and one interpreter.
#[derive(Debug, Default)]
pub struct Tally {
    /// Stacks that were compared.
    pub checks: usize,
    /// Those that differ, in words.
    pub wrong: Vec<String>,
    /// What could not be run, and why.
    pub not_run: Vec<String>,
}

impl Tally {
    /// Counts a check.
    pub fn check(&mut self, right: bool, say: impl FnOnce() -> String) {
        self.checks += 1;
        if !right {
            self.wrong.push(say());
        }
    }
}

/// Runs a test with every interpreter whose frames are read.
pub fn each(test: &str, body: impl Fn(&Python, &mut Tally)) {
    let pythons = known();
    for minor in MINORS.filter(|m| pythons.iter().all(|p| p.minor != *m)) {
        println!("{test}: Python 3.{minor}: not run: there is none");
    }
    with(test, &pythons, body);
}

/// Runs a test with each of these and fails at the end, so that one does not hide another.
pub fn with(test: &str, pythons: &[&Python], body: impl Fn(&Python, &mut Tally)) {
    let mut failed = Vec::new();
    for python in pythons {
        let mut tally = Tally::default();
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| body(python, &mut tally))) {
            let said = panic.downcast_ref::<String>().map(String::as_str);
            tally.wrong.push(said.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic").to_owned());
        }
        println!("{test}: Python {}: {} checks, {} mismatches", python.name, tally.checks, tally.wrong.len());
        tally.not_run.iter().for_each(|n| println!("{test}: Python {}: not run: {n}", python.name));
        if !tally.wrong.is_empty() {
            let some: Vec<&str> = tally.wrong.iter().take(4).map(String::as_str).collect();
            failed.push(format!("Python {}: {} wrong:\n{}", python.name, tally.wrong.len(), some.join("\n")));
        }
    }
    assert!(failed.is_empty(), "{test}:\n{}", failed.join("\n"));
}

/// Runs a program bare, recording and pooled; it must print and end the same, and well. The two runs that have a history.
pub fn three_ways(program: &Program) -> Vec<Run> {
    let mut runs = program.same(Mode::ALL);
    runs.remove(0).assert_success();
    runs
}
