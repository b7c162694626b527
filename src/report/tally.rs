//! Sums: what a group of allocations, or a layer of memory, amounts to.

use vramscope_core::event::Memory;

/// Allocations counted and added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many.
    pub count: u64,
    /// Bytes of the blocks that serve them.
    pub bytes: u64,
    /// Bytes asked for.
    pub requested: u64,
}

impl Tally {
    /// One more. (Damaged histories hold numbers of any size.)
    pub fn add(&mut self, bytes: u64, requested: u64) {
        self.count += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        self.requested = self.requested.saturating_add(requested);
    }

    /// One less.
    pub fn take(&mut self, bytes: u64, requested: u64) {
        self.count = self.count.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
        self.requested = self.requested.saturating_sub(requested);
    }

    /// All of another tally too.
    pub fn merge(&mut self, other: Tally) {
        self.count += other.count;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.requested = self.requested.saturating_add(other.requested);
    }
}

/// A layer of memory: everything is in exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Layer {
    /// Blocks of the pool in use.
    Pool,
    /// Plain and pitched allocations of the driver.
    Direct,
    /// Stream-ordered.
    Async,
    /// Physical memory of the virtual memory API.
    Vmm,
    /// Managed.
    Managed,
    /// CUDA arrays.
    Array,
    /// Pinned host memory: not on the device.
    Pinned,
    /// Registered host memory: not on the device.
    Registered,
    /// Another process's memory: not ours to count.
    Imported,
    /// What PyTorch's allocator gave out, inside memory of the other layers.
    Tensor,
}

/// All layers, in the order a report shows them.
pub const LAYERS: [Layer; 10] = [
    Layer::Pool,
    Layer::Direct,
    Layer::Async,
    Layer::Vmm,
    Layer::Managed,
    Layer::Array,
    Layer::Pinned,
    Layer::Registered,
    Layer::Imported,
    Layer::Tensor,
];

impl Layer {
    /// The layer of an allocation of this kind.
    pub fn of(memory: Memory, pooled: bool) -> Layer {
        match memory {
            _ if pooled => Layer::Pool,
            Memory::None | Memory::Device | Memory::Pitch => Layer::Direct,
            Memory::Async => Layer::Async,
            Memory::Vmm => Layer::Vmm,
            Memory::Managed => Layer::Managed,
            Memory::Array => Layer::Array,
            Memory::Pinned => Layer::Pinned,
            Memory::Registered => Layer::Registered,
            Memory::Imported => Layer::Imported,
            Memory::Tensor => Layer::Tensor,
        }
    }

    /// Whether its bytes are this process's on the device, and not counted by another layer.
    pub fn on_device(self) -> bool {
        !matches!(self, Layer::Pinned | Layer::Registered | Layer::Imported | Layer::Tensor)
    }

    /// As a report calls it.
    pub fn name(self) -> &'static str {
        match self {
            Layer::Pool => "pool",
            Layer::Direct => "direct",
            Layer::Async => "stream-ordered",
            Layer::Vmm => "virtual memory API",
            Layer::Managed => "managed",
            Layer::Array => "arrays",
            Layer::Pinned => "pinned host memory",
            Layer::Registered => "registered host memory",
            Layer::Imported => "other processes' memory",
            Layer::Tensor => "PyTorch's tensors",
        }
    }
}

/// The sums of all layers at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    layers: [Tally; LAYERS.len()],
    /// What the pool holds from the driver.
    pub segments: Tally,
    /// Bytes the driver charges above what was asked of it, because it hands out whole pages.
    pub rounding: u64,
}

impl Totals {
    /// The sum of a layer.
    pub fn layer(&self, layer: Layer) -> Tally {
        self.layers[layer as usize]
    }

    /// The same, to change.
    pub fn layer_mut(&mut self, layer: Layer) -> &mut Tally {
        &mut self.layers[layer as usize]
    }

    /// Device bytes that somebody may use.
    pub fn active(&self) -> u64 {
        self.device().bytes
    }

    /// Device allocations that somebody may use.
    pub fn device(&self) -> Tally {
        let mut sum = Tally::default();
        for layer in LAYERS.into_iter().filter(|l| l.on_device()) {
            sum.merge(self.layer(layer));
        }
        sum
    }

    /// Bytes of the pool. (In the later part of a rotated history its segments may not be known.)
    pub fn pool_reserved(&self) -> u64 {
        self.segments.bytes.max(self.layer(Layer::Pool).bytes)
    }

    /// Bytes the pool keeps for reuse.
    pub fn inactive(&self) -> u64 {
        self.pool_reserved() - self.layer(Layer::Pool).bytes
    }

    /// Device bytes taken from the driver.
    pub fn reserved(&self) -> u64 {
        self.active().saturating_add(self.inactive())
    }
}
