//! What was live when: plays a history's events in order and remembers the peaks.
//!
//! One pass is enough to know what each call stack held at the peak: a group of allocations is copied when it changes
//! for the first time after a peak, so what was copied is what it was then. Memory is bounded by what is live, and by
//! stacks.

use std::collections::{BTreeMap, HashMap, HashSet};

use vramscope_core::api::Api;
use vramscope_core::event::{Event, EventKind, Memory, Source};
use vramscope_core::spread::Spread;

use super::tally::{Layer, Tally, Totals};

/// Allocations of one stack, caller and kind.
#[derive(Clone, Debug)]
pub struct Group {
    /// Number of the call stack, 0: none.
    pub stack: u32,
    /// Number of the calling module, 0: unknown.
    pub caller: u32,
    /// Kind of memory.
    pub memory: Memory,
    /// Who served them; [`Source::Hit`] and [`Source::Miss`] are one group, called hit.
    pub source: Source,
    /// The entry point of the first of them.
    pub api: Api,
    /// Live now.
    pub now: Tally,
    /// All there ever were.
    pub ever: Tally,
    /// Those that a context's end freed.
    pub reset: Tally,
    at_peak: Tally,
    epoch: u64,
}

impl Group {
    /// The layer its memory is in.
    pub fn layer(&self) -> Layer {
        Layer::of(self.memory, pooled(self.source))
    }
}

/// A moment at which something was largest.
#[derive(Clone, Debug, Default)]
pub struct Peak {
    /// When.
    pub time: u64,
    /// All devices.
    pub totals: Totals,
    /// Each device.
    pub devices: BTreeMap<u32, Totals>,
}

/// What a device said of itself, and what we knew then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// When.
    pub time: u64,
    /// Bytes used on the device, by everybody.
    pub used: u64,
    /// Bytes the device has.
    pub total: u64,
    /// Bytes we had taken from it, with the driver's rounding.
    pub ours: u64,
}

#[derive(Clone, Copy, Debug)]
struct Live {
    group: u32,
    context: u16,
    bytes: u64,
    requested: u64,
    /// It is on the device, outside the pool: it has rounding of its own.
    rounded: bool,
    segment: u64,
}

#[derive(Clone, Copy, Debug)]
struct Segment {
    context: u16,
    bytes: u64,
    /// Of stream-ordered memory: it outlives its context.
    ordered: bool,
}

/// The state of memory as a history goes by.
#[derive(Debug, Default)]
pub struct State {
    /// Everything now.
    pub now: Totals,
    /// The devices now.
    pub devices: BTreeMap<u32, Totals>,
    /// When most was active.
    pub peak: Peak,
    /// When most was reserved.
    pub reserved_peak: Peak,
    /// Most bytes cached at once.
    pub inactive_peak: u64,
    /// What each device said when most of it was used.
    pub samples: BTreeMap<u32, Sample>,
    groups: Vec<Group>,
    by_key: HashMap<(u64, u64), u32, Spread>,
    live: HashMap<u64, Live, Spread>,
    segments: HashMap<u64, Segment, Spread>,
    contexts: HashMap<u16, u32, Spread>,
    /// Frees whose allocation comes later in the file.
    early: HashSet<u64, Spread>,
    last_freed: HashMap<u32, (u64, Live), Spread>,
    /// A block's free and its segment's may fail together.
    last_segment: HashMap<u32, (u64, Segment), Spread>,
    epoch: u64,
    grain: u64,
}

impl State {
    /// An empty state, on a driver that charges in this many bytes.
    pub fn new(granularity: u64) -> State {
        State { grain: if granularity == 0 { 2 << 20 } else { granularity }, ..State::default() }
    }

    /// All groups.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// What a group held when most was active.
    pub fn at_peak(&self, group: &Group) -> Tally {
        if group.epoch == self.epoch { group.at_peak } else { group.now }
    }

    /// The device of a context.
    pub fn device(&self, context: u16) -> u32 {
        self.contexts.get(&context).copied().unwrap_or(0)
    }

