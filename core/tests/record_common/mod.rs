//! What the tests of the recorder and the history share.
#![allow(dead_code, reason = "each test uses a part")]

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use vramscope_core::api::Api;
use vramscope_core::event::{Event, EventKind, Memory};
use vramscope_core::record::{ClockKind, Output, Setup, Spool};
use vramscope_core::trace::read::Reader;
use vramscope_core::trace::{FORMAT, Header, Line, VERSION};

/// A folder of its own, removed at the end.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("vramscope-core-{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn words(rings: usize, slots: usize) -> Vec<AtomicU64> {
    (0..Spool::size_in_words(rings, slots)).map(|_| AtomicU64::new(0)).collect()
}

pub fn copy(words: &[AtomicU64]) -> Vec<AtomicU64> {
    words.iter().map(|w| AtomicU64::new(w.load(Relaxed))).collect()
}

pub fn spool(words: &[AtomicU64], rings: usize, slots: usize) -> Spool<'_> {
    let setup = Setup {
        rings,
        slots,
        usable_rings: rings,
        pid: 42,
        start_time: 7,
        clock: ClockKind::Monotonic,
        ticks_per_second: 0,
        zero_raw: 0,
        zero_ns: 0,
    };
    let spool = Spool::format(words, &setup).unwrap();
    spool.set_header(&header());
    spool
}

pub fn header() -> Header {
    Header { format: FORMAT.into(), version: VERSION, pid: 42, program: "/bin/train".into(), ..Header::default() }
}

/// An event that can be told from all others.
pub fn event(time: u64, id: u64) -> Event {
    Event {
        kind: EventKind::Alloc,
        time,
        id,
        api: Api::CudaMalloc,
        memory: Memory::Device,
        address: 0x7f00_0000_0000 + id * 512,
        bytes: 512,
        context: 1,
        ..Event::default()
    }
}

/// Takes what it is given, up to a limit: then the process "was killed" in the middle of a write.
#[derive(Clone, Default)]
pub struct Memo {
    pub parts: Arc<Mutex<Vec<Vec<u8>>>>,
    pub dies_at: Option<usize>,
    /// At most so many bytes a write.
    pub at_once: Option<usize>,
}

impl Memo {
    pub fn bytes(&self) -> Vec<u8> {
        self.parts.lock().unwrap().last().cloned().unwrap_or_default()
    }

    pub fn save(&self, path: &Path) {
        std::fs::write(path, self.bytes()).unwrap();
    }
}

impl Output for Memo {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut parts = self.parts.lock().unwrap();
        if parts.is_empty() {
            parts.push(Vec::new());
        }
        let part = parts.last_mut().unwrap();
        let room = self.dies_at.unwrap_or(usize::MAX).saturating_sub(part.len());
        let n = bytes.len().min(room).min(self.at_once.unwrap_or(usize::MAX));
        if n == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        part.extend_from_slice(&bytes[..n]);
        Ok(n)
    }

    fn next_part(&mut self) -> io::Result<()> {
        self.parts.lock().unwrap().push(Vec::new());
        Ok(())
    }
}

/// The lines of a history, which must be whole.
pub fn lines(path: &Path) -> Vec<Line> {
    let mut reader = Reader::open(path).unwrap();
    let lines = reader.by_ref().collect();
    assert_eq!(reader.damage(), None);
    lines
}

/// For each thread its events as (sequence, event); checks that definitions come before their use, and the order.
pub fn by_thread(lines: &[Line]) -> BTreeMap<u32, Vec<(u64, Event)>> {
    let mut next = BTreeMap::new();
    let mut threads: BTreeMap<u32, Vec<(u64, Event)>> = BTreeMap::new();
    let mut stacks = std::collections::BTreeSet::new();
    for line in lines {
        match line {
            Line::Thread(t) => {
                let before = next.insert(t.thread, t.sequence).unwrap_or(0);
                assert!(before <= t.sequence, "thread {} goes back from {before} to {}", t.thread, t.sequence);
            }
            Line::Stack(s) => assert!(stacks.insert(s.stack), "stack {} twice", s.stack),
            Line::Event(thread, e) => {
                assert!(e.stack == 0 || stacks.contains(&e.stack), "stack {} used before it is defined", e.stack);
                let next = next.get_mut(thread).expect("a thread line comes first");
                threads.entry(*thread).or_default().push((*next, *e));
                *next += 1;
            }
            _ => {}
        }
    }
    threads
}
