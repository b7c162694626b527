//! A str's text. Read raw: `PyUnicode_AsUTF8` would allocate in the object and needs the GIL.

use super::find::Interpreter;

/// Longest str that is believed.
const LONGEST: u64 = 1 << 20;

/// Writes a str as UTF-8, as much as there is room for; how many bytes that are. What is no str gives `?`. Halves of
/// surrogates, which stand for undecodable bytes of file names, become U+FFFD.
///
/// # Safety
/// A str of this interpreter, alive.
pub unsafe fn copy(interpreter: &Interpreter, object: u64, out: &mut [u8]) -> usize {
    let l = &interpreter.layout;
    let mut out = Out { out, len: 0 };
    // SAFETY: an object begins with its count and its type.
    if object == 0 || unsafe { *((object + 8) as *const u64) } != interpreter.str_type {
        out.push('?');
        return out.len;
    }
    // SAFETY: a str's length and state.
    let (len, state) = unsafe { (*((object + 16) as *const u64), *((object + 32) as *const u32)) };
    // Above 8 bits it is padding, of any value.
    let (kind, compact, ascii) = (state >> 2 & 7, state >> 5 & 1, state >> 6 & 1);
    if compact == 0 || len > LONGEST {
        out.push('?');
        return out.len;
    }
    let data = object + if ascii == 1 { l.ascii } else { l.compact };
    let len = len as usize;
    // SAFETY: as long as the str says, of the width that it says.
    unsafe {
        match kind {
            1 => out.all(std::slice::from_raw_parts(data as *const u8, len).iter().map(|&c| u32::from(c))),
            2 => out.all(std::slice::from_raw_parts(data as *const u16, len).iter().map(|&c| u32::from(c))),
            4 => out.all(std::slice::from_raw_parts(data as *const u32, len).iter().copied()),
            _ => drop(out.push('?')),
        }
    }
    out.len
}

struct Out<'a> {
    out: &'a mut [u8],
    len: usize,
}

impl Out<'_> {
    /// Appends a character if all of it fits.
    fn push(&mut self, c: char) -> bool {
        let size = c.len_utf8();
        let Some(room) = self.out.get_mut(self.len..self.len + size) else { return false };
        c.encode_utf8(room);
        self.len += size;
        true
    }

    fn all(&mut self, characters: impl Iterator<Item = u32>) {
        for c in characters {
            if !self.push(char::from_u32(c).unwrap_or(char::REPLACEMENT_CHARACTER)) {
                break;
            }
        }
    }
}
