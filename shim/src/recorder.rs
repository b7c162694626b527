//! The one door from hooks to the history: an event goes into the calling thread's ring and the hook returns.
//!
//! The rings lie in the spool (a file in memory, `spool.rs`); the writer thread (`writer.rs`) turns them into lines.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};

use once_cell::sync::OnceCell;
use vramscope_core::event::Event;
use vramscope_core::record::{self, Definition, Producer, Pushed, Spool};

use crate::ledger::Ledger;
use crate::message::error;
use crate::thread::{self, Thread};
use crate::{clock, ctl, driver, nap, pause, regions, settings, signals, snapshot, spool, state, usage, writer};

static SPOOL: OnceCell<Spool<'static>> = OnceCell::new();
/// Recording goes on (a history is wanted, and nothing stopped it).
static RECORDING: AtomicBool = AtomicBool::new(false);
static IDS: AtomicU64 = AtomicU64::new(1);

/// Allocations of every kind that are not plain device memory: address → what it is.
pub static LEDGER: Ledger = Ledger::new();

/// Starts recording: spool, trace file, writer thread. Whatever fails is said, and the program goes on without a history.
pub fn start() {
    // Whether or not there will be a history: who sends that signal does not want the program's end.
    snapshot::watch();
    if settings::get().trace.is_none() {
        if settings::get().snapshot_signal.is_some() {
            error!("VRAMSCOPE_SNAPSHOT_SIGNAL: no snapshots without a history (VRAMSCOPE_TRACE=off)");
        }
        return;
    }
    signals::held_off(start_recording);
}

fn start_recording() {
    let Some(spool) = spool::create() else { return };
    if SPOOL.set(spool).is_err() {
        return;
    }
    RECORDING.store(true, Release);
    if !writer::start(spool) {
        RECORDING.store(false, Release);
        return;
    }
    pause::recording_begins();
    ctl::start();
}

/// The spool, while recording goes on.
pub fn spool() -> Option<Spool<'static>> {
    if RECORDING.load(Relaxed) { SPOOL.get().copied() } else { None }
}

/// Stops recording for good.
pub fn stop() {
    RECORDING.store(false, Release);
    if let Some(s) = SPOOL.get() {
        s.mark_stopped();
    }
}

/// Whether events are recorded.
#[inline]
pub fn recording() -> bool {
    RECORDING.load(Relaxed)
}

/// A new number for an allocation or a segment; never used again.
#[inline]
pub fn new_id() -> u64 {
    match SPOOL.get() {
        Some(s) => s.new_id(),
        None => IDS.fetch_add(1, Relaxed),
    }
}

