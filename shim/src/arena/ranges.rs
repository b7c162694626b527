//! Which addresses are an arena's: looked at by every free, so a few loads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering::*};

use super::Arena;

/// Ranges of all arenas; one is usually enough.
const MOST: usize = 256;

struct Range {
    base: AtomicU64,
    end: AtomicU64,
    arena: AtomicPtr<Arena>,
}

static RANGES: [Range; MOST] =
    [const { Range { base: AtomicU64::new(0), end: AtomicU64::new(0), arena: AtomicPtr::new(std::ptr::null_mut()) } };
        MOST];
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// A range was reserved. `false`: there are too many.
pub fn add(base: u64, bytes: u64, arena: &'static Arena) -> bool {
    static ADDING: Mutex<()> = Mutex::new(());
    let _turn = ADDING.lock().unwrap_or_else(|e| e.into_inner());
    let n = COUNT.load(Relaxed);
    let Some(range) = RANGES.get(n) else { return false };
    range.base.store(base, Relaxed);
    range.end.store(base + bytes, Relaxed);
    range.arena.store(std::ptr::from_ref(arena).cast_mut(), Relaxed);
    COUNT.store(n + 1, Release);
    true
}

/// Whether anything was ever reserved.
#[inline]
pub fn any() -> bool {
    COUNT.load(Relaxed) != 0
}

/// Whose an address is.
#[inline]
pub fn find(p: u64) -> Option<&'static Arena> {
    let n = COUNT.load(Acquire);
    let range = RANGES[..n].iter().find(|r| (r.base.load(Relaxed)..r.end.load(Relaxed)).contains(&p))?;
    // SAFETY: an arena is never taken away.
    unsafe { range.arena.load(Relaxed).as_ref() }
}
