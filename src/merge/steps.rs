//! The ranks' marks side by side: who comes late, and who holds more there.

use std::collections::BTreeMap;

use serde::Serialize;

use super::rank::Rank;

/// A mark that several ranks have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// Its text, with a number if it is not the first so named.
    pub name: String,
    /// When the first rank came there, by the job's clock, in nanoseconds since 1970.
    pub first: u64,
    /// How much later the last did.
    pub spread: u64,
    /// Who that was.
    pub last: String,
    /// Ranks that have it.
    pub ranks: usize,
    /// Least bytes in use there, and whose.
    pub least: (u64, String),
    /// Most bytes in use there, and whose.
    pub most: (u64, String),
}

/// A rank at a mark: when, with how many bytes in use, and which.
type Met = (u64, u64, usize);

/// Marks that at least two ranks have, in order of time.
pub fn steps(ranks: &[Rank]) -> Vec<Step> {
    let mut by: BTreeMap<(&str, u64), Vec<Met>> = BTreeMap::new();
    for (i, rank) in ranks.iter().enumerate() {
        for mark in &rank.run.marks {
            by.entry((&mark.text, mark.number)).or_default().push((rank.wall(mark.time), mark.active, i));
        }
    }
    let mut steps: Vec<Step> = by
        .into_iter()
        .filter(|(_, all)| all.len() > 1)
        .filter_map(|((text, number), all)| {
            let first = all.iter().map(|a| a.0).min()?;
            let last = all.iter().max_by_key(|a| a.0)?;
            let least = all.iter().min_by_key(|a| a.1)?;
            let most = all.iter().max_by_key(|a| a.1)?;
            let name = |i: usize| ranks[i].name();
            Some(Step {
                name: if number == 1 { text.to_string() } else { format!("{text}#{number}") },
                first,
                spread: last.0 - first,
                last: name(last.2),
                ranks: all.len(),
                least: (least.1, name(least.2)),
                most: (most.1, name(most.2)),
            })
        })
        .collect();
    steps.sort_by_key(|s| s.first);
    steps
}
