//! What a device's memory adds up to, while it changes.

use super::layers::{Layer, Sums};

/// Sums of a device.
#[derive(Clone, Copy, Debug, Default)]
pub struct Account {
    /// Bytes of PyTorch's tensors.
    pub tensors: u64,
    /// Bytes that they are cut from.
    pub torch: u64,
    /// Bytes of the pool's blocks in use.
    pub pool: u64,
    /// Bytes of the pool's segments.
    pub segments: u64,
    /// Bytes past both.
    pub outside: u64,
    /// What the driver charges above all of it.
    pub rounding: u64,
    /// Bytes of the pool's blocks that wait for the GPU.
    pub waiting: u64,
    /// What the device said was used besides.
    pub rest: u64,
    /// Bytes of host memory.
    pub host: u64,
}

impl Account {
    /// The layers they make.
    pub fn sums(&self) -> Sums {
        let mut sums = Sums::default();
        let inactive = self.segments.saturating_sub(self.pool);
        let waiting = self.waiting.min(inactive);
        for (layer, bytes) in [
            (Layer::Tensors, self.tensors),
            (Layer::Pool, self.pool),
            (Layer::Outside, self.outside),
            (Layer::TensorsInactive, self.torch.saturating_sub(self.tensors)),
            (Layer::PoolInactive, inactive - waiting),
            (Layer::Waiting, waiting),
            (Layer::Rounding, self.rounding),
            (Layer::Rest, self.rest),
            (Layer::Host, self.host),
        ] {
            sums[layer as usize] = bytes;
        }
        sums
    }

    /// What is taken from the device, with rounding.
    pub fn ours(&self) -> u64 {
        let parts = [self.torch.max(self.tensors), self.segments.max(self.pool), self.outside, self.rounding];
        parts.iter().fold(0, |all, n| all.saturating_add(*n))
    }
}
