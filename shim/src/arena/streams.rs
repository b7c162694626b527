//! Streams by their numbers: how to record an event in one, and which context and device it is of.

use std::collections::BTreeMap;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

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

static ALL: RwLock<BTreeMap<u64, Known>> = RwLock::new(BTreeMap::new());
/// Changes when a stream goes: what threads remember is looked up again.
static EPOCH: AtomicU64 = AtomicU64::new(1);
static ANY: AtomicBool = AtomicBool::new(false);
/// Streams that the program made, by their handles.
static HANDLES: RwLock<BTreeMap<Stream, u64>> = RwLock::new(BTreeMap::new());

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
    ALL.write().unwrap_or_else(|e| e.into_inner()).insert(id, k);
    if handle > STREAM_PER_THREAD {
        HANDLES.write().unwrap_or_else(|e| e.into_inner()).insert(handle, id);
    }
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
    let all = ALL.read().unwrap_or_else(|e| e.into_inner());
    all.values().filter(|k| k.thread == me).map(|k| k.named.id).collect()
}

/// A stream by its number.
pub fn get(id: u64) -> Option<Known> {
    ALL.read().unwrap_or_else(|e| e.into_inner()).get(&id).copied()
}

/// The number of a stream that a program made, if memory was ever asked for it.
pub fn of_handle(handle: Stream) -> Option<u64> {
    HANDLES.read().unwrap_or_else(|e| e.into_inner()).get(&handle).copied()
}

/// A stream is gone.
pub fn forget(id: u64) {
    ALL.write().unwrap_or_else(|e| e.into_inner()).remove(&id);
    HANDLES.write().unwrap_or_else(|e| e.into_inner()).retain(|_, i| *i != id);
    EPOCH.fetch_add(1, AcqRel);
}

/// The streams of a context that ended.
pub fn forget_context(context: ContextId) -> Vec<u64> {
    let mut gone = Vec::new();
    ALL.write().unwrap_or_else(|e| e.into_inner()).retain(|id, k| {
        let ended = k.named.context == context;
        if ended {
            gone.push(*id);
        }
        !ended
    });
    HANDLES.write().unwrap_or_else(|e| e.into_inner()).retain(|_, id| !gone.contains(id));
    EPOCH.fetch_add(1, AcqRel);
    gone
}
