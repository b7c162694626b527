//! The ranks of a distributed job as one view: a row a rank, which of them is not like the others and why, what the
//! libraries for communication hold, times by one clock.
//!
//! Nothing is written into one file: numbers, stacks and modules mean other things in each history, and `report`,
//! `export` and `diff` want a process at a time. Nothing here prints.

use std::collections::BTreeMap;

use crate::diff::change::{self, Change};
use crate::diff::held::{self, Look};
use crate::diff::run::collective;
use crate::symbols::Names;

pub mod choose;
pub mod clocks;
pub mod find;
pub mod json;
pub mod odd;
pub mod rank;
pub mod steps;
pub mod table;
pub mod text;
pub mod total;
pub mod world;

use clocks::Clock;
use odd::Odd;
use rank::Rank;
use steps::Step;
use total::Total;
use world::World;

/// A job.
#[derive(Debug)]
pub struct Job {
    /// Its ranks, in order.
    pub ranks: Vec<Rank>,
    /// Whether it is whole.
    pub world: World,
    /// The hosts' clocks.
    pub clocks: Vec<Clock>,
    /// What it needs in all.
    pub total: Total,
    /// What is odd.
    pub odd: Vec<Odd>,
    /// The odd rank's stacks against those of a rank that is like the others.
    pub differing: Option<Differing>,
    /// Marks that ranks have in common.
    pub steps: Vec<Step>,
    /// Libraries for communication: what each rank gave them at its peak.
    pub collectives: BTreeMap<String, Vec<u64>>,
    /// GPUs that several ranks use: UUID and names of ranks.
    pub shared: Vec<(String, Vec<String>)>,
}

/// Stacks of two ranks that hold differently much at the peak.
#[derive(Debug)]
pub struct Differing {
    /// The odd rank.
    pub odd: String,
    /// The one it is compared with.
    pub typical: String,
    /// What differs most, first. After is the odd rank.
    pub changes: Vec<Change>,
}

impl Job {
    /// The job of some ranks.
    pub fn of(ranks: Vec<Rank>) -> Job {
        let (mut ranks, world) = world::order(ranks);
        let clocks = clocks::align(&mut ranks);
        let mut collectives: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        let names = ranks.iter().flat_map(|r| r.owners.keys()).filter(|n| collective(n));
        for name in names {
            collectives.insert(name.clone(), Vec::new());
        }
        for (name, bytes) in &mut collectives {
            bytes.extend(ranks.iter().map(|r| r.owners.get(name).copied().unwrap_or(0)));
        }
        let mut by_gpu: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for rank in &ranks {
            for gpu in rank.gpus() {
                by_gpu.entry(gpu.to_string()).or_default().push(rank.name());
            }
        }
        by_gpu.retain(|_, ranks| ranks.len() > 1);
        Job {
            world,
            clocks,
            total: Total::of(&ranks),
            odd: odd::odd(&ranks),
            differing: None,
            steps: steps::steps(&ranks),
            collectives,
            shared: by_gpu.into_iter().collect(),
            ranks,
        }
    }

    /// Compares the stacks of the oddest rank with those of a typical one. Names are looked up by these, one each.
    pub fn look_closer(&mut self, names: [&mut Names; 2]) {
        let Some(at) = self.odd.first().map(|o| o.at) else { return };
        let Some(other) = odd::typical(&self.ranks, at) else { return };
        let (odd, typical) = (&self.ranks[at], &self.ranks[other]);
        let [one, two] = names;
        let held = |rank: &Rank, names: &mut Names| {
            let run = &rank.run;
            held::holders(run, &mut Look { names, all_frames: false }, |g| run.held.at_peak(g))
        };
        let mut changes = change::changes(held(typical, one), held(odd, two));
        changes.retain(|c| c.bytes() != 0);
        self.differing = Some(Differing { odd: odd.name(), typical: typical.name(), changes });
    }
}

#[cfg(test)]
mod tests;
