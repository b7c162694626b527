//! `vramscope ctl`: asks a running process what is in use, and tells it to trim, to limit itself, to write a snapshot.
//!
//! A process listens on a socket in its launcher's folder, or in /dev/shm; only its own user and root can ask.

use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use serde_json::{Value, json};
use vramscope_core::ctl;
use vramscope_core::limit::{self, Limit};

use super::{run_dir, say};
use crate::report::text::{bytes, clean, clip, count, plural};

/// How long a process may take to let us connect: one that is stopped never does.
const CONNECTS: Duration = Duration::from_secs(2);
/// How long an answer may take: a trim waits for the GPU, as any free of the driver's does.
const ANSWERS: Duration = Duration::from_secs(30);
/// The same where all are listed.
const LISTED: Duration = Duration::from_secs(5);

/// Columns for a program and its arguments.
const COMMAND: usize = 80;

/// Asks a running process.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The process; without it, those that can be asked are listed
    pub pid: Option<u32>,
    /// Print the answer as JSON
    #[arg(long, global = true)]
    pub json: bool,
    /// What is asked [default: stats]
    #[command(subcommand)]
    pub ask: Option<Ask>,
}

/// What can be asked.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum Ask {
    /// What is in use, by device
    Stats,
    /// Write everything that is live now as a history, for vramscope report
    Snapshot {
        /// The file [default: vramscope-snapshot-PID.jsonl]
        path: Option<PathBuf>,
    },
    /// Give the pool's cached memory back to the device
    Trim,
    /// Let the process have no more of a device than so much
    Limit {
        /// 24GiB, 80%, 0.8, or none; 0:24GiB is that of device 0
        limit: String,
        /// Number of the device [default: each that the process uses]
        #[arg(long)]
        device: Option<u32>,
    },
    /// Start the peaks anew
    ResetPeak {
        /// Number of the device [default: each that the process uses]
        #[arg(long)]
        device: Option<u32>,
    },
    /// Record no call stacks, tensors, marks and regions
    Pause,
    /// Record them again
    Resume,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<ExitCode> {
    let Some(pid) = args.pid else {
        if args.ask.is_some() {
            bail!("which process? vramscope ctl lists those that can be asked");
        }
        return list(args.json);
    };
    let ask = args.ask.as_ref().unwrap_or(&Ask::Stats);
    let question = question(pid, ask)?;
    let sockets: Vec<PathBuf> = sockets().into_iter().filter(|(p, _)| *p == pid).map(|(_, path)| path).collect();
    let mut failed = None;
    for socket in &sockets {
        match talk(socket, &question, ANSWERS) {
            Ok(answer) => {
                let answer = told(&answer).with_context(|| format!("process {pid}"))?;
                let text = if args.json { format!("{answer}\n") } else { shown(ask, &answer) };
                say::print(&text)?;
                return Ok(ExitCode::SUCCESS);
            }
            Err(e) => failed = Some(anyhow!("process {pid} can't be asked: {e}")),
        }
    }
    Err(failed.unwrap_or_else(|| {
        anyhow!("process {pid} does not listen: it has ended, has asked for no GPU memory yet, records nothing, or is another user's")
    }))
}

fn question(pid: u32, ask: &Ask) -> Result<Value> {
    let mut question = match ask {
        Ask::Stats => json!({ "ask": "stats" }),
        Ask::Snapshot { path } => {
            let path = path.clone().unwrap_or_else(|| format!("vramscope-snapshot-{pid}.jsonl").into());
            let path = std::path::absolute(&path).context("the current folder is gone")?;
            let path = path.to_str().with_context(|| format!("{}: a path in UTF-8 is needed", path.display()))?;
            json!({ "ask": "snapshot", "path": path })
        }
        Ask::Trim => json!({ "ask": "trim" }),
        Ask::Limit { limit, device } => limited(limit, *device).map_err(|e| anyhow!(e))?,
        Ask::ResetPeak { device } => json!({ "ask": "reset-peak", "device": device }),
        Ask::Pause => json!({ "ask": "pause" }),
        Ask::Resume => json!({ "ask": "resume" }),
    };
    question["version"] = json!(ctl::VERSION);
    Ok(question)
}

