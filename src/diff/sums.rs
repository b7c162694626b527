//! What is held at one moment, layer by layer, with PyTorch's tensors in the place of the segments that they lie in.

use crate::report::tally::{LAYERS, Layer, Tally, Totals};

/// Sums at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Each layer.
    pub totals: Totals,
    /// Of the layers on the device: what PyTorch's allocator took to cut tensors from.
    pub segments: Tally,
}

impl Sums {
    /// Bytes on the device that somebody may use. `tensors`: PyTorch tells of its tensors, so what it keeps besides is not.
    pub fn active(&self, tensors: bool) -> u64 {
        let all = self.totals.active();
        if !tensors {
            return all;
        }
        all.saturating_sub(self.segments.bytes) + self.totals.layer(Layer::Tensor).bytes
    }

    /// Bytes taken from the driver.
    pub fn reserved(&self) -> u64 {
        self.totals.reserved()
    }

    /// Bytes that PyTorch keeps for reuse.
    pub fn cached(&self, tensors: bool) -> u64 {
        if tensors { self.segments.bytes.saturating_sub(self.totals.layer(Layer::Tensor).bytes) } else { 0 }
    }

    /// Bytes past the pool and PyTorch's allocator: what other libraries took for themselves.
    pub fn outside(&self, tensors: bool) -> u64 {
        let device = LAYERS.into_iter().filter(|l| l.on_device() && *l != Layer::Pool);
        let bytes: u64 = device.map(|l| self.totals.layer(l).bytes).sum();
        if tensors { bytes.saturating_sub(self.segments.bytes) } else { bytes }
    }
}

/// The most of something, and when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Most {
    /// Bytes.
    pub bytes: u64,
    /// When.
    pub time: u64,
    /// Everything then.
    pub sums: Sums,
}

impl Most {
    /// Takes a moment if it is more than the one before. Whether it was.
    pub fn see(&mut self, bytes: u64, time: u64, sums: &Sums) -> bool {
        let more = bytes > self.bytes;
        if more {
            *self = Most { bytes, time, sums: *sums };
        }
        more
    }

    /// The same of what is reserved. Of moments with as much, the one at which most of it was in use: when a segment
    /// comes, nothing is in it yet.
    pub fn see_reserved(&mut self, time: u64, sums: &Sums, tensors: bool) {
        let order = |bytes, sums: &Sums| (bytes, sums.active(tensors));
        if order(sums.reserved(), sums) > order(self.bytes, &self.sums) {
            *self = Most { bytes: sums.reserved(), time, sums: *sums };
        }
    }
}
