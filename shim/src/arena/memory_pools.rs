//! CUDA's memory pools, as far as the arena stands for them: a device's default pool, and pools of the program that no
//! other process can see. What is asked about them is answered for the arena and the driver's own memory together.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::{Mutex, MutexGuard};

use vramscope_core::arena::Block;

use super::{Arena, access, of};
use crate::cuda::{
    self, Access, MEM_ALLOCATION_TYPE_PINNED, MEM_LOCATION_TYPE_DEVICE, POOL_RELEASE_THRESHOLD, POOL_RESERVED_CURRENT,
    POOL_RESERVED_HIGH, POOL_USED_CURRENT, POOL_USED_HIGH, PoolProps, Result, SUCCESS,
};
use crate::driver;

/// A memory pool.
#[derive(Clone, Debug, Default)]
struct MemoryPool {
    device: i32,
    /// The device's default one: what is not another one's is its.
    default: bool,
    /// Its release threshold, if the program set it.
    threshold: Option<u64>,
    /// Bytes in use of a pool of the program's, and at most; of a default one, since there is another.
    used: u64,
    high: u64,
}

#[derive(Default)]
struct Table {
    pools: BTreeMap<usize, MemoryPool>,
    /// Blocks of the program's own pools.
    owners: BTreeMap<u64, usize>,
    /// The pool that a device's requests come from.
    current: BTreeMap<i32, usize>,
}

/// Devices whose current pool is their default one: the usual case, looked at without the lock.
static USUAL: AtomicU64 = AtomicU64::new(0);
/// Devices with pools of the program's own: the default one's bytes are counted apart from theirs. Elsewhere they are all
/// that the arena serves.
static MIXED: AtomicU64 = AtomicU64::new(0);

fn bit(device: i32) -> u64 {
    1u64.checked_shl(device as u32).unwrap_or(0)
}

static TABLE: Mutex<Table> =
    Mutex::new(Table { pools: BTreeMap::new(), owners: BTreeMap::new(), current: BTreeMap::new() });

fn table() -> MutexGuard<'static, Table> {
    TABLE.lock().unwrap_or_else(|e| e.into_inner())
}

impl Table {
    /// A device's pools become known.
    fn meet(&mut self, device: i32) -> Option<usize> {
        if let Some(current) = self.current.get(&device) {
            return Some(*current);
        }
        let (default, current) = driver::memory_pools(device)?;
        self.pools.entry(default).or_insert(MemoryPool { device, default: true, ..MemoryPool::default() });
        self.current.insert(device, current);
        if default == current {
            USUAL.fetch_or(bit(device), Release);
        }
        Some(current)
    }

    fn default_of(&mut self, device: i32) -> Option<&mut MemoryPool> {
        self.pools.values_mut().find(|p| p.default && p.device == device)
    }

    /// Makes a handle known that may be some device's default pool.
    fn look_for(&mut self, pool: usize) {
        if !self.pools.contains_key(&pool) {
            let _ = (0..64).try_for_each(|device| self.meet(device).map(drop));
        }
    }
}

/// Who serves a request from a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serves {
    /// The arena; a pool of the program's own keeps a count.
    Arena(usize),
    /// The driver.
    Driver,
}

/// Who serves a device's request from this pool; 0: from the one that is set.
#[inline]
pub fn serves(device: i32, pool: usize) -> Serves {
    if pool == 0 && USUAL.load(Acquire) & bit(device) != 0 { Serves::Arena(0) } else { serves_slowly(device, pool) }
}

#[cold]
fn serves_slowly(device: i32, pool: usize) -> Serves {
    let mut t = table();
    let Some(current) = t.meet(device) else { return Serves::Driver };
    let pool = if pool == 0 { current } else { pool };
    match t.pools.get(&pool) {
        Some(p) if p.device == device => Serves::Arena(if p.default { 0 } else { pool }),
        _ => Serves::Driver,
    }
}

/// Another pool was set as a device's current one.
pub fn forget_current() {
    let mut t = table();
    USUAL.store(0, Release);
    t.current.clear();
}

/// A pool was made. It is ours if nobody else can see it and it is a device's.
pub fn created(pool: usize, props: &PoolProps) {
    let ours = props.kind == MEM_ALLOCATION_TYPE_PINNED
        && props.handle_types == 0
        && props.location_type == MEM_LOCATION_TYPE_DEVICE
        && props.max_size == 0;
    if ours {
        let device = props.location_id;
        let counts = of(device).map(|a| a.counts()).unwrap_or_default();
        let mut t = table();
        t.pools.insert(pool, MemoryPool { device, ..MemoryPool::default() });
        let first = MIXED.fetch_or(bit(device), AcqRel) & bit(device) == 0;
        if first
            && t.meet(device).is_some()
            && let Some(default) = t.default_of(device)
        {
            (default.used, default.high) = (counts.requested.now, counts.requested.peak);
        }
    }
}

/// A pool is gone; what was taken from it stays until it is freed.
pub fn destroyed(pool: usize) {
    let mut t = table();
    t.pools.retain(|handle, p| *handle != pool || p.default);
    // The device's default one is its current one again, if this was.
    t.current.retain(|_, current| *current != pool);
}

/// Whether an arena serves memory pools of a device that has several.
fn is_mixed(arena: &Arena) -> Option<i32> {
    let mixed = MIXED.load(Acquire);
    let device = arena.backing().device();
    (mixed & bit(device) != 0 && of(device).is_some_and(|a| std::ptr::eq(a, arena))).then_some(device)
}

