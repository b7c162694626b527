//! A history that is being exported: its definitions, read once, and its events, played as often as a format wants.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use vramscope_core::event::{Event, EventKind};
use vramscope_core::trace::read::Reader;
use vramscope_core::trace::{Line, Oom, Thread};

use super::play::{Each, Player};
use super::select::Selection;
use crate::cli::new_file::Force;
use crate::moment::Moment;
use crate::report::frames;
use crate::report::history::History;
use crate::report::order::Order;
use crate::report::pauses::Pauses;
use crate::symbols::Names;

/// A frame of a stack, for a format.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Frame {
    /// The function, or `libfoo.so+0x1234`.
    pub function: String,
    /// Its source file; for a native frame without one, the path of its module; may be empty.
    pub file: String,
    /// The line; 0: unknown.
    pub line: u32,
    /// Python code.
    pub python: bool,
    /// File name of the module of a native frame.
    pub module: String,
    /// Its number, 0: none.
    pub number: u32,
    /// The return address in it.
    pub offset: u64,
    /// Inlined into the next frame.
    pub inlined: bool,
    /// Found by guessing.
    pub guessed: bool,
}

/// What only some formats look at.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Count what was allocated, not what was live at a moment.
    pub allocated: bool,
    /// At most so many slices; `None`: as many as the format finds good.
    pub limit: Option<usize>,
    /// Name of the run.
    pub run: Option<String>,
    /// Whether the files of a folder are replaced.
    pub force: Force,
}

/// See the module.
pub struct Source {
    /// The file that was given.
    pub path: PathBuf,
    /// What is read: it, or a finished copy of it.
    pub file: PathBuf,
    /// What is asked for.
    pub selection: Selection,
    /// The definitions: header, devices, modules, stacks, Python places, notes, explained failures, footer. No state:
    /// its events were not played.
    pub history: History,
    /// The threads, by number, as last named.
    pub threads: BTreeMap<u32, Thread>,
    /// The texts of marks and regions, by number.
    pub texts: HashMap<u32, String>,
    /// The marks in the order of time: when, and what they say.
    pub marks: Vec<(u64, String)>,
    /// Regions that had not ended when the history did.
    pub never_ended: HashSet<u64>,
    /// The device of each context.
    pub contexts: HashMap<u16, u32>,
    /// Time of the first event, and of the last.
    pub start: u64,
    /// See `start`.
    pub end: u64,
    /// All frames of a stack, also those that say nothing to most.
    pub all_frames: bool,
    /// What only some formats look at.
    pub options: Options,
    names: Names,
}

impl Source {
    /// Reads the definitions of a history; `symbols`: folders in which names are looked for.
    pub fn open(path: &Path, symbols: &[PathBuf]) -> Result<Source> {
        let mut reader = open(path)?;
        let (mut threads, mut texts, mut contexts) = (BTreeMap::new(), HashMap::new(), HashMap::new());
        let (mut never_ended, mut pauses) = (HashSet::new(), Pauses::default());
        let (mut marks, mut start, mut end, mut events, mut exited) = (Vec::new(), u64::MAX, 0, 0, false);
        let definitions = std::iter::from_fn(|| {
            loop {
                match reader.next()? {
                    Line::Event(_, e) => {
                        (start, end) = (start.min(e.time), end.max(e.time));
                        events += 1;
                        exited |= e.kind == EventKind::Exit;
                        pauses.play(&e);
                        if e.kind == EventKind::Context {
                            contexts.insert(e.context, e.extra[0] as u32);
                        }
                        match e.kind {
                            EventKind::Mark => marks.push((e.time, e.extra[0] as u32)),
                            EventKind::RegionBegin => drop(never_ended.insert(e.id)),
                            EventKind::RegionEnd => drop(never_ended.remove(&e.id)),
                            _ => {}
                        }
                    }
                    Line::Live(_, e) => {
                        exited |= e.kind == EventKind::Exit;
                        pauses.play(&e);
                        start = start.min(e.time);
                        if e.kind == EventKind::Context {
                            contexts.insert(e.context, e.extra[0] as u32);
                        }
                    }
                    Line::Thread(t) => drop(threads.insert(t.thread, t)),
                    Line::Text(t) => drop(texts.insert(t.text, t.value)),
                    line => return Some(line),
                }
            }
        });
        let mut history = History::of_lines(definitions);
        history.damage = reader.damage().map(ToString::to_string);
        (history.path, history.events, history.end, history.exited) = (path.to_path_buf(), events, end, exited);
        history.pauses = pauses;
        let text = |n: u32| texts.get(&n).cloned().unwrap_or_default();
        let mut marks: Vec<(u64, String)> = marks.into_iter().map(|(time, n)| (time, text(n))).collect();
        marks.sort_by_key(|m| m.0);
        let mut names = Names::new(symbols);
        names.know(&history.symbols);
        Ok(Source {
            path: path.to_path_buf(),
            file: path.to_path_buf(),
            selection: Selection::default(),
            history,
            threads,
            texts,
            marks,
            never_ended,
            contexts,
            start: start.min(end),
            end,
            all_frames: false,
            options: Options::default(),
            names,
        })
    }

