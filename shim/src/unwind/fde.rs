//! Finds a function's unwind information: its FDE, in the library's sorted index (.eh_frame_hdr).

use super::module::Module;

/// What every linker writes: version 1, pointer to .eh_frame relative to itself in 4 bytes, count in
/// 4 bytes, table of pairs relative to the index's start in 4 bytes. Anything else isn't looked at.
const HEADER: [u8; 4] = [1, 0x1b, 0x03, 0x3b];

/// What the index says about an address.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fde {
    /// Where the FDE of the function that begins last before the address is. The function may end
    /// before the address.
    At(u64),
    /// There is none.
    Missing,
    /// The index can't be read.
    Foreign,
}

/// Looks up the code at `at`, which `module` holds.
pub(super) fn find(module: &Module, at: u64) -> Fde {
    let index = module.eh_frame_hdr;
    if index == 0 {
        return Fde::Missing;
    }
    // SAFETY: the loader says that the index is there, and 12 bytes is the least it can have.
    let header = unsafe { (index as *const [u8; 4]).read_unaligned() };
    if header != HEADER {
        return Fde::Foreign;
    }
    // SAFETY: as above.
    let count = unsafe { (index as *const u32).add(2).read_unaligned() } as usize;
    let table = (index + 12) as *const [i32; 2];
    // SAFETY: the linker wrote `count` pairs; `i` stays below it.
    let pair = |i: usize| unsafe { table.add(i).read_unaligned() };
    let Ok(wanted) = i32::try_from(at.wrapping_sub(index) as i64) else {
        return Fde::Foreign;
    };
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        if pair(middle)[0] <= wanted {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if low == 0 {
        return Fde::Missing;
    }
    let fde = index.wrapping_add(pair(low - 1)[1] as i64 as u64);
    if module.start <= fde && fde < module.end { Fde::At(fde) } else { Fde::Foreign }
}