fn limited(text: &str, device: Option<u32>) -> Result<Value, String> {
    let limits = limit::parse(text)?;
    let [(named, limit)] = limits.as_slice() else {
        return Err(format!("'{text}': one device at a time"));
    };
    if let (Some(named), Some(device)) = (*named, device)
        && named != device
    {
        return Err(format!("'{text}' is of device {named}, and --device of {device}"));
    }
    let device = named.or(device);
    Ok(match limit {
        Limit::Bytes(bytes) => json!({ "ask": "limit", "bytes": bytes, "device": device }),
        Limit::Share(share) => json!({ "ask": "limit", "share": share, "device": device }),
    })
}

// ---- the sockets -------------------------------------------------------------------------------------------------------

/// Sockets by process. Those that nobody listens to any more are found when they are asked.
fn sockets() -> Vec<(u32, PathBuf)> {
    let variable = |n| std::env::var_os(n).map(PathBuf::from);
    let mut places = vec![PathBuf::from(ctl::FOLDER)];
    places.extend(["XDG_RUNTIME_DIR", "TMPDIR"].into_iter().filter_map(variable));
    places.push(PathBuf::from("/tmp"));
    let mut folders: Vec<PathBuf> = places.iter().flat_map(|place| run_dir::in_folder(place)).collect();
    folders.push(PathBuf::from(ctl::FOLDER));
    folders.sort();
    folders.dedup();
    let mut found: Vec<(u32, PathBuf)> = folders.iter().flat_map(|folder| in_folder(folder)).collect();
    found.sort();
    found
}

/// The sockets in a folder, with their processes. Only our own: somebody else could answer what he likes.
pub fn in_folder(folder: &Path) -> Vec<(u32, PathBuf)> {
    let me = rustix::process::geteuid();
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let socket = |entry: std::fs::DirEntry| {
        let pid = ctl::pid_of(entry.file_name().to_str()?)?;
        let about = entry.metadata().ok()?;
        (about.file_type().is_socket() && (me.is_root() || about.uid() == me.as_raw())).then(|| (pid, entry.path()))
    };
    entries.filter_map(socket).collect()
}

/// Removes the sockets in a folder that nobody listens to any more.
pub fn clear(folder: &Path) {
    let begun = Instant::now();
    for (_, socket) in in_folder(folder) {
        let _ = connect(&socket, CONNECTS.saturating_sub(begun.elapsed()));
    }
}

/// Removes the socket of a process that is gone: whose history was finished needs none.
pub fn clear_of(pid: u32) {
    for (_, socket) in sockets().into_iter().filter(|(of, _)| *of == pid) {
        let _ = connect(&socket, CONNECTS);
    }
}

fn connect(socket: &Path, patience: Duration) -> std::io::Result<UnixStream> {
    let (to, from) = mpsc::channel();
    let path = socket.to_owned();
    // A thread that still waits when nobody waits for it ends with the command.
    std::thread::Builder::new().name("connect".into()).spawn(move || drop(to.send(UnixStream::connect(path))))?;
    let Ok(connected) = from.recv_timeout(patience) else {
        let what = format!("it took no connection within {} s (is it stopped?)", CONNECTS.as_secs());
        return Err(std::io::Error::other(what));
    };
    connected.inspect_err(|e| {
        if e.kind() == ErrorKind::ConnectionRefused {
            let _ = std::fs::remove_file(socket);
        }
    })
}

/// The answer to a question. A socket that nobody listens to is removed.
fn talk(socket: &Path, question: &Value, patience: Duration) -> std::io::Result<Value> {
    let ask = |stream: &mut UnixStream| -> std::io::Result<Vec<u8>> {
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(format!("{question}\n").as_bytes())?;
        let mut line = Vec::new();
        stream.take(ctl::LONGEST as u64).read_to_end(&mut line)?;
        Ok(line)
    };
    // Where the process ends meanwhile the socket goes, or the connection, or no answer comes.
    let ended = || Err(std::io::Error::other("it gave no answer (it is ending, or another user's)"));
    match connect(socket, CONNECTS).and_then(|mut stream| ask(&mut stream)) {
        Err(e) if matches!(e.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::NotFound) => {
            ended()
        }
        Err(e) if e.kind() == ErrorKind::WouldBlock => Err(std::io::Error::other("it does not answer")),
        Err(e) => Err(e),
        Ok(line) if line.is_empty() => ended(),
        Ok(line) => serde_json::from_slice(&line).map_err(|_| std::io::Error::other("its answer is not understood")),
    }
}

