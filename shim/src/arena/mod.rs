//! Stream-ordered memory of our own: an arena a device (`vramscope_core::arena`), over the driver's virtual memory.
//!
//! One a device and not one a context: the driver's stream-ordered memory belongs to the device's memory pool, and lives on
//! when a context ends. Virtual memory is the process's, and every context of a device may use it. PyTorch's private pools
//! (its pluggable interface, under CUDA graphs) are arenas of their own, so that nobody else is given what a graph will
//! write at its next launch.

mod access;
mod backing;
mod events;
mod memory_pools;
mod plain_free;
mod private;
mod ranges;
mod streams;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering::*};

use vramscope_core::arena::{self, Backing, Options, StreamId};
use vramscope_core::event::TrimWhy;
use vramscope_core::pool::{ContextId, Trimmed};

pub use backing::{Gpu, KEPT};
pub use memory_pools::{Attribute, Serves, attribute, created, destroyed, is_told, serves, set_access, set_attribute};
pub use memory_pools::{forget_current, note_alloc, note_free, pool_of, trim_to};
pub use plain_free::{any_put_off, finish_put_off, plain_free};
pub use private::{begin as begin_private, end as end_private, of as private_of, release as release_private};
pub use streams::{Named, capturing, named};

use crate::devices::DEVICES;
use crate::settings::{self, PoolMode};
use crate::{capture, context, driver, limit, pool, state};

/// An arena over a device.
pub type Arena = arena::Arena<Gpu>;

static ARENAS: [AtomicPtr<Arena>; DEVICES] = [const { AtomicPtr::new(std::ptr::null_mut()) }; DEVICES];
/// Requests that needed memory from the driver.
static MISSES: AtomicU64 = AtomicU64::new(0);

/// Whether requests of `cudaMallocAsync` are ours.
pub fn is_on() -> bool {
    settings::get().pool == PoolMode::On
}

/// The arena of a device, if it has one already.
#[inline]
pub fn of(device: i32) -> Option<&'static Arena> {
    let p = ARENAS.get(usize::try_from(device).ok()?)?.load(Acquire);
    // SAFETY: an arena that was made below is never taken away.
    unsafe { p.as_ref() }
}

/// The arena of a device, made at its first request. `None`: the driver lacks what it needs.
pub fn made(device: i32) -> Option<&'static Arena> {
    of(device).or_else(|| make(device))
}

#[cold]
fn make(device: i32) -> Option<&'static Arena> {
    static MAKING: Mutex<()> = Mutex::new(());
    let _turn = MAKING.lock().unwrap_or_else(|e| e.into_inner());
    if let Some(arena) = of(device) {
        return Some(arena);
    }
    let place = ARENAS.get(usize::try_from(device).ok()?)?;
    let new = new(device)?;
    place.store(std::ptr::from_ref(new).cast_mut(), Release);
    Some(new)
}

/// Smaller blocks are not stitched: they find room. (A transformer's training loop: 1.097 reserved bytes an active one
/// without; 1.054 from 16 MiB up, 1.027 from 4 MiB, no less from 2 MiB.)
const STITCH_ABOVE: u64 = 4 << 20;

/// One more arena of a device. It stays: blocks of it may be live as long as the process.
fn new(device: i32) -> Option<&'static Arena> {
    let total = driver::total_memory(device);
    if total == 0 || driver::granularity(device) != Some(arena::PAGE) {
        return None;
    }
    let s = settings::get();
    let mut options = Options::default();
    // A request waits for another stream's work only where there is no more memory: that work may be waiting, on the
    // device, for what this request is for. The driver's own pool does so, too (measured).
    options.steal_first = false;
    options.reserve = total.saturating_mul(if s.stitch { 4 } else { 2 });
    options.stitch_above = if s.stitch { STITCH_ABOVE } else { u64::MAX };
    options.limit = total;
    options.max_split = s.max_split_size;
    options.gc_threshold = gc_threshold(device, total);
    let arena: &'static Arena = Box::leak(Box::new(Arena::new(Gpu::new(device), options)));
    arena.backing().serves(arena);
    Some(arena)
}

/// VRAMSCOPE_GC_THRESHOLD in thousandths of the device. It is a share of what the process may have of it, as PyTorch's is.
fn gc_threshold(device: i32, total: u64) -> u32 {
    let allowed = limit::of(device).map_or(total, |limit| limit.min(total));
    let share = settings::get().gc_threshold * allowed as f64 / total.max(1) as f64;
    ((share * 1000.0) as u32).max(u32::from(share > 0.0))
}

