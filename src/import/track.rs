//! A device's trace on its way into the history: once through for what was live before it, then entry by entry.

use std::collections::{BTreeSet, HashMap, HashSet};

use anyhow::{Result, anyhow};
use vramscope_core::api::Api;
use vramscope_core::event::{Event, EventKind, Memory, Source};
use vramscope_core::trace::{Holder, Oom};

use super::Done;
use super::annotations::mark;
use super::lines::{ALLOCATOR, Lines};
use super::pieces::{Pieces, cut};
use super::snapshot::{Action, Entry, Snapshot};
use super::torch::Names;
use super::tree::Value;

/// Holders that are told of an out-of-memory.
const HOLDERS: usize = 10;

/// Live memory: the number of its allocation, its bytes, its stack.
#[derive(Clone, Copy, Debug)]
struct Live {
    id: u64,
    bytes: u64,
    stack: u32,
}

/// What was live before the trace.
#[derive(Clone, Copy, Debug)]
struct Early {
    address: u64,
    requested: u64,
    size: u64,
    stream: u64,
    frames: Option<Value>,
}

/// A device's trace on its way into the history.
pub struct Track {
    /// Number of the device.
    pub device: u32,
    /// Time of its first entry.
    pub first: Option<u64>,
    early_segments: Vec<Early>,
    early_pieces: Vec<(u64, u64)>,
    early_blocks: Vec<Early>,
    /// Where pieces of expandable segments are cut, so that each goes as a whole.
    cuts: BTreeSet<u64>,
    /// Sizes of blocks that are live at the end, by their entry.
    sizes: HashMap<usize, u64>,
    /// Blocks or segments were live before the trace.
    pub cut: bool,
    /// Entries that do not fit.
    pub odd: u64,
    next: usize,
    now: u64,
    segments: HashMap<u64, Live>,
    blocks: HashMap<u64, Live>,
    pieces: Pieces<u64>,
    requested: HashSet<u64>,
}

impl Track {
    /// Goes through the trace once, to find what was live before it.
    pub fn before(snapshot: &Snapshot, device: u32) -> Result<Track> {
        let mut t = Track {
            device,
            first: None,
            early_segments: Vec::new(),
            early_pieces: Vec::new(),
            early_blocks: Vec::new(),
            cuts: BTreeSet::new(),
            sizes: HashMap::new(),
            cut: false,
            odd: 0,
            next: 0,
            now: 0,
            segments: HashMap::new(),
            blocks: HashMap::new(),
            pieces: Pieces::default(),
            requested: HashSet::new(),
        };
        let (mut blocks, mut segments, mut pending) = (HashMap::new(), HashSet::new(), HashSet::new());
        let mut mapped: Pieces<()> = Pieces::default();
        for i in 0..snapshot.entries(device) {
            let e = snapshot.entry(device, i)?;
            if e.time > 0 {
                t.first = Some(t.first.map_or(e.time, |f| f.min(e.time)));
            }
            let early = Early { address: e.address, requested: e.size, size: 0, stream: e.stream, frames: e.frames };
            match e.action {
                Action::Alloc => drop(blocks.insert(e.address, i)),
                Action::FreeRequested => {
                    pending.insert(e.address);
                    if blocks.remove(&e.address).is_none() {
                        t.early_blocks.push(Early { size: t.rounded(snapshot, &e), ..early });
                    }
                }
                Action::FreeCompleted if pending.remove(&e.address) => {}
                Action::FreeCompleted => {
                    if blocks.remove(&e.address).is_none() {
                        t.early_blocks.push(Early { size: t.rounded(snapshot, &e), ..early });
                    }
                }
                Action::SegmentAlloc => drop(segments.insert(e.address)),
                Action::SegmentFree if !segments.remove(&e.address) => {
                    t.early_segments.push(Early { size: e.size, ..early });
                }
                Action::SegmentMap => {
                    for (from, to) in mapped.gaps(e.address, e.address + e.size) {
                        mapped.add(from, to, ());
                    }
                }
                Action::SegmentUnmap => {
                    let (from, to) = (e.address, e.address + e.size);
                    t.cuts.extend([from, to]);
                    t.early_pieces.extend(mapped.gaps(from, to));
                    mapped.take(from, to);
                }
                Action::SegmentFree | Action::Oom | Action::Other => {}
            }
        }
        for segment in snapshot.segments(device) {
            let (from, to) = (segment.address, segment.address + segment.size);
            if segment.expandable {
                t.early_pieces.extend(mapped.gaps(from, to));
            } else if !segments.contains(&from) && segment.size > 0 {
                t.early_segments.push(Early {
                    address: from,
                    requested: segment.size,
                    size: segment.size,
                    stream: segment.stream,
                    frames: segment.frames,
                });
            }
            for b in snapshot.blocks(segment)? {
                match blocks.get(&b.address) {
                    Some(i) => drop(t.sizes.insert(*i, b.size)),
                    None => t.early_blocks.push(Early {
                        address: b.address,
                        requested: b.requested,
                        size: b.size,
                        stream: segment.stream,
                        frames: b.frames,
                    }),
                }
            }
        }
        t.cut = !(t.early_segments.is_empty() && t.early_pieces.is_empty() && t.early_blocks.is_empty());
        Ok(t)
    }

