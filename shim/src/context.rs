//! Contexts: which one a call is made in, and when its memory ends with it.
//!
//! A context is known by its handle and our own generation (a slot): a handle may come again after the context was
//! destroyed. Green contexts have handles of their own but share the primary context's memory and its events.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};

use vramscope_core::event::{Event, EventKind};
use vramscope_core::pool::ContextId;

use crate::cuda::{self, Context};
use crate::driver;
use crate::thread;
use crate::{pool, recorder, state};

/// Contexts alive at once that the pool serves; the memory of further ones is the driver's alone.
pub const MAX: usize = 64;

/// What is known of a context.
pub struct Slot {
    /// Its handle; 0: free slot.
    handle: AtomicUsize,
    /// Number in the history.
    number: AtomicU16,
    /// Device ordinal.
    device: AtomicI32,
    /// Bytes of its device.
    total: AtomicU64,
    /// Whether a stream other than the legacy default one was ever created.
    pub streams: AtomicBool,
    /// Memory was freed since the event was last recorded, with only the legacy default stream in use.
    pub deferred: AtomicBool,
    /// The event of its barrier; 0: none yet.
    pub event: AtomicUsize,
    /// Being reset or destroyed.
    dying: AtomicBool,
    /// Free bytes of the device at the last look,
    pub free_seen: AtomicU64,
    /// and when (raw clock).
    pub free_time: AtomicU64,
    /// Bytes taken from the driver since.
    pub taken: AtomicU64,
}

static SLOTS: [Slot; MAX] = [const {
    Slot {
        handle: AtomicUsize::new(0),
        number: AtomicU16::new(0),
        device: AtomicI32::new(0),
        total: AtomicU64::new(0),
        streams: AtomicBool::new(false),
        deferred: AtomicBool::new(false),
        event: AtomicUsize::new(0),
        dying: AtomicBool::new(false),
        free_seen: AtomicU64::new(0),
        free_time: AtomicU64::new(0),
        taken: AtomicU64::new(0),
    }
}; MAX];
/// Bumped whenever a slot changes hands, so that threads look again.
static EPOCH: AtomicU64 = AtomicU64::new(1);
static NEXT_NUMBER: AtomicU32 = AtomicU32::new(1);

/// What lifecycle calls need to be done one at a time; held across the real call, never taken by an allocation that hits.
struct Lifecycle {
    /// Handles that are green contexts.
    green: Vec<Context>,
    /// Streams created in a context before its first allocation: (handle).
    streamed: Vec<Context>,
}
static LIFECYCLE: Mutex<Lifecycle> = Mutex::new(Lifecycle { green: Vec::new(), streamed: Vec::new() });

fn lifecycle() -> std::sync::MutexGuard<'static, Lifecycle> {
    LIFECYCLE.lock().unwrap_or_else(|e| e.into_inner())
}

/// A context that calls can be served in.
#[derive(Clone, Copy)]
pub struct Current {
    /// Slot.
    pub id: ContextId,
}

impl Current {
    /// Its slot.
    pub fn slot(self) -> &'static Slot {
        slot(self.id)
    }
}

/// The slot of an id.
pub fn slot(id: ContextId) -> &'static Slot {
    &SLOTS[id.0 as usize % MAX]
}

impl Slot {
    /// Handle of the context that owns the memory.
    pub fn handle(&self) -> Context {
        self.handle.load(Relaxed)
    }
    /// Number in the history.
    pub fn number(&self) -> u16 {
        self.number.load(Relaxed)
    }
    /// Device ordinal.
    pub fn device(&self) -> i32 {
        self.device.load(Relaxed)
    }
    /// Bytes of its device.
    pub fn total(&self) -> u64 {
        self.total.load(Relaxed)
    }
    /// Whether it is being reset or destroyed.
    pub fn dying(&self) -> bool {
        self.dying.load(Relaxed)
    }
}

/// The current context of the calling thread; `None`: none is, or too many are alive.
#[inline]
pub fn current() -> Option<Current> {
    let handle = driver::current_context()?;
    let t = thread::current();
    if t.context.get() == handle && t.context_epoch.get() == EPOCH.load(Acquire) {
        return Some(Current { id: ContextId(t.context_slot.get().checked_sub(1)? as u16) });
    }
    current_slow(handle)
}

#[cold]
fn current_slow(handle: Context) -> Option<Current> {
    let t = thread::current();
    let mut lifecycle = lifecycle();
    let epoch = EPOCH.load(Acquire);
    let id = find(handle).or_else(|| register(&mut lifecycle, handle))?;
    drop(lifecycle);
    t.context.set(handle);
    t.context_epoch.set(epoch);
    t.context_slot.set(u32::from(id.0) + 1);
    Some(Current { id })
}

fn find(handle: Context) -> Option<ContextId> {
    SLOTS.iter().position(|s| s.handle.load(Acquire) == handle).map(|i| ContextId(i as u16))
}

