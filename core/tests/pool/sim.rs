//! A small device: 2 MiB pages, lowest address first (so addresses come back at once), and a clock that tells whether a
//! block is given out before the work that used it was fenced.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering::SeqCst};
use vramscope_core::pool::{ContextId, Fence, How, Segment, Served, Upstream};

const PAGE: u64 = 2 << 20;
const BASE: u64 = 0x7f00_0000_0000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    OutOfMemory,
    InvalidValue,
    Broken,
}

#[derive(Default)]
struct Memory {
    capacity: u64,
    /// Pages: where a run of them begins → how many.
    runs: BTreeMap<u64, u64>,
    pages: u64,
    /// Pages shared by small allocations → steps in use there.
    shared: BTreeMap<u64, u64>,
    /// Base → (bytes, context).
    live: BTreeMap<u64, (u64, u16)>,
}

impl Memory {
    fn take_pages(&mut self, n: u64) -> Option<u64> {
        if (self.pages + n) * PAGE > self.capacity {
            return None;
        }
        let mut at = BASE;
        for (&start, &len) in &self.runs {
            if start - at >= n * PAGE {
                break;
            }
            at = start + len * PAGE;
        }
        self.pages += n;
        self.runs.insert(at, n);
        Some(at)
    }

    fn give_pages(&mut self, at: u64) {
        self.pages -= self.runs.remove(&at).expect("a run of pages");
    }

    fn alloc(&mut self, bytes: u64, context: u16) -> Option<u64> {
        let small = bytes <= 1 << 20;
        let at = if small { self.small(bytes)? } else { self.take_pages(bytes.div_ceil(PAGE))? };
        if let Some((&a, &(len, _))) = self.live.range(..=at).next_back() {
            assert!(a + len <= at, "the device gave out {at:#x} twice");
        }
        self.live.insert(at, (bytes, context));
        Some(at)
    }

    fn small(&mut self, bytes: u64) -> Option<u64> {
        for &page in self.shared.keys() {
            let mut at = page;
            for (&a, &(len, _)) in self.live.range(page..page + PAGE) {
                if a - at >= bytes {
                    break;
                }
                at = (a + len).next_multiple_of(512);
            }
            if at + bytes <= page + PAGE {
                *self.shared.get_mut(&page)? += 1;
                return Some(at);
            }
        }
        let page = self.take_pages(1)?;
        self.shared.insert(page, 1);
        Some(page)
    }

    fn free(&mut self, at: u64) -> bool {
        let Some((bytes, _)) = self.live.remove(&at) else { return false };
        if bytes > 1 << 20 {
            self.give_pages(at);
            return true;
        }
        let page = at / PAGE * PAGE;
        let n = self.shared.get_mut(&page).expect("a shared page");
        *n -= 1;
        if *n == 0 {
            self.shared.remove(&page);
            self.give_pages(page);
        }
        true
    }
}

/// What happens elsewhere while a call is under way.
pub type Hook = Option<Box<dyn Fn(&Sim) + Send + Sync>>;

/// The device and its driver.
pub struct Sim {
    memory: Mutex<Memory>,
    ids: AtomicU64,
    /// Work submitted, and how much of it was put before all later work.
    submitted: AtomicU64,
    fenced: AtomicU64,
    /// The work that may still use a block that was freed.
    used_by: Mutex<HashMap<u64, u64>>,
    pub fences: AtomicU64,
    /// What a fence answers: an index into NotNeeded, Device, Host, Refused.
    pub fence: AtomicU64,
    pub max_cached: AtomicU64,
    /// So many calls fail without reason.
    pub break_allocs: AtomicI32,
    pub break_frees: AtomicI32,
    pub calls: Mutex<Vec<Call>>,
    pub log: bool,
    pub on_alloc: Hook,
    pub on_free: Hook,
    pub on_fence: Hook,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Alloc(u64, bool),
    Free(u64),
}

impl Sim {
    pub fn new(capacity: u64) -> Sim {
        Sim {
            memory: Mutex::new(Memory { capacity, ..Memory::default() }),
            ids: AtomicU64::new(1 << 40),
            submitted: AtomicU64::new(0),
            fenced: AtomicU64::new(0),
            used_by: Mutex::default(),
            fences: AtomicU64::new(0),
            fence: AtomicU64::new(1),
            max_cached: AtomicU64::new(u64::MAX),
            break_allocs: AtomicI32::new(0),
            break_frees: AtomicI32::new(0),
            calls: Mutex::default(),
            log: false,
            on_alloc: None,
            on_free: None,
            on_fence: None,
        }
    }

