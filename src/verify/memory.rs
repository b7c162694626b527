//! Allocations and frees go in pairs, no memory is given out twice at a time, and what lies in something lies in something
//! live: blocks in segments, tensors in the driver's memory.

use std::collections::{BTreeMap, HashMap, VecDeque};

use vramscope_core::event::{Event, EventKind, Memory, Source};
use vramscope_core::spread::Spread;

use super::findings::{At, Findings, Kind};
use super::numbers::Numbers;
use super::space::Space;

/// Frees remembered whose allocation may come later.
const EARLY: usize = 1 << 20;

/// Frees of a thread that may still fail.
const FREED: usize = 64;

/// What an allocation is to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A segment of the pool.
    Segment,
    /// A block in one.
    Block,
    /// A tensor.
    Tensor,
    /// The driver's memory with addresses of its own.
    Driver,
    /// All else: handles, host memory, other processes' memory.
    Other,
}

/// Something live.
#[derive(Clone, Copy, Debug)]
pub struct Live {
    /// Its id.
    pub id: u64,
    /// What it is.
    pub role: Role,
    /// Kind of memory.
    pub memory: Memory,
    /// Number of its context.
    pub context: u16,
    /// Where it is.
    pub address: u64,
    /// Bytes that it takes.
    pub bytes: u64,
}

impl Live {
    fn of(e: &Event) -> Live {
        let pooled = e.kind == EventKind::Alloc && [Source::Hit, Source::Miss].map(|s| s as u8).contains(&e.how);
        let role = match e.memory {
            _ if e.kind == EventKind::SegmentAlloc => Role::Segment,
            _ if pooled => Role::Block,
            Memory::Tensor => Role::Tensor,
            Memory::Device | Memory::Pitch | Memory::Managed | Memory::Async => Role::Driver,
            _ => Role::Other,
        };
        let bytes = e.bytes.max(e.block);
        Live { id: e.id, role, memory: e.memory, context: e.context, address: e.address, bytes }
    }
}

/// Bytes of the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pool {
    /// Of its blocks in use,
    pub active: u64,
    /// and of its segments.
    pub reserved: u64,
}

/// What is live as a history goes by.
#[derive(Debug, Default)]
pub struct Books {
    given: Numbers,
    /// Segments that left with an exported block: that they are given back may be told, or not.
    left: Numbers,
    live: HashMap<u64, Live, Spread>,
    /// Frees without an allocation so far.
    early: HashMap<u64, At>,
    /// Of each thread: a block and its segment, or all that an unmapping frees, may fail together.
    last_freed: HashMap<u32, VecDeque<Live>, Spread>,
    driver: Space,
    blocks: Space,
    tensors: Space,
    devices: HashMap<u16, u64>,
    /// The pool now, by device.
    pub pool: BTreeMap<u64, Pool>,
    /// What was taken from each device at least: without the driver's rounding of small ones, and without managed memory,
    /// which is there only when it is used.
    pub charged: BTreeMap<u64, u64>,
    /// Allocations of the driver, by device.
    pub allocations: BTreeMap<u64, u64>,
    grain: u64,
    /// Frees of memory that was never recorded, which have no id.
    pub unnumbered: u64,
    /// Free and allocated wrongly by the program: told by the history, no fault of it.
    pub bad_frees: u64,
    /// A line of the pool changed something: by how many bytes.
    pub changed: u64,
}

impl Books {
    /// Nothing is live yet, on a driver that charges in this many bytes.
    pub fn new(grain: u64) -> Books {
        Books { grain: if grain == 0 { 2 << 20 } else { grain }, ..Books::default() }
    }

    /// Device of a context.
    pub fn device(&self, context: u16) -> u64 {
        self.devices.get(&context).copied().unwrap_or(0)
    }

    /// How much is live.
    pub fn live(&self) -> usize {
        self.live.len()
    }

