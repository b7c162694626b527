//! A tree of dicts, lists, numbers and text, written as it is walked: as JSON or as a pickle.

use std::collections::HashMap;

use crate::export::Frame;

/// Writes into a buffer that the caller empties now and then.
pub trait Encoder {
    /// Begins a list; each of its values comes after an [`Encoder::item`].
    fn list(&mut self);
    /// Begins the next value of the innermost list.
    fn item(&mut self);
    /// Ends the innermost list.
    fn end_list(&mut self);
    /// Begins a dict; each of its values comes after an [`Encoder::key`].
    fn dict(&mut self);
    /// The key of the next value of the innermost dict.
    fn key(&mut self, key: &str);
    /// Ends the innermost dict.
    fn end_dict(&mut self);
    /// A number.
    fn number(&mut self, value: u64);
    /// A text.
    fn text(&mut self, value: &str);
    /// True or false.
    fn flag(&mut self, value: bool);
    /// A tuple of two numbers.
    fn pair(&mut self, a: u64, b: u64);
    /// The frames of the stack of this number, which are asked for once.
    fn frames(&mut self, stack: u32, frames: &dyn Fn() -> Vec<Frame>);
    /// Whether the same frames are written once, however often they are asked for.
    fn shares(&self) -> bool;
    /// The end of the file.
    fn finish(&mut self);
    /// What was written since it was emptied.
    fn buffer(&mut self) -> &mut Vec<u8>;
}

/// JSON, which the viewer's page reads as well.
#[derive(Default)]
pub struct Json {
    out: Vec<u8>,
    /// In the innermost list or dict nothing was written yet.
    first: bool,
    stacks: HashMap<u32, Box<str>>,
}

impl Json {
    fn comma(&mut self) {
        if !std::mem::replace(&mut self.first, false) {
            self.out.push(b',');
        }
    }

    fn quoted(out: &mut Vec<u8>, value: &str) {
        // Text into memory: this cannot fail.
        let _ = serde_json::to_writer(out, value);
    }
}

impl Encoder for Json {
    fn list(&mut self) {
        self.out.push(b'[');
        self.first = true;
    }

    fn item(&mut self) {
        self.comma();
    }

    fn end_list(&mut self) {
        self.out.push(b']');
        self.first = false;
    }

    fn dict(&mut self) {
        self.out.push(b'{');
        self.first = true;
    }

    fn key(&mut self, key: &str) {
        self.comma();
        Json::quoted(&mut self.out, key);
        self.out.push(b':');
    }

    fn end_dict(&mut self) {
        self.out.push(b'}');
        self.first = false;
    }

    fn number(&mut self, value: u64) {
        self.out.extend_from_slice(value.to_string().as_bytes());
    }

    fn text(&mut self, value: &str) {
        Json::quoted(&mut self.out, value);
    }

    fn flag(&mut self, value: bool) {
        self.out.extend_from_slice(if value { b"true" } else { b"false" });
    }

    fn pair(&mut self, a: u64, b: u64) {
        self.out.extend_from_slice(format!("[{a},{b}]").as_bytes());
    }

    fn frames(&mut self, stack: u32, frames: &dyn Fn() -> Vec<Frame>) {
        let text = self.stacks.entry(stack).or_insert_with(|| {
            let mut json = Json::default();
            write_frames(&mut json, &frames());
            String::from_utf8(json.out).unwrap_or_default().into()
        });
        self.out.extend_from_slice(text.as_bytes());
    }

    fn shares(&self) -> bool {
        false
    }

    fn finish(&mut self) {
        self.out.push(b'\n');
    }

    fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }
}

/// Frames as the viewer wants them, innermost first.
fn write_frames(to: &mut dyn Encoder, frames: &[Frame]) {
    to.list();
    for frame in frames {
        to.item();
        write_frame(to, frame);
    }
    to.end_list();
}

fn write_frame(to: &mut dyn Encoder, frame: &Frame) {
    to.dict();
    to.key("name");
    to.text(&frame.function);
    to.key("filename");
    // As torch has it where it knows no file.
    to.text(if frame.file.is_empty() { "??" } else { &frame.file });
    to.key("line");
    to.number(frame.line.into());
    to.end_dict();
}