/// The limit of a device was set.
pub fn limited(device: i32) {
    if any() && settings::get().gc_threshold > 0.0 {
        let threshold = gc_threshold(device, driver::total_memory(device));
        of_device(device).for_each(|a| a.set_gc_threshold(threshold));
    }
}

/// Whether there is any.
#[inline]
pub fn any() -> bool {
    ranges::any()
}

/// All arenas.
pub fn all() -> impl Iterator<Item = &'static Arena> {
    (0..DEVICES as i32).filter_map(of).chain(private::all())
}

/// The arenas of a device.
pub fn of_device(device: i32) -> impl Iterator<Item = &'static Arena> {
    of(device).into_iter().chain(private::all().filter(move |a| a.backing().device() == device))
}

/// The arena that an address lies in.
#[inline]
pub fn holding(p: u64) -> Option<&'static Arena> {
    ranges::find(p)
}

/// Bytes of a device's arenas, to the byte: in use, and kept. For what is rare.
pub fn counted(device: i32) -> (u64, u64) {
    let sums = of_device(device).map(|a| a.counts()).map(|c| (c.allocated.now, c.reserved.now));
    let (active, reserved) = sums.fold((0, 0), |(a, r), (active, reserved)| (a + active, r + reserved));
    (active, reserved.saturating_sub(active))
}

/// Bytes of a device's arenas: in use, and kept. A few loads; beside several streams true to 256 KiB a stream.
#[inline]
pub fn usage(device: i32) -> (u64, u64) {
    let (mut active, mut reserved) = (0, 0);
    for a in of(device).into_iter().chain(private::some(device)) {
        let u = a.usage();
        active += u.allocated;
        reserved += u.reserved;
    }
    (active, reserved.saturating_sub(active))
}

/// A request needed memory from the driver.
pub fn count_miss() {
    MISSES.fetch_add(1, Relaxed);
}

/// How many did.
pub fn misses() -> u64 {
    MISSES.load(Relaxed)
}

/// Gives back what no work touches, above so many bytes.
pub fn trim(arena: &Arena, keep: u64, why: TrimWhy) -> u64 {
    let before = arena.counts().trims;
    let bytes = driver::relaxed(|| arena.trim(keep));
    let blocks = arena.counts().trims.saturating_sub(before);
    pool::record_trim(&Trimmed { blocks: if bytes == 0 { 0 } else { blocks.max(1) }, bytes, failed: 0 }, why);
    bytes
}

/// Gives back everything that no work touches.
pub fn trim_all(why: TrimWhy) -> u64 {
    all().map(|a| trim(a, 0, why)).sum()
}

/// The same, and if there was too little of it, also what only work that is going on keeps back, by waiting for that.
pub fn give_back(why: TrimWhy) -> u64 {
    let given = trim_all(why);
    let kept = |a: &Arena| a.usage().reserved.saturating_sub(a.usage().allocated) >= arena::PAGE;
    if given > 0 || !(all().any(kept) || any_put_off()) {
        return given;
    }
    let mut devices: Vec<i32> = all().map(|a| a.backing().device()).collect();
    devices.dedup();
    for device in devices {
        settle(device);
    }
    trim_all(why)
}

/// Waits for the device's work, so that all of its free memory is free for anybody. `false`: it can't be done now.
pub fn settle(device: i32) -> bool {
    if capture::any() {
        return settle_beside_capture(device);
    }
    let marks: Vec<_> = of_device(device).map(|a| (a, a.mark())).collect();
    let done = driver::relaxed(|| {
        context::of_device(device).all(|id| driver::synchronize(context::slot(id).handle()) == crate::cuda::SUCCESS)
    });
    if done {
        marks.into_iter().for_each(|(a, mark)| a.all_synced(mark));
    }
    done
}

/// While a stream captures the device can't be waited for. Each stream that does not is, for itself. (Of one that does, what
/// it freed until then has an event: [`capture_begins`].)
fn settle_beside_capture(device: i32) -> bool {
    let mut waited = any_put_off();
    plain_free::finish_beside_capture(device, || {
        for a in of_device(device) {
            let mark = a.mark();
            for stream in streams::of_device(device) {
                let Some(event) = a.backing().record(StreamId(stream)) else { continue };
                if event.wait() {
                    a.stream_synced(StreamId(stream), mark);
                    waited = true;
                }
                a.backing().release(event);
            }
        }
    });
    waited
}

