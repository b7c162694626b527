//! The ways to take a stack, by number. `train.py` asks for their names, so a new one is added here only.

use std::ffi::CStr;

use crate::frames::Frames;
use crate::{clock, hop, libgcc, libunwind, ours};

/// A way to take a stack.
#[derive(Clone, Copy)]
pub enum Method {
    /// Nothing but the time stamps: what all the others' figures contain.
    Empty,
    /// `_Unwind_Backtrace`.
    Libgcc,
    /// framehop with its cache.
    Framehop,
    /// nongnu libunwind's fast trace.
    Libunwind,
    /// Our walk.
    OursNative,
    /// Our walk of Python's frames.
    OursPython,
    /// Both, and the look-up of the stack's number.
    OursAll,
}

/// In the order of their numbers.
const ALL: [(Method, &CStr); 7] = [
    (Method::Empty, c"empty (time stamps only)"),
    (Method::Libgcc, c"libgcc _Unwind_Backtrace"),
    (Method::Framehop, c"framehop 0.16, cached"),
    (Method::Libunwind, c"libunwind unw_backtrace"),
    (Method::OursNative, c"ours, native"),
    (Method::OursPython, c"ours, Python"),
    (Method::OursAll, c"ours, all: both and the number"),
];

impl Method {
    /// The method of that number and its name.
    pub fn by_number(number: u32) -> Option<(Method, &'static CStr)> {
        ALL.get(number as usize).copied()
    }

    /// Gets ready whatever it needs; false if that isn't there.
    pub fn load(self) -> bool {
        match self {
            Method::Framehop => hop::load(),
            Method::Libunwind => return libunwind::load(),
            Method::OursPython | Method::OursAll => return ours::load_python(),
            Method::Empty | Method::Libgcc | Method::OursNative => {}
        }
        true
    }

    /// Takes the stack of the calling thread. The choice is made before the clock runs.
    #[inline(always)]
    pub fn capture(self) -> Taken {
        match self {
            Method::Empty => counted(|| 0),
            Method::Libgcc => filled(libgcc::capture),
            Method::Framehop => filled(hop::capture),
            Method::Libunwind => filled(libunwind::capture),
            Method::OursNative => counted(ours::native),
            Method::OursPython => counted(ours::python),
            Method::OursAll => counted(ours::all),
        }
    }
}

/// A stack that was taken.
pub struct Taken {
    /// How many ticks that took.
    pub ticks: u64,
    /// How many frames it has, without ours.
    pub frames: usize,
}

/// By a method that writes the frames down.
#[inline(always)]
fn filled(capture: impl FnOnce(&mut Frames)) -> Taken {
    let mut frames = Frames::new();
    let taken = counted(|| {
        capture(&mut frames);
        0
    });
    Taken { frames: frames.of_program().len(), ..taken }
}

/// By a method that makes a hash of the frames, or nothing.
#[inline(always)]
fn counted(capture: impl FnOnce() -> usize) -> Taken {
    let start = clock::ticks();
    let frames = capture();
    // Another core's counter may be a little behind.
    Taken { ticks: clock::ticks().saturating_sub(start), frames }
}
