//! The walk along a thread's frames.

use super::find::Interpreter;
use super::layout::Chain;
use crate::unwind::{self, memory};

/// A frame on the way out.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Frame {
    /// Its code object.
    pub code: u64,
    /// Offset of the running instruction, in bytes.
    pub instruction: u64,
    /// What its place is known by.
    pub key: u64,
    /// An address on the C stack in the frame of the C call that runs this Python frame and those before it; 0 if the next
    /// frame out is run by the same call. [`EACH`] where the version does not tell.
    pub run_by: u64,
}

/// Owners of frames: a generator or coroutine; from here on no Python frame.
const GENERATOR: u8 = 1;
const ENTRY: u8 = 3;

/// In [`Frame::run_by`]: the frame has a C call of its own, whose place on the stack is not known.
pub const EACH: u64 = u64::MAX;

/// How words are read.
pub trait Memory {
    /// Whether each address is asked about first.
    const IS_CHECKED: bool;
    /// The word at an address.
    ///
    /// # Safety
    /// It can be read, as far as the implementation does not ask.
    unsafe fn word(address: u64) -> Option<u64>;
}

/// Reads at once.
pub struct Trusted;
/// Asks the kernel first (0.1 us).
pub struct Checked;

impl Memory for Trusted {
    const IS_CHECKED: bool = false;
    #[inline(always)]
    unsafe fn word(address: u64) -> Option<u64> {
        // SAFETY: as the caller says.
        Some(unsafe { (address as *const u64).read_unaligned() })
    }
}

impl Memory for Checked {
    const IS_CHECKED: bool = true;
    unsafe fn word(address: u64) -> Option<u64> {
        let last = address.checked_add(7)?;
        // SAFETY: it can be read (just asked).
        (memory::is_readable(address) && memory::is_readable(last))
            .then(|| unsafe { (address as *const u64).read_unaligned() })
    }
}

/// No thread state is larger where it holds the outermost record of a C call (3.10: 280 bytes, 3.11: 360).
const THREAD_STATE: u64 = 1024;

/// Reads one word, or leaves with "not readable".
macro_rules! word {
    ($memory:ident, $address:expr) => {
        // SAFETY: as the caller of `each` says.
        unsafe { $memory::word($address) }?
    };
}

/// The record of the C call further out than that of `cframe`; 0: there is none. The outermost record runs no frame, is a part of
/// the thread state, and in 3.10 what it says of another was never set: nothing is read beyond it.
macro_rules! further_out {
    ($memory:ident, $layout:ident, $thread:ident, $cframe:expr) => {
        match word!($memory, $cframe + $layout.previous_cframe) {
            outermost if outermost.wrapping_sub($thread) < THREAD_STATE => 0,
            record => record,
        }
    };
}

/// Whether a frame of 3.9 or 3.10 waits, and no C call runs it: `throw` into a generator or coroutine that waits for another one
/// puts its frame into the chain, and runs the other. (A tracing function is called with the same look of its frame.)
macro_rules! waits {
    ($memory:ident, $layout:ident, $thread:ident, $frame:ident) => {
        word!($memory, $frame + $layout.generator) != 0
            && word!($memory, $thread + $layout.tracing) as i32 == 0
            && match ($layout.minor, word!($memory, $frame + $layout.top)) {
                (9, address) => address != 0,
                (_, count) => count as i32 >= 0,
            }
    };
}