    /// Bytes of the block that served a request, as PyTorch rounds; 0: not known, or the same.
    fn rounded(&self, snapshot: &Snapshot, e: &Entry) -> u64 {
        match snapshot.ours {
            true => e.block.max(e.size),
            false if snapshot.plain => e.size.max(1).next_multiple_of(512),
            false => e.size,
        }
    }

    fn context(&self) -> u16 {
        self.device as u16 + 1
    }

    fn thread(&self) -> u32 {
        self.device + 1
    }

    /// Tells what was live before the trace.
    pub fn live(&mut self, snapshot: &Snapshot, names: &mut Names, to: &mut Lines, done: &mut Done) -> Result<()> {
        for s in std::mem::take(&mut self.early_segments) {
            let stack = names.stack(snapshot, s.frames, to)?;
            let event = self.segment(&s, stack, to);
            if self.segments.insert(s.address, Live { id: event.id, bytes: s.size, stack }).is_none() {
                to.live(self.thread(), event)?;
                done.live += 1;
            }
        }
        let mut most = (snapshot.entries(self.device) * 8 + (1 << 20)) as u64;
        for (from, end) in std::mem::take(&mut self.early_pieces) {
            for (from, end) in self.pieces.gaps(from, end).into_iter().flat_map(|(a, b)| cut(a, b, &self.cuts)) {
                most = most.checked_sub(1).ok_or_else(|| anyhow!("its expandable segments do not fit together"))?;
                let [alloc, map] = self.piece(from, end, 0, to);
                self.pieces.add(from, end, alloc.id);
                to.live(self.thread(), alloc)?;
                to.live(self.thread(), map)?;
                done.live += 1;
            }
        }
        for b in std::mem::take(&mut self.early_blocks) {
            let stack = names.stack(snapshot, b.frames, to)?;
            let event = self.tensor(&b, stack, to);
            if self.blocks.contains_key(&b.address) {
                self.odd += 1;
                continue;
            }
            self.blocks.insert(b.address, Live { id: event.id, bytes: b.size.max(b.requested), stack });
            to.live(self.thread(), event)?;
            done.live += 1;
        }
        Ok(())
    }

    fn segment(&self, s: &Early, stack: u32, to: &mut Lines) -> Event {
        Event {
            kind: EventKind::Alloc,
            memory: Memory::Device,
            api: Api::CudaMalloc,
            how: Source::Hoarder as u8,
            id: to.id(),
            address: s.address,
            bytes: s.size,
            context: self.context(),
            caller: ALLOCATOR,
            stack,
            extra: [0, s.stream, 0],
            ..Event::default()
        }
    }

    fn tensor(&self, b: &Early, stack: u32, to: &mut Lines) -> Event {
        Event {
            kind: EventKind::Alloc,
            memory: Memory::Tensor,
            id: to.id(),
            address: b.address,
            bytes: b.requested,
            block: if b.size == b.requested { 0 } else { b.size },
            context: self.context(),
            stack,
            extra: [0, b.stream, 0],
            ..Event::default()
        }
    }

    /// Physical memory, and its mapping.
    fn piece(&self, from: u64, end: u64, stack: u32, to: &mut Lines) -> [Event; 2] {
        let base = Event { context: self.context(), caller: ALLOCATOR, bytes: end - from, stack, ..Event::default() };
        let id = to.id();
        let (kind, memory) = (EventKind::Alloc, Memory::Vmm);
        let alloc = Event { kind, memory, api: Api::CuMemCreate, how: Source::Hoarder as u8, id, ..base };
        [alloc, Event { kind: EventKind::Map, memory, api: Api::CuMemMap, id, address: from, ..base }]
    }

    /// The time of the next entry, in nanoseconds since the start.
    pub fn peek(&mut self, snapshot: &Snapshot, start: u64) -> Result<Option<u64>> {
        if self.next >= snapshot.entries(self.device) {
            return Ok(None);
        }
        let e = snapshot.entry(self.device, self.next)?;
        // Without times: a nanosecond an entry.
        let time = if e.time == 0 { self.now + 1 } else { e.time.saturating_sub(start).saturating_mul(1000) };
        Ok(Some(time.max(self.now).min(1 << 52)))
    }

