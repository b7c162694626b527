//! What the page stacks over time: everything on a device is in exactly one layer.

/// A layer of a device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// What PyTorch's allocator gave out.
    Tensors,
    /// Blocks of the pool in use.
    Pool,
    /// Past both, in use: what libraries and the program took from the driver.
    Outside,
    /// What PyTorch keeps besides its tensors.
    TensorsInactive,
    /// What the pool keeps for reuse.
    PoolInactive,
    /// Freed blocks that still wait for the GPU.
    Waiting,
    /// What the driver charges above what was asked of it.
    Rounding,
    /// What the device says is used, less all of the above: context, modules, driver, other processes.
    Rest,
    /// Pinned and registered memory of the host. Not the device's: it has a timeline of its own.
    Host,
}

/// All layers, from the bottom up.
pub const LAYERS: [Layer; 9] = [
    Layer::Tensors,
    Layer::Pool,
    Layer::Outside,
    Layer::TensorsInactive,
    Layer::PoolInactive,
    Layer::Waiting,
    Layer::Rounding,
    Layer::Rest,
    Layer::Host,
];

/// Bytes of every layer.
pub type Sums = [u64; LAYERS.len()];

impl Layer {
    /// As the page calls it.
    pub fn name(self) -> &'static str {
        match self {
            Layer::Tensors => "PyTorch's tensors",
            Layer::Pool => "active in the pool",
            Layer::Outside => "outside, in use",
            Layer::TensorsInactive => "inactive in PyTorch",
            Layer::PoolInactive => "inactive in the pool",
            Layer::Waiting => "waiting for the GPU",
            Layer::Rounding => "driver's rounding",
            Layer::Rest => "context, modules, driver, other processes",
            Layer::Host => "pinned and registered host memory",
        }
    }
}

/// Everything together.
pub fn total(sums: &Sums) -> u64 {
    sums.iter().fold(0, |all, n| all.saturating_add(*n))
}

/// What somebody may use.
pub fn active(sums: &Sums) -> u64 {
    let layers = [Layer::Tensors, Layer::Pool, Layer::Outside, Layer::Host];
    layers.iter().fold(0, |all, l| all.saturating_add(sums[*l as usize]))
}
