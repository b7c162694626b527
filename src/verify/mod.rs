//! Is a history whole and consistent? Every rule of `docs/trace-format.md` that its lines can break, checked in one reading.
//!
//! A program's own errors (double frees, leaks, running out of memory) are no violations: the history tells of them. Nor is
//! what [`Verdict::allowed`] lists: it is said, and the rules are applied with it in mind.

use std::path::{Path, PathBuf};

use vramscope_core::event::{Event, EventKind};
use vramscope_core::trace::read::{Item, ReadError};
use vramscope_core::trace::{Footer, Header, Line, Lost};

use crate::import::lines::IMPORTED;
use crate::reading::Batches;
use crate::report::pauses::Pauses;
use definitions::Definitions;
use findings::{At, Findings};
use memory::Books;
use regions::Regions;
use sums::Sums;
use threads::Threads;

pub mod definitions;
pub mod findings;
pub mod memory;
pub mod numbers;
pub mod regions;
pub mod space;
pub mod sums;
#[cfg(test)]
mod tests;
pub mod threads;

pub use findings::{Finding, Kind};

/// A violation, with its file.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The rule that was broken.
    pub kind: Kind,
    /// How often.
    pub count: u64,
    /// Where first: the file,
    pub path: PathBuf,
    /// and the line in it; 0: at its end.
    pub line: u64,
    /// What was there.
    pub what: String,
}

/// What is to be said of a history.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// The history.
    pub path: PathBuf,
    /// Its events, threads and stacks.
    pub events: u64,
    /// See there.
    pub threads: usize,
    /// See there.
    pub stacks: u64,
    /// The rules that were broken.
    pub violations: Vec<Violation>,
    /// What is no violation, but should be known.
    pub allowed: Vec<String>,
}

/// Checks a history. An error: it cannot be read at all.
pub fn verify(path: &Path) -> Result<Verdict, ReadError> {
    let mut batches = Batches::open(path)?;
    let mut check = Check::new(batches.header().clone());
    for batch in batches.by_ref() {
        let part = check.findings.part(batch.path());
        for (line, item) in batch {
            let at = At { part, line };
            match item {
                Item::Event(thread, event) => check.event(thread, &event, at),
                Item::Line(line) => check.line(&line, at),
            }
        }
    }
    let damage = batches.damage().cloned();
    if let Some(damage) = &damage {
        let part = check.findings.part(&damage.path.clone().into());
        let at = At { part, line: damage.line };
        check.findings.add_many(Kind::Damaged, damage.places, at, || damage.what.clone());
    }
    Ok(check.finish(path))
}

/// A history while it is checked.
#[derive(Debug)]
struct Check {
    header: Header,
    findings: Findings,
    definitions: Definitions,
    threads: Threads,
    books: Books,
    regions: Regions,
    sums: Sums,
    lost_so_far: Lost,
    footer: Option<(Footer, At)>,
    exited: bool,
    pauses: Pauses,
    after_footer: bool,
    last: At,
}

impl Check {
    fn new(header: Header) -> Check {
        Check {
            threads: Threads::new(header.events_before > 0),
            books: Books::new(header.granularity),
            header,
            findings: Findings::default(),
            definitions: Definitions::default(),
            regions: Regions::default(),
            sums: Sums::default(),
            lost_so_far: Lost::default(),
            footer: None,
            exited: false,
            pauses: Pauses::default(),
            after_footer: false,
            last: At::default(),
        }
    }

    fn event(&mut self, thread: u32, e: &Event, at: At) {
        self.follows(at);
        let findings = &mut self.findings;
        self.exited |= e.kind == EventKind::Exit;
        self.pauses.play(e);
        self.definitions.event(e, at, findings);
        self.threads.event(thread, e, at, findings);
        if e.kind == EventKind::RegionBegin {
            self.books.number(e.id, at, findings);
        }
        self.books.event(thread, e, at, findings);
        self.regions.event(thread, e, at, findings);
        let whole = !self.threads.part;
        self.sums.event(thread, e, &self.books, whole, at, findings);
    }

    fn line(&mut self, line: &Line, at: At) {
        self.follows(at);
        self.definitions.line(line, at, &mut self.findings);
        match line {
            Line::Thread(thread) => self.threads.line(thread, at, &mut self.findings),
            Line::Live(thread, e) => {
                self.exited |= e.kind == EventKind::Exit;
                self.pauses.play(e);
                self.books.event(*thread, e, at, &mut self.findings);
            }
            Line::Lost(lost) => self.lost_so_far = lost.clone(),
            Line::Footer(footer) => self.footer = Some((footer.clone(), at)),
            _ => {}
        }
    }

    /// Something follows what was before.
    fn follows(&mut self, at: At) {
        self.last = at;
        if self.footer.is_some() && !std::mem::replace(&mut self.after_footer, true) {
            self.findings.add(Kind::AfterFooter, at, String::new);
        }
    }

