//! `VRAMSCOPE_LIMIT`: a device that is no larger than so, for this process. Whether a model fits on a smaller card can be
//! tried out on a large one.
//!
//! What counts is what this process takes from the driver, its pool's cache included (which is given back before anything
//! fails). The context itself, modules and local memory are not seen by any call and do not count: 0.5 to 1 GiB on current
//! cards.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::*};

use crate::devices::DEVICES;
use crate::message::error;
use crate::settings::{self, Limit};
use crate::{arena, driver, usage};

/// What the program set, [`packed`]; 0: what the settings say.
static SET: [AtomicU64; DEVICES] = [const { AtomicU64::new(0) }; DEVICES];
/// Who set it, as a [`By`].
static SET_BY: [AtomicU8; DEVICES] = [const { AtomicU8::new(0) }; DEVICES];
/// Whether the program set one.
static ANY: AtomicBool = AtomicBool::new(false);

/// Whether it was looked for devices that are not there.
static CHECKED: AtomicBool = AtomicBool::new(false);

/// Who sets a limit while the program runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// `set_limit()` of the C and Python interfaces.
    Program,
    /// PyTorch's `set_per_process_memory_fraction()`, of a pluggable allocator.
    Fraction,
    /// `vramscope ctl`.
    Ctl,
}

/// The bit of a [`packed`] limit that is a share.
const SHARE: u64 = 1 << 63;

/// A limit in one word, never 0. A share stays one: before CUDA is initialized nobody knows how large the device is.
fn packed(limit: Limit) -> u64 {
    match limit {
        Limit::Bytes(b) => b.min(SHARE - 2) + 1,
        Limit::Share(s) => s.to_bits() | SHARE,
    }
}

fn unpacked(word: u64) -> Limit {
    if word & SHARE == 0 { Limit::Bytes(word - 1) } else { Limit::Share(f64::from_bits(word & !SHARE)) }
}

/// Sets a device's limit; 0: none. Fails for a device that is not there, as far as the driver can tell yet.
pub fn set(device: i32, limit: Limit, by: By) -> bool {
    if driver::has_device(device) == Some(false) {
        return false;
    }
    let Some(at) = usize::try_from(device).ok().filter(|d| *d < DEVICES) else { return false };
    SET_BY[at].store(by as u8, Relaxed);
    SET[at].store(packed(limit), Relaxed);
    ANY.store(true, Relaxed);
    arena::limited(device);
    true
}

/// A device's limit.
#[inline]
pub fn of(device: i32) -> Option<u64> {
    if settings::get().limits.is_empty() && !ANY.load(Relaxed) { None } else { look(device) }
}

#[cold]
fn look(device: i32) -> Option<u64> {
    let all = &settings::get().limits;
    if !CHECKED.swap(true, Relaxed) {
        let set = (0..DEVICES).filter(|d| SET[*d].load(Relaxed) != 0).map(|d| (d as u32, by(d as i32)));
        let named = all.iter().filter_map(|(d, _)| Some(((*d)?, "VRAMSCOPE_LIMIT")));
        for (missing, by) in named.chain(set).filter(|(d, _)| driver::has_device(*d as i32) == Some(false)) {
            error!("{by}: there is no device {missing}; its limit holds for nothing");
        }
    }
    let limit = match SET.get(usize::try_from(device).ok()?)?.load(Relaxed) {
        0 => {
            let own = all.iter().find(|(d, _)| *d == u32::try_from(device).ok());
            own.or_else(|| all.iter().find(|(d, _)| d.is_none()))?.1
        }
        word => unpacked(word),
    };
    Some(limit.of(driver::total_memory(device))).filter(|n| *n != 0)
}

/// What set a device's limit.
#[cold]
pub fn by(device: i32) -> &'static str {
    match usize::try_from(device).ok().filter(|d| *d < DEVICES && SET[*d].load(Relaxed) != 0) {
        Some(d) => match SET_BY[d].load(Relaxed) {
            n if n == By::Ctl as u8 => "ctl limit",
            n if n == By::Fraction as u8 => "set_per_process_memory_fraction()",
            _ => "set_limit()",
        },
        None => "VRAMSCOPE_LIMIT",
    }
}

/// Whether so many bytes more would go past the device's limit.
#[inline]
pub fn refuses(device: i32, bytes: u64) -> bool {
    of(device).is_some_and(|limit| usage::reserved(device).saturating_add(bytes) > limit)
}

/// What is free and what there is in all, as the limit has it.
pub fn told(device: i32, free: u64, total: u64) -> (u64, u64) {
    match of(device) {
        Some(limit) if limit < total => {
            let u = usage::on(device);
            // What the pool keeps would be given back.
            let used = u.reserved.saturating_sub(u.pool_inactive);
            (free.min(limit.saturating_sub(used)), limit)
        }
        _ => (free, total),
    }
}