    /// The next entry.
    pub fn step(&mut self, snapshot: &Snapshot, time: u64, names: &mut Names, to: &mut Lines) -> Result<()> {
        let i = self.next;
        let e = snapshot.entry(self.device, i)?;
        self.next += 1;
        self.now = time;
        let stack = names.stack(snapshot, e.frames, to)?;
        match e.action {
            Action::Alloc => {
                self.requested.remove(&e.address);
                // Two at one place cannot be: the first one's free is missing.
                if let Some(old) = self.blocks.remove(&e.address) {
                    self.odd += 1;
                    self.free(old.id, time, 0, to)?;
                }
                let size = self.sizes.get(&i).copied().unwrap_or_else(|| self.rounded(snapshot, &e));
                let b = Early { address: e.address, requested: e.size, size, stream: e.stream, frames: None };
                let event = self.tensor(&b, stack, to);
                self.blocks.insert(e.address, Live { id: event.id, bytes: size.max(e.size), stack });
                to.event(self.thread(), Event { time, ..event })?;
            }
            Action::FreeRequested | Action::FreeCompleted => {
                let completed = e.action == Action::FreeCompleted;
                if completed && self.requested.remove(&e.address) {
                    return Ok(());
                }
                if !completed {
                    self.requested.insert(e.address);
                }
                match self.blocks.remove(&e.address) {
                    Some(old) => self.free(old.id, time, stack, to)?,
                    None => self.odd += 1,
                }
            }
            Action::SegmentAlloc => {
                if let Some(old) = self.segments.remove(&e.address) {
                    self.odd += 1;
                    self.free(old.id, time, 0, to)?;
                }
                let s = Early { address: e.address, requested: e.size, size: e.size, stream: e.stream, frames: None };
                let event = self.segment(&s, stack, to);
                self.segments.insert(e.address, Live { id: event.id, bytes: e.size, stack });
                to.event(self.thread(), Event { time, ..event })?;
            }
            Action::SegmentFree => match self.segments.remove(&e.address) {
                Some(old) => self.free(old.id, time, stack, to)?,
                None => self.odd += 1,
            },
            Action::SegmentMap => self.map(&e, time, stack, to)?,
            Action::SegmentUnmap => {
                let kind = EventKind::Unmap;
                let (address, bytes) = (e.address, e.size);
                let unmap = Event {
                    kind,
                    memory: Memory::Vmm,
                    time,
                    address,
                    bytes,
                    context: self.context(),
                    ..Event::default()
                };
                to.event(self.thread(), unmap)?;
                for (_, _, id) in self.pieces.take(e.address, e.address + e.size) {
                    self.free(id, time, stack, to)?;
                }
            }
            Action::Oom => self.oom(&e, time, stack, to)?,
            Action::Other => {
                let said = e.said.map_or("", |s| snapshot.tree.text(s));
                if !said.is_empty() {
                    mark(said, self.thread(), time, to)?;
                }
            }
        }
        Ok(())
    }

    fn free(&self, id: u64, time: u64, stack: u32, to: &mut Lines) -> Result<()> {
        to.event(self.thread(), Event { kind: EventKind::Free, time, id, stack, ..Event::default() })
    }

    fn map(&mut self, e: &Entry, time: u64, stack: u32, to: &mut Lines) -> Result<()> {
        let gaps = self.pieces.gaps(e.address, e.address + e.size);
        if gaps != [(e.address, e.address + e.size)] {
            self.odd += 1;
        }
        // Each unmapping cuts at two places: whole traces have no more.
        let mut most = (self.cuts.len() + 1000).min(1 << 16);
        for (from, end) in gaps.into_iter().flat_map(|(a, b)| cut(a, b, &self.cuts)) {
            most = most.checked_sub(1).ok_or_else(|| anyhow!("its expandable segments do not fit together"))?;
            let [alloc, map] = self.piece(from, end, stack, to);
            self.pieces.add(from, end, alloc.id);
            to.event(self.thread(), Event { time, ..alloc })?;
            to.event(self.thread(), Event { time, ..map })?;
        }
        Ok(())
    }

    fn oom(&self, e: &Entry, time: u64, stack: u32, to: &mut Lines) -> Result<()> {
        let (kind, memory, context) = (EventKind::AllocFailed, Memory::Tensor, self.context());
        to.event(
            self.thread(),
            Event { kind, memory, time, bytes: e.size, code: 2, context, stack, ..Event::default() },
        )?;
        let active = self.blocks.values().map(|b| b.bytes).fold(0, u64::saturating_add);
        let mapped = self.pieces.iter().map(|(from, end, _)| end - from);
        let reserved = self.segments.values().map(|s| s.bytes).chain(mapped).fold(0, u64::saturating_add);
        let mut by_stack: HashMap<u32, (u64, u64)> = HashMap::new();
        for b in self.blocks.values() {
            let (bytes, n) = by_stack.entry(b.stack).or_default();
            *bytes = bytes.saturating_add(b.bytes);
            *n += 1;
        }
        let mut holders: Vec<Holder> = by_stack
            .into_iter()
            .map(|(stack, (bytes, count))| Holder { stack, bytes, count, ..Holder::default() })
            .collect();
        holders.sort_by_key(|h| (std::cmp::Reverse(h.bytes), h.stack));
        holders.truncate(HOLDERS);
        to.oom(Oom {
            time,
            thread: self.thread(),
            device: self.device,
            what: "PyTorch".into(),
            asked: e.size,
            stack,
            free: e.address,
            pytorch_active: active,
            pytorch_inactive: reserved.saturating_sub(active),
            holders,
            ..Oom::default()
        })
    }
}
