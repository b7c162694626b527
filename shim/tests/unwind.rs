//! Call stacks, compared with libgcc's. The library has no test harness of its own (it would hook itself), so its walk is
//! tested here.
#[path = "../src/unwind/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the library uses all of it; the tests compare both walks at once")]
mod unwind;
