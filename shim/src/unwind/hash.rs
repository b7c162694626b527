//! One 64-bit number for a stack, folded while it is walked.
//!
//! A folded multiplication: the walk waits for memory anyway, so that this costs next to nothing
//! there (0.2 ns a frame), where hashing afterwards costs 12 ns and more for 30 frames.

pub(super) const SEED: u64 = 0x243f_6a88_85a3_08d3;
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Folds one word in.
#[inline(always)]
pub fn fold(hash: u64, word: u64) -> u64 {
    let product = u128::from(hash ^ word).wrapping_mul(u128::from(FACTOR));
    product as u64 ^ (product >> 64) as u64
}

/// The hash of a captured stack: equal to the one that [`capture`](super::capture) gave with it.
#[cfg(test)]
pub fn hash(pcs: &[u64]) -> u64 {
    pcs.iter().fold(SEED, |hash, &pc| fold(hash, pc))
}
