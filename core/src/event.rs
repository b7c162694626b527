//! The words of the project: one [`Event`] is one thing that happened to GPU memory.
//!
//! An event is small and of fixed size, because a hook inside somebody's program writes it. Names are the field's:
//! CUDA's for the entry points and kinds of memory, PyTorch's for segments and blocks.

use crate::api::Api;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum EventKind {
    /// Memory was given to the program. Recorded after the call succeeded.
    Alloc = 1,
    /// Memory was given back by the program. Recorded before the call; a failure follows as [`EventKind::FreeFailed`].
    Free = 2,
    /// The pool took an allocation from the driver (a segment, in PyTorch's word).
    SegmentAlloc = 3,
    /// The pool gave an allocation back to the driver.
    SegmentFree = 4,
    /// A request failed; `code` is the CUresult the program was given.
    AllocFailed = 5,
    /// The free of `id` recorded before did not happen; `code` is the driver's answer.
    FreeFailed = 6,
    /// A free of something not live: double, interior or unknown. `id` is the allocation freed before, 0 if unknown.
    BadFree = 7,
    /// What the device said of itself: `bytes` free and `block` total, by the real `cuMemGetInfo`;
    /// `extra` = [pool active bytes, pool inactive bytes, 0].
    Sample = 8,
    /// A context was met first. `address` is its handle, `extra[0]` the device ordinal, `extra[1]` 1 if primary.
    Context = 9,
    /// A context ended, and with it all its plain, pinned and managed allocations.
    ContextEnd = 10,
    /// Idle pool memory was given back: `bytes` in `block` allocations; `code` says why (see [`TrimWhy`]).
    Trim = 11,
    /// A block left the pool for good (IPC, dma-buf, RDMA): its free will be the driver's.
    Export = 12,
    /// `cuMemMap`: `bytes` of handle `id` were mapped at `address`.
    Map = 13,
    /// `cuMemUnmap` of `bytes` at `address`.
    Unmap = 14,
    /// Counters of the pool since the start, see [`crate::counters`]: `extra` and `address`, `bytes`, `block`, `id` hold one page of them.
    Counters = 15,
    /// The program ended in good order (its exit handlers ran).
    Exit = 16,
    /// The program marked this moment: `extra[0]` is the number of a text.
    Mark = 17,
    /// The thread entered a region (a named stretch of its work), `id`, inside those it is in: `extra[0]` is the number of its name.
    RegionBegin = 18,
    /// The thread left the region `id`.
    RegionEnd = 19,
    /// The program paused recording: no tensors, stacks, marks and regions from here on.
    Pause = 20,
    /// They are recorded again.
    Resume = 21,
}

/// What kind of memory an event speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[repr(u8)]
pub enum Memory {
    /// Not an allocation.
    #[default]
    None = 0,
    /// Plain device memory (`cuMemAlloc`).
    Device = 1,
    /// Pitched device memory (`cuMemAllocPitch`).
    Pitch = 2,
    /// Managed memory (`cuMemAllocManaged`).
    Managed = 3,
    /// Pinned host memory (`cuMemHostAlloc`, `cuMemAllocHost`): not device memory.
    Pinned = 4,
    /// Host memory of the program, registered (`cuMemHostRegister`): not device memory.
    Registered = 5,
    /// Stream-ordered memory (`cuMemAllocAsync`, `cuMemAllocFromPoolAsync`).
    Async = 6,
    /// Physical memory of the virtual memory API (`cuMemCreate`). `address` is the handle.
    Vmm = 7,
    /// Memory of another process opened here (`cuIpcOpenMemHandle`, imports): counted to its owner.
    Imported = 8,
    /// A CUDA array.
    Array = 9,
    /// What PyTorch's own allocator gave out of memory that it holds (a tensor's storage): not memory of its own, but a part
    /// of an allocation of another kind.
    Tensor = 10,
}