    /// When most was in use, as a report has it: PyTorch's tensors count in place of the segments that they lie in.
    pub fn peak(&self) -> Result<u64> {
        Ok(History::read(&self.file)?.facts.ledger.peak.time)
    }

    /// When a moment is; none: no mark is called so.
    pub fn time(&self, moment: &Moment) -> Result<Option<u64>> {
        let mut nth: HashMap<&str, u64> = HashMap::new();
        let mut meant = |text| {
            let nth = nth.entry(text).or_default();
            *nth += 1;
            moment.is_mark(text, *nth)
        };
        Ok(match moment {
            Moment::Time(time) => Some(*time),
            Moment::End => Some(self.end),
            Moment::Peak => Some(self.peak()?),
            Moment::Mark(_) => self.marks.iter().find(|m| meant(m.1.as_str())).map(|m| m.0),
        })
    }

    /// Plays the selected part in the order of time. An error of `each` ends it.
    pub fn play(&self, each: &mut Each) -> Result<()> {
        self.play_part(&self.selection, each)
    }

    /// The same, of another part.
    pub fn play_part(&self, selection: &Selection, each: &mut Each) -> Result<()> {
        let mut player = Player::new(selection);
        // Their lines stand where they were written, which is before events that are held back for their order.
        let mut ooms: Vec<&Oom> = self.history.ooms.iter().collect();
        ooms.sort_by_key(|o| std::cmp::Reverse(o.time));
        let mut failed = None;
        let mut play = |player: &mut Player, thread: u32, e: &Event| {
            while failed.is_none() && !player.over && ooms.last().is_some_and(|o| o.time < e.time) {
                failed = ooms.pop().and_then(|oom| player.oom(oom, each).err());
            }
            if failed.is_none() {
                failed = player.play(thread, e, each).err();
            }
            player.over |= failed.is_some();
        };
        let mut order = Order::new();
        for line in open(&self.file)? {
            match line {
                Line::Live(thread, e) => player.was_live(thread, &e),
                Line::Event(thread, e) => order.push(thread, e, &mut |thread, e| play(&mut player, thread, e)),
                _ => {}
            }
            if player.over {
                break;
            }
        }
        order.finish(&mut |thread, e| play(&mut player, thread, e));
        if let Some(e) = failed {
            return Err(e);
        }
        for oom in ooms.into_iter().rev() {
            player.oom(oom, each)?;
        }
        player.finish(each)
    }

    /// Looks up the names of these stacks' addresses, all at once. A format that names stacks calls it first.
    pub fn resolve(&mut self, stacks: &BTreeSet<u32>) {
        let wanted = frames::addresses(&self.history, stacks.iter().copied());
        self.names.resolve(&self.history.modules, wanted);
    }

    /// The same, of all stacks of the history.
    pub fn resolve_all(&mut self) {
        self.resolve(&self.history.stacks.keys().copied().collect());
    }

    /// The frames of a stack that a person sees, innermost first; of one that is not resolved, without names.
    pub fn frames(&self, stack: u32) -> Vec<Frame> {
        self.kept(stack, self.all_frames)
    }

    /// The lines that a report shows of a stack, innermost first.
    pub fn lines(&self, stack: u32) -> Vec<frames::Shown> {
        frames::shown(&self.history, &self.names, stack).lines(self.all_frames)
    }

    /// All frames of a stack.
    pub fn every_frame(&self, stack: u32) -> Vec<Frame> {
        self.kept(stack, true)
    }

    fn kept(&self, stack: u32, all: bool) -> Vec<Frame> {
        let shown = frames::shown(&self.history, &self.names, stack);
        let frame = |e: &frames::Entry| Frame {
            function: match e.function.is_empty() {
                true => format!("{}+{:#x}", if e.module.is_empty() { "?" } else { &e.module }, e.offset),
                false => e.function.clone(),
            },
            file: if e.file.is_empty() { e.path.clone() } else { e.file.clone() },
            line: e.line,
            python: e.is_python(),
            module: e.module.clone(),
            number: e.number,
            offset: e.offset,
            inlined: e.inlined,
            guessed: e.guessed,
        };
        shown.kept(all).into_iter().map(frame).collect()
    }

    /// What a person should know of names that are missing, once.
    pub fn notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.names.notes)
    }

    /// Wall clock of a time of the history: nanoseconds since 1970.
    pub fn wall(&self, time: u64) -> u64 {
        let h = &self.history.header;
        let start = h.start_seconds.saturating_mul(1_000_000_000).saturating_add(h.start_nanoseconds.into());
        start.saturating_add(time)
    }
}

fn open(path: &Path) -> Result<Reader> {
    Reader::open(path).map_err(|e| anyhow!("{e}"))
}
