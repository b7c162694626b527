//! Who holds memory outside the pool: by library, kind and reason.

use std::collections::BTreeMap;

use vramscope_core::event::Source;

use super::Page;
use super::history::History;
use super::tally::{Layer, Tally};
use super::text::{bytes, clean, clip, count};

/// What one library holds past the pool, in one way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Number of its module, 0: unknown.
    pub caller: u32,
    /// The kind of memory.
    pub layer: Layer,
    /// Why the pool did not serve it.
    pub source: Source,
    /// At the peak.
    pub at_peak: Tally,
    /// All there ever was.
    pub ever: Tally,
    /// At the end.
    pub now: Tally,
}

/// The owners, the largest at the peak first. (PyTorch's tensors lie in its segments, which are told.)
pub fn owners(history: &History) -> Vec<Owner> {
    let facts = &history.facts;
    let mut by_key: BTreeMap<(u32, Layer, u8), Owner> = BTreeMap::new();
    for h in &facts.ledger.holders {
        let layer = h.layer();
        if matches!(layer, Layer::Pool | Layer::Tensor) {
            continue;
        }
        let owner = by_key.entry((h.caller, layer, h.source as u8)).or_insert_with(|| Owner {
            caller: h.caller,
            layer,
            source: h.source,
            at_peak: Tally::default(),
            ever: Tally::default(),
            now: Tally::default(),
        });
        owner.at_peak.merge(facts.ledger.at_peak(h));
        owner.ever.merge(h.ever);
        owner.now.merge(h.now);
    }
    let mut owners: Vec<Owner> = by_key.into_values().collect();
    owners.sort_by_key(|o| std::cmp::Reverse((o.at_peak.bytes, o.ever.bytes)));
    owners
}

/// Writes the section.
pub fn section(page: &mut Page, history: &History) {
    let owners = owners(history);
    if owners.is_empty() {
        return;
    }
    page.heading("OUTSIDE THE POOL, by the library that called");
    page.line(
        &page
            .paint
            .dim(&format!("  {:<34} {:<24} {:>9} {:>9} {:>12}", "library", "kind", "at peak", "at end", "allocations")),
    );
    for o in owners.iter().take(page.top) {
        let name = if o.caller == 0 { "(unknown)" } else { history.module_name(o.caller) };
        let kind = match (o.layer, o.source) {
            (Layer::Direct, Source::Capture) => "direct: capture",
            (Layer::Direct, Source::Hoarder) => "direct: own cache",
            (Layer::Direct, Source::Large) => "direct: large",
            (Layer::Direct, Source::LowMemory) => "direct: low memory",
            (layer, _) => layer.name(),
        };
        page.line(&format!(
            "  {:<34} {kind:<24} {:>9} {:>9} {:>12}",
            clip(&clean(name), 34),
            bytes(o.at_peak.bytes),
            bytes(o.now.bytes),
            count(o.ever.count)
        ));
    }
    if owners.len() > page.top {
        page.line(&format!("  and {} more", owners.len() - page.top));
    }
}