/// A pickle of protocol 4: the newest that the viewer's page reads, and only of the opcodes that it knows.
pub struct Pickle {
    out: Vec<u8>,
    /// Values of the open lists.
    lists: Vec<usize>,
    /// Numbers of what was remembered.
    memo: u32,
    texts: HashMap<Box<str>, u32>,
    stacks: HashMap<u32, u32>,
    places: HashMap<Frame, u32>,
}

/// Values that are appended at once: as many as Python's own does. The page cannot take very many.
const BATCH: usize = 1000;

impl Default for Pickle {
    fn default() -> Pickle {
        let (texts, stacks, places) = (HashMap::new(), HashMap::new(), HashMap::new());
        Pickle { out: vec![0x80, 4], lists: Vec::new(), memo: 0, texts, stacks, places }
    }
}

impl Pickle {
    fn remember(&mut self) -> u32 {
        self.out.push(0x94);
        self.memo += 1;
        self.memo - 1
    }

    fn again(&mut self, number: u32) {
        match u8::try_from(number) {
            Ok(n) => self.out.extend_from_slice(&[b'h', n]),
            Err(_) => {
                self.out.push(b'j');
                self.out.extend_from_slice(&number.to_le_bytes());
            }
        }
    }
}

impl Encoder for Pickle {
    fn list(&mut self) {
        self.out.push(b']');
        self.lists.push(0);
    }

    fn item(&mut self) {
        let Some(n) = self.lists.last_mut() else { return };
        if n.is_multiple_of(BATCH) {
            self.out.extend_from_slice(if *n > 0 { b"e(" } else { b"(" });
        }
        *n += 1;
    }

    fn end_list(&mut self) {
        if self.lists.pop().is_some_and(|n| n > 0) {
            self.out.push(b'e');
        }
    }

    fn dict(&mut self) {
        self.out.extend_from_slice(b"}(");
    }

    fn key(&mut self, key: &str) {
        self.text(key);
    }

    fn end_dict(&mut self) {
        self.out.push(b'u');
    }

    fn number(&mut self, value: u64) {
        let bytes = value.to_le_bytes();
        match value {
            0..=0xff => self.out.extend_from_slice(&[b'K', bytes[0]]),
            0x100..=0xffff => self.out.extend_from_slice(&[b'M', bytes[0], bytes[1]]),
            0x1_0000..=0x7fff_ffff => {
                self.out.push(b'J');
                self.out.extend_from_slice(&bytes[..4]);
            }
            _ => {
                // Two's complement: the highest bit must be free.
                let length = 8 - value.leading_zeros() as usize / 8;
                let more = usize::from(bytes[length - 1] >= 0x80);
                self.out.extend_from_slice(&[0x8a, (length + more) as u8]);
                self.out.extend_from_slice(&bytes[..length]);
                self.out.extend_from_slice(&[0][..more]);
            }
        }
    }

    fn text(&mut self, value: &str) {
        if let Some(number) = self.texts.get(value) {
            return self.again(*number);
        }
        match u8::try_from(value.len()) {
            Ok(n) => self.out.extend_from_slice(&[0x8c, n]),
            Err(_) => {
                self.out.push(b'X');
                self.out.extend_from_slice(&(value.len() as u32).to_le_bytes());
            }
        }
        self.out.extend_from_slice(value.as_bytes());
        let number = self.remember();
        self.texts.insert(value.into(), number);
    }

    fn flag(&mut self, value: bool) {
        self.out.push(if value { 0x88 } else { 0x89 });
    }

    fn pair(&mut self, a: u64, b: u64) {
        self.number(a);
        self.number(b);
        self.out.push(0x86);
    }

    fn frames(&mut self, stack: u32, frames: &dyn Fn() -> Vec<Frame>) {
        if let Some(number) = self.stacks.get(&stack) {
            return self.again(*number);
        }
        self.list();
        for frame in frames() {
            self.item();
            match self.places.get(&frame) {
                Some(number) => self.again(*number),
                None => {
                    write_frame(self, &frame);
                    let number = self.remember();
                    self.places.insert(frame, number);
                }
            }
        }
        self.end_list();
        let number = self.remember();
        self.stacks.insert(stack, number);
    }

    fn shares(&self) -> bool {
        true
    }

    fn finish(&mut self) {
        self.out.push(b'.');
    }

    fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }
}
