//! A run of neighbours that together may serve a request: which of them do it best.

use super::options::PAGE;

/// A usable record of a run of neighbours.
pub struct Part {
    pub n: u32,
    pub address: u64,
    pub bytes: u64,
    pub hole: bool,
}

/// Bytes to map, bytes of all, address; and the records.
pub type Best = Option<((u64, u64, u64), Vec<u32>)>;

fn offer(best: &mut Best, maps: u64, sum: u64, parts: &[Part]) {
    let Some(first) = parts.first() else { return };
    let key = (maps, sum, first.address);
    if best.as_ref().is_none_or(|b| key < b.0) {
        *best = Some((key, parts.iter().map(|p| p.n).collect()));
    }
}

/// The best part of one run of usable neighbours.
pub fn best_of(run: &[Part], bytes: u64, holes: bool, best: &mut Best) {
    if !holes {
        // The shortest windows that suffice.
        let (mut first, mut sum) = (0, 0);
        for (last, part) in run.iter().enumerate() {
            sum += part.bytes;
            while sum - run[first].bytes >= bytes {
                sum -= run[first].bytes;
                first += 1;
            }
            if sum >= bytes {
                offer(best, 0, sum, &run[first..=last]);
            }
        }
        return;
    }
    for (j, hole) in run.iter().enumerate().filter(|p| p.1.hole) {
        // The free memory below the hole, and as much of the hole as it takes; if all of it, what is above, too.
        let below = run[..j].iter().rev().take_while(|p| !p.hole).count();
        let below_sum: u64 = run[j - below..j].iter().map(|p| p.bytes).sum();
        let (mut sum, mut maps) = (below_sum, 0);
        for (last, part) in run.iter().enumerate().skip(j) {
            let need = bytes.saturating_sub(sum).max(1);
            sum = sum.saturating_add(part.bytes);
            maps += if part.hole { need.next_multiple_of(PAGE).min(part.bytes) } else { 0 };
            if need <= part.bytes {
                offer(best, maps, 0, &run[j - below..=last]);
                break;
            }
        }
        // The end of the hole, and the free memory above it.
        let above = run[j + 1..].iter().take_while(|p| !p.hole);
        let mut sum = 0;
        for (i, part) in above.enumerate() {
            sum += part.bytes;
            let need = bytes.saturating_sub(sum).max(1).next_multiple_of(PAGE);
            if need <= hole.bytes {
                offer(best, need, 0, &run[j..=j + 1 + i]);
            }
            if sum >= bytes {
                break;
            }
        }
    }
}
