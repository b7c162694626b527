//! Definitions: what the numbers in events mean. In a ring, a first slot and as many payload slots as it takes.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::ring::Slot;
use crate::event::WORDS;
use crate::trace::{Device, Frame, Line, Module, Note, Python, Stack, Text};

/// Payload words of a slot.
pub(super) const PAYLOAD: usize = WORDS - 1;

/// First-slot kinds lie above all event kinds.
const FIRST: u64 = 200;
const STACK: u64 = 201;
const MODULE: u64 = 202;
const TEXT: u64 = 203;
const DEVICE: u64 = 204;
const NOTE: u64 = 205;
const PYTHON: u64 = 206;
const CUT: u64 = 1 << 8;

/// What a number in events means.
#[derive(Clone, Copy, Debug)]
pub enum Definition<'a> {
    /// A call stack: frames packed by [`frame`] and [`python_frame`], innermost first.
    Stack {
        /// Its number.
        number: u32,
        /// Packed frames.
        frames: &'a [u64],
        /// The walk ended early.
        cut: bool,
    },
    /// A loaded library or program.
    Module {
        /// Its number, at most [`MODULES`] (0 is "no module").
        number: u32,
        /// Load address.
        address: u64,
        /// Bytes it spans.
        bytes: u64,
        /// Path of its file.
        path: &'a [u8],
        /// Build id, raw.
        build_id: &'a [u8],
    },
    /// A text.
    Text {
        /// Its number.
        number: u32,
        /// The text.
        value: &'a [u8],
    },
    /// A GPU.
    Device {
        /// CUDA ordinal.
        device: u32,
        /// Bytes of memory.
        bytes: u64,
        /// Name.
        name: &'a [u8],
        /// UUID as `GPU-…`.
        uuid: &'a [u8],
    },
    /// A place in Python code.
    Python {
        /// Its number.
        number: u32,
        /// The line; 0: unknown.
        line: u32,
        /// The file.
        file: &'a [u8],
        /// The function.
        function: &'a [u8],
    },
    /// Something a person should know.
    Note {
        /// Raw clock.
        time: u64,
        /// The message.
        message: &'a [u8],
    },
}

/// Packs a frame: module (15 bits), whether it was guessed, and the offset (48 bits).
pub const fn frame(module: u16, offset: u64, guessed: bool) -> u64 {
    ((module & 0x7fff) as u64) << 49 | (guessed as u64) << 48 | (offset & 0xffff_ffff_ffff)
}

/// Modules are numbered up to here.
pub const MODULES: u32 = (1 << 15) - 2;

/// In a module's place: the frame is Python's.
const IN_PYTHON: u16 = (1 << 15) - 1;

/// Packs a Python frame: the number of its place.
pub const fn python_frame(place: u32) -> u64 {
    frame(IN_PYTHON, place as u64, false)
}

/// Module, offset and whether it was guessed.
pub const fn unpack_frame(word: u64) -> (u16, u64, bool) {
    ((word >> 49) as u16, word & 0xffff_ffff_ffff, word >> 48 & 1 == 1)
}

/// The frame that a word packs.
pub(super) fn frame_of(word: u64) -> Frame {
    match unpack_frame(word) {
        (IN_PYTHON, place, _) => Frame::Python(place as u32),
        (module, offset, false) => Frame::Native(module.into(), offset),
        (module, offset, true) => Frame::Guessed(module.into(), offset, 1),
    }
}

/// Bytes as little-endian words, the last filled up with zeros.
pub(super) fn words_of(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    })
}

