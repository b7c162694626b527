//! Stream-ordered requests that the arena serves, and frees of its blocks.

use vramscope_core::arena::{BadFree, Block, StreamId};
use vramscope_core::event::{Event, EventKind, Memory, Source, TrimWhy};
use vramscope_core::pool::ContextId;

use super::record_bad_free;
use crate::arena::{self, Arena, Named, Serves};
use crate::call::Call;
use crate::cuda::{self, DevicePtr, ERROR_INVALID_VALUE, Result, SUCCESS, Stream};
use crate::pool::{self, POOL};
use crate::upstream;
use crate::{capture, context, driver, recorder, settings, state, usage};

/// What is asked for.
pub struct Ask {
    /// Bytes.
    pub bytes: u64,
    /// The program's memory pool; 0: the device's current one.
    pub pool: usize,
    /// For work of this stream.
    pub stream: Stream,
    /// Whether its default stream is the thread's own.
    pub per_thread: bool,
    /// From this arena, whatever the pool,
    pub arena: Option<&'static Arena>,
    /// which is one of this device.
    pub device: i32,
}

/// Whether a stream captures, or why it can't be told. (The question costs nothing where none does.)
fn captures(stream: Stream, per_thread: bool) -> std::result::Result<bool, Result> {
    if capture::any() { driver::captures(stream, per_thread) } else { Ok(false) }
}

/// Whether a stream captures, or may.
pub fn is_capturing(stream: Stream, per_thread: bool) -> bool {
    captures(stream, per_thread) != Ok(false)
}

/// Serves a request; `None`: it is the driver's, after everything was given back if memory was short. An error: the answer
/// is the driver's already.
pub fn alloc(call: &Call, ask: &Ask) -> Option<std::result::Result<DevicePtr, Result>> {
    if state::exiting() || state::broken() || arena::faulted() {
        return None;
    }
    // Memory of a graph is the graph's: its nodes are the driver's business.
    let stream = match captures(ask.stream, ask.per_thread) {
        Ok(false) => match arena::forbidden().filter(|_| ask.arena.is_none()) {
            None => arena::named(ask.stream, ask.per_thread).ok()?,
            Some(r) => return Some(Err(r)),
        },
        // A number may not be asked for now. (A private pool serves one capture: its blocks come free with its end.)
        Ok(true) if ask.arena.is_some() => arena::capturing(ask.stream, ask.device)?,
        _ => return None,
    };
    arena::finish_put_off();
    if context::slot(stream.context).dying() {
        return None;
    }
    let (arena, owner) = match ask.arena {
        Some(arena) => (arena, 0),
        None => match arena::serves(stream.device, ask.pool) {
            Serves::Arena(owner) => (arena::made(stream.device)?, owner),
            Serves::Driver => return None,
        },
    };
    call.thread.driver_ns.set(0);
    let id = recorder::new_id();
    let block = allocated(arena, ask.bytes, stream, id)?;
    arena::note_alloc(arena, owner, &block);
    told(call, stream, &block);
    Some(Ok(block.address))
}

/// A block, if need be after everybody's cached memory went back and the device's work is done.
fn allocated(arena: &'static Arena, bytes: u64, stream: Named, id: u64) -> Option<Block> {
    let failed = match arena.alloc(bytes, StreamId(stream.id), id) {
        Ok(block) => return Some(block),
        Err(f) => f,
    };
    if arena.is_broken() {
        return None;
    }
    let _pressure = POOL.pressure();
    let mut tied = failed.tied;
    if pool::give_back(TrimWhy::OutOfMemory) > 0 {
        match arena.alloc(bytes, StreamId(stream.id), id) {
            Ok(block) => return Some(block),
            Err(f) => tied = f.tied,
        }
    }
    if (tied > 0 || arena::any_put_off()) && arena::settle(stream.device) {
        arena::trim_all(TrimWhy::OutOfMemory);
        if let Ok(block) = arena.alloc(bytes, StreamId(stream.id), id) {
            return Some(block);
        }
    }
    // The last word is the driver's.
    arena::trim_all(TrimWhy::OutOfMemory);
    None
}

