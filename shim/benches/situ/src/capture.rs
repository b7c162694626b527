//! What happens at each call: one stack, by the method that is armed.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering::*};

use crate::method::Method;
use crate::{compare, samples};

/// What is armed: a method's number or one of these.
static ARMED: AtomicU32 = AtomicU32::new(NOTHING);
const NOTHING: u32 = u32::MAX;
const COMPARE: u32 = u32::MAX - 1;

thread_local! {
    /// A capture is under way: a method may allocate, too.
    static BUSY: Cell<bool> = const { Cell::new(false) };
}

/// From now on each call takes a stack in this way.
pub fn arm(number: u32) {
    ARMED.store(number, SeqCst);
}

/// From now on each call compares.
pub fn arm_comparison() {
    ARMED.store(COMPARE, SeqCst);
}

/// From now on calls do nothing.
pub fn disarm() {
    ARMED.store(NOTHING, SeqCst);
}

/// To be called by the hook.
#[inline(always)]
pub fn here() {
    let armed = ARMED.load(Relaxed);
    if armed != NOTHING {
        take(armed);
    }
}

#[inline(never)]
fn take(armed: u32) {
    if BUSY.replace(true) {
        return;
    }
    if armed == COMPARE {
        compare::here();
    } else if let Some((method, _)) = Method::by_number(armed) {
        let taken = method.capture();
        samples::add(taken.ticks, taken.frames);
    }
    BUSY.set(false);
}
