//! What each layer of memory holds on a device, so that nothing is counted twice.

use std::collections::{BTreeMap, HashSet};

use super::Failure;
use super::gaps::Gaps;
use crate::event::{EventKind, Memory};
use crate::record::live::{Group, Live};

/// The driver hands out pages of this size for anything above half of it.
const PAGE: u64 = 2 << 20;

/// Sums of a device.
#[derive(Clone, Debug, Default)]
pub(super) struct Books {
    /// PyTorch tells of its tensors.
    pub tensors: bool,
    /// Modules that are PyTorch's allocator.
    pytorch: HashSet<u32>,
    /// Bytes in tensors.
    pub pytorch_active: u64,
    /// Bytes that PyTorch keeps besides.
    pub pytorch_inactive: u64,
    /// Free pieces in what PyTorch holds.
    pub gaps: Gaps,
    /// Largest segment of the pool that holds nothing.
    pub pool_largest: u64,
    /// Past PyTorch and the pool, with rounding.
    pub outside: u64,
    /// The same by library, the largest first, without rounding.
    pub libraries: Vec<(u32, u64)>,
}

impl Books {
    pub(super) fn of(live: &Live, failure: &Failure) -> Books {
        let mut books = Books { tensors: failure.pytorch.is_some(), ..Books::default() };
        let here = |g: &&Group| live.device(g.context) == failure.device;
        for g in live.groups().iter().filter(here) {
            books.tensors |= g.memory == Memory::Tensor;
            if g.caller != 0 && live.known().file(g.caller).starts_with("libc10_cuda") {
                books.pytorch.insert(g.caller);
            }
        }
        let (mut tensors, mut segments) = (0u64, 0u64);
        let mut libraries: BTreeMap<u32, u64> = BTreeMap::new();
        for g in live.groups().iter().filter(here).filter(|g| g.count > 0) {
            match g.memory {
                Memory::Tensor => tensors = tensors.saturating_add(g.bytes),
                _ if g.pooled || !g.memory.on_device() => {}
                _ if books.is_segment(g.caller, g.memory) => segments = segments.saturating_add(g.bytes),
                _ => {
                    let library = libraries.entry(g.caller).or_default();
                    *library = library.saturating_add(g.bytes);
                }
            }
        }
        books.gaps = Gaps::of(live, failure.device, &books);
        match failure.pytorch {
            Some(told) => {
                books.pytorch_active = told.allocated;
                books.pytorch_inactive = told.reserved.saturating_sub(told.allocated);
            }
            None => {
                books.pytorch_active = tensors;
                books.pytorch_inactive = segments.saturating_sub(tensors);
            }
        }
        books.outside = libraries.values().fold(books.rounding(live, failure.device), |sum, n| sum.saturating_add(*n));
        books.libraries = libraries.into_iter().collect();
        books.libraries.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        books.pool_largest = pool_largest(live, failure.device);
        books
    }

    /// Whether an allocation is what PyTorch cuts tensors from. Stream-ordered memory is a tensor itself.
    pub(super) fn is_segment(&self, caller: u32, memory: Memory) -> bool {
        self.tensors && self.pytorch.contains(&caller) && matches!(memory, Memory::Device | Memory::Vmm)
    }

    /// What the driver charges above what was asked of it, outside PyTorch's segments (which are whole pages).
    fn rounding(&self, live: &Live, device: u32) -> u64 {
        let here = live.entries().map(|e| &e.event).filter(|e| live.device(e.context) == device);
        let pages = here.filter(|e| {
            e.memory.on_device()
                && e.kind == EventKind::Alloc
                && e.extra[0] == 0
                && !self.is_segment(e.caller, e.memory)
        });
        let over = |bytes: u64| bytes.checked_next_multiple_of(PAGE).map_or(0, |pages| pages - bytes);
        pages.filter(|e| e.bytes > PAGE / 2).map(|e| over(e.bytes)).sum()
    }
}

/// The largest segment of the pool with no block in use.
fn pool_largest(live: &Live, device: u32) -> u64 {
    let used: HashSet<u64> = live.entries().map(|e| e.event.extra[0]).filter(|s| *s != 0).collect();
    let segments = live.entries().map(|e| &e.event).filter(|e| e.kind == EventKind::SegmentAlloc);
    let idle = segments.filter(|e| !used.contains(&e.id) && live.device(e.context) == device);
    idle.map(|e| e.bytes).max().unwrap_or(0)
}
