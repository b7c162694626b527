//! A history as a test reads it, and the rules that each must keep.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

use vramscope_cli::verify::{Kind, verify};
use vramscope_core::event::{Event, EventKind, Memory, Source};
use vramscope_core::record::Spool;
use vramscope_core::trace::read::Reader;
use vramscope_core::trace::{Footer, Frame, Header, Line, Module, Stack};

/// A history, read whole.
#[derive(Debug)]
pub struct History {
    /// The file.
    pub path: PathBuf,
    /// All lines.
    pub lines: Vec<Line>,
}

/// The words of a spool file.
pub fn spool_words(path: &Path) -> Vec<AtomicU64> {
    // It ends in a large hole for threads that never came.
    let used = std::fs::metadata(path).unwrap_or_else(|e| panic!("{}: {e}", path.display())).blocks() * 512;
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    file.take(used).read_to_end(&mut bytes).expect("reading the spool");
    bytes.chunks_exact(8).map(|w| AtomicU64::new(u64::from_le_bytes(w.try_into().expect("8 bytes")))).collect()
}

/// The spools in /dev/shm of the processes with this number that were started after this folder was made for them: one more for
/// each program that it ran by exec. Numbers come round within minutes on a busy machine, and a spool that a killed process of
/// the same number left before is not ours.
pub fn spools_of(pid: u32, folder: &Path) -> Vec<PathBuf> {
    let prefix = format!("vramscope-spool.{pid}.");
    let begun = std::fs::metadata(folder).and_then(|m| m.created()).ok();
    // (The clock of files ticks in steps of some milliseconds.)
    let begun = begun.and_then(|t| t.checked_sub(std::time::Duration::from_secs(1)));
    let is_ours = |p: &PathBuf| {
        let changed = std::fs::metadata(p).and_then(|m| m.modified()).ok();
        begun.zip(changed).is_none_or(|(begun, changed)| changed >= begun)
    };
    let all = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten().map(|e| e.path());
    let named = all.filter(|p| p.file_name().unwrap_or_default().to_string_lossy().starts_with(&prefix));
    let mut mine: Vec<PathBuf> = named.filter(is_ours).collect();
    mine.sort();
    mine
}

/// Removes the spools in /dev/shm whose history was to lie in this folder, and says which there were.
pub fn remove_spools(folder: &Path) -> Vec<PathBuf> {
    let folder = folder.as_os_str().as_bytes();
    let all = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten().map(|e| e.path());
    let mut left: Vec<PathBuf> = all
        .filter(|p| p.file_name().unwrap_or_default().to_string_lossy().starts_with("vramscope-spool."))
        .filter(|p| {
            // The path stands in its first pages.
            let mut head = Vec::new();
            let read = std::fs::File::open(p).and_then(|f| f.take(8192).read_to_end(&mut head));
            read.is_ok() && head.windows(folder.len()).any(|w| w == folder)
        })
        .collect();
    left.retain(|spool| std::fs::remove_file(spool).is_ok());
    left
}

/// Finishes the history of a spool, whose process is gone, and removes the spool.
pub fn recover(spool: &Path) -> History {
    let words = spool_words(spool);
    let path = Spool::open(&words).unwrap_or_else(|e| panic!("{}: {e}", spool.display())).path();
    let trace = PathBuf::from(std::ffi::OsString::from_vec(path));
    let done = vramscope_core::record::recover(&words, &trace, None, "recover")
        .unwrap_or_else(|e| panic!("{}: {e}", trace.display()));
    assert_eq!(done.slots_damaged, 0, "{}: damaged slots", spool.display());
    std::fs::remove_file(spool).expect("the spool");
    History::read(&trace)
}

impl History {
    /// Reads a history that must be whole.
    pub fn read(path: &Path) -> History {
        let mut reader = Reader::open(path).unwrap_or_else(|e| panic!("{e}"));
        let lines: Vec<Line> = reader.by_ref().collect();
        assert!(reader.damage().is_none(), "{}", reader.damage().expect("just seen"));
        History { path: path.to_owned(), lines }
    }

    /// Its header.
    pub fn header(&self) -> &Header {
        match self.lines.first() {
            Some(Line::Header(h)) => h,
            _ => panic!("{}: no header", self.path.display()),
        }
    }

    /// Its footer, if it has one.
    pub fn footer(&self) -> Option<&Footer> {
        match self.lines.last() {
            Some(Line::Footer(f)) => Some(f),
            _ => None,
        }
    }

    /// The events with their threads.
    pub fn events(&self) -> impl Iterator<Item = (u32, &Event)> {
        self.lines.iter().filter_map(|l| match l {
            Line::Event(thread, e) => Some((*thread, e)),
            _ => None,
        })
    }

    /// Events of a kind.
    pub fn of(&self, kind: EventKind) -> impl Iterator<Item = &Event> {
        self.events().map(|(_, e)| e).filter(move |e| e.kind == kind)
    }

