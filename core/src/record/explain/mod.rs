//! Why a request found no memory: from what is live and what the device and the pool say of themselves, to lines for a
//! person, at that moment.
//!
//! Everything said is a number that the state or the [`Failure`] holds; what is not known is not said.

use super::live::Live;
pub use crate::trace::PYTORCH;
use crate::trace::{Grew, Holder, Library, Oom, OomLimit};

mod advice;
mod books;
mod gaps;
mod holders;
mod say;

use books::Books;
use holders::Held;

/// A request that failed for good, and what was known then.
#[derive(Clone, Debug, Default)]
pub struct Failure {
    /// Number of the thread that asked.
    pub thread: u32,
    /// Number of its call stack.
    pub stack: u32,
    /// Number of the module that called.
    pub caller: u32,
    /// The C function, or [`PYTORCH`].
    pub what: String,
    /// Bytes asked for; 0: the call is no request for so many bytes.
    pub asked: u64,
    /// CUDA ordinal of the device.
    pub device: u32,
    /// Its name, if the history does not hold it.
    pub name: String,
    /// Bytes free on it,
    pub free: u64,
    /// and in all.
    pub total: u64,
    /// Bytes of the pool's blocks in use on it,
    pub pool_active: u64,
    /// and of those it keeps besides.
    pub pool_inactive: u64,
    /// What PyTorch told of its allocator.
    pub pytorch: Option<Told>,
    /// Bytes that the device says this process uses, if it tells.
    pub process: Option<u64>,
    /// Bytes of other processes, if it tells.
    pub others: Option<u64>,
    /// The largest of them: process id and bytes.
    pub other: Option<(u32, u64)>,
    /// The limit of this process on the device.
    pub limit: Option<OomLimit>,
    /// `PYTORCH_CUDA_ALLOC_CONF`, as it was set.
    pub alloc_conf: Option<String>,
}

impl Failure {
    /// Its settings without blanks.
    fn settings(&self) -> String {
        self.alloc_conf.as_deref().unwrap_or("").chars().filter(|c| !c.is_whitespace()).collect()
    }

    /// Whether PyTorch's segments are expandable.
    fn expandable(&self) -> bool {
        self.settings().to_ascii_lowercase().contains("expandable_segments:true")
    }
}

/// What PyTorch's allocator tells of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Bytes in tensors.
    pub allocated: u64,
    /// Bytes held from the driver.
    pub reserved: u64,
}

/// An explanation.
#[derive(Clone, Debug, Default)]
pub struct Explanation {
    /// As the history holds it.
    pub oom: Oom,
    /// For a person: lines of at most 100 columns, ended by newlines.
    pub text: String,
}

/// Holders that are listed.
const HOLDERS: usize = 10;
/// Libraries that are listed.
const LIBRARIES: usize = 5;

/// Explains a failed request from what is live.
pub fn explain(live: &Live, failure: &Failure) -> Explanation {
    let books = Books::of(live, failure);
    let mut held = holders::of(live, failure.device, &books);
    held.truncate(HOLDERS);
    holders::name(live, &mut held);
    let used = failure.total.saturating_sub(failure.free);
    // (Sizes are the program's, and may be anything.)
    let known = [
        books.pytorch_active,
        books.pytorch_inactive,
        failure.pool_active,
        failure.pool_inactive,
        books.outside,
        failure.others.unwrap_or(0),
    ];
    let rest = known.into_iter().fold(used, u64::saturating_sub);
    let mut oom = Oom {
        time: 0,
        thread: failure.thread,
        device: failure.device,
        what: failure.what.clone(),
        asked: failure.asked,
        segment: Oom::segment_for(&failure.what, failure.asked, failure.expandable()),
        expandable: failure.what == PYTORCH && failure.expandable(),
        stack: failure.stack,
        free: failure.free,
        total: failure.total,
        limit: failure.limit.clone(),
        pytorch_active: books.pytorch_active,
        pytorch_inactive: books.pytorch_inactive,
        pytorch_largest: books.gaps.largest.min(books.pytorch_inactive),
        pool_active: failure.pool_active,
        pool_inactive: failure.pool_inactive,
        pool_largest: books.pool_largest.min(failure.pool_inactive),
        outside: books.outside,
        libraries: books.libraries.iter().take(LIBRARIES).map(|&(module, bytes)| Library { module, bytes }).collect(),
        rest,
        others: failure.others,
        holders: held.iter().map(Held::line).collect(),
        advice: Vec::new(),
    };
    oom.advice = advice::of(live, failure, &oom, &books, &held);
    let text = say::text(live, failure, &oom, &held);
    Explanation { oom, text }
}

impl Held {
    fn line(&self) -> Holder {
        let grew = self.growth.filter(|g| g.busy).map(|g| Grew { from: g.count, bytes: g.bytes, since: g.since });
        Holder { stack: self.stack, caller: self.caller, bytes: self.bytes, count: self.count, grew }
    }
}
