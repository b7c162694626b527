//! Whether the histories are one job, whole: which ranks are missing, which are there twice.

use std::collections::{BTreeMap, BTreeSet};

use super::rank::Rank;
use crate::report::text::plural;

/// What the histories are of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct World {
    /// How many ranks the job has, as its environment said.
    pub size: Option<u32>,
    /// Ranks without a history.
    pub missing: Vec<u32>,
    /// What a person should know of it.
    pub says: Vec<String>,
}

/// Puts ranks in order and leaves one history a rank. Those left out are said.
pub fn order(ranks: Vec<Rank>) -> (Vec<Rank>, World) {
    let mut world = World::default();
    let mut by: BTreeMap<(u8, u64), Vec<Rank>> = BTreeMap::new();
    for rank in ranks {
        let h = &rank.run.history.header;
        // Those without a rank last, by process.
        let key = rank.rank.map_or((1, (h.start_seconds << 24) ^ u64::from(h.pid)), |r| (0, r.into()));
        by.entry(key).or_default().push(rank);
    }
    let mut ranks = Vec::new();
    for mut same in by.into_values() {
        if same.first().is_some_and(|r| r.rank.is_none()) {
            ranks.append(&mut same);
            continue;
        }
        // Of one rank's processes (its helpers, or a run before) the one that held most is the rank.
        same.sort_by_key(|r| (std::cmp::Reverse(r.reserved()), r.start));
        let rest = same.split_off(1);
        ranks.append(&mut same);
        for r in &rest {
            world.says.push(format!(
                "{} has another history, left out (a helper process, or an earlier run): {}",
                r.name(),
                r.run.path().display()
            ));
        }
    }
    let known: BTreeSet<u32> = ranks.iter().filter_map(|r| r.rank).collect();
    let sizes: BTreeSet<u32> = ranks.iter().filter_map(|r| r.world).collect();
    if sizes.len() > 1 {
        let list: Vec<String> = sizes.iter().map(u32::to_string).collect();
        world.says.push(format!("not one job: WORLD_SIZE is {}", list.join(" in some and ")));
    }
    world.size = sizes.last().copied();
    let highest = known.last().map_or(0, |r| r.saturating_add(1));
    // A number from outside: no list of millions.
    let all = world.size.unwrap_or(highest).max(highest).min(1 << 16);
    if !known.is_empty() {
        world.missing = (0..all).filter(|r| !known.contains(r)).collect();
    }
    if !world.missing.is_empty() {
        let of = match world.size {
            Some(size) => format!("WORLD_SIZE says {size}"),
            None => format!("the highest rank is {}", highest - 1),
        };
        let (n, list) = (world.missing.len() as u64, list(&world.missing));
        world.says.push(format!(
            "{of}, {} found: {} missing ({} touched no GPU, or its file is elsewhere: another host's disk?)",
            plural(known.len() as u64, "rank"),
            if n == 1 { format!("rank {list} is") } else { format!("ranks {list} are") },
            if n == 1 { "it" } else { "they" }
        ));
    }
    (ranks, world)
}

/// `0-3, 7`.
pub fn list(numbers: &[u32]) -> String {
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for n in numbers {
        match parts.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*n) => *last = *n,
            _ => parts.push((*n, *n)),
        }
    }
    let text = |(from, to): &(u32, u32)| if from == to { from.to_string() } else { format!("{from}-{to}") };
    const MOST: usize = 10;
    let mut text: Vec<String> = parts.iter().take(MOST).map(text).collect();
    if parts.len() > MOST {
        text.push("...".to_string());
    }
    text.join(", ")
}

#[cfg(test)]
mod tests {
    #[test]
    fn lists_of_ranks() {
        assert_eq!(super::list(&[0, 1, 2, 5, 7, 8]), "0-2, 5, 7-8");
        assert_eq!(super::list(&[3]), "3");
    }
}
