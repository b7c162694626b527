//! Stitching, as far as it calls the backing; see `stitch.rs`.

use super::Arena;
use super::alloc::Step;
use super::backing::Backing;
use super::core::Core;
use super::counts::count;
use super::pattern::Pattern;
use super::slot::State;
use super::stitch::{Alias, Range, Stitch, aliases};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering::*;
use std::time::Duration;

/// A driver that failed so often and never did it can't.
const PATIENCE: u64 = 8;
/// How long another thread's calls are waited for.
const LONGEST: Duration = Duration::from_secs(1);

impl<B: Backing> Arena<B> {
    /// Maps what a stitched block is made of; then it is a block, or everything is as it was.
    pub(super) fn sew(&self, bytes: u64, mut pattern: Pattern) -> Step<B::Error> {
        let holes = pattern.homes.iter().filter(|n| n.1 == State::Hole).map(|n| n.0).collect::<Vec<_>>();
        if let Err(e) = self.fill(&holes, &mut pattern.maps) {
            count(&self.numbers.failed_grows);
            let need = pattern.maps;
            self.unpick(pattern, Vec::new());
            return Step::NoMemory(e, need);
        }
        let address = self.map.slots.get(pattern.lead.unwrap_or(pattern.n)).address();
        if let Err(left) = self.alias(&aliases(address, &pattern.chunks)) {
            count(&self.numbers.failed_stitches);
            self.unpick(pattern, left);
            let (failed, made) = (&self.numbers.failed_stitches, &self.numbers.stitches);
            if made.load(Relaxed) == 0 && failed.load(Relaxed) >= PATIENCE {
                self.lock().options.stitch_above = u64::MAX;
            }
            return Step::Again;
        }
        count(&self.numbers.stitches);
        let n = pattern.n;
        let evict = !self.pinned.load(SeqCst);
        let over = self.lock().stitched(&self.map, pattern, bytes, evict);
        self.changed.notify_all();
        self.unmap_stitched(over);
        Step::Found(n)
    }

    /// Maps chunks once more, one after the other. On an error none is, but for those that can't be unmapped.
    fn alias(&self, aliases: &[Alias]) -> Result<(), Vec<Alias>> {
        let handles: Vec<_> = {
            let core = self.lock();
            aliases.iter().map_while(|a| core.chunks.get(&a.home).map(|c| c.handle)).collect()
        };
        let each = aliases.iter().zip(handles);
        let mapped = each.take_while(|(a, h)| self.backing.alias(a.address, a.home, a.bytes, *h).is_ok()).count();
        let length = aliases.iter().map(|a| a.bytes).sum();
        if mapped == aliases.len() && aliases.first().is_some_and(|a| self.backing.open(a.address, length).is_ok()) {
            return Ok(());
        }
        Err(self.unmap_aliases(&aliases[..mapped]))
    }

    /// Nothing was stitched; some may be mapped still.
    fn unpick(&self, pattern: Pattern, left: Vec<Alias>) {
        let mut core = self.lock();
        core.committed = core.committed.saturating_sub(pattern.maps);
        core.unpick(&self.map, pattern, left);
        drop(core);
        self.changed.notify_all();
    }

    /// Gives those that are mapped still.
    fn unmap_aliases(&self, aliases: &[Alias]) -> Vec<Alias> {
        aliases.iter().filter(|a| self.backing.unalias(a.address, a.bytes).is_err()).copied().collect()
    }

    /// The addresses of stitched blocks become holes.
    pub(super) fn unmap_stitched(&self, gone: Vec<(u32, Stitch)>) {
        for (n, mut stitch) in gone {
            let before = std::mem::take(&mut stitch.aliases);
            stitch.aliases = self.unmap_aliases(&before);
            let mut core = self.lock();
            core.left(&before);
            core.unstitched(&self.map, n, stitch);
            drop(core);
            self.changed.notify_all();
        }
    }

    /// Those of some chunks, sorted and out of circulation, that can't go back, for they are mapped elsewhere still. Other
    /// threads that unmap them there now are waited for: memory goes back with its last mapping.
    pub(super) fn mapped_elsewhere(&self, chunks: &[Range]) -> BTreeSet<u64> {
        let busy = |core: &mut Core<B>| core.stitches.any_leaves(chunks);
        // Not for ever: a signal handler may have jumped out of such a call.
        let waited = self.changed.wait_timeout_while(self.lock(), LONGEST, busy);
        let core = waited.unwrap_or_else(|p| {
            self.broken.store(true, Relaxed);
            p.into_inner()
        });
        core.0.stitches.mapped_over(chunks)
    }
}
