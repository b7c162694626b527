//! What a history says, one file a question: [`oom`], [`leaks`], [`owners`], [`pool`], [`sizes`], [`errors`].
//!
//! [`History::read`] plays the file once; sections are written into a [`Page`]. Nothing here prints.

use std::path::PathBuf;

use crate::symbols::Names;

pub mod answers;
pub mod by;
pub mod churned;
pub mod codes;
pub mod devices;
pub mod errors;
pub mod facts;
mod fits;
pub mod frames;
pub mod glance;
pub mod growth;
pub mod history;
pub mod holders;
pub mod interpreter;
pub mod leaks;
pub mod named;
pub mod oom;
pub mod order;
pub mod owners;
pub mod pauses;
pub mod pinned;
pub mod pool;
pub mod python;
pub mod room;
pub mod runtime;
pub mod sizes;
pub mod stacks;
pub mod state;
pub mod summary;
pub mod suspects;
pub mod tally;
#[cfg(test)]
pub(crate) mod testing;
pub mod text;
pub mod tries;
pub mod verdict;

use answers::Answers;
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
    /// Every frame of a stack, also those that say nothing to most.
    pub all_frames: bool,
}

impl Page {
    /// An empty page.
    pub fn new(paint: Paint, symbols: &[PathBuf], top: usize) -> Page {
        Page { out: String::new(), paint, names: Names::new(symbols), top: top.max(1), frames: 6, all_frames: false }
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

    /// Writes a text behind a lead, over several lines where one is too short.
    pub fn fold(&mut self, lead: &str, text: &str) {
        let mut line = lead.to_string();
        let indent = " ".repeat(lead.chars().count());
        let mut empty = true;
        for word in text.split_whitespace() {
            if !empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
                self.line(line.trim_end());
                line.clone_from(&indent);
                empty = true;
            }
            if !empty {
                line.push(' ');
            }
            line.push_str(word);
            empty = false;
        }
        self.line(line.trim_end());
    }
}

/// Writes the whole report.
pub fn write(page: &mut Page, history: &History, answers: &Answers) {
    head(page, history);
    if !history.has_events() {
        let what = if history.is_snapshot() {
            "Nothing was live."
        } else {
            "Nothing was recorded: no GPU memory was asked for."
        };
        page.line(&format!("\n{what}"));
        errors::section(page, history);
        return;
    }
    glance::section(page, history, &answers.glance);
    oom::section(page, &answers.out_of_memory);
    suspects::section(page, history, &answers.leaks);
    glance::layers(page, history, &answers.glance);
    for at in &answers.holders {
        // Of what is there at the end, what was never freed tells more, where a program frees at all.
        if at.moment != "end" || answers.holders.len() == 1 {
            holders::section(page, history, at);
        }
    }
    if !history.is_snapshot() {
        leaks::section(page, history);
    }
    if let Some(holes) = &answers.holes {
        pinned::section(page, holes);
    }
    // What another tool recorded has no pool to be outside of.
    if !history.is_imported() {
        owners::section(page, history);
    }
    named::section(page, &answers.named);
    devices::section(page, &answers.devices);
    churned::section(page, &answers.churn);
    if !history.is_imported() {
        pool::section(page, history);
    }
    sizes::section(page, history);
    errors::section(page, history);
    symbols(page);
}

fn head(page: &mut Page, history: &History) {
    let h = &history.header;
    let command = if h.arguments.is_empty() { h.program.clone() } else { h.arguments.join(" ") };
    let command = clip(&clean(&command), WIDTH - 8);
    page.line(&format!("{}  {}", page.paint.bold("PROGRAM"), command));
    let rank = h.rank().map_or(String::new(), |r| format!(", rank {}", clean(r)));
    let (host, end) = (clean(&h.host), time(history.end));
    if history.is_imported() {
        let process = if h.pid > 0 { format!("process {}, ", h.pid) } else { String::new() };
        page.row("imported", &format!("{process}as another tool recorded it; last event {end} after the first"));
    } else {
        let last = if history.is_snapshot() { "taken" } else { "last event" };
        page.row("process", &format!("{} on {host}{rank}, {last} {end} after recording began", h.pid));
    }
    // An imported history has a device and says nothing of it.
    for d in history.devices.values().filter(|d| d.bytes > 0 || !history.is_imported()) {
        page.row(&format!("GPU {}", d.device), &format!("{}, {} {}", clean(&d.name), bytes(d.bytes), d.uuid));
    }
    let settings: Vec<String> = ["POOL", "SYNC", "STACKS"]
        .iter()
        .filter_map(|s| Some(format!("{}={}", s.to_ascii_lowercase(), h.settings.get(&format!("VRAMSCOPE_{s}"))?)))
        .collect();
    if !settings.is_empty() {
        page.row("settings", &clean(&settings.join(" ")));
    }
    let events = if history.is_snapshot() {
        format!("what was live after {} events", count(history.header.events_before))
    } else if history.is_part() {
        let (part, all) = (count(history.events), count(history.all_events()));
        format!("the last {part} of {all} events (--max-trace): peak, holders and sizes are of this part only")
    } else {
        format!("{} events", count(history.events))
    };
    page.row("history", &format!("{events}; {}", ended(history)));
}

