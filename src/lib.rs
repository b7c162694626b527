//! The command's library: what `vramscope` does, so that tests can call it.
//!
//! [`cli`] holds one file a command, [`report`] one file a question, [`symbols`] turns addresses into names offline. It
//! reads histories through `vramscope_core::trace` and never touches CUDA.
#![forbid(unsafe_code)]

pub mod cli;
pub mod diff;
pub mod merge;
pub mod report;
pub mod symbols;