    /// Plays the next event.
    pub fn play(&mut self, thread: u32, e: &Event) {
        match e.kind {
            EventKind::Alloc => self.alloc(e, true),
            EventKind::Free => self.free(thread, e.id),
            EventKind::FreeFailed => self.unfree(thread, e.id),
            EventKind::SegmentAlloc => self.segment_alloc(e),
            EventKind::SegmentFree => {
                if let Some(segment) = self.segment_free(e.id) {
                    self.last_segment.insert(thread, (e.id, segment));
                }
            }
            EventKind::Context => {
                self.contexts.insert(e.context, e.extra[0] as u32);
            }
            EventKind::ContextEnd => self.context_end(e.context),
            EventKind::Export => self.export(e.id),
            EventKind::Sample => self.sample(e),
            _ => {}
        }
    }

    /// Takes over what was live where a later part of a history begins.
    pub fn was_live(&mut self, e: &Event) {
        match e.kind {
            EventKind::Alloc => self.alloc(e, false),
            _ => self.play(0, e),
        }
    }

    fn alloc(&mut self, e: &Event, new: bool) {
        let bytes = if e.block == 0 { e.bytes } else { e.block };
        let group = self.group(e);
        let g = &mut self.groups[group as usize];
        if new {
            g.ever.add(bytes, e.bytes);
        }
        if self.early.remove(&e.id) {
            return;
        }
        let layer = g.layer();
        let rounded = layer.on_device() && layer != Layer::Pool;
        let segment = if layer == Layer::Pool { e.extra[0] } else { 0 };
        self.enter(e.id, Live { group, context: e.context, bytes, requested: e.bytes, rounded, segment });
        self.measure(e.time);
        // Not where a segment comes: its first block comes with it.
        self.inactive_peak = self.inactive_peak.max(self.now.inactive());
    }

    fn enter(&mut self, id: u64, live: Live) {
        // An id twice would be counted twice; the later one holds.
        if let Some(old) = self.live.insert(id, live) {
            self.count(&old, Tally::take);
        }
        self.count(&live, Tally::add);
    }

    fn free(&mut self, thread: u32, id: u64) {
        match self.live.remove(&id) {
            Some(live) => {
                self.count(&live, Tally::take);
                self.last_freed.insert(thread, (id, live));
                self.inactive_peak = self.inactive_peak.max(self.now.inactive());
            }
            None if id != 0 => {
                self.early.insert(id);
            }
            None => {}
        }
    }

    /// The free before, of the same thread, did not happen.
    fn unfree(&mut self, thread: u32, id: u64) {
        if self.last_freed.get(&thread).is_some_and(|(last, _)| *last == id) {
            if let Some((_, live)) = self.last_freed.remove(&thread) {
                self.enter(id, live);
            }
        } else if self.last_segment.get(&thread).is_some_and(|(last, _)| *last == id) {
            if let Some((_, segment)) = self.last_segment.remove(&thread) {
                self.segment_enter(id, segment);
            }
        } else {
            self.early.remove(&id);
        }
    }

    /// Counts an allocation in or out, everywhere it is counted.
    fn count(&mut self, live: &Live, how: fn(&mut Tally, u64, u64)) {
        let epoch = self.epoch;
        let g = &mut self.groups[live.group as usize];
        if g.epoch != epoch {
            g.at_peak = g.now;
            g.epoch = epoch;
        }
        how(&mut g.now, live.bytes, live.requested);
        let layer = g.layer();
        let extra = if live.rounded { self.rounding(live.bytes) } else { 0 };
        let device = self.device(live.context);
        let totals = self.devices.entry(device).or_default();
        for t in [totals, &mut self.now] {
            how(t.layer_mut(layer), live.bytes, live.requested);
            let mut rounding = Tally { bytes: t.rounding, ..Tally::default() };
            how(&mut rounding, extra, 0);
            t.rounding = rounding.bytes;
        }
    }

    /// What the driver charges above this size. Small ones share a page.
    fn rounding(&self, bytes: u64) -> u64 {
        if bytes > 1 << 20 { bytes.next_multiple_of(self.grain) - bytes } else { 0 }
    }

    fn segment_alloc(&mut self, e: &Event) {
        self.segment_free(e.id);
        let (context, bytes) = (e.context, e.bytes.max(e.block));
        self.segment_enter(e.id, Segment { context, bytes, ordered: e.memory == Memory::Async });
        self.measure(e.time);
    }

