//! The writer: rounds of the drain, made into lines, frames and parts.
//!
//! Slots of a ring are given back only after the write of the complete lines (or the complete zstd frame) that hold
//! them has returned. So at any moment every event is whole in the file or whole in the spool.

use std::collections::HashSet;
use std::io;

use super::clock::Clock;
use super::definition::number;
use super::drain::{Drain, Item};
use super::explain::{Explanation, Failure, explain};
use super::live::{Live, Snapshot};
use super::output::{Output, write_all};
use super::spool::Spool;
use crate::trace::{Footer, Header, Line, Lost, Note, write};

/// Text that makes a frame: enough for the compressor to find repetition.
const FRAME: usize = 512 << 10;
/// Text waits for a frame to fill for so long.
const HOLD_NS: u64 = 250_000_000;
/// Between two lines that say how much is lost.
const TELL_NS: u64 = 1_000_000_000;
/// zstd level, and rings fuller than this (in percent) are written at once.
const LEVEL: i32 = 3;
const HALF: u32 = 50;

/// How to write.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Independent zstd frames (`.jsonl.zst`) instead of plain lines.
    pub compress: bool,
    /// Keep at most about so many bytes: the current part and the one before it.
    pub max_bytes: Option<u64>,
}

/// What a round did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Events made into lines.
    pub events: u64,
    /// Bytes written.
    pub bytes: u64,
    /// How full the fullest ring was, in percent: a reason to come back sooner.
    pub fullness: u32,
    /// Lines wait for their frame to fill (they are safe in the spool).
    pub held: bool,
}

/// Turns a spool into a history. Any thread may call it, one at a time.
pub struct Writer<'a, O> {
    drain: Drain<'a>,
    clock: Clock,
    output: O,
    /// Lines not yet written.
    text: Vec<u8>,
    /// A frame being written, and how much of it (or of `text`) is.
    frame: Vec<u8>,
    at: usize,
    sealed: bool,
    compressor: Option<zstd::bulk::Compressor<'static>>,
    /// When the oldest waiting line was made.
    since: Option<u64>,
    /// Bytes of the current part, and of its opening (the first part needs none).
    part: u64,
    opening: u64,
    /// The waiting text is a part's opening.
    opens: bool,
    /// What is live, and what the next part must open with. Not for recover.
    live: Option<Live>,
    /// There may be a next part.
    rotates: bool,
    max_bytes: u64,
    /// Time of the newest event.
    last_time: u64,
    /// Lines of the writer's own, to be written with the next round.
    notes: Vec<u8>,
    /// What was said to be lost, and when (CLOCK_MONOTONIC).
    told: Lost,
    told_at: u64,
    /// For recover: definitions that the file has.
    known: HashSet<(u8, u64)>,
    written: u64,
}

impl<O> std::fmt::Debug for Writer<'_, O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer")
            .field("written", &self.written)
            .field("waiting", &self.text.len())
            .finish_non_exhaustive()
    }
}

