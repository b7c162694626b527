//! One line of a history, from bytes. Lines of the exact shape that [`super::write`] makes are read by hand; whatever
//! else is JSON (other spacing, escapes, values of newer versions) goes through serde.

use std::borrow::Cow;

use serde::Deserialize;

use super::write::default_memory;
use super::{Frame, Line, Stack};
use crate::api::Api;
use crate::counters::{NAMES, PER_EVENT};
use crate::event::{Event, EventKind, FreeHow, Memory, Source, TrimWhy};

/// Reads lines. Remembers the names of entry points it saw last, because most lines repeat them.
#[derive(Debug, Default)]
pub struct Parser {
    apis: [(Vec<u8>, Api); 2],
}

/// A line, small: most are events.
#[derive(Debug)]
pub(super) enum Parsed {
    Event(u32, Event),
    Live(u32, Event),
    Other(Box<Line>),
}

/// A value of an event's field.
enum Value<'a> {
    Number(u64),
    Text(&'a [u8]),
}

impl Value<'_> {
    /// Numbers too large for JSON are written as text.
    fn number(&self) -> u64 {
        match self {
            Value::Number(n) => *n,
            Value::Text(text) => {
                let text = std::str::from_utf8(text).unwrap_or_default();
                match text.strip_prefix("0x") {
                    Some(hex) => u64::from_str_radix(hex, 16),
                    None => text.parse(),
                }
                .unwrap_or(0)
            }
        }
    }

    fn small(&self) -> u32 {
        u32::try_from(self.number()).unwrap_or(u32::MAX)
    }

    fn tiny(&self) -> u16 {
        u16::try_from(self.number()).unwrap_or(u16::MAX)
    }

    /// A name of some list, or a number that had no name.
    fn named<T>(&self, from_name: impl Fn(&str) -> Option<T>, number: impl Fn(T) -> u8) -> u8 {
        match self {
            Value::Number(n) => u8::try_from(*n).unwrap_or(0),
            Value::Text(text) => std::str::from_utf8(text).ok().and_then(from_name).map_or(0, number),
        }
    }
}

/// An event's line while its fields come in.
struct Fields {
    thread: u32,
    event: Event,
    live: bool,
}

impl Fields {
    fn new(kind: &[u8]) -> Option<Fields> {
        let live = kind == b"live";
        let kind = if live { EventKind::Alloc } else { EventKind::from_name(std::str::from_utf8(kind).ok()?)? };
        let event = Event { kind, memory: default_memory(kind), ..Event::default() };
        Some(Fields { thread: 0, event, live })
    }

    fn line(self) -> Parsed {
        if self.live { Parsed::Live(self.thread, self.event) } else { Parsed::Event(self.thread, self.event) }
    }
}

impl Parser {
    /// The line in these bytes, or why there is none.
    fn parse(&mut self, line: &[u8]) -> serde_json::Result<Parsed> {
        if let Some(line) = self.by_hand(line) {
            return Ok(line);
        }
        self.by_serde(line)
    }

    /// The same. Behind a cut line that never got its end, another history may begin.
    pub(super) fn parse_or_header(&mut self, line: &[u8]) -> serde_json::Result<Parsed> {
        self.parse(line).or_else(|e| {
            let header = memchr::memmem::rfind(line, b"{\"kind\":\"header\"").filter(|at| *at > 0);
            match header.map(|at| self.parse(&line[at..])) {
                Some(Ok(Parsed::Other(line))) if matches!(*line, Line::Header(_)) => Ok(Parsed::Other(line)),
                _ => Err(e),
            }
        })
    }

    fn by_hand(&mut self, line: &[u8]) -> Option<Parsed> {
        let rest = line.strip_prefix(b"{\"kind\":\"")?;
        let end = rest.iter().take(32).position(|&b| b == b'"')?;
        let (kind, mut rest) = (&rest[..end], &rest[end + 1..]);
        if kind == b"stack" {
            return stack(rest).map(|stack| Parsed::Other(Box::new(Line::Stack(stack))));
        }
        let mut fields = Fields::new(kind)?;
        loop {
            rest = match rest {
                [b',', b'"', rest @ ..] => rest,
                [b'}'] => return Some(fields.line()),
                _ => return None,
            };
            let end = rest.iter().take(32).position(|&b| b == b'"')?;
            let key = &rest[..end];
            rest = rest[end + 1..].strip_prefix(b":")?;
            let value = if let Some(text) = rest.strip_prefix(b"\"") {
                let end = text.iter().position(|&b| b == b'"' || b == b'\\')?;
                rest = text[end..].strip_prefix(b"\"")?;
                Value::Text(&text[..end])
            } else {
                let (number, after) = digits(rest)?;
                rest = after;
                Value::Number(number)
            };
            self.set(&mut fields, key, &value);
        }
    }

