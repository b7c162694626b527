//! `vramscope recover`: finishes the histories of programs that were killed.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use vramscope_core::record::{Recovered, recover_trace};
use vramscope_core::trace::Line;
use vramscope_core::trace::read::{ReadError, ReadErrorKind, Reader, named_by, parts};

use super::spool::{self, Outcome, SpoolFile};
use super::{ctl, process, run_dir, say};
use crate::merge::find;
use crate::report::text::{bytes, clean, count, plural};

/// Finishes histories.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A history, or a folder with spools (/dev/shm/vramscope.* of a run, or /dev/shm itself)
    #[arg(value_name = "FOLDER|TRACE")]
    pub path: PathBuf,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<ExitCode> {
    match std::fs::metadata(&args.path) {
        Ok(metadata) if metadata.is_dir() => folder(&args.path),
        // Killed between the two steps of a rotation the older part is there alone, killed before the first line only a spool.
        Err(e) if parts(&args.path) == [args.path.as_path()] && by_trace(&args.path).is_none() => {
            Err(e).context(args.path.display().to_string())
        }
        _ => trace(&args.path),
    }
}

fn folder(path: &Path) -> Result<ExitCode> {
    // Also the folders of runs in it.
    let mut folders = run_dir::in_folder(path);
    folders.insert(0, path.to_path_buf());
    let mut found = false;
    let mut code = 0;
    for folder in &folders {
        let files = match spool::in_folder(folder) {
            Ok(files) => files,
            // A run that has ended meanwhile took its own away; another user's is not ours to look into.
            Err(_) if folder != path => continue,
            Err(e) => return Err(e).context(folder.display().to_string()),
        };
        if let Some(launcher) = run_dir::living_launcher(folder) {
            if !files.is_empty() {
                found = true;
                say::print(&format!("{}: {}\n", folder.display(), launchers(launcher)))?;
            }
            continue;
        }
        for file in files {
            found = true;
            match SpoolFile::read(&file).and_then(|s| s.finish(|_| None, "recover")) {
                Ok(outcome) => {
                    // Who still writes is not what was asked for.
                    code = code.max(if matches!(outcome, Outcome::Alive(_)) { 0 } else { found_something(&outcome) });
                    say::print(&format!("{}\n", told(&file, &outcome)))?;
                }
                Err(e) => {
                    code = 2;
                    say::line(&format!("{e:#}; {} stays", file.display()));
                }
            }
        }
        if run_dir::launcher(folder).is_some() {
            remove_run_dir(folder);
        }
    }
    ctl::clear(path);
    for history in unfinished(path) {
        (found, code) = (true, code.max(1));
        let history = clean(&history.display().to_string());
        say::print(&format!("{history}: is not finished: vramscope recover {history}\n"))?;
    }
    if !found {
        say::print(&format!("{}: no spools, nothing to recover\n", path.display()))?;
    }
    Ok(ExitCode::from(code))
}

/// The histories in a folder that nobody finished and whose program is gone. (Their spools may lie elsewhere, and files that only
/// came here, with another host's program still running, must not be written into unasked.)
fn unfinished(folder: &Path) -> Vec<PathBuf> {
    let is_open = |path: &PathBuf| {
        let Ok(mut lines) = Reader::open(path) else { return false };
        let h = lines.header();
        let lives = process::ran_at(h.pid, h.start_seconds, &h.host);
        let ends = |line: Line| line.exits() || matches!(line, Line::Footer(_));
        !lives && !lines.any(ends)
    };
    let mut found = find::in_folder(folder).unwrap_or_default();
    found.retain(is_open);
    found
}

/// The exit code for what became of a history: 0 if it is whole, or ends where its program was killed; 1 if it is not.
fn found_something(outcome: &Outcome) -> u8 {
    u8::from(match outcome {
        Outcome::Finished(r) => r.is_incomplete(),
        Outcome::Alive(_) => true,
        Outcome::Stream { stopped, .. } => *stopped,
        Outcome::Empty => false,
    })
}

