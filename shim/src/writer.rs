//! The writer thread: turns rings into lines. Nobody waits for it to start, it waits for nobody but the disk, it blocks all
//! signals, and it never calls dlsym, dlopen or dladdr: a thread in dlopen may hold their lock and wait for a CUDA call.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use once_cell::sync::OnceCell;
use vramscope_core::counters::{COUNT, PER_EVENT};
use vramscope_core::event::{Event, EventKind};
use vramscope_core::record::{Failure, Options, Snapshot, Spool, Writer};
use vramscope_core::unwritten;

use crate::message::error;
use crate::trace_file::{self, Trace};
use crate::{background, clock, driver, pool, recorder, settings, signals, snapshot, spool, state, thread};

/// A thread got a ring, or waits for room in it: either ends the writer's sleep.
static CHANNEL: OnceCell<(Sender<()>, Receiver<()>)> = OnceCell::new();
static WRITER: Mutex<Option<Writer<'static, Trace>>> = Mutex::new(None);
static SPOOL: OnceCell<Spool<'static>> = OnceCell::new();
/// The history is a file, which can be finished later; not a pipe.
static IS_FILE: AtomicBool = AtomicBool::new(false);
/// A write failed: what was in the rings is not in the history.
static FAILED: AtomicBool = AtomicBool::new(false);

/// Opens the history and starts the thread; `false`: nothing will be recorded, and it was said why.
pub fn start(spool: Spool<'static>) -> bool {
    let Some(pattern) = &settings::get().trace else { return false };
    let path = trace_file::path_of(pattern);
    let trace = match Trace::open(&path) {
        Ok(t) => t,
        Err(e) => {
            let why = format!("{}: the history can't be written ({})", path.display(), snapshot::plain(&e.to_string()));
            error!(
                "{why}: nothing is recorded; the program runs. Set VRAMSCOPE_TRACE to a file in a folder that can be written to."
            );
            tell_launcher(&why);
            spool::remove();
            return false;
        }
    };
    let name = trace.path().to_string_lossy().into_owned();
    spool.set_header(&trace_file::header());
    spool.set_path(name.as_bytes());
    IS_FILE.store(matches!(trace, Trace::File { .. }), Relaxed);
    let options =
        Options { compress: name.ends_with(".zst"), max_bytes: Some(settings::get().max_trace).filter(|m| *m > 0) };
    match Writer::new(spool, trace, &options) {
        Ok(w) => *WRITER.lock().unwrap_or_else(|e| e.into_inner()) = Some(w),
        Err(e) => {
            let why = format!("{name}: the history can't be written ({})", snapshot::plain(&e.to_string()));
            error!("{why}: nothing is recorded; the program runs");
            tell_launcher(&why);
            return false;
        }
    }
    let _ = CHANNEL.set(bounded(1024));
    let _ = REQUESTS.set(bounded(16));
    let _ = SPOOL.set(spool);
    start_thread()
}

/// Leaves the reason where the launcher finds it: it sees no history, and would take the program for one without CUDA.
fn tell_launcher(why: &str) {
    if let Some(folder) = &settings::get().run_dir {
        let _ = std::fs::write(format!("{folder}/{}", unwritten::name(std::process::id())), why);
    }
}

fn start_thread() -> bool {
    let run = || {
        state::guarded("the writer", work);
    };
    match background::start(c"vramscope", 512 << 10, run) {
        Ok(()) => true,
        Err(e) => {
            error!("no thread for the writer (error {e}): nothing is recorded; the program runs");
            false
        }
    }
}

// ---- what other threads ask the writer thread for ------------------------------------------------------------------------

/// What is asked for, and where the answer goes.
pub enum Request {
    /// Why a request failed: the explanation goes into the history, its text to who asked.
    Explain(Box<Failure>, Sender<String>),
    /// What is live.
    Snapshot(Sender<io::Result<Snapshot>>),
}

static REQUESTS: OnceCell<(Sender<Request>, Receiver<Request>)> = OnceCell::new();

/// Asks the writer thread, which answers when it gets to it; `false`: too much was asked already.
pub fn ask(request: Request) -> bool {
    let asked = REQUESTS.get().is_some_and(|(to, _)| to.try_send(request).is_ok());
    wake();
    asked
}