    fn segment_enter(&mut self, id: u64, segment: Segment) {
        self.segments.insert(id, segment);
        let rounding = self.rounding(segment.bytes);
        let device = self.device(segment.context);
        for t in [self.devices.entry(device).or_default(), &mut self.now] {
            t.segments.add(segment.bytes, segment.bytes);
            t.rounding = t.rounding.saturating_add(rounding);
        }
    }

    fn segment_free(&mut self, id: u64) -> Option<Segment> {
        let segment = self.segments.remove(&id)?;
        let rounding = self.rounding(segment.bytes);
        let device = self.device(segment.context);
        for t in [self.devices.entry(device).or_default(), &mut self.now] {
            t.segments.take(segment.bytes, segment.bytes);
            t.rounding = t.rounding.saturating_sub(rounding);
        }
        Some(segment)
    }

    /// A context ends, and what lived in it. Stream-ordered memory is the device's, physical and imported memory nobody's.
    fn context_end(&mut self, context: u16) {
        let groups = &self.groups;
        let ended = |live: &Live| {
            let memory = groups[live.group as usize].memory;
            live.context == context && memory.dies_with_context()
        };
        let ids: Vec<u64> = self.live.iter().filter(|(_, live)| ended(live)).map(|(id, _)| *id).collect();
        for id in ids {
            if let Some(live) = self.live.remove(&id) {
                self.count(&live, Tally::take);
                self.groups[live.group as usize].reset.add(live.bytes, live.requested);
            }
        }
        let ids: Vec<u64> =
            self.segments.iter().filter(|(_, s)| s.context == context && !s.ordered).map(|(id, _)| *id).collect();
        for id in ids {
            self.segment_free(id);
        }
    }

    /// A block leaves the pool for good, and takes its segment with it.
    fn export(&mut self, id: u64) {
        let Some(mut live) = self.live.get(&id).copied().filter(|l| l.segment != 0) else { return };
        let old = self.groups[live.group as usize].clone();
        self.live.remove(&id);
        self.count(&live, Tally::take);
        self.segment_free(live.segment);
        let event = Event {
            stack: old.stack,
            caller: old.caller,
            memory: old.memory,
            api: old.api,
            how: Source::Driver as u8,
            ..Event::default()
        };
        live.group = self.group(&event);
        live.segment = 0;
        live.rounded = true;
        self.enter(id, live);
    }

    /// What a device says, of which `free` of `total` bytes are free, and what we know now.
    pub fn sampled(&self, device: u32, time: u64, free: u64, total: u64) -> Sample {
        let totals = self.devices.get(&device).copied().unwrap_or_default();
        let ours = totals.reserved().saturating_add(totals.rounding);
        Sample { time, used: total.saturating_sub(free), total, ours }
    }

    fn sample(&mut self, e: &Event) {
        let device = self.device(e.context);
        let sample = self.sampled(device, e.time, e.bytes, e.block);
        let most = self.samples.entry(device).or_insert(sample);
        if sample.used > most.used {
            *most = sample;
        }
    }

    fn group(&mut self, e: &Event) -> u32 {
        let source = Source::from_number(e.how).unwrap_or_default();
        let source = if pooled(source) { Source::Hit } else { source };
        let key = (u64::from(e.stack) << 32 | u64::from(e.caller), (e.memory as u64) << 8 | source as u64);
        if let Some(group) = self.by_key.get(&key) {
            return *group;
        }
        let group = self.groups.len() as u32;
        self.groups.push(Group {
            stack: e.stack,
            caller: e.caller,
            memory: e.memory,
            source,
            api: e.api,
            now: Tally::default(),
            ever: Tally::default(),
            reset: Tally::default(),
            at_peak: Tally::default(),
            epoch: self.epoch,
        });
        self.by_key.insert(key, group);
        group
    }

    fn measure(&mut self, time: u64) {
        if self.now.active() > self.peak.totals.active() {
            self.epoch += 1;
            self.peak.time = time;
            self.peak.totals = self.now;
            self.peak.devices.clone_from(&self.devices);
        }
        if self.now.reserved() > self.reserved_peak.totals.reserved() {
            self.reserved_peak.time = time;
            self.reserved_peak.totals = self.now;
            self.reserved_peak.devices.clone_from(&self.devices);
        }
    }
}

fn pooled(source: Source) -> bool {
    matches!(source, Source::Hit | Source::Miss)
}

#[cfg(test)]
mod tests;
