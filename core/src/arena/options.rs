//! What can be set.

/// The grain of physical memory: 2 MiB.
pub const PAGE: u64 = 2 << 20;

/// PyTorch's `kLargeBuffer`: so much of a block that is never split may stay unused.
pub const UNUSED: u64 = 20 << 20;

/// The least of [`Options::max_split`], as in PyTorch: what is smaller than its large blocks would be of no use.
pub const LEAST_SPLIT: u64 = 20 << 20;

/// How an arena behaves. Sizes are bytes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Addresses reserved at once, rounded up to 2 MiB; a larger request gets a range of its own. Twice the device's
    /// memory leaves room to go around what is in the way.
    pub reserve: u64,
    /// The largest chunk of memory mapped by one call, at least 2 MiB; while little is mapped, and for small requests,
    /// chunks are smaller.
    pub chunk: u64,
    /// The smallest of them, at least 2 MiB: small chunks move more easily.
    pub least_chunk: u64,
    /// A request that has to be mapped is made of about so many chunks at most.
    pub parts: u64,
    /// Bytes of small blocks that each stream keeps at hand, outside of the shared part.
    pub front: u64,
    /// The most memory mapped; a request that would need more fails.
    pub limit: u64,
    /// Requests above this get blocks that are never split, and that serve only what leaves less than 20 MiB unused
    /// (PyTorch's `max_split_size_mb`).
    pub max_split: u64,
    /// Free memory goes back before growth that would pass this share of the limit, in thousandths; 0 is never
    /// (PyTorch's `garbage_collection_threshold`).
    pub gc_threshold: u32,
    /// Memory above this goes back when a stream or the device was synchronised
    /// (`CU_MEMPOOL_ATTR_RELEASE_THRESHOLD`).
    pub release_threshold: u64,
    /// Whether memory of other streams is used, at the price of a wait on the device, before more is mapped.
    pub steal_first: bool,
    /// Whether requests above 64 KiB go where the same requests of the last round went, if that is free; see `habit.rs`.
    pub repeat: bool,
    /// Requests of at least so many bytes may be stitched together from free chunks, before more is mapped. `u64::MAX`:
    /// never.
    pub stitch_above: u64,
    /// How many times the highest size ever mapped may be mapped again for stitched blocks, in use or not. Those unused for
    /// longest go. Only addresses and the driver's tables are spent.
    pub stitched: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            reserve: 256 << 30,
            chunk: 32 << 20,
            least_chunk: PAGE,
            parts: 64,
            front: 1 << 20,
            limit: u64::MAX,
            max_split: u64::MAX,
            gc_threshold: 0,
            release_threshold: u64::MAX,
            steal_first: true,
            repeat: true,
            stitch_above: u64::MAX,
            stitched: 8,
        }
    }
}

impl Options {
    pub(super) fn checked(mut self) -> Options {
        let whole = |n: u64, most: u64| n.clamp(PAGE, most).next_multiple_of(PAGE);
        self.reserve = whole(self.reserve, 1 << 46);
        self.chunk = whole(self.chunk, 1 << 40);
        self.least_chunk = whole(self.least_chunk, self.chunk);
        self.parts = self.parts.max(1);
        self
    }

    /// The size above which free memory goes back before growth.
    pub(super) fn collect_above(&self) -> u64 {
        match self.gc_threshold {
            0 => u64::MAX,
            share => (u128::from(self.limit) * u128::from(share) / 1000).min(u128::from(u64::MAX)) as u64,
        }
    }
}
