//! Regions and marks: which are open in a thread, how often each came, how long it took, and the most that was in use in it.

use std::collections::{BTreeMap, HashMap, HashSet};

use vramscope_core::event::Event;

use super::curve::{Curve, Point, Rhythm};

/// Names kept as they are; of later ones the numbers are left out (`step 1234` is `step #`), so that a name a step does
/// not grow the books.
const NAMES: usize = 512;
/// Marks kept one by one.
const MARKS: usize = 10_000;

/// What came again and again under one name.
#[derive(Clone, Debug, Default)]
pub struct Named {
    /// The name; of a region with those that it lies in, the outermost first.
    pub name: String,
    /// Regions it lies in.
    pub depth: usize,
    /// How often it came.
    pub count: u64,
    /// Nanoseconds in all, of regions that ended.
    pub took: u64,
    /// How often it ended,
    pub ended: u64,
    /// and how often it had not when the history did.
    pub open: u64,
    /// Allocations made in it (not in regions inside of it).
    pub allocations: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Allocations and bytes of other threads while it was open, if it is one of the whole process.
    others: (u64, u64),
    /// Most in use while it was open.
    pub peak: u64,
    /// It is one of the whole process.
    pub process: bool,
    /// When each began.
    pub curve: Curve,
    /// How regularly it came.
    pub rhythm: Rhythm,
}

/// A moment that the program marked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// When.
    pub time: u64,
    /// Its text.
    pub name: String,
    /// What was in use.
    pub in_use: u64,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    id: u64,
    path: u32,
    since: u64,
    thread: u32,
}

/// Bit of the number of a region of the whole process, of allocations by other threads than the one that began it. Whether they
/// are its own is known when it ends: NCCL begins some that never do, and what is allocated ever after is not theirs.
const OTHERS: u32 = 1 << 31;

/// The regions and marks of a history.
#[derive(Debug, Default)]
pub struct Regions {
    /// Marks, the first of them.
    pub marks: Vec<Mark>,
    /// Marks by name, without numbers.
    pub marked: BTreeMap<String, Named>,
    paths: Vec<Named>,
    by_name: HashMap<(u32, String), u32>,
    texts: HashMap<u64, String>,
    open: HashMap<u32, Vec<Open>>,
    everywhere: Vec<Open>,
    never_ended: HashSet<u64>,
    nth: HashMap<String, u64>,
}

impl Regions {
    pub(super) fn text(&mut self, number: u32, value: &str) {
        self.texts.insert(u64::from(number), value.to_string());
    }

    /// The regions by number less one; 0 is no region.
    pub fn paths(&self) -> &[Named] {
        &self.paths
    }

    /// A region's name with those that it lies in; empty for none.
    pub fn path(&self, number: u32) -> &str {
        let named = ((number & !OTHERS) as usize).checked_sub(1).and_then(|i| self.paths.get(i));
        named.filter(|p| number & OTHERS == 0 || p.ended > 0).map_or("", |p| p.name.as_str())
    }

    /// Ids of regions that had not ended when the history did.
    pub fn never_ended(&self) -> &HashSet<u64> {
        &self.never_ended
    }

    /// The innermost region that a thread is in.
    pub(super) fn current(&self, thread: u32) -> u32 {
        if self.paths.is_empty() {
            return 0;
        }
        match (self.own(thread), self.everywhere.last()) {
            (0, Some(o)) if o.thread == thread => o.path,
            (0, Some(o)) => o.path | OTHERS,
            (own, _) => own,
        }
    }

    /// The innermost region of a thread's own.
    fn own(&self, thread: u32) -> u32 {
        self.open.get(&thread).and_then(|open| open.last()).map_or(0, |o| o.path)
    }

    pub(super) fn begin(&mut self, thread: u32, e: &Event, ordinal: u64) {
        let text = self.texts.get(&e.extra[0]).cloned().unwrap_or_else(|| "?".to_string());
        // One of the whole process lies in no other, and no other in it: it may end anywhere.
        let process = e.extra[2] == 1;
        let parent = if process { 0 } else { self.own(thread) };
        let path = self.intern(parent, &text);
        let since = e.time.saturating_sub(e.extra[1]);
        let named = &mut self.paths[path as usize - 1];
        named.process |= process;
        came(named, e.time, ordinal);
        let open = Open { id: e.id, path, since, thread };
        if process { self.everywhere.push(open) } else { self.open.entry(thread).or_default().push(open) }
    }

