//! Six lines about a run, for its end.

use super::history::History;
use super::leaks::unfreed;
use super::text::{bytes, count, percent, plural, time};

/// The lines of a history: names and texts.
pub fn lines(history: &History) -> Vec<(&'static str, String)> {
    vec![
        ("peak", peak(history)),
        ("allocations", allocations(history)),
        ("time saved", saved(history)),
        ("never freed", not_freed(history)),
        ("sync", sync(history)),
        ("history", history.path.display().to_string()),
    ]
}

fn peak(history: &History) -> String {
    let (active, reserved) = (&history.state.peak, &history.state.reserved_peak);
    let (a, r) = (bytes(active.totals.active()), bytes(reserved.totals.reserved()));
    if active.time == reserved.time || time(active.time) == time(reserved.time) {
        return format!("{a} active, {r} reserved, at {}", time(active.time));
    }
    format!("{a} active at {}, {r} reserved at {}", time(active.time), time(reserved.time))
}

fn allocations(history: &History) -> String {
    let work = &history.pool;
    let (all, hits) = (work.allocations(), work.hits());
    if history.setting("VRAMSCOPE_POOL", "auto") == "off" {
        return format!("{}, all by the driver (the pool is off)", count(all));
    }
    let failed: u64 = history.errors.failed.values().map(|f| f.count).sum();
    let failed = if failed > 0 { format!("; {} failed", count(failed)) } else { String::new() };
    format!("{}, {} ({}) served by the pool without the driver{failed}", count(all), count(hits), percent(hits, all))
}

fn saved(history: &History) -> String {
    let work = &history.pool;
    let (hits, kept) = (work.hits(), work.kept());
    if hits == 0 && kept == 0 {
        return "nothing: no driver call was avoided".to_string();
    }
    let avoided = work.avoided(&history.sizes);
    let (allocations, frees) = (plural(hits, "allocation"), plural(kept, "free"));
    match (avoided.allocations, avoided.frees) {
        (Some(a), Some(f)) if kept > 0 => format!("about {} for {allocations} and {frees}", time(a + f)),
        // What was not timed is not spoken of: it is saved on top.
        (Some(a), _) if hits > 0 => format!("about {} for {allocations}", time(a)),
        (_, Some(f)) if kept > 0 => format!("about {} for {frees}", time(f)),
        _ if hits > 0 => format!("not known for {allocations}: no driver call was timed"),
        _ => format!("not known for {frees}: no driver call was timed"),
    }
}

fn not_freed(history: &History) -> String {
    let sum = unfreed(&history.state);
    let mut text = if sum.device.count == 0 {
        "0 B".to_string()
    } else {
        format!("{} in {}", bytes(sum.device.requested), plural(sum.device.count, "allocation"))
    };
    if sum.host.count > 0 {
        text += &format!(", and {} of host memory in {}", bytes(sum.host.requested), count(sum.host.count));
    }
    if sum.reset.count > 0 {
        text += &format!(" ({} more freed by their context's end)", count(sum.reset.count));
    }
    text
}

fn sync(history: &History) -> String {
    let work = &history.pool;
    if history.setting("VRAMSCOPE_POOL", "auto") == "off" {
        return "native: every free is the driver's own".to_string();
    }
    format!(
        "{}: {}, {}",
        history.setting("VRAMSCOPE_SYNC", "auto"),
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
    use crate::report::testing::{MIB, Script, sample};
    use vramscope_core::event::{FreeHow, Memory};

    #[test]
    fn six_lines() {
        let mut history = sample().history();
        history.path = "/job/vramscope-train-4242.jsonl".into();
        assert_eq!(
            text(&history),
            "\
vramscope: peak         829 MiB active at 33.0 ms, 829 MiB reserved at 31.0 ms
vramscope: allocations  215, 200 (93.0 %) served by the pool without the driver; 1 failed
vramscope: time saved   about 13.4 ms for 200 allocations
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
        let text = text(&s.history());
        assert!(text.contains("time saved   not known for 1 free: no driver call was timed\n"), "{text}");
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
