//! PyTorch's private pools, of its pluggable interface: memory that a CUDA graph uses at every launch is nobody else's until
//! the pool is released.

use std::sync::RwLock;
use std::sync::atomic::{AtomicUsize, Ordering::*};

use vramscope_core::event::TrimWhy;

use super::{Arena, new, streams};

/// PyTorch's name of a pool.
pub type PoolId = (u64, u64);

struct Private {
    device: i32,
    id: PoolId,
    arena: &'static Arena,
    /// Requests go to it now: those of streams that capture, and those of this thread.
    open: Option<u64>,
    released: bool,
}

static ALL: RwLock<Vec<Private>> = RwLock::new(Vec::new());
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn all_mut() -> std::sync::RwLockWriteGuard<'static, Vec<Private>> {
    ALL.write().unwrap_or_else(|e| e.into_inner())
}

/// Their arenas.
pub fn all() -> impl Iterator<Item = &'static Arena> {
    let list: Vec<&'static Arena> = ALL.read().unwrap_or_else(|e| e.into_inner()).iter().map(|p| p.arena).collect();
    list.into_iter()
}

/// Those of a device; nothing is looked at where there never was one.
#[inline]
pub fn some(device: i32) -> impl Iterator<Item = &'static Arena> {
    let any = COUNT.load(Relaxed) != 0;
    any.then(all).into_iter().flatten().filter(move |a| a.backing().device() == device)
}

/// Requests go to the pool from now on: those of streams that capture, and this thread's.
pub fn begin(device: i32, id: PoolId) {
    let mut list = all_mut();
    let open = Some(streams::me());
    if let Some(p) = list.iter_mut().find(|p| p.device == device && p.id == id) {
        p.open = open;
        p.released = false;
        p.arena.set_pinned(true);
        return;
    }
    // One that was released, and is empty by now, serves again.
    if let Some(p) = list.iter_mut().find(|p| p.device == device && p.released && p.arena.usage().allocated == 0) {
        p.arena.set_pinned(true);
        (p.id, p.open, p.released) = (id, open, false);
        return;
    }
    if let Some(arena) = new(device) {
        arena.set_pinned(true);
        list.push(Private { device, id, arena, open, released: false });
        COUNT.store(list.len(), Relaxed);
    }
}

/// No more of them do.
pub fn end(device: i32, id: PoolId) {
    for p in all_mut().iter_mut().filter(|p| p.device == device && p.id == id) {
        p.open = None;
    }
}

/// Nobody will launch what uses the pool: what is free of it goes back, the rest when it is freed.
pub fn release(device: i32, id: PoolId) {
    let mut gone = Vec::new();
    for p in all_mut().iter_mut().filter(|p| p.device == device && p.id == id) {
        (p.open, p.released) = (None, true);
        p.arena.set_pinned(false);
        gone.push(p.arena);
    }
    for arena in gone {
        super::trim(arena, 0, TrimWhy::Asked);
    }
}

/// The pool that a request of this thread goes to. `capturing`: its stream does.
pub fn of(device: i32, capturing: bool) -> Option<&'static Arena> {
    if COUNT.load(Relaxed) == 0 {
        return None;
    }
    let me = streams::me();
    let list = ALL.read().unwrap_or_else(|e| e.into_inner());
    let open = || list.iter().rev().filter(|p| p.device == device && p.open.is_some());
    if let Some(p) = open().find(|p| p.open == Some(me)) {
        return Some(p.arena);
    }
    // What captures may be a stream of another thread (autograd's). Where it may be of several pools it is of none: such
    // memory is the driver's.
    let mut others = open().filter(|_| capturing);
    let only = others.next()?;
    others.next().is_none().then_some(only.arena)
}
