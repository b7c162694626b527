//! What vramscope says on stderr: one line, once, no allocation that could fail.

use std::fmt::Write;
use std::sync::atomic::{AtomicU8, Ordering::*};

/// How much is said (`VRAMSCOPE_LOG`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// Nothing.
    Off = 0,
    /// What the person must know: the default.
    Error = 1,
    /// What was done.
    Info = 2,
    /// Everything.
    Debug = 3,
}

static LEVEL: AtomicU8 = AtomicU8::new(Level::Error as u8);

/// Sets how much is said.
pub fn set_level(l: Level) {
    LEVEL.store(l as u8, Relaxed);
}

/// Whether something of this level is said.
pub fn enabled(l: Level) -> bool {
    LEVEL.load(Relaxed) >= l as u8
}

struct Line {
    bytes: [u8; 1024],
    len: usize,
}

impl Write for Line {
    fn write_str(&mut self, s: &str) -> std::fmt::Result {
        let room = self.bytes.len() - 1 - self.len;
        let n = s.len().min(room);
        self.bytes[self.len..self.len + n].copy_from_slice(&s.as_bytes()[..n]);
        self.len += n;
        Ok(())
    }
}

/// Writes one line to stderr in a single write, whatever the level. errno stays the program's.
pub fn line(args: std::fmt::Arguments<'_>) {
    let mut l = Line { bytes: [0; 1024], len: 0 };
    let _ = l.write_fmt(args);
    l.bytes[l.len] = b'\n';
    put(&l.bytes[..l.len + 1]);
}

/// Writes whole lines in the same way, so that those of other processes do not come between.
pub fn block(lines: &str) {
    put(lines.as_bytes());
}

fn put(bytes: &[u8]) {
    // SAFETY: the address of the calling thread's errno.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: valid for the thread's life.
    let kept = unsafe { *errno };
    // A stderr whose reader has gone must not end a program that never wrote there.
    // SAFETY: a buffer of that length.
    crate::signals::held_off(|| unsafe { libc::write(2, bytes.as_ptr().cast(), bytes.len()) });
    // SAFETY: as above.
    unsafe { *errno = kept };
}

/// Says a line of this level, with the name before it.
pub fn say(l: Level, args: std::fmt::Arguments<'_>) {
    if enabled(l) {
        line(format_args!("vramscope: {args}"));
    }
}

macro_rules! error { ($($t:tt)*) => { $crate::message::say($crate::message::Level::Error, format_args!($($t)*)) }; }
macro_rules! info { ($($t:tt)*) => { $crate::message::say($crate::message::Level::Info, format_args!($($t)*)) }; }
pub(crate) use {error, info};
