//! Whether a loop's inputs get longer and longer. A variable that holds one until the next step swells then, as a cache does to
//! which each step joins something, and is no leak.

use std::collections::HashMap;

use super::{Look, lines};
use crate::report::facts::site::Site;

/// Fewest allocations of a line that tells, where there are no steps.
const FEWEST: u64 = 16;
/// What is smaller is a sum, a norm, a loss.
const SUM: u64 = 4 << 10;

impl Look<'_> {
    /// Whether most lines make more the later it is: what keeps no graph, an optimizer, is no line that inputs go through, and
    /// what is small is a sum.
    pub(super) fn inputs_get_longer(&mut self) -> bool {
        let mut lines: HashMap<u32, bool> = HashMap::new();
        let fewest = self.steps.map_or(FEWEST, |s| s.count / 2);
        let forward = |s: &&Site| s.tensor && s.backward * 2 <= s.count && s.count >= fewest;
        let large = |s: &&Site| s.bytes >= s.count * SUM && !self.is_without_graph(s.stack);
        let sites: Vec<&Site> = self.facts.sites.all.iter().filter(forward).filter(large).collect();
        let depth = self.lines.common(sites.iter().map(|s| s.stack));
        for s in sites {
            let Some(line) = lines::at(self.lines.of(s.stack), depth) else { continue };
            *lines.entry(line).or_default() |= s.last_bytes * s.count * 8 > s.bytes * 9;
        }
        // Without a line nothing tells that they do not.
        lines.values().filter(|longer| **longer).count() * 3 >= lines.len() * 2
    }
}
