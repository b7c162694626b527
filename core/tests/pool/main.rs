//! The plain pool over a simulated device.
#![allow(missing_docs, reason = "tests")]

mod cases;
mod contexts;
mod properties;
mod room;
mod sim;
mod threads;
