//! What is live, with its address, while a history goes by: allocations that somebody uses, what they lie in, and the sums
//! of each device. Rules as in [`crate::report::state`], which says what is counted where; this one also knows addresses
//! and what PyTorch cuts its tensors from.

use std::collections::{BTreeMap, HashMap, HashSet};

use vramscope_core::counters::{NAMES, PER_EVENT};
use vramscope_core::event::{Event, EventKind, Memory, Source};
use vramscope_core::spread::Spread;

use super::account::Account;
use super::layers::Sums;
use super::live::{HOST, Kind, Live, Segment, Whose};

/// What an event changed.
#[derive(Debug, Default)]
pub struct Change {
    /// Allocations that began, by number; also one whose free turned out not to have happened.
    pub born: Vec<u64>,
    /// Allocations that ended.
    pub died: Vec<Live>,
    /// Segments that ended.
    pub left: Vec<Segment>,
    /// Devices whose sums changed.
    pub devices: Vec<u32>,
}

impl Change {
    /// Nothing, again.
    pub fn clear(&mut self) {
        self.born.clear();
        self.died.clear();
        self.left.clear();
        self.devices.clear();
    }

    fn device(&mut self, device: u32) {
        if !self.devices.contains(&device) {
            self.devices.push(device);
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Books {
    live: HashMap<u64, Live, Spread>,
    segments: HashMap<u64, Segment, Spread>,
    maps: BTreeMap<u64, Segment>,
    devices: BTreeMap<u32, Account>,
    contexts: HashMap<u16, u32>,
    early: HashSet<u64>,
    last_freed: HashMap<u32, Live>,
    /// Modules that are PyTorch's allocator; empty if it tells nothing of its tensors.
    torch: HashSet<u32>,
    grain: u64,
}

impl Books {
    /// Empty books. `torch`: the modules whose memory is cut into tensors; none, if no tensors are told of.
    pub fn new(granularity: u64, torch: HashSet<u32>) -> Books {
        Books { grain: if granularity == 0 { 2 << 20 } else { granularity }, torch, ..Books::default() }
    }

    /// Everything that lives, in no order.
    pub fn live(&self) -> impl Iterator<Item = &Live> {
        self.live.values().filter(|l| l.kind.is_some())
    }

    /// One of them, to note something in it.
    pub fn live_mut(&mut self, id: u64) -> Option<&mut Live> {
        self.live.get_mut(&id).filter(|l| l.kind.is_some())
    }

    /// All segments that there are now, in no order.
    pub fn segments(&self) -> Vec<Segment> {
        let torch = self.live.values().filter(|l| l.torch && l.memory != Memory::Vmm).map(Live::segment);
        self.segments.values().chain(self.maps.values()).copied().chain(torch).collect()
    }

    /// The layers of a device now.
    pub fn sums(&self, device: u32) -> Sums {
        self.devices.get(&device).map_or(Sums::default(), Account::sums)
    }

    /// Plays the next event; says what it changed.
    pub fn play(&mut self, thread: u32, e: &Event, change: &mut Change) {
        match e.kind {
            EventKind::Alloc => self.alloc(e, change),
            EventKind::Free => self.free(thread, e.id, change),
            EventKind::FreeFailed => self.unfree(thread, e.id, change),
            EventKind::SegmentAlloc => self.segment_alloc(e, change),
            EventKind::SegmentFree => self.segment_free(e.id, change),
            EventKind::Context => drop(self.contexts.insert(e.context, e.extra[0] as u32)),
            EventKind::ContextEnd => self.context_end(e.context, change),
            EventKind::Export => self.export(e.id, change),
            EventKind::Sample => self.sample(e, change),
            EventKind::Map => self.map(e),
            EventKind::Unmap => self.unmap(e.address, e.bytes, change),
            EventKind::Counters => self.counters(e, change),
            _ => {}
        }
    }

    fn device(&self, context: u16) -> u32 {
        self.contexts.get(&context).copied().unwrap_or(0)
    }

    fn alloc(&mut self, e: &Event, change: &mut Change) {
        if self.early.remove(&e.id) {
            return;
        }
        let bytes = if e.block == 0 { e.bytes } else { e.block };
        let pooled = [Source::Hit as u8, Source::Miss as u8].contains(&e.how);
        let torch = !pooled && self.torch.contains(&e.caller) && matches!(e.memory, Memory::Device | Memory::Vmm);
        let kind = match e.memory {
            _ if pooled => Some(Kind::Pool),
            _ if torch => None,
            Memory::None | Memory::Device | Memory::Pitch => Some(Kind::Direct),
            Memory::Async => Some(Kind::Async),
            Memory::Vmm => Some(Kind::Vmm),
            Memory::Managed => Some(Kind::Managed),
            Memory::Array => Some(Kind::Array),
            Memory::Pinned | Memory::Registered => Some(Kind::Host),
            Memory::Tensor => Some(Kind::Tensor),
            Memory::Imported => None,
        };
        let own = torch || !matches!(kind, None | Some(Kind::Pool | Kind::Tensor | Kind::Host));
        let live = Live {
            id: e.id,
            device: if kind == Some(Kind::Host) { HOST } else { self.device(e.context) },
            kind,
            bytes,
            asked: e.bytes,
            // Physical memory has a handle, and an address when it is mapped.
            address: if e.memory == Memory::Vmm { 0 } else { e.address },
            time: e.time,
            group: 0,
            context: e.context,
            memory: e.memory,
            segment: if pooled { e.extra[0] } else { 0 },
            rounding: if own { self.rounding(bytes) } else { 0 },
            torch,
        };
        self.enter(live, change);
    }

    /// What the driver charges above this size. Small ones share a page.
    fn rounding(&self, bytes: u64) -> u64 {
        if bytes > 1 << 20 { bytes.checked_next_multiple_of(self.grain).map_or(0, |pages| pages - bytes) } else { 0 }
    }

    fn enter(&mut self, live: Live, change: &mut Change) {
        // An id twice would be counted twice; the later one holds.
        if let Some(old) = self.live.insert(live.id, live) {
            self.count(&old, false, change);
            change.died.extend(old.kind.is_some().then_some(old));
        }
        self.count(&live, true, change);
        if live.kind.is_some() {
            change.born.push(live.id);
        }
    }

    fn leave(&mut self, live: &Live, change: &mut Change) {
        self.count(live, false, change);
        if live.kind.is_some() {
            change.died.push(*live);
        } else if live.torch && live.memory != Memory::Vmm {
            change.left.push(live.segment());
        }
    }

    fn count(&mut self, live: &Live, more: bool, change: &mut Change) {
        let account = self.devices.entry(live.device).or_default();
        let part = match live.kind {
            None if live.torch => &mut account.torch,
            None => return,
            Some(Kind::Tensor) => &mut account.tensors,
            Some(Kind::Pool) => &mut account.pool,
            Some(Kind::Host) => &mut account.host,
            Some(_) => &mut account.outside,
        };
        change.device(live.device);
        if more {
            *part = part.saturating_add(live.bytes);
            account.rounding = account.rounding.saturating_add(live.rounding);
        } else {
            *part = part.saturating_sub(live.bytes);
            account.rounding = account.rounding.saturating_sub(live.rounding);
        }
    }

    fn free(&mut self, thread: u32, id: u64, change: &mut Change) {
        match self.live.remove(&id) {
            Some(live) => {
                self.leave(&live, change);
                self.last_freed.insert(thread, live);
            }
            None if id != 0 => drop(self.early.insert(id)),
            None => {}
        }
    }

    /// The free before, of the same thread, did not happen.
    fn unfree(&mut self, thread: u32, id: u64, change: &mut Change) {
        match self.last_freed.remove(&thread) {
            Some(live) if live.id == id => self.enter(live, change),
            _ => drop(self.early.remove(&id)),
        }
    }

    fn segment_alloc(&mut self, e: &Event, change: &mut Change) {
        let bytes = e.bytes.max(e.block);
        self.segment_free(e.id, change);
        let device = self.device(e.context);
        let segment = Segment {
            device,
            address: e.address,
            bytes,
            time: e.time,
            whose: if e.memory == Memory::Async { Whose::Ordered } else { Whose::Pool },
            home: 0,
            context: e.context,
            id: e.id,
        };
        self.segments.insert(e.id, segment);
        let rounding = self.rounding(bytes);
        let account = self.devices.entry(device).or_default();
        account.segments = account.segments.saturating_add(bytes);
        account.rounding = account.rounding.saturating_add(rounding);
        change.device(device);
    }

    fn segment_free(&mut self, id: u64, change: &mut Change) {
        let Some(segment) = self.segments.remove(&id) else { return };
        let rounding = self.rounding(segment.bytes);
        let account = self.devices.entry(segment.device).or_default();
        account.segments = account.segments.saturating_sub(segment.bytes);
        account.rounding = account.rounding.saturating_sub(rounding);
        change.device(segment.device);
        change.left.push(segment);
    }

    /// A context ends, and what lived in it. Stream-ordered, physical and imported memory is not a context's.
    fn context_end(&mut self, context: u16, change: &mut Change) {
        let ended = |l: &Live| l.context == context && l.memory.dies_with_context();
        let mut ids: Vec<u64> = self.live.values().filter(|l| ended(l)).map(|l| l.id).collect();
        ids.sort_unstable();
        for id in ids {
            if let Some(live) = self.live.remove(&id) {
                self.leave(&live, change);
            }
        }
        let ids: Vec<u64> = self
            .segments
            .values()
            .filter(|s| s.context == context && s.whose != Whose::Ordered)
            .map(|s| s.id)
            .collect();
        ids.into_iter().for_each(|id| self.segment_free(id, change));
    }

    /// A block leaves the pool for good, and takes its segment with it.
    fn export(&mut self, id: u64, change: &mut Change) {
        let Some(mut live) = self.live.get(&id).copied().filter(|l| l.segment != 0) else { return };
        self.count(&live, false, change);
        self.segment_free(live.segment, change);
        live.kind = Some(Kind::Direct);
        live.segment = 0;
        live.rounding = self.rounding(live.bytes);
        self.count(&live, true, change);
        self.live.insert(id, live);
    }

    fn sample(&mut self, e: &Event, change: &mut Change) {
        let device = self.device(e.context);
        let account = self.devices.entry(device).or_default();
        account.rest = e.block.saturating_sub(e.bytes).saturating_sub(account.ours());
        change.device(device);
    }

    fn map(&mut self, e: &Event) {
        let of = self.live.get_mut(&e.id);
        let device = of.as_ref().map(|l| l.device);
        if let Some(live) = of.filter(|l| l.memory == Memory::Vmm && l.address == 0) {
            live.address = e.address;
        }
        let segment = Segment {
            device: device.unwrap_or_else(|| self.device(e.context)),
            address: e.address,
            bytes: e.bytes,
            time: e.time,
            whose: Whose::Mapped,
            home: self.segments.get(&e.id).map_or(0, |s| s.address),
            context: e.context,
            id: e.id,
        };
        self.maps.insert(e.address, segment);
    }

    fn unmap(&mut self, address: u64, bytes: u64, change: &mut Change) {
        let end = address.saturating_add(bytes.max(1));
        let gone: Vec<u64> = self.maps.range(address..end).map(|(a, _)| *a).collect();
        change.left.extend(gone.iter().filter_map(|a| self.maps.remove(a)));
    }

    /// The pool's counters are the process's. Where it uses one device, that device's.
    fn counters(&mut self, e: &Event, change: &mut Change) {
        let first = usize::from(e.code) * PER_EVENT;
        let [a, b, c] = e.extra;
        let values = [e.id, e.address, e.bytes, e.block, a, b, c];
        let waiting = NAMES.iter().position(|n| *n == "waiting").and_then(|at| values.get(at.checked_sub(first)?));
        let mut pools = self.devices.iter_mut().filter(|(_, a)| a.segments > 0);
        if let (Some(waiting), Some((device, account)), None) = (waiting, pools.next(), pools.next())
            && account.waiting != *waiting
        {
            account.waiting = *waiting;
            change.device(*device);
        }
    }
}
