//! The line of an out-of-memory: the state of memory when a request failed for good.

use serde::{Deserialize, Serialize};

/// [`Oom::what`] of a request that PyTorch's own allocator gave up.
pub const PYTORCH: &str = "PyTorch";

/// `{"kind":"oom",…}`. Bytes are of the device on which the request failed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Oom {
    /// Time.
    pub time: u64,
    /// Number of the thread that asked.
    pub thread: u32,
    /// CUDA ordinal of the device.
    pub device: u32,
    /// Who failed: the C function, or `PyTorch` for its own allocator.
    pub what: String,
    /// Bytes asked for; 0: not a request for so many bytes (a module's load, a launch).
    pub asked: u64,
    /// Bytes of the segment that PyTorch needs for it where none of its own has room, and which the driver refused.
    #[serde(skip_serializing_if = "is_none")]
    pub segment: u64,
    /// PyTorch's segments are expandable: the bytes are of pages mapped into one, fewer where its end is free.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub expandable: bool,
    /// Number of the call stack.
    #[serde(skip_serializing_if = "is_zero")]
    pub stack: u32,
    /// Bytes free on the device,
    pub free: u64,
    /// and in all.
    pub total: u64,
    /// The limit that was set for this process on the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<OomLimit>,
    /// Bytes of tensors in PyTorch's allocator,
    #[serde(skip_serializing_if = "is_none")]
    pub pytorch_active: u64,
    /// bytes that it keeps besides,
    #[serde(skip_serializing_if = "is_none")]
    pub pytorch_inactive: u64,
    /// and the largest piece of them.
    #[serde(skip_serializing_if = "is_none")]
    pub pytorch_largest: u64,
    /// Bytes of blocks in use in vramscope's pool,
    #[serde(skip_serializing_if = "is_none")]
    pub pool_active: u64,
    /// bytes that it keeps besides,
    #[serde(skip_serializing_if = "is_none")]
    pub pool_inactive: u64,
    /// and the largest piece of them.
    #[serde(skip_serializing_if = "is_none")]
    pub pool_largest: u64,
    /// Bytes taken from the driver past both, with its rounding to pages,
    #[serde(skip_serializing_if = "is_none")]
    pub outside: u64,
    /// by library, the largest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub libraries: Vec<Library>,
    /// Bytes that belong to none of it: context, modules, driver; and other processes where `others` is missing.
    pub rest: u64,
    /// Bytes of other processes, if the device tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub others: Option<u64>,
    /// Who holds most.
    pub holders: Vec<Holder>,
    /// What would help.
    pub advice: Vec<String>,
}

impl Oom {
    /// The segment that PyTorch's allocator needs for a tensor where it finds no room in those that it has (its
    /// kSmallBuffer, kLargeBuffer and kRoundLarge); 0: none. An expandable one grows by pages of the first two.
    pub fn segment_for(what: &str, asked: u64, expandable: bool) -> u64 {
        const MIB: u64 = 1 << 20;
        match asked {
            _ if what != PYTORCH => 0,
            0 => 0,
            small if small <= MIB => 2 * MIB,
            pages if expandable => pages.checked_next_multiple_of(20 * MIB).unwrap_or(pages),
            middle if middle < 10 * MIB => 20 * MIB,
            large => large.checked_next_multiple_of(2 * MIB).unwrap_or(large),
        }
    }

    /// Bytes that had to be free for it. (An older history does not tell of the segment.)
    pub fn needs(&self) -> u64 {
        self.asked.max(self.segment).max(Oom::segment_for(&self.what, self.asked, self.expandable))
    }

    /// The limit, if it was what refused.
    pub fn refused_by(&self) -> Option<&OomLimit> {
        self.limit.as_ref().filter(|l| self.asked > 0 && l.used.saturating_add(self.needs()) > l.bytes)
    }

    /// Bytes in use that a holder's share is told of, and where: what counts to the limit that refused, else what is used of
    /// the device.
    pub fn in_use(&self) -> (u64, &'static str) {
        match self.refused_by() {
            Some(limit) => (limit.used, "in use under the limit"),
            None => (self.total.saturating_sub(self.free), "in use on the GPU"),
        }
    }
}

/// A limit of the process, as it was then.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OomLimit {
    /// Bytes that the process may have,
    pub bytes: u64,
    /// and how much of it is in use.
    pub used: u64,
    /// What set it: `VRAMSCOPE_LIMIT`, `set_limit()`, `set_per_process_memory_fraction()` or `ctl limit`.
    pub by: String,
}

/// What a library took past the pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Library {
    /// Number of the module; 0: unknown.
    pub module: u32,
    /// Bytes.
    pub bytes: u64,
}

/// Live allocations of one place in the program.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Holder {
    /// Number of the call stack (of the largest part, where several look the same); 0: none.
    pub stack: u32,
    /// Number of the module that called; 0: unknown.
    #[serde(skip_serializing_if = "is_zero")]
    pub caller: u32,
    /// Bytes.
    pub bytes: u64,
    /// How many.
    pub count: u64,
    /// It grew all along.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grew: Option<Grew>,
}

/// How a holder grew while other memory was freed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Grew {
    /// Allocations that it had before.
    pub from: u64,
    /// More bytes since.
    pub bytes: u64,
    /// Nanoseconds since.
    pub since: u64,
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

fn is_none(n: &u64) -> bool {
    *n == 0
}
