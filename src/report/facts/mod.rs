//! What one reading of a history gathers for the answers: who holds what ([`ledger`]), how each place that allocates goes
//! on ([`site`]), regions and marks ([`regions`]), holes in PyTorch's segments ([`holes`]), lifetimes and the driver's
//! time ([`churn`]). Nothing here names a function or writes a word.
//!
//! Memory is bounded by what is live, by stacks, and by the texts of regions; the cost is a few look-ups an event.

use std::collections::{HashMap, HashSet, VecDeque};

use vramscope_core::event::{Event, EventKind, Memory};
use vramscope_core::trace::Line;

use super::state::State;
use crate::diff::run::{MEETINGS, collective};
use crate::moment::Moment;

pub mod churn;
pub mod curve;
pub mod holes;
pub mod ledger;
pub mod regions;
pub mod said;
pub mod site;
pub mod taken;

use churn::Churn;
use holes::{Holes, Maps};
use ledger::{Alive, Ledger, Use};
use regions::Regions;
use said::Said;
use site::Sites;
use taken::Taken;

/// A higher peak of reserved memory is looked at again from this much growth on: one part in so many.
const GROWN: u64 = 20;

/// A request that failed, and what its device said then.
#[derive(Clone, Copy, Debug)]
struct Failure {
    time: u64,
    device: u32,
    free: u64,
    total: u64,
}

/// What the answers are made of.
#[derive(Debug, Default)]
pub struct Facts {
    /// Live allocations and who holds them.
    pub ledger: Ledger,
    /// Places that allocate.
    pub sites: Sites,
    /// Regions and marks.
    pub regions: Regions,
    /// Lifetimes and the driver's time.
    pub churn: Churn,
    /// The moments that were asked for, those that have been reached.
    pub moments: Vec<Taken>,
    /// PyTorch's segments when most was reserved (or nearly), and where requests failed.
    pub holes: Vec<Holes>,
    /// Segments that PyTorch took although it had as much free in pieces: how many, and their bytes.
    pub in_pieces: (u64, u64),
    /// When libraries for collectives took their first memory of a device: not before all ranks have met.
    pub met: Vec<u64>,
    /// What devices said near the peak.
    pub said: Said,
    collectives: Vec<u32>,
    wanted: Vec<Moment>,
    failures: VecDeque<Failure>,
    maps: Maps,
    backward: HashSet<u32>,
    pending: Option<(u32, u64, u64)>,
    looked_at: u64,
    ordinal: u64,
    last_freed: HashMap<u32, Alive>,
}

impl Facts {
    /// Facts that also hold what was live at these moments.
    pub fn wanting(wanted: &[Moment]) -> Facts {
        Facts { wanted: wanted.to_vec(), ..Facts::default() }
    }

    /// Takes in a line that is no event.
    pub fn line(&mut self, line: &Line) {
        match line {
            Line::Module(m) => {
                self.ledger.module(m);
                if collective(crate::symbols::file_name(&m.path)) {
                    self.collectives.push(m.module);
                }
            }
            // The thread in which PyTorch runs backward passes; the name of a thread is cut at 15 bytes.
            Line::Thread(t) if t.name.starts_with("pt_autograd") => drop(self.backward.insert(t.thread)),
            Line::Text(t) => self.regions.text(t.text, &t.value),
            Line::Oom(oom) => {
                self.failures.push_back(Failure {
                    time: oom.time,
                    device: oom.device,
                    free: oom.free,
                    total: oom.total,
                });
            }
            _ => {}
        }
    }

    /// Takes over what was live where a later part of a history begins.
    pub fn was_live(&mut self, thread: u32, e: &Event, state: &State) {
        match e.kind {
            EventKind::Alloc => {
                let alive = self.ledger.enter(thread, 0, e, state, 0);
                self.ledger.insert(e.id, alive, state, e.time);
            }
            EventKind::Context | EventKind::Map => self.play(thread, e, state),
            _ => {}
        }
    }

    /// Looks at an event, after `state` has.
    pub fn play(&mut self, thread: u32, e: &Event, state: &State) {
        match e.kind {
            EventKind::Alloc => self.alloc(thread, e, state),
            EventKind::Free => self.free(thread, e, state),
            EventKind::FreeFailed => {
                if let Some(alive) = self.last_freed.remove(&thread).filter(|_| e.id != 0) {
                    self.ledger.live(e.id, alive, state, e.time);
                    self.sites.came_back(&alive);
                }
            }
            EventKind::ContextEnd => {
                for alive in self.ledger.context_end(e.context) {
                    self.sites.gone(&alive, 0, false, self.ordinal);
                }
            }
            EventKind::SegmentAlloc => self.ledger.segment(state, e.time),
            EventKind::Export => self.ledger.export(e, state),
            // Other libraries map memory too.
            EventKind::Map if self.ledger.is_segment(e.id) => self.maps.map(e),
            EventKind::Unmap => self.maps.unmap(e),
            EventKind::Sample => {
                let device = state.device(e.context);
                let sample = state.sampled(device, e.time, e.bytes, e.block);
                self.said.sample(device, sample, self.ledger.peak.time);
            }
            EventKind::RegionBegin => self.regions.begin(thread, e, self.ordinal),
            EventKind::RegionEnd => self.regions.end(thread, e),
            EventKind::Mark => {
                let name = self.regions.mark(thread, e, self.ordinal, self.ledger.usage(state).in_use);
                self.moment_of_mark(e.time, name, state);
            }
            _ => {}
        }
    }

