//! The command's library: what `vramscope` does, so that tests can call it.
//!
//! [`cli`] holds one file a command, [`report`] one file a question, [`export`] and [`import`] one file a format, [`symbols`] turns
//! addresses into names offline. It reads histories through `vramscope_core::trace` and never touches CUDA.
#![forbid(unsafe_code)]

pub mod cli;
pub mod html;
pub mod export;
pub mod import;
pub mod diff;
pub mod merge;
pub mod report;
pub mod symbols;
