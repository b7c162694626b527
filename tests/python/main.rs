//! The Python frames in the stacks of a history: programs note what `sys._getframe()` says around each call of the driver, and the
//! history must say the same, for every Python that the machine has.
//!
//! `VRAMSCOPE_TEST_PYTHONS` names the interpreters (paths, with colons between them); else those on PATH, of pyenv and
//! /usr/bin/python3 are taken. `cargo test --test python -- --nocapture` tells how many stacks were compared with each.

#[path = "../support/mod.rs"]
mod support;

mod embedded;
mod ends;
mod notes;
mod pool_on;
mod pythons;
mod settings;
mod stacks;
mod switched;
