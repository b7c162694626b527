//! How to get from one frame to its caller, in 64 bits.
//!
//! A row of call frame information can say far more, but what compilers and linkers write for
//! x86-64 is nearly always: the frame's upper end (the CFA) is `sp + n` or `bp + n`, the return
//! address lies just below it, and `bp` is untouched or was saved at a fixed distance from it.
//!
//! ```text
//!  63            32 31            8   7   6 5    2  1     0
//! | CFA offset     | bp's offset   | - |AT| rare |SAVED|CFA_BP|
//! ```

/// The CFA is counted from `bp`, not from `sp`.
const CFA_BP: u64 = 1;
/// The caller's `bp` is in memory at CFA + offset.
const SAVED: u64 = 1 << 1;
/// The caller's `bp` is in memory at `bp` + offset (GCC's realigned frames). Rare.
const SAVED_AT_BP: u64 = 1 << 6;
const RARE_SHIFT: u32 = 2;
/// What the walk's short path can't do. One mask, so that it costs one test.
const RARE: u64 = 0xf << RARE_SHIFT | SAVED_AT_BP;

/// The kinds that need more than additions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// CFA = register + offset.
    Plain = 0,
    /// CFA = \*(register + offset): GCC's realigned frames.
    Deref = 1,
    /// The outermost frame.
    End = 2,
    /// A signal trampoline: the registers are in the `ucontext` at `sp`.
    Signal = 3,
    /// Nothing is known about this code.
    Unknown = 4,
    /// There is information, but it says more than 64 bits can hold.
    Complex = 5,
}

/// Where the caller's `bp` is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SavedBp {
    /// Still in the register.
    Same,
    /// At CFA + offset.
    Cfa(i32),
    /// At `bp` + offset.
    Bp(i32),
}

/// One packed rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Rule(pub(super) u64);

impl Rule {
    pub(super) const END: Rule = Rule::bare(Kind::End);
    pub(super) const SIGNAL: Rule = Rule::bare(Kind::Signal);
    pub(super) const UNKNOWN: Rule = Rule::bare(Kind::Unknown);
    pub(super) const COMPLEX: Rule = Rule::bare(Kind::Complex);

    const fn bare(kind: Kind) -> Rule {
        Rule((kind as u64) << RARE_SHIFT)
    }

    /// Packs a row. `None` if an offset is too large.
    pub(super) fn new(from_bp: bool, deref: bool, offset: i64, saved: SavedBp) -> Option<Rule> {
        let offset = i32::try_from(offset).ok()?;
        let (flag, bp_offset) = match saved {
            // The walk reads this slot in any case (it is the return address's: surely there)
            // and drops the value, which is cheaper than a branch.
            SavedBp::Same => (0, -8),
            SavedBp::Cfa(o) => (SAVED, o),
            SavedBp::Bp(o) => (SAVED_AT_BP, o),
        };
        if !(-(1 << 23)..1 << 23).contains(&bp_offset) {
            return None;
        }
        let kind = if deref { Kind::Deref } else { Kind::Plain };
        let base = if from_bp { CFA_BP } else { 0 };
        let low = (bp_offset as u32 & 0xff_ffff) << 8;
        Some(Rule((offset as u32 as u64) << 32 | low as u64 | flag | base | Rule::bare(kind).0))
    }

    /// Whether the walk's short path can follow it.
    #[inline(always)]
    pub(super) fn is_plain(self) -> bool {
        self.0 & RARE == 0
    }

    pub(super) fn kind(self) -> Kind {
        match self.0 >> RARE_SHIFT & 0xf {
            0 => Kind::Plain,
            1 => Kind::Deref,
            2 => Kind::End,
            3 => Kind::Signal,
            4 => Kind::Unknown,
            _ => Kind::Complex,
        }
    }

    /// All ones if the CFA is counted from `bp`.
    #[inline(always)]
    pub(super) fn bp_mask(self) -> u64 {
        (self.0 & CFA_BP).wrapping_neg()
    }

    /// All ones if the caller's `bp` is in memory at CFA + offset.
    #[inline(always)]
    pub(super) fn saved_mask(self) -> u64 {
        (self.0 >> 1 & 1).wrapping_neg()
    }

    pub(super) fn saved_at_bp(self) -> bool {
        self.0 & SAVED_AT_BP != 0
    }

    /// The CFA's offset, to be added with wrap-around.
    #[inline(always)]
    pub(super) fn cfa_offset(self) -> u64 {
        (self.0 as i64 >> 32) as u64
    }

    /// The offset of the caller's `bp`, to be added with wrap-around.
    #[inline(always)]
    pub(super) fn bp_offset(self) -> u64 {
        ((self.0 << 32) as i64 >> 40) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_comes_out() {
        for offset in [8, 16, 0x7fff_fff8, -16] {
            for saved in [SavedBp::Same, SavedBp::Cfa(-16), SavedBp::Cfa(-(1 << 23)), SavedBp::Bp(0)] {
                for (from_bp, deref) in [(false, false), (true, false), (true, true)] {
                    let rule = Rule::new(from_bp, deref, offset, saved).unwrap();
                    assert_eq!(rule.cfa_offset() as i64, offset);
                    assert_eq!(rule.bp_mask() != 0, from_bp);
                    assert_eq!(rule.saved_mask() != 0, matches!(saved, SavedBp::Cfa(_)));
                    assert_eq!(rule.saved_at_bp(), matches!(saved, SavedBp::Bp(_)));
                    let bp_offset = match saved {
                        SavedBp::Same => -8,
                        SavedBp::Cfa(o) | SavedBp::Bp(o) => o as i64,
                    };
                    assert_eq!(rule.bp_offset() as i64, bp_offset);
                    assert_eq!(rule.is_plain(), !deref && !rule.saved_at_bp());
                }
            }
        }
    }

    #[test]
    fn too_far_is_refused() {
        assert_eq!(Rule::new(false, false, 1 << 31, SavedBp::Same), None);
        assert_eq!(Rule::new(false, false, 8, SavedBp::Cfa(1 << 23)), None);
    }
}
