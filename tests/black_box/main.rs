//! Real programs in real processes, bare, recorded and pooled. One binary for all of them: each would link the whole command
//! again, 140 MB and several seconds apiece. `cargo test --test black_box ordered::` runs those of one file.

#[path = "../support/mod.rs"]
mod support;

mod answers;
mod api;
mod basics;
mod capture;
mod clean;
mod command;
mod compare;
mod conformance;
mod ctl;
mod doors;
mod ends;
mod faults;
mod from_python;
mod kill;
mod layers;
mod limits;
mod nvtx;
mod oom;
mod order;
mod ordered;
mod pressure;
mod process;
mod random;
mod ranks;
mod regions;
mod scripts;
mod stitched;
mod symbolize;
mod tensors;
mod together;
mod torch;
mod whole;
