//! Six lines about a run, for its end.

use super::history::History;
use super::leaks::unfreed;
use super::sizes::Price;
use super::tally::Tally;
use super::text::{bytes, count, percent, plural, time};
use vramscope_core::event::Memory;

/// The lines of a history: names and texts.
pub fn lines(history: &History) -> Vec<(&'static str, String)> {
    vec![
        ("peak", peak(history)),
        ("allocations", allocations(history)),
        ("time saved", saved(history)),
        (if history.killed() { "held at end" } else { "never freed" }, not_freed(history)),
        ("sync", sync(history)),
        ("history", history.path.display().to_string()),
    ]
}

fn peak(history: &History) -> String {
    let (active, reserved) = (&history.facts.ledger.peak, &history.facts.ledger.reserved_peak);
    let (a, r) = (bytes(active.in_use), bytes(reserved.reserved));
    let part = if history.is_part() { " (last part only)" } else { "" };
    if active.time == reserved.time || time(active.time) == time(reserved.time) {
        return format!("{a} active, {r} reserved, at {}{part}", time(active.time));
    }
    format!("{a} active at {}, {r} reserved at {}{part}", time(active.time), time(reserved.time))
}

fn allocations(history: &History) -> String {
    let work = &history.pool;
    let (all, hits) = (work.allocations(), work.hits());
    if history.setting("VRAMSCOPE_POOL", "auto") == "off" {
        return format!("{}, all by the driver (the pool is off)", count(all));
    }
    let failed: u64 = history.errors.failed.values().map(|f| f.count).sum();
    let failed = if failed > 0 { format!("; {} failed", plural(failed, "request")) } else { String::new() };
    format!("{}, {} ({}) served by the pool without the driver{failed}", count(all), count(hits), percent(hits, all))
}

fn saved(history: &History) -> String {
    let work = &history.pool;
    if work.hits() == 0 {
        return "nothing: no driver call was avoided".to_string();
    }
    let (hits, kept) = (work.plain_hits(&history.sizes), work.plain_kept());
    let ordered = work.hits() - hits;
    if hits == 0 {
        let spared = plural(ordered, "stream-ordered allocation");
        return format!("not known: the driver's own pool was not asked, nor timed ({spared} spared it)");
    }
    let avoided = work.avoided(&history.sizes);
    let (allocations, frees) = (plural(hits, "allocation"), plural(kept, "free"));
    let (price, what) = match (avoided.allocations, avoided.frees) {
        (Some(a), Some(f)) if kept > 0 => {
            let both = Price { ns: a.ns.saturating_add(f.ns), calls: a.calls + f.calls };
            (both, format!("{allocations} and {frees}"))
        }
        // What was not timed is not spoken of: it is saved on top.
        (Some(a), _) => (a, allocations),
        (_, Some(f)) if kept > 0 => (f, frees),
        _ => {
            let spared = plural(hits + kept, "call");
            return match avoided.timed {
                0 => format!("not known: no driver call was timed ({spared} spared)"),
                n => format!("not known: the driver was timed only {} ({spared} spared)", plural(n, "time")),
            };
        }
    };
    let rest = if ordered > 0 { format!("; {} stream-ordered not counted", count(ordered)) } else { String::new() };
    format!("about {} for {what} (from {}){rest}", time(price.ns), plural(price.calls, "timed call"))
}

fn not_freed(history: &History) -> String {
    let sum = unfreed(&history.state);
    let mut text = if sum.device.count == 0 {
        "0 B".to_string()
    } else {
        format!("{} in {}", bytes(sum.device.requested), plural(sum.device.count, "allocation"))
    };
    text += &cached(history, sum.device.count);
    if sum.host.count > 0 {
        text += &format!(", and {} of host memory in {}", bytes(sum.host.requested), count(sum.host.count));
    }
    if sum.reset.count > 0 {
        text += &format!(" ({} more freed by their context's end)", count(sum.reset.count));
    }
    text
}

/// Of what was not freed PyTorch's cache, which it keeps until the process ends, and how much of it was in use.
fn cached(history: &History, all: u64) -> String {
    let ledger = &history.facts.ledger;
    if !ledger.has_tensors() {
        return String::new();
    }
    let (mut segments, mut tensors) = (Tally::default(), Tally::default());
    for g in history.state.groups() {
        match g.memory {
            Memory::Tensor => tensors.merge(g.now),
            Memory::Device | Memory::Vmm if ledger.is_pytorch(g.caller) => segments.merge(g.now),
            _ => {}
        }
    }
    let held = format!("{} of it in tensors at the end", bytes(tensors.requested));
    match segments.count {
        0 => String::new(),
        n if n == all => format!(": PyTorch's cache (its segments), {held}"),
        n => format!(", {} in {} of them PyTorch's cache (its segments), {held}", bytes(segments.requested), count(n)),
    }
}

fn sync(history: &History) -> String {
    let work = &history.pool;
    if history.setting("VRAMSCOPE_POOL", "auto") == "off" {
        return "native: every free is the driver's own".to_string();
    }
    let sync = history.setting("VRAMSCOPE_SYNC", "auto");
    let kept = work.kept();
    if kept > 0 && work.device_barriers() + work.host_barriers() == 0 {
        return format!("{sync}: {}, none needed a wait", plural(kept, "free"));
    }
    format!(
        "{sync}: {}, {}",
        plural(work.device_barriers(), "device barrier"),
        plural(work.host_barriers(), "host wait")
    )
}