    fn intern(&mut self, parent: u32, text: &str) -> u32 {
        let text = if self.paths.len() >= NAMES { unnumbered(text) } else { text.to_string() };
        if let Some(path) = self.by_name.get(&(parent, text.clone())) {
            return *path;
        }
        let (name, depth) = match self.path(parent) {
            "" => (text.clone(), 0),
            outer => (format!("{outer} > {text}"), self.paths[parent as usize - 1].depth + 1),
        };
        // Names without numbers may be as many as there are: then all others are one.
        let (name, text) =
            if self.paths.len() >= 8 * NAMES { ("(other regions)".into(), String::new()) } else { (name, text) };
        let parent = if text.is_empty() { 0 } else { parent };
        if let Some(path) = self.by_name.get(&(parent, text.clone())) {
            return *path;
        }
        self.paths.push(Named { name, depth, ..Named::default() });
        let path = self.paths.len() as u32;
        self.by_name.insert((parent, text), path);
        path
    }

    pub(super) fn end(&mut self, thread: u32, e: &Event) {
        let own = self.open.get_mut(&thread);
        let open = own.and_then(|open| take(open, e.id)).or_else(|| take(&mut self.everywhere, e.id));
        if let Some(open) = open {
            let named = &mut self.paths[open.path as usize - 1];
            named.took += e.time.saturating_sub(open.since);
            named.ended += 1;
        }
    }

    pub(super) fn allocated(&mut self, thread: u32, e: &Event, in_use: u64) {
        if self.paths.is_empty() {
            return;
        }
        let current = self.current(thread);
        if current != 0 {
            let named = &mut self.paths[(current & !OTHERS) as usize - 1];
            let (allocations, bytes) = match current & OTHERS {
                0 => (&mut named.allocations, &mut named.bytes),
                _ => (&mut named.others.0, &mut named.others.1),
            };
            *allocations += 1;
            *bytes += e.bytes;
        }
        for open in self.open.values().flatten().chain(&self.everywhere) {
            let named = &mut self.paths[open.path as usize - 1];
            named.peak = named.peak.max(in_use);
        }
    }

    /// A mark; gives its name and which of that name it is.
    pub(super) fn mark(&mut self, _: u32, e: &Event, ordinal: u64, in_use: u64) -> Option<(String, u64)> {
        let text = self.texts.get(&e.extra[0])?.clone();
        let base = unnumbered(&text);
        let room = self.marked.len() < 8 * NAMES;
        if room || self.marked.contains_key(&base) {
            let named = self.marked.entry(base.clone()).or_default();
            named.name = base;
            named.peak = named.peak.max(in_use);
            came(named, e.time, ordinal);
        }
        if self.marks.len() < MARKS {
            self.marks.push(Mark { time: e.time, name: text.clone(), in_use });
        }
        let nth = match self.nth.get_mut(&text) {
            Some(n) => {
                *n += 1;
                *n
            }
            None => {
                if self.nth.len() < MARKS {
                    self.nth.insert(text.clone(), 1);
                }
                1
            }
        };
        Some((text, nth))
    }

    pub(super) fn finish(&mut self) {
        let open: Vec<Open> = self.open.drain().flat_map(|(_, open)| open).chain(self.everywhere.drain(..)).collect();
        for o in open {
            self.paths[o.path as usize - 1].open += 1;
            self.never_ended.insert(o.id);
        }
        for named in &mut self.paths {
            if named.ended > 0 {
                named.allocations += named.others.0;
                named.bytes += named.others.1;
            } else if named.process {
                // What was in use ever after says nothing of it.
                named.peak = 0;
            }
        }
    }
}

fn take(open: &mut Vec<Open>, id: u64) -> Option<Open> {
    let at = open.iter().rposition(|o| o.id == id)?;
    Some(open.remove(at))
}

