//! Events played for a format: frees paired with their allocations, the past of a window told as what is live.

use std::collections::HashMap;

use anyhow::Result;
use vramscope_core::event::{Event, EventKind, Source as Served};
use vramscope_core::spread::Spread;
use vramscope_core::trace::Oom;

use super::select::Selection;
use crate::report::tally::Layer;

/// Memory that the program was given.
#[derive(Clone, Debug, PartialEq)]
pub struct Allocation {
    /// Its `alloc` event.
    pub event: Event,
    /// Number of the thread that asked.
    pub thread: u32,
    /// CUDA ordinal of its device.
    pub device: u32,
    /// The layer it is counted in.
    pub layer: Layer,
}

impl Allocation {
    /// Bytes of the block that serves it.
    pub fn block(&self) -> u64 {
        if self.event.block == 0 { self.event.bytes } else { self.event.block }
    }
}

/// What the pool took from the driver.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    /// Its `segment_alloc` event.
    pub event: Event,
    /// Number of the thread.
    pub thread: u32,
    /// CUDA ordinal of its device.
    pub device: u32,
}

impl Segment {
    /// Its bytes.
    pub fn bytes(&self) -> u64 {
        self.event.bytes.max(self.event.block)
    }
}

/// One thing that happened, in the order of time.
#[derive(Debug)]
pub struct Step<'a> {
    /// When, in nanoseconds since the history's start.
    pub time: u64,
    /// Number of the thread.
    pub thread: u32,
    /// It was so before the window begins (or the part of a rotated history, or a snapshot): told, not seen to happen.
    pub before: bool,
    /// What happened.
    pub what: What<'a>,
}