impl<'a, O: Output> Writer<'a, O> {
    /// A writer of a new history. Its first line is the spool's header.
    pub fn new(spool: Spool<'a>, output: O, options: &Options) -> io::Result<Writer<'a, O>> {
        let mut writer = Writer::with_drain(Drain::new(spool), output, options)?;
        writer.text = spool.header_line();
        writer.rotates = options.max_bytes.is_some();
        let header = serde_json::from_slice(&writer.text).unwrap_or_default();
        writer.live = Some(Live::new(header, writer.rotates));
        writer.max_bytes = options.max_bytes.unwrap_or(u64::MAX);
        Ok(writer)
    }

    /// For recover: a writer that goes on in a history that holds the definitions in `known`.
    pub(super) fn resume(drain: Drain<'a>, output: O, compress: bool, known: HashSet<(u8, u64)>) -> io::Result<Self> {
        let mut writer = Writer::with_drain(drain, output, &Options { compress, max_bytes: None })?;
        writer.known = known;
        Ok(writer)
    }

    fn with_drain(drain: Drain<'a>, output: O, options: &Options) -> io::Result<Writer<'a, O>> {
        let compressor = match options.compress {
            true => {
                let mut compressor = zstd::bulk::Compressor::new(LEVEL)?;
                compressor.include_checksum(true)?;
                Some(compressor)
            }
            false => None,
        };
        Ok(Writer {
            clock: Clock::new(&drain.spool()),
            drain,
            output,
            text: Vec::new(),
            frame: Vec::new(),
            at: 0,
            sealed: false,
            compressor,
            since: None,
            part: 0,
            opening: 0,
            opens: false,
            live: None,
            rotates: false,
            max_bytes: u64::MAX,
            notes: Vec::new(),
            told: Lost::default(),
            told_at: 0,
            known: HashSet::new(),
            written: 0,
            last_time: 0,
        })
    }

    /// One round. `now_raw` and `now_ns` are the raw clock and CLOCK_MONOTONIC, read together just before. After an error
    /// nothing is lost: the next round goes on at the same byte.
    pub fn round(&mut self, now_raw: u64, now_ns: u64) -> io::Result<Progress> {
        self.anchor(now_raw, now_ns);
        self.tell_lost(now_ns, false);
        self.work(now_raw, now_ns, false)
    }

    /// A round that takes everything up to now and writes everything that waits. Not what comes meanwhile: it ends however
    /// fast threads go on, and no free comes before its allocation, which another thread made.
    pub fn flush(&mut self, now_raw: u64, now_ns: u64) -> io::Result<Progress> {
        self.anchor(now_raw, now_ns);
        self.tell_lost(now_ns, true);
        self.work(now_raw, now_ns, true)
    }

    /// All that the spool still holds, for recover: no new anchor is to be had.
    pub(super) fn rest(&mut self) -> io::Result<Progress> {
        self.work(u64::MAX, 0, true)
    }

    /// For recover: begins the next part with its header.
    pub(super) fn begin(&mut self, header: &Header) {
        write::header(&mut self.text, header);
    }

    fn anchor(&mut self, raw: u64, ns: u64) {
        // Only what the clock goes by: recover must place events where this writer would have.
        if self.clock.anchor(raw, ns) {
            self.drain.spool().set_anchor(raw, ns);
        }
    }

    /// Adds a message of the writer's own. It is written with the next round.
    pub fn note(&mut self, now_ns: u64, message: &str) {
        let time = now_ns.saturating_sub(self.drain.spool().zero().1);
        write::line(&mut self.notes, &Line::Note(Note { time, message: message.to_owned() }));
    }

    /// Says how much is lost by now, if it is more than was said: at once, or at most once a second. (Nobody may be there to
    /// write the footer, which says it too.)
    fn tell_lost(&mut self, now_ns: u64, at_once: bool) {
        let spool = self.drain.spool();
        let (lost, stacks_refused) = (spool.lost(), spool.stacks_refused());
        if (lost, stacks_refused) == (self.told.lost, self.told.stacks_refused)
            || !at_once && self.told_at != 0 && now_ns.saturating_sub(self.told_at) < TELL_NS
        {
            return;
        }
        self.told = Lost { time: now_ns.saturating_sub(spool.zero().1), lost, stacks_refused };
        self.told_at = now_ns;
        write::line(&mut self.notes, &Line::Lost(self.told.clone()));
    }

    /// A request failed for want of memory: takes in everything that is in the rings, says what the state is, and writes it
    /// into the history at once, because the program may end now. The explanation is there even where the write failed.
    pub fn explain(&mut self, failure: &Failure, now_raw: u64, now_ns: u64) -> (Explanation, io::Result<()>) {
        let drained = self.flush(now_raw, now_ns);
        let nothing = Live::default();
        let mut explanation = explain(self.live.as_ref().unwrap_or(&nothing), failure);
        explanation.oom.time = self.clock.convert(now_raw).max(self.last_time);
        write::line(&mut self.notes, &Line::Oom(Box::new(explanation.oom.clone())));
        let written = drained.and_then(|_| {
            self.text.append(&mut self.notes);
            self.commit(&mut Progress::default())
        });
        (explanation, written)
    }

    /// What is live now, after everything that is in the rings. To be written by another thread: hooks wait for this one.
    pub fn snapshot(&mut self, now_raw: u64, now_ns: u64) -> io::Result<Snapshot> {
        self.flush(now_raw, now_ns)?;
        Ok(self.live.as_ref().unwrap_or(&Live::default()).snapshot(&self.told))
    }

    /// What is live, as of the last round.
    pub fn live(&self) -> Option<&Live> {
        self.live.as_ref()
    }

    /// Ends a history whose recording was stopped: nothing follows any more. Of the process itself, where nobody else will.
    pub fn end_stopped(&mut self) -> io::Result<()> {
        let spool = self.drain.spool();
        self.footer(&Footer {
            time: self.last_time,
            events: self.live.as_ref().map_or(0, Live::events),
            lost: spool.lost(),
            stacks_refused: spool.stacks_refused(),
            end: "stopped".to_owned(),
            status: None,
            by: "library".to_owned(),
        })
    }

    /// Ends the file.
    pub(super) fn footer(&mut self, footer: &Footer) -> io::Result<()> {
        self.commit(&mut Progress::default())?;
        write::line(&mut self.text, &Line::Footer(footer.clone()));
        self.commit(&mut Progress::default())
    }

    /// Where it writes to.
    pub fn output(&self) -> &O {
        &self.output
    }

    /// The clock, as known by now.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Time of the newest event.
    pub(super) fn last_time(&self) -> u64 {
        self.last_time
    }

    /// For recover: events that no ring held any more, of a history that begins with this file or does not.
    pub(super) fn jumped(&self, begins: bool) -> u64 {
        self.drain.jumped.saturating_add(self.drain.missing_at_the_end(begins))
    }

    /// Slots of the spool that could not be read.
    pub(super) fn damaged(&self) -> u64 {
        self.drain.damaged
    }

    fn work(&mut self, until: u64, now_ns: u64, flush: bool) -> io::Result<Progress> {
        let mut progress = Progress::default();
        if self.sealed {
            self.commit(&mut progress)?;
        }
        self.text.append(&mut self.notes);
        self.drain.begin(until);
        progress.fullness = self.drain.fullness();
        while let Some(line) = self.drain.next_definition() {
            self.definition(line);
        }
        while let Some(item) = self.drain.next_event() {
            match item {
                Item::Thread(thread) => {
                    if let Some(live) = &mut self.live {
                        live.thread(&thread);
                    }
                    write::line(&mut self.text, &Line::Thread(thread));
                }
                Item::Event(thread, mut event) => {
                    event.time = self.clock.convert(event.time);
                    write::event(&mut self.text, thread, &event);
                    progress.events += 1;
                    self.last_time = self.last_time.max(event.time);
                    if let Some(live) = &mut self.live {
                        live.event(thread, &event);
                    }
                    if self.text.len() >= FRAME {
                        self.commit(&mut progress)?;
                    }
                }
            }
        }
        if self.text.is_empty() {
            // Nothing to write, but definitions may have been stepped over and rings closed.
            self.drain.written();
            return Ok(progress);
        }
        let since = *self.since.get_or_insert(now_ns);
        let waited = now_ns.saturating_sub(since) >= HOLD_NS;
        if flush || self.compressor.is_none() || waited || progress.fullness > HALF || self.part == 0 {
            self.commit(&mut progress)?;
        } else {
            progress.held = true;
        }
        Ok(progress)
    }

    fn definition(&mut self, mut line: Line) {
        if let Line::Note(note) = &mut line {
            note.time = self.clock.convert(note.time);
        }
        if !self.known.is_empty() && number(&line).is_some_and(|n| self.known.contains(&n)) {
            return;
        }
        write::line(&mut self.text, &line);
        if let Some(live) = &mut self.live {
            live.definition(&line);
        }
    }

    /// Writes the waiting lines out and gives their slots back. Begins a new part when this one is full.
    fn commit(&mut self, progress: &mut Progress) -> io::Result<()> {
        while !self.text.is_empty() {
            self.write_out(progress)?;
            if let Some(live) = self.live.as_mut().filter(|_| self.rotates)
                // A part must hold more than its opening, or a history of much live memory would be all openings.
                && self.part >= (self.max_bytes / 2).max(2 * self.opening)
            {
                self.output.next_part()?;
                live.open_part(&mut self.text);
                // The part that said so is dropped at the next turn.
                if self.told != Lost::default() {
                    write::line(&mut self.text, &Line::Lost(self.told.clone()));
                }
                self.part = 0;
                self.opens = true;
            }
        }
        Ok(())
    }

    fn write_out(&mut self, progress: &mut Progress) -> io::Result<()> {
        if !self.sealed {
            if let Some(compressor) = &mut self.compressor {
                self.frame = compressor.compress(&self.text)?;
            }
            self.at = 0;
            self.sealed = true;
        }
        let bytes = if self.compressor.is_some() { &self.frame } else { &self.text };
        write_all(&mut self.output, bytes, &mut self.at)?;
        let len = bytes.len() as u64;
        self.drain.written();
        self.text.clear();
        self.sealed = false;
        self.since = None;
        self.part += len;
        self.written += len;
        progress.bytes += len;
        if std::mem::take(&mut self.opens) {
            self.opening = len;
        }
        Ok(())
    }
}

/// Ends a file that no writer goes on in.
pub(super) fn write_footer(mut output: impl Output, compress: bool, footer: &Footer) -> io::Result<()> {
    let mut text = Vec::new();
    write::line(&mut text, &Line::Footer(footer.clone()));
    if compress {
        text = zstd::bulk::compress(&text, LEVEL)?;
    }
    write_all(&mut output, &text, &mut 0)
}
