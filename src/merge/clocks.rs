//! The hosts' clocks: how far apart they are, as far as moments tell that all ranks have in common.

use std::collections::{BTreeMap, BTreeSet, HashMap};

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

/// What a process says of the time by its host's clock.
#[derive(Clone, Debug)]
pub struct Voice {
    host: String,
    /// Moments that all ranks have in common, by name: nanoseconds since 1970.
    moments: Vec<(String, u64)>,
}

impl Voice {
    /// Of a process that came to these marks, and whose libraries for collectives met the other ranks at these times.
    pub fn new<'m>(host: &str, marks: impl Iterator<Item = (&'m str, u64)>, met: impl Iterator<Item = u64>) -> Voice {
        let mut counted: HashMap<&str, u32> = HashMap::new();
        let mut moments: Vec<(String, u64)> = marks
            .map(|(name, time)| {
                let nth = counted.entry(name).or_default();
                *nth += 1;
                (format!("{name}#{nth}"), time)
            })
            .collect();
        // No mark has a name that begins so.
        moments.extend(met.enumerate().map(|(i, time)| (format!("\0{i}"), time)));
        Voice { host: host.to_string(), moments }
    }
}

/// Finds how far the hosts' clocks are apart from the first's. Ranks of one host have one clock.
pub fn apart(voices: &[Voice]) -> Vec<Clock> {
    let Some(reference) = voices.first().map(|v| v.host.as_str()) else { return Vec::new() };
    let hosts: BTreeSet<&str> = voices.iter().map(|v| v.host.as_str()).collect();
    let moments: BTreeMap<&str, BTreeMap<&str, u64>> = hosts.iter().map(|h| (*h, of_host(voices, h))).collect();
    let mut clocks = Vec::new();
    for host in hosts.into_iter().filter(|h| *h != reference) {
        let (ours, theirs) = (&moments[reference], &moments[host]);
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
        clocks.push(Clock { host: host.to_string(), ahead: middle, spread, moments: ahead.len(), corrected });
    }
    clocks
}

/// The same, and corrects the ranks' times.
pub fn align(ranks: &mut [Rank]) -> Vec<Clock> {
    let voice = |rank: &Rank| {
        let marks = rank.run.marks.iter().map(|m| (m.text.as_str(), rank.wall(m.time)));
        Voice::new(rank.host(), marks, rank.run.met.iter().map(|time| rank.wall(*time)))
    };
    let clocks = apart(&ranks.iter().map(voice).collect::<Vec<_>>());
    for clock in clocks.iter().filter(|c| c.corrected) {
        for rank in ranks.iter_mut().filter(|r| r.host() == clock.host) {
            rank.offset = -clock.ahead;
        }
    }
    clocks
}

/// Moments of a host, by name: when the last of its ranks came there, for who is early waits. A library for collectives
/// first takes a device's memory when all ranks have met.
fn of_host<'v>(voices: &'v [Voice], host: &str) -> BTreeMap<&'v str, u64> {
    let mut moments: BTreeMap<&str, u64> = BTreeMap::new();
    for (name, time) in voices.iter().filter(|v| v.host == host).flat_map(|v| &v.moments) {
        let last = moments.entry(name).or_default();
        *last = (*last).max(*time);
    }
    moments
}
