//! What the vramscope preload library and the `vramscope` command share.
//!
//! Nothing here knows CUDA's functions, and nothing here is unsafe: the preload library lends its memory as slices of
//! atomics, and its driver as a trait.
#![forbid(unsafe_code)]

pub mod api;
pub mod arena;
pub mod counters;
pub mod ctl;
pub mod event;
pub mod limit;
pub mod pool;
pub mod rank;
pub mod record;
pub mod size;
pub mod spread;
pub mod text;
pub mod trace;
pub mod unwritten;