/// Removes the folder of a run whose launcher is gone, if no spool is left in it. It has nothing else in it, but for a
/// link to the library, and the control sockets of killed processes.
fn remove_run_dir(folder: &Path) {
    if spool::in_folder(folder).is_ok_and(|left| left.is_empty()) {
        let _ = std::fs::remove_file(folder.join(super::preload::LIBRARY));
        ctl::in_folder(folder).iter().for_each(|(_, socket)| drop(std::fs::remove_file(socket)));
        let _ = std::fs::remove_dir(folder);
    }
}

fn launchers(pid: u32) -> String {
    format!("left alone, its vramscope run (process {pid}) goes on and finishes what is in it")
}

fn trace(path: &Path) -> Result<ExitCode> {
    let header = Reader::open(path).map(|r| r.header().clone());
    let spool = match &header {
        Ok(header) => SpoolFile::of(header),
        // Killed before its first line was whole: only the spools' names help.
        Err(e) if matches!(e.kind, ReadErrorKind::OlderPart(_)) => None,
        Err(_) => by_trace(path),
    };
    if let Some(newer) = spool.as_ref().and_then(|s| part_of(path, s)) {
        bail!("{}: is a part of {newer}: give {newer}", path.display(), newer = newer.display());
    }
    let Some(spool) = spool else {
        let header = match header {
            Ok(header) => header,
            Err(e) => bail!("{e}"),
        };
        if process::ran_at(header.pid, header.start_seconds, &header.host) {
            return say(path, &Outcome::Alive(header.pid));
        }
        let done = match recover_trace(path, None, "recover") {
            Err(e) if has_no_end(&e) => {
                say::line(&e.to_string());
                return Ok(ExitCode::FAILURE);
            }
            done => done.map_err(|e| named(path, e))?,
        };
        ctl::clear_of(header.pid);
        return say(path, &Outcome::Finished(done));
    };
    if let Some(launcher) = spool.path().parent().and_then(run_dir::living_launcher) {
        say::print(&format!("{}: {}\n", path.display(), launchers(launcher)))?;
        return Ok(ExitCode::FAILURE);
    }
    let pid = spool.pid()?;
    let folder = spool.path().parent().filter(|f| run_dir::launcher(f).is_some()).map(Path::to_path_buf);
    let outcome = match spool.alive()? {
        true => Outcome::Alive(pid),
        // The history may have been moved since.
        false if spool.trace()? != std::path::absolute(path)? => {
            Outcome::Finished(spool.finish_in(path, None, "recover")?)
        }
        false => spool.finish(|_| None, "recover")?,
    };
    if let Some(folder) = folder {
        remove_run_dir(&folder);
    }
    if !matches!(outcome, Outcome::Alive(_)) {
        ctl::clear_of(pid);
    }
    say(path, &outcome)
}

/// Whether nothing is left of a history but an older part, which can be read.
fn has_no_end(e: &std::io::Error) -> bool {
    let e = e.get_ref().and_then(|e| e.downcast_ref::<ReadError>());
    e.is_some_and(|e| matches!(e.kind, ReadErrorKind::NoEnd(_)))
}

/// An error with the name of its file, which some tell themselves.
pub fn named(path: &Path, e: std::io::Error) -> anyhow::Error {
    let name = path.display().to_string();
    match e.to_string().starts_with(&name) {
        true => e.into(),
        false => anyhow::Error::from(e).context(name),
    }
}

/// The history of which this file is the older part: the next one was not begun before its program was killed.
pub fn part_of(path: &Path, spool: &SpoolFile) -> Option<PathBuf> {
    let newer = named_by(&std::path::absolute(path).ok()?)?;
    (spool.trace().ok()? == newer).then_some(newer)
}

