//! Lines out of the schema. Event lines are made by hand into a buffer that is used again: a million of them a second.

use serde::Serialize;

use super::{Frame, Header, Line, Stack};
use crate::api::Api;
use crate::counters::{COUNT, NAMES, PER_EVENT};
use crate::event::{Event, EventKind, FreeHow, Memory, Source, TrimWhy};

/// The largest number that every JSON reader keeps.
pub const LARGEST: u64 = (1 << 53) - 1;

/// The kind of memory that is left out of an event's line.
pub(super) fn default_memory(kind: EventKind) -> Memory {
    use EventKind::{Alloc, AllocFailed, Export, Map, SegmentAlloc, SegmentFree, Unmap};
    match kind {
        Alloc | AllocFailed | SegmentAlloc | SegmentFree | Export => Memory::Device,
        Map | Unmap => Memory::Vmm,
        _ => Memory::None,
    }
}

/// Appends the header line.
pub fn header(out: &mut Vec<u8>, header: &Header) {
    tagged(out, "header", header);
}

/// Appends any line. [`Line::Unknown`] has none.
pub fn line(out: &mut Vec<u8>, line: &Line) {
    match line {
        Line::Header(h) => header(out, h),
        Line::Device(d) => tagged(out, "device", d),
        Line::Thread(t) => tagged(out, "thread", t),
        Line::Module(m) => tagged(out, "module", m),
        Line::Text(t) => tagged(out, "text", t),
        Line::Python(p) => tagged(out, "python", p),
        Line::Symbol(s) => tagged(out, "symbol", s),
        Line::Stack(s) => stack(out, s),
        Line::Event(thread, e) => event(out, *thread, e),
        Line::Live(thread, e) => live(out, *thread, e),
        Line::Oom(o) => tagged(out, "oom", o),
        Line::Note(n) => tagged(out, "note", n),
        Line::Lost(l) => tagged(out, "lost", l),
        Line::Footer(f) => tagged(out, "footer", f),
        Line::Unknown => {}
    }
}

fn tagged<T: Serialize>(out: &mut Vec<u8>, kind: &str, value: &T) {
    let from = out.len();
    push(out, "{\"kind\":\"");
    push(out, kind);
    push(out, "\",");
    let brace = out.len();
    // Structs of strings and numbers: this cannot fail on a Vec.
    match serde_json::to_writer(&mut *out, value) {
        Ok(()) if out.get(brace) == Some(&b'{') => drop(out.remove(brace)),
        _ => return out.truncate(from),
    }
    out.push(b'\n');
}

fn stack(out: &mut Vec<u8>, stack: &Stack) {
    push(out, "{\"kind\":\"stack\",\"stack\":");
    number(out, stack.stack.into());
    push(out, ",\"frames\":[");
    for (i, frame) in stack.frames.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        let (module, offset, guessed) = match frame {
            Frame::Native(module, offset) => (*module, *offset, false),
            Frame::Guessed(module, offset, _) => (*module, *offset, true),
            Frame::Python(place) => {
                number(out, (*place).into());
                continue;
            }
            Frame::Other(value) => {
                push(out, &value.to_string());
                continue;
            }
        };
        out.push(b'[');
        number(out, module.into());
        out.push(b',');
        number(out, offset.min(LARGEST));
        push(out, if guessed { ",1]" } else { "]" });
    }
    push(out, if stack.cut { "],\"cut\":true}\n" } else { "]}\n" });
}

/// Appends an event's line. What has its default is left out, and of a free everything that its allocation tells.
pub fn event(out: &mut Vec<u8>, thread: u32, event: &Event) {
    push(out, "{\"kind\":\"");
    push(out, event.kind.name());
    push(out, "\",\"thread\":");
    body(out, thread, event);
}

/// Appends the line of an allocation that is live where a part of a rotated history begins.
pub fn live(out: &mut Vec<u8>, thread: u32, event: &Event) {
    push(out, "{\"kind\":\"live\",");
    if event.kind != EventKind::Alloc {
        push(out, "\"of\":\"");
        push(out, event.kind.name());
        push(out, "\",");
    }
    push(out, "\"thread\":");
    body(out, thread, event);
}

