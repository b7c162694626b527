//! What all ranks need together.

use serde::Serialize;

use super::rank::Rank;

/// Sums over the ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Total {
    /// Each rank's peak, added up.
    pub peaks: u64,
    /// What each reserved at most, added up.
    pub reserved: u64,
    /// Most in use at one moment by all of them; about, by their aligned times.
    pub at_once: u64,
    /// When the first rank began and the last ended, by the job's clock, in nanoseconds since 1970.
    pub from: u64,
    /// See `from`.
    pub to: u64,
    /// When the first rank was at its peak, and the last.
    pub first_peak: u64,
    /// See `first_peak`.
    pub last_peak: u64,
    /// Allocations that failed.
    pub failed: u64,
}

/// Moments looked at.
const MOMENTS: u64 = 8192;

impl Total {
    /// The sums.
    pub fn of(ranks: &[Rank]) -> Total {
        let peak = |r: &Rank| r.wall(r.run.held.peak().time);
        let from = ranks.iter().map(|r| r.wall(0)).min().unwrap_or(0);
        let to = ranks.iter().map(|r| r.wall(r.run.end)).max().unwrap_or(0);
        // As fine as the ranks' own series, if that is not too fine.
        let finest = ranks.iter().map(|r| r.run.held.series.step).max().unwrap_or(1);
        let step = finest.max((to - from) / MOMENTS).max(1);
        let within = |begin: u64| -> u64 {
            let of = |r: &Rank| {
                let (end, begin) = (begin.saturating_add(step - 1), begin.saturating_sub(r.wall(0)));
                let here = end.checked_sub(r.wall(0)).filter(|_| begin <= r.run.end);
                here.map_or(0, |end| r.run.held.series.within(begin, end))
            };
            ranks.iter().map(of).sum()
        };
        let at_once = (0..=(to - from) / step).map(|i| within(from.saturating_add(i * step))).max().unwrap_or(0);
        let peaks: u64 = ranks.iter().map(Rank::peak).sum();
        let alone = ranks.iter().map(Rank::peak).max().unwrap_or(0);
        Total {
            peaks,
            reserved: ranks.iter().map(Rank::reserved).sum(),
            at_once: at_once.clamp(alone, peaks.max(alone)),
            from,
            to,
            first_peak: ranks.iter().map(peak).min().unwrap_or(0),
            last_peak: ranks.iter().map(peak).max().unwrap_or(0),
            failed: ranks.iter().map(|r| r.run.work.failed).sum(),
        }
    }
}
