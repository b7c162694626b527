//! Whether what a site holds grows, and in which shape. What counts is the floor: the number of allocations below which it
//! never goes again. Within a step it may go up and down as it likes.

use std::collections::HashSet;

use serde::Serialize;

use super::steps::Steps;
use crate::report::facts::curve::Point;
use crate::report::facts::site::Site;

/// Points below which nothing is said.
const FEWEST: usize = 8;

/// PyTorch's cache gives out a large block whole if no more than this would be left of it.
const UNSPLIT: u64 = 1 << 20;

/// How something grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// By about as much all the time.
    Linear,
    /// At some times, and not between them.
    Staircase,
    /// It climbs and falls back to nothing, again and again.
    Bursts,
    /// As many as before, and larger each time: each is made of the one before and more.
    Swelling,
    /// It does not grow: it is there at the end.
    Constant,
}

/// How a site grew.
#[derive(Clone, Copy, Debug)]
pub struct Growth {
    /// In which shape.
    pub shape: Shape,
    /// The first point.
    pub begin: Point,
    /// From where it is measured: after the first quarter,
    pub from: Point,
    /// and to where: before the last quarter, so that what a step holds for a while at the end does not count.
    pub to: Point,
    /// The last point.
    pub end: Point,
}

impl Growth {
    /// Bytes more.
    pub fn bytes(&self) -> u64 {
        self.to.bytes.saturating_sub(self.from.bytes)
    }

    /// Allocations more.
    pub fn count(&self) -> u64 {
        self.to.count.saturating_sub(self.from.count)
    }
}

/// How a site grows, if it does.
pub fn growth(site: &Site, steps: Option<&Steps>) -> Option<Growth> {
    // In the last step, which may not be over, memory lives that the step would have freed.
    let end = steps.map_or(u64::MAX, Steps::last);
    let points = site.curve.points();
    let over = points.partition_point(|p| p.ordinal <= end);
    // What was freed before the next one came did not stay.
    let mut floor = floor(&points[..points.len().min(over + 1)]);
    floor.truncate(over);
    grows(&floor).or_else(|| swells(&points[..over], &floor))
}

/// What keeps its number and gets larger and larger: a tensor to which each step joins something. The old one lives until the
/// new one is there, so it shows before each allocation.
fn swells(points: &[Point], floor: &[Point]) -> Option<Growth> {
    if points.len() < 2 * FEWEST {
        return None;
    }
    let last = floor.len() - 1;
    let at = |part: usize| floor[last / 8 + (last - last / 8) * part / 8].bytes;
    let rose = (0..8).filter(|part| at(part + 1) > at(*part)).count();
    let later = last / 8..floor.len();
    let (number, slack) = (floor[last].count, floor[last].count * UNSPLIT);
    let alike = points[later.clone()].iter().all(|p| p.count == number);
    let dips = later.into_iter().any(|i| points[i].bytes > floor[i].bytes + slack);
    let (begin, from, to, end) = (floor[0], floor[last / 4], floor[last - last / 4], floor[last]);
    let swells = number > 0 && alike && rose >= 7 && !dips && end.bytes * 2 >= from.bytes * 3;
    swells.then_some(Growth { shape: Shape::Swelling, begin, from, to, end })
}

/// Whether it rises in most parts of the steps. A cache that is asked now and then (PyTorch's of pinned memory, for a few batches
/// ahead of the step) keeps all that it took: each of its allocations is more than before, and it is full all the same.
pub fn goes_along(site: &Site, steps: &Steps) -> bool {
    let floor = floor(site.curve.points());
    let part = |p: &Point| (steps.at(p.ordinal) * 8.0 / steps.count as f64) as u32;
    let rises: HashSet<u32> = floor.windows(2).filter(|w| w[1].count > w[0].count).map(|w| part(&w[1])).collect();
    rises.len() >= 5
}

fn grows(floor: &[Point]) -> Option<Growth> {
    if floor.len() < FEWEST {
        return None;
    }
    let last = floor.len() - 1;
    let at = |part: usize| floor[last * part / 8].count;
    let rose: Vec<usize> = (0..8).filter(|part| at(part + 1) > at(*part)).collect();
    // What fell back to nothing in the middle rises in the second half only.
    let both = rose.first().is_some_and(|first| *first < 4) && rose.last().is_some_and(|last| *last >= 4);
    let shape = match rose.len() {
        7.. if both => Shape::Linear,
        3.. if both => Shape::Staircase,
        _ => return None,
    };
    // It rose, and then for long no more: a cache that is full, buffers of a fixed number.
    let steps = floor.windows(2).filter(|w| w[1].count > w[0].count).count();
    let flat = floor.iter().rev().take_while(|p| p.count == floor[last].count).count() - 1;
    if flat >= 4 && flat * steps >= 4 * floor.len() {
        return None;
    }
    let growth = Growth { shape, begin: floor[0], from: floor[last / 4], to: floor[last - last / 4], end: floor[last] };
    // It rose at the beginning and the end only: a copy that takes the place of the one before, of which the last two are there.
    let risen = growth.end.count - growth.begin.count;
    (growth.count() * 5 >= risen).then_some(growth)
}