/// First sight of the current context.
fn register(l: &mut Lifecycle, handle: Context) -> Option<ContextId> {
    let device = driver::current_device()?;
    if l.green.contains(&handle) {
        let primary = driver::primary_of(device)?;
        if primary != handle {
            let id = find(primary).or_else(|| insert(l, primary, device, true))?;
            slot(id).streams.store(true, Relaxed);
            return Some(id);
        }
    }
    let primary = driver::primary_of(device) == Some(handle);
    insert(l, handle, device, primary)
}

fn insert(l: &mut Lifecycle, handle: Context, device: i32, primary: bool) -> Option<ContextId> {
    // The pool may still be finishing calls about the last context of a slot.
    let free = |i: &usize| SLOTS[*i].handle.load(Relaxed) == 0 && pool::POOL.reopen(ContextId(*i as u16));
    let i = (0..MAX).find(free)?;
    let s = &SLOTS[i];
    let number = NEXT_NUMBER.fetch_add(1, Relaxed).min(u32::from(u16::MAX)) as u16;
    s.number.store(number, Relaxed);
    s.device.store(device, Relaxed);
    s.total.store(driver::total_memory(device), Relaxed);
    s.event.store(0, Relaxed);
    s.dying.store(false, Relaxed);
    s.deferred.store(false, Relaxed);
    s.free_time.store(0, Relaxed);
    s.taken.store(0, Relaxed);
    s.streams.store(l.streamed.contains(&handle), Relaxed);
    l.streamed.retain(|h| *h != handle);
    s.handle.store(handle, Release);
    recorder::define_device(device);
    recorder::event(&Event {
        kind: EventKind::Context,
        context: number,
        address: handle as u64,
        extra: [device as u64, u64::from(primary), 0],
        ..Event::default()
    });
    Some(ContextId(i as u16))
}

/// A stream other than the legacy default one was created in the current context. Returns the context if this is the first
/// (its frees needed no barrier so far; the caller issues one).
pub fn note_stream() -> Option<ContextId> {
    let handle = driver::current_context()?;
    let mut l = lifecycle();
    let id = find(handle).or_else(|| {
        // A green context's streams are its primary's; before the first allocation only the handle is known.
        let device = driver::current_device()?;
        if l.green.contains(&handle) { find(driver::primary_of(device)?) } else { None }
    });
    match id {
        Some(id) => (!slot(id).streams.swap(true, AcqRel)).then_some(id),
        None => {
            if !l.streamed.contains(&handle) {
                l.streamed.push(handle);
            }
            None
        }
    }
}

/// A handle that stands for a green context.
pub fn note_green(handle: Context) {
    let mut l = lifecycle();
    if !l.green.contains(&handle) {
        l.green.push(handle);
    }
    drop(l);
    if let Some(current) = driver::current_device().and_then(driver::primary_of).and_then(find) {
        slot(current).streams.store(true, Relaxed);
    }
}

/// Runs the call that may end the context of `handle`: the pool stops using it before, and forgets its memory after, if
/// `ended` says that it is gone. Calls that make or end contexts come one at a time, so that a context which another thread
/// brings back meanwhile is not taken for the old one.
pub fn ending(
    handle: Option<Context>,
    call: impl FnOnce() -> cuda::Result,
    ended: impl FnOnce(cuda::Result) -> bool,
) -> cuda::Result {
    let mut l = lifecycle();
    let id = handle.and_then(find);
    if let Some(id) = id {
        slot(id).dying.store(true, Release);
        pool::POOL.mark_dying(id);
    }
    let result = state::uncancelled(call);
    let gone = ended(result);
    if let Some(h) = handle.filter(|_| gone) {
        l.green.retain(|g| *g != h);
        l.streamed.retain(|g| *g != h);
    }
    let Some(id) = id else { return result };
    let s = slot(id);
    if gone {
        recorder::event(&Event {
            kind: EventKind::ContextEnd,
            context: s.number(),
            address: s.handle() as u64,
            ..Event::default()
        });
        pool::POOL.drop_context(id);
        recorder::ledger_drop_context(s.number());
        s.event.store(0, Relaxed);
        s.dying.store(false, Release);
        s.handle.store(0, Release);
    } else {
        s.dying.store(false, Release);
        pool::POOL.revive(id);
    }
    EPOCH.fetch_add(1, AcqRel);
    result
}

/// Runs a call that may make a context, one at a time with those that end one.
pub fn making(call: impl FnOnce() -> cuda::Result) -> cuda::Result {
    let _l = lifecycle();
    state::uncancelled(call)
}

/// The known contexts of a device.
pub fn of_device(device: i32) -> impl Iterator<Item = ContextId> {
    SLOTS
        .iter()
        .enumerate()
        .filter(move |(_, s)| s.handle.load(Relaxed) != 0 && s.device() == device)
        .map(|(i, _)| ContextId(i as u16))
}

/// All known contexts.
pub fn all() -> impl Iterator<Item = ContextId> {
    SLOTS.iter().enumerate().filter(|(_, s)| s.handle.load(Relaxed) != 0).map(|(i, _)| ContextId(i as u16))
}
