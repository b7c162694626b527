//! The C functions that `train.py` calls through ctypes.

use std::ffi::{c_char, c_int};

use crate::method::Method;
use crate::{capture, clock, compare, ours, own, samples, signal};

/// What a round of captures came to.
#[repr(C)]
pub struct Results {
    /// Stacks taken.
    pub captures: u64,
    /// The program's frames on them.
    pub frames: u64,
    /// How many stacks "ours, all" told apart since the start.
    pub distinct: u64,
}

/// Once, before anything else.
#[unsafe(no_mangle)]
pub extern "C" fn situ_start() {
    own::find();
    clock::calibrate();
    ours::load();
}

/// A method's name, or null from the number on that no method has.
#[unsafe(no_mangle)]
pub extern "C" fn situ_name(number: u32) -> *const c_char {
    Method::by_number(number).map_or(std::ptr::null(), |(_, name)| name.as_ptr())
}

/// Takes a stack in this way at each call, as a new round. False if what it needs isn't there.
#[unsafe(no_mangle)]
pub extern "C" fn situ_arm(number: u32) -> bool {
    let loaded = Method::by_number(number).is_some_and(|(method, _)| method.load());
    if loaded {
        samples::clear();
        capture::arm(number);
    }
    loaded
}

/// Compares ours with libgcc's at each call.
#[unsafe(no_mangle)]
pub extern "C" fn situ_arm_comparison() {
    capture::arm_comparison();
}

/// Does nothing at the calls.
#[unsafe(no_mangle)]
pub extern "C" fn situ_disarm() {
    capture::disarm();
}

/// What the last round came to.
#[unsafe(no_mangle)]
pub extern "C" fn situ_results() -> Results {
    let (captures, frames) = samples::count();
    Results { captures: captures as u64, frames, distinct: u64::from(ours::distinct()) }
}

/// Each capture's nanoseconds of the last round; how many were written.
///
/// # Safety
/// There is room for `room` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_nanoseconds(to: *mut f64, room: usize) -> usize {
    // SAFETY: each is within the room.
    samples::nanoseconds().take(room).enumerate().map(|(i, ns)| unsafe { to.add(i).write(ns) }).count()
}

/// What was compared since the start.
#[unsafe(no_mangle)]
pub extern "C" fn situ_compared() -> compare::Counts {
    compare::counts()
}

/// One of the first stacks that differ, as we have it (0) or libgcc (1); how many addresses were written.
///
/// # Safety
/// There is room for `room` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_difference(number: usize, whose: usize, to: *mut u64, room: usize) -> usize {
    let pcs = compare::difference(number, whose).unwrap_or_default();
    let len = pcs.len().min(room);
    // SAFETY: within the room.
    unsafe { to.copy_from_nonoverlapping(pcs.as_ptr(), len) };
    len
}

/// Handles SIGPROF from now on.
#[unsafe(no_mangle)]
pub extern "C" fn situ_handle_signals() -> bool {
    signal::install()
}

/// Interrupts a thread that many times a second.
#[unsafe(no_mangle)]
pub extern "C" fn situ_interrupt(thread: c_int, times_a_second: c_int) -> bool {
    signal::interrupt(thread, times_a_second)
}

/// Interrupts nobody any more.
#[unsafe(no_mangle)]
pub extern "C" fn situ_interrupt_nobody() {
    signal::stop();
}

/// Gives the calling thread an alternate signal stack, or takes it away.
#[unsafe(no_mangle)]
pub extern "C" fn situ_alternate(on: bool) -> bool {
    signal::alternate(on)
}

/// What the handler saw since the start.
#[unsafe(no_mangle)]
pub extern "C" fn situ_signals() -> signal::Counts {
    signal::counts()
}
