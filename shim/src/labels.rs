//! Marks, and the texts of marks and regions: the program's own words for moments and stretches of its work.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use vramscope_core::event::{Event, EventKind};

use crate::numbers::Numbers;
use crate::{pause, recorder, unwind};

static TEXTS: Numbers<8192> = Numbers::new();
static NEXT: AtomicU32 = AtomicU32::new(1);

/// The number of a text; 0 if it could not be defined.
pub fn text(words: &[u8]) -> u32 {
    let mut hash = unwind::fold(words.len() as u64, 1);
    for chunk in words.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = unwind::fold(hash, u64::from_le_bytes(word));
    }
    let define = || {
        let number = NEXT.fetch_add(1, Relaxed);
        if recorder::define_text(number, words) { number } else { 0 }
    };
    // With the table full (a mark a step, for a long time) each is defined anew.
    TEXTS.get(hash, define).unwrap_or_else(|_| define())
}

/// Marks this moment.
pub fn mark(words: &[u8]) {
    if recorder::recording() && !pause::on() {
        let number = text(words);
        recorder::event(&Event { kind: EventKind::Mark, extra: [u64::from(number), 0, 0], ..Event::default() });
    }
}