/// Runs `f` with the thread's ring; `None` if there is none to be had, or a signal handler came in while the thread was
/// already recording.
fn with_ring<T>(f: impl FnOnce(&mut Producer<'static>) -> T) -> Option<T> {
    let spool = spool()?;
    let t = thread::current();
    if !t.enter() {
        return None;
    }
    let r = ring(t, spool).map(f);
    // Before the thread's signal handlers may record again: they would wait for the lock that the flush holds.
    if r.is_some() && state::exiting() {
        writer::flush();
    }
    t.leave();
    r
}

fn ring(t: &'static Thread, spool: Spool<'static>) -> Option<&'static mut Producer<'static>> {
    // SAFETY: only the thread itself reaches its cell, and `enter` keeps its signal handlers out.
    let held = unsafe { &mut *t.producer.get() };
    if !t.has_producer.get() {
        // Before: a thread that gets no ring has walked stacks all the same.
        crate::exit::watch_thread();
        held.write(claim(spool)?);
        t.has_producer.set(true);
    }
    // SAFETY: written above, now or by an earlier call.
    Some(unsafe { held.assume_init_mut() })
}

#[cold]
fn claim(spool: Spool<'static>) -> Option<Producer<'static>> {
    let mut name = [0u8; 16];
    // SAFETY: a 16-byte buffer, as PR_GET_NAME wants.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    let end = name.iter().position(|b| *b == 0).unwrap_or(0);
    // SAFETY: no arguments.
    let tid = unsafe { libc::gettid() } as u32;
    // Many threads may start at once: the writer backs more rings within milliseconds, or the thread itself does. Rings of
    // threads that ended are free once the writer has been there. A thread that got none then does not wait again: all rings are
    // taken (after a tenth of a second), or there is no memory for more (after two: a thread among hundreds is seldom run).
    let t = thread::current();
    let again = t.ringless.replace(true);
    let rounds = || match again {
        true => 1,
        false if spool::may_grow(spool) && !state::exiting() => 320,
        false => 22,
    };
    let mut round = 0;
    while round < rounds() {
        loop {
            if let Some(p) = spool.claim_ring(tid, &name[..end]) {
                t.ringless.set(false);
                writer::wake();
                return Some(p);
            }
            if round == 0 || !signals::held_off(|| spool::extend(spool)) {
                break;
            }
        }
        writer::wake();
        nap::growing(round);
        round += 1;
    }
    None
}

/// The calling thread's number in the history; 0: it has none.
pub fn thread_number() -> u32 {
    let t = thread::current();
    if !t.has_producer.get() {
        return 0;
    }
    with_ring(|p| p.thread()).unwrap_or(0)
}

/// The thread ends: its ring are free once drained.
pub fn thread_ends(t: &Thread) {
    if t.is_busy() || !t.has_producer.replace(false) {
        return;
    }
    // SAFETY: as in `ring`.
    let held = unsafe { &*t.producer.get() };
    // SAFETY: `has_producer` said that it holds one, and will not be looked at again before another is written.
    unsafe { held.assume_init_read() }.close();
}

/// The writer has not made room for a whole patience.
static STALLED: AtomicBool = AtomicBool::new(false);

/// Something was written. Told at every write: a round through the full rings of many threads takes longer than a hook waits.
pub fn writer_moved() {
    STALLED.store(false, Relaxed);
}

/// Naps of a hook that waits for room in a full ring before it drops the event, a second in all: the writer needs milliseconds,
/// and more where a hundred busy threads keep it from running; a trace on a stuck disk must not stop the program.
const PATIENCE: u32 = 160;

fn push(counts: bool, mut once: impl FnMut(&mut Producer<'static>) -> Pushed) -> bool {
    let pushed = with_ring(|p| {
        // A writer that is stuck (a pipe without reader, a dead network disk) is waited for once, not at every event.
        // (At exit a round writes the ring out itself, so that the next one finds room.)
        let patience = if STALLED.load(Relaxed) { 1 + u32::from(state::exiting()) } else { PATIENCE };
        for round in 0..patience {
            if matches!(once(p), Pushed::Yes) {
                return true;
            }
            if !RECORDING.load(Relaxed) {
                break;
            }
            if state::exiting() {
                writer::flush();
            } else if round == 0 {
                writer::wake();
            } else {
                nap::growing(round - 1);
            }
        }
        STALLED.store(true, Relaxed);
        // A definition that was given up is tried again by who needs it next.
        if counts {
            p.lost();
        }
        false
    });
    if pushed.is_none() && counts {
        missed();
    }
    pushed.unwrap_or(false)
}

/// An event that no ring counts: there is none for the thread, a signal handler came in while it was recording, or recording
/// has stopped.
#[cold]
fn missed() {
    let Some(s) = SPOOL.get() else { return };
    s.count_lost(1);
    // Nobody may come after to say so, once the process ends.
    let t = thread::current();
    if state::exiting() && recording() && t.enter() {
        writer::flush();
        t.leave();
    }
}

/// Whether recording ended before the program did.
pub fn stopped() -> bool {
    SPOOL.get().is_some_and(Spool::stopped)
}

/// Records an event, now.
#[inline]
pub fn event(e: &Event) {
    if !RECORDING.load(Relaxed) {
        if stopped() {
            missed();
        }
        return;
    }
    let t = thread::current();
    if t.unwritten.get() != 0 {
        regions::before(t, e.kind);
    }
    let mut e = *e;
    e.time = clock::raw();
    push(true, |p| p.push(&e));
}

fn define(d: &Definition<'_>) -> bool {
    push(false, |p| p.push_definition(d))
}

/// A frame as a stack holds it.
pub fn pack_frame(module: u32, offset: u64, guessed: bool) -> u64 {
    record::frame(module as u16, offset, guessed)
}

/// Defines a stack; only then may its number be used.
pub fn define_stack(number: u32, frames: &[u64], cut: bool) -> bool {
    define(&Definition::Stack { number, frames, cut })
}

/// A Python frame as a stack holds it.
pub fn pack_python_frame(place: u32) -> u64 {
    record::python_frame(place)
}

/// Defines a text; only then may its number be used.
pub fn define_text(number: u32, value: &[u8]) -> bool {
    define(&Definition::Text { number, value })
}

/// Defines a place in Python code; only then may its number be used.
pub fn define_python(number: u32, line: u32, file: &[u8], function: &[u8]) -> bool {
    define(&Definition::Python { number, line, file, function })
}

/// Defines a module.
pub fn define_module(number: u32, address: u64, bytes: u64, path: &[u8], build_id: &[u8]) -> bool {
    if !RECORDING.load(Relaxed) {
        // Callers are told apart also when no history is kept.
        return true;
    }
    define(&Definition::Module { number, address, bytes, path, build_id })
}

/// Defines a device, once.
pub fn define_device(device: i32) {
    static SEEN: AtomicU64 = AtomicU64::new(0);
    if !(0..64).contains(&device) || SEEN.fetch_or(1 << device, Relaxed) & 1 << device != 0 || !RECORDING.load(Relaxed)
    {
        return;
    }
    let (name, uuid) = (driver::device_name(device), driver::device_uuid(device));
    define(&Definition::Device {
        device: device as u32,
        bytes: driver::total_memory(device),
        name: name.as_bytes(),
        uuid: uuid.as_bytes(),
    });
}

/// Something that the reader of the history should know.
pub fn note(text: &str) {
    define(&Definition::Note { time: clock::raw(), message: text.as_bytes() });
}

/// A stack was not recorded because the table is full.
pub fn stack_refused() {
    static SAID: AtomicU32 = AtomicU32::new(0);
    if let Some(s) = spool() {
        s.count_stack_refused();
        if SAID.fetch_add(1, Relaxed) == 0 {
            note("the table of call stacks is full: new stacks are not recorded");
        }
    }
}

/// A context ended: its pinned, managed and pitched allocations with it.
pub fn ledger_drop_context(number: u16) {
    LEDGER.drop_context(number);
    usage::context_ended(number);
}