/// Answers what was asked. A write that fails is the next round's to report; an answer that nobody waits for any more is
/// dropped.
fn answer() {
    let Some((_, requests)) = REQUESTS.get() else { return };
    while let Ok(request) = requests.try_recv() {
        let Some(mut held) = lock() else { return };
        let Some(writer) = held.writer() else { return };
        let (raw, ns) = clock::both();
        match request {
            Request::Explain(failure, to) => {
                let (explanation, _) = signals::held_off(|| writer.explain(&failure, raw, ns));
                let _ = to.try_send(explanation.text);
            }
            Request::Snapshot(to) => drop(to.try_send(signals::held_off(|| writer.snapshot(raw, ns)))),
        }
    }
}

/// The signal for a snapshot came.
fn snapshot() {
    let path = lock().and_then(|mut held| Some(held.writer()?.output().path().to_owned()));
    if let Some(path) = path {
        snapshot::beside(&path);
    }
}

/// Polls between these.
const SOON: Duration = Duration::from_millis(1);
const LATE: Duration = Duration::from_millis(16);

fn work() {
    let Some((_, words)) = CHANNEL.get() else { return };
    let Some(spool) = SPOOL.get().copied() else { return };
    let mut wait = SOON;
    let mut last_counters = driver::now_ns();
    loop {
        // A new ring, or a full one, ends the wait.
        let _ = words.recv_timeout(wait);
        while words.try_recv().is_ok() {}
        if !recorder::recording() {
            return;
        }
        spool::extend(spool);
        answer();
        if snapshot::asked() {
            snapshot();
        }
        let Some((events, fullness)) = round(false) else { return };
        wait = if fullness > 50 {
            Duration::ZERO
        } else if events > 0 {
            SOON
        } else {
            (wait * 2).clamp(SOON, LATE)
        };
        let now = driver::now_ns();
        if now - last_counters > 1_000_000_000 && !state::exiting() {
            last_counters = now;
            write_counters();
            spool.close_rings_of_ended_threads(has_ended);
        }
    }
}

/// Whether a thread of this process has ended.
fn has_ended(tid: u32) -> bool {
    // SAFETY: signal 0 only asks.
    let r = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, 0) };
    // SAFETY: the calling thread's errno.
    r != 0 && unsafe { *libc::__errno_location() } == libc::ESRCH
}

/// One round of the writer, or all that is left: (events, fullness). `None`: recording stopped.
fn round(all: bool) -> Option<(u64, u32)> {
    round_with(lock()?, all)
}

type Guard = MutexGuard<'static, Option<Writer<'static, Trace>>>;

/// The writer's lock, and that this thread has it. (`None` while it is given back.)
struct Held(Option<Guard>);

impl Held {
    /// `None`: `get` gave none, or a signal handler came in while its thread had it.
    fn by(get: impl FnOnce() -> Option<Guard>) -> Option<Held> {
        let writing = &thread::current().writing;
        if writing.replace(true) {
            return None;
        }
        let guard = get();
        writing.set(guard.is_some());
        guard.map(|g| Held(Some(g)))
    }

    fn writer(&mut self) -> Option<&mut Writer<'static, Trace>> {
        self.0.as_mut()?.as_mut()
    }

    /// Nothing is written any more.
    fn end(mut self) {
        if let Some(guard) = &mut self.0 {
            **guard = None;
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        drop(self.0.take());
        thread::current().writing.set(false);
    }
}

fn round_with(mut held: Held, all: bool) -> Option<(u64, u32)> {
    let writer = held.writer()?;
    let (raw, ns) = clock::both();
    let done = signals::held_off(|| if all { writer.flush(raw, ns) } else { writer.round(raw, ns) });
    MOVED.fetch_add(1, Relaxed);
    match done {
        Ok(p) => Some((p.events, p.fullness)),
        Err(e) => {
            let name = writer.output().path().display().to_string();
            // Under the lock: the end of the process removes the spool only where no write failed.
            let first = !FAILED.swap(true, Relaxed);
            recorder::stop();
            if let Some(spool) = SPOOL.get().filter(|_| IS_FILE.load(Relaxed)) {
                signals::held_off(|| spool::put_back(*spool));
            }
            held.end();
            if first {
                let rest = match IS_FILE.load(Relaxed) {
                    true if spool::is_left() => {
                        format!(". What memory still holds of it `vramscope recover {name}` adds, later")
                    }
                    true if spool::is_ours() => {
                        ". What memory still held of it is lost: there is no room to keep it".to_owned()
                    }
                    _ => String::new(),
                };
                error!("{name}: writing the history failed ({e}): recording stops here, the program goes on{rest}");
            }
            None
        }
    }
}

