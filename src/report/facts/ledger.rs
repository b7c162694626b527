//! Who holds what: live allocations one by one, and summed up by who made them, where, in which thread and region. Tensors
//! count in place of the segments that PyTorch cuts them from: *in use* is what somebody may use.
//!
//! What each holder held at the peak is known after one reading: a sum is copied when it changes for the first time after
//! a new peak.

use std::collections::{BTreeMap, HashMap, HashSet};

use vramscope_core::api::Api;
use vramscope_core::event::{Event, Memory, Source};
use vramscope_core::spread::Spread;
use vramscope_core::trace::Module;

use crate::report::state::State;
use crate::report::tally::{Layer, Tally, Totals};

/// An allocation that lives.
#[derive(Clone, Copy, Debug)]
pub struct Alive {
    /// Whose it is.
    pub holder: u32,
    /// Where it was made.
    pub site: u32,
    /// Its context.
    pub context: u16,
    /// Where it lies.
    pub address: u64,
    /// Bytes of its block.
    pub bytes: u64,
    /// Bytes asked for.
    pub requested: u64,
    /// When it was made,
    pub time: u64,
    /// as which allocation of the history,
    pub ordinal: u64,
    /// and of its site.
    pub nth: u64,
}

/// Calls of the driver and the time they took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Calls {
    /// How many.
    pub count: u64,
    /// Nanoseconds.
    pub took: u64,
}

impl Calls {
    /// One more.
    pub fn add(&mut self, took: u64) {
        self.count += 1;
        self.took += took;
    }

    /// All of another sum too.
    pub fn merge(&mut self, other: Calls) {
        self.count += other.count;
        self.took += other.took;
    }
}

/// Allocations of one stack, caller, kind, thread, region and device.
#[derive(Clone, Debug)]
pub struct Holder {
    /// Number of the call stack, 0: none.
    pub stack: u32,
    /// Number of the calling module, 0: unknown.
    pub caller: u32,
    /// Number of the thread.
    pub thread: u32,
    /// Number of the region (see [`super::regions::Regions::path`]), 0: none.
    pub region: u32,
    /// Ordinal of the device.
    pub device: u32,
    /// Kind of memory.
    pub memory: Memory,
    /// Who served them; hit and miss are one, called hit.
    pub source: Source,
    /// The entry point of the first of them.
    pub api: Api,
    /// They are segments that PyTorch cuts tensors from.
    pub torch: bool,
    /// They are PyTorch's tensors: told by it, or each asked for by itself (its cudaMallocAsync backend, no cache).
    pub tensor: bool,
    /// Number of their site.
    pub site: u32,
    /// Live now.
    pub now: Tally,
    /// All there ever were.
    pub ever: Tally,
    /// Calls of the driver for them: to allocate and to free.
    pub driver: Calls,
    at_peak: Tally,
    epoch: u64,
}

impl Holder {
    /// The layer its memory is in.
    pub fn layer(&self) -> Layer {
        Layer::of(self.memory, matches!(self.source, Source::Hit | Source::Miss))
    }
}

/// What is in use at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// Device bytes that somebody may use.
    pub in_use: u64,
    /// Device bytes taken from the driver.
    pub reserved: u64,
    /// Bytes of PyTorch's segments, of these.
    pub torch: u64,
    /// Bytes of its tensors.
    pub tensors: u64,
    /// Bytes of blocks in use of vramscope's pool,
    pub pool: u64,
    /// and of all that the pool holds.
    pub pool_reserved: u64,
    /// Pinned and registered host memory.
    pub host: u64,
    /// Bytes the driver adds to fill its pages.
    pub rounding: u64,
    /// When.
    pub time: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key([u32; 6]);

/// The peaks of one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DevicePeak {
    /// Now.
    pub now: Use,
    /// When most was in use.
    pub in_use: Use,
    /// When most was reserved.
    pub reserved: Use,
}