    fn by_serde(&mut self, line: &[u8]) -> serde_json::Result<Parsed> {
        #[derive(Deserialize)]
        struct Kind<'a> {
            #[serde(borrow)]
            kind: Cow<'a, str>,
        }
        let kind = serde_json::from_slice::<Kind<'_>>(line)?.kind;
        Ok(Parsed::Other(Box::new(match &*kind {
            "header" => Line::Header(serde_json::from_slice(line)?),
            "device" => Line::Device(serde_json::from_slice(line)?),
            "thread" => Line::Thread(serde_json::from_slice(line)?),
            "module" => Line::Module(serde_json::from_slice(line)?),
            "text" => Line::Text(serde_json::from_slice(line)?),
            "python" => Line::Python(serde_json::from_slice(line)?),
            "symbol" => Line::Symbol(serde_json::from_slice(line)?),
            "stack" => Line::Stack(serde_json::from_slice(line)?),
            "oom" => Line::Oom(serde_json::from_slice(line)?),
            "note" => Line::Note(serde_json::from_slice(line)?),
            "lost" => Line::Lost(serde_json::from_slice(line)?),
            "footer" => Line::Footer(serde_json::from_slice(line)?),
            kind => {
                let Some(mut fields) = Fields::new(kind.as_bytes()) else {
                    return Ok(Parsed::Other(Box::new(Line::Unknown)));
                };
                let object: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(line)?;
                // The defaults of other fields hang on it.
                if let Some(of) = object.get("of").and_then(|of| of.as_str()) {
                    self.set(&mut fields, b"of", &Value::Text(of.as_bytes()));
                }
                for (key, value) in object.iter().filter(|(key, _)| *key != "of") {
                    match value {
                        serde_json::Value::String(text) => {
                            self.set(&mut fields, key.as_bytes(), &Value::Text(text.as_bytes()));
                        }
                        serde_json::Value::Number(n) => {
                            let n = n.as_u64().or_else(|| n.as_f64().map(|f| f as u64)).unwrap_or(0);
                            self.set(&mut fields, key.as_bytes(), &Value::Number(n));
                        }
                        _ => {}
                    }
                }
                return Ok(fields.line());
            }
        })))
    }

    /// Sets a field. Fields of newer versions are left out.
    fn set(&mut self, fields: &mut Fields, key: &[u8], value: &Value<'_>) {
        let e = &mut fields.event;
        match key {
            b"thread" => fields.thread = value.small(),
            b"time" => e.time = value.number(),
            b"id" => e.id = value.number(),
            b"address" | b"handle" => e.address = value.number(),
            b"bytes" | b"free" => e.bytes = value.number(),
            b"block" | b"total" | b"allocations" => e.block = value.number(),
            b"api" => {
                if let Value::Text(name) = value {
                    e.api = self.api(e.kind == EventKind::Free, name);
                }
            }
            b"how" if e.kind == EventKind::Free => e.how = value.named(FreeHow::from_name, |v| v as u8),
            b"how" => e.how = value.named(Source::from_name, |v| v as u8),
            b"context" => e.context = value.tiny(),
            b"stack" => e.stack = value.small(),
            b"caller" => e.caller = value.small(),
            b"segment" if e.kind != EventKind::Counters => e.extra[0] = value.number(),
            b"text" => e.extra[0] = value.number(),
            b"stream" => e.extra[1] = value.number(),
            b"took" => e.extra[2] = value.number(),
            b"memory" => {
                let none = Memory::None;
                e.memory = Memory::from_number(value.named(Memory::from_name, |v| v as u8)).unwrap_or(none);
            }
            b"code" => e.code = value.tiny(),
            b"why" => e.code = value.named(TrimWhy::from_name, |v| v as u8).into(),
            b"active" if e.kind == EventKind::Sample => e.extra[0] = value.number(),
            b"inactive" if e.kind == EventKind::Sample => e.extra[1] = value.number(),
            b"device" if e.kind == EventKind::Context => e.extra[0] = value.number(),
            b"open" if e.kind == EventKind::RegionBegin => e.extra[1] = value.number(),
            b"process" if e.kind == EventKind::RegionBegin => e.extra[2] = value.number(),
            b"primary" if e.kind == EventKind::Context => e.extra[1] = value.number(),
            b"of" => {
                if let Value::Text(name) = value
                    && let Some(kind) = std::str::from_utf8(name).ok().and_then(EventKind::from_name)
                {
                    e.kind = kind;
                    e.memory = default_memory(kind);
                }
            }
            _ if e.kind == EventKind::Counters => {
                if let Some(i) = NAMES.iter().position(|name| name.as_bytes() == key) {
                    e.code = (i / PER_EVENT) as u16;
                    let [a, b, c] = &mut e.extra;
                    *[&mut e.id, &mut e.address, &mut e.bytes, &mut e.block, a, b, c][i % PER_EVENT] = value.number();
                }
            }
            _ => {}
        }
    }

    fn api(&mut self, free: bool, name: &[u8]) -> Api {
        let (last, api) = &mut self.apis[usize::from(free)];
        if last != name {
            *api = std::str::from_utf8(name).ok().and_then(Api::from_name).unwrap_or_default();
            last.clear();
            last.extend_from_slice(name);
        }
        *api
    }
}

