//! Size classes: how many bytes a request is given, and which larger blocks may serve it.
//!
//! Multiples of 512 B up to 4 KiB, then 8 classes a doubling up to 1 MiB, then multiples of 2 MiB. The driver backs
//! anything over 1 MiB with whole 2 MiB pages (1,000 × (1 MiB + 1) take 1,998 MiB on an H200), so that finer classes
//! there would save nothing.

/// The driver's step for small allocations, and the alignment it promises in practice.
pub const STEP: u64 = 512;
/// The largest request the driver packs with others into a page.
pub const SMALL_MAX: u64 = 1 << 20;
/// The driver's grain for anything over [`SMALL_MAX`].
pub const GRAIN: u64 = 2 << 20;
/// Number of classes up to [`SMALL_MAX`].
pub const SMALL: u32 = 72;
/// The largest block the pool keeps: 2 TiB, more than any device has. It bounds the dense list of classes.
pub const MAX: u64 = 1 << 41;

/// A size class: small ones in the order of their size, then one for each multiple of [`GRAIN`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SizeClass(pub u32);

impl SizeClass {
    /// The smallest class that holds `bytes`; `None` for nothing and for more than [`MAX`].
    #[inline]
    pub fn of(bytes: u64) -> Option<SizeClass> {
        if bytes == 0 || bytes > MAX {
            return None;
        }
        if bytes > SMALL_MAX {
            return Some(SizeClass(SMALL - 1 + bytes.div_ceil(GRAIN) as u32));
        }
        let last = (bytes - 1) / STEP; // Number of the last step the request touches.
        if last < 8 {
            return Some(SizeClass(last as u32));
        }
        let doubling = last.ilog2() - 3;
        Some(SizeClass(doubling * 8 + (last >> doubling) as u32))
    }

    /// The largest class of at most `bytes`; `None` if there is none.
    #[inline]
    pub fn at_most(bytes: u64) -> Option<SizeClass> {
        let bytes = bytes.min(MAX);
        let class = SizeClass::of(bytes)?;
        if class.bytes() <= bytes { Some(class) } else { class.0.checked_sub(1).map(SizeClass) }
    }

    /// The largest class whose blocks may serve a request: a block serves down to 7/8 of its size. It may be below the
    /// request's own class, where the request is small.
    #[inline]
    pub fn largest_for(requested: u64) -> Option<SizeClass> {
        SizeClass::at_most(requested.min(MAX) * 8 / 7)
    }

    /// Bytes of a block of this class.
    #[inline]
    pub fn bytes(self) -> u64 {
        let n = u64::from(self.0);
        if self.0 >= SMALL {
            (n + 1 - u64::from(SMALL)) * GRAIN
        } else if n < 8 {
            (n + 1) * STEP
        } else {
            ((n % 8 + 9) << (n / 8 - 1)) * STEP
        }
    }

    /// Whether the driver packs blocks of this class into shared pages.
    #[inline]
    pub fn is_small(self) -> bool {
        self.0 < SMALL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_tight_and_in_order() {
        let mut before = 0;
        for n in 0..SMALL + 5000 {
            let b = SizeClass(n).bytes();
            assert!(b > before, "class {n}");
            assert_eq!(SizeClass::of(b), Some(SizeClass(n)));
            assert_eq!(SizeClass::of(before + 1), Some(SizeClass(n)));
            assert_eq!(SizeClass::at_most(b), Some(SizeClass(n)));
            assert_eq!(SizeClass::at_most(b - 1), n.checked_sub(1).map(SizeClass));
            before = b;
        }
    }

    #[test]
    fn the_known_sizes() {
        let of = |b| SizeClass::of(b).map(SizeClass::bytes);
        assert_eq!(of(0), None);
        assert_eq!(of(1), Some(512));
        assert_eq!(of(4096), Some(4096));
        assert_eq!(of(4097), Some(4608));
        assert_eq!(of(8193), Some(9216));
        assert_eq!(of((1 << 20) - 1), Some(1 << 20));
        assert_eq!(SizeClass::of(1 << 20), Some(SizeClass(SMALL - 1)));
        assert_eq!(of((1 << 20) + 1), Some(2 << 20));
        assert_eq!(of((2 << 20) + 1), Some(4 << 20));
        assert_eq!(of(MAX), Some(MAX));
        assert_eq!(of(MAX + 1), None);
        assert_eq!(of(u64::MAX), None);
    }

    #[test]
    fn a_block_serves_down_to_seven_eighths() {
        for r in (1..20_000).map(|n| n * 977).chain([7 << 20, 14 << 20, (14 << 20) - 1, u64::MAX]) {
            let Some(c) = SizeClass::largest_for(r) else { continue };
            assert!(u128::from(c.bytes()) * 7 <= u128::from(r) * 8);
            if c.bytes() < MAX {
                assert!(u128::from(SizeClass(c.0 + 1).bytes()) * 7 > u128::from(r) * 8);
            }
        }
        assert_eq!(SizeClass::largest_for(14 << 20).map(SizeClass::bytes), Some(16 << 20));
    }
}
