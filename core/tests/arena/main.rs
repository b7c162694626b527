//! The stream-ordered arena over a simulated device.
#![allow(missing_docs, reason = "tests")]

mod cases;
mod limits;
mod properties;
mod replay;
mod sim;
mod stitched;
mod streams;
mod threads;