    /// Plays the next event.
    pub fn event(&mut self, thread: u32, e: &Event, at: At, findings: &mut Findings) {
        self.changed = 0;
        match e.kind {
            EventKind::Alloc | EventKind::SegmentAlloc => self.alloc(e, at, findings),
            EventKind::Free | EventKind::SegmentFree => self.free(thread, e.id, at, findings),
            EventKind::FreeFailed if e.id != 0 => {
                let freed = self.last_freed.entry(thread).or_default();
                match freed.iter().rposition(|freed| freed.id == e.id).and_then(|i| freed.remove(i)) {
                    Some(freed) => self.enter(&freed, at, findings),
                    None => findings.add(Kind::FreeFailedAlone, at, || format!("id {}", e.id)),
                }
            }
            EventKind::BadFree => self.bad_frees += 1,
            EventKind::Context => drop(self.devices.insert(e.context, e.extra[0])),
            EventKind::ContextEnd => self.context_end(e.context),
            EventKind::Export => self.export(e.id, at, findings),
            EventKind::Map => {
                if e.id != 0 && !self.live.contains_key(&e.id) {
                    findings.add(Kind::UseUnknown, at, || format!("a mapping of id {}", e.id));
                }
                self.driver.clear(e.address, e.bytes);
                self.driver.enter(e.address, e.bytes, e.id);
            }
            EventKind::Unmap => {
                if let Some(id) = self.tensors.first_in(e.address, e.bytes) {
                    findings
                        .add(Kind::TensorLeft, at, || format!("{:#x} is unmapped, tensor {id} lies there", e.address));
                }
                self.driver.clear(e.address, e.bytes);
            }
            _ => {}
        }
    }

    fn alloc(&mut self, e: &Event, at: At, findings: &mut Findings) {
        if e.id == 0 {
            return findings.add(Kind::NoId, at, || format!("{} bytes at {:#x}", e.bytes, e.address));
        }
        self.number(e.id, at, findings);
        if let Some(free) = self.early.remove(&e.id) {
            return findings.add(Kind::FreeEarly, free, || format!("id {}", e.id));
        }
        let live = Live::of(e);
        if live.role == Role::Block {
            let segment = self.live.get(&e.extra[0]).filter(|s| s.role == Role::Segment && s.context == e.context);
            // A stream-ordered block may span several segments side by side, and names none.
            let named = segment.is_some() || e.memory == Memory::Async && e.extra[0] == 0;
            if !named || !self.driver.covers(live.address, live.bytes) {
                findings.add(Kind::OutsideSegment, at, || format!("id {} in segment {}", e.id, e.extra[0]));
            }
        }
        self.enter(&live, at, findings);
    }

    /// A number is given out: never again.
    pub fn number(&mut self, id: u64, at: At, findings: &mut Findings) {
        if !self.given.insert(id) {
            findings.add(Kind::IdTwice, at, || format!("id {id}"));
        }
    }

    fn enter(&mut self, live: &Live, at: At, findings: &mut Findings) {
        // A number given twice was told of; what it was before is gone.
        if let Some(old) = self.live.insert(live.id, *live) {
            self.count(&old, false);
            self.leave_space(&old);
        }
        self.count(live, true);
        let Live { id, address, bytes, .. } = *live;
        let shared = match live.role {
            Role::Segment | Role::Driver => self.driver.enter(address, bytes, id),
            Role::Block => self.blocks.enter(address, bytes, id),
            Role::Tensor => {
                if bytes > 0 && !self.driver.covers(address, bytes) {
                    findings.add(Kind::TensorOutside, at, || format!("id {id}, {bytes} bytes at {address:#x}"));
                }
                self.tensors.enter(address, bytes, id)
            }
            Role::Other => None,
        };
        if let Some(other) = shared {
            findings.add(Kind::Overlap, at, || format!("id {id}, {bytes} bytes at {address:#x}, and id {other}"));
        }
    }

