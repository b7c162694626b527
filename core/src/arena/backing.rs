//! What the arena asks of the driver. It is the arena's whole view of CUDA.

/// A stream. A number names one stream for the whole life of the arena, also after the stream's end (CUDA's
/// `cuStreamGetId` gives such numbers): a number used again for another stream would pass for the old one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub u64);

/// The driver, as the arena sees it.
///
/// No lock of the arena is held while one of these runs: it may take milliseconds, and it may be called by several threads
/// at once. It must not call the arena. None may panic. Addresses and sizes are bytes, multiples of 2 MiB.
pub trait Backing: Sync {
    /// The driver's error; given back unchanged in [`Reason::Backing`](super::Reason::Backing).
    type Error: Copy;
    /// Physical memory that was mapped.
    type Chunk: Copy + Send;
    /// A point in a stream's work.
    type Event: Send + Sync;

    /// Reserves addresses without memory. The address is a multiple of 2 MiB, and the range meets no other.
    fn reserve(&self, bytes: u64) -> Result<u64, Self::Error>;

    /// Gives a whole reserved range back, after all its memory. Called when the arena is dropped, only.
    fn unreserve(&self, address: u64, bytes: u64);

    /// New physical memory at the address, which lies in a reserved range and has none. On an error nothing is mapped.
    fn map(&self, address: u64, bytes: u64) -> Result<Self::Chunk, Self::Error>;

    /// Makes what was mapped there just now, whole chunks without a gap, usable by all streams. (One call for many chunks:
    /// it is the dearest of the driver's, 28 of 39 us a chunk.) On an error they are unmapped.
    fn open(&self, address: u64, bytes: u64) -> Result<(), Self::Error>;

    /// Unmaps one chunk, as it was mapped, and gives the memory back. No work that was submitted touches it any more. On an
    /// error it must still be mapped and usable; if that can't be told, answer that it went well and leak it.
    fn unmap(&self, address: u64, bytes: u64, chunk: Self::Chunk) -> Result<(), Self::Error>;

    /// Maps a chunk once more, at an address that lies in a reserved range and has no memory; [`open`](Self::open) follows. On
    /// an error nothing is mapped there.
    fn alias(&self, address: u64, home: u64, bytes: u64, chunk: Self::Chunk) -> Result<(), Self::Error>;

    /// Unmaps what `alias` mapped. No work that was submitted touches it by that address any more.
    fn unalias(&self, address: u64, bytes: u64) -> Result<(), Self::Error>;

    /// A point after all work submitted to the stream so far. The stream exists: [`Arena::stream_ends`](super::Arena) was
    /// not called for it, or has not returned. (Of a stream that the backing does not know, because the program frees on one
    /// that it destroyed, the answer is `None`.) `None`: it can't be done now (the stream captures, an error); whatever
    /// hangs on that stream stays where it is.
    fn record(&self, stream: StreamId) -> Option<Self::Event>;

    /// Later work of the stream waits for the event; the host does not. The stream is the one that memory is being
    /// allocated for. `false`: it can't be done now, and nothing was changed.
    fn wait(&self, stream: StreamId, event: &Self::Event) -> bool;

    /// Whether all work before the event is done. `false` also when it can't be told.
    fn is_done(&self, event: &Self::Event) -> bool;

    /// The event is not needed any more, done or not.
    fn release(&self, event: Self::Event);
}