impl Memory {
    /// Whether it goes with the context that it was asked for in. Stream-ordered memory is the device's, physical memory and
    /// what other processes own nobody's context's (measured: it outlives a reset of the device's primary one).
    pub fn dies_with_context(self) -> bool {
        !matches!(self, Memory::Vmm | Memory::Async | Memory::Imported)
    }

    /// Whether its bytes are on the device.
    pub fn on_device(self) -> bool {
        matches!(self, Memory::Device | Memory::Pitch | Memory::Managed | Memory::Async | Memory::Vmm | Memory::Array)
    }
}

/// Who served a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[repr(u8)]
pub enum Source {
    /// The driver, with the pool out of the way.
    #[default]
    Driver = 0,
    /// The pool, from a cached block: no driver call.
    Hit = 1,
    /// The pool, with a new segment from the driver.
    Miss = 2,
    /// The driver, because a stream was capturing.
    Capture = 3,
    /// The driver, because the caller is itself a caching pool (libc10_cuda).
    Hoarder = 4,
    /// The driver, because the request is a quarter of the device or more.
    Large = 5,
    /// The driver, because the device runs low: what is not rounded to a size class costs nothing more than natively.
    LowMemory = 6,
}

/// Why idle memory was given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum TrimWhy {
    /// Cached memory passed `VRAMSCOPE_MAX_CACHED`.
    MaxCached = 1,
    /// The device ran low on free memory.
    LowMemory = 2,
    /// Some allocation of the process failed.
    OutOfMemory = 3,
    /// Somebody asked (`empty_cache`).
    Asked = 4,
}

/// How a free was carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[repr(u8)]
pub enum FreeHow {
    /// By the driver: the memory went back to the device.
    #[default]
    Driver = 0,
    /// Kept by the pool; the only stream ever used needs no barrier.
    Cached = 1,
    /// Kept by the pool, after a device barrier (the GPU waits, not the host).
    CachedDevice = 2,
    /// Kept by the pool, after the host waited for all work of the context.
    CachedHost = 3,
}

/// One thing that happened. Field meaning depends a little on the kind; see [`EventKind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// Raw clock: TSC ticks or nanoseconds, as the header of the spool says. In a history: nanoseconds since its start.
    pub time: u64,
    /// Through which entry point.
    pub api: Api,
    /// Kind of memory.
    pub memory: Memory,
    /// Who served it (an allocation: [`Source`]; a free: [`FreeHow`], as numbers).
    pub how: u8,
    /// Number of the context (see [`EventKind::Context`]); 0: unknown or none.
    pub context: u16,
    /// CUresult, 0 for success; or a reason.
    pub code: u16,
    /// Number of the allocation or segment: pairs an allocation with its free. Never used again.
    pub id: u64,
    /// Device pointer, host pointer or handle.
    pub address: u64,
    /// Bytes asked for.
    pub bytes: u64,
    /// Bytes of the block that serves it (a size class of the pool); 0: the same as `bytes`.
    pub block: u64,
    /// Number of the call stack; 0: none.
    pub stack: u32,
    /// Number of the module that called; 0: unknown.
    pub caller: u32,
    /// `Alloc`: [segment id the block lies in, stream, nanoseconds the hook spent in driver calls].
    /// `Free`: [0, stream, nanoseconds spent in driver calls]. Other kinds: see there.
    pub extra: [u64; 3],
}

/// Words an event takes in a ring (the first is the slot's sequence).
pub const WORDS: usize = 12;

impl Default for Event {
    fn default() -> Self {
        Event {
            kind: EventKind::Exit,
            time: 0,
            api: Api::None,
            memory: Memory::None,
            how: 0,
            context: 0,
            code: 0,
            id: 0,
            address: 0,
            bytes: 0,
            block: 0,
            stack: 0,
            caller: 0,
            extra: [0; 3],
        }
    }
}

impl Event {
    /// The event as the words of a ring slot, without the sequence word.
    pub fn encode(&self) -> [u64; WORDS - 1] {
        let head = self.kind as u64
            | (self.api as u64) << 8
            | (self.memory as u64) << 16
            | u64::from(self.how) << 24
            | u64::from(self.context) << 32
            | u64::from(self.code) << 48;
        [
            head,
            self.time,
            self.id,
            self.address,
            self.bytes,
            self.block,
            u64::from(self.stack) | u64::from(self.caller) << 32,
            self.extra[0],
            self.extra[1],
            self.extra[2],
            0,
        ]
    }