/// The summary as it is printed: each line begins with the program's name.
pub fn text(history: &History) -> String {
    let lines = lines(history);
    let line = |(name, text): &(&str, String)| format!("vramscope: {name:<12} {text}\n");
    lines.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing::{MIB, Script, sample, trained};
    use vramscope_core::api::Api;
    use vramscope_core::event::{Event, EventKind, FreeHow, Source};

    #[test]
    fn six_lines() {
        let mut history = sample().history();
        history.path = "/job/vramscope-train-4242.jsonl".into();
        assert_eq!(
            text(&history),
            "\
vramscope: peak         829 MiB active at 33.0 ms, 829 MiB reserved at 31.0 ms
vramscope: allocations  215, 200 (93.0 %) served by the pool without the driver; 1 request failed
vramscope: time saved   about 13.4 ms for 200 allocations (from 12 timed calls)
vramscope: never freed  801 MiB in 13 allocations, and 16.0 MiB of host memory in 1
vramscope: sync         auto: 202 device barriers, 0 host waits
vramscope: history      /job/vramscope-train-4242.jsonl
"
        );
    }

    #[test]
    fn what_was_not_timed_is_not_spoken_of() {
        let mut s = Script::new();
        let id = s.direct(Memory::Device, 3 * MIB, 0, 0);
        s.free(id, FreeHow::Cached);
        let nothing = text(&s.history());
        assert!(nothing.contains("time saved   nothing: no driver call was avoided\n"), "{nothing}");
        let mut s = Script::new();
        s.pooled(Source::Hit, 3 * MIB, 4 * MIB, 0, 0);
        let spared = text(&s.history());
        assert!(spared.contains("time saved   not known: no driver call was timed (1 call spared)\n"), "{spared}");
    }

    /// What the arena's own calls took says nothing about what the driver's pool would have taken.
    #[test]
    fn stream_ordered_memory_has_no_price() {
        let ordered = |s: &mut Script, how: Source| {
            let (kind, id) = (EventKind::Alloc, s.id());
            let extra = [0, 0, if how == Source::Miss { 40_000 } else { 0 }];
            s.event(Event { kind, memory: Memory::Async, how: how as u8, id, bytes: MIB, extra, ..Event::default() });
            let (kind, api, how) = (EventKind::Free, Api::CuMemFreeAsync, FreeHow::Cached as u8);
            s.event(Event { kind, api, how, id, ..Event::default() });
        };
        let mut s = Script::new();
        (0..5).for_each(|_| ordered(&mut s, Source::Miss));
        ordered(&mut s, Source::Hit);
        let alone = text(&s.history());
        let said = "not known: the driver's own pool was not asked, nor timed (1 stream-ordered allocation spared it)";
        assert!(alone.contains(&format!("time saved   {said}\n")), "{alone}");
        let mut s = sample();
        (0..7).for_each(|_| ordered(&mut s, Source::Hit));
        let both = text(&s.history());
        let said = "about 13.4 ms for 200 allocations (from 12 timed calls); 7 stream-ordered not counted";
        assert!(both.contains(&format!("time saved   {said}\n")), "{both}");
    }

    #[test]
    fn one_cold_call_prices_nothing() {
        let mut s = Script::new();
        let (mut id, segment) = s.miss(3 * MIB, 4 * MIB, 0);
        for _ in 0..499 {
            s.free(id, FreeHow::Cached);
            id = s.pooled(Source::Hit, 3 * MIB, 4 * MIB, 0, segment);
        }
        let text = text(&s.history());
        assert!(text.contains("not known: the driver was timed only 1 time (998 calls spared)\n"), "{text}");
        assert!(text.contains("sync         auto: 499 frees, none needed a wait\n"), "{text}");
    }

    #[test]
    fn a_killed_programs_memory_was_held_and_a_part_is_called_a_part() {
        let mut s = Script::new();
        s.direct(Memory::Device, 3 * MIB, 0, 0);
        s.footer("killed");
        let mut history = s.history();
        history.footer.as_mut().unwrap().status = Some(134);
        history.header.part = 1;
        let text = text(&history);
        assert!(text.contains("held at end  3.00 MiB in 1 allocation\n"), "{text}");
        assert!(text.contains("(last part only)\n"), "{text}");
    }

    /// What PyTorch keeps until the process ends is no leak: it is said what it is, and what of it was in use.
    #[test]
    fn pytorchs_cache_is_called_so() {
        let (mut s, stack) = trained();
        s.direct(Memory::Device, 20 * MIB, stack, 4);
        s.event(Event { kind: EventKind::Alloc, memory: Memory::Tensor, id: 900, bytes: MIB, ..Event::default() });
        s.event(Event { kind: EventKind::Alloc, memory: Memory::Tensor, id: 901, bytes: MIB, ..Event::default() });
        s.event(Event { kind: EventKind::Free, memory: Memory::Tensor, id: 901, ..Event::default() });
        let all = "never freed  20.0 MiB in 1 allocation: PyTorch's cache (its segments), 1.00 MiB of it in tensors at the end\n";
        assert!(text(&s.history()).contains(all), "{}", text(&s.history()));
        s.direct(Memory::Device, 3 * MIB, stack, 5);
        let some = "never freed  23.0 MiB in 2 allocations, 20.0 MiB in 1 of them PyTorch's cache (its segments), 1.00";
        assert!(text(&s.history()).contains(some), "{}", text(&s.history()));
    }

    #[test]
    fn without_a_pool_nothing_is_claimed() {
        let mut s = Script::new();
        let id = s.direct(Memory::Device, 3 * MIB, 0, 0);
        s.free(id, FreeHow::Driver);
        let text = text(&s.history());
        assert!(text.contains("allocations  1, 0 (0 %) served"), "{text}");
        assert!(text.contains("time saved   nothing: no driver call was avoided"), "{text}");
        assert!(text.contains("never freed  0 B\n"), "{text}");
    }
}
