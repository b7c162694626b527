//! Host sight: whether the host could see that a free no longer waits.
//!
//! The native free returns only when all work of the context is done. With a device barrier in its place the GPU keeps the
//! order, but a host that then looks at memory both can reach looks too early. So while the process has such memory of its
//! own, or has queued a host function, or shares memory with another process, `auto` keeps the wait.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

use vramscope_core::event::Memory;

use crate::ledger::Entry;

/// Pinned, registered and managed allocations of the program's own that are live.
static SHARED: AtomicU64 = AtomicU64::new(0);
/// A `__managed__` variable, a host function or an exported allocation was seen: for good.
static SEEN: AtomicBool = AtomicBool::new(false);

/// An allocation that the host can read appeared.
pub fn remember(e: &Entry) {
    if e.own && matches!(e.memory, Memory::Pinned | Memory::Registered | Memory::Managed) {
        SHARED.fetch_add(1, Release);
    }
}

/// It went.
pub fn forget(e: &Entry) {
    if e.own && matches!(e.memory, Memory::Pinned | Memory::Registered | Memory::Managed) {
        SHARED.fetch_sub(1, Release);
    }
}

/// A host function was queued, a managed variable found, memory exported.
pub fn seen() {
    SEEN.store(true, Release);
}

/// Whether the host could see a difference.
#[inline]
pub fn in_sight() -> bool {
    SHARED.load(Acquire) != 0 || SEEN.load(Acquire)
}