/// A block was taken for a pool of the program's own; 0: the default one.
#[inline]
pub fn note_alloc(arena: &Arena, pool: usize, block: &Block) {
    if MIXED.load(Relaxed) != 0
        && let Some(device) = is_mixed(arena)
    {
        let mut t = table();
        let owner = if pool == 0 { t.default_of(device) } else { t.pools.get_mut(&pool) };
        if let Some(p) = owner {
            p.used += block.requested;
            p.high = p.high.max(p.used);
            if pool != 0 {
                t.owners.insert(block.address, pool);
            }
        }
    }
}

/// A block is about to be given back: afterwards its address may be another's.
#[inline]
pub fn note_free(arena: &Arena, block: &Block) {
    if MIXED.load(Relaxed) != 0
        && let Some(device) = is_mixed(arena)
    {
        let mut t = table();
        let pool = match t.owners.remove(&block.address) {
            Some(pool) => t.pools.get_mut(&pool),
            None => t.default_of(device),
        };
        if let Some(p) = pool {
            p.used = p.used.saturating_sub(block.requested);
        }
    }
}

/// The memory pool that a live block is said to be of.
pub fn pool_of(address: u64) -> Option<usize> {
    let device = super::holding(address)?.backing().device();
    let t = table();
    let default = || t.pools.iter().find(|(_, p)| p.default && p.device == device).map(|(handle, _)| *handle);
    t.owners.get(&address).copied().or_else(default)
}

/// Bytes that are kept over a wait, if the program said how many.
pub fn kept(device: i32) -> Option<u64> {
    let t = table();
    t.pools.values().filter(|p| p.device == device).filter_map(|p| p.threshold).max()
}

/// The answer to a question about a pool.
pub enum Attribute {
    /// What the arena adds to the driver's own.
    Add(u64),
    /// Whatever the driver says.
    Driver,
}

/// What the arena has to say to a question about a pool.
pub fn attribute(pool: usize, attribute: i32) -> Attribute {
    let mut t = table();
    t.look_for(pool);
    let Some(p) = t.pools.get(&pool) else { return Attribute::Driver };
    let others = || t.pools.values().filter(|o| o.device == p.device && !o.default).map(|o| o.used).sum::<u64>();
    if !p.default {
        return match attribute {
            POOL_USED_CURRENT | POOL_RESERVED_CURRENT => Attribute::Add(p.used),
            POOL_USED_HIGH | POOL_RESERVED_HIGH => Attribute::Add(p.high),
            _ => Attribute::Driver,
        };
    }
    let (device, others) = (p.device, others());
    let mixed = (MIXED.load(Acquire) & bit(device) != 0).then_some((p.used, p.high));
    drop(t);
    let Some(arena) = of(device) else { return Attribute::Driver };
    let c = arena.counts();
    // As the driver counts: what was asked for, to the byte.
    let (used, high) = mixed.unwrap_or((c.requested.now, c.requested.peak));
    Attribute::Add(match attribute {
        POOL_USED_CURRENT => used,
        POOL_USED_HIGH => high,
        POOL_RESERVED_CURRENT => c.reserved.now.saturating_sub(others).max(used),
        POOL_RESERVED_HIGH => c.reserved.peak.saturating_sub(others).max(high),
        _ => return Attribute::Driver,
    })
}

/// Whether an attribute is one that the arena answers for.
pub fn is_told(attribute: i32) -> bool {
    (POOL_RELEASE_THRESHOLD..=POOL_USED_HIGH).contains(&attribute)
}

/// The program set an attribute, and the driver took it.
pub fn set_attribute(pool: usize, attribute: i32, value: u64) {
    let mut t = table();
    t.look_for(pool);
    let Some(p) = t.pools.get_mut(&pool) else { return };
    match attribute {
        POOL_RELEASE_THRESHOLD => p.threshold = Some(value),
        POOL_RESERVED_HIGH | POOL_USED_HIGH if p.default => {
            let device = p.device;
            if attribute == POOL_USED_HIGH {
                p.high = p.used;
            }
            drop(t);
            if let Some(a) = of(device) {
                a.reset_peaks();
            }
        }
        POOL_RESERVED_HIGH | POOL_USED_HIGH => p.high = p.used,
        _ => {}
    }
}

/// The program gives a pool's unused memory back, but for so much.
pub fn trim_to(pool: usize, keep: u64) {
    let device = {
        let mut t = table();
        t.look_for(pool);
        let Some(p) = t.pools.get(&pool) else { return };
        p.device
    };
    if let Some(arena) = of(device) {
        super::trim(arena, keep, vramscope_core::event::TrimWhy::Asked);
    }
}

/// Peers were let at a pool. (Nobody is shut out again; the driver answers what a peer was told.)
pub fn set_access(pool: usize, list: &[Access]) -> Result {
    for a in list.iter().filter(|a| a.location_type == MEM_LOCATION_TYPE_DEVICE) {
        let device = {
            let mut t = table();
            t.look_for(pool);
            let Some(p) = t.pools.get(&pool) else { return SUCCESS };
            p.device
        };
        if a.flags == cuda::ACCESS_READ_WRITE {
            match access::allow(device, a.location_id) {
                SUCCESS => {}
                r => return r,
            }
        }
    }
    SUCCESS
}