/// The books.
#[derive(Debug, Default)]
pub struct Ledger {
    /// All holders.
    pub holders: Vec<Holder>,
    /// What lives, by id.
    pub alive: HashMap<u64, Alive, Spread>,
    /// When most was in use, with the layers then.
    pub peak: Use,
    /// The layers at the peak.
    pub peak_totals: Totals,
    /// When most was reserved.
    pub reserved_peak: Use,
    /// Each device.
    pub devices: BTreeMap<u32, DevicePeak>,
    by_key: HashMap<Key, u32, Spread>,
    torch_modules: HashSet<u32>,
    /// Bytes of PyTorch's segments, by device.
    torch: BTreeMap<u32, u64>,
    tensors_seen: bool,
    early: HashSet<u64>,
    epoch: u64,
}

impl Ledger {
    pub(super) fn module(&mut self, m: &Module) {
        if crate::symbols::file_name(&m.path).starts_with("libc10_cuda") {
            self.torch_modules.insert(m.module);
        }
    }

    /// Whether this is PyTorch's allocator.
    pub fn is_pytorch(&self, module: u32) -> bool {
        self.torch_modules.contains(&module)
    }

    /// Whether PyTorch told of its tensors.
    pub fn has_tensors(&self) -> bool {
        self.tensors_seen
    }

    /// What a holder held when most was in use.
    pub fn at_peak(&self, holder: &Holder) -> Tally {
        if holder.epoch == self.epoch { holder.at_peak } else { holder.now }
    }

    /// Whether a holder's memory counts as in use on the device.
    pub fn counts(&self, holder: &Holder) -> bool {
        match holder.layer() {
            Layer::Tensor => true,
            layer => layer.on_device() && !(holder.torch && self.tensors_seen),
        }
    }

    /// Whether an allocation is one that PyTorch cuts tensors from.
    pub(super) fn is_segment(&self, id: u64) -> bool {
        self.alive.get(&id).is_some_and(|a| self.holders[a.holder as usize].torch)
    }

    /// What is in use now, on all devices.
    pub fn usage(&self, state: &State) -> Use {
        self.use_of(&state.now, self.torch.values().sum())
    }

    fn use_of(&self, t: &Totals, torch: u64) -> Use {
        let active = t.active();
        let tensors = t.layer(Layer::Tensor).bytes;
        let in_use = if self.tensors_seen { active.saturating_sub(torch) + tensors } else { active };
        Use {
            in_use,
            reserved: t.reserved(),
            torch,
            tensors,
            pool: t.layer(Layer::Pool).bytes,
            pool_reserved: t.pool_reserved(),
            host: t.layer(Layer::Pinned).bytes + t.layer(Layer::Registered).bytes,
            rounding: t.rounding,
            time: 0,
        }
    }

    /// Finds the holder of a new allocation.
    pub(super) fn enter(&mut self, thread: u32, region: u32, e: &Event, state: &State, ordinal: u64) -> Alive {
        let source = Source::from_number(e.how).unwrap_or_default();
        let source = if source == Source::Miss { Source::Hit } else { source };
        let device = state.device(e.context);
        let kind = e.memory as u32 | (source as u32) << 8 | device << 16;
        let key = Key([e.stack, e.caller, kind, thread, region, 0]);
        let next = self.holders.len() as u32;
        let holder = *self.by_key.entry(key).or_insert(next);
        if holder == next {
            let segment = matches!(e.memory, Memory::Device | Memory::Vmm);
            let by_torch = self.torch_modules.contains(&e.caller);
            let torch = segment && (source == Source::Hoarder || by_torch);
            let itself = e.memory == Memory::Async || e.memory == Memory::Device && source == Source::Hit;
            self.holders.push(Holder {
                stack: e.stack,
                caller: e.caller,
                thread,
                region,
                device,
                memory: e.memory,
                source,
                api: e.api,
                torch: torch && source != Source::Hit,
                tensor: e.memory == Memory::Tensor || by_torch && itself,
                site: u32::MAX,
                now: Tally::default(),
                ever: Tally::default(),
                driver: Calls::default(),
                at_peak: Tally::default(),
                epoch: self.epoch,
            });
        }
        Alive {
            holder,
            site: u32::MAX,
            context: e.context,
            address: e.address,
            bytes: if e.block == 0 { e.bytes } else { e.block },
            requested: e.bytes,
            time: e.time,
            ordinal,
            nth: 0,
        }
    }

