//! The walk by frame pointers, for aarch64: **not run on such a machine yet**.
//!
//! In the libraries of PyTorch's and NumPy's aarch64 wheels every function that saves the link
//! register saves the frame pointer beside it, as the pair `[previous frame pointer, return
//! address]`, so that a plain walk along it is complete there.
//!
//! Nothing in here but the registers' names is aarch64's, so that the walk's logic is tested on
//! x86-64, too.

use std::ops::Range;

use super::stack::ThreadStack;
use super::{Captured, hash};

/// Where a signed return address keeps its signature (and where our marks go).
const ADDRESS: u64 = (1 << 48) - 1;

/// Walks from the place that calls it, which is not recorded itself, nor are the frames in `own`
/// that come first.
///
/// # Safety
/// As for [`capture`](super::capture).
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub(super) unsafe fn walk(stack: &ThreadStack, depth: usize, own: Range<u64>, each: impl FnMut(u64, u64)) -> Captured {
    let (sp, pointer): (u64, u64);
    // SAFETY: reads registers only.
    unsafe {
        std::arch::asm!(
            "mov {sp}, sp",
            "mov {pointer}, x29",
            sp = out(reg) sp,
            pointer = out(reg) pointer,
            options(nomem, nostack, preserves_flags)
        );
    }
    // SAFETY: as the caller says.
    unsafe { follow(sp, pointer, stack, depth, own, each) }
}

/// Follows the chain that begins at `pointer`.
///
/// # Safety
/// `sp` is the calling thread's, and the chain is one of its frames.
pub(super) unsafe fn follow(
    sp: u64,
    mut pointer: u64,
    stack: &ThreadStack,
    depth: usize,
    own: Range<u64>,
    mut each: impl FnMut(u64, u64),
) -> Captured {
    let mut captured = Captured { len: 0, hash: hash::SEED, guessed: 0, interrupted: 0 };
    let mut bounds = stack.bounds(sp);
    let mut lowest = sp;
    loop {
        let Some(end) = pointer.checked_add(16) else { return captured };
        if pointer < lowest || !pointer.is_multiple_of(8) {
            return captured;
        }
        if end > bounds.high {
            let reached = bounds.reach(end);
            bounds.remember(stack);
            if !reached {
                return captured;
            }
        }
        // SAFETY: between the stack pointer and the bound.
        let [previous, pc] = unsafe { (pointer as *const [u64; 2]).read_volatile() };
        let pc = pc & ADDRESS;
        if pc < 4096 {
            return captured;
        }
        if captured.len > 0 || !own.contains(&(pc - 1)) {
            if captured.len == depth {
                return captured;
            }
            each(pc, lowest);
            captured.len += 1;
            captured.hash = hash::fold(captured.hash, pc);
        }
        (lowest, pointer) = (end, previous);
    }
}

#[cfg(test)]
mod tests {
    use super::super::hash;
    use super::*;

    #[test]
    fn follows_to_the_end_and_never_down() {
        let mut frames = [[0u64; 2]; 5];
        let base = &raw const frames as u64;
        let at = |i: u64| base + 16 * i;
        frames[0] = [at(1), 0x5000];
        frames[1] = [at(2), 0x6000 | 0xabcd << 48];
        frames[2] = [at(4), 0x7000];
        frames[4] = [at(1), 0x8000];
        std::hint::black_box(&mut frames);
        let stack = ThreadStack::new();
        let mut out = Vec::new();
        // SAFETY: the chain above lies on this thread's stack.
        let captured = unsafe { follow(base, base, &stack, 8, 0x4fff..0x5000, |pc, _| out.push(pc)) };
        assert_eq!(out, [0x6000, 0x7000, 0x8000]);
        assert_eq!((captured.len, captured.hash), (3, hash(&out)));
        out.clear();
        // SAFETY: as above.
        let captured = unsafe { follow(base, base, &stack, 2, 0..0, |pc, _| out.push(pc)) };
        assert_eq!((captured.len, out), (2, vec![0x5000, 0x6000]));
    }
}