    fn finish(mut self, path: &Path) -> Verdict {
        self.books.finish(&mut self.findings);
        self.sums.finish(&mut self.findings);
        self.ending();
        let lost = self.lost();
        let mut allowed = self.allowed(lost);
        let mut violations = Vec::new();
        for finding in self.findings.found.values() {
            let Finding { kind, count, at, what } = finding.clone();
            let path = self.findings.path(at);
            if lost > 0 && kind.may_be_loss() {
                allowed.push(format!(
                    "{}:{}: {} ({what}), {count} times: lost events may be the reason",
                    path.display(),
                    at.line,
                    kind.rule()
                ));
                continue;
            }
            violations.push(Violation { kind, count, path, line: at.line, what });
        }
        Verdict {
            path: path.to_owned(),
            events: self.threads.events,
            threads: self.threads.count(),
            stacks: self.definitions.count,
            violations,
            allowed,
        }
    }

    /// Events that were lost and counted.
    fn lost(&self) -> u64 {
        let so_far = self.lost_so_far.lost.max(self.threads.jumped);
        self.footer.as_ref().map_or(so_far, |(footer, _)| footer.lost)
    }

    /// The totals, and how the history ends.
    fn ending(&mut self) {
        let (findings, read) = (&mut self.findings, self.threads.events);
        let Some((footer, at)) = &self.footer else {
            if !self.exited {
                let end = At { line: self.last.line, ..self.last };
                findings.add(Kind::Unfinished, end, || "the last line".to_owned());
            }
            return;
        };
        let lacks = match footer.end.as_str() {
            "cut" => Some("its end is lost, and nobody knows how the program ended"),
            "stopped" if self.header.host != IMPORTED => Some("recording ended before the program did"),
            _ => None,
        };
        if let Some(lacks) = lacks {
            findings.add(Kind::Incomplete, *at, || lacks.to_owned());
        }
        let all = self.header.events_before.saturating_add(read);
        if footer.events != all {
            findings.add(Kind::FooterEvents, *at, || format!("{} in the footer, {all} read", footer.events));
        }
        if self.threads.jumped > footer.lost {
            let (jumped, lost) = (self.threads.jumped, footer.lost);
            findings.add(Kind::LossUncounted, self.threads.jump, || {
                format!("threads lack {jumped} events, the footer says {lost} were lost")
            });
        }
        if read > 0 && footer.time != self.threads.time {
            let time = self.threads.time;
            findings.add(Kind::FooterTime, *at, || format!("{} in the footer, {time} in the last event", footer.time));
        }
        let exit = footer.end == "exit";
        if exit != self.exited && ["exit", "killed"].contains(&footer.end.as_str()) {
            let there = if self.exited { "an" } else { "no" };
            findings.add(Kind::FooterEnd, *at, || format!("end {:?} with {there} exit event", footer.end));
        }
    }

    /// What is no violation, but should be known.
    fn allowed(&self, lost: u64) -> Vec<String> {
        let mut allowed = Vec::new();
        let mut say = |n: u64, [one, more]: [&str; 2], text: &str| {
            if n > 0 {
                allowed.push(text.replace('#', &format!("{n} {}", if n == 1 { one } else { more })));
            }
        };
        let (event, free, region) = (["event", "events"], ["free", "frees"], ["region", "regions"]);
        let before = self.header.events_before;
        let end = self.footer.as_ref().map_or("", |(footer, _)| footer.end.as_str());
        if end == "snapshot" {
            say(before, event, "a snapshot after #: only what was live then is checked");
        } else {
            say(before, event, "# in older parts that are gone (--max-trace): what they held is taken as told");
        }
        say(lost, event, "# lost, and counted");
        let refused = self.footer.as_ref().map_or(self.lost_so_far.stacks_refused, |(f, _)| f.stacks_refused);
        say(refused, ["stack", "stacks"], "# not recorded, and counted");
        let killed = "the program was killed, or left without exit handlers: its last state stands";
        say(u64::from(end == "killed"), event, killed);
        let unfinished = self.footer.is_none() && self.exited;
        say(u64::from(unfinished), event, "no footer: nobody was there to add it after the program's exit");
        say(self.books.unnumbered, free, "# of memory that was never recorded");
        say(self.books.bad_frees, free, "# by the program of what was not live");
        let live = ["allocation or segment", "allocations and segments"];
        say(self.books.live() as u64, live, "# live at the end");
        say(self.regions.open() as u64, region, "# open at the end");
        say(self.regions.crossing, region, "# crossing others (NVTX domains need not nest)");
        say(self.sums.explained, ["sum", "sums"], "# read while another thread changed them");
        allowed.extend(self.pauses.why());
        allowed.extend(self.sums.said());
        allowed
    }
}
