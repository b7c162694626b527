//! Contexts: which one a call is made in, and when its memory ends with it.
//!
//! A context is known by its handle and our own generation (a slot): a handle may come again after the context was
//! destroyed. Green contexts have handles of their own but share the primary context's memory and its events.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};

use vramscope_core::event::{Event, EventKind};
use vramscope_core::pool::ContextId;

use crate::capture;
use crate::cuda::{self, Context};
use crate::devices::DEVICES;
use crate::driver;
use crate::thread;
use crate::{arena, devices, pool, recorder, state};

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
    /// A barrier is owed that could not be issued when the first stream was made (a stream of the process captured).
    pub owed: AtomicBool,
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
        owed: AtomicBool::new(false),
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

/// What must be known of handles that have no slot yet. Held for a look or a change only, never across a real call: a call
/// that ends a context may wait for the GPU, and what it waits for may be another thread's first allocation.
struct Unmet {
    /// Handles that are green contexts.
    green: Vec<Context>,
    /// Handles in which streams were created before the first allocation.
    streamed: Vec<Context>,
}
static UNMET: Mutex<Unmet> = Mutex::new(Unmet { green: Vec::new(), streamed: Vec::new() });

fn unmet() -> std::sync::MutexGuard<'static, Unmet> {
    UNMET.lock().unwrap_or_else(|e| e.into_inner())
}

/// One device's primary context.
struct Primary {
    /// Its handle, from the program's own retain.
    handle: AtomicUsize,
    /// Calls that retain, release or reset it come one at a time: a context that another thread brings back while a release
    /// ends it must not be taken for the old one.
    turn: Mutex<()>,
}
static PRIMARY: [Primary; DEVICES] = [const { Primary { handle: AtomicUsize::new(0), turn: Mutex::new(()) } }; DEVICES];

fn primary_slot(device: i32) -> Option<&'static Primary> {
    PRIMARY.get(usize::try_from(device).ok()?)
}