/// A number of at most 19 digits, and what follows.
#[inline]
fn digits(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0;
    let mut len = 0;
    // Eight at a time, as addresses and times have.
    while let Some(eight) = bytes.get(len..).and_then(<[u8]>::first_chunk).filter(|_| len < 16) {
        let Some(number) = eight_digits(u64::from_le_bytes(*eight)) else { break };
        value = value * 100_000_000 + number;
        len += 8;
    }
    while let Some(digit @ b'0'..=b'9') = bytes.get(len) {
        if len == 19 {
            return None;
        }
        value = value * 10 + u64::from(digit - b'0');
        len += 1;
    }
    (len > 0).then(|| (value, &bytes[len..]))
}

/// Eight digits, the first in the lowest byte: pairs, fours, and the whole.
#[inline]
fn eight_digits(text: u64) -> Option<u64> {
    const ZEROS: u64 = 0x3030_3030_3030_3030;
    let digits = text ^ ZEROS;
    // A byte that is not 0 to 9 has one of its upper four bits set, as it is or with 6 added.
    if (digits | digits.wrapping_add(0x0606_0606_0606_0606)) & 0xf0f0_f0f0_f0f0_f0f0 != 0 {
        return None;
    }
    let pairs = digits.wrapping_mul(10).wrapping_add(digits >> 8) & 0x00ff_00ff_00ff_00ff;
    let fours = pairs.wrapping_mul(100).wrapping_add(pairs >> 16) & 0x0000_ffff_0000_ffff;
    Some(fours.wrapping_mul(10_000).wrapping_add(fours >> 32) & 0xffff_ffff)
}

/// `,"stack":7,"frames":[[1,2],5,[3,4,1]]}`
fn stack(rest: &[u8]) -> Option<Stack> {
    let (number, rest) = digits(rest.strip_prefix(b",\"stack\":")?)?;
    let mut rest = rest.strip_prefix(b",\"frames\":[")?;
    let mut frames = Vec::new();
    while !rest.starts_with(b"]") {
        if !frames.is_empty() {
            rest = rest.strip_prefix(b",")?;
        }
        let Some(frame) = rest.strip_prefix(b"[") else {
            let (place, after) = digits(rest)?;
            frames.push(Frame::Python(u32::try_from(place).ok()?));
            rest = after;
            continue;
        };
        let (module, after) = digits(frame)?;
        let (offset, after) = digits(after.strip_prefix(b",")?)?;
        let module = u32::try_from(module).ok()?;
        rest = if let Some(after) = after.strip_prefix(b",1]") {
            frames.push(Frame::Guessed(module, offset, 1));
            after
        } else {
            frames.push(Frame::Native(module, offset));
            after.strip_prefix(b"]")?
        };
    }
    let cut = match rest {
        b"]}" => false,
        b"],\"cut\":true}" => true,
        _ => return None,
    };
    Some(Stack { stack: u32::try_from(number).ok()?, frames, cut })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_what_the_standard_library_reads() {
        for text in ["0", "7", "12345678", "123456789", "1234567890123456", "9007199254740991", "0000000000000000001"] {
            for after in ["", ",", "}", "x12345678", "/", ":"] {
                let bytes = format!("{text}{after}");
                assert_eq!(digits(bytes.as_bytes()), Some((text.parse().unwrap(), after.as_bytes())), "{bytes}");
            }
        }
        for text in ["", "x", "-1", "12345678901234567890", ":", "/1234567"] {
            assert_eq!(digits(text.as_bytes()), None, "{text}");
        }
        for wrong in 0..=255u8 {
            for at in 0..8 {
                let mut bytes = *b"90817263";
                bytes[at] = wrong;
                let expected = std::str::from_utf8(&bytes).ok().filter(|t| t.bytes().all(|b| b.is_ascii_digit()));
                assert_eq!(eight_digits(u64::from_le_bytes(bytes)), expected.map(|t| t.parse().unwrap()));
            }
        }
    }
}
