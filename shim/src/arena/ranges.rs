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

/// Held by who changes them.
static CHANGING: Mutex<()> = Mutex::new(());

/// A range was reserved. `false`: there are too many.
pub fn add(base: u64, bytes: u64, arena: &'static Arena) -> bool {
    let _turn = CHANGING.lock().unwrap_or_else(|e| e.into_inner());
    let n = COUNT.load(Relaxed);
    // One that was given back, and came again: nothing else of it changes under who is looking.
    let same = |r: &&Range| r.base.load(Relaxed) == base && std::ptr::eq(r.arena.load(Relaxed), arena);
    if let Some(range) = RANGES[..n].iter().find(same) {
        range.end.store(base + bytes, Release);
        return true;
    }
    let Some(range) = RANGES.get(n) else { return false };
    range.base.store(base, Relaxed);
    range.end.store(base + bytes, Relaxed);
    range.arena.store(std::ptr::from_ref(arena).cast_mut(), Relaxed);
    COUNT.store(n + 1, Release);
    true
}

/// A range was given back: its addresses may be anybody's, the driver's own pool's for one.
pub fn remove(base: u64) {
    let _turn = CHANGING.lock().unwrap_or_else(|e| e.into_inner());
    let n = COUNT.load(Relaxed);
    RANGES[..n].iter().filter(|r| r.base.load(Relaxed) == base).for_each(|r| r.end.store(base, Release));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::Gpu;

    /// Many threads may ask for the first memory at once, and reserve more than the arena has use for.
    #[test]
    fn what_is_given_back_is_nobodys() {
        let arena = || -> &'static Arena { Box::leak(Box::new(Arena::new(Gpu::new(0), Default::default()))) };
        let (one, other) = (arena(), arena());
        let found = |p| find(p).map(std::ptr::from_ref);
        assert!(add(0x10000, 0x1000, one) && add(0x20000, 0x1000, other));
        assert_eq!(
            (found(0x10000), found(0x10fff), found(0x11000)),
            (Some(one as *const _), Some(one as *const _), None)
        );
        remove(0x10000);
        assert_eq!((found(0x10000), found(0x20fff)), (None, Some(other as *const _)));
        let count = COUNT.load(Relaxed);
        assert!(add(0x10000, 0x2000, one));
        assert_eq!((found(0x11fff), COUNT.load(Relaxed)), (Some(one as *const _), count));
        remove(0x10000);
        assert!(add(0x10000, 0x1000, other));
        assert_eq!(found(0x10800), Some(other as *const _));
    }
}
