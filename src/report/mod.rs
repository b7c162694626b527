//! What a history says, one file a question: [`peak`], [`leaks`], [`owners`], [`pool`], [`sizes`], [`errors`].
//!
//! [`History::read`] plays the file once; sections are written into a [`Page`]. Nothing here prints.

use std::path::PathBuf;

use crate::symbols::Names;

pub mod codes;
pub mod errors;
pub mod frames;
pub mod history;
pub mod leaks;
pub mod order;
pub mod owners;
pub mod peak;
pub mod pool;
pub mod sizes;
pub mod stacks;
pub mod state;
pub mod summary;
pub mod tally;
#[cfg(test)]
pub(crate) mod testing;
pub mod text;

pub use history::History;
use text::{Paint, WIDTH, bytes, clean, clip, count, time};

/// A report while it is written.
pub struct Page {
    /// What was written so far.
    pub out: String,
    /// Its colours.
    pub paint: Paint,
    /// Names of addresses.
    pub names: Names,
    /// Entries of a list.
    pub top: usize,
    /// Frames of a stack.
    pub frames: usize,
}

impl Page {
    /// An empty page.
    pub fn new(paint: Paint, symbols: &[PathBuf], top: usize) -> Page {
        Page { out: String::new(), paint, names: Names::new(symbols), top: top.max(1), frames: 6 }
    }

    /// Begins a section.
    pub fn heading(&mut self, text: &str) {
        if !self.out.is_empty() {
            self.out.push('\n');
        }
        let text = self.paint.bold(text);
        self.line(&text);
    }

    /// Writes a line.
    pub fn line(&mut self, text: &str) {
        self.out.push_str(text);
        self.out.push('\n');
    }

    /// Writes a name and what is to be said of it, in columns; goes on in a second line where one is too short.
    pub fn row(&mut self, name: &str, text: &str) {
        const COLUMN: usize = 24;
        let mut line = format!("  {name:<22}");
        for word in text.split_inclusive(' ') {
            if line.chars().count() + word.trim_end().chars().count() > WIDTH {
                self.line(line.trim_end());
                line = " ".repeat(COLUMN);
            }
            line.push_str(word);
        }
        self.line(line.trim_end());
    }
}

/// Writes the whole report.
pub fn write(page: &mut Page, history: &History) {
    head(page, history);
    if !history.has_events() {
        page.line("\nNothing was recorded: no GPU memory was asked for.");
        errors::section(page, history);
        return;
    }
    peak::section(page, history);
    peak::holders(page, history);
    leaks::section(page, history);
    owners::section(page, history);
    pool::section(page, history);
    sizes::section(page, history);
    errors::section(page, history);
    symbols(page);
}

fn head(page: &mut Page, history: &History) {
    let h = &history.header;
    let command = if h.arguments.is_empty() { h.program.clone() } else { h.arguments.join(" ") };
    let command = clip(&clean(&command), WIDTH - 8);
    page.line(&format!("{}  {}", page.paint.bold("PROGRAM"), command));
    let rank = ["RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"].iter().find_map(|r| h.rank.get(*r));
    let rank = rank.map_or(String::new(), |r| format!(", rank {r}"));
    page.row("process", &format!("{} on {}{rank}, {} after start", h.pid, clean(&h.host), time(history.end)));
    for d in history.devices.values() {
        page.row(&format!("GPU {}", d.device), &format!("{}, {} {}", clean(&d.name), bytes(d.bytes), d.uuid));
    }
    let settings: Vec<String> = ["POOL", "SYNC", "STACKS"]
        .iter()
        .filter_map(|s| Some(format!("{}={}", s.to_ascii_lowercase(), h.settings.get(&format!("VRAMSCOPE_{s}"))?)))
        .collect();
    if !settings.is_empty() {
        page.row("settings", &clean(&settings.join(" ")));
    }
    let ended = match &history.footer {
        None => "not finished".to_string(),
        Some(f) => {
            let end = match f.end.as_str() {
                "exit" => "the program ended in good order",
                "killed" => "the program was killed",
                "stopped" => "recording ended early",
                other => other,
            };
            f.status.map_or(end.to_string(), |s| format!("{end}, status {s}"))
        }
    };
    page.row("history", &format!("{} events; {ended}", count(history.events)));
}

/// Files whose names could not be read, once each.
fn symbols(page: &mut Page) {
    let notes = std::mem::take(&mut page.names.notes);
    if notes.is_empty() {
        return;
    }
    page.heading("NAMES MISSING (--symbols FOLDER says where else to look)");
    for note in notes {
        page.line(&format!("  {}", clip(&clean(&note), WIDTH - 2)));
    }
}