    /// How many allocations it tells of.
    pub fn allocations(&self) -> usize {
        self.of(EventKind::Alloc).count()
    }

    /// The last value of a counter, by summing up nothing: the writer writes totals.
    pub fn notes(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().filter_map(|l| match l {
            Line::Note(n) => Some(n.message.as_str()),
            _ => None,
        })
    }

    /// Numbers of the allocations that were freed.
    pub fn freed(&self) -> HashSet<u64> {
        let mut freed: HashMap<u64, i32> = HashMap::new();
        self.of(EventKind::Free).for_each(|e| *freed.entry(e.id).or_default() += 1);
        self.of(EventKind::FreeFailed).for_each(|e| *freed.entry(e.id).or_default() -= 1);
        freed.into_iter().filter(|(_, times)| *times > 0).map(|(id, _)| id).collect()
    }

    /// The modules by number.
    pub fn modules(&self) -> BTreeMap<u32, &Module> {
        let all = self.lines.iter().filter_map(|l| match l {
            Line::Module(m) => Some((m.module, m)),
            _ => None,
        });
        all.collect()
    }

    /// The stacks by number.
    pub fn stacks(&self) -> HashMap<u32, &Stack> {
        let all = self.lines.iter().filter_map(|l| match l {
            Line::Stack(s) => Some((s.stack, s)),
            _ => None,
        });
        all.collect()
    }

    /// File names of the modules that an event's stack goes through, innermost first.
    pub fn files_of(&self, e: &Event) -> Vec<String> {
        let modules = self.modules();
        let stacks = self.stacks();
        let Some(stack) = stacks.get(&e.stack) else { return Vec::new() };
        let module = |f: &Frame| match f {
            Frame::Native(m, _) | Frame::Guessed(m, _, _) => *m,
            Frame::Python(_) | Frame::Other(_) => 0,
        };
        let name = |m: u32| modules.get(&m).map(|m| file(&m.path)).unwrap_or_default();
        stack.frames.iter().map(|f| name(module(f))).collect()
    }

    /// Whether it may have forgotten its beginning, and opens each part with what is still needed.
    fn rotated(&self) -> bool {
        self.header().settings.contains_key("VRAMSCOPE_MAX_TRACE")
    }

    fn say(&self, what: &str) -> String {
        format!("{}: {what}", self.path.display())
    }

    /// The rules of every history.
    pub fn check(&self) {
        self.check_definitions();
        self.check_threads();
        self.check_pairs();
        self.check_overlap();
        self.check_by_command();
        if let Some(f) = self.footer() {
            let read = self.events().count() as u64;
            assert!(
                f.events == read || self.rotated() && f.events > read,
                "{}",
                self.say(&format!("{read} events, the footer says {}", f.events))
            );
            assert_eq!(f.lost, 0, "{}", self.say("events were lost"));
        }
    }

    /// `vramscope verify` finds nothing. Left out: what a test breaks by looking before a history is finished; and what the
    /// recorder is known not to keep: the counters after a stream-ordered free of plain memory, and the time in the
    /// footer that recover writes into a part without events.
    fn check_by_command(&self) {
        let verdict = verify(&self.path).unwrap_or_else(|e| panic!("{e}"));
        let known = [Kind::Unfinished, Kind::PoolSum, Kind::PoolPeak, Kind::FooterTime];
        let found = verdict.violations.iter().find(|v| !known.contains(&v.kind));
        assert!(found.is_none(), "{}", self.say(&format!("{found:?}")));
    }

    /// Headers, modules, stacks and threads come before what names them, and once.
    fn check_definitions(&self) {
        let (mut modules, mut stacks, mut threads) = (HashSet::from([0]), HashSet::from([0]), HashSet::new());
        let mut places = HashSet::new();
        for (i, line) in self.lines.iter().enumerate() {
            let at = |what: &str| self.say(&format!("line {}: {what}: {line:?}", i + 1));
            match line {
                Line::Header(_) => assert_eq!(i, 0, "{}", at("a second header")),
                Line::Module(m) => assert!(modules.insert(m.module) || self.rotated(), "{}", at("a module twice")),
                Line::Stack(s) => {
                    for f in &s.frames {
                        if let Frame::Native(m, _) | Frame::Guessed(m, _, _) = f {
                            assert!(modules.contains(m), "{}", at("a frame of an unknown module"));
                        }
                        if let Frame::Python(p) = f {
                            assert!(places.contains(p), "{}", at("a frame of an unknown place in Python"));
                        }
                    }
                    assert!(stacks.insert(s.stack) || self.rotated(), "{}", at("a stack twice"));
                }
                Line::Thread(t) => {
                    assert!(
                        threads.insert(t.thread) || self.rotated(),
                        "{}",
                        at("a thread twice: events of it were lost")
                    )
                }
                Line::Event(thread, e) => {
                    assert!(threads.contains(thread), "{}", at("an unknown thread"));
                    assert!(stacks.contains(&e.stack), "{}", at("an unknown stack"));
                    assert!(modules.contains(&e.caller), "{}", at("an unknown calling module"));
                }
                Line::Footer(_) => assert_eq!(i + 1, self.lines.len(), "{}", at("something follows the footer")),
                Line::Python(p) => assert!(places.insert(p.python) || self.rotated(), "{}", at("a place twice")),
                Line::Unknown => panic!("{}", at("a line that this version does not know")),
                Line::Device(_) | Line::Text(_) | Line::Symbol(_) | Line::Live(..) | Line::Oom(_) | Line::Note(_) => {}
                Line::Lost(lost) => assert_eq!(lost.lost, 0, "{}", at("events were lost")),
            }
        }
    }

