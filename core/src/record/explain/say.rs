//! The explanation in words: about 30 lines of at most 100 columns.

use super::holders::{Held, is_native, place};
use super::{Failure, PYTORCH};
use crate::record::live::Live;
use crate::text::{bytes, count};
use crate::trace::Oom;

/// Columns.
const WIDTH: usize = 100;

/// The text for a person.
pub(super) fn text(live: &Live, failure: &Failure, oom: &Oom, held: &[Held]) -> String {
    let mut page = Page::default();
    page.fold("vramscope: ", "  ", &head(live, failure, oom));
    if failure.stack != 0 {
        page.row("asked at", &place(live, failure.stack, failure.caller));
    }
    page.row("free", &format!("{:>9}", bytes(oom.free)));
    if let Some(l) = &oom.limit {
        page.row("limit", &format!("{:>9} by {}, {} of it in use", bytes(l.bytes), l.by, bytes(l.used)));
    }
    layers(&mut page, live, oom);
    if !held.is_empty() {
        page.line("  the biggest holders:");
    }
    for (i, h) in held.iter().enumerate() {
        let many = format!("in {}", count(h.count));
        page.line(&format!("  {:>3}. {:>9} {many:<9} {}", i + 1, bytes(h.bytes), h.place));
    }
    if held.is_empty() {
        page.line("  who holds it: not known (no history is kept, or nothing is live)");
    }
    if is_native(live, failure.stack) || held.iter().any(|h| is_native(live, h.stack)) {
        page.line("  (functions and lines of library+0x...: vramscope report, on this process's history)");
    }
    if !oom.advice.is_empty() {
        page.line("  what would help:");
    }
    for advice in &oom.advice {
        page.fold("    - ", "      ", advice);
    }
    page.0
}

fn head(live: &Live, failure: &Failure, oom: &Oom) -> String {
    let device = live.known().device(failure.device);
    let name = device.map_or(failure.name.as_str(), |d| &d.name);
    let gpu = match name.is_empty() {
        true => format!("GPU {} ({})", failure.device, bytes(failure.total)),
        false => format!("GPU {} ({name}, {})", failure.device, bytes(failure.total)),
    };
    let by = match live.known().file(failure.caller) {
        _ if failure.caller == 0 || failure.what == PYTORCH => String::new(),
        file => format!(" by {file}"),
    };
    let what = if failure.what.is_empty() { "a call" } else { &failure.what };
    match failure.asked {
        0 => format!("OUT OF MEMORY: {what}{by} found no memory on {gpu}"),
        asked => format!("OUT OF MEMORY: {what}{by} asked for {}{} on {gpu}", bytes(asked), segment(oom)),
    }
}

/// What PyTorch's own message tells of: the segment, where it is not as large as the tensor.
fn segment(oom: &Oom) -> String {
    match oom.segment > oom.asked && bytes(oom.segment) != bytes(oom.asked) {
        true if oom.expandable => format!(", up to {} more of an expandable segment,", bytes(oom.segment)),
        true => format!(", which takes a new segment of {},", bytes(oom.segment)),
        false => String::new(),
    }
}

fn layers(page: &mut Page, live: &Live, oom: &Oom) {
    let kept = |active: u64, inactive: u64, largest: u64| {
        let mut text = format!("{:>9} active, {} inactive", bytes(active), bytes(inactive));
        if largest > 0 {
            let pieces = 100 - u128::from(largest.min(inactive)) * 100 / u128::from(inactive.max(1));
            text += &format!(" (largest free {}, fragmentation {pieces} %)", bytes(largest));
        }
        text
    };
    if oom.pytorch_active > 0 || oom.pytorch_inactive > 0 {
        page.row("PyTorch", &kept(oom.pytorch_active, oom.pytorch_inactive, oom.pytorch_largest));
    }
    if oom.pool_active > 0 || oom.pool_inactive > 0 {
        page.row("vramscope's pool", &kept(oom.pool_active, oom.pool_inactive, oom.pool_largest));
    }
    if oom.outside > 0 {
        let name = |module| if module == 0 { "?" } else { live.known().file(module) };
        let by: Vec<String> =
            oom.libraries.iter().take(3).map(|l| format!("{} {}", name(l.module), bytes(l.bytes))).collect();
        page.row("outside of it", &format!("{:>9}: {}", bytes(oom.outside), by.join(", ")));
    }
    match oom.others {
        Some(others) => {
            page.row("context, modules", &format!("{:>9} with what else the driver needs", bytes(oom.rest)));
            page.row("other processes", &format!("{:>9}", bytes(others)));
        }
        None => page.row("the rest", &format!("{:>9} context, modules, driver, other processes", bytes(oom.rest))),
    }
}

/// Lines.
#[derive(Default)]
struct Page(String);

impl Page {
    /// A line, cut where the page ends.
    fn line(&mut self, text: &str) {
        let text = text.trim_end();
        if text.chars().count() <= WIDTH {
            self.0.push_str(text);
        } else {
            self.0.extend(text.chars().take(WIDTH - 3));
            self.0.push_str("...");
        }
        self.0.push('\n');
    }

    fn row(&mut self, name: &str, text: &str) {
        self.line(&format!("  {name:<17}{text}"));
    }

    /// A text that goes on in further lines.
    fn fold(&mut self, first: &str, next: &str, text: &str) {
        let mut line = first.to_owned();
        let mut begun = false;
        for word in text.split(' ') {
            if begun && line.chars().count() + 1 + word.chars().count() > WIDTH {
                self.line(&line);
                line = next.to_owned();
                begun = false;
            }
            if begun {
                line.push(' ');
            }
            line.push_str(word);
            begun = true;
        }
        self.line(&line);
    }
}
