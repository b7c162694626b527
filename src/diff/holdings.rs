//! What every call stack holds at the moments that are compared. One pass: a group is copied when it changes for the
//! first time after a peak, so what was copied is what it was then.

use std::collections::{BTreeMap, HashMap, HashSet};

use vramscope_core::api::Api;
use vramscope_core::event::{Event, EventKind, Memory, Source};

use super::basis::Basis;
use super::live::{Count, Entry, Live, SEGMENT, pooled};
use super::series::Series;
use super::sums::{Most, Sums};
use crate::moment::Moment;
use crate::report::tally::{Layer, Tally};

/// Allocations of one stack, caller and kind.
#[derive(Clone, Debug)]
pub struct Group {
    /// Number of the call stack, 0: none.
    pub stack: u32,
    /// Number of the calling module, 0: unknown.
    pub caller: u32,
    /// Kind of memory.
    pub memory: Memory,
    /// The layer it is in.
    pub layer: Layer,
    /// PyTorch's allocator took it to cut tensors from, if it tells of tensors.
    pub segment: bool,
    /// The entry point of the first of them.
    pub api: Api,
    /// All there ever were.
    pub ever: Tally,
    /// When it held most.
    most: Tally,
    now: Tally,
    /// At the peak with and without tensors, see [`Holdings::tensors`].
    at_peak: [Tally; 2],
    epoch: [u64; 2],
    /// At the moment asked for.
    then: Tally,
}

/// A device of a process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Device {
    /// Now.
    pub now: Sums,
    peaks: [Most; 2],
    /// When most was reserved.
    pub reserved: Most,
    /// Most bytes that the device said are used beside what was ours then: context, modules, driver, other processes.
    pub rest: u64,
    /// Bytes of the device.
    pub total: u64,
}

/// The state of memory as a history goes by, and what it was at the moments that matter.
#[derive(Debug)]
pub struct Holdings {
    basis: Basis,
    live: Live,
    book: Book,
    /// When most was reserved.
    pub reserved: Most,
    /// Bytes in use over time.
    pub series: Series,
    taken: bool,
}

/// The sums; apart from what is live, which tells it.
#[derive(Debug, Default)]
struct Book {
    now: Sums,
    devices: BTreeMap<u32, Device>,
    contexts: HashMap<u16, u32>,
    groups: Vec<Group>,
    by_key: HashMap<(u32, u32, u8, bool), u32>,
    /// Modules that are PyTorch's allocator.
    pytorch: HashSet<u32>,
    /// PyTorch told of a tensor.
    tensors: bool,
    peaks: [Most; 2],
    epochs: [u64; 2],
    then: Option<(u64, Sums)>,
}

impl Holdings {
    /// Nothing is held.
    pub fn new(basis: Basis) -> Holdings {
        let (live, book, reserved, series) = Default::default();
        Holdings { basis, live, book, reserved, series, taken: false }
    }

    /// A module of this number, with this file name, was loaded.
    pub fn module(&mut self, number: u32, file: &str) {
        if file.starts_with("libc10_cuda") {
            self.book.pytorch.insert(number);
        }
    }

    /// Takes over what was live where a later part of a history begins. It counts as part of it.
    pub fn was_live(&mut self, e: &Event) {
        self.apply(0, e);
    }

    /// Plays the next event.
    pub fn play(&mut self, thread: u32, e: &Event) {
        if let Basis::At(Moment::Time(time)) = self.basis
            && e.time > time
        {
            self.take(time);
        }
        self.apply(thread, e);
    }

    fn apply(&mut self, thread: u32, e: &Event) {
        match e.kind {
            EventKind::Context => drop(self.book.contexts.insert(e.context, e.extra[0] as u32)),
            EventKind::Sample => {
                let device = self.book.device(e.context);
                let used = e.block.saturating_sub(e.bytes);
                device.rest = device.rest.max(used.saturating_sub(device.now.reserved()));
                device.total = device.total.max(e.block);
            }
            _ => {}
        }
        if self.live.play(thread, e, &mut self.book) {
            self.book.measure(e);
            let (sums, tensors) = (self.book.now, self.book.tensors);
            self.reserved.see_reserved(e.time, &sums, tensors);
            self.series.push(e.time, sums.active(tensors));
        } else if matches!(e.kind, EventKind::Free | EventKind::ContextEnd | EventKind::SegmentFree) {
            self.series.push(e.time, self.active());
        }
    }

    /// Bytes in use now.
    pub fn active(&self) -> u64 {
        self.book.now.active(self.book.tensors)
    }

    /// This is the moment that was asked for: keeps what every group holds. Only the first such moment counts.
    pub fn take(&mut self, time: u64) {
        if std::mem::replace(&mut self.taken, true) {
            return;
        }
        self.book.then = Some((time, self.book.now));
        for group in &mut self.book.groups {
            group.then = group.now;
        }
    }

    /// The history ended at this time.
    pub fn finish(&mut self, end: u64) {
        if !matches!(self.basis, Basis::At(Moment::Peak | Moment::Mark(_))) {
            self.take(end);
        }
    }

    /// Whether the moment asked for came.
    pub fn has_moment(&self) -> bool {
        self.taken || self.basis == Basis::default()
    }

    /// Whether PyTorch told of its tensors. They then stand in the place of the segments that hold them.
    pub fn tensors(&self) -> bool {
        self.book.tensors
    }

    /// When most was in use.
    pub fn peak(&self) -> &Most {
        &self.book.peaks[usize::from(self.book.tensors)]
    }

