//! What pins PyTorch's segments: the free memory in them that cannot be given back or joined, and whose tensors are beside it.

use serde::Serialize;

use super::Page;
use super::by;
use super::facts::holes::{self, Holes};
use super::frames::{self, Shown};
use super::history::History;
use super::stacks;
use super::text::{bytes, percent, plural, time};

/// Who is told.
const TOLD: usize = 20;

/// Holes in PyTorch's segments at one moment.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Pinned {
    /// When.
    pub time: u64,
    /// Segments.
    pub segments: u64,
    /// Bytes of them,
    pub reserved: u64,
    /// of which free,
    pub free: u64,
    /// and of that in segments without any tensor: `empty_cache()` gives it back.
    pub free_whole: u64,
    /// The largest free piece: more than that does not fit.
    pub largest: u64,
    /// Segments that were taken although as much as was asked for was free in pieces, over the whole history,
    pub taken_in_pieces: u64,
    /// and their bytes.
    pub taken_in_pieces_bytes: u64,
    /// Whose tensors keep free memory where it is, the most first.
    pub pins: Vec<Pin>,
    /// Segments with most free memory beside a tensor.
    pub worst: Vec<Segment>,
}

/// What one place keeps from being given back.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Pin {
    /// Its line.
    pub place: String,
    /// Segments in which it holds most.
    pub segments: u64,
    /// Free bytes in them.
    pub free: u64,
    /// Its own bytes in them,
    pub bytes: u64,
    /// in so many tensors.
    pub tensors: u64,
    /// Its call stack, innermost first.
    pub stack: Vec<Shown>,
}

/// A segment.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Segment {
    /// Where it lies.
    pub address: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Bytes free in it.
    pub free: u64,
    /// The largest free piece.
    pub largest: u64,
    /// Tensors in it.
    pub tensors: u64,
    /// Lines whose tensors these are, with their bytes.
    pub holders: Vec<(String, u64)>,
}

/// What pins segments, as they were at a moment.
pub fn of(page: &mut Page, history: &History, holes: &Holes) -> Pinned {
    let (facts, ledger) = (&history.facts, &history.facts.ledger);
    let stack = |holder: u32| ledger.holders[holder as usize].stack;
    let pins = holes.pins.iter().map(|p| p.holder);
    let all = pins.chain(holes.worst.iter().flat_map(|w| w.holders.iter().map(|(h, _)| *h)));
    let addresses = frames::addresses(history, all.map(stack));
    page.names.resolve(&history.modules, addresses);
    let lines = |holder: u32| frames::shown(history, &page.names, stack(holder)).lines(page.all_frames);
    let place = |lines: &[Shown]| by::own(lines).map_or("(no stack)".to_string(), by::line);
    let mut pins: Vec<Pin> = Vec::new();
    for p in &holes.pins {
        let stack = lines(p.holder);
        let at = pins.iter().position(|k| k.stack == stack).unwrap_or_else(|| {
            pins.push(Pin { place: place(&stack), stack, ..Pin::default() });
            pins.len() - 1
        });
        let pin = &mut pins[at];
        pin.segments += p.segments;
        pin.free += p.free;
        pin.bytes += p.bytes;
        pin.tensors += p.tensors;
    }
    pins.sort_by_key(|p| std::cmp::Reverse(p.free));
    pins.truncate(TOLD);
    let segment = |w: &holes::Pinned| Segment {
        address: w.address,
        bytes: w.bytes,
        free: w.free,
        largest: w.largest,
        tensors: w.tensors,
        holders: w.holders.iter().map(|(h, bytes)| (place(&lines(*h)), *bytes)).collect(),
    };
    Pinned {
        time: holes.time,
        segments: holes.segments,
        reserved: holes.reserved,
        free: holes.free,
        free_whole: holes.whole,
        largest: holes.largest,
        taken_in_pieces: facts.in_pieces.0,
        taken_in_pieces_bytes: facts.in_pieces.1,
        pins,
        worst: holes.worst.iter().map(segment).collect(),
    }
}

/// Whether there is so much free that it is worth a section.
pub fn matters(p: &Pinned) -> bool {
    p.free >= 32 << 20 && p.free * 10 >= p.reserved
}

/// Writes the section.
pub fn section(page: &mut Page, p: &Pinned) {
    if !matters(p) {
        return;
    }
    page.heading(&format!("FRAGMENTATION in PyTorch's segments at {}", time(p.time)));
    write(page, p);
}

/// Writes what is free and what keeps it.
pub fn write(page: &mut Page, p: &Pinned) {
    page.row(
        "free in segments",
        &format!(
            "{} of {} in {}: the largest piece {}; {} in segments without a tensor",
            bytes(p.free),
            bytes(p.reserved),
            plural(p.segments, "segment"),
            bytes(p.largest),
            bytes(p.free_whole)
        ),
    );
    if p.taken_in_pieces > 0 {
        page.row(
            "new all the same",
            &format!(
                "{} ({}) were taken although as much as was asked for lay free in pieces",
                plural(p.taken_in_pieces, "segment"),
                bytes(p.taken_in_pieces_bytes)
            ),
        );
    }
    let pinned = p.free.saturating_sub(p.free_whole);
    if p.pins.is_empty() {
        return;
    }
    page.line("  what pins the rest: tensors beside it");
    let most = page.top.min(5);
    for pin in p.pins.iter().take(most) {
        let head = format!("     {:>9}  {:>7}", bytes(pin.free), percent(pin.free, pinned));
        let text = format!(
            "{}   free in {} behind {} of {}",
            page.paint.bold(&head),
            plural(pin.segments, "segment"),
            plural(pin.tensors, "tensor"),
            bytes(pin.bytes)
        );
        page.line(&text);
        stacks::shown(page, &pin.stack);
    }
    if p.pins.len() > most {
        page.line(&format!("     and {}", plural((p.pins.len() - most) as u64, "more place")));
    }
}
