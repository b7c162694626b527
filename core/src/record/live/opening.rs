//! The state as lines: what a part of a rotated history opens with, so that it can be read when the parts before it are
//! gone, and a snapshot.

use std::collections::HashSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::{Entry, Known, Live};
use crate::event::{Event, EventKind};
use crate::record::TraceFile;
use crate::trace::{Footer, Header, Line, Lost, Note, Thread, write};

/// Text that is written at once.
const PIECE: usize = 256 << 10;
const LEVEL: i32 = 3;

impl Live {
    /// Writes the opening of the next part.
    pub(crate) fn open_part(&mut self, text: &mut Vec<u8>) {
        self.header.part += 1;
        self.header.events_before = self.now.events;
        write::header(text, &self.header);
        self.known.write(text, |_| true);
        for thread in self.threads.lines() {
            write::line(text, &Line::Thread(thread.clone()));
        }
        // The exit, which what exit handlers do may move out of all parts that are kept, does not live, but stays true.
        for (thread, event) in self.lines().into_iter().chain(self.exit) {
            write::live(text, thread, &event);
        }
    }

    /// What is live: contexts first, then segments, allocations, mappings; before them pauses, in which tensors were made that
    /// are not among them.
    fn lines(&self) -> Vec<(u32, Event)> {
        let mut entries: Vec<&Entry> = self.entries().collect();
        entries.sort_unstable_by_key(|e| (e.event.kind != EventKind::SegmentAlloc, e.event.id));
        let contexts = self.contexts.values().copied();
        let entries = entries.into_iter().map(|e| (e.thread, e.event));
        self.pauses.iter().copied().chain(contexts).chain(entries).chain(self.maps.values().copied()).collect()
    }

    /// A copy of what is live now, to be written while the writer goes on; so much is lost by now.
    pub(crate) fn snapshot(&self, lost: &Lost) -> Snapshot {
        let header = Header { events_before: self.now.events, part: 0, spool: String::new(), ..self.header.clone() };
        let threads = self.threads.lines().into_iter().cloned().collect();
        let live = self.lines();
        let (known, time, lost) = (self.known.clone(), self.now.time, lost.clone());
        Snapshot { header, known, threads, live, time, lost, untold: self.untold }
    }
}

/// What was live at one moment: a history without events.
#[derive(Debug)]
pub struct Snapshot {
    header: Header,
    known: Known,
    threads: Vec<Thread>,
    live: Vec<(u32, Event)>,
    time: u64,
    lost: Lost,
    untold: u64,
}

impl Snapshot {
    /// How many things were live: contexts, segments, allocations and mappings.
    pub fn len(&self) -> usize {
        self.live.len()
    }

    /// Whether nothing was.
    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    /// Writes it into a new file, whose name it gives; zstd for a name that ends in `.zst`.
    pub fn save(&self, path: &Path) -> io::Result<PathBuf> {
        let file = TraceFile::create(path)?;
        if path.extension().is_some_and(|e| e == "zst") {
            let mut frames = zstd::stream::write::Encoder::new(file.file(), LEVEL)?;
            self.write(&mut frames)?;
            frames.finish()?;
        } else {
            self.write(&mut file.file())?;
        }
        Ok(file.path().to_owned())
    }

    /// Writes it. Whatever reads a history reads it.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let mut text = Vec::new();
        write::header(&mut text, &self.header);
        let stacks: HashSet<u32> = self.live.iter().map(|(_, e)| e.stack).collect();
        self.known.write(&mut text, |stack| stacks.contains(&stack));
        let makers: HashSet<u32> = self.live.iter().map(|(thread, _)| *thread).collect();
        for thread in self.threads.iter().filter(|t| makers.contains(&t.thread)) {
            write::line(&mut text, &Line::Thread(thread.clone()));
        }
        for (thread, event) in &self.live {
            write::live(&mut text, *thread, event);
            if text.len() >= PIECE {
                to.write_all(&text)?;
                text.clear();
            }
        }
        if self.untold > 0 {
            let message = format!("{} more live allocations are not in this snapshot", self.untold);
            write::line(&mut text, &Line::Note(Note { time: self.time, message }));
        }
        let footer = Footer {
            time: self.time,
            events: self.header.events_before,
            lost: self.lost.lost,
            stacks_refused: self.lost.stacks_refused,
            end: "snapshot".to_owned(),
            by: "snapshot".to_owned(),
            ..Footer::default()
        };
        write::line(&mut text, &Line::Footer(footer));
        to.write_all(&text)
    }
}
