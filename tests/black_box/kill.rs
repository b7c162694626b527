//! `kill -9` at random moments: no event is lost whose hook had returned.
//!
//! The program counts its returned calls itself, in a page that outlives it, and its n-th call is known. So after
//! `recover` the history must show exactly its first calls: as many as had returned, or one more (recorded, but the process
//! died before the call returned).

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::support::{History, Link, Mode, Program, history};
use crate::whole::said;
use vramscope_core::event::{Event, EventKind};
use vramscope_core::trace::Line;

const LIVE: u64 = 16;
const SLOT: usize = 64;

/// The same in killed.c.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    *state >> 33
}

/// A call of the program: the bytes that it allocates, or the number of the call whose block it frees.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Call {
    Alloc(u64),
    Free(usize),
}

fn calls(seed: u64, thread: u64, count: usize) -> Vec<Call> {
    let mut state = seed * 1000 + thread;
    let mut live = [None; LIVE as usize];
    (0..count)
        .map(|n| {
            let r = next(&mut state);
            let slot = &mut live[(r % LIVE) as usize];
            match slot.take() {
                Some(of) => Call::Free(of),
                None => {
                    *slot = Some(n);
                    Call::Alloc(1 + r % 100000)
                }
            }
        })
        .collect()
}

/// (tid, calls returned) of each thread that began.
fn counted(folder: &Path) -> Vec<(u32, usize)> {
    let bytes = fs::read(folder.join("calls")).unwrap_or_default();
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
    let all = (0..bytes.len() / SLOT).map(|i| (word(i * SLOT) as u32, word(i * SLOT + 8) as usize));
    all.collect()
}

/// The events of each thread of the program, by its number in the kernel, with those of the pool left out.
fn told(history: &History) -> Vec<(u32, Vec<Event>)> {
    let mut threads: Vec<(u32, u32, Vec<Event>)> = Vec::new();
    for line in &history.lines {
        match line {
            Line::Thread(t) if !threads.iter().any(|k| k.0 == t.thread) => threads.push((t.thread, t.tid, Vec::new())),
            Line::Event(thread, e) if matches!(e.kind, EventKind::Alloc | EventKind::Free) => {
                let known = threads.iter_mut().find(|k| k.0 == *thread).expect("a thread's line comes first");
                known.2.push(*e);
            }
            _ => {}
        }
    }
    threads.into_iter().map(|(_, tid, events)| (tid, events)).collect()
}

struct Killed {
    child: Child,
    folder: tempfile::TempDir,
    seed: u64,
}

impl Drop for Killed {
    fn drop(&mut self) {
        history::remove_spools(self.folder.path());
    }
}

fn kill_one(threads: u32, seed: u64, trace: &str, settings: &[(&str, &str)]) -> Killed {
    let folder = tempfile::Builder::new().prefix("vramscope-kill.").tempdir().expect("a folder");
    let mut program = Program::new("killed", Link::Driver).arg(threads.to_string()).arg(seed.to_string());
    program = program.env("VRAMSCOPE_TRACE", folder.path().join(trace));
    for (name, value) in settings {
        program = program.env(name, value);
        if (*name, *value) == ("VRAMSCOPE_POOL", "on") {
            program = program.arg("ordered");
        }
    }
    let mut command = program.command(Mode::Pooled, folder.path());
    command.stdout(Stdio::null()).stderr(File::create(folder.path().join("stderr")).expect("stderr"));
    let mut child = command.spawn().expect("the program");
    let mut random = seed;
    // From the first call that returned, at some moment in the next 40 ms.
    for _ in 0..20000 {
        if counted(folder.path()).iter().any(|c| c.1 > 0) || child.try_wait().expect("wait").is_some() {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_micros(next(&mut random) % 40000));
    child.kill().expect("kill");
    let status = child.wait().expect("wait");
    let said = fs::read_to_string(folder.path().join("stderr")).unwrap_or_default();
    assert!(status.code().is_none() && said.is_empty(), "seed {seed}: ended by itself with {status}: {said}");
    Killed { child, folder, seed }
}

impl Killed {
    /// What it did must be what the recovered history tells. `whole`: from the first call on.
    fn check(&self, whole: bool) {
        let spools = history::spools_of(self.child.id(), self.folder.path());
        assert_eq!(spools.len(), 1, "seed {}: {spools:?}", self.seed);
        let history = history::recover(&spools[0]);
        history.check();
        assert_eq!(history.footer().map(|f| (f.end.as_str(), f.lost)), Some(("killed", 0)), "seed {}", self.seed);
        let mut told = told(&history);
        for (number, (tid, returned)) in counted(self.folder.path()).into_iter().enumerate() {
            let at = format!("seed {}, thread {number}: {returned} calls returned", self.seed);
            let Some(i) = told.iter().position(|t| t.0 == tid) else {
                assert!(returned == 0 || !whole, "{at}, none is told of");
                continue;
            };
            let events = told.swap_remove(i).1;
            // The call that was under way may be told of already.
            let expected = calls(self.seed, number as u64, returned + 1);
            if whole {
                assert!((returned..=returned + 1).contains(&events.len()), "{at}, {} are told of", events.len());
                same(&expected[..events.len()], &events, &at);
            } else {
                let like =
                    |count: usize| expected[count - events.len()..count].iter().zip(&events).all(|(c, e)| alike(c, e));
                let ends =
                    events.len() <= returned && like(returned) || events.len() <= returned + 1 && like(returned + 1);
                assert!(ends, "{at}, the last ones are not among {} told of", events.len());
            }
        }
    }
}

fn alike(call: &Call, event: &Event) -> bool {
    match call {
        Call::Alloc(bytes) => event.kind == EventKind::Alloc && event.bytes == *bytes,
        Call::Free(_) => event.kind == EventKind::Free,
    }
}

/// Call by call, with each free paired with its allocation, and a stack for each.
fn same(expected: &[Call], events: &[Event], at: &str) {
    for (n, (call, event)) in expected.iter().zip(events).enumerate() {
        assert!(alike(call, event), "{at}: call {n} is {call:?}, told as {event:?}");
        assert!(event.stack != 0, "{at}: call {n} has no stack: {event:?}");
        if let Call::Free(of) = call {
            assert_eq!(event.id, events[*of].id, "{at}: call {n} frees the block of call {of}");
        }
    }
}

fn seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock");
    now.as_micros() as u64 % 1_000_000
}