    /// What is held now; at the end of the history.
    pub fn now(&self) -> &Sums {
        &self.book.now
    }

    /// What was held at the moment asked for, and when that was.
    pub fn at_moment(&self) -> Most {
        let (time, sums) = match self.book.then {
            Some(then) => then,
            None if self.basis == Basis::default() => return *self.peak(),
            None => return Most::default(),
        };
        Most { time, sums, bytes: sums.active(self.book.tensors) }
    }

    /// All groups.
    pub fn groups(&self) -> &[Group] {
        &self.book.groups
    }

    /// Whether a group is memory in itself, and none that tensors are cut from.
    pub fn counts(&self, group: &Group) -> bool {
        group.layer != Layer::Imported && !(group.segment && self.book.tensors)
    }

    /// What a group held at the moment asked for.
    pub fn held(&self, group: &Group) -> Tally {
        match self.basis {
            Basis::Total => group.ever,
            Basis::Most => group.most,
            Basis::At(Moment::Peak) => self.at_peak(group),
            Basis::At(_) => group.then,
        }
    }

    /// What a group held when most was in use.
    pub fn at_peak(&self, group: &Group) -> Tally {
        let slot = usize::from(self.book.tensors);
        if group.epoch[slot] == self.book.epochs[slot] { group.at_peak[slot] } else { group.now }
    }

    /// What a group holds at the end.
    pub fn at_end(&self, group: &Group) -> Tally {
        group.now
    }

    /// The devices.
    pub fn devices(&self) -> &BTreeMap<u32, Device> {
        &self.book.devices
    }

    /// When most was in use on a device.
    pub fn device_peak<'a>(&self, device: &'a Device) -> &'a Most {
        &device.peaks[usize::from(self.book.tensors)]
    }
}

impl Book {
    fn device(&mut self, context: u16) -> &mut Device {
        let device = self.contexts.get(&context).copied().unwrap_or(0);
        self.devices.entry(device).or_default()
    }

    /// Something more is live: is it the most?
    fn measure(&mut self, e: &Event) {
        let now = self.now;
        let (both, tensors) = ([false, true], self.tensors);
        // Before the first tensor both are followed: nobody knows yet whether tensors will come.
        for with in both.into_iter().filter(|with| *with || !tensors) {
            let slot = usize::from(with);
            if self.peaks[slot].see(now.active(with), e.time, &now) {
                self.epochs[slot] += 1;
            }
        }
        let device = self.device(e.context);
        let now = device.now;
        for with in both {
            device.peaks[usize::from(with)].see(now.active(with), e.time, &now);
        }
        device.reserved.see_reserved(e.time, &now, tensors);
    }

    fn count(&mut self, entry: &Entry, how: fn(&mut Tally, u64, u64)) {
        let device = self.contexts.get(&entry.context).copied().unwrap_or(0);
        let device = &mut self.devices.entry(device).or_default().now;
        let (bytes, requested) = (entry.bytes, entry.requested);
        let Some(g) = self.groups.get_mut(entry.group as usize) else {
            for sums in [device, &mut self.now] {
                how(&mut sums.totals.segments, bytes, requested);
            }
            return;
        };
        for slot in 0..2 {
            if g.epoch[slot] != self.epochs[slot] {
                g.at_peak[slot] = g.now;
                g.epoch[slot] = self.epochs[slot];
            }
        }
        how(&mut g.now, bytes, requested);
        if g.now.bytes > g.most.bytes {
            g.most = g.now;
        }
        for sums in [device, &mut self.now] {
            how(sums.totals.layer_mut(g.layer), bytes, requested);
            if g.segment {
                how(&mut sums.segments, bytes, requested);
            }
        }
    }

    fn group_of(&mut self, e: &Event, pooled: bool) -> u32 {
        let key = (e.stack, e.caller, e.memory as u8, pooled);
        if let Some(group) = self.by_key.get(&key) {
            return *group;
        }
        let number = self.groups.len() as u32;
        let segment = !pooled && self.pytorch.contains(&e.caller) && matches!(e.memory, Memory::Device | Memory::Vmm);
        let zero = Tally::default();
        self.groups.push(Group {
            stack: e.stack,
            caller: e.caller,
            memory: e.memory,
            layer: Layer::of(e.memory, pooled),
            segment,
            api: e.api,
            ever: zero,
            most: zero,
            now: zero,
            at_peak: [zero; 2],
            epoch: self.epochs,
            then: zero,
        });
        self.by_key.insert(key, number);
        number
    }
}

impl Count for Book {
    fn group(&mut self, e: &Event) -> u32 {
        self.tensors |= e.memory == Memory::Tensor;
        let pooled = pooled(Source::from_number(e.how).unwrap_or_default());
        let number = self.group_of(e, pooled);
        let bytes = if e.block == 0 { e.bytes } else { e.block };
        self.groups[number as usize].ever.add(bytes, e.bytes);
        number
    }

    fn outside_pool(&mut self, group: u32) -> u32 {
        let Some(g) = self.groups.get(group as usize) else { return group };
        let event = Event { stack: g.stack, caller: g.caller, memory: g.memory, api: g.api, ..Event::default() };
        self.group_of(&event, false)
    }

    fn enters(&mut self, entry: &Entry) {
        self.count(entry, Tally::add);
    }

    fn leaves(&mut self, entry: &Entry) {
        self.count(entry, Tally::take);
    }
}

const _: () = assert!(SEGMENT == u32::MAX, "no group has this number, so `get_mut` finds none");