/// A stream is about to capture. No event can be recorded in it meanwhile, nor in those that join it: so now, in each that has
/// freed memory. (That is what a trim begins with.)
pub fn capture_begins() {
    all().for_each(|a| {
        driver::relaxed(|| a.trim(u64::MAX));
    });
}

/// What the driver answers to a call for memory where a capture forbids it to this thread, and spoils that capture by. The
/// arena needs no such call, so it asks a question that is forbidden in the same cases (measured), in the program's own mode.
pub fn forbidden() -> Option<crate::cuda::Result> {
    if !capture::any() {
        return None;
    }
    let id = context::current()?.id;
    let event = {
        let _using = events::using(id, events::generation(id))?;
        events::take(id)?
    };
    let answer = event.with(driver::query);
    event.put();
    answer.filter(|r| *r == crate::cuda::ERROR_STREAM_CAPTURE_UNSUPPORTED)
}

/// Set once a wait of the program's has told of a fault on the device: from then on every call of the driver fails, and what
/// a request is answered is the driver's business.
static FAULTED: AtomicBool = AtomicBool::new(false);

/// Whether the device's work has failed.
#[inline]
pub fn faulted() -> bool {
    FAULTED.load(Relaxed)
}

/// Looks at the result of a wait. CUDA's codes from 700 up tell of work that failed, and stay.
pub fn waited(result: crate::cuda::Result) {
    if (700..800).contains(&result) {
        FAULTED.store(true, Relaxed);
    }
}

/// A wait of the program's for a whole context or one stream: what it was for is free now. Memory above the cap goes back, as
/// the driver's own pool gives back what is above its release threshold.
pub fn synced(device: i32, call: impl FnOnce() -> crate::cuda::Result, stream: Option<u64>) -> crate::cuda::Result {
    let marks: Vec<_> = of_device(device).map(|a| (a, a.mark())).collect();
    let result = call();
    waited(result);
    if result != crate::cuda::SUCCESS || state::exiting() {
        return result;
    }
    for (arena, mark) in marks {
        match stream {
            Some(id) => arena.stream_synced(StreamId(id), mark),
            // Other contexts of the device were not waited for.
            None if context::of_device(device).nth(1).is_none() => arena.all_synced(mark),
            None => {}
        }
        shed_of(arena, device);
    }
    result
}

/// Gives back what is more than is to be kept over a wait of the program's. What the program said holds; where it said
/// nothing, some is kept for speed.
fn shed_of(arena: &Arena, device: i32) {
    let u = arena.usage();
    let keep = memory_pools::kept(device).unwrap_or_else(|| u.allocated.saturating_add(max_cached(device)));
    if u.reserved > keep {
        trim(arena, keep, TrimWhy::MaxCached);
    }
}

/// The same, of all.
pub fn shed() {
    all().for_each(|a| shed_of(a, a.backing().device()));
}

fn max_cached(device: i32) -> u64 {
    settings::get().max_cached.of(driver::total_memory(device))
}

/// A stream is about to be destroyed.
pub fn stream_ends(stream: usize) {
    let Some(id) = streams::of_handle(stream) else { return };
    driver::relaxed(|| all().for_each(|a| a.stream_ends(StreamId(id))));
    streams::forget(id);
}

/// The calling thread ends, and its own default streams with it.
pub fn thread_ends() {
    for id in streams::of_thread() {
        driver::relaxed(|| all().for_each(|a| a.stream_ends(StreamId(id))));
        streams::forget(id);
    }
}

/// Whether memory was ever asked for a stream.
#[inline]
pub fn knows_streams() -> bool {
    streams::any()
}

/// A context is being ended: from here on nothing is asked about its streams and events.
pub fn context_ending(id: ContextId) {
    events::stop(id);
}

/// It was not ended.
pub fn context_stays(id: ContextId) {
    events::resume(id);
}

/// It was ended, and its work with it, a fault of that too.
pub fn context_ended(id: ContextId) {
    FAULTED.store(false, Relaxed);
    events::ended(id);
    for stream in streams::forget_context(id) {
        for a in all() {
            a.stream_ends(StreamId(stream));
            a.stream_synced(StreamId(stream), a.mark());
        }
    }
}
