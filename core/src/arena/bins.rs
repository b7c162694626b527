//! Free blocks by size: two levels of bins (TLSF), 32 a doubling, each sorted by size and address. Found is a block of
//! good fit, and of those of one size the lowest: both matter for how much memory a program's pattern needs.

use super::slot::{GRAIN, NIL, Slots};

const COLUMNS: u64 = 32;
const ROWS: usize = 40;
/// How far a bin's list is walked, to keep it sorted and to search it. Longer lists are sorted at their beginning.
const WALK: u32 = 8;
const SEARCH: u32 = 16;

/// One set of bins; under the core's lock.
pub struct Bins {
    rows: u64,
    columns: [u32; ROWS],
    /// Empty until something is put in: many streams never free anything.
    heads: Vec<u32>,
    bytes: u64,
}

#[inline]
fn bin_of(bytes: u64) -> (usize, usize) {
    let units = bytes >> GRAIN;
    if units < COLUMNS {
        return (0, units as usize);
    }
    let shift = units.ilog2() - COLUMNS.ilog2();
    ((shift as usize + 1).min(ROWS - 1), ((units >> shift) % COLUMNS) as usize)
}

#[inline]
fn above(bit: usize) -> u64 {
    u64::MAX.checked_shl(bit as u32 + 1).unwrap_or(0)
}

impl Bins {
    pub const fn new() -> Bins {
        Bins { rows: 0, columns: [0; ROWS], heads: Vec::new(), bytes: 0 }
    }

    /// What all its blocks have together.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    #[inline]
    pub fn insert(&mut self, slots: &Slots, n: u32) {
        if self.heads.is_empty() {
            self.heads = vec![NIL; ROWS * COLUMNS as usize];
        }
        let slot = slots.get(n);
        let (bytes, address) = (slot.bytes(), slot.address());
        let (row, column) = bin_of(bytes);
        let head = &mut self.heads[row * COLUMNS as usize + column];
        let (mut before, mut after) = (NIL, *head);
        for _ in 0..WALK {
            if after == NIL {
                break;
            }
            let s = slots.get(after);
            if (s.bytes(), s.address()) > (bytes, address) {
                break;
            }
            (before, after) = (after, s.bin_next());
        }
        slot.set_bin_prev(before);
        slot.set_bin_next(after);
        if after != NIL {
            slots.get(after).set_bin_prev(n);
        }
        if before != NIL {
            slots.get(before).set_bin_next(n);
        } else {
            *head = n;
        }
        self.rows |= 1 << row;
        self.columns[row] |= 1 << column;
        self.bytes += bytes;
    }

    #[inline]
    pub fn remove(&mut self, slots: &Slots, n: u32) {
        let slot = slots.get(n);
        let bytes = slot.bytes();
        let (row, column) = bin_of(bytes);
        let (before, after) = (slot.bin_prev(), slot.bin_next());
        if after != NIL {
            slots.get(after).set_bin_prev(before);
        }
        if before != NIL {
            slots.get(before).set_bin_next(after);
        } else if let Some(head) = self.heads.get_mut(row * COLUMNS as usize + column) {
            *head = after;
            if after == NIL {
                self.columns[row] &= !(1 << column);
                if self.columns[row] == 0 {
                    self.rows &= !(1 << row);
                }
            }
        }
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// A block of at least so many bytes, not much larger if there is one. It stays in its bin.
    #[inline]
    pub fn find(&self, slots: &Slots, bytes: u64) -> Option<u32> {
        if self.bytes < bytes {
            return None;
        }
        let (row, column) = bin_of(bytes);
        if self.columns[row] & 1 << column != 0 {
            let mut n = *self.heads.get(row * COLUMNS as usize + column)?;
            for _ in 0..SEARCH {
                if n == NIL {
                    break;
                }
                let s = slots.get(n);
                if s.bytes() >= bytes {
                    return Some(n);
                }
                n = s.bin_next();
            }
        }
        let columns = u64::from(self.columns[row]) & above(column);
        let (row, column) = if columns != 0 {
            (row, columns.trailing_zeros() as usize)
        } else {
            let rows = self.rows & above(row);
            let row = rows.trailing_zeros() as usize;
            (row, self.columns.get(row)?.trailing_zeros() as usize)
        };
        self.heads.get(row * COLUMNS as usize + column).copied().filter(|n| *n != NIL)
    }

    /// Every block; for what is rare.
    pub fn all(&self, slots: &Slots) -> Vec<u32> {
        let mut all = Vec::new();
        for &head in &self.heads {
            let mut n = head;
            while n != NIL {
                all.push(n);
                n = slots.get(n).bin_next();
            }
        }
        all
    }
}
