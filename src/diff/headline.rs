//! The numbers that say at a glance whether a run needs more than another.

use std::collections::BTreeMap;

use serde::Serialize;

use super::chain::library;
use super::run::Run;
use crate::report::tally::{LAYERS, Layer};

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// A number of things.
    Count,
    /// Nanoseconds.
    Nanoseconds,
    /// Thousandths.
    Permille,
}

/// A number of both runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// What it is.
    pub name: String,
    /// What it counts.
    pub unit: Unit,
    /// It is part of the row above that is no part.
    pub part: bool,
    /// Before.
    pub before: u64,
    /// After.
    pub after: u64,
}

/// The rows of two runs; what is nothing in both is left out.
pub fn rows(before: &Run, after: &Run) -> Vec<Row> {
    let snapshot = before.is_snapshot() || after.is_snapshot();
    let mut rows = Vec::new();
    let both = [before, after];
    let mut add = |name: &str, unit, part, f: &dyn Fn(&Run) -> u64| {
        let [before, after] = both.map(f);
        if before > 0 || after > 0 {
            rows.push(Row { name: name.to_string(), unit, part, before, after });
        }
    };
    use Unit::{Bytes, Count, Nanoseconds, Permille};
    let peak = |r: &Run| *r.held.peak();
    add("peak active", Bytes, false, &|r| peak(r).bytes);
    add(Layer::Tensor.name(), Bytes, true, &|r| peak(r).sums.totals.layer(Layer::Tensor).bytes);
    for layer in LAYERS.into_iter().filter(|l| l.on_device()) {
        // Of what PyTorch took its tensors stand here.
        add(layer.name(), Bytes, true, &|r| {
            let all = peak(r).sums.totals.layer(layer).bytes;
            all - segments(r, layer).min(all)
        });
    }
    let mut libraries: BTreeMap<String, [u64; 2]> = BTreeMap::new();
    for (i, run) in both.iter().enumerate() {
        for (name, bytes) in outside(run) {
            libraries.entry(name).or_default()[i] += bytes;
        }
    }
    let mut libraries: Vec<_> = libraries.into_iter().collect();
    libraries.sort_by_key(|(_, bytes)| std::cmp::Reverse(bytes[0].max(bytes[1])));
    for (name, bytes) in libraries.iter().take(8) {
        add(&format!("of it {name}"), Bytes, true, &|r| bytes[usize::from(std::ptr::eq(r, after))]);
    }
    let most = |r: &Run| r.held.reserved;
    add("peak reserved", Bytes, false, &|r| most(r).bytes);
    add("kept by PyTorch", Bytes, true, &|r| most(r).sums.cached(r.held.tensors()));
    add("kept by the pool", Bytes, true, &|r| most(r).sums.totals.inactive());
    add("waste then", Permille, true, &waste);
    for layer in [Layer::Pinned, Layer::Registered] {
        add(layer.name(), Bytes, false, &|r| peak(r).sums.totals.layer(layer).bytes);
    }
    if !snapshot {
        add("active at the end", Bytes, false, &|r| r.held.now().active(r.held.tensors()));
        add("reserved at the end", Bytes, false, &|r| r.held.now().reserved());
        add("failed allocations", Count, false, &|r| r.work.failed);
        add("allocations", Count, false, &|r| r.work.allocations);
        add("bytes allocated", Bytes, false, &|r| r.work.bytes);
        add("driver calls", Count, false, &|r| r.work.driver_calls);
        add("time in them", Nanoseconds, true, &|r| r.work.driver_time);
        add("host waits at a free", Count, false, &|r| r.work.host_waits);
        add("given back by the pool", Count, false, &|r| r.work.trims);
        add("last event at", Nanoseconds, false, &|r| r.end);
    }
    // Of a few moments; with what was ours at the highest of them it says nothing of the peak.
    add("besides, on the devices", Bytes, false, &|r| r.held.devices().values().map(|d| d.rest).sum());
    rows
}

/// What was reserved and not in use when most was reserved, in thousandths.
pub fn waste(run: &Run) -> u64 {
    let most = run.held.reserved;
    let active = most.sums.active(run.held.tensors());
    let unused = u128::from(most.bytes.saturating_sub(active));
    (unused * 1000).checked_div(most.bytes.into()).unwrap_or(0) as u64
}

/// Of a layer at the peak what PyTorch's allocator cuts tensors from.
fn segments(run: &Run, layer: Layer) -> u64 {
    if !run.held.tensors() {
        return 0;
    }
    let groups = run.held.groups().iter().filter(|g| g.segment && g.layer == layer);
    groups.map(|g| run.held.at_peak(g).bytes).sum()
}

/// What libraries took for themselves, at the peak.
pub fn outside(run: &Run) -> BTreeMap<String, u64> {
    let mut by = BTreeMap::new();
    let own = |layer: Layer| layer.on_device() && layer != Layer::Pool;
    for g in run.held.groups().iter().filter(|g| own(g.layer) && run.held.counts(g) && g.caller != 0) {
        let bytes = run.held.at_peak(g).bytes;
        if bytes > 0 {
            *by.entry(library(run.history.module_name(g.caller))).or_default() += bytes;
        }
    }
    by
}