    fn memory(&self) -> std::sync::MutexGuard<'_, Memory> {
        self.memory.lock().expect("no panic under this lock")
    }

    /// The program is about to free a block that work submitted now may use.
    pub fn used(&self, address: u64) {
        let now = self.submitted.fetch_add(1, SeqCst) + 1;
        self.used_by.lock().expect("unpoisoned").insert(address, now);
    }

    /// A block was handed out: whoever used it before must be behind a fence.
    pub fn check_handed_out(&self, s: &Served) {
        let used_by = self.used_by.lock().expect("unpoisoned").remove(&s.address);
        if matches!(s.how, How::HitExact | How::HitNear) {
            let by = used_by.expect("a cached block was freed before");
            assert!(self.fenced.load(SeqCst) >= by, "{:#x} handed out before a fence", s.address);
        }
    }

    /// The driver's free without the pool's knowing.
    pub fn behind_its_back(&self, address: u64) -> bool {
        self.memory().free(address)
    }

    /// A raw call, to see what the driver would say.
    pub fn would_fit(&self, bytes: u64) -> bool {
        let mut m = self.memory();
        m.alloc(bytes, 0).inspect(|&a| assert!(m.free(a))).is_some()
    }

    pub fn live(&self) -> usize {
        self.memory().live.len()
    }

    pub fn bytes_of(&self, address: u64) -> Option<u64> {
        self.memory().live.get(&address).map(|b| b.0)
    }

    pub fn destroy_context(&self, c: ContextId) {
        let mut m = self.memory();
        let gone: Vec<u64> = m.live.iter().filter(|(_, (_, ctx))| *ctx == c.0).map(|(a, _)| *a).collect();
        gone.iter().for_each(|a| assert!(m.free(*a)));
    }

    pub fn take_calls(&self) -> Vec<Call> {
        std::mem::take(&mut *self.calls.lock().expect("unpoisoned"))
    }
}

fn breaks(n: &AtomicI32) -> bool {
    n.fetch_update(SeqCst, SeqCst, |n| (n > 0).then(|| n - 1)).is_ok()
}

impl Upstream for Sim {
    type Error = Error;

    fn alloc(&self, context: ContextId, bytes: u64, _segment: u64) -> Result<u64, Error> {
        if let Some(f) = &self.on_alloc {
            f(self);
        }
        if bytes == 0 {
            return Err(Error::InvalidValue);
        }
        if breaks(&self.break_allocs) {
            return Err(Error::Broken);
        }
        let got = self.memory().alloc(bytes, context.0);
        if self.log {
            self.calls.lock().expect("unpoisoned").push(Call::Alloc(bytes, got.is_some()));
        }
        got.ok_or(Error::OutOfMemory)
    }

    fn free(&self, s: &Segment) -> Result<(), Error> {
        if let Some(f) = &self.on_free {
            f(self);
        }
        if self.log {
            self.calls.lock().expect("unpoisoned").push(Call::Free(s.bytes));
        }
        if breaks(&self.break_frees) {
            return Err(Error::Broken);
        }
        let mut m = self.memory();
        if let Some(b) = m.live.get(&s.address) {
            assert_eq!(*b, (s.bytes, s.context.0), "the pool and the device know the same block");
        }
        if m.free(s.address) { Ok(()) } else { Err(Error::InvalidValue) }
    }

    fn out_of_memory(e: Error) -> bool {
        e == Error::OutOfMemory
    }

    fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, SeqCst)
    }

    fn fence(&self, _context: ContextId) -> Fence {
        let f = [Fence::NotNeeded, Fence::Device, Fence::Host, Fence::Refused][self.fence.load(SeqCst) as usize];
        if let Some(f) = &self.on_fence {
            f(self);
        }
        if f != Fence::Refused {
            self.fences.fetch_add(1, SeqCst);
            self.fenced.fetch_max(self.submitted.load(SeqCst), SeqCst);
        }
        f
    }

    fn shed(&self, _context: ContextId, inactive: u64, incoming: u64) -> u64 {
        (inactive + incoming).saturating_sub(self.max_cached.load(SeqCst))
    }

    fn same_device(&self, _a: ContextId, _b: ContextId) -> bool {
        true
    }

    fn lane(&self) -> usize {
        thread_local!(static LANE: u64 = { static N: AtomicU64 = AtomicU64::new(0); N.fetch_add(1, SeqCst) });
        LANE.with(|l| *l as usize)
    }
}
