//! Out of memory, explained at that moment: on stderr, and in the history.
//!
//! The writer thread knows what is live and is asked for it; it is waited for a little while and no longer. Without a
//! history, or with a writer that is stuck, the numbers of the device and the pool are said all the same. Called by hooks
//! of requests that failed for good, with no lock of ours held.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use std::time::Duration;

use crossbeam_channel::bounded;
use vramscope_core::api::Api;
use vramscope_core::event::Memory;
use vramscope_core::record::{Failure, Live, PYTORCH, Told, explain};
use vramscope_core::trace::OomLimit;

use crate::call::Call;
use crate::message::{self, Level};
use crate::writer::{self, Request};
use crate::{capture, context, driver, limit, nvml, pool, recorder, settings, stacks, state, thread, usage};

/// Explanations in full at once;
const AT_ONCE: u32 = 3;
/// then one in so many nanoseconds: a program may try sizes until one fits.
const BETWEEN: u64 = 60_000_000_000;
/// How long the writer is waited for.
const PATIENCE: Duration = Duration::from_millis(300);

/// What was explained last, and how often the same was asked for in vain since: a loop that tries again hears it once.
struct Heard {
    what: String,
    of: (u64, i32, u32, u32),
    at: u64,
    again: u32,
}

static HEARD: Mutex<Option<Heard>> = Mutex::new(None);

/// Who asked for what.
struct Asked<'a> {
    what: &'a str,
    bytes: u64,
    device: i32,
    stack: u32,
    caller: u32,
    pytorch: Option<Told>,
}

/// A request of a hook for device memory failed. One of PyTorch's allocator has not failed yet: it gives back what it can and
/// asks again, and says itself when it gives up. Its cudaMallocAsync backend asks once and says nothing.
#[cold]
pub fn of_request(call: &Call, memory: Memory, device: i32, bytes: u64, stack: u32) {
    if call.hoarder && memory != Memory::Async {
        return;
    }
    let what = if call.api == Api::None { "the driver" } else { call.api.name() };
    say(&Asked { what, bytes, device, stack, caller: call.caller, pytorch: None });
}

/// A call that needs some memory besides what it does failed (a module's load, a launch): its name in the driver.
#[cold]
pub fn of_call(what: &str) {
    if !state::started() {
        return;
    }
    state::guarded("out of memory", || {
        let device = driver::current_device().unwrap_or(0);
        let stack = if recorder::recording() { stacks::here(thread::current()) } else { 0 };
        say(&Asked { what, bytes: 0, device, stack, caller: 0, pytorch: None });
    });
}

/// PyTorch's allocator gave up.
#[cold]
pub fn of_pytorch(device: i32, bytes: u64, allocated: u64, reserved: u64, stack: u32) {
    let pytorch = Some(Told { allocated, reserved });
    say(&Asked { what: PYTORCH, bytes, device, stack, caller: 0, pytorch });
}

/// Whether it is time for one.
fn is_due() -> bool {
    static SAID: AtomicU32 = AtomicU32::new(0);
    static LAST: AtomicU64 = AtomicU64::new(0);
    let now = driver::now_ns();
    if SAID.load(Relaxed) < AT_ONCE && SAID.fetch_add(1, Relaxed) < AT_ONCE {
        LAST.store(now, Relaxed);
        return true;
    }
    let last = LAST.load(Relaxed);
    now.saturating_sub(last) >= BETWEEN && LAST.compare_exchange(last, now, Relaxed, Relaxed).is_ok()
}

impl Asked<'_> {
    fn key(&self) -> (u64, i32, u32, u32) {
        (self.bytes, self.device, self.stack, self.caller)
    }

    /// Whether it is what was explained last, less than a minute ago. (A lock that is held is not waited for here.)
    fn is_heard(&self) -> bool {
        let Ok(mut heard) = HEARD.try_lock() else { return false };
        let Some(last) = heard.as_mut() else { return false };
        let same = last.what == self.what && last.of == self.key();
        let is_heard = same && driver::now_ns().saturating_sub(last.at) < BETWEEN;
        last.again += u32::from(is_heard);
        is_heard
    }

    /// It is explained: how often the one before was asked for again.
    fn hears(&self) -> u32 {
        let Ok(mut heard) = HEARD.try_lock() else { return 0 };
        let now = Heard { what: self.what.to_owned(), of: self.key(), at: driver::now_ns(), again: 0 };
        heard.replace(now).map_or(0, |before| before.again)
    }
}

fn say(asked: &Asked<'_>) {
    crate::capi::failed(asked.device, asked.bytes);
    let heard = message::enabled(Level::Error);
    if state::exiting() || !heard && !recorder::recording() || asked.is_heard() || !is_due() {
        return;
    }
    let again = asked.hears();
    let failure = failure(asked);
    let mut text = match explained(&failure) {
        Some(text) => text,
        None => explain(&Live::default(), &failure).text,
    };
    if again > 0 {
        text += &format!("  (the request that was explained before this one failed {})\n", times(again));
    }
    if heard {
        message::block(&text);
    }
}

fn times(again: u32) -> String {
    if again == 1 { "once more".to_owned() } else { format!("{again} times more") }
}

/// By the writer thread, which also writes it into the history.
fn explained(failure: &Failure) -> Option<String> {
    if !recorder::recording() {
        return None;
    }
    let (to, from) = bounded(1);
    if !writer::ask(Request::Explain(Box::new(failure.clone()), to)) {
        return None;
    }
    from.recv_timeout(PATIENCE).ok()
}

/// What the device, the pool and NVML say.
fn failure(asked: &Asked<'_>) -> Failure {
    let slots = || context::of_device(asked.device);
    let (pool_active, pool_inactive) = pool::held(asked.device);
    let total = driver::total_memory(asked.device);
    let slot = slots().next().map(context::slot);
    // A capture of the process is not put at risk for it.
    let seen = slot.and_then(|s| if capture::any() { None } else { driver::memory_info_of(s.handle()) });
    let guess = || slot.map_or(0, |s| s.free_seen.load(Relaxed).saturating_sub(s.taken.load(Relaxed)));
    let users = nvml::users(&driver::device_uuid(asked.device));
    // Who is not told apart from the others is one of them.
    let users = users.filter(|u| u.own.is_some());
    Failure {
        thread: recorder::thread_number(),
        stack: asked.stack,
        caller: asked.caller,
        what: asked.what.to_owned(),
        asked: asked.bytes,
        device: asked.device as u32,
        name: driver::device_name(asked.device),
        free: seen.map_or_else(guess, |(free, _)| free),
        total: seen.map_or(total, |(_, total)| total),
        pool_active,
        pool_inactive,
        pytorch: asked.pytorch,
        process: users.and_then(|u| u.own),
        others: users.map(|u| u.others),
        other: users.and_then(|u| u.other),
        limit: limit::of(asked.device).map(|bytes| OomLimit {
            bytes,
            used: usage::reserved(asked.device),
            by: limit::by(asked.device).to_owned(),
        }),
        alloc_conf: [c"PYTORCH_CUDA_ALLOC_CONF", c"PYTORCH_ALLOC_CONF"].into_iter().find_map(settings::variable),
    }
}
