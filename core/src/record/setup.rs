//! What a spool is set up with, and why words may be none.

use std::fmt;

/// Version of the spool's layout.
pub(super) const LAYOUT: u64 = 1;

/// What the raw times of events are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockKind {
    /// Nanoseconds of CLOCK_MONOTONIC.
    Monotonic,
    /// Ticks of the processor's time stamp counter.
    Tsc,
}

/// What [`super::Spool::format`] writes down.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Rings in the spool: threads that can record at the same time.
    pub rings: usize,
    /// Slots a ring, a power of two.
    pub slots: usize,
    /// How many rings are backed by memory from the start.
    pub usable_rings: usize,
    /// Process id.
    pub pid: u32,
    /// When the process started (field 22 of /proc/pid/stat): tells a recycled pid.
    pub start_time: u64,
    /// What raw times are.
    pub clock: ClockKind,
    /// Ticks a second if known, else 0. Used only when the process was killed before a second anchor was taken.
    pub ticks_per_second: u64,
    /// The raw clock at time zero.
    pub zero_raw: u64,
    /// CLOCK_MONOTONIC at time zero, in nanoseconds.
    pub zero_ns: u64,
}

/// Why these words are not a spool that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpoolError {
    /// No magic: some other file.
    Foreign,
    /// Written by another version.
    Version(u64),
    /// Fewer words than its own head says.
    Cut {
        /// Words it should have.
        needed: usize,
        /// Words it has.
        found: usize,
    },
    /// Numbers of rings or slots that cannot be.
    Shape,
}

impl fmt::Display for SpoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpoolError::Foreign => f.write_str("this is not a spool of vramscope (or it was never set up)"),
            SpoolError::Version(v) => {
                write!(f, "the spool has layout {v}, this version knows {LAYOUT}: use the vramscope that recorded it")
            }
            SpoolError::Cut { needed, found } => {
                write!(f, "the spool is cut: {found} of {needed} words are there; recover the history without it")
            }
            SpoolError::Shape => f.write_str("the spool is damaged: its numbers of rings and slots cannot be"),
        }
    }
}

impl std::error::Error for SpoolError {}

impl From<SpoolError> for std::io::Error {
    fn from(e: SpoolError) -> Self {
        std::io::Error::new(std::io::ErrorKind::InvalidData, e)
    }
}