fn say(path: &Path, outcome: &Outcome) -> Result<ExitCode> {
    say::print(&format!("{}\n", told(path, outcome)))?;
    Ok(ExitCode::from(found_something(outcome)))
}

/// The spool in /dev/shm of a history that does not say where its spool is: it was cut too early.
pub fn by_trace(path: &Path) -> Option<SpoolFile> {
    let path = std::path::absolute(path).ok()?;
    let mut folders = run_dir::in_folder(Path::new("/dev/shm"));
    folders.push("/dev/shm".into());
    let mut spools =
        folders.iter().filter_map(|f| spool::in_folder(f).ok()).flatten().filter_map(|f| SpoolFile::read(&f).ok());
    spools.find(|s| s.trace().is_ok_and(|t| t == path))
}

fn told(file: &Path, outcome: &Outcome) -> String {
    match outcome {
        Outcome::Finished(r) => finished(r),
        Outcome::Alive(pid) => format!("{}: process {pid} still runs, left alone", file.display()),
        Outcome::Stream { to, stopped } => {
            let all = if *stopped { "recording ended early, and not all of the history" } else { "the history" };
            format!("{}: {all} went to {}, which is no file", file.display(), to.display())
        }
        Outcome::Empty => format!("{}: held nothing", file.display()),
    }
}

