//! The recorder: the one door from the hooks to the history.
//!
//! A hook writes an event into its thread's ring ([`Producer`]) and returns. The rings lie in the [`Spool`], memory that
//! outlives the process. A writer thread ([`Writer`]) turns rings into lines. When the process was killed, [`recover()`]
//! writes the lines that the writer no longer could. The writer also knows what is live ([`Live`]): it can [`explain()`] a
//! request that failed, and write a [`Snapshot`]. What the spool promises: no event whose push returned is lost.
//!
//! All of it works on borrowed slices of atomics, so nothing here maps memory, starts a thread or reads a clock.
//! It must not: allocate, lock or call the system on the producer's side.

mod clock;
mod definition;
mod drain;
mod explain;
mod live;
mod output;
mod recover;
mod ring;
mod setup;
mod spool;
mod writer;

pub use clock::Clock;
pub use definition::{Definition, MODULES, frame, python_frame, unpack_frame};
pub use explain::{Explanation, Failure, PYTORCH, Told, explain};
pub use live::{Live, Snapshot};
pub use output::{Output, TraceFile};
pub use recover::{Recovered, recover, recover_trace};
pub use ring::{Producer, Pushed};
pub use setup::{ClockKind, Setup, SpoolError};
pub use spool::Spool;
pub use writer::{Options, Progress, Writer};
