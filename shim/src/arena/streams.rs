//! Streams by their numbers: how to record an event in one, and which context and device it is of.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use vramscope_core::pool::ContextId;

use crate::cuda::{self, STREAM_LEGACY, STREAM_PER_THREAD, Stream};
use crate::{context, driver, thread};

/// A stream as a call of the program names it.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    /// The driver's number of it.
    pub id: u64,
    /// Its handle, for calls of this thread with its context current.
    pub handle: Stream,
    /// Its context.
    pub context: ContextId,
    /// Ordinal of its device.
    pub device: i32,
}

/// A stream that memory was asked for, or freed in.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// How a call names it. A default stream's handle means something in calls of its context only,
    pub named: Named,
    /// a thread's own default stream's only in calls of that thread; 0: not one.
    pub thread: u64,
    /// Its context's generation: the slot may be another's later.
    pub generation: u64,
}

/// All streams that are known.
struct Table {
    by_id: BTreeMap<u64, Known>,
    /// The numbers of those that the program made, by their handles.
    by_handle: BTreeMap<Stream, u64>,
}

static ALL: RwLock<Table> = RwLock::new(Table { by_id: BTreeMap::new(), by_handle: BTreeMap::new() });
/// Changes when a stream goes: what threads remember is looked up again.
static EPOCH: AtomicU64 = AtomicU64::new(1);
static ANY: AtomicBool = AtomicBool::new(false);

fn all() -> RwLockReadGuard<'static, Table> {
    ALL.read().unwrap_or_else(|e| e.into_inner())
}

fn all_mut() -> RwLockWriteGuard<'static, Table> {
    ALL.write().unwrap_or_else(|e| e.into_inner())
}

impl Table {
    fn forget(&mut self, id: u64) {
        let Some(k) = self.by_id.remove(&id) else { return };
        // The handle may be another stream's by now.
        if self.by_handle.get(&k.named.handle) == Some(&id) {
            self.by_handle.remove(&k.named.handle);
        }
    }
}

/// The stream that a call of the program names, which does not capture; or why there is none: the driver can't tell, or its
/// context is none that we serve.
#[inline]
pub fn named(stream: Stream, per_thread: bool) -> Result<Named, cuda::Result> {
    let t = thread::current();
    let epoch = EPOCH.load(Acquire);
    // A handle means another stream only after its stream was destroyed, which ends the epoch. A default stream's depends
    // on the context and the thread: it is asked for.
    if stream > STREAM_PER_THREAD && t.stream.get() == (stream as u64, epoch) {
        return Ok(Named {
            id: t.stream_id.get(),
            handle: stream,
            context: ContextId(t.stream_context.get()),
            device: t.stream_device.get(),
        });
    }
    named_slowly(stream, per_thread, epoch)
}

fn named_slowly(stream: Stream, per_thread: bool, epoch: u64) -> Result<Named, cuda::Result> {
    let id = driver::stream_id(stream, per_thread)?;
    let k = match get(id) {
        Some(k) => k.named,
        None => met(id, stream, per_thread).ok_or(cuda::ERROR_INVALID_CONTEXT)?.named,
    };
    let t = thread::current();
    t.stream.set((stream as u64, epoch));
    t.stream_id.set(id);
    t.stream_context.set(k.context.0);
    t.stream_device.set(k.device);
    Ok(k)
}

/// Stands for a stream whose number can't be asked for now, of a device: its work is over when the arena that serves it is
/// given up.
pub fn unnamed(device: i32) -> Option<Named> {
    let context = context::of_device(device).next()?;
    Some(Named { id: u64::MAX, handle: STREAM_LEGACY, context, device })
}

/// A stream of a device that captures, whose number can't be asked for now. It is known by its handle: what one captured stream
/// frees is not another's, for in the graph they may run side by side.
pub fn capturing(stream: Stream, device: i32) -> Option<Named> {
    // The driver's numbers are small. A thread's own default stream has no handle of its own.
    let id = if stream > STREAM_PER_THREAD { 1 << 63 | stream as u64 } else { 3 << 62 | me() };
    Some(Named { id, ..unnamed(device)? })
}

/// First sight of a stream.
fn met(id: u64, stream: Stream, per_thread: bool) -> Option<Known> {
    let handle = match stream {
        0 if per_thread => STREAM_PER_THREAD,
        0 => STREAM_LEGACY,
        s => s,
    };
    let owner = driver::stream_context(stream, per_thread)?;
    let current = driver::in_context(owner, context::current)?;
    let own = handle == STREAM_PER_THREAD;
    let k = Known {
        named: Named { id, handle, context: current.id, device: current.slot().device() },
        thread: if own { me() } else { 0 },
        generation: super::events::generation(current.id),
    };
    let mut table = all_mut();
    table.by_id.insert(id, k);
    if handle > STREAM_PER_THREAD {
        table.by_handle.insert(handle, id);
    }
    drop(table);
    ANY.store(true, Release);
    Some(k)
}

/// The calling thread, by a number that is never another's.
pub fn me() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let t = thread::current();
    if t.number.get() == 0 {
        t.number.set(NEXT.fetch_add(1, Relaxed));
    }
    t.number.get()
}

/// Whether any stream is known.
#[inline]
pub fn any() -> bool {
    ANY.load(Relaxed)
}

/// The default streams of the calling thread, which ends.
pub fn of_thread() -> Vec<u64> {
    let me = thread::current().number.get();
    if me == 0 || !any() {
        return Vec::new();
    }
    all().by_id.values().filter(|k| k.thread == me).map(|k| k.named.id).collect()
}

/// The streams of a device.
pub fn of_device(device: i32) -> Vec<u64> {
    all().by_id.values().filter(|k| k.named.device == device).map(|k| k.named.id).collect()
}

/// A stream by its number.
pub fn get(id: u64) -> Option<Known> {
    all().by_id.get(&id).copied()
}

/// The number of a stream that a program made, if memory was ever asked for it.
pub fn of_handle(handle: Stream) -> Option<u64> {
    all().by_handle.get(&handle).copied()
}

/// A stream is gone.
pub fn forget(id: u64) {
    all_mut().forget(id);
    EPOCH.fetch_add(1, AcqRel);
}

/// The streams of a context that ended.
pub fn forget_context(context: ContextId) -> Vec<u64> {
    let mut table = all_mut();
    let gone: Vec<u64> = table.by_id.values().filter(|k| k.named.context == context).map(|k| k.named.id).collect();
    gone.iter().for_each(|id| table.forget(*id));
    drop(table);
    EPOCH.fetch_add(1, AcqRel);
    gone
}
