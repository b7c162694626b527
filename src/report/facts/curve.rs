//! How the number of live allocations of one place goes on, in little room: the lowest it was between each allocation and
//! the next, and where there are too many, the lowest of several. What is freed in the meantime does not show in it; what
//! stays does. And how regularly something comes back.

/// Points kept; twice as many are made half as many.
const MOST: usize = 64;

/// The lowest a sum was before an allocation, or before several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// The last of these allocations: how many of this place there were with it.
    pub nth: u64,
    /// The same among all allocations of the history.
    pub ordinal: u64,
    /// Its time.
    pub time: u64,
    /// Fewest live,
    pub count: u64,
    /// and fewest bytes.
    pub bytes: u64,
}

/// The points.
#[derive(Clone, Debug)]
pub struct Curve {
    points: Vec<Point>,
    /// Allocations a point.
    stride: u64,
    low: Point,
    fresh: bool,
}

impl Default for Curve {
    fn default() -> Curve {
        Curve { points: Vec::new(), stride: 1, low: Point::default(), fresh: true }
    }
}

impl Curve {
    /// One more allocation; `before` tells what was live before it.
    pub fn add(&mut self, before: Point) {
        let low = &mut self.low;
        if std::mem::take(&mut self.fresh) {
            *low = before;
        } else {
            (low.count, low.bytes) = (low.count.min(before.count), low.bytes.min(before.bytes));
            (low.nth, low.ordinal, low.time) = (before.nth, before.ordinal, before.time);
        }
        if before.nth.is_multiple_of(self.stride) {
            self.points.push(*low);
            self.fresh = true;
            if self.points.len() == 2 * MOST {
                self.halve();
            }
        }
    }

    fn halve(&mut self) {
        let pair = |p: &[Point]| Point { count: p[0].count.min(p[1].count), bytes: p[0].bytes.min(p[1].bytes), ..p[1] };
        self.points = self.points.chunks_exact(2).map(pair).collect();
        self.stride *= 2;
    }

    /// Whether each allocation has a point of its own.
    pub fn is_whole(&self) -> bool {
        self.stride == 1
    }

    /// The points, the oldest first. Up to a stride of the youngest allocations has none yet.
    pub fn points(&self) -> &[Point] {
        &self.points
    }
}

/// How regularly something comes back, counted in allocations of the whole history.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rhythm {
    last: Option<u64>,
    all: Intervals,
    /// Those that are no pauses.
    short: Intervals,
}

/// An interval that is so many times longer than those before it is a pause, if there are as many before it to tell.
const PAUSE: f64 = 4.0;
/// Pauses are rare, one of so many intervals at most, and together no more than such a part of all: a validation after each epoch. (Of what
/// a layer makes, the rest of the step is the pause.)
const RARE: f64 = 8.0;
const SHARE: f64 = 4.0;

#[derive(Clone, Copy, Debug, Default)]
struct Intervals {
    before: Option<f64>,
    n: f64,
    sum: f64,
    squares: f64,
    local: f64,
}

impl Intervals {
    fn add(&mut self, interval: f64) {
        self.n += 1.0;
        self.sum += interval;
        self.squares += interval * interval;
        if let Some(before) = self.before.replace(interval)
            && interval + before > 0.0
        {
            let change = (interval - before) / (interval + before);
            self.local += change * change;
        }
    }

    /// How much they differ: deviation over mean; and from one to the next: 0 always alike, 1 at random.
    fn unevenness(&self) -> (f64, f64) {
        if self.n < 2.0 || self.sum == 0.0 {
            return (f64::MAX, f64::MAX);
        }
        let mean = self.sum / self.n;
        let variance = (self.squares / self.n - mean * mean).max(0.0);
        (variance.sqrt() / mean, 3.0 * self.local / (self.n - 1.0))
    }

    fn are_regular(&self) -> bool {
        let (all, local) = self.unevenness();
        all < 0.7 && local < 0.3
    }
}

impl Rhythm {
    /// It came at this allocation.
    pub fn beat(&mut self, ordinal: u64) {
        let Some(last) = self.last.replace(ordinal) else { return };
        let interval = (ordinal - last.min(ordinal)) as f64;
        self.all.add(interval);
        let short = &mut self.short;
        if short.n < PAUSE || interval * short.n <= PAUSE * short.sum {
            short.add(interval);
        }
    }

    /// The allocations at which it came first and last.
    pub fn span(&self) -> Option<(u64, u64)> {
        self.last.map(|last| (last.saturating_sub(self.all.sum as u64), last))
    }

    /// Whether it comes back like the steps of a loop: steps may get longer, but not come in bursts; now and then the loop may
    /// pause.
    pub fn is_regular(&self) -> bool {
        let (all, short) = (&self.all, &self.short);
        let rare = (all.n - short.n) * RARE <= all.n && (all.sum - short.sum) * SHARE <= all.sum;
        all.are_regular() || rare && short.are_regular()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_keeps_the_lowest_in_bounded_room() {
        let mut curve = Curve::default();
        for nth in 1..=10_000u64 {
            // Up by one in a hundred, with a saw on top.
            let count = nth / 100 + nth % 7;
            curve.add(Point { nth, ordinal: nth * 3, time: nth, count, bytes: count * 10 });
        }
        let points = curve.points();
        assert!(points.len() >= MOST && points.len() < 2 * MOST);
        let last = points.last().unwrap();
        assert!(last.nth > 9_800 && (96..=100).contains(&last.count), "{last:?}");
        assert!(points.windows(2).all(|p| p[0].count <= p[1].count + 1));
    }

    #[test]
    fn rhythms() {
        let rhythm = |beats: &mut dyn Iterator<Item = u64>| {
            let mut r = Rhythm::default();
            beats.for_each(|b| r.beat(b));
            r
        };
        assert!(rhythm(&mut (0..40).map(|i| i * 25)).is_regular());
        // Each step longer than the one before.
        assert!(rhythm(&mut (0..40).map(|i| i * i * 5)).is_regular());
        // Twelve blocks a step, close together.
        assert!(!rhythm(&mut (0..400).map(|i| i / 12 * 500 + i % 12 * 5)).is_regular());
        // A validation of four batches each ten steps.
        assert!(!rhythm(&mut (0..40).map(|i| i / 4 * 300 + i % 4 * 5)).is_regular());
        assert!(!rhythm(&mut [1, 2].into_iter()).is_regular());
        // A validation after each epoch: four of 100 steps, with as many allocations as 15 steps; and of 40.
        assert!(rhythm(&mut (0..400).map(|i| i / 100 * 1500 + i * 100)).is_regular());
        assert!(rhythm(&mut (0..160).map(|i| i / 40 * 1200 + i * 100)).is_regular());
        // 40 layers, and then the backward pass.
        assert!(!rhythm(&mut (0..4000).map(|i| i / 40 * 200 + i * 5)).is_regular());
        assert!(!rhythm(&mut (0..4000).map(|i| i / 40 * 100 + i * 5)).is_regular());
    }
}