fn body(out: &mut Vec<u8>, thread: u32, e: &Event) {
    number(out, thread.into());
    field(out, ",\"time\":", e.time.min(LARGEST));
    match e.kind {
        EventKind::Counters => return counters(out, e),
        EventKind::Sample => {
            field(out, ",\"free\":", e.bytes.min(LARGEST));
            field(out, ",\"total\":", e.block.min(LARGEST));
            field(out, ",\"active\":", e.extra[0].min(LARGEST));
            field(out, ",\"inactive\":", e.extra[1].min(LARGEST));
        }
        EventKind::Context => {
            handle(out, ",\"handle\":", e.address);
            field(out, ",\"device\":", e.extra[0].min(LARGEST));
            field(out, ",\"primary\":", e.extra[1].min(LARGEST));
        }
        EventKind::Trim => {
            optional(out, ",\"bytes\":", e.bytes);
            optional(out, ",\"allocations\":", e.block);
        }
        EventKind::Mark => field(out, ",\"text\":", e.extra[0].min(LARGEST)),
        EventKind::RegionBegin => {
            field(out, ",\"id\":", e.id.min(LARGEST));
            field(out, ",\"text\":", e.extra[0].min(LARGEST));
            optional(out, ",\"open\":", e.extra[1]);
            optional(out, ",\"process\":", e.extra[2]);
        }
        EventKind::RegionEnd => field(out, ",\"id\":", e.id.min(LARGEST)),
        // What it freed is told by the allocation of that number.
        EventKind::Free if e.id != 0 => optional(out, ",\"id\":", e.id),
        _ => {
            optional(out, ",\"id\":", e.id);
            if e.address != 0 {
                handle(out, ",\"address\":", e.address);
            }
            optional(out, ",\"bytes\":", e.bytes);
            optional(out, ",\"block\":", e.block);
            // Beside the address, because the same blocks come again and again: one long match for the compressor.
            optional(out, ",\"segment\":", e.extra[0]);
        }
    }
    names(out, e);
    optional(out, ",\"stack\":", e.stack.into());
    optional(out, ",\"caller\":", e.caller.into());
    if !matches!(e.kind, EventKind::Sample | EventKind::Context | EventKind::RegionBegin) {
        if e.extra[1] != 0 {
            handle(out, ",\"stream\":", e.extra[1]);
        }
        optional(out, ",\"took\":", e.extra[2]);
    }
    push(out, "}\n");
}

/// Fields that are names or small numbers.
fn names(out: &mut Vec<u8>, e: &Event) {
    let freed = e.kind == EventKind::Free && e.id != 0;
    if e.memory != default_memory(e.kind) && !freed {
        name(out, ",\"memory\":", Some(e.memory.name()), 0);
    }
    if e.api != Api::None {
        name(out, ",\"api\":", Some(e.api.name()), 0);
    }
    if e.how != 0 {
        let how = match e.kind {
            EventKind::Alloc => Source::from_number(e.how).map(Source::name),
            EventKind::Free => FreeHow::from_number(e.how).map(FreeHow::name),
            _ => None,
        };
        name(out, ",\"how\":", how, e.how.into());
    }
    if !freed {
        optional(out, ",\"context\":", e.context.into());
    }
    if e.code != 0 {
        match e.kind {
            EventKind::Trim => {
                let why = u8::try_from(e.code).ok().and_then(TrimWhy::from_number).map(TrimWhy::name);
                name(out, ",\"why\":", why, e.code.into());
            }
            _ => field(out, ",\"code\":", e.code.into()),
        }
    }
}

fn counters(out: &mut Vec<u8>, e: &Event) {
    let [a, b, c] = e.extra;
    let first = usize::from(e.code) * PER_EVENT;
    for (i, value) in [e.id, e.address, e.bytes, e.block, a, b, c].into_iter().enumerate() {
        if first + i < COUNT {
            push(out, ",\"");
            push(out, NAMES[first + i]);
            field(out, "\":", value.min(LARGEST));
        }
    }
    push(out, "}\n");
}

fn push(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
}

fn name(out: &mut Vec<u8>, key: &str, name: Option<&str>, otherwise: u64) {
    push(out, key);
    match name {
        Some(name) => {
            out.push(b'"');
            push(out, name);
            out.push(b'"');
        }
        // A number that this version has no name for.
        None => number(out, otherwise),
    }
}

fn field(out: &mut Vec<u8>, key: &str, value: u64) {
    push(out, key);
    number(out, value);
}

fn optional(out: &mut Vec<u8>, key: &str, value: u64) {
    if value != 0 {
        field(out, key, value.min(LARGEST));
    }
}

/// An address or handle: one too large for a JSON number is written as text.
fn handle(out: &mut Vec<u8>, key: &str, value: u64) {
    push(out, key);
    if value <= LARGEST {
        number(out, value);
    } else {
        push(out, &format!("\"{value:#x}\""));
    }
}

/// Two digits at a time, from the end.
fn number(out: &mut Vec<u8>, mut value: u64) {
    const PAIRS: &[u8; 200] = b"\
        0001020304050607080910111213141516171819202122232425262728293031323334353637383940414243444546474849\
        5051525354555657585960616263646566676869707172737475767778798081828384858687888990919293949596979899";
    let mut digits = [0; 20];
    let mut at = digits.len();
    while value >= 10 {
        let pair = (value % 100) as usize * 2;
        value /= 100;
        at -= 2;
        digits[at] = PAIRS[pair];
        digits[at + 1] = PAIRS[pair + 1];
    }
    if value > 0 || at == digits.len() {
        at -= 1;
        digits[at] = b'0' + value as u8;
    }
    out.extend_from_slice(&digits[at..]);
}
