//! Call stacks, compared with libgcc's. The library has no test harness of its own (it would hook itself), so its walk is
//! tested here.
#[path = "../src/unwind/mod.rs"]
mod unwind;