/// Each point with the lowest sums from there on.
fn floor(points: &[Point]) -> Vec<Point> {
    let mut floor = points.to_vec();
    for i in (0..floor.len().saturating_sub(1)).rev() {
        let next = floor[i + 1];
        floor[i].count = floor[i].count.min(next.count);
        floor[i].bytes = floor[i].bytes.min(next.bytes);
    }
    floor
}

/// How often a site climbed to half of its most or above and fell back to a fifth of that or below.
pub fn bursts(site: &Site) -> u64 {
    let (high, low) = (site.most.count.div_ceil(2), site.most.count / 5);
    let (mut bursts, mut up) = (0, false);
    for p in site.curve.points() {
        if p.count >= high {
            up = true;
        } else if up && p.count <= low {
            bursts += 1;
            up = false;
        }
    }
    // Whether the last was followed by a fall, the end tells.
    bursts + u64::from(up && site.live.0 <= low)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(counts: impl Iterator<Item = u64>) -> Vec<Point> {
        let point = |(i, count): (usize, u64)| {
            let nth = i as u64 + 1;
            Point { nth, ordinal: nth * 10, time: nth, count, bytes: count * 100 }
        };
        counts.enumerate().map(point).collect()
    }

    #[test]
    fn what_grows_and_what_only_moves() {
        let shape = |points: Vec<Point>| grows(&floor(&points)).map(|g| g.shape);
        assert_eq!(shape(curve(0..40)), Some(Shape::Linear));
        // One of twelve in a step stays.
        assert_eq!(shape(curve((0..480).map(|i| i / 12 + i % 12))), Some(Shape::Linear));
        // One an epoch.
        assert_eq!(shape(curve((0..100).map(|i| i / 20))), Some(Shape::Staircase));
        assert_eq!(shape(curve((0..100).map(|_| 3))), None);
        assert_eq!(shape(curve((0..100).map(|i| i % 12))), None);
        // Warm-up, and a cache that is full.
        assert_eq!(shape(curve((0..100).map(|i: u64| i.min(10)))), None);
        assert_eq!(shape(curve((0..40).map(|i: u64| i.min(32)))), None);
        assert_eq!(shape(curve(0..7)), None);
        // The best weights so far, copied now and then: the old go when the new are there.
        let copies = |n: u64| curve((0..6).chain((1..n).flat_map(|_| 6..12)));
        assert_eq!([4, 5, 8, 20].map(|n| shape(copies(n))), [None; 4]);
        // Two validations.
        assert_eq!(shape(curve((0..80).map(|i| i % 40))), None);
        // It grew, and all of it was freed.
        assert_eq!(shape(curve((0..100).map(|i| if i < 90 { i } else { 0 }))), None);
    }

    #[test]
    fn what_is_made_anew_and_larger_each_time_swells() {
        let sizes = |sizes: &mut dyn Iterator<Item = u64>| {
            let point = |(i, halves): (usize, u64)| {
                let (nth, bytes) = (i as u64 + 1, halves * UNSPLIT / 2);
                Point { nth, ordinal: nth * 10, time: nth, count: u64::from(i > 0), bytes }
            };
            sizes.enumerate().map(point).collect::<Vec<_>>()
        };
        let shape = |points: Vec<Point>| swells(&points, &floor(&points)).map(|g| g.shape);
        assert_eq!(shape(sizes(&mut (0..40))), Some(Shape::Swelling));
        // Now and then it got a block that is a little too large.
        assert_eq!(shape(sizes(&mut (0..40).map(|i| i + i * 7 % 3))), Some(Shape::Swelling));
        // Of one size, or of any; a new prompt each; a curriculum of three lengths; a little more on much.
        assert_eq!(shape(sizes(&mut (0..40).map(|_| 9))), None);
        assert_eq!(shape(sizes(&mut (0..40).map(|i| i * 7919 % 40))), None);
        assert_eq!(shape(sizes(&mut (0..40).map(|i| 5 + i % 13))), None);
        assert_eq!(shape(sizes(&mut (0..40).map(|i| 1 + i / 14))), None);
        assert_eq!(shape(sizes(&mut (0..40).map(|i| 1000 + i))), None);
    }

    #[test]
    fn growth_is_measured_in_the_middle() {
        let g = grows(&floor(&curve(0..41))).unwrap();
        assert_eq!((g.count(), g.bytes(), g.from.nth, g.end.nth), (20, 2000, 11, 41));
    }
}
