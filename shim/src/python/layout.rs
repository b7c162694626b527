//! Where CPython keeps what we read, by version: offsets in bytes, for 64-bit builds with the GIL.
//!
//! 3.9 to 3.12 have no description of themselves: these are the offsets of their headers, which a version's patch releases
//! do not change. From 3.13 on `_PyRuntime` begins with a table of them, made for out-of-process profilers.

/// How a version chains its frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Chain {
    /// 3.9, 3.10: frame objects, each run by a C call of its own.
    Objects,
    /// 3.11: frames of a C call in a row; its record tells the innermost of the row.
    Rows,
    /// 3.12 and later: a row ends with a frame that is no Python frame and lies on the C stack.
    Shims,
}

/// The offsets of one version.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Minor version.
    pub minor: u32,
    /// How frames are chained.
    pub chain: Chain,
    /// Thread state → innermost frame; or → the C call's record (`cframe`), with `current` in it.
    pub frame: u64,
    /// Thread state → `cframe`; 0: this version has none.
    pub cframe: u64,
    /// `cframe` → its innermost frame.
    pub current: u64,
    /// `cframe` → that of the C call further out.
    pub previous_cframe: u64,
    /// Frame → code object.
    pub code: u64,
    /// Bits of that pointer which are no part of it.
    pub tag: u64,
    /// Frame → caller's frame.
    pub back: u64,
    /// Frame → last instruction.
    pub instruction: u64,
    /// Frame → owner: a byte.
    pub owner: u64,
    /// Frame → its generator or coroutine (this, `top` and `tracing`: of frame objects only).
    pub generator: u64,
    /// Frame → the top of its stack while it waits.
    pub top: u64,
    /// Thread state → whether a tracing function runs, 32 bits.
    pub tracing: u64,
    /// Code → file name, a str.
    pub file: u64,
    /// Code → name, a str.
    pub name: u64,
    /// Code → qualified name, a str; the name where there is none.
    pub function: u64,
    /// Code → first line, 32 bits.
    pub first_line: u64,
    /// Code → line table, a bytes.
    pub lines: u64,
    /// Code → first instruction (0: the instruction is an index already).
    pub instructions: u64,
    /// Code → a number that no other code object of the interpreter ever has, 32 bits; 0 there: it has run out of them. 0
    /// here: this version has none.
    pub version: u64,
    /// Size of the header of a str of ASCII, and of one with other characters.
    pub ascii: u64,
    /// As above.
    pub compact: u64,
    /// Code → index of the first instruction that counts as the function's, 32 bits; 0: this version has none.
    pub first_traceable: u64,
}

const OBJECTS: Layout = Layout {
    minor: 9,
    chain: Chain::Objects,
    frame: 24,
    cframe: 0,
    current: 0,
    previous_cframe: 0,
    code: 32,
    tag: 0,
    back: 24,
    instruction: 104,
    owner: 0,
    generator: 96,
    top: 72,
    tracing: 44,
    file: 104,
    name: 112,
    function: 112,
    first_line: 40,
    lines: 120,
    instructions: 0,
    version: 0,
    ascii: 48,
    compact: 72,
    first_traceable: 0,
};

const ROWS: Layout = Layout {
    minor: 11,
    chain: Chain::Rows,
    frame: 0,
    cframe: 56,
    current: 8,
    previous_cframe: 16,
    code: 32,
    back: 48,
    instruction: 56,
    owner: 69,
    generator: 0,
    top: 0,
    tracing: 0,
    file: 112,
    name: 120,
    function: 128,
    first_line: 72,
    lines: 136,
    instructions: 184,
    first_traceable: 168,
    ..OBJECTS
};

/// Of 3.12; 3.13 and later fill in what their table says.
const SHIMS: Layout = Layout {
    minor: 12,
    chain: Chain::Shims,
    current: 0,
    previous_cframe: 8,
    code: 0,
    back: 8,
    owner: 70,
    first_line: 68,
    instructions: 192,
    version: 92,
    first_traceable: 176,
    ascii: 40,
    compact: 56,
    ..ROWS
};

/// The layout of a version up to 3.12.
pub fn of_version(minor: u32) -> Option<Layout> {
    match minor {
        9 => Some(OBJECTS),
        10 => Some(Layout {
            minor,
            cframe: CFRAME_OF_3_10,
            current: 0,
            previous_cframe: 8,
            instruction: 96,
            generator: 88,
            top: 80,
            ..OBJECTS
        }),
        11 => Some(ROWS),
        12 => Some(SHIMS),
        _ => None,
    }
}

/// 3.10 has the C call's record, but the innermost frame is the thread state's.
const CFRAME_OF_3_10: u64 = 48;

/// Why a table of offsets can't be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// Built without the GIL: objects look different there.
    FreeThreaded,
    /// Not a table of the version that it should be of.
    Unknown,
}

/// Words of `_Py_DebugOffsets` that are looked at.
pub const WORDS: usize = 64;

/// The layout that 3.13 and later tell in their table.
pub fn of_table(minor: u32, table: &[u64; WORDS]) -> Result<Layout, Refused> {
    // Where the groups begin: later versions have grown them.
    let (thread, frame, code, first_traceable) = match minor {
        13 => (184, 224, 272, 184),
        14 => (208, 248, 312, 192),
        15 => (208, 312, 376, 192),
        _ => return Err(Refused::Unknown),
    };
    if table[0].to_le_bytes() != *b"xdebugpy" || table[1] >> 24 != 3 || table[1] >> 16 & 0xff != u64::from(minor) {
        return Err(Refused::Unknown);
    }
    if table[2] != 0 {
        return Err(Refused::FreeThreaded);
    }
    let at = |byte: usize| table[byte / 8];
    let layout = Layout {
        minor,
        frame: at(thread),
        cframe: 0,
        back: at(frame + 8),
        code: at(frame + 16),
        tag: 3,
        instruction: at(frame + 24),
        owner: at(frame + 40),
        file: at(code + 8),
        name: at(code + 16),
        function: at(code + 24),
        lines: at(code + 32),
        first_line: at(code + 40),
        instructions: at(code + 72),
        // (Neither this offset nor `version` is in the table.)
        first_traceable,
        ..SHIMS
    };
    let offsets = [
        layout.frame,
        layout.back,
        layout.code,
        layout.instruction,
        layout.owner,
        layout.file,
        layout.name,
        layout.function,
        layout.lines,
        layout.first_line,
        layout.instructions,
    ];
    // The code pointer is a frame's first field; nothing else lies at 0, and none of these structures is a page long.
    let plausible = offsets.iter().all(|o| *o < 4096) && offsets.iter().filter(|o| **o == 0).count() <= 1;
    if plausible { Ok(layout) } else { Err(Refused::Unknown) }
}
