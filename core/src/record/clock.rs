//! The clock: raw times to nanoseconds since time zero, without a calibration pause.
//!
//! The writer reads both clocks before each round (an anchor). Between two anchors the relation is a straight line, and
//! an anchor once taken never moves, so times never run backwards where the raw clock does not.

use super::setup::ClockKind;
use super::spool::Spool;

/// Anchors kept. Events are rarely older than one round; older ones are placed on the line from time zero.
const KEPT: usize = 32;

#[derive(Clone, Copy, Debug)]
struct Knot {
    raw: u64,
    /// Since time zero.
    ns: u64,
    /// Nanoseconds a tick, up to this knot, times 2^32.
    slope: u64,
}

/// Converts raw times.
#[derive(Clone, Debug)]
pub struct Clock {
    kind: ClockKind,
    zero: Knot,
    zero_ns: u64,
    /// Nanoseconds a tick as the longest stretch known says, times 2^32.
    slope: u64,
    knots: Vec<Knot>,
}

impl Clock {
    /// The clock of a spool, as far as its anchors tell.
    pub fn new(spool: &Spool<'_>) -> Clock {
        let (raw, zero_ns) = spool.zero();
        let slope = match spool.ticks_per_second() {
            0 => 1 << 32,
            hz => (((1_000_000_000u128) << 32) / u128::from(hz)) as u64,
        };
        let zero = Knot { raw, ns: 0, slope };
        let mut clock = Clock { kind: spool.clock(), zero, zero_ns, slope, knots: vec![zero] };
        let (raw, ns) = spool.anchor();
        // With the last two, recover places the events between them where the writer would have.
        let (older_raw, older_ns) = spool.older_anchor();
        if older_raw < raw && older_ns <= ns {
            clock.anchor(older_raw, older_ns);
        }
        clock.anchor(raw, ns);
        clock
    }

    /// Both clocks, read together. A pair that runs backwards is left out (`false`): the thread may have been held up between
    /// the two readings of the one before.
    pub fn anchor(&mut self, raw: u64, ns: u64) -> bool {
        let ns = ns.saturating_sub(self.zero_ns);
        let last = *self.knots.last().unwrap_or(&self.zero);
        if raw <= last.raw || ns < last.ns {
            return false;
        }
        let slope = slope(raw - last.raw, ns - last.ns);
        self.slope = slope_or(raw - self.zero.raw, ns, slope);
        if self.knots.len() == KEPT {
            self.knots.remove(0);
        }
        self.knots.push(Knot { raw, ns, slope });
        true
    }

    /// Nanoseconds since time zero.
    pub fn convert(&self, raw: u64) -> u64 {
        if self.kind == ClockKind::Monotonic {
            return raw.saturating_sub(self.zero_ns);
        }
        let (Some(first), Some(last)) = (self.knots.first(), self.knots.last()) else { return 0 };
        if raw >= last.raw {
            // Newer than the newest anchor: only when a killed process is recovered.
            return last.ns.saturating_add(scale(raw - last.raw, self.slope));
        }
        if raw < first.raw {
            let ticks = raw.saturating_sub(self.zero.raw);
            return scale(ticks, slope_or(first.raw - self.zero.raw, first.ns, self.slope)).min(first.ns);
        }
        let after = self.knots.iter().rposition(|k| k.raw <= raw).map_or(0, |i| i + 1);
        let (knot, before) = (self.knots[after], self.knots[after - 1]);
        before.ns.saturating_add(scale(raw - before.raw, knot.slope)).min(knot.ns)
    }
}

fn slope(ticks: u64, ns: u64) -> u64 {
    u64::try_from((u128::from(ns) << 32) / u128::from(ticks.max(1))).unwrap_or(u64::MAX)
}

fn slope_or(ticks: u64, ns: u64, otherwise: u64) -> u64 {
    if ticks == 0 { otherwise } else { slope(ticks, ns) }
}

fn scale(ticks: u64, slope: u64) -> u64 {
    u64::try_from((u128::from(ticks) * u128::from(slope)) >> 32).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::record::Setup;

    fn clock(ticks_per_second: u64) -> Clock {
        let words: Vec<AtomicU64> = (0..Spool::size_in_words(1, 8)).map(|_| AtomicU64::new(0)).collect();
        let setup = Setup {
            rings: 1,
            slots: 8,
            usable_rings: 1,
            pid: 1,
            start_time: 1,
            clock: ClockKind::Tsc,
            ticks_per_second,
            zero_raw: 1_000_000,
            zero_ns: 500,
        };
        Clock::new(&Spool::format(&words, &setup).unwrap())
    }

    #[test]
    fn follows_its_anchors_and_never_runs_backwards() {
        let mut clock = clock(0);
        // 2.5 GHz, anchors taken up to 90 us late.
        let mut before = 0;
        for i in 1..100u64 {
            let raw = 1_000_000 + i * 2_500_000;
            clock.anchor(raw, 500 + i * 1_000_000 + (i * 7919) % 90_000);
            for part in 0..10 {
                let ns = clock.convert(raw - 2_500_000 + part * 250_000);
                let truth = (i - 1) * 1_000_000 + part * 100_000;
                assert!(ns >= before && ns.abs_diff(truth) <= 90_000, "{ns} for {truth}");
                before = ns;
            }
        }
        // Older than all anchors kept, and newer than the newest.
        assert!(clock.convert(1_000_000 + 2_500_000).abs_diff(1_000_000) < 100_000);
        assert!(clock.convert(1_000_000 + 2_500_000_000).abs_diff(1_000_000_000) < 1_000_000);
        assert_eq!(clock.convert(0), 0);
        // An anchor that runs backwards is left out.
        clock.anchor(5, 5);
        clock.anchor(u64::MAX, 0);
        assert!(clock.convert(1_000_000 + 250_000_000).abs_diff(100_000_000) < 100_000);
    }

    #[test]
    fn without_an_anchor_the_stated_rate_counts() {
        assert_eq!(clock(2_000_000_000).convert(1_000_000 + 2_000), 1_000);
    }
}