/// The writer's lock. At exit each event is written by the thread that made it, and others may be many: the thread that ends
/// the process goes first, so that it waits for one round of another's at most. Whoever has the lock may be held up by a full
/// pipe: if nothing moves for two seconds, the rest is left to the spool.
fn lock() -> Option<Held> {
    Held::by(|| match state::exiting() {
        false => Some(WRITER.lock().unwrap_or_else(|e| e.into_inner())),
        true => lock_at_exit(),
    })
}

fn try_lock() -> Option<Guard> {
    match WRITER.try_lock() {
        Ok(g) => Some(g),
        Err(TryLockError::Poisoned(e)) => Some(e.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

fn lock_at_exit() -> Option<Guard> {
    static ENDS: AtomicBool = AtomicBool::new(false);
    static GIVEN_UP: AtomicBool = AtomicBool::new(false);
    let ends = state::ends_here();
    if ends {
        ENDS.store(true, Release);
    }
    let (mut tries, mut moved) = (0, MOVED.load(Relaxed));
    let held = loop {
        let held = if ends || !ENDS.load(Acquire) { try_lock() } else { None };
        if held.is_some() || tries >= 2000 || GIVEN_UP.load(Relaxed) {
            break held;
        }
        std::thread::sleep(Duration::from_millis(1));
        tries = if moved == MOVED.load(Relaxed) { tries + 1 } else { 0 };
        moved = MOVED.load(Relaxed);
    };
    if ends {
        ENDS.store(false, Release);
    }
    GIVEN_UP.store(held.is_none(), Relaxed);
    held
}

/// Rounds done.
static MOVED: AtomicU64 = AtomicU64::new(0);

/// Writes everything that is in the rings, from any thread.
pub fn flush() {
    round(true);
}

/// The end of the process: writes what is left, and removes the spool if it is not needed any more. (In the launcher's folder
/// it is the launcher's business, who writes the footer.)
pub fn end() {
    flush();
    // With the lock, so that no write fails before the spool is gone, of which it would have to be kept.
    let held = lock();
    let needed = IS_FILE.load(Relaxed) && (FAILED.load(Relaxed) || held.is_none());
    if needed || !spool::is_ours() {
        return;
    }
    let Some(mut held) = held else { return spool::remove() };
    // After a fault of ours nothing follows, and nobody else may be there to say so.
    if let Some(writer) = held.writer()
        && recorder::stopped()
    {
        let ended = signals::held_off(|| writer.end_stopped());
        if ended.is_ok() || !IS_FILE.load(Relaxed) {
            spool::remove();
        }
        return held.end();
    }
    spool::remove();
}

/// As [`flush`], unless the writer is at work (or broke while it was).
pub fn flush_if_idle() {
    if let Some(held) = Held::by(|| WRITER.try_lock().ok()) {
        round_with(held, true);
    }
}

/// A thread got its ring, or waits for the writer.
pub fn wake() {
    if let Some((to, _)) = CHANNEL.get() {
        let _ = to.try_send(());
    }
}

/// The pool's counters go into the history, a page an event.
pub fn write_counters() {
    static LAST: Mutex<[u64; COUNT]> = Mutex::new([0; COUNT]);
    let now = pool::counters().to_array();
    {
        let mut last = LAST.lock().unwrap_or_else(|e| e.into_inner());
        if *last == now {
            return;
        }
        *last = now;
    }
    for (page, values) in now.chunks(PER_EVENT).enumerate() {
        let v = |i: usize| values.get(i).copied().unwrap_or(0);
        recorder::event(&Event {
            kind: EventKind::Counters,
            code: page as u16,
            id: v(0),
            address: v(1),
            bytes: v(2),
            block: v(3),
            extra: [v(4), v(5), v(6)],
            ..Event::default()
        });
    }
}
