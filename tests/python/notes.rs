//! What a program noted of its own stacks, and the comparison with its history.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use serde_json::Value;
use vramscope_core::event::{Event, EventKind};
use vramscope_core::trace::{Frame, Line, Python as Place, Stack};

use crate::pythons::{Python, Tally};
use crate::support::Run;
use crate::support::history::{History, file};

/// Function, file and line of a frame. (A line that is none is 0.)
pub type Called = (String, String, u64);

/// A line of the file `notes`.
pub struct Note(Value);

impl Note {
    /// The notes of a run.
    pub fn all(folder: &Path) -> Vec<Note> {
        let text = fs::read_to_string(folder.join("notes")).expect("the program's notes");
        let note = |l: &str| Note(serde_json::from_str(l).unwrap_or_else(|e| panic!("{e}: {l}")));
        text.lines().map(note).collect()
    }

    /// A field.
    pub fn get(&self, name: &str) -> &Value {
        &self.0[name]
    }

    /// A number, if it has one of this name.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.0[name].as_u64()
    }

    /// Whether it says so.
    pub fn is(&self, name: &str) -> bool {
        self.0[name] == true
    }

    fn frames_of(&self, name: &str) -> Vec<Called> {
        let text = |v: &Value| v.as_str().expect("a text").to_owned();
        let all = self.0[name].as_array().map(Vec::as_slice).unwrap_or_default();
        all.iter().map(|f| (text(&f[0]), text(&f[1]), f[2].as_u64().unwrap_or(0))).collect()
    }

    /// The frames that it expects, innermost first.
    pub fn frames(&self) -> Vec<Called> {
        self.frames_of("frames")
    }
}

/// A history whose stacks are looked at.
pub struct Recorded {
    /// The history.
    pub history: History,
    places: HashMap<u32, Called>,
    stacks: HashMap<u32, Stack>,
    modules: HashMap<u32, String>,
    depth: usize,
}

impl Recorded {
    /// The history of a run.
    pub fn of(run: &Run) -> Recorded {
        Recorded::from(run.history())
    }

    fn from(history: History) -> Recorded {
        let place = |p: &Place| (p.python, (p.function.clone(), p.file.clone(), u64::from(p.line)));
        let places = history.lines.iter().filter_map(|l| match l {
            Line::Python(p) => Some(place(p)),
            _ => None,
        });
        let depth = history.header().settings.get("VRAMSCOPE_STACK_DEPTH").map_or(128, |d| d.parse().expect("a depth"));
        Recorded {
            places: places.collect(),
            stacks: history.stacks().into_iter().map(|(n, s)| (n, s.clone())).collect(),
            modules: history.modules().into_iter().map(|(n, m)| (n, m.path.clone())).collect(),
            history,
            depth,
        }
    }

    /// Every place of Python that it names.
    pub fn places(&self) -> impl Iterator<Item = &Called> {
        self.places.values()
    }

    /// An event's stack.
    pub fn stack(&self, e: &Event) -> Option<&Stack> {
        self.stacks.get(&e.stack)
    }

    /// The Python frames of an event's stack.
    pub fn python(&self, e: &Event) -> Vec<Called> {
        let frames = self.stack(e).map(|s| s.frames.as_slice()).unwrap_or_default();
        let place = |f: &Frame| match f {
            Frame::Python(p) => Some(self.places[p].clone()),
            _ => None,
        };
        frames.iter().filter_map(place).collect()
    }

    /// How many Python frames stand in a row, innermost first.
    fn runs(&self, e: &Event) -> Vec<u64> {
        let frames = self.stack(e).map(|s| s.frames.as_slice()).unwrap_or_default();
        let rows = frames.split(|f| !matches!(f, Frame::Python(_)));
        rows.map(|r| r.len() as u64).filter(|n| *n > 0).collect()
    }

    /// The file that a native frame lies in.
    fn module(&self, f: &Frame) -> Option<&str> {
        match f {
            Frame::Native(m, _) | Frame::Guessed(m, _, _) => Some(self.modules.get(m).map_or("", String::as_str)),
            Frame::Python(_) | Frame::Other(_) => None,
        }
    }

    /// What is wrong with the places where Python frames stand among the native ones.
    fn splice(&self, e: &Event) -> Option<String> {
        let stack = self.stack(e)?;
        for (i, f) in stack.frames.iter().enumerate() {
            if !matches!(f, Frame::Python(_)) {
                continue;
            }
            match stack.frames.get(i + 1) {
                None if stack.cut => {}
                None => return Some("a Python frame is the outermost".to_owned()),
                Some(Frame::Python(_)) => {}
                Some(native) => {
                    let name = file(self.module(native).unwrap_or_default());
                    if !name.contains("python") {
                        return Some(format!("Python frame {i} stands before one of {name:?}, no interpreter"));
                    }
                }
            }
        }
        None
    }

    /// The events by the size that was asked for, which no two have in common.
    fn by_size(&self) -> HashMap<(bool, u64), &Event> {
        let mut sizes = HashMap::new();
        let mut events = HashMap::new();
        for (_, e) in self.history.events() {
            match e.kind {
                EventKind::Alloc | EventKind::AllocFailed => {
                    sizes.insert(e.id, e.bytes);
                    events.insert((true, e.bytes), e);
                }
                EventKind::Free => drop(sizes.get(&e.id).map(|size| events.insert((false, *size), e))),
                _ => {}
            }
        }
        events
    }
}