/// Visits the frames of a thread state, innermost first; with `RUNS` each says which C call runs it. Returns their number,
/// or `None` if something could not be read.
///
/// # Safety
/// The thread state is the calling thread's, and its words can be read as far as `M` does not ask.
#[inline(always)]
pub unsafe fn each<M: Memory, const RUNS: bool>(
    interpreter: &Interpreter,
    thread: u64,
    depth: usize,
    visit: &mut impl FnMut(&Frame),
) -> Option<usize> {
    let l = &interpreter.layout;
    let mut n = 0;
    let mut cframe = if l.cframe != 0 { word!(M, thread + l.cframe) } else { 0 };
    let mut at = match l.chain {
        Chain::Objects => word!(M, thread + l.frame),
        _ if l.cframe == 0 => word!(M, thread + l.frame),
        _ if cframe == 0 => 0,
        _ => word!(M, cframe + l.current),
    };
    // The last frame met: what runs it is known once the next one is.
    let mut held: Option<Frame> = None;
    let mut last = LastFile::default();
    while at != 0 && n < depth {
        let back = word!(M, at + l.back);
        let owner = if l.owner != 0 { word!(M, at + l.owner) as u8 } else { 0 };
        if l.chain == Chain::Shims && owner >= ENTRY {
            if RUNS && let Some(mut f) = held.take() {
                f.run_by = at;
                visit(&f);
            }
            at = back;
            continue;
        }
        let code = word!(M, at + l.code) & !l.tag;
        // In a layout that is wrong this is where it shows. Once it was seen to be right the type is not looked at: it lies in
        // a line of memory of its own, which the processor would have to fetch.
        if M::IS_CHECKED && (code == 0 || word!(M, code + 8) != interpreter.code_type) {
            return None;
        }
        let raw = word!(M, at + l.instruction);
        let instruction = match (l.chain, l.minor) {
            (Chain::Objects, 9) => raw as i32 as i64 as u64,
            (Chain::Objects, _) => (raw as i32 as i64 * 2) as u64,
            _ => raw.wrapping_sub(code + l.instructions),
        };
        // A frame that is still being set up, or the helper frame of a class's call: CPython does not show them either.
        // (No function has so many instructions before its own that a larger offset must be looked at.)
        // In a row of 3.11: whether the next frame out is of the C call further out, whose record names its innermost.
        let mut row_ends = false;
        let mut further = 0;
        if RUNS && l.chain == Chain::Rows && cframe != 0 {
            further = further_out!(M, l, thread, cframe);
            row_ends = back == 0 || further != 0 && back == word!(M, further + l.current);
        }
        if l.first_traceable != 0
            && owner != GENERATOR
            && (instruction as i64) < 512
            && (instruction as i64) < 2 * i64::from(word!(M, code + l.first_traceable) as i32)
        {
            if row_ends {
                cframe = further;
            }
            at = back;
            continue;
        }
        let mut frame =
            Frame { code, instruction, key: key::<M>(interpreter, code, instruction, &mut last)?, run_by: 0 };
        n += 1;
        if RUNS {
            match l.chain {
                // (In 3.9 the chain ends with it.)
                Chain::Objects if back != 0 && waits!(M, l, thread, at) => {}
                Chain::Objects if l.cframe == 0 => frame.run_by = EACH,
                Chain::Objects if cframe != 0 => {
                    frame.run_by = cframe;
                    cframe = further_out!(M, l, thread, cframe);
                }
                Chain::Rows if row_ends => {
                    frame.run_by = cframe;
                    cframe = further;
                }
                Chain::Objects | Chain::Rows => {}
                Chain::Shims => {
                    if let Some(f) = held.replace(frame) {
                        visit(&f);
                    }
                    at = back;
                    continue;
                }
            }
        }
        visit(&frame);
        at = back;
    }
    if RUNS && let Some(f) = held {
        visit(&f);
    }
    Some(n)
}

/// What tells a place from all others: where the code object lies, the instruction, and what marks the code object's
/// content. A freed code object's address is soon used again, often for one of the same length and lines, with its texts
/// at the addresses of the old ones' too. From 3.12 on each code object has a number of its own; before, what its two
/// names say is part of the key.
#[inline(always)]
fn key<M: Memory>(interpreter: &Interpreter, code: u64, instruction: u64, last: &mut LastFile) -> Option<u64> {
    let l = &interpreter.layout;
    let file = word!(M, code + l.file);
    let version = if l.version != 0 { word!(M, code + l.version) & 0xffff_ffff } else { 0 };
    let said = if version != 0 { version } else { texts::<M>(interpreter, code, file, last)? };
    let marks = file.rotate_left(17)
        ^ word!(M, code + l.function).rotate_left(31)
        ^ word!(M, code + l.lines).rotate_left(47)
        ^ (word!(M, code + l.first_line) & 0xffff_ffff)
        ^ said;
    Some(unwind::fold(code, marks ^ instruction.rotate_left(40) ^ 0x9e37_79b9_7f4a_7c15))
}

/// What a code object's file and name say.
#[inline(always)]
fn texts<M: Memory>(interpreter: &Interpreter, code: u64, file: u64, last: &mut LastFile) -> Option<u64> {
    let l = &interpreter.layout;
    // A name is interned, and its hash therefore computed; a file's name, given to `compile`, often is not.
    let mut said = word!(M, file + HASH);
    if said == NOT_COMPUTED {
        if last.object != file {
            *last = LastFile { object: file, content: content::<M>(interpreter, file)? };
        }
        said = last.content;
    }
    let name = word!(M, code + l.name);
    Some(word!(M, name + HASH) ^ said.rotate_left(13))
}

/// A str's hash, if it was ever asked for.
const HASH: u64 = 24;
const NOT_COMPUTED: u64 = u64::MAX;

/// The file's name read last in a walk: frames of one file often stand in a row.
#[derive(Default)]
struct LastFile {
    object: u64,
    content: u64,
}

/// A hash of a str's content.
#[inline(never)]
fn content<M: Memory>(interpreter: &Interpreter, object: u64) -> Option<u64> {
    let l = &interpreter.layout;
    /// Longer ones are told apart by their ends.
    const LONGEST: u64 = 512;
    let (len, state) = (word!(M, object + 16), word!(M, object + 32));
    let (width, ascii) = (state >> 2 & 7, state >> 6 & 1 == 1);
    // What is no str, or keeps its text elsewhere (a subclass of str), is told apart by its address alone.
    if word!(M, object + 8) != interpreter.str_type || state >> 5 & 1 == 0 {
        return Some(0);
    }
    let start = object + if ascii { l.ascii } else { l.compact };
    let bytes = len.min(1 << 32) * width;
    let mut hash = unwind::fold(bytes, 1);
    let mut at = bytes.saturating_sub(LONGEST) & !7;
    while at < bytes {
        let mut word = word!(M, start + at);
        if bytes - at < 8 {
            // Behind the text stands a zero, and behind that anything, up to the object's end at a multiple of 16.
            word &= (1 << ((bytes - at) * 8)) - 1;
        }
        hash = unwind::fold(hash, word);
        at += 8;
    }
    Some(hash)
}