fn told(call: &Call, stream: Named, block: &Block) {
    let slot = context::slot(stream.context);
    if settings::get().poison && !capture::any() {
        driver::fill_in(slot.handle(), stream.handle, block.address, upstream::FRESH, block.bytes);
    }
    let ns = call.thread.driver_ns.get();
    let how = if ns == 0 { Source::Hit } else { Source::Miss };
    if how == Source::Miss {
        arena::count_miss();
    }
    recorder::event(&Event {
        kind: EventKind::Alloc,
        api: call.api,
        memory: Memory::Async,
        how: how as u8,
        context: slot.number(),
        id: block.id,
        address: block.address,
        bytes: block.requested,
        block: block.bytes,
        stack: call.stack(),
        caller: call.caller,
        extra: [0, stream.id, ns],
        ..Event::default()
    });
    usage::note_in(slot.device(), stream.context);
    if how == Source::Miss {
        crate::room::look_sometimes(slot);
    }
}

/// The free of a block, before it happens.
fn freeing(call: &Call, block: &Block, id: ContextId, stream: u64) {
    recorder::event(&Event {
        kind: EventKind::Free,
        api: call.api,
        memory: Memory::Async,
        how: arena::KEPT as u8,
        id: block.id,
        context: context::slot(id).number(),
        stack: call.stack_of_free(),
        caller: call.caller,
        extra: [0, stream, 0],
        ..Event::default()
    });
}

fn bad(call: &Call, p: DevicePtr, why: BadFree) -> Result {
    let id = match why {
        BadFree::Interior { block } => block.id,
        BadFree::Unknown | BadFree::Double => 0,
    };
    record_bad_free(call, p, id, ERROR_INVALID_VALUE);
    ERROR_INVALID_VALUE
}

/// `cuMemFreeAsync` of a block of the arena.
pub fn free(call: &Call, arena: &'static Arena, p: DevicePtr, stream: Stream, per_thread: bool) -> Result {
    match captures(stream, per_thread) {
        Ok(false) => match arena::forbidden().map_or_else(|| arena::named(stream, per_thread), Err) {
            Ok(stream) => free_in(call, arena, p, stream),
            // An earlier fault, for one.
            Err(r) => r,
        },
        // A capture may free only what it allocated, and that is not the arena's.
        Ok(true) => ERROR_INVALID_VALUE,
        Err(r) => r,
    }
}

/// The same, in a stream that PyTorch may be capturing.
pub fn free_captured(call: &Call, arena: &'static Arena, p: DevicePtr, stream: Stream) -> Result {
    let stream = if is_capturing(stream, false) {
        arena::capturing(stream, arena.backing().device()).ok_or(cuda::ERROR_INVALID_CONTEXT)
    } else {
        arena::named(stream, false)
    };
    match stream {
        Ok(stream) => free_in(call, arena, p, stream),
        Err(r) => r,
    }
}

fn free_in(call: &Call, arena: &'static Arena, p: DevicePtr, stream: Named) -> Result {
    match arena.begin_free(p) {
        Err(why) => bad(call, p, why),
        Ok(free) => {
            let block = *free.block();
            freeing(call, &block, stream.context, stream.id);
            if settings::get().poison && !capture::any() {
                let handle = context::slot(stream.context).handle();
                driver::fill_in(handle, stream.handle, p, upstream::FREED, block.bytes);
            }
            arena::note_free(arena, &block);
            free.finish(StreamId(stream.id));
            SUCCESS
        }
    }
}

/// `cuMemFree` of a block of the arena: after all work of the context, as the barrier has it.
pub fn free_plain(call: &Call, arena: &'static Arena, p: DevicePtr) -> Result {
    if let Some(r) = arena::forbidden() {
        return r;
    }
    let free = match arena.begin_free(p) {
        Err(why) => return bad(call, p, why),
        Ok(free) => free,
    };
    // A free needs no current context.
    let device = || context::of_device(arena.backing().device()).next();
    let current = context::current().filter(|c| c.slot().device() == arena.backing().device());
    let Some(id) = current.map(|c| c.id).or_else(device) else { return cuda::ERROR_INVALID_CONTEXT };
    let block = *free.block();
    freeing(call, &block, id, 0);
    let r = arena::plain_free(id, arena, free);
    if r != SUCCESS {
        // It did not happen: the block is live again.
        recorder::event(&Event { kind: EventKind::FreeFailed, id: block.id, code: r as u16, ..Event::default() });
    }
    r
}