    fn free(&mut self, thread: u32, id: u64, at: At, findings: &mut Findings) {
        if id == 0 {
            self.unnumbered += 1;
            return;
        }
        let Some(live) = self.live.remove(&id) else {
            if self.left.contains(id) {
                // With its block.
            } else if self.given.contains(id) {
                findings.add(Kind::FreeTwice, at, || format!("id {id}"));
            } else if self.early.len() < EARLY {
                // A second one is told of as the first.
                if self.early.insert(id, at).is_some() {
                    findings.add(Kind::FreeTwice, at, || format!("id {id}"));
                }
            } else {
                findings.add(Kind::FreeUnknown, at, || format!("id {id}"));
            }
            return;
        };
        self.count(&live, false);
        self.leave_space(&live);
        let freed = self.last_freed.entry(thread).or_default();
        if freed.len() == FREED {
            freed.pop_front();
        }
        freed.push_back(live);
        match live.role {
            Role::Segment => {
                if let Some(block) = self.blocks.first_in(live.address, live.bytes) {
                    findings.add(Kind::SegmentInUse, at, || format!("segment {id}, block {block}"));
                }
            }
            Role::Driver => self.tensors_in(&live, at, findings),
            _ => {}
        }
    }

    fn tensors_in(&self, live: &Live, at: At, findings: &mut Findings) {
        if live.address != 0
            && let Some(tensor) = self.tensors.first_in(live.address, live.bytes)
        {
            findings.add(Kind::TensorLeft, at, || format!("id {}, tensor {tensor} lies in it", live.id));
        }
    }

    fn leave_space(&mut self, live: &Live) {
        let space = match live.role {
            Role::Segment | Role::Driver => &mut self.driver,
            Role::Block => &mut self.blocks,
            Role::Tensor => &mut self.tensors,
            Role::Other => return,
        };
        space.leave(live.address, live.id);
    }

    /// Counts something in or out.
    fn count(&mut self, live: &Live, more: bool) {
        let add = |sum: &mut u64, bytes: u64| {
            *sum = if more { sum.saturating_add(bytes) } else { sum.saturating_sub(bytes) };
        };
        let device = self.device(live.context);
        match live.role {
            Role::Segment => add(&mut self.pool.entry(device).or_default().reserved, live.bytes),
            Role::Block => add(&mut self.pool.entry(device).or_default().active, live.bytes),
            _ => {}
        }
        if matches!(live.role, Role::Segment | Role::Block) {
            self.changed = live.bytes;
        }
        let mine = live.role == Role::Segment
            || live.role == Role::Driver && live.memory != Memory::Managed
            || live.memory == Memory::Vmm;
        if mine {
            let whole = if live.bytes > 1 << 20 { live.bytes.checked_next_multiple_of(self.grain) } else { None };
            add(self.charged.entry(device).or_default(), whole.unwrap_or(live.bytes));
            add(self.allocations.entry(device).or_default(), 1);
        }
    }

    /// Physical, stream-ordered and imported memory is not a context's.
    fn context_end(&mut self, context: u16) {
        let ends = |live: &Live| live.context == context && live.memory.dies_with_context();
        let gone: Vec<Live> = self.live.values().filter(|live| ends(live)).copied().collect();
        for live in gone {
            self.live.remove(&live.id);
            self.count(&live, false);
            self.leave_space(&live);
        }
    }

    /// A block leaves the pool for good, with its segment: from now on it is the driver's.
    fn export(&mut self, id: u64, at: At, findings: &mut Findings) {
        let Some(block) = self.live.get(&id).copied() else {
            return findings.add(Kind::UseUnknown, at, || format!("an export of id {id}"));
        };
        if block.role != Role::Block {
            return;
        }
        self.leave_space(&block);
        self.count(&block, false);
        let there = self.driver.first_in(block.address, 1).and_then(|segment| self.live.remove(&segment));
        if let Some(segment) = there {
            self.leave_space(&segment);
            self.count(&segment, false);
            self.left.insert(segment.id);
        }
        self.live.remove(&id);
        self.enter(&Live { role: Role::Driver, ..block }, at, findings);
    }

    /// What was freed and never allocated.
    pub fn finish(&mut self, findings: &mut Findings) {
        let first = self.early.iter().min_by_key(|(_, at)| (at.part, at.line)).map(|(id, at)| (*id, *at));
        if let Some((id, at)) = first {
            findings.add_many(Kind::FreeUnknown, self.early.len() as u64, at, || format!("id {id}"));
        }
    }
}