/// The handle of a device's primary context.
fn primary_of(device: i32) -> Option<Context> {
    match primary_slot(device).map_or(0, |p| p.handle.load(Acquire)) {
        // Retained past us, if at all.
        0 => driver::primary_of(device),
        handle => Some(handle),
    }
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
    /// Whether it is, or was: then its end tells of all that it had.
    pub fn is_ending(&self) -> bool {
        self.dying() || self.handle.load(Relaxed) == 0
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
    let epoch = EPOCH.load(Acquire);
    let id = find(handle).or_else(|| register(handle))?;
    t.context.set(handle);
    t.context_epoch.set(epoch);
    t.context_slot.set(u32::from(id.0) + 1);
    Some(Current { id })
}

/// A context of a device that need not be current: one that is known, or the primary one, if it is alive.
#[cold]
pub fn on(device: i32) -> Option<Current> {
    let known = of_device(device).find(|id| !slot(*id).is_ending());
    let id = known.or_else(|| insert(primary_of(device)?, device, true))?;
    Some(Current { id })
}

/// The slot of a handle.
pub fn find(handle: Context) -> Option<ContextId> {
    SLOTS.iter().position(|s| s.handle.load(Acquire) == handle).map(|i| ContextId(i as u16))
}

/// First sight of the current context.
fn register(handle: Context) -> Option<ContextId> {
    let device = driver::current_device()?;
    let primary = primary_of(device);
    let green = unmet().green.contains(&handle);
    if let Some(primary) = primary.filter(|p| green && *p != handle) {
        let id = insert(primary, device, true)?;
        slot(id).streams.store(true, Relaxed);
        return Some(id);
    }
    insert(handle, device, primary == Some(handle))
}

/// The slot of a handle: the one it has, or a new one.
fn insert(handle: Context, device: i32, primary: bool) -> Option<ContextId> {
    let total = driver::total_memory(device);
    let mut l = unmet();
    // Another thread may have met it meanwhile.
    if let Some(id) = find(handle) {
        return Some(id);
    }
    // The pool may still be finishing calls about the last context of a slot.
    let free = |i: &usize| {
        let s = &SLOTS[*i];
        s.handle.load(Relaxed) == 0 && !s.dying() && pool::POOL.reopen(ContextId(*i as u16))
    };
    let i = (0..MAX).find(free)?;
    let s = &SLOTS[i];
    let number = NEXT_NUMBER.fetch_add(1, Relaxed).min(u32::from(u16::MAX)) as u16;
    s.number.store(number, Relaxed);
    s.device.store(device, Relaxed);
    s.total.store(total, Relaxed);
    s.event.store(0, Relaxed);
    s.dying.store(false, Relaxed);
    s.deferred.store(false, Relaxed);
    s.owed.store(false, Relaxed);
    s.free_time.store(0, Relaxed);
    s.taken.store(0, Relaxed);
    s.streams.store(l.streamed.contains(&handle), Relaxed);
    l.streamed.retain(|h| *h != handle);
    // Before another thread can use the number, or be killed with the process when it has: what it means comes first.
    recorder::define_device(device);
    recorder::event(&Event {
        kind: EventKind::Context,
        context: number,
        address: handle as u64,
        extra: [device as u64, u64::from(primary), 0],
        ..Event::default()
    });
    devices::met(device);
    s.handle.store(handle, Release);
    drop(l);
    Some(ContextId(i as u16))
}

/// A stream other than the legacy default one was created in the current context. Returns the context if this is the first
/// (its frees needed no barrier so far; the caller issues one).
pub fn note_stream() -> Option<ContextId> {
    let handle = driver::current_context()?;
    let id = find(handle).or_else(|| {
        // A green context's streams are its primary's; before the first allocation only the handle is known.
        let green = unmet().green.contains(&handle);
        if green { find(primary_of(driver::current_device()?)?) } else { None }
    });
    match id {
        Some(id) => (!slot(id).streams.swap(true, AcqRel)).then_some(id),
        None => {
            let mut l = unmet();
            // Met by another thread since: then it is asked for its first stream after all.
            if let Some(id) = find(handle) {
                return (!slot(id).streams.swap(true, AcqRel)).then_some(id);
            }
            if !l.streamed.contains(&handle) {
                l.streamed.push(handle);
            }
            None
        }
    }
}

/// A handle that stands for a green context.
pub fn note_green(handle: Context) {
    let mut l = unmet();
    if !l.green.contains(&handle) {
        l.green.push(handle);
    }
    drop(l);
    if let Some(current) = driver::current_device().and_then(primary_of).and_then(find) {
        slot(current).streams.store(true, Relaxed);
    }
}

/// Carries out `cuCtxDestroy`. The handle means nothing from here on: the driver may give it to a new context before the
/// call has returned.
pub fn destroying(handle: Context, call: impl FnOnce() -> cuda::Result) -> cuda::Result {
    let Some(id) = find(handle) else {
        let result = call();
        if result == cuda::SUCCESS {
            forget(handle);
        }
        return result;
    };
    let s = slot(id);
    s.dying.store(true, Release);
    pool::POOL.mark_dying(id);
    arena::context_ending(id);
    s.handle.store(0, Release);
    EPOCH.fetch_add(1, AcqRel);
    let result = state::uncancelled(call);
    if result == cuda::SUCCESS {
        forget(handle);
        ended(id, handle);
    } else {
        s.handle.store(handle, Release);
        pool::POOL.revive(id);
        arena::context_stays(id);
    }
    s.dying.store(false, Release);
    EPOCH.fetch_add(1, AcqRel);
    result
}

/// Carries out a call that may end a device's primary context, and does if `over` says so of its result.
pub fn ending_primary(
    device: i32,
    call: impl FnOnce() -> cuda::Result,
    over: impl FnOnce(cuda::Result) -> bool,
) -> cuda::Result {
    let Some(primary) = primary_slot(device) else { return call() };
    let _turn = primary.turn.lock().unwrap_or_else(|e| e.into_inner());
    let handle = primary_of(device);
    let id = handle.and_then(find);
    if let Some(id) = id {
        slot(id).dying.store(true, Release);
        pool::POOL.mark_dying(id);
        arena::context_ending(id);
    }
    let result = state::uncancelled(call);
    let over = over(result);
    if let Some(handle) = handle.filter(|_| over) {
        forget(handle);
        primary.handle.store(0, Release);
    }
    if let (Some(id), Some(handle)) = (id, handle) {
        if over {
            ended(id, handle);
            slot(id).handle.store(0, Release);
        } else {
            pool::POOL.revive(id);
            arena::context_stays(id);
        }
        slot(id).dying.store(false, Release);
        EPOCH.fetch_add(1, AcqRel);
    }
    result
}

/// Carries out `cuDevicePrimaryCtxRetain`; `handle` reads its result.
pub fn retaining_primary(
    device: i32,
    call: impl FnOnce() -> cuda::Result,
    handle: impl FnOnce() -> Context,
) -> cuda::Result {
    let Some(primary) = primary_slot(device) else { return call() };
    let _turn = primary.turn.lock().unwrap_or_else(|e| e.into_inner());
    let result = state::uncancelled(call);
    if result == cuda::SUCCESS {
        primary.handle.store(handle(), Release);
    }
    result
}

/// A handle that is no context any more.
fn forget(handle: Context) {
    capture::forget_context(handle);
    let mut l = unmet();
    l.green.retain(|g| *g != handle);
    l.streamed.retain(|g| *g != handle);
}

/// The context is gone, and its plain, pinned and managed memory with it.
fn ended(id: ContextId, handle: Context) {
    let s = slot(id);
    let (context, address) = (s.number(), handle as u64);
    recorder::event(&Event { kind: EventKind::ContextEnd, context, address, ..Event::default() });
    pool::POOL.drop_context(id);
    recorder::ledger_drop_context(context);
    arena::context_ended(id);
    s.event.store(0, Relaxed);
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
