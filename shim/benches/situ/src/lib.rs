//! Call stacks taken where an allocation of a training program takes them: in a preloaded
//! `posix_memalign`, which is what PyTorch's CPU allocator calls, at the moment of the call. There the
//! caches and the processor's predictors are full of the program's own work, so that a capture costs
//! several times what it costs in a loop.
//!
//! * `train.py` drives it through [`control`]'s C functions: one method at a time is armed.
//! * `hook` is the interposed call; `capture` does what is armed and times it (`clock`, `samples`).
//! * `libgcc`, `hop`, `libunwind` and `ours` are the methods. A new one goes into `method`.
//! * `compare` holds ours against libgcc's; `signal` does so at arbitrary instructions.
//!
//! x86-64 Linux only. Nothing in here may panic: its callers are C.

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!("x86-64 Linux only: see the module's documentation");

mod capture;
mod clock;
mod compare;
pub mod control;
mod frames;
mod hook;
mod hop;
mod libgcc;
mod libunwind;
mod message;
mod method;
mod ours;
mod own;
mod recorder;
mod samples;
mod signal;

use ours::{exports, numbers, unwind};
