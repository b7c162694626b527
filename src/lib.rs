//! The command `vramscope` and its library.
//!
//! [`cli`] holds one file a command, [`report`] one file a question, [`symbols`] turns addresses into names offline,
//! [`reading`] reads histories in parallel, [`verify`] checks them; [`html`] is the page, [`export`] and [`import`] have one
//! file a format, [`flame`] draws flame graphs, [`diff`] and [`merge`] put histories side by side. All of it reads histories through
//! `vramscope_core::trace` and never touches CUDA.
#![forbid(unsafe_code)]

pub mod cli;
pub mod diff;
pub mod export;
pub mod flame;
pub mod html;
pub mod import;
pub mod merge;
pub mod moment;
pub mod reading;
pub mod report;
pub mod symbols;
pub mod verify;