fn finished(r: &Recovered) -> String {
    let path = r.path.display();
    let damage =
        r.damage.as_ref().map_or(String::new(), |d| format!("; it is damaged, which cannot be mended: {}", clean(d)));
    if r.was_whole {
        let has = match r.footer.end.as_str() {
            _ if r.damage.is_some() => "has its last line",
            "cut" => "was finished before, without its end",
            _ => "is whole",
        };
        return format!("{path}: {has}, {}{damage}", plural(r.footer.events, "event"));
    }
    let mut text = format!("{path}: finished, {} added to {}", plural(r.events_added, "event"), count(r.events_before));
    if r.bytes_cut > 0 {
        text += &format!(", {} of a cut line taken away", bytes(r.bytes_cut));
    }
    if r.footer.lost > 0 {
        text += &format!(", {} lost", plural(r.footer.lost, "event"));
    }
    if r.slots_damaged > 0 {
        text += &format!(", {} of the spool unreadable", plural(r.slots_damaged, "slot"));
    }
    text + match r.footer.end.as_str() {
        "exit" => "; the program had ended in good order",
        "killed" => "; the program was killed",
        "stopped" => "; recording had ended early",
        "cut" => "; its end is lost (there is no spool), and how the program ended is not known",
        _ => "",
    } + &damage
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::run_dir::RunDir;
    use crate::cli::spool::tests::{DEAD, unwritten};
    use vramscope_core::trace::Header;

    #[test]
    fn a_folder_and_then_the_trace_again() {
        let outside = tempfile::tempdir().unwrap();
        let run_dir = outside.path().join(format!("vramscope.{DEAD}.00000000"));
        std::fs::create_dir(&run_dir).unwrap();
        let (spool, in_run) = unwritten(&run_dir, DEAD);
        drop(std::os::unix::net::UnixListener::bind(run_dir.join("ctl.7")).unwrap());
        let args = Args { path: outside.path().to_path_buf() };
        run(&args).unwrap();
        assert!(!spool.exists() && !run_dir.join("ctl.7").exists());
        let first = std::fs::read(&in_run).unwrap();
        run(&Args { path: in_run.clone() }).unwrap();
        assert_eq!(std::fs::read(&in_run).unwrap(), first);
    }

    #[test]
    fn what_a_living_launcher_works_on_is_left_alone() {
        let outside = tempfile::tempdir().unwrap();
        let living = RunDir::create_in([outside.path().to_path_buf()]).unwrap();
        let (spool, trace) = unwritten(living.path(), DEAD);
        std::fs::write(&trace, SpoolFile::read(&spool).unwrap().header_line().unwrap()).unwrap();
        for path in [outside.path(), living.path(), &trace] {
            run(&Args { path: path.to_path_buf() }).unwrap();
            assert!(spool.exists(), "{}", path.display());
        }
        assert!(spool::in_folder(living.path()).is_ok_and(|s| s.len() == 1));
    }

    #[test]
    fn the_history_of_a_living_process_stays_although_its_spool_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.jsonl");
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        let mut header = Header {
            format: vramscope_core::trace::FORMAT.into(),
            version: vramscope_core::trace::VERSION,
            pid: std::process::id(),
            start_seconds: now,
            host: std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim().into(),
            spool: "/nowhere/spool.1.1".into(),
            ..Header::default()
        };
        let lines = |header: &Header| {
            let mut text = Vec::new();
            vramscope_core::trace::write::line(&mut text, &Line::Header(header.clone()));
            std::fs::write(&path, &text).unwrap();
            run(&Args { path: path.clone() }).unwrap();
            std::fs::read_to_string(&path).unwrap().lines().count()
        };
        assert_eq!(lines(&header), 1);
        header.pid = DEAD;
        assert_eq!(lines(&header), 2, "a dead one's gets its last line");
    }

    #[test]
    fn a_folder_names_what_nobody_finished() {
        let folder = tempfile::tempdir().unwrap();
        let runs = tempfile::tempdir().unwrap();
        let process = DEAD - 7;
        let (spool, trace) = unwritten(runs.path(), process);
        let open = folder.path().join("open.jsonl");
        std::fs::write(&open, SpoolFile::read(&spool).unwrap().header_line().unwrap()).unwrap();
        std::fs::write(folder.path().join("other.jsonl"), "{}\n").unwrap();
        assert_eq!(unfinished(folder.path()), std::slice::from_ref(&open));
        let socket = Path::new(vramscope_core::ctl::FOLDER).join(format!("vramscope-ctl.{process}"));
        drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
        run(&Args { path: open.clone() }).unwrap();
        assert!(unfinished(folder.path()).is_empty() && !socket.exists(), "nor is its socket left");
        // Nor where the spool was gone before.
        std::fs::remove_file(&spool).unwrap();
        drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
        run(&Args { path: open.clone() }).unwrap();
        assert!(!socket.exists());
        assert!(!trace.exists());
    }

    #[test]
    fn what_cannot_be_recovered_is_said() {
        let outside = tempfile::tempdir().unwrap();
        let e = run(&Args { path: outside.path().join("none") }).unwrap_err();
        assert!(format!("{e:#}").contains("none: No such file"), "{e:#}");
        let empty = outside.path().join("empty.jsonl");
        std::fs::write(&empty, "").unwrap();
        let e = run(&Args { path: empty }).unwrap_err();
        assert!(format!("{e:#}").contains("line 1"), "{e:#}");
    }

    #[test]
    fn what_is_told() {
        let mut r = Recovered {
            path: "t.jsonl".into(),
            events_before: 1200,
            events_added: 1,
            bytes_cut: 40,
            ..Recovered::default()
        };
        r.footer.end = "killed".into();
        r.footer.lost = 2;
        assert_eq!(
            finished(&r),
            "t.jsonl: finished, 1 event added to 1,200, 40 B of a cut line taken away, 2 events lost; the program was killed"
        );
        r.footer.end = "cut".into();
        assert!(finished(&r).ends_with("its end is lost (there is no spool), and how the program ended is not known"));
        (r.was_whole, r.damage) = (true, Some("t.jsonl: line 7: no JSON".into()));
        let text = finished(&r);
        assert!(!text.contains("whole") && text.ends_with("cannot be mended: t.jsonl: line 7: no JSON"), "{text}");
        assert_eq!(told(Path::new("spool.7.1"), &Outcome::Alive(7)), "spool.7.1: process 7 still runs, left alone");
    }
}