    /// The event of such words; `None` if they hold no event (a torn or foreign slot).
    pub fn decode(w: &[u64; WORDS - 1]) -> Option<Event> {
        let head = w[0];
        Some(Event {
            kind: EventKind::from_number(head as u8)?,
            api: Api::from_number((head >> 8) as u8)?,
            memory: Memory::from_number((head >> 16) as u8)?,
            how: (head >> 24) as u8,
            context: (head >> 32) as u16,
            code: (head >> 48) as u16,
            time: w[1],
            id: w[2],
            address: w[3],
            bytes: w[4],
            block: w[5],
            stack: w[6] as u32,
            caller: (w[6] >> 32) as u32,
            extra: [w[7], w[8], w[9]],
        })
    }
}

macro_rules! numbered {
    ($t:ident { $($v:ident = $n:literal => $s:literal),* $(,)? }) => {
        impl $t {
            /// The variant of this number.
            pub fn from_number(n: u8) -> Option<Self> { match n { $($n => Some($t::$v),)* _ => None } }
            /// Its name in a history.
            pub fn name(self) -> &'static str { match self { $($t::$v => $s,)* } }
            /// The variant of this name.
            pub fn from_name(s: &str) -> Option<Self> { match s { $($s => Some($t::$v),)* _ => None } }
        }
    };
}

numbered!(EventKind {
    Alloc = 1 => "alloc", Free = 2 => "free", SegmentAlloc = 3 => "segment_alloc", SegmentFree = 4 => "segment_free",
    AllocFailed = 5 => "alloc_failed", FreeFailed = 6 => "free_failed", BadFree = 7 => "bad_free", Sample = 8 => "sample",
    Context = 9 => "context", ContextEnd = 10 => "context_end", Trim = 11 => "trim", Export = 12 => "export",
    Map = 13 => "map", Unmap = 14 => "unmap", Counters = 15 => "counters", Exit = 16 => "exit",
    Mark = 17 => "mark", RegionBegin = 18 => "region_begin", RegionEnd = 19 => "region_end",
    Pause = 20 => "pause", Resume = 21 => "resume",
});
numbered!(Memory {
    None = 0 => "none", Device = 1 => "device", Pitch = 2 => "pitch", Managed = 3 => "managed", Pinned = 4 => "pinned",
    Registered = 5 => "registered", Async = 6 => "async", Vmm = 7 => "vmm", Imported = 8 => "imported", Array = 9 => "array", Tensor = 10 => "tensor",
});
numbered!(Source {
    Driver = 0 => "driver", Hit = 1 => "hit", Miss = 2 => "miss", Capture = 3 => "capture", Hoarder = 4 => "hoarder",
    Large = 5 => "large", LowMemory = 6 => "low_memory",
});
numbered!(TrimWhy {
    MaxCached = 1 => "max_cached", LowMemory = 2 => "low_memory", OutOfMemory = 3 => "out_of_memory", Asked = 4 => "asked",
});
numbered!(FreeHow {
    Driver = 0 => "driver", Cached = 1 => "cached", CachedDevice = 2 => "cached_device", CachedHost = 3 => "cached_host",
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoding_keeps_every_field() {
        let e = Event {
            kind: EventKind::Alloc,
            time: u64::MAX,
            api: Api::CudaMalloc,
            memory: Memory::Device,
            how: Source::Hit as u8,
            context: u16::MAX,
            code: 999,
            id: 1 << 52,
            address: 0x7fff_ffff_f000,
            bytes: 1,
            block: 512,
            stack: u32::MAX,
            caller: 7,
            extra: [1, 2, 3],
        };
        assert_eq!(Event::decode(&e.encode()), Some(e));
        assert_eq!(Event::decode(&[0; WORDS - 1]), None);
    }
}