fn kills(count: u64, threads: u32, trace: &str, settings: &[(&str, &str)], whole: bool) {
    let first = seed();
    println!("first seed {first}");
    for i in 0..count {
        kill_one(threads, first + i, trace, settings).check(whole);
    }
}

#[test]
fn one_thread() {
    kills(70, 1, "a.jsonl", &[], true);
}

#[test]
fn one_thread_recording_only() {
    kills(20, 1, "a.jsonl", &[("VRAMSCOPE_POOL", "off")], true);
}

#[test]
fn compressed() {
    kills(40, 2, "a.jsonl.zst", &[], true);
}

#[test]
fn four_threads() {
    kills(40, 4, "a.jsonl", &[], true);
}

/// Memory of streams, served by us.
#[test]
fn stream_ordered() {
    kills(20, 1, "a.jsonl", &[("VRAMSCOPE_POOL", "on")], true);
    kills(20, 4, "a.jsonl.zst", &[("VRAMSCOPE_POOL", "on")], true);
}

/// Only the last part is kept, and it has the last calls.
#[test]
fn rotated() {
    kills(20, 2, "a.jsonl", &[("VRAMSCOPE_MAX_TRACE", "300KiB")], false);
    kills(10, 1, "a.jsonl.zst", &[("VRAMSCOPE_MAX_TRACE", "100KiB")], false);
}

/// Which files a kill left behind.
enum Left {
    /// The history, as far as it was written.
    Newest,
    /// Only the older part: a rotation gives the part that is full another name, and then begins the next.
    Older,
    /// The same, ending in a cut line, which a crash of the machine or a copy leaves.
    OlderCut,
}

/// The command does what the tests above do through the library, and what only reads it reads the same.
#[test]
fn recovered_by_the_command() {
    for left in [Left::Newest, Left::Older, Left::OlderCut] {
        recovered(&left);
    }
}

/// Where the last allocation or free begins that was written.
fn last_event(lines: &[u8]) -> Option<usize> {
    let starts = |what: &[u8]| lines.windows(what.len()).rposition(|w| w == what).map(|newline| newline + 1);
    starts(b"\n{\"kind\":\"alloc\"").max(starts(b"\n{\"kind\":\"free\""))
}

fn recovered(left: &Left) {
    let killed = kill_one(2, seed(), "a.jsonl", &[]);
    let trace = killed.folder.path().join("a.jsonl");
    if !matches!(left, Left::Newest) {
        let mut bytes = fs::read(&trace).expect("the history");
        // A rotation comes after a whole line.
        bytes.truncate(bytes.iter().rposition(|b| *b == b'\n').map_or(0, |last| last + 1));
        if matches!(left, Left::OlderCut) {
            let Some(event) = last_event(&bytes) else { return };
            bytes.truncate(event + 20);
        }
        fs::remove_file(&trace).expect("the history");
        if !bytes.is_empty() {
            fs::write(killed.folder.path().join("a.jsonl.1"), bytes).expect("the older part");
        }
    }
    let (what, verified) = said(&["verify"], &trace);
    if matches!(left, Left::OlderCut) && verified == Some(1) {
        // The spool need not have any more what was written: that much is lost, and said.
        assert!(what.contains("the footer counts other events than the history has"), "{what}");
        let (told, code) = said(&["recover"], &trace);
        assert!(code == Some(1) && told.contains("not there any more"), "{told}");
        assert_eq!(said(&["verify"], &trace).0.lines().next(), what.lines().next());
        return;
    }
    assert_eq!(verified, Some(0), "{what}");
    let (told_of, code) = said(&["recover"], &trace);
    assert_eq!(code, Some(0), "{told_of}");
    let history = History::read(&trace);
    history.check();
    let told: usize = told(&history).iter().map(|t| t.1.len()).sum();
    let returned: usize = counted(killed.folder.path()).iter().map(|c| c.1).sum();
    assert!((returned..=returned + 2).contains(&told), "{returned} calls returned, {told} are told of");
    assert!(history::spools_of(killed.child.id(), killed.folder.path()).is_empty(), "the spool is not needed any more");
}