/// How the program, or its recording, ended.
fn ended(history: &History) -> String {
    if let Some(signal) = history.signal() {
        let name = signal_hook::low_level::signal_name(signal).map_or(String::new(), |n| format!(" ({n})"));
        return format!("the program died of signal {signal}{name}");
    }
    match &history.footer {
        None if history.exited => "the program ended in good order".to_string(),
        None => "not finished".to_string(),
        Some(f) => {
            let end = match f.end.as_str() {
                "exit" => "the program ended in good order",
                "killed" if f.status.is_some() => "the program ended without its exit handlers",
                "killed" => "the program was killed",
                "stopped" if history.is_imported() => "all that its file held",
                "stopped" => "recording ended early",
                "snapshot" => "a snapshot of a running program",
                "cut" => "its end is lost",
                other => other,
            };
            f.status.map_or(end.to_string(), |s| format!("{end}, status {s}"))
        }
    }
}

/// Files whose names could not be read, once each.
fn symbols(page: &mut Page) {
    let notes = std::mem::take(&mut page.names.notes);
    if notes.is_empty() {
        return;
    }
    page.heading("NAMES MISSING (--symbols FOLDER says where else to look)");
    for note in notes {
        // Whole: what to do stands at its end.
        text::fold(&clean(&note), WIDTH, "  ", "    ").iter().for_each(|line| page.line(line));
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{named, sample};
    use super::*;

    /// The report of the sample, as read back from a file, with names for its addresses.
    fn report(paint: Paint) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vramscope-program-4242.jsonl");
        let mut text = Vec::new();
        for line in &sample().lines {
            vramscope_core::trace::write::line(&mut text, line);
        }
        std::fs::write(&path, text).unwrap();
        let history = History::read(&path).unwrap();
        let mut page = Page::new(paint, &[], 10);
        for (offset, function, line) in [
            (0x1000, "Model::load(std::string const&)", 31),
            (0x1100, "forward(Batch const&)", 88),
            (0x1200, "Linear::run()", 12),
            (0x1300, "allreduce()", 55),
            (0x2000, "main", 120),
        ] {
            page.names.insert(1, offset, vec![named(function, "/job/src/model.cu", line)]);
        }
        let answers = Answers::of(&mut page, &history, &Default::default()).unwrap();
        write(&mut page, &history, &answers);
        page.out
    }

    #[test]
    fn the_sample_answers_every_question_within_the_screen() {
        let text = report(Paint::default());
        println!("{text}");
        for line in text.lines() {
            assert!(line.chars().count() <= WIDTH && line.is_ascii() && line.trim_end() == line, "{line:?}");
        }
        for part in [
            "PEAK  829 MiB active at 33.0 ms",
            "HOLDERS",
            "Model::load(std::string const&)",
            "src/model.cu:31",
            "NEVER FREED",
            "OUTSIDE THE POOL",
            "libnccl.so.2",
            "200 (93.0 %) of 215 requests",
            "CUDA_ERROR_OUT_OF_MEMORY (2)",
            "double free of",
            "freed before",
            "libcublasLt.so.13+0x10",
        ] {
            assert!(text.contains(part), "{part} is missing");
        }
    }

    #[test]
    fn colour_is_only_added() {
        let plain = report(Paint::default());
        let mut text = report(Paint { on: true });
        for code in ["0", "1", "2", "31"] {
            text = text.replace(&format!("\x1b[{code}m"), "");
        }
        assert_eq!(text, plain);
    }

    #[test]
    fn rows_go_on_below_their_text() {
        let mut page = Page::new(Paint::default(), &[], 10);
        page.row("name", &"word ".repeat(30));
        let lines: Vec<&str> = page.out.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(
            lines[0].starts_with("  name                  word")
                && lines[1].starts_with("                        word")
        );
    }
}