    fn alloc(&mut self, thread: u32, e: &Event, state: &State) {
        self.ordinal += 1;
        if !self.collectives.is_empty() && self.met.len() < MEETINGS && e.memory.on_device() {
            let met = self.collectives.contains(&e.caller).then_some(e.time);
            self.met.extend(met);
        }
        let mut alive = self.ledger.enter(thread, self.regions.current(thread), e, state, self.ordinal);
        let holder = &mut self.ledger.holders[alive.holder as usize];
        if holder.site == u32::MAX {
            holder.site = self.sites.of(holder, e);
        }
        alive.site = holder.site;
        let torch = holder.torch;
        alive.nth = self.sites.came(&alive, e, self.backward.contains(&thread));
        self.churn.alloc(e, &mut self.ledger.holders[alive.holder as usize]);
        let now = self.ledger.insert(e.id, alive, state, e.time);
        // Tensors count, and not the segments that they lie in.
        if !(torch && self.ledger.has_tensors()) {
            self.regions.allocated(thread, e, now.in_use);
        }
        if torch {
            // The state has this segment already, the piece that it was taken for not yet.
            let free = now.torch.saturating_sub(now.tensors).saturating_sub(alive.bytes);
            self.pending = Some((thread, free, alive.bytes));
        } else if e.memory == Memory::Tensor
            && let Some((by, free, bytes)) = self.pending.take()
            && by == thread
            && free >= e.bytes
        {
            self.in_pieces.0 += 1;
            self.in_pieces.1 += bytes;
        }
        let grown = now.torch > self.looked_at + self.looked_at / GROWN;
        if grown && e.memory == Memory::Tensor && now.reserved >= self.ledger.reserved_peak.reserved && now.torch > 0 {
            self.looked_at = now.torch;
            let holes = Holes::of(&self.ledger, &self.maps, e.time, false);
            match self.holes.first_mut() {
                Some(first) if !first.failure => *first = holes,
                _ => self.holes.insert(0, holes),
            }
        }
    }

    fn free(&mut self, thread: u32, e: &Event, state: &State) {
        let Some(alive) = self.ledger.leave(e.id, state) else { return };
        self.sites.gone(&alive, e.stack, self.backward.contains(&thread), self.ordinal);
        let holder = &mut self.ledger.holders[alive.holder as usize];
        let age = self.ordinal - alive.ordinal.min(self.ordinal);
        if self.churn.free(e, &alive, age, holder) {
            self.sites.at_once(&alive);
        }
        self.last_freed.insert(thread, alive);
    }

    /// Looks at moments that were asked for and lie before this time: before `state` has the event of that time.
    #[inline]
    pub fn reach(&mut self, time: u64, state: &State) {
        if self.wanted.is_empty() && self.failures.is_empty() {
            return;
        }
        self.take(state, |moment| match moment {
            Moment::Time(at) if *at < time => Some(*at),
            _ => None,
        });
        while let Some(failure) = self.failures.front().copied().filter(|f| f.time < time) {
            self.failures.pop_front();
            // The device was asked then, too.
            if failure.total > 0 {
                let sample = state.sampled(failure.device, failure.time, failure.free, failure.total);
                self.said.sample(failure.device, sample, self.ledger.peak.time);
            }
            // A program that tries sizes fails often; the first say enough.
            if self.holes.len() < 5 {
                self.holes.push(Holes::of(&self.ledger, &self.maps, time, true));
            }
        }
    }

    fn moment_of_mark(&mut self, time: u64, name: Option<(String, u64)>, state: &State) {
        let Some((name, nth)) = name else { return };
        self.take(state, |moment| moment.is_mark(&name, nth).then_some(time));
    }

    /// Takes those of the moments that are asked for of which `time` says that they have come.
    fn take(&mut self, state: &State, time: impl Fn(&Moment) -> Option<u64>) {
        if !self.wanted.iter().any(|moment| time(moment).is_some()) {
            return;
        }
        for moment in std::mem::take(&mut self.wanted) {
            match time(&moment) {
                Some(at) => self.moments.push(Taken::of(moment, at, &self.ledger, state)),
                None => self.wanted.push(moment),
            }
        }
    }

    /// The history ends.
    pub fn finish(&mut self, state: &State) {
        self.reach(u64::MAX, state);
        self.regions.finish();
        for alive in self.ledger.alive.values() {
            self.sites.still(alive);
        }
    }

    /// Allocations seen.
    pub fn allocations(&self) -> u64 {
        self.ordinal
    }

    /// What is in use at the end.
    pub fn end(&self, state: &State) -> Use {
        self.ledger.usage(state)
    }
}