fn came(named: &mut Named, time: u64, ordinal: u64) {
    named.count += 1;
    named.curve.add(Point { nth: named.count, ordinal, time, ..Point::default() });
    named.rhythm.beat(ordinal);
}

/// A text with `#` in the place of each number.
fn unnumbered(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '0'..='9' if out.ends_with('#') => {}
            '0'..='9' => out.push('#'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(time: u64, id: u64, text: u64) -> Event {
        Event { time, id, extra: [text, 0, 0], ..Event::default() }
    }

    #[test]
    fn regions_lie_in_one_another() {
        let mut r = Regions::default();
        r.text(1, "step 12");
        r.text(2, "forward");
        assert_eq!(r.current(7), 0);
        r.begin(7, &event(100, 1, 1), 0);
        r.begin(7, &event(200, 2, 2), 0);
        assert_eq!((r.path(r.current(7)), r.path(r.current(8))), ("step 12 > forward", ""));
        r.allocated(7, &Event { bytes: 50, ..Event::default() }, 900);
        r.end(7, &event(300, 2, 0));
        assert_eq!(r.path(r.current(7)), "step 12");
        r.finish();
        let p = r.paths();
        // How long the first would have taken is not known.
        assert_eq!((p[0].took, p[1].took, p[0].peak, p[1].bytes, p[0].bytes), (0, 100, 900, 50, 0));
        assert_eq!((p[0].open, p[0].ended, p[1].open, p[1].ended), (1, 0, 0, 1));
        assert_eq!(r.never_ended(), &HashSet::from([1]));
    }

    #[test]
    fn a_region_of_the_process_has_what_others_allocate_only_if_it_ends() {
        let process = |time, id, text| Event { extra: [text, 0, 1], ..event(time, id, text) };
        let alloc = |bytes| Event { bytes, ..Event::default() };
        for ends in [true, false] {
            let mut r = Regions::default();
            r.text(1, "ncclCommInitRankConfig");
            r.text(2, "step");
            r.begin(7, &process(100, 1, 1), 0);
            r.allocated(7, &alloc(50), 50);
            let (own, others) = (r.current(7), r.current(8));
            r.allocated(8, &alloc(70), 120);
            // What another thread begins meanwhile does not lie in it.
            r.begin(8, &event(150, 2, 2), 0);
            assert_eq!(r.path(r.current(8)), "step");
            r.allocated(8, &alloc(3), 123);
            r.end(8, &event(160, 2, 0));
            if ends {
                r.end(9, &event(300, 1, 0));
            }
            r.finish();
            let name = "ncclCommInitRankConfig";
            assert_eq!((r.path(own), r.path(others)), (name, if ends { name } else { "" }));
            let p = &r.paths()[0];
            let expected = if ends { (2, 120, 123, 200, 0) } else { (1, 50, 0, 0, 1) };
            assert_eq!((p.allocations, p.bytes, p.peak, p.took, p.open), expected);
            assert_eq!((r.paths()[1].bytes, r.paths()[1].took), (3, 10));
        }
    }

    #[test]
    fn a_name_a_step_does_not_grow_the_books() {
        let mut r = Regions::default();
        for i in 0..100_000u32 {
            r.text(1, &format!("step {i}"));
            r.begin(1, &event(1, 1, 1), 0);
            r.end(1, &event(2, 1, 0));
        }
        assert_eq!((r.paths().len(), r.paths()[NAMES].name.as_str()), (NAMES + 1, "step #"));
    }

    #[test]
    fn marks_are_counted_by_name() {
        let mut r = Regions::default();
        r.text(1, "epoch");
        assert_eq!(r.mark(1, &event(5, 0, 1), 0, 10), Some(("epoch".into(), 1)));
        assert_eq!(r.mark(1, &event(6, 0, 1), 0, 20), Some(("epoch".into(), 2)));
        assert_eq!(r.mark(1, &event(6, 0, 9), 0, 20), None);
        assert_eq!((r.marks.len(), r.marked["epoch"].count), (2, 2));
    }
}