/// The longest names of a function and a file that a history holds, in bytes.
const LONGEST: (usize, usize) = (1024, 4096);

/// Whether a frame is the one that was expected. Where the interpreter itself knows no line (instructions that it made up), any is
/// right; a long name is cut at a whole character.
fn same(expected: &Called, found: &Called) -> bool {
    let text = |e: &str, f: &str, longest: usize| {
        let cut = e.len() > longest && (longest - 3..=longest).contains(&f.len());
        e == f || cut && e.starts_with(f)
    };
    text(&expected.0, &found.0, LONGEST.0)
        && text(&expected.1, &found.1, LONGEST.1)
        && (expected.2 == 0 || expected.2 == found.2)
}

/// Whether these are the first of the expected frames.
fn first(expected: &[Called], found: &[Called]) -> bool {
    found.len() <= expected.len() && expected.iter().zip(found).all(|(e, f)| same(e, f))
}

/// Whether these are the expected frames.
pub fn all_same(expected: &[Called], found: &[Called]) -> bool {
    expected.len() == found.len() && first(expected, found)
}

/// A stack in words.
fn show(frames: &[Called]) -> String {
    let short = |s: &str| match s.char_indices().nth(40) {
        Some((end, _)) => format!("{}…({})", &s[..end], s.len()),
        None => s.to_owned(),
    };
    let one = |(f, p, l): &Called| format!("{} {}:{l}", short(f), short(&file(p)));
    let shown: Vec<String> = frames.iter().take(12).map(one).collect();
    format!("{} frames: {}", frames.len(), shown.join(" < "))
}

/// Which part of a stack is compared.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Stacks {
    /// Native and Python frames.
    All,
    /// Python frames alone.
    Python,
}

/// Compares everything that a run noted with its history.
pub fn compare(run: &Run, python: &Python, tally: &mut Tally) -> Recorded {
    compare_as(run, python, tally, Stacks::All)
}

/// The same, where the setting asked for these stacks.
pub fn compare_as(run: &Run, python: &Python, tally: &mut Tally, stacks: Stacks) -> Recorded {
    let recorded = Recorded::of(run);
    let events = recorded.by_size();
    let notes = Note::all(run.folder.path());
    assert!(notes.len() > 1, "{run} noted nothing");
    for note in &notes {
        let Some((alloc, size)) = note.number("alloc").map(|n| (true, n)).or(note.number("free").map(|n| (false, n)))
        else {
            continue;
        };
        let size = if note.is("refused") { size << 40 } else { size };
        let Some(e) = events.get(&(alloc, size)) else {
            tally.check(false, || format!("{run}: no event for {size} bytes (alloc: {alloc})"));
            continue;
        };
        if let Some(address) = note.number("address") {
            tally.check(e.address == address, || format!("{run}: {size} bytes: the address is {address:#x}: {e:?}"));
            continue;
        }
        let expected = note.frames();
        let found = recorded.python(e);
        let wrong = |what: &str| {
            format!(
                "{run}: {size} bytes (alloc: {alloc}): {what}\n  expected {}\n  found    {}",
                show(&expected),
                show(&found)
            )
        };
        if found.is_empty() && note.is("ending") {
            // The interpreter ends: its frames need not be read any more.
            tally.checks += 1;
            continue;
        }
        if python.minor < 12 && !note.get("outer").is_null() {
            // Before 3.12 the thread's state, as it can be found, is that of the main interpreter: then these are its frames,
            // which called `run_string` from a line further on.
            let outer = &note.frames_of("outer")[1..];
            let right = all_same(&expected, &found) || found.is_empty() || all_same(outer, &found[1..]);
            tally.check(right, || wrong("neither a sub-interpreter's frames nor the main one's"));
            continue;
        }
        let Some(stack) = recorded.stack(e) else {
            tally.check(false, || wrong("no stack"));
            continue;
        };
        if let Some(n) = note.number("innermost") {
            let inner = found.get(..n as usize);
            tally.check(inner.is_some_and(|f| all_same(&expected, f)), || wrong("the innermost frames"));
        } else if stack.cut {
            // So many of one kind, at least, and of no kind more.
            let native = stack.frames.len() - found.len();
            let full = found.len().max(native) == recorded.depth;
            tally.check(full && first(&expected, &found), || {
                wrong(&format!("cut at {} Python and {native} native frames of {}", found.len(), recorded.depth))
            });
        } else {
            tally.check(all_same(&expected, &found), || wrong("other frames"));
        }
        if stacks == Stacks::Python {
            tally.check(found.len() == stack.frames.len(), || wrong("native frames"));
            continue;
        }
        if let Some(what) = recorded.splice(e) {
            tally.check(false, || wrong(&what));
        }
        if let Some(runs) = note.get("runs").as_array() {
            let mut runs: Vec<u64> = runs.iter().filter_map(Value::as_u64).collect();
            if python.minor < 11 {
                runs = vec![1; runs.iter().sum::<u64>() as usize];
            }
            let rows = recorded.runs(e);
            tally.check(rows == runs, || wrong(&format!("the interpreter's runs hold {rows:?} frames, not {runs:?}")));
        }
    }
    recorded
}
