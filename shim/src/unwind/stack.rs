//! How far up a walk may read: the thread's stack, a fiber's, an alternate signal stack.
//!
//! Rules can be wrong and stacks damaged, so a walk reads only what the kernel said can be read.
//! Nothing is taken on trust: the thread's own stack is the readable memory that reaches without a
//! gap from the stack pointer to the stack's known top, asked for once; on any other stack each
//! page is asked for when it is needed.
//!
//! `pthread_getattr_np` is not used: it calls malloc, and in the main thread it reads
//! /proc/self/maps for a millisecond.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::memory::{PAGE, is_readable, is_readable_through, page_of};

/// The main thread's stack as the program started, or 0 if unknown.
static MAIN_TOP: AtomicU64 = AtomicU64::new(0);
/// A stack pointer further than this below its thread's top counts as another stack's.
const FARTHEST: u64 = 16 << 20;
/// How far a walk goes on a stack that isn't the thread's own.
const OTHER_SIZE: u64 = 8 << 20;
/// A stack pointer this little below another stack's known part belongs to it, too.
const SLACK: u64 = 64 << 10;

/// What a thread remembers about its stacks: plain numbers, all zero at first.
///
/// Belongs into the thread's state, which outlives each capture of the thread. Atomic only because
/// a signal handler may capture while its own thread does.
#[repr(C)]
#[derive(Default)]
pub struct ThreadStack {
    /// The known part of the thread's own stack: `low..high`, readable throughout.
    low: AtomicU64,
    high: AtomicU64,
    /// The part of another stack that was walked last, so that it isn't taken for the own one at
    /// each capture anew. A hint only.
    other_low: AtomicU64,
    other_high: AtomicU64,
}

/// What the thread's state, written in C, keeps room for.
const _: () = assert!(size_of::<ThreadStack>() == 32);

/// How far up the walk that goes on now may read.
pub(super) struct Bounds {
    /// Everything from the stack pointer to here can be read.
    pub(super) high: u64,
    /// `high` can be moved up to here.
    limit: u64,
    /// Not the thread's own stack.
    other: bool,
}

/// Notes the main thread's top: `__libc_stack_end`.
pub(super) fn set_main_top(stack_end: u64) {
    // Frames lie below; the kernel's arguments above it share its page.
    MAIN_TOP.store(page_of(stack_end) + PAGE, Relaxed);
}

impl ThreadStack {
    /// Knows nothing yet. The same as zeroed memory, which is what the library uses.
    #[cfg(test)]
    pub const fn new() -> ThreadStack {
        ThreadStack {
            low: AtomicU64::new(0),
            high: AtomicU64::new(0),
            other_low: AtomicU64::new(0),
            other_high: AtomicU64::new(0),
        }
    }

    /// The bounds for a walk from `sp`.
    #[inline(always)]
    pub(super) fn bounds(&self, sp: u64) -> Bounds {
        let high = self.high.load(Relaxed);
        if sp >= self.low.load(Relaxed) && sp < high {
            Bounds { high, limit: high, other: false }
        } else {
            self.look(sp)
        }
    }

    #[cold]
    #[inline(never)]
    fn look(&self, sp: u64) -> Bounds {
        let other_low = self.other_low.load(Relaxed);
        let known_other = sp >= other_low.saturating_sub(SLACK) && sp < self.other_high.load(Relaxed);
        if !known_other && let Some(high) = self.own(sp) {
            return Bounds { high, limit: high, other: false };
        }
        let page = page_of(sp);
        if !is_readable(page) {
            // Only a stack pointer from a damaged signal frame can be like this.
            return Bounds { high: sp, limit: sp, other: false };
        }
        if known_other {
            self.other_low.store(page.min(other_low), Relaxed);
        } else {
            self.other_low.store(page, Relaxed);
            self.other_high.store(page + PAGE, Relaxed);
        }
        Bounds { high: page + PAGE, limit: page.saturating_add(OTHER_SIZE), other: true }
    }

    /// The top of the thread's own stack, if `sp` is on it.
    fn own(&self, sp: u64) -> Option<u64> {
        let (low, high) = (self.low.load(Relaxed), self.high.load(Relaxed));
        if high != 0 {
            // It has grown, if nothing lies in between.
            let grown = sp < low && low - sp <= FARTHEST && is_readable_through(sp, low);
            return grown.then(|| {
                self.low.store(page_of(sp), Relaxed);
                high
            });
        }
        // glibc puts a thread's descriptor, which the thread pointer points to, at the top of the
        // thread's stack, also of one that the program provided; only the main thread's is elsewhere.
        // SAFETY: has no preconditions.
        let descriptor = unsafe { libc::pthread_self() } as u64 & !15;
        let tops = [MAIN_TOP.load(Relaxed), descriptor];
        let reaches = |&top: &u64| sp < top && top - sp <= FARTHEST && is_readable_through(sp, top);
        let top = tops.into_iter().find(reaches)?;
        // In this order: a signal handler that comes between sees an empty range.
        self.low.store(page_of(sp), Relaxed);
        self.high.store(top, Relaxed);
        Some(top)
    }
}

impl Bounds {
    /// Whether memory up to `end` can be read, which may move `high`.
    pub(super) fn reach(&mut self, end: u64) -> bool {
        if end > self.limit {
            return false;
        }
        while self.high < end {
            if !is_readable(self.high) {
                self.limit = self.high;
                return false;
            }
            self.high += PAGE;
        }
        true
    }

    /// Keeps what was learnt about a stack that isn't the thread's own.
    pub(super) fn remember(&self, stack: &ThreadStack) {
        if self.other {
            stack.other_high.fetch_max(self.high, Relaxed);
        }
    }
}