impl Definition<'_> {
    /// The two byte strings it carries, cut so that both fit into `most` words.
    fn strings(&self, most: usize) -> (&[u8], &[u8]) {
        let (a, b): (&[u8], &[u8]) = match self {
            Definition::Stack { .. } => (&[], &[]),
            Definition::Module { path, build_id, .. } => (path, build_id),
            Definition::Text { value, .. } => (value, &[]),
            Definition::Device { name, uuid, .. } => (name, uuid),
            Definition::Python { file, function, .. } => (file, function),
            Definition::Note { message, .. } => (message, &[]),
        };
        // The second is an id of a few bytes or a function's name: one that is longer is nonsense.
        let longest = if matches!(self, Definition::Python { .. }) { 1024 } else { 64 };
        let b = &b[..b.len().min(longest).min(most / 2 * 8)];
        (&a[..a.len().min((most - b.len().div_ceil(8)) * 8)], b)
    }

    fn frames(&self, most: usize) -> &[u64] {
        match self {
            Definition::Stack { frames, .. } => &frames[..frames.len().min(most)],
            _ => &[],
        }
    }

    /// The first slot, and the number of payload slots.
    pub(super) fn encode(&self, most: usize) -> (Slot, u64) {
        let (kind, number, x, y) = match *self {
            Definition::Stack { number, frames, cut } => {
                (STACK | if cut || frames.len() > most { CUT } else { 0 }, number, 0, 0)
            }
            Definition::Module { number, address, bytes, .. } => (MODULE, number, address, bytes),
            Definition::Text { number, .. } => (TEXT, number, 0, 0),
            Definition::Device { device, bytes, .. } => (DEVICE, device, bytes, 0),
            Definition::Note { time, .. } => (NOTE, 0, time, 0),
            Definition::Python { number, line, .. } => (PYTHON, number, u64::from(line), 0),
        };
        let (a, b) = self.strings(most);
        let words = self.frames(most).len() + a.len().div_ceil(8) + b.len().div_ceil(8);
        let mut slot = [0; PAYLOAD];
        slot[0] = kind;
        slot[1] = words as u64;
        slot[2] = u64::from(number);
        slot[3] = x;
        slot[4] = y;
        slot[5] = a.len() as u64 | (b.len() as u64) << 32;
        (slot, words.div_ceil(PAYLOAD) as u64)
    }

    /// The payload's words.
    pub(super) fn payload(&self, most: usize) -> impl Iterator<Item = u64> + '_ {
        let (a, b) = self.strings(most);
        self.frames(most).iter().copied().chain(words_of(a)).chain(words_of(b))
    }
}

/// Whether the kind in a first slot is a stack's, which refers to other definitions.
pub(super) fn is_stack(kind: u64) -> bool {
    kind & 0xff == STACK
}

/// If these are the kind and length of a definition's first slot: its payload words.
pub(super) fn payload_words(kind: u64, length: u64) -> Option<u64> {
    ((kind & 0xff) > FIRST).then_some(length)
}

/// The line of a definition. A note's time is still raw. `None` for a kind that this version does not know.
pub(super) fn decode(first: &Slot, payload: &[u64]) -> Option<Line> {
    let number = first[2] as u32;
    Some(match first[0] & 0xff {
        STACK => {
            let frames = payload.iter().map(|&word| frame_of(word)).collect();
            Line::Stack(Stack { stack: number, frames, cut: first[0] & CUT != 0 })
        }
        MODULE => {
            let (path, id) = texts(first, payload);
            let build_id = id.iter().map(|b| format!("{b:02x}")).collect();
            Line::Module(Module { module: number, path: lossy(&path), build_id, address: first[3], bytes: first[4] })
        }
        TEXT => Line::Text(Text { text: number, value: lossy(&texts(first, payload).0) }),
        DEVICE => {
            let (name, uuid) = texts(first, payload);
            Line::Device(Device { device: number, name: lossy(&name), uuid: lossy(&uuid), bytes: first[3] })
        }
        PYTHON => {
            let (file, function) = texts(first, payload);
            let line = u32::try_from(first[3]).unwrap_or(0);
            Line::Python(Python { python: number, function: lossy(&function), file: lossy(&file), line })
        }
        NOTE => Line::Note(Note { time: first[3], message: lossy(&texts(first, payload).0) }),
        _ => return None,
    })
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The two byte strings of a payload; lengths that cannot be (a damaged spool) are cut.
fn texts(first: &Slot, payload: &[u64]) -> (Vec<u8>, Vec<u8>) {
    let bytes: Vec<u8> = payload.iter().flat_map(|w| w.to_le_bytes()).collect();
    let (a, b) = (first[5] as u32 as usize, (first[5] >> 32) as usize);
    let a = a.min(bytes.len());
    let second = &bytes[a.next_multiple_of(8).min(bytes.len())..];
    (bytes[..a].to_vec(), second[..b.min(second.len())].to_vec())
}

/// What a definition is known by, so that recover does not write it twice. Of a note: its message.
pub(super) fn number(line: &Line) -> Option<(u8, u64)> {
    Some(match line {
        Line::Stack(stack) => (1, u64::from(stack.stack)),
        Line::Module(module) => (2, u64::from(module.module)),
        Line::Text(text) => (3, u64::from(text.text)),
        Line::Python(place) => (6, u64::from(place.python)),
        Line::Device(device) => (4, u64::from(device.device)),
        Line::Note(note) => {
            let mut hasher = DefaultHasher::new();
            note.message.hash(&mut hasher);
            (5, hasher.finish())
        }
        _ => return None,
    })
}
