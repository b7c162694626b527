//! An allocation that lives, and a segment: what it lies in.

use vramscope_core::event::Memory;

/// The number under which host memory is listed beside the devices.
pub const HOST: u32 = u32::MAX;

/// What an allocation is to the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// PyTorch's tensor.
    Tensor = 0,
    /// A block of the pool.
    Pool = 1,
    /// Plain memory of the driver, past PyTorch and the pool.
    Direct = 2,
    /// Stream-ordered, the driver's pool.
    Async = 3,
    /// Physical memory of the virtual memory API.
    Vmm = 4,
    /// Managed.
    Managed = 5,
    /// A CUDA array.
    Array = 6,
    /// Pinned or registered host memory.
    Host = 7,
}

/// The names of all kinds, by number.
pub const KINDS: [&str; 8] = [
    "tensor",
    "block of the pool",
    "direct",
    "stream-ordered",
    "virtual memory API",
    "managed",
    "array",
    "host memory",
];

/// A live allocation.
#[derive(Clone, Copy, Debug)]
pub struct Live {
    /// Its number.
    pub id: u64,
    /// Its device, or [`HOST`].
    pub device: u32,
    /// What it is; none: counted nowhere (another process's), or the memory that tensors are cut from.
    pub kind: Option<Kind>,
    /// Bytes of the block.
    pub bytes: u64,
    /// Bytes asked for.
    pub asked: u64,
    /// Where it is; 0: nowhere that could be drawn.
    pub address: u64,
    /// Since when.
    pub time: u64,
    /// Number of its stack, caller and the rest, see [`super::holders`].
    pub group: u32,
    pub(super) context: u16,
    pub(super) memory: Memory,
    pub(super) segment: u64,
    pub(super) rounding: u64,
    /// It is memory that PyTorch cuts tensors from.
    pub(super) torch: bool,
}

/// Where blocks lie: what the pool or PyTorch took from the driver, or a range of addresses with memory behind it.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// Its device.
    pub device: u32,
    /// Where it begins.
    pub address: u64,
    /// How long it is.
    pub bytes: u64,
    /// Since when.
    pub time: u64,
    /// Whose it is.
    pub whose: Whose,
    /// Where its memory lies first: it is a second mapping, for a block that is stitched together. 0: here.
    pub home: u64,
    pub(super) context: u16,
    pub(super) id: u64,
}

/// Whose segment it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Whose {
    /// The pool's.
    Pool = 0,
    /// PyTorch's.
    Torch = 1,
    /// Mapped by the virtual memory API.
    Mapped = 2,
    // 3: what lies in no segment, in the page.
    /// The pool's, of stream-ordered memory: pieces side by side, with blocks across them.
    Ordered = 4,
}

impl Live {
    /// The segment that it is, if tensors are cut from it.
    pub(super) fn segment(&self) -> Segment {
        Segment {
            device: self.device,
            address: self.address,
            bytes: self.bytes,
            time: self.time,
            whose: Whose::Torch,
            home: 0,
            context: self.context,
            id: self.id,
        }
    }
}
