//! What all black-box tests share: building the preload library, the simulated driver and the C programs; running a program
//! bare, recording and pooled; and the rules that every history must keep.
//!
//! A missing preload is only a warning of ld.so, so a run that is meant to be hooked is not believed before its history
//! shows at least one allocation.
#![allow(dead_code, unused_imports, reason = "each test file uses a part of it")]

pub mod build;
pub mod history;
pub mod hooks;
pub mod run;

pub use build::{Link, program, simgpu, vramscope_library};
pub use history::History;
pub use run::{Mode, Program, Run, same_in};
