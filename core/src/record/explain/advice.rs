//! What would help, each with its number, and only what applies.

use super::books::Books;
use super::holders::Held;
use super::{Failure, PYTORCH};
use crate::record::live::Live;
use crate::text::{bytes, count, percent, plural, time};
use crate::trace::Oom;

/// Pieces of advice given at most.
const MOST: usize = 6;
/// Of them holders that grow: what else would help is to be seen as well.
const LEAKS: usize = 3;

/// What would help.
pub(super) fn of(live: &Live, failure: &Failure, oom: &Oom, books: &Books, held: &[Held]) -> Vec<String> {
    let mut advice = Vec::new();
    if failure.asked > failure.total && failure.total > 0 {
        advice.push(format!(
            "the request is larger than the whole GPU ({}): is its size computed as meant?",
            bytes(failure.total)
        ));
    }
    // A leak needs mending whatever the limit, and whatever the allocator could make of the rest.
    growing(failure, held, &mut advice);
    limit(failure, oom, &mut advice);
    let biggest = biggest(oom, held);
    let grows = held.first().is_some_and(|h| h.growth.is_some());
    let (first, last) = if grows { (biggest, None) } else { (None, biggest) };
    advice.extend(first);
    cached(live, failure, books, &mut advice);
    fragmented(failure, books, &mut advice);
    others(failure, &mut advice);
    advice.extend(last);
    advice.truncate(MOST);
    advice
}

/// The device has room: something else says no.
fn limit(failure: &Failure, oom: &Oom, advice: &mut Vec<String>) {
    if let Some(limit) = oom.refused_by() {
        advice.push(format!(
            "the limit of this process ({}) is {}, and {} of it are in use: raise or drop it (the GPU itself has {} free), or this is how it would end on such a card",
            limit.by,
            bytes(limit.bytes),
            bytes(limit.used),
            bytes(failure.free)
        ));
        return;
    }
    // A grain, and some for the driver itself.
    if failure.asked > 0 && failure.free > oom.needs().saturating_add(64 << 20) {
        let by = if failure.what == PYTORCH { " (set_per_process_memory_fraction?)" } else { "" };
        advice.push(format!(
            "{} are free on the GPU: a limit of this process refused the request{by}",
            bytes(failure.free)
        ));
    }
}

/// Memory that its holder does not use.
fn cached(live: &Live, failure: &Failure, books: &Books, advice: &mut Vec<String>) {
    let small = worth(failure);
    // PyTorch gives back what it can by itself before it gives up.
    if failure.what != PYTORCH && books.gaps.whole >= small {
        advice.push(format!(
            "PyTorch keeps {} in segments without any tensor: torch.cuda.empty_cache() before this call gives them back",
            bytes(books.gaps.whole)
        ));
    }
    let is_cupy = |module: &u32| live.known().path(*module).contains("cupy");
    let cupy: u64 = books.libraries.iter().filter(|(module, _)| is_cupy(module)).map(|(_, bytes)| bytes).sum();
    if cupy >= small {
        advice.push(format!(
            "CuPy holds {}: cupy.get_default_memory_pool().free_all_blocks() gives back what of it is not in use",
            bytes(cupy)
        ));
    }
    if failure.pool_inactive >= small {
        advice.push(format!(
            "vramscope's pool keeps {} that could not be given back: VRAMSCOPE_MAX_CACHED sets how much it may keep",
            bytes(failure.pool_inactive)
        ));
    }
}

/// Enough in PyTorch, but in pieces.
fn fragmented(failure: &Failure, books: &Books, advice: &mut Vec<String>) {
    let (inactive, largest) = (books.pytorch_inactive, books.gaps.largest);
    if failure.asked == 0 || inactive < failure.asked || largest >= failure.asked || books.gaps.total == 0 {
        return;
    }
    let pieces = format!("{} lie unused in PyTorch, the largest piece {}", bytes(inactive), bytes(largest));
    if failure.expandable() {
        return; // (which have no use for max_split_size_mb)
    }
    advice.push(format!("{pieces}: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True lets them join"));
    // Blocks larger than this are then not cut up for smaller requests: it helps where such a one was.
    let most = 1u64 << (failure.asked >> 21).clamp(32, 512).ilog2();
    if !failure.settings().contains("max_split_size_mb") && books.gaps.split_over(most << 20) >= failure.asked {
        advice.push(format!(
            "or, without expandable segments, PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:{most} keeps larger blocks whole"
        ));
    }
}

/// A holder that grew all along.
fn growing(failure: &Failure, held: &[Held], advice: &mut Vec<String>) {
    for h in held {
        let Some(grew) = h.growth.filter(|g| g.busy && g.bytes >= worth(failure)) else { continue };
        let since = time(grew.since);
        let kept = if h.tensor { "kept in a list, or with their graph?" } else { "never freed?" };
        advice.push(format!(
            "{} -> {}, +{} in {since}, at {}: {kept}",
            count(grew.count),
            plural(h.count, "allocation"),
            bytes(grew.bytes),
            h.at,
        ));
        if advice.len() >= LEAKS {
            return;
        }
    }
}

/// A neighbour on the device.
fn others(failure: &Failure, advice: &mut Vec<String>) {
    let Some(others) = failure.others.filter(|o| *o >= worth(failure)) else { return };
    let largest = failure.other.map_or(String::new(), |(pid, most)| format!(", process {pid} {}", bytes(most)));
    advice.push(format!("other processes hold {} of this GPU{largest}: end them, or take another GPU", bytes(others)));
}

/// The first to look at, where nothing else is.
fn biggest(oom: &Oom, held: &[Held]) -> Option<String> {
    let (used, of) = oom.in_use();
    let h = held.first().filter(|h| used > 0 && h.bytes >= used / 5)?;
    let place = &h.at;
    let part = percent(h.bytes.min(used), used);
    let has = format!("the biggest holder has {} ({part} of the {} {of})", bytes(h.bytes), bytes(used));
    match h.growth {
        Some(g) if g.busy => None,
        Some(g) => Some(format!(
            "{has} and grew all along, {} -> {} in {}, at {place}: kept in a list or with their graph, or too much at once?",
            count(g.count),
            plural(h.count, "allocation"),
            time(g.since),
        )),
        None => Some(format!("{has}: a smaller batch or model, or freeing it earlier, at {place}")),
    }
}

/// What is too little to matter: less than a fiftieth of the device and not half of the request.
fn worth(failure: &Failure) -> u64 {
    let part = failure.total / 50;
    if failure.asked > 0 { part.min(failure.asked.div_ceil(2)) } else { part }.max(1)
}
