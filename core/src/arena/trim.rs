//! Giving memory back: whole chunks that are free, and that no work touches.

use super::backing::Backing;
use super::core::{Chunk, Core, Map};
use super::slot::State;
use super::{Arena, counts::count};
use std::sync::atomic::Ordering::SeqCst;

impl<B: Backing> Arena<B> {
    /// Gives free chunks back until no more than `keep` bytes are mapped, from the highest addresses down: requests are
    /// served from low ones. Only what is known to be untouched by any work goes; the host never waits. To give back more,
    /// wait for the device and say so with [`all_synced`](Self::all_synced) before. Returns the bytes given back.
    pub fn trim(&self, keep: u64) -> u64 {
        self.trim_but(keep, (0, 0))
    }

    /// The same, but for a range that is about to be used; there is one: from the smallest blocks up, which are of the
    /// least use.
    pub(super) fn trim_but(&self, keep: u64, spared: (u64, u64)) -> u64 {
        if self.pinned.load(SeqCst) {
            return 0;
        }
        self.drain();
        self.probe();
        self.poll();
        let mut core = self.lock();
        if self.is_broken() {
            return 0;
        }
        core.settle_done(&self.map);
        let going = core.claim_chunks(&self.map, keep, spared);
        let mut ranges: Vec<_> = going.iter().map(|(_, address, chunk)| (*address, chunk.bytes)).collect();
        ranges.sort_unstable();
        let stitched = core.unstitch_over(&self.map, &ranges);
        drop(core);
        // First, for memory goes back with its last mapping.
        self.unmap_stitched(stitched);
        let still = self.mapped_elsewhere(&ranges);
        let mut back = 0;
        for (n, address, chunk) in going {
            let result = match still.contains(&address) {
                false => self.backing.unmap(address, chunk.bytes, chunk.handle).map_err(drop),
                true => Err(()),
            };
            let mut core = self.lock();
            core.in_flight -= 1;
            if result.is_ok() {
                core.chunks.remove(&address);
                core.committed = core.committed.saturating_sub(chunk.bytes);
                self.numbers.reserved.add(chunk.bytes.wrapping_neg());
                core.settle_hole(&self.map, n);
                count(&self.numbers.trims);
                back += chunk.bytes;
            } else {
                if let Some(c) = core.chunks.get_mut(&address) {
                    c.going = false;
                }
                core.settle(&self.map, n, State::Free);
            }
        }
        self.changed.notify_all();
        back
    }
}

impl<B: Backing> Core<B> {
    /// Takes free chunks out of circulation until what is left is no more than `keep`.
    fn claim_chunks(&mut self, m: &Map, keep: u64, spared: (u64, u64)) -> Vec<(u32, u64, Chunk<B::Chunk>)> {
        let mut claimed = Vec::new();
        let going: u64 = self.chunks.values().filter(|c| c.going).map(|c| c.bytes).sum();
        let mut left = self.committed.saturating_sub(going);
        if left <= keep {
            return claimed;
        }
        let mut all: Vec<_> = self.chunks.iter().rev().map(|(a, c)| (*a, *c)).collect();
        if spared.1 > 0 {
            all.retain(|(a, c)| a.saturating_add(c.bytes) <= spared.0 || *a >= spared.1);
            all.sort_by_key(|(a, _)| m.index.covering(*a).map_or(0, |n| m.slots.get(n).bytes()));
        }
        for (address, chunk) in all {
            if left <= keep {
                break;
            }
            let Some(n) = m.index.covering(address) else { continue };
            let slot = m.slots.get(n);
            if chunk.going || slot.state() != State::Free || slot.end() < address.saturating_add(chunk.bytes) {
                continue;
            }
            self.pull(m, n);
            slot.set_word(slot.word().with_whole(false));
            let mut n = n;
            if slot.address() < address {
                let right = self.split(m, n, address - slot.address());
                self.put(m, n);
                n = right;
            }
            if m.slots.get(n).bytes() > chunk.bytes {
                let rest = self.split(m, n, chunk.bytes);
                self.put(m, rest);
            }
            m.slots.get(n).set_state(State::Busy);
            self.in_flight += 1;
            if let Some(c) = self.chunks.get_mut(&address) {
                c.going = true;
            }
            left -= chunk.bytes;
            claimed.push((n, address, chunk));
        }
        claimed
    }
}