    /// Takes in a new allocation. The state has it already.
    pub(super) fn insert(&mut self, id: u64, alive: Alive, state: &State, time: u64) -> Use {
        self.holders[alive.holder as usize].ever.add(alive.bytes, alive.requested);
        if !self.early.is_empty() && self.early.remove(&id) {
            return self.usage(state);
        }
        self.live(id, alive, state, time)
    }

    /// It lives (again).
    pub(super) fn live(&mut self, id: u64, alive: Alive, state: &State, time: u64) -> Use {
        if let Some(old) = self.alive.insert(id, alive) {
            self.count(&old, Tally::take);
        }
        self.count(&alive, Tally::add);
        let h = &self.holders[alive.holder as usize];
        if h.memory == Memory::Tensor && !self.tensors_seen {
            // What was counted before was segments.
            self.tensors_seen = true;
            self.peak = Use::default();
        }
        let device = h.device;
        let now = Use { time, ..self.usage(state) };
        if now.in_use > self.peak.in_use {
            self.epoch += 1;
            self.peak = now;
            self.peak_totals = state.now;
        }
        if now.reserved > self.reserved_peak.reserved {
            self.reserved_peak = now;
        }
        let one = match state.devices.get(&device) {
            Some(totals) if state.devices.len() > 1 => {
                let torch = self.torch.get(&device).copied().unwrap_or(0);
                Use { time, ..self.use_of(totals, torch) }
            }
            _ => now,
        };
        let d = self.devices.entry(device).or_default();
        d.now = one;
        if one.in_use > d.in_use.in_use {
            d.in_use = one;
        }
        if one.reserved > d.reserved.reserved {
            d.reserved = one;
        }
        now
    }

    /// The pool took a segment: more is reserved.
    pub(super) fn segment(&mut self, state: &State, time: u64) {
        let now = Use { time, ..self.usage(state) };
        if now.reserved > self.reserved_peak.reserved {
            self.reserved_peak = now;
        }
    }

    fn count(&mut self, alive: &Alive, how: fn(&mut Tally, u64, u64)) {
        let epoch = self.epoch;
        let h = &mut self.holders[alive.holder as usize];
        if h.epoch != epoch {
            h.at_peak = h.now;
            h.epoch = epoch;
        }
        how(&mut h.now, alive.bytes, alive.requested);
        if h.torch {
            let mut sum = Tally { bytes: self.torch.get(&h.device).copied().unwrap_or(0), ..Tally::default() };
            how(&mut sum, alive.bytes, 0);
            self.torch.insert(h.device, sum.bytes);
        }
    }

    /// An allocation is freed.
    pub(super) fn leave(&mut self, id: u64, _: &State) -> Option<Alive> {
        match self.alive.remove(&id) {
            Some(alive) => {
                self.count(&alive, Tally::take);
                Some(alive)
            }
            None => {
                if id != 0 {
                    self.early.insert(id);
                }
                None
            }
        }
    }

    /// A block leaves the pool for good: from then on it is the driver's.
    pub(super) fn export(&mut self, e: &Event, state: &State) {
        let Some(mut alive) = self.alive.remove(&e.id) else { return };
        self.count(&alive, Tally::take);
        let h = self.holders[alive.holder as usize].clone();
        let (stack, caller, memory, api, context) = (h.stack, h.caller, h.memory, h.api, alive.context);
        let how = Source::Driver as u8;
        let like = Event { stack, caller, memory, api, context, how, ..*e };
        alive.holder = self.enter(h.thread, h.region, &like, state, alive.ordinal).holder;
        self.holders[alive.holder as usize].site = h.site;
        self.live(e.id, alive, state, e.time);
    }

    /// A context ends, and what lived in it; physical and imported memory is not a context's.
    pub(super) fn context_end(&mut self, context: u16) -> Vec<Alive> {
        let holders = &self.holders;
        let ends = |a: &Alive| {
            let memory = holders[a.holder as usize].memory;
            a.context == context && memory.dies_with_context()
        };
        let ids: Vec<u64> = self.alive.iter().filter(|(_, a)| ends(a)).map(|(id, _)| *id).collect();
        let gone: Vec<Alive> = ids.iter().filter_map(|id| self.alive.remove(id)).collect();
        for alive in &gone {
            self.count(alive, Tally::take);
        }
        gone
    }
}
