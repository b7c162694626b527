//! The plain pool over a simulated device.
#![allow(missing_docs, reason = "tests")]

mod cases;
mod properties;
mod sim;
mod threads;
