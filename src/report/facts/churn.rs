//! How long allocations live, and what calls of the driver took.

use vramscope_core::event::{Event, FreeHow, Memory};

use super::ledger::{Alive, Calls, Holder};

/// Lifetimes between a power of ten nanoseconds and the next: under 1 us, 10 us, … 1,000 s, and above.
pub const LIFETIMES: usize = 12;
/// Lifetimes between a power of two allocations and the next.
pub const AGES: usize = 48;

/// What came and went.
#[derive(Clone, Debug, Default)]
pub struct Churn {
    /// Freed allocations by lifetime: count and bytes.
    pub lifetimes: [(u64, u64); LIFETIMES],
    /// The same by allocations of the whole history that came meanwhile.
    pub ages: Vec<(u64, u64)>,
    /// Freed before the next allocation came: count and bytes.
    pub at_once: (u64, u64),
    /// Freed in all.
    pub freed: (u64, u64),
    /// The driver's calls that allocate, as far as they were timed.
    pub driver_allocs: Calls,
    /// The driver's own frees: each waits for all work of the context.
    pub driver_frees: Calls,
    /// Frees that the pool kept, for which the host waited.
    pub host_waits: Calls,
    /// Frees that the pool kept with a barrier on the device.
    pub device_barriers: Calls,
}

impl Churn {
    pub(super) fn alloc(&mut self, e: &Event, holder: &mut Holder) {
        if e.extra[2] > 0 {
            self.driver_allocs.add(e.extra[2]);
            holder.driver.add(e.extra[2]);
        }
    }

    /// Counts a free; says whether nothing was allocated since the allocation.
    pub(super) fn free(&mut self, e: &Event, a: &Alive, age: u64, holder: &mut Holder) -> bool {
        let took = e.extra[2];
        match e.how {
            h if h == FreeHow::CachedHost as u8 => self.host_waits.add(took),
            h if h == FreeHow::CachedDevice as u8 => self.device_barriers.add(took),
            h if h == FreeHow::Driver as u8 && took > 0 && holder.memory != Memory::Tensor => {
                self.driver_frees.add(took);
                holder.driver.add(took);
            }
            _ => {}
        }
        let life = e.time.saturating_sub(a.time);
        let decade = life.checked_ilog10().unwrap_or(0).saturating_sub(2) as usize;
        add(&mut self.lifetimes[decade.min(LIFETIMES - 1)], a.bytes);
        let class = (64 - age.leading_zeros()) as usize;
        if self.ages.len() <= class {
            self.ages.resize(AGES.max(class + 1), (0, 0));
        }
        add(&mut self.ages[class], a.bytes);
        add(&mut self.freed, a.bytes);
        if age == 0 {
            add(&mut self.at_once, a.bytes);
        }
        age == 0
    }

    /// Freed before so many allocations of the history came, about: count and bytes.
    pub fn within(&self, allocations: u64) -> (u64, u64) {
        let classes = (64 - allocations.leading_zeros()) as usize;
        self.ages.iter().take(classes + 1).fold((0, 0), |sum, n| (sum.0 + n.0, sum.1 + n.1))
    }
}

fn add(sum: &mut (u64, u64), bytes: u64) {
    sum.0 += 1;
    sum.1 += bytes;
}