    /// A thread's events are in order.
    fn check_threads(&self) {
        let mut last: HashMap<u32, u64> = HashMap::new();
        for (thread, e) in self.events() {
            let before = last.insert(thread, e.time).unwrap_or(0);
            assert!(
                before <= e.time,
                "{}",
                self.say(&format!("thread {thread} goes back in time, from {before}, at {e:?}"))
            );
        }
    }

    /// Numbers are used once, and a free belongs to an allocation.
    fn check_pairs(&self) {
        let mut given: HashMap<u64, u32> = HashMap::new();
        let mut freed: HashMap<u64, i32> = HashMap::new();
        for (_, e) in self.events() {
            match e.kind {
                EventKind::Alloc | EventKind::SegmentAlloc => {
                    assert!(e.id != 0, "{}", self.say(&format!("an allocation without a number: {e:?}")));
                    *given.entry(e.id).or_default() += 1;
                }
                EventKind::Free | EventKind::SegmentFree => {
                    let known = given.contains_key(&e.id) || self.rotated();
                    assert!(known, "{}", self.say(&format!("a free before its allocation: {e:?}")));
                    *freed.entry(e.id).or_default() += 1;
                }
                EventKind::FreeFailed => *freed.entry(e.id).or_default() -= 1,
                _ => {}
            }
        }
        for (id, times) in &given {
            assert_eq!(*times, 1, "{}", self.say(&format!("number {id} was given {times} times")));
        }
        if self.rotated() {
            return;
        }
        for (id, times) in &freed {
            assert!(given.contains_key(id), "{}", self.say(&format!("a free of {id}, which was never given")));
            assert!((0..=1).contains(times), "{}", self.say(&format!("{id} was freed {times} times")));
        }
    }

    /// No byte is given out twice at a time. An allocation is recorded after it was made and a free before it happens, so
    /// the recorded lives of a byte never overlap, whoever had it.
    fn check_overlap(&self) {
        if self.rotated() {
            return;
        }
        let mut events: Vec<&Event> = self.events().map(|(_, e)| e).collect();
        events.sort_by_key(|e| e.time);
        // address → (end, id, context)
        let mut live: BTreeMap<u64, (u64, u64, u16)> = BTreeMap::new();
        let mut at: HashMap<u64, u64> = HashMap::new();
        let mut freed: HashMap<u64, (u64, u64, u16)> = HashMap::new();
        for e in events {
            match e.kind {
                EventKind::Alloc
                    if !matches!(e.memory, Memory::Vmm | Memory::Imported | Memory::Array | Memory::Tensor) =>
                {
                    if e.memory == Memory::Device && e.how == Source::Hit as u8 {
                        assert!(
                            e.block >= e.bytes && e.extra[0] != 0,
                            "{}",
                            self.say(&format!("a block too small: {e:?}"))
                        );
                    }
                    let end = e.address + e.bytes.max(e.block);
                    if let Some((start, other)) = live.range(..end).next_back() {
                        assert!(
                            other.0 <= e.address,
                            "{}",
                            self.say(&format!("{e:?} overlaps number {} at {start:#x}", other.1))
                        );
                    }
                    live.insert(e.address, (end, e.id, e.context));
                    at.insert(e.id, e.address);
                }
                EventKind::Free => {
                    if let Some(gone) = at.get(&e.id).and_then(|address| live.remove(address)) {
                        freed.insert(e.id, gone);
                    }
                }
                // The free did not happen.
                EventKind::FreeFailed => {
                    if let (Some(address), Some(back)) = (at.get(&e.id), freed.remove(&e.id)) {
                        live.insert(*address, back);
                    }
                }
                EventKind::ContextEnd => live.retain(|_, l| l.2 != e.context),
                _ => {}
            }
        }
    }
}

/// The file's name in a path.
pub fn file(path: &str) -> String {
    path.rsplit('/').next().unwrap_or(path).to_owned()
}
