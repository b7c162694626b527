//! What was never freed, and who allocated it?

use super::Page;
use super::history::History;
use super::stacks::{self, By};
use super::state::{Group, State};
use super::tally::{Layer, Tally};
use super::text::{bytes, plural};

/// What was live at the end, and what only a context's end freed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unfreed {
    /// Device memory live at the end.
    pub device: Tally,
    /// Host memory, pinned or registered, live at the end.
    pub host: Tally,
    /// Freed by the end of its context.
    pub reset: Tally,
}

/// Adds up what was not freed.
pub fn unfreed(state: &State) -> Unfreed {
    let mut sum = Unfreed::default();
    for g in state.groups() {
        match g.layer() {
            // Tensors are in the segments that PyTorch holds.
            Layer::Imported | Layer::Tensor => {}
            layer if layer.on_device() => sum.device.merge(g.now),
            _ => sum.host.merge(g.now),
        }
        sum.reset.merge(g.reset);
    }
    sum
}

/// Writes the section.
pub fn section(page: &mut Page, history: &History) {
    let sum = unfreed(&history.state);
    page.heading("NEVER FREED");
    if sum.device.count + sum.host.count == 0 {
        page.line("  everything was freed");
    } else {
        let mut text = format!("{} in {}", bytes(sum.device.requested), plural(sum.device.count, "allocation"));
        if sum.host.count > 0 {
            text += &format!(
                " on the device, {} in {} of host memory",
                bytes(sum.host.requested),
                plural(sum.host.count, "allocation")
            );
        }
        let ended = history.footer.as_ref().map_or("", |f| f.end.as_str());
        if history.killed() {
            text += " (the program was killed)";
        } else if ended != "exit" && ended != "killed" {
            text += " so far";
        }
        page.line(&format!("  {text}"));
    }
    if sum.reset.count > 0 {
        page.line(&format!(
            "  {} in {} were freed by their context's end (no leak)",
            bytes(sum.reset.requested),
            plural(sum.reset.count, "allocation")
        ));
    }
    if history.facts.ledger.has_tensors() {
        page.line("  PyTorch keeps what it took until the process ends: what grows is told above");
        return;
    }
    let live: Vec<(&Group, Tally)> = history
        .state
        .groups()
        .iter()
        .filter(|g| g.now.count > 0 && !matches!(g.layer(), Layer::Imported | Layer::Tensor))
        .map(|g| (g, g.now))
        .collect();
    let (entries, rest) = stacks::entries(page, history, live, By::Requested);
    stacks::list(page, &entries, rest, By::Requested, sum.device.requested + sum.host.requested);
}
