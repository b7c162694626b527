//! A value over time in bounded room: the most of it in each of some thousand stretches of equal length.

/// Stretches at most.
const MOST: usize = 4096;

/// The most of a value in each stretch of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    /// Nanoseconds of a stretch.
    pub step: u64,
    /// The most in each.
    pub most: Vec<u64>,
    last: u64,
}

impl Default for Series {
    fn default() -> Series {
        Series { step: 100_000, most: Vec::new(), last: 0 }
    }
}

impl Series {
    /// The value from this time on.
    pub fn push(&mut self, time: u64, value: u64) {
        let mut at = (time / self.step) as usize;
        while at >= MOST {
            self.most = self.most.chunks(2).map(|pair| pair.iter().copied().max().unwrap_or(0)).collect();
            self.step *= 2;
            at = (time / self.step) as usize;
        }
        if at >= self.most.len() {
            // Until now it stayed what it was, also at the start of this stretch.
            self.most.resize(at + 1, self.last);
        }
        // An event that comes a little late counts where it belongs.
        self.most[at] = self.most[at].max(value);
        self.last = value;
    }

    /// The most in the stretches that this span touches; after the end what was last.
    pub fn within(&self, from: u64, to: u64) -> u64 {
        let at = |time: u64| ((time / self.step) as usize).min(self.most.len());
        let touched = self.most[at(from)..(at(to) + 1).min(self.most.len())].iter().copied().max();
        touched.unwrap_or(self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_of_each_stretch_is_kept_in_bounded_room() {
        let mut series = Series::default();
        for i in 0..1_000_000u64 {
            let value = if i == 500_000 { 7_000 } else { i % 100 };
            series.push(i * 1_000_000, value);
        }
        assert!(series.most.len() <= MOST && series.most.len() > MOST / 4);
        assert_eq!(series.most.iter().max(), Some(&7_000));
        assert_eq!(series.within(500_000 * 1_000_000, 500_000 * 1_000_000), 7_000);
        assert_eq!(series.within(u64::MAX, u64::MAX), 99);
    }

    #[test]
    fn between_events_a_value_stays() {
        let mut series = Series::default();
        series.push(0, 5);
        series.push(1_000_000, 9);
        series.push(1_050_000, 1);
        series.push(2_000_000, 3);
        assert_eq!([500_000, 1_000_000, 1_500_000, 2_000_000].map(|t| series.within(t, t)), [5, 9, 1, 3]);
        assert_eq!((series.within(0, 1_000_000), series.within(1_100_000, 9_000_000)), (9, 3));
    }
}