fn told(answer: &Value) -> Result<Value> {
    if let Some(why) = answer["error"].as_str() {
        bail!("{}", clean(&say::plain(why)));
    }
    if answer["version"].as_u64() != Some(ctl::VERSION) {
        bail!("it speaks another version of vramscope ctl's words; use the vramscope it runs under");
    }
    Ok(answer["ok"].clone())
}

// ---- what is shown -----------------------------------------------------------------------------------------------------

fn list(as_json: bool) -> Result<ExitCode> {
    let question = question(0, &Ask::Stats)?;
    let sockets = sockets();
    // All at once: one that is stopped keeps nobody waiting twice.
    let answers: Vec<Value> = std::thread::scope(|scope| {
        let ask = |socket| told(&talk(socket, &question, LISTED).ok()?).ok();
        let asked: Vec<_> = sockets.iter().map(|(_, socket)| scope.spawn(move || ask(socket))).collect();
        asked.into_iter().filter_map(|one| one.join().ok().flatten()).collect()
    });
    if as_json {
        say::print(&format!("{}\n", Value::Array(answers)))?;
    } else if answers.is_empty() {
        say::print("no process can be asked: none of yours runs under vramscope and uses a GPU\n")?;
    } else {
        let mut text = format!("{:>9}  {:>10}  {:>10}  program\n", "process", "allocated", "reserved");
        for a in &answers {
            let sum = |name: &str| each_device(a).filter_map(|d| d[name].as_u64()).sum();
            let _ = writeln!(
                text,
                "{:>9}  {:>10}  {:>10}  {}",
                a["pid"].as_u64().unwrap_or(0),
                bytes(sum("allocated")),
                bytes(sum("reserved")),
                command(a)
            );
        }
        say::print(&text)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What runs: the program with its arguments. (A library from before these tells the program alone.)
fn command(stats: &Value) -> String {
    let arguments: Vec<&str> = stats["arguments"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let program = stats["program"].as_str().unwrap_or_default().to_owned();
    clip(&clean(&if arguments.is_empty() { program } else { arguments.join(" ") }), COMMAND)
}

fn each_device(stats: &Value) -> impl Iterator<Item = &Value> {
    stats["devices"].as_array().into_iter().flatten()
}

fn shown(ask: &Ask, answer: &Value) -> String {
    match ask {
        Ask::Stats | Ask::Limit { .. } | Ask::ResetPeak { .. } => table(answer),
        Ask::Snapshot { .. } => format!("{}\n", clean(answer["path"].as_str().unwrap_or_default())),
        Ask::Trim => format!("{} given back\n", bytes(answer["bytes"].as_u64().unwrap_or(0))),
        Ask::Pause | Ask::Resume => {
            let paused = if answer["paused"] == true { "paused" } else { "goes on" };
            format!("recording of stacks, tensors, marks and regions: {paused}\n")
        }
    }
}

/// A line a number, a column a device.
fn table(answer: &Value) -> String {
    let text = |name: &str| clean(answer[name].as_str().unwrap_or_default());
    let mut out = format!("process {}  {}\n", answer["pid"].as_u64().unwrap_or(0), command(answer));
    if !text("trace").is_empty() {
        let _ = writeln!(out, "history  {}", text("trace"));
    }
    for device in each_device(answer) {
        let number = |name: &str| device[name].as_u64().unwrap_or(0);
        let name = clean(device["name"].as_str().unwrap_or_default());
        let _ = writeln!(out, "\nGPU {}  {name}, {}", number("device"), bytes(number("total")));
        let mut line = |label: &str, now: String, note: String| {
            let _ = writeln!(out, "{}", format!("  {label:<12}{now:>12}  {note}").trim_end());
        };
        let peak = |name: &str| format!("{} at most", bytes(number(name)));
        line("allocated", bytes(number("allocated")), peak("allocated_peak"));
        line("reserved", bytes(number("reserved")), peak("reserved_peak"));
        line("inactive", bytes(number("inactive")), "reserved and not allocated".to_owned());
        let kept = format!("and {} kept for reuse", bytes(number("pool_inactive")));
        line("pool", bytes(number("pool_active")), kept);
        if number("hoarded") > 0 {
            let kept = format!("in {} held by libraries that cache", bytes(number("hoarded")));
            line("tensors", bytes(number("tensors")), kept);
        }
        line("pinned", bytes(number("pinned")), "of the host's memory".to_owned());
        line("allocations", count(number("allocations")), format!("{} failed", plural(number("failures"), "call")));
        if number("limit") > 0 {
            line("limit", bytes(number("limit")), String::new());
        }
    }
    if answer["paused"] == true {
        out.push_str("\npaused: no stacks, tensors, marks and regions are recorded\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits() {
        assert_eq!(limited("1MiB", None).unwrap()["bytes"], 1 << 20);
        assert_eq!(limited("80%", None).unwrap()["share"], 0.8);
        assert_eq!(limited("0.5", None).unwrap()["share"], 0.5);
        assert_eq!(limited("none", None).unwrap()["bytes"], 0);
        assert_eq!(limited("2:1MiB", None).unwrap()["device"], 2);
        assert_eq!(limited("1MiB", Some(3)).unwrap()["device"], 3);
        assert!(limited("2:1MiB", Some(3)).unwrap_err().contains("--device of 3"));
        for wrong in ["1.5", "much", "200%"] {
            assert!(limited(wrong, None).is_err(), "{wrong}");
        }
    }

    #[test]
    fn nothing_moves_the_cursor() {
        let answer = json!({ "pid": 7, "program": "a\u{1b}[2Jb\nc", "trace": "t\r", "path": "p\nq",
            "devices": [{ "device": 0, "name": "x\u{7}y" }] });
        let text = shown(&Ask::Stats, &answer);
        assert!(text.starts_with("process 7  a [2Jb c\nhistory  t \n") && text.contains("GPU 0  x y,"), "{text}");
        assert_eq!(shown(&Ask::Snapshot { path: None }, &answer), "p q\n");
        let answer = json!({ "program": "/usr/bin/python3", "arguments": ["python", "a\u{1b}.py", "-n"] });
        assert_eq!(command(&answer), "python a .py -n");
        assert_eq!(command(&json!({ "program": "p", "arguments": ["x".repeat(200)] })).chars().count(), COMMAND);
        assert_eq!(told(&json!({ "error": "x\u{1b}y (os error 2)" })).unwrap_err().to_string(), "x y");
    }

    /// At any moment of its end.
    #[test]
    fn a_process_that_ends_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(ctl::name_outside(7));
        let why = || talk(&path, &json!({}), LISTED).unwrap_err().to_string();
        assert!(why().starts_with("it gave no answer"), "its socket is gone");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let taking = std::thread::spawn(move || (0..20).for_each(|_| drop(listener.accept())));
        for _ in 0..20 {
            let why = why();
            assert!(why.starts_with("it gave no answer"), "{why}");
        }
        taking.join().unwrap();
    }

    #[test]
    fn a_socket_that_nobody_listens_to_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(ctl::name_outside(7));
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        std::fs::write(folder.path().join("vramscope-ctl.8"), "no socket").unwrap();
        assert_eq!(in_folder(folder.path()), [(7, path.clone())]);
        // A process that another test is just starting may hold the listener for a moment, until its exec.
        let soon = |what: &dyn Fn()| {
            (0..200).any(|_| {
                what();
                std::thread::sleep(Duration::from_millis(5));
                !path.exists()
            })
        };
        assert!(soon(&|| assert!(talk(&path, &json!({}), LISTED).is_err())));
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(soon(&|| clear(folder.path())));
        assert!(in_folder(folder.path()).is_empty() && folder.path().join("vramscope-ctl.8").exists());
    }
}
