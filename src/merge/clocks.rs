//! The hosts' clocks: how far apart they are, as far as moments tell that all ranks have in common.

use std::collections::{BTreeMap, BTreeSet};

use super::rank::Rank;

/// What was found of a host's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clock {
    /// The host.
    pub host: String,
    /// Nanoseconds that it is ahead of the first rank's host.
    pub ahead: i64,
    /// How far the moments disagree about it (half of them at least are within).
    pub spread: u64,
    /// How many moments there were.
    pub moments: usize,
    /// Whether times were corrected by it: only if it is clearly more than the moments' disagreement.
    pub corrected: bool,
}

/// Less than that may be the ranks' own.
const SMALL: u64 = 50_000_000;

/// Finds how far clocks are apart, and corrects the ranks' times. Ranks of one host have one clock.
pub fn align(ranks: &mut [Rank]) -> Vec<Clock> {
    let Some(reference) = ranks.first().map(|r| r.host().to_string()) else { return Vec::new() };
    let hosts: BTreeSet<String> = ranks.iter().map(|r| r.host().to_string()).collect();
    let mut moments: BTreeMap<&str, BTreeMap<String, u64>> = BTreeMap::new();
    for host in &hosts {
        moments.insert(host, of_host(ranks, host));
    }
    let mut clocks = Vec::new();
    for host in hosts.iter().filter(|h| **h != reference) {
        let (ours, theirs) = (&moments[reference.as_str()], &moments[host.as_str()]);
        let mut ahead: Vec<i64> = theirs
            .iter()
            .filter_map(|(name, time)| i64::try_from(i128::from(*time) - i128::from(*ours.get(name)?)).ok())
            .collect();
        ahead.sort_unstable();
        let Some(middle) = ahead.get(ahead.len() / 2).copied() else { continue };
        let mut off: Vec<u64> = ahead.iter().map(|a| a.abs_diff(middle)).collect();
        off.sort_unstable();
        let spread = off[off.len() / 2];
        let corrected = middle.unsigned_abs() > SMALL.max(spread.saturating_mul(4));
        clocks.push(Clock { host: host.clone(), ahead: middle, spread, moments: ahead.len(), corrected });
    }
    for clock in clocks.iter().filter(|c| c.corrected) {
        for rank in ranks.iter_mut().filter(|r| r.host() == clock.host) {
            rank.offset = -clock.ahead;
        }
    }
    clocks
}

/// Moments of a host, by name: when the last of its ranks came there, for who is early waits. A library for collectives
/// first takes a device's memory when all ranks have met.
fn of_host(ranks: &[Rank], host: &str) -> BTreeMap<String, u64> {
    let mut moments: BTreeMap<String, u64> = BTreeMap::new();
    for rank in ranks.iter().filter(|r| r.host() == host) {
        let marks = rank.run.marks.iter().map(|m| (format!("{}#{}", m.text, m.number), m.time));
        // No mark has a name that begins so.
        let met = rank.run.met.iter().enumerate().map(|(i, time)| (format!("\0{i}"), *time));
        for (name, time) in marks.chain(met) {
            let last = moments.entry(name).or_default();
            *last = (*last).max(rank.wall(time));
        }
    }
    moments
}
