//! What the pool asks of the driver. It is the pool's whole view of CUDA.

/// Contexts alive at once that are served; further ones are passed through untracked.
pub const MAX_CONTEXTS: usize = 64;

/// The number of a context: below [`MAX_CONTEXTS`], given by the caller. After
/// [`Pool::drop_context`](super::Pool::drop_context) it may name another context once
/// [`Pool::reopen`](super::Pool::reopen) has agreed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContextId(pub u16);

/// One driver allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its number, of [`Upstream::next_id`]; 0 for a direct block, which is no segment of the pool.
    pub id: u64,
    /// Where it begins.
    pub address: u64,
    /// The size the driver was asked for.
    pub bytes: u64,
    /// The context it was allocated in.
    pub context: ContextId,
}

/// How the work submitted so far was put before all later work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fence {
    /// Nothing was needed: only the default stream was ever used.
    NotNeeded,
    /// The device waits.
    Device,
    /// The host waited.
    Host,
    /// It can't be done here (capture, callback, old driver, error): the block must go back to the driver.
    Refused,
}

/// The driver, as the pool sees it. No lock of the pool is held while one of these runs,
/// but they must not call the pool's functions that take an upstream: a thread that gives memory back would wait for
/// itself.
///
/// Segments are told here, and not in the pool's answers, so that the caller can record them in the order in which
/// they happen and with the time they took.
pub trait Upstream {
    /// The driver's error; given back to the program unchanged.
    type Error: Copy;

    /// A real allocation, in the context (the current one). `segment` is 0 for a direct block.
    fn alloc(&self, context: ContextId, bytes: u64, segment: u64) -> Result<u64, Self::Error>;

    /// The real free; it may wait, and it may be of another context than the current one.
    fn free(&self, segment: &Segment) -> Result<(), Self::Error>;

    /// Whether the error says that the device is full, so that giving back idle memory may help.
    fn out_of_memory(error: Self::Error) -> bool;

    /// A number never given before and not 0, for a new segment.
    fn next_id(&self) -> u64;

    /// Orders everything submitted so far in the context before everything submitted later.
    fn fence(&self, context: ContextId) -> Fence;

    /// Bytes that must go back to the driver before `incoming` more may be kept; 0 keeps it. `inactive` are the bytes
    /// cached now in all contexts of the same device. The caller knows the limit and what the device has free.
    fn shed(&self, context: ContextId, inactive: u64, incoming: u64) -> u64 {
        let _ = (context, inactive, incoming);
        0
    }

    /// Whether two contexts share a device, and so its memory.
    fn same_device(&self, a: ContextId, b: ContextId) -> bool {
        a == b
    }

    /// A small number of the calling thread; threads of different numbers seldom share a lock.
    fn lane(&self) -> usize {
        0
    }
}
