//! One captured stack.

use std::mem::MaybeUninit;

use crate::own;

/// Frames of one stack at most.
pub const DEPTH: usize = 256;

/// Return addresses, innermost first. Not initialized at first, for that would bring its memory into the
/// cache before the clock runs.
pub struct Frames {
    pcs: [MaybeUninit<u64>; DEPTH],
    len: usize,
}

impl Frames {
    #[inline(always)]
    pub fn new() -> Frames {
        Frames { pcs: [MaybeUninit::uninit(); DEPTH], len: 0 }
    }

    /// False if there was no room.
    #[inline(always)]
    pub fn push(&mut self, pc: u64) -> bool {
        match self.pcs.get_mut(self.len) {
            Some(slot) => {
                slot.write(pc);
                self.len += 1;
                true
            }
            None => false,
        }
    }

    /// Room for somebody else to write to, before [`Frames::filled`].
    pub fn room(&mut self) -> *mut u64 {
        self.pcs.as_mut_ptr().cast()
    }

    /// Notes what was written to [`Frames::room`].
    ///
    /// # Safety
    /// The first `len` words were, if there are so many.
    pub unsafe fn filled(&mut self, len: usize) {
        self.len = len.min(DEPTH);
    }

    /// The program's frames: without ours, which come first, and without the 0 that libgcc ends with.
    pub fn of_program(&self) -> &[u64] {
        // SAFETY: so many were written.
        let pcs = unsafe { std::slice::from_raw_parts(self.pcs.as_ptr().cast::<u64>(), self.len) };
        let own = own::range();
        let first = pcs.iter().position(|pc| !own.contains(&pc.wrapping_sub(1))).unwrap_or(pcs.len());
        match &pcs[first..] {
            [frames @ .., 0] => frames,
            frames => frames,
        }
    }

    /// Perhaps the stack is deeper.
    pub fn is_full(&self) -> bool {
        self.len == DEPTH
    }
}
