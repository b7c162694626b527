//! Which rank is not like the others: by the median of what each owner holds at the peak, and the median distance from
//! it, so that one rank that is far off does not hide itself.

use std::collections::BTreeSet;

use serde::Serialize;

use super::rank::Rank;

/// A number of a rank that is far from the others'.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Odd {
    /// Which of the ranks, by its place.
    #[serde(skip)]
    pub at: usize,
    /// Its name.
    pub rank: String,
    /// What: an owner at the peak, or a sum.
    pub what: String,
    /// Its bytes.
    pub bytes: u64,
    /// The median of all.
    pub median: u64,
    /// How far the others are from the median, as a rule.
    pub usual: u64,
}

/// Differences of less than this, or of 2 % of what is reserved, are nothing to look at.
const LEAST: u64 = 16 << 20;

/// Two of the numbers' names.
const PEAK: &str = "peak active";
const END: &str = "active at the end";

/// Times the usual distance that is still usual.
const TIMES: f64 = 5.0;

/// For data with a bell's shape the median distance times this is its standard deviation.
const SIGMA: f64 = 1.4826;

/// Differences up to this are none.
fn floor(ranks: &[Rank]) -> u64 {
    LEAST.max(median(ranks.iter().map(Rank::reserved)) / 50)
}

/// The number in which ranks differ, the least and the most of it: the peak, or where that is alike the one with the
/// widest span. Ranks may all differ and none be odd.
pub fn widest(ranks: &[Rank]) -> Option<(String, u64, u64)> {
    let ends = |(what, all): (String, Vec<u64>)| {
        (what, all.iter().copied().min().unwrap_or(0), all.iter().copied().max().unwrap_or(0))
    };
    // What is left at the end is no rank's need, and one that died has nothing there.
    let all = numbers(ranks).into_iter().filter(|(what, _)| what != END).map(ends);
    let mut differ: Vec<_> = all.filter(|(_, least, most)| most - least > floor(ranks)).collect();
    differ.sort_by_key(|(what, least, most)| (what != PEAK, std::cmp::Reverse(most - least)));
    differ.into_iter().next()
}

/// The numbers that are compared, by name.
pub fn numbers(ranks: &[Rank]) -> Vec<(String, Vec<u64>)> {
    let owners: BTreeSet<&String> = ranks.iter().flat_map(|r| r.owners.keys()).collect();
    let mut list = vec![
        (PEAK.to_string(), ranks.iter().map(Rank::peak).collect::<Vec<u64>>()),
        ("peak reserved".to_string(), ranks.iter().map(Rank::reserved).collect()),
    ];
    for owner in owners {
        list.push((owner.clone(), ranks.iter().map(|r| r.owners.get(owner).copied().unwrap_or(0)).collect()));
    }
    list.push((END.to_string(), ranks.iter().map(Rank::end).collect()));
    list
}

/// What is odd, the most bytes first. Of two ranks nobody can say which is the odd one: what differs is told of the larger.
pub fn odd(ranks: &[Rank]) -> Vec<Odd> {
    if ranks.len() < 2 {
        return Vec::new();
    }
    let floor = floor(ranks);
    let mut found = Vec::new();
    for (what, all) in numbers(ranks) {
        let middle = if all.len() == 2 { all[0].min(all[1]) } else { median(all.iter().copied()) };
        let usual = if all.len() == 2 { 0 } else { median(all.iter().map(|n| n.abs_diff(middle))) };
        // A rank that died early holds nothing at the end, nor does one of which only a part was kept.
        for (at, bytes) in all.iter().enumerate().filter(|(at, _)| what != END || !ranks[*at].died) {
            let off = bytes.abs_diff(middle);
            if off > floor && off as f64 > TIMES * SIGMA * usual as f64 {
                let (rank, what) = (ranks[at].name(), what.clone());
                found.push(Odd { at, rank, what, bytes: *bytes, median: middle, usual });
            }
        }
    }
    found.sort_by_key(|o| std::cmp::Reverse(o.bytes.abs_diff(o.median)));
    found
}

/// The rank that is most like all: nearest to the medians.
pub fn typical(ranks: &[Rank], except: usize) -> Option<usize> {
    let numbers = numbers(ranks);
    let off = |at: usize| -> u64 {
        numbers.iter().map(|(_, all)| all[at].abs_diff(median(all.iter().copied()))).fold(0, u64::saturating_add)
    };
    (0..ranks.len()).filter(|at| *at != except).min_by_key(|at| (ranks[*at].died, off(*at)))
}

/// The number in the middle; the smaller one of two.
pub fn median(all: impl Iterator<Item = u64>) -> u64 {
    let mut all: Vec<u64> = all.collect();
    all.sort_unstable();
    all.get(all.len().saturating_sub(1) / 2).copied().unwrap_or(0)
}
