//! Call stacks by number: each distinct one is written to the history once.
//!
//! One flat lock-free table of {hash, number}. The full stack goes into the thread's ring first, then the number becomes
//! visible to others: an event can never name a stack that a recovered history lacks. When the table is nearly full it
//! refuses and counts, rather than loop.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

use crate::thread::Thread;
use crate::{modules, recorder, settings, unwind};

/// Frames of one stack at most.
pub const DEPTH: usize = 128;
const SLOTS: usize = 1 << 16;
const FULL: u32 = (SLOTS / 8 * 7) as u32;

struct Slot {
    hash: AtomicU64,
    /// The number and, above it, half of the hash: a slot may be emptied and taken again between two looks.
    number: AtomicU64,
}
static TABLE: [Slot; SLOTS] = [const { Slot { hash: AtomicU64::new(0), number: AtomicU64::new(0) } }; SLOTS];
static NEXT: AtomicU32 = AtomicU32::new(1);
static USED: AtomicU32 = AtomicU32::new(0);

/// The number of the calling thread's stack; 0: not recorded.
#[inline(never)]
pub fn here(t: &Thread) -> u32 {
    if !settings::get().native_stacks {
        return 0;
    }
    let mut frames = [0u64; DEPTH];
    // SAFETY: the state is this thread's and nobody else borrows it: `busy` keeps signal handlers out.
    let state = unsafe { &mut *t.stack.get() };
    // SAFETY: the walk bounds every read by the thread's stack.
    let got = unsafe { unwind::capture(state, &mut frames, modules::own_range()) };
    if got.len == 0 {
        return 0;
    }
    let hash = got.hash | 1;
    let mut i = (hash >> 48) as usize % SLOTS;
    loop {
        let s = &TABLE[i];
        let h = s.hash.load(Acquire);
        if h == hash {
            // Published last; while it is 0 another thread is still writing the same stack: write it once more.
            let n = s.number.load(Acquire);
            return if n >> 32 == hash >> 32 && n as u32 != 0 { n as u32 } else { define(&frames[..got.len]) };
        }
        if h == 0 {
            if USED.load(Relaxed) >= FULL {
                recorder::stack_refused();
                return 0;
            }
            if s.hash.compare_exchange(0, hash, AcqRel, Acquire).is_err() {
                continue;
            }
            USED.fetch_add(1, Relaxed);
            let n = define(&frames[..got.len]);
            s.number.store(u64::from(n) | hash >> 32 << 32, Release);
            return n;
        }
        i = (i + 1) % SLOTS;
    }
}

#[cold]
#[inline(never)]
fn define(frames: &[u64]) -> u32 {
    let mut packed = [0u64; DEPTH];
    let own = modules::own_range();
    let mut n = 0;
    // Ours stand between the runtime and its caller too: they never show.
    for f in frames.iter().filter(|f| !own.contains(&unwind::address(**f))) {
        packed[n] = modules::pack(*f);
        n += 1;
    }
    let number = NEXT.fetch_add(1, Relaxed);
    let cut = frames.len() == DEPTH;
    if recorder::define_stack(number, &packed[..n], cut) { number } else { 0 }
}

/// A library was unloaded, so the same addresses may come to mean another one: the table begins anew.
pub fn forget() {
    for s in &TABLE {
        s.hash.store(0, Release);
    }
    USED.store(0, Relaxed);
}
