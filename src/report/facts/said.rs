//! What each device said of itself nearest to the peak: the last sample before it, and the first after. The peak is not known
//! before the end; but it lies before the next sample, and only then is there anything to decide.

use std::collections::BTreeMap;

use crate::report::state::Sample;

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    last: Option<Sample>,
    /// Of which peak the next two are.
    peak: u64,
    before: Option<Sample>,
    after: Option<Sample>,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Said {
    devices: BTreeMap<u32, Seen>,
}

impl Said {
    /// A device said something, when the highest so far was at `peak`.
    pub(super) fn sample(&mut self, device: u32, sample: Sample, peak: u64) {
        let seen = self.devices.entry(device).or_default();
        if seen.peak != peak {
            (seen.peak, seen.before, seen.after) = (peak, seen.last, None);
        }
        seen.after.get_or_insert(sample);
        seen.last = Some(sample);
    }

    /// What each device said nearest to the peak.
    pub fn nearest(&self, peak: u64) -> impl Iterator<Item = (u32, Sample)> + '_ {
        self.devices.iter().filter_map(move |(device, seen)| {
            let both = if seen.peak == peak { [seen.before, seen.after] } else { [seen.last, None] };
            let nearest = both.into_iter().flatten().min_by_key(|s| s.time.abs_diff(peak))?;
            Some((*device, nearest))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_of_both_sides() {
        let mut said = Said::default();
        let at = |time| Sample { time, used: time, ..Sample::default() };
        let nearest = |said: &Said, peak| said.nearest(peak).map(|(_, s)| s.time).collect::<Vec<_>>();
        assert!(nearest(&said, 5).is_empty());
        // Peaks at 8, and then at 25; what is said after the next sample is too late.
        said.sample(0, at(10), 8);
        assert_eq!(nearest(&said, 8), [10]);
        said.sample(0, at(20), 8);
        assert_eq!((nearest(&said, 8), nearest(&said, 25)), (vec![10], vec![20]));
        said.sample(0, at(40), 25);
        said.sample(0, at(50), 25);
        assert_eq!(nearest(&said, 25), [20]);
        said.sample(0, at(70), 60);
        assert_eq!(nearest(&said, 60), [50]);
        said.sample(1, at(61), 60);
        assert_eq!(nearest(&said, 60), [50, 61]);
    }
}
