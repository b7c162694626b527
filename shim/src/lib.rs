//! `libvramscope.so`: preloaded under a CUDA program, it sees every call that allocates GPU memory, serves plain device memory
//! from a caching pool, and records the history.
//!
//! All unsafe code of the project is in this crate. Nothing may depend on it. See ARCHITECTURE.md.

mod arena;
mod background;
mod bypass;
mod call;
mod capi;
mod capture;
mod captured;
mod clock;
mod close;
mod context;
mod ctl;
mod cuda;
mod doctor;
mod door;
mod driver;
mod entry;
mod exit;
mod exports;
mod hook;
mod hooks;
mod labels;
mod ledger;
mod limit;
mod message;
mod modules;
mod nap;
mod numbers;
mod nvml;
mod nvtx;
mod oom;
mod pause;
mod pluggable;
mod pool;
mod python;
mod real;
mod recorder;
mod regions;
mod room;
mod runtime;
mod settings;
mod sight;
mod signals;
mod snapshot;
mod spool;
mod stacks;
mod state;
mod sync;
mod thread;
mod trace_file;
mod unwind;
mod upstream;
mod usage;
mod writer;
