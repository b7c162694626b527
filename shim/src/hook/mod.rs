//! The hooks' bodies. Each is: decide (a fault of ours forwards) · the real call · record · return CUDA's code.

pub mod capture;
pub mod context;
pub mod device;
pub mod export;
mod in_capture;
pub mod lookup;
pub mod managed;
pub mod memory_pool;
pub mod ordered;
pub mod pinned;
pub mod retry;
pub mod served;
pub mod stream;
pub mod tensor;
pub mod truth;
pub mod vmm;
pub mod wait;

use vramscope_core::api::Api;
use vramscope_core::event::{Event, EventKind, Memory};

use crate::call::Call;
use crate::context as contexts;
use crate::cuda::{self, Result};
use crate::ledger::Entry;
use crate::{driver, limit, oom, pool, recorder, room, state, usage};

/// Records an allocation that is not the pool's, after it succeeded or failed, and remembers it in the ledger.
#[allow(clippy::too_many_arguments)]
fn record_alloc(
    call: &Call,
    place: Place,
    memory: Memory,
    key: u64,
    bytes: u64,
    stream: u64,
    result: Result,
    took: u64,
) {
    let (context, number) = (place.context, place.number());
    if result != cuda::SUCCESS {
        record_failure(call, memory, place, bytes, result);
        return;
    }
    let id = recorder::new_id();
    let entry = Entry {
        id,
        memory,
        context: number,
        count: 1,
        maps: 0,
        own: !call.runtime,
        bytes,
        device: place.device,
        hoarded: call.hoarder && memory.on_device(),
    };
    if let Some(stale) = recorder::LEDGER.insert(key, entry) {
        usage::gone(&stale);
        recorder::event(&Event { kind: EventKind::Free, id: stale.id, memory: stale.memory, ..Event::default() });
    }
    usage::born(&entry);
    recorder::event(&Event {
        kind: EventKind::Alloc,
        api: call.api,
        memory,
        context: number,
        id,
        address: key,
        bytes,
        stack: call.stack(),
        caller: call.caller,
        extra: [0, stream, took],
        ..Event::default()
    });
    if let Some(c) = context.filter(|_| memory.on_device()) {
        c.slot().taken.fetch_add(driver::charged(memory, bytes), std::sync::atomic::Ordering::Relaxed);
        room::look_sometimes(c.slot());
    }
}

/// Records a request that failed in the end.
fn record_failure(call: &Call, memory: Memory, place: Place, bytes: u64, result: Result) {
    pool::count_failure();
    usage::failed(place.device);
    let stack = call.stack();
    recorder::event(&Event {
        kind: EventKind::AllocFailed,
        api: call.api,
        memory,
        context: place.number(),
        code: result as u16,
        bytes,
        stack,
        caller: call.caller,
        ..Event::default()
    });
    if let Some(c) = place.context.filter(|_| result == cuda::ERROR_OUT_OF_MEMORY) {
        room::sample_now(c.slot());
    }
    if result == cuda::ERROR_OUT_OF_MEMORY && memory.on_device() {
        oom::of_request(call, memory, place.device.max(0), bytes, stack);
    }
}

/// Takes an allocation out of the ledger and records its free, before it happens.
fn record_free(call: &Call, key: u64, stream: u64) -> Option<Entry> {
    let e = recorder::LEDGER.remove(key)?;
    recorder::event(&Event {
        kind: EventKind::Free,
        api: call.api,
        memory: e.memory,
        context: e.context,
        id: e.id,
        stack: call.stack_of_free(),
        caller: call.caller,
        extra: [0, stream, 0],
        ..Event::default()
    });
    Some(e)
}

/// The free recorded before did not happen: puts it back and says so.
fn unfree(key: u64, e: Entry, result: Result) {
    recorder::LEDGER.insert(key, e);
    recorder::event(&Event { kind: EventKind::FreeFailed, id: e.id, code: result as u16, ..Event::default() });
}

/// A free of something that nobody knows, which the driver refused.
fn record_bad_free(call: &Call, address: u64, id: u64, result: Result) {
    pool::count_bad_free();
    recorder::event(&Event {
        kind: EventKind::BadFree,
        api: call.api,
        code: result as u16,
        id,
        address,
        stack: call.stack(),
        caller: call.caller,
        ..Event::default()
    });
}

/// A request that is only recorded.
struct Request {
    /// Name of the hook, for messages.
    what: &'static str,
    /// Its return address.
    from: usize,
    /// The entry point.
    api: Api,
    /// The kind of memory asked for.
    memory: Memory,
    /// Bytes asked for.
    bytes: u64,
    /// Stream of a stream-ordered request.
    stream: u64,
    /// Ordinal of the device that it names; `None`: that of the current context.
    device: Option<i32>,
}

/// Where memory is: seldom elsewhere than in the current context's device.
#[derive(Clone, Copy)]
struct Place {
    /// Ordinal of the device; -1: none.
    device: i32,
    /// A context of it, for the history.
    context: Option<contexts::Current>,
}

impl Place {
    fn current() -> Place {
        let context = contexts::current();
        Place { device: context.map_or(-1, |c| c.slot().device()), context }
    }

    /// Number of its context in the history.
    fn number(self) -> u16 {
        self.context.map_or(0, |c| c.slot().number())
    }

    /// On a device, if the program names one.
    fn on(device: Option<i32>) -> Place {
        let here = Place::current();
        match device {
            Some(d) if d != here.device => Place { device: d, context: contexts::on(d).or(here.context) },
            _ => here,
        }
    }
}

/// An allocating hook that is only recorded: the real call (again after a trim), then the record. `key` reads the result.
///
/// The real call is not inside a catch: exceptions and thread cancellation pass through it.
#[inline]
fn recorded_alloc(request: &Request, real: impl Fn() -> Result, key: impl Fn() -> u64) -> Result {
    if !state::active() {
        return real();
    }
    let limited = || if over_limit(request) { cuda::ERROR_OUT_OF_MEMORY } else { real() };
    let (result, took) = driver::timed(|| pool::retrying(limited));
    let Request { what, from, api, memory, bytes, stream, device } = *request;
    state::guarded(what, || {
        let call = Call::new(api, from);
        let key = if result == cuda::SUCCESS { key() } else { 0 };
        // A success without an address is a request for nothing. And the runtime asks before it has made the device's
        // context current, makes it so, and asks again: that is no failure.
        let again = result == cuda::ERROR_INVALID_CONTEXT && api != call.api;
        if !again && (result != cuda::SUCCESS || key != 0) {
            record_alloc(&call, Place::on(device), memory, key, bytes, stream, result, took);
        }
    });
    result
}

/// Whether a request would go past the limit of its device.
fn over_limit(request: &Request) -> bool {
    let device = || request.device.or_else(|| Some(contexts::current()?.slot().device()));
    request.memory.on_device() && device().is_some_and(|d| limit::refuses(d, request.bytes))
}

/// A freeing hook that is only recorded.
#[inline]
fn recorded_free(
    what: &'static str,
    from: usize,
    api: Api,
    key: u64,
    stream: u64,
    real: impl Fn() -> Result,
) -> Result {
    if !state::active() || key == 0 {
        return real();
    }
    let known = state::guarded(what, || record_free(&Call::new(api, from), key, stream)).flatten();
    let result = real();
    match known {
        Some(e) if result == cuda::SUCCESS => usage::gone(&e),
        Some(e) => {
            state::guarded(what, || unfree(key, e, result));
        }
        None if result != cuda::SUCCESS => {
            state::guarded(what, || record_bad_free(&Call::new(api, from), key, 0, result));
        }
        None => {}
    }
    result
}
