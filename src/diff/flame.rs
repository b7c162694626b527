//! The difference as a flame graph: widths are what the run after holds; red grew, blue shrank.

use std::collections::BTreeMap;

use anyhow::Result;

use super::Diff;
use crate::flame::{self, Flame};
use crate::report::text::{bytes, clean};

/// Stacks in the form of `difffolded.pl`: `main;step;forward BEFORE AFTER`, sorted.
pub fn folded(diff: &Diff) -> Vec<String> {
    let mut lines: BTreeMap<String, [u64; 2]> = BTreeMap::new();
    for c in diff.changes.iter().filter(|c| !c.host) {
        let frames: Vec<String> = match c.folded.is_empty() {
            // Known by its library only.
            true => vec![frame(&c.note)],
            false => c.folded.iter().map(|f| frame(f)).collect(),
        };
        let sum = lines.entry(frames.join(";")).or_default();
        sum[0] += c.before.bytes;
        sum[1] += c.after.bytes;
    }
    let line = |(stack, [before, after]): (String, [u64; 2])| format!("{stack} {before} {after}");
    lines.into_iter().map(line).collect()
}

/// A frame's name without what the format gives a meaning.
fn frame(name: &str) -> String {
    let name = flame::frame(&clean(name));
    if name.is_empty() { "(unknown)".to_string() } else { name }
}

/// An SVG file.
pub fn svg(diff: &Diff) -> Result<Vec<u8>> {
    let lines = folded(diff);
    let [before, after] = diff.held;
    let title = format!("GPU memory {}: {} -> {}", diff.basis, bytes(before), bytes(after));
    let mut out = Vec::new();
    Flame { title: &title, subtitle: Some("width: after; red: grew, blue: shrank") }.draw(&lines, &mut out)?;
    Ok(out)
}
