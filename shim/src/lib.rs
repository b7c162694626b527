//! `libvramscope.so`: preloaded under a CUDA program, it sees every call that allocates GPU memory, serves plain device memory
//! from a caching pool, and records the history.
//!
//! All unsafe code of the project is in this crate. Nothing may depend on it. See ARCHITECTURE.md.

mod bypass;
mod call;
mod capture;
mod clock;
mod close;
mod context;
mod cuda;
mod doctor;
mod door;
mod driver;
mod entry;
mod exit;
mod exports;
mod hook;
mod hooks;
mod ledger;
mod message;
mod modules;
mod numbers;
mod pool;
mod python;
mod real;
mod recorder;
mod room;
mod runtime;
mod settings;
mod sight;
mod signals;
mod spool;
mod stacks;
mod state;
mod sync;
mod thread;
mod trace_file;
mod unwind;
mod upstream;
mod writer;
