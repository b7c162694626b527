//! How much was needed at most, when, in which layer, and what did the device say?

use super::Page;
use super::history::History;
use super::stacks::{self, By};
use super::state::{Group, Sample};
use super::tally::{LAYERS, Layer, Tally, Totals};
use super::text::{bytes, plural, time};

/// Writes the section.
pub fn section(page: &mut Page, history: &History) {
    let state = &history.state;
    let peak = &state.peak;
    let reserved = &state.reserved_peak;
    if history.is_snapshot() {
        let at = history.footer.as_ref().map_or(0, |f| f.time);
        page.heading(&format!("LIVE  {} active at {}", bytes(peak.totals.active()), time(at)));
    } else {
        page.heading(&format!("PEAK  {} active at {}", bytes(peak.totals.active()), time(peak.time)));
    }
    layers(page, &peak.totals);
    if state.devices.len() > 1 {
        for (device, totals) in &peak.devices {
            page.row(
                &format!("GPU {device}"),
                &format!("{:>9} active, {} reserved", bytes(totals.active()), bytes(totals.reserved())),
            );
        }
    }
    let same = if reserved.time == peak.time || history.is_snapshot() {
        String::new()
    } else {
        format!(" at {}", time(reserved.time))
    };
    page.row("most reserved", &format!("{:>9}{same}", bytes(reserved.totals.reserved())));
    for (device, sample) in &state.samples {
        device_row(page, *device, sample);
    }
}

fn layers(page: &mut Page, totals: &Totals) {
    for layer in LAYERS {
        let t = totals.layer(layer);
        if t.count == 0 && !(layer == Layer::Pool && totals.segments.bytes > 0) {
            continue;
        }
        let mut text = format!("{:>9} in {}", bytes(t.bytes), plural(t.count, "allocation"));
        if layer == Layer::Pool {
            text += &format!(", {} inactive, {} reserved", bytes(totals.inactive()), bytes(totals.pool_reserved()));
            let rounding = t.bytes.saturating_sub(t.requested);
            if rounding * 50 > t.bytes {
                text += &format!(" ({} of it rounding)", bytes(rounding));
            }
        } else if layer == Layer::Tensor {
            text += " (inside the memory above)";
        } else if !layer.on_device() {
            text += " (not device memory of this process)";
        }
        page.row(layer.name(), &text);
    }
    if totals.rounding > 0 {
        page.row("driver's rounding", &format!("{:>9} because it hands out pages of 2 MiB", bytes(totals.rounding)));
    }
}

fn device_row(page: &mut Page, device: u32, s: &Sample) {
    let rest = match s.used.checked_sub(s.ours) {
        Some(rest) => format!("{} ours + {} context, modules, driver, other processes", bytes(s.ours), bytes(rest)),
        None => format!("less than our {}: another process may have freed meanwhile", bytes(s.ours)),
    };
    page.row(&format!("GPU {device} said"), &format!("{:>9} used at {} = {rest}", bytes(s.used), time(s.time)));
}

/// Writes who held it, by call stack.
pub fn holders(page: &mut Page, history: &History) {
    let state = &history.state;
    let active = state.peak.totals.active();
    if active == 0 {
        return;
    }
    let when = if history.is_snapshot() { "" } else { " at the peak" };
    page.heading(&format!("HOLDERS{when}, by call stack"));
    let held: Vec<(&Group, Tally)> = state
        .groups()
        .iter()
        .filter(|g| g.layer().on_device())
        .map(|g| (g, state.at_peak(g)))
        .filter(|(_, t)| t.count > 0)
        .collect();
    let (entries, rest) = stacks::entries(page, history, held, By::Bytes);
    stacks::list(page, &entries, rest, By::Bytes, active);
}