/// See [`Step`].
#[derive(Debug)]
pub enum What<'a> {
    /// Memory was given to the program. After the end of the same id: that free failed, the memory lives on.
    Alloc(&'a Allocation),
    /// It was given back, by this event: a `free`, or the end of its context.
    Free(&'a Allocation, &'a Event),
    /// The pool took memory from the driver.
    SegmentAlloc(&'a Segment),
    /// The pool gave it back, by this event.
    SegmentFree(&'a Segment, &'a Event),
    /// Physical memory of this allocation was mapped; `None`: the allocation is not known.
    Map(Option<&'a Allocation>, &'a Event),
    /// All else, of any device: samples, marks, regions, failures, trims, counters, `unmap`, `export`, `exit`, contexts.
    Other(&'a Event),
    /// A request that failed, explained.
    Oom(&'a Oom),
}

/// Where steps go.
pub type Each<'e> = dyn FnMut(&Step<'_>) -> Result<()> + 'e;

/// Plays events.
pub struct Player<'s> {
    selection: &'s Selection,
    contexts: HashMap<u16, u32>,
    live: HashMap<u64, Allocation, Spread>,
    segments: HashMap<u64, Segment, Spread>,
    mapped: HashMap<u64, (u32, Event), Spread>,
    last_freed: HashMap<u32, Allocation>,
    /// The window has begun.
    begun: bool,
    /// The window is over.
    pub over: bool,
}

impl<'s> Player<'s> {
    /// Nothing was played yet.
    pub fn new(selection: &'s Selection) -> Player<'s> {
        Player {
            selection,
            contexts: HashMap::new(),
            live: HashMap::default(),
            segments: HashMap::default(),
            mapped: HashMap::default(),
            last_freed: HashMap::new(),
            begun: false,
            over: false,
        }
    }

    fn device(&self, context: u16) -> u32 {
        self.contexts.get(&context).copied().unwrap_or(0)
    }

    /// Takes over what was live where a part of a rotated history, or a snapshot, begins.
    pub fn was_live(&mut self, thread: u32, e: &Event) {
        match e.kind {
            EventKind::Alloc => drop(self.live.insert(e.id, self.allocation(thread, e))),
            EventKind::SegmentAlloc => drop(self.segments.insert(e.id, self.segment(thread, e))),
            EventKind::Map => drop(self.mapped.insert(e.address, (thread, *e))),
            EventKind::Context => drop(self.contexts.insert(e.context, e.extra[0] as u32)),
            _ => {}
        }
    }

    fn allocation(&self, thread: u32, e: &Event) -> Allocation {
        let pooled = matches!(Served::from_number(e.how), Some(Served::Hit | Served::Miss));
        let layer = Layer::of(e.memory, pooled);
        Allocation { event: *e, thread, device: self.device(e.context), layer }
    }

    fn segment(&self, thread: u32, e: &Event) -> Segment {
        Segment { event: *e, thread, device: self.device(e.context) }
    }

    /// The window begins: tells what is live.
    fn begin(&mut self, each: &mut Each) -> Result<()> {
        self.begun = true;
        let time = self.selection.from;
        let mut segments: Vec<&Segment> = self.segments.values().collect();
        segments.sort_by_key(|s| s.event.id);
        for s in segments {
            if self.selection.wants(s.device, Layer::Pool) {
                each(&Step { time, thread: s.thread, before: true, what: What::SegmentAlloc(s) })?;
            }
        }
        // By age, so that what holds others comes before them.
        let mut live: Vec<&Allocation> = self.live.values().collect();
        live.sort_by_key(|a| (a.event.time, a.event.id));
        for a in live {
            if self.selection.wants(a.device, a.layer) {
                each(&Step { time, thread: a.thread, before: true, what: What::Alloc(a) })?;
            }
        }
        let mut mapped: Vec<&(u32, Event)> = self.mapped.values().collect();
        mapped.sort_by_key(|(_, e)| e.time);
        for (thread, e) in mapped {
            let of = self.live.get(&e.id);
            each(&Step { time, thread: *thread, before: true, what: What::Map(of, e) })?;
        }
        Ok(())
    }

    /// The end of the history: a window that never began, begins.
    pub fn finish(&mut self, each: &mut Each) -> Result<()> {
        if self.begun { Ok(()) } else { self.begin(each) }
    }

    /// An explained failure.
    pub fn oom(&mut self, oom: &Oom, each: &mut Each) -> Result<()> {
        let s = self.selection;
        if self.over || oom.time <= s.from && s.from > 0 || oom.time > s.to || s.device.is_some_and(|d| d != oom.device)
        {
            return Ok(());
        }
        if !self.begun {
            self.begin(each)?;
        }
        each(&Step { time: oom.time, thread: oom.thread, before: false, what: What::Oom(oom) })
    }

    /// Plays the next event in the order of time.
    pub fn play(&mut self, thread: u32, e: &Event, each: &mut Each) -> Result<()> {
        if self.over {
            return Ok(());
        }
        // From 0 is from the start: also what happens at time 0 is seen to happen.
        if !self.begun && (e.time > self.selection.from || self.selection.from == 0) {
            self.begin(each)?;
        }
        if e.time > self.selection.to {
            self.over = true;
            return Ok(());
        }
        let s = self.selection;
        let begun = self.begun;
        let mut tell = |wanted: bool, what: What| match begun && wanted {
            true => each(&Step { time: e.time, thread, before: false, what }),
            false => Ok(()),
        };
        match e.kind {
            EventKind::Alloc => {
                let new = self.allocation(thread, e);
                // An id twice would never be freed twice; the later one holds.
                if let Some(old) = self.live.remove(&e.id) {
                    tell(s.wants(old.device, old.layer), What::Free(&old, e))?;
                }
                tell(s.wants(new.device, new.layer), What::Alloc(&new))?;
                self.live.insert(e.id, new);
            }
            EventKind::Free => {
                let Some(old) = self.live.remove(&e.id) else { return Ok(()) };
                tell(s.wants(old.device, old.layer), What::Free(&old, e))?;
                self.last_freed.insert(thread, old);
            }
            EventKind::FreeFailed => {
                if let Some(back) = self.last_freed.remove(&thread)
                    && back.event.id == e.id
                {
                    tell(s.wants(back.device, back.layer), What::Alloc(&back))?;
                    self.live.insert(e.id, back);
                }
                tell(true, What::Other(e))?;
            }
            EventKind::SegmentAlloc => {
                let new = self.segment(thread, e);
                tell(s.wants(new.device, Layer::Pool), What::SegmentAlloc(&new))?;
                self.segments.insert(e.id, new);
            }
            EventKind::SegmentFree => {
                let Some(old) = self.segments.remove(&e.id) else { return Ok(()) };
                tell(s.wants(old.device, Layer::Pool), What::SegmentFree(&old, e))?;
            }
            EventKind::Map => {
                self.mapped.insert(e.address, (thread, *e));
                let of = self.live.get(&e.id);
                let device = of.map(|a| a.device).or(self.segments.get(&e.id).map(|s| s.device));
                tell(s.device.is_none_or(|d| device.is_none_or(|of| of == d)), What::Map(of, e))?;
            }
            EventKind::Unmap => {
                self.mapped.retain(|at, _| *at < e.address || *at >= e.address.saturating_add(e.bytes));
                tell(true, What::Other(e))?;
            }
            EventKind::ContextEnd => {
                // As the report counts.
                let of_it = |x: &Event| x.context == e.context && x.memory.dies_with_context();
                let mut ids: Vec<u64> = self.live.iter().filter(|(_, a)| of_it(&a.event)).map(|(id, _)| *id).collect();
                // What lies in others goes first.
                ids.sort_unstable_by(|a, b| b.cmp(a));
                for old in ids.iter().filter_map(|id| self.live.remove(id)) {
                    tell(s.wants(old.device, old.layer), What::Free(&old, e))?;
                }
                let mut ids: Vec<u64> =
                    self.segments.iter().filter(|(_, x)| of_it(&x.event)).map(|(id, _)| *id).collect();
                ids.sort_unstable();
                for old in ids.iter().filter_map(|id| self.segments.remove(id)) {
                    tell(s.wants(old.device, Layer::Pool), What::SegmentFree(&old, e))?;
                }
                tell(true, What::Other(e))?;
            }
            EventKind::Export => self.export(e, &mut tell)?,
            EventKind::Context => {
                self.contexts.insert(e.context, e.extra[0] as u32);
                tell(true, What::Other(e))?;
            }
            _ => tell(true, What::Other(e))?,
        }
        Ok(())
    }

    /// A block leaves the pool for good, and takes its segment with it: a plain allocation from now on.
    fn export(&mut self, e: &Event, tell: &mut impl FnMut(bool, What) -> Result<()>) -> Result<()> {
        let s = self.selection;
        if let Some(old) = self.live.remove(&e.id) {
            if old.layer == Layer::Pool {
                tell(s.wants(old.device, old.layer), What::Free(&old, e))?;
                if let Some(segment) = self.segments.remove(&old.event.extra[0]) {
                    tell(s.wants(segment.device, Layer::Pool), What::SegmentFree(&segment, e))?;
                }
                let [_, stream, took] = old.event.extra;
                let event = Event { how: Served::Driver as u8, extra: [0, stream, took], ..old.event };
                let new = Allocation { event, layer: Layer::of(event.memory, false), ..old };
                tell(s.wants(new.device, new.layer), What::Alloc(&new))?;
                self.live.insert(e.id, new);
            } else {
                self.live.insert(e.id, old);
            }
        }
        tell(true, What::Other(e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing::{MIB, Script};
    use vramscope_core::event::FreeHow;
    use vramscope_core::event::Memory;
    use vramscope_core::trace::Line;

    /// The steps of a script, a word each.
    fn steps(s: &Script, selection: Selection) -> String {
        let mut player = Player::new(&selection);
        let mut seen = Vec::new();
        let mut each = |step: &Step| {
            let past = if step.before { "was-" } else { "" };
            match &step.what {
                What::Alloc(a) => seen.push(format!("{past}alloc{}", a.event.id)),
                What::Free(a, _) => seen.push(format!("{past}free{}", a.event.id)),
                What::SegmentAlloc(s) => seen.push(format!("{past}segment{}", s.event.id)),
                What::SegmentFree(s, _) => seen.push(format!("{past}gone{}", s.event.id)),
                _ => {}
            }
            Ok(())
        };
        for line in &s.lines {
            if let Line::Event(thread, e) = line {
                player.play(*thread, e, &mut each).unwrap();
            }
        }
        player.finish(&mut each).unwrap();
        seen.join(" ")
    }

    #[test]
    fn frees_come_with_their_allocations() {
        let mut s = Script::new();
        let a = s.direct(Memory::Device, MIB, 0, 1);
        s.free(a, FreeHow::Driver);
        s.event(Event { kind: EventKind::FreeFailed, id: a, ..Event::default() });
        s.free(77, FreeHow::Driver);
        let (pooled, _) = s.miss(MIB, MIB, 0);
        s.event(Event { kind: EventKind::Export, id: pooled, ..Event::default() });
        s.event(Event { kind: EventKind::ContextEnd, context: 1, ..Event::default() });
        let all = "alloc1 free1 alloc1 segment2 alloc3 free3 gone2 alloc3 free3 free1";
        assert_eq!(steps(&s, Selection::default()), all);
    }

    #[test]
    fn a_window_is_told_what_is_live() {
        let mut s = Script::new();
        let a = s.direct(Memory::Device, MIB, 0, 1);
        let b = s.direct(Memory::Pinned, MIB, 0, 1);
        s.miss(MIB, MIB, 0);
        let middle = s.time;
        s.free(a, FreeHow::Driver);
        s.free(b, FreeHow::Driver);
        let from = Selection { from: middle, ..Selection::default() };
        assert_eq!(steps(&s, from), "was-segment3 was-alloc1 was-alloc2 was-alloc4 free1 free2");
        assert_eq!(
            steps(&s, Selection { to: s.time - 1, ..from }),
            "was-segment3 was-alloc1 was-alloc2 was-alloc4 free1"
        );
        assert_eq!(steps(&s, Selection { layer: Some(Layer::Pinned), ..from }), "was-alloc2 free2");
        assert_eq!(steps(&s, Selection { device: Some(1), ..from }), "");
        assert_eq!(steps(&s, Selection::at(s.time)), "was-segment3 was-alloc4");
        assert_eq!(steps(&s, Selection::at(s.time + 5)), "was-segment3 was-alloc4");
    }
}
