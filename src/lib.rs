//! The command's library: what `vramscope` does, so that tests can call it.
//!
//! [`cli`] holds one file a command, [`report`] one file a question, [`symbols`] turns addresses into names offline,
//! [`reading`] reads histories in parallel. It
//! reads histories through `vramscope_core::trace` and never touches CUDA.
#![forbid(unsafe_code)]

pub mod cli;
pub mod reading;
pub mod report;
pub mod symbols;
pub mod verify;
