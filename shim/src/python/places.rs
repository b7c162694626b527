//! Places in Python code by number: file, function and line are read when a place is first seen, and written to the
//! history once.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::find::{self, Interpreter};
use super::frames::Frame;
use super::{line, text};
use crate::numbers::Numbers;
use crate::recorder;

static PLACES: Numbers<{ 1 << 16 }> = Numbers::new();
static NEXT: AtomicU32 = AtomicU32::new(1);

/// Room for a place's names.
#[repr(C)]
pub struct Names {
    /// File.
    file: [u8; 4096],
    /// Function.
    function: [u8; 1024],
}

/// The number of a frame's place; 0 if it could not be defined.
pub fn of(frame: &Frame, names: &mut Names) -> u32 {
    let Some(interpreter) = find::interpreter() else { return 0 };
    // With the table full a place is defined once for each new stack, and the stacks' table is what ends that.
    PLACES.get(frame.key, || define(interpreter, frame, names)).unwrap_or_else(|_| define(interpreter, frame, names))
}

fn define(interpreter: &Interpreter, frame: &Frame, names: &mut Names) -> u32 {
    let l = &interpreter.layout;
    // SAFETY: a code object that the thread's own frame holds.
    let word = |offset: u64| unsafe { *((frame.code + offset) as *const u64) };
    // SAFETY: its file and function never change.
    let (file, function) = unsafe {
        (
            text::copy(interpreter, word(l.file), &mut names.file),
            text::copy(interpreter, word(l.function), &mut names.function),
        )
    };
    // SAFETY: a field of 32 bits.
    let first = unsafe { *((frame.code + l.first_line) as *const i32) };
    let line = line::of(l.minor, table(interpreter, word(l.lines)), first, frame.instruction);
    let number = NEXT.fetch_add(1, Relaxed);
    let defined = recorder::define_python(number, line, &names.file[..file], &names.function[..function]);
    if defined { number } else { 0 }
}

/// The line table's bytes.
fn table(interpreter: &Interpreter, object: u64) -> &'static [u8] {
    const LONGEST: usize = 1 << 26;
    // SAFETY: an object begins with its count and its type.
    if object == 0 || unsafe { *((object + 8) as *const u64) } != interpreter.bytes_type {
        return &[];
    }
    // SAFETY: a bytes has its length there and its content behind its hash; it lives as long as the code object.
    unsafe { std::slice::from_raw_parts((object + 32) as *const u8, (*((object + 16) as *const usize)).min(LONGEST)) }
}
