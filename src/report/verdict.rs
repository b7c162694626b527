//! What matters most, in one sentence.

use serde::Serialize;

use super::answers::Answers;
use super::growth::shape::Shape;
use super::growth::suspect::Kind;
use super::oom;
use super::suspects::MANY;
use super::text::{bytes, clean, part, plural, time};

/// Waste that is worth a word: both of these.
const WASTE: f64 = 0.2;
const WASTE_BYTES: u64 = 64 << 20;
/// Time in the driver that is worth a word, of the whole.
const DRIVER: f64 = 0.1;

/// What it is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum About {
    /// Nothing wrong.
    #[default]
    Fine,
    /// A request found no memory.
    OutOfMemory,
    /// Something grows.
    Leak,
    /// A double free, or of something unknown.
    BadFree,
    /// Reserved and not needed.
    Waste,
    /// Much of it is not PyTorch's.
    OutsidePytorch,
    /// Time in the driver.
    DriverTime,
    /// One allocation takes much of the device.
    Preallocation,
    /// Left behind at the end.
    NeverFreed,
    /// The program was killed.
    Killed,
    /// The history may not hold all that the program did.
    Unfinished,
    /// It is one moment, of which no more can be told than what was held.
    Snapshot,
}

/// The sentence.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Verdict {
    /// What it is about.
    pub about: About,
    /// The sentence.
    pub text: String,
}

impl Verdict {
    /// Whether something is wrong.
    pub fn is_bad(&self) -> bool {
        !matches!(self.about, About::Fine | About::OutsidePytorch | About::Preallocation | About::Snapshot)
    }

    /// The most useful thing to say.
    pub fn of(a: &Answers) -> Verdict {
        if a.program.snapshot {
            return snapshot(a);
        }
        let whole = [out_of_memory, leak, bad_free, waste, driver_time, preallocation, never_freed, outside, killed];
        // Who holds what, and what is needed, nobody knows of a time in which recording was paused.
        let paused = [out_of_memory, bad_free, driver_time, killed];
        let all = if a.program.paused { &paused[..] } else { &whole[..] };
        let verdict = match (all.iter().find_map(|f| f(a)), &a.program.incomplete) {
            (None, Some(why)) if a.program.paused => return Verdict { about: About::Unfinished, text: why.clone() },
            (said, _) => said.unwrap_or_else(|| fine(a)),
        };
        let verdict = Verdict { about: verdict.0, text: verdict.1 };
        match &a.program.incomplete {
            None => verdict,
            Some(why) if verdict.is_bad() => Verdict { text: format!("{}; and {why}", verdict.text), ..verdict },
            Some(why) => {
                let of = if a.program.last_part_only { "of what is left" } else { "up to there" };
                Verdict { about: About::Unfinished, text: format!("{why}; {of}: {}", verdict.text) }
            }
        }
    }
}

/// Of one moment nobody can say what grows, is never needed or never freed.
fn snapshot(a: &Answers) -> Verdict {
    let now = &a.glance.end;
    let first =
        now.owners.first().map_or(String::new(), |o| format!(", most of it ({}) by {}", bytes(o.active), o.owner));
    let why = a.program.incomplete.as_ref().map_or(String::new(), |why| format!("; and {why}"));
    let text = format!(
        "a snapshot: {} active, {} reserved at one moment{first}; whether it grows, one moment cannot tell{why}",
        bytes(now.active),
        bytes(now.reserved)
    );
    Verdict { about: About::Snapshot, text }
}

type Said = Option<(About, String)>;

fn out_of_memory(a: &Answers) -> Said {
    let oom = a.out_of_memory.first()?;
    let limit = oom.limit.as_ref().filter(|_| oom.by_limit).map_or(String::new(), |l| {
        format!(" beyond the limit of {} by {}, {} of it in use,", bytes(l.bytes), clean(&l.by), bytes(l.used))
    });
    let head = format!("out of memory at {}: {} {}{limit}", time(oom.time), oom.what, oom::asked(oom));
    let used = oom.in_use;
    let growing = a.leaks.suspects.iter().find(|s| s.kind != Kind::NeverFreed && s.bytes * 5 >= used.min(oom.ours));
    let in_pieces = oom.asked > 0 && oom.pytorch_inactive >= oom.asked && oom.pytorch_largest < oom.asked;
    let cause = if in_pieces && oom.pytorch_inactive * 4 >= oom.pytorch_active {
        format!(
            "while {} lay unused in PyTorch in pieces of at most {}",
            bytes(oom.pytorch_inactive),
            bytes(oom.pytorch_largest)
        )
    } else if let Some(s) = growing {
        format!("after {} had grown to {} ({}, {})", s.place, s.size(), s.kind.name(), s.rate())
    } else if in_pieces {
        format!(
            "while {} lay unused in PyTorch in pieces of at most {}",
            bytes(oom.pytorch_inactive),
            bytes(oom.pytorch_largest)
        )
    } else if oom.total > 0 && oom.asked > oom.total {
        format!("more than the whole GPU has ({})", bytes(oom.total))
    } else if oom.asked > 0 && !oom.by_limit && oom.free > oom.asked.max(oom.segment).saturating_add(64 << 20) {
        format!("and a limit of this process refused it ({} were free on the GPU)", bytes(oom.free))
    } else if oom.total > 0 && oom.others.is_some_and(|o| o * 2 >= oom.total) {
        format!("while other processes held {}", bytes(oom.others.unwrap_or(0)))
    } else {
        match oom.holders.first() {
            Some(h) => format!("with {} active, most of it ({}) from {}", bytes(oom.ours), bytes(h.bytes), h.name),
            None => format!("with {}", oom::free(oom).trim_start()),
        }
    };
    let on = if a.program.status == Some(0) { "; the program went on" } else { "" };
    Some((About::OutOfMemory, format!("{head} {cause}{on}")))
}

fn leak(a: &Answers) -> Said {
    let s = a.leaks.suspects.iter().find(|s| s.kind != Kind::NeverFreed)?;
    let more = a.leaks.suspects.iter().filter(|s| s.kind != Kind::NeverFreed).count() - 1;
    let more = if more > 0 { format!("; and {}", plural(more as u64, "more suspect")) } else { String::new() };
    let text = match s.shape {
        Shape::Bursts => {
            format!("{} climbs to {} and goes at once: {} (no_grad missing?){more}", s.place, s.size(), s.kind.name())
        }
        _ => format!("memory leaks: {} from {}: {}{more}", s.rate(), s.place, s.kind.name()),
    };
    Some((About::Leak, text))
}

fn bad_free(a: &Answers) -> Said {
    let n = a.glance.bad_frees;
    (n > 0).then(|| (About::BadFree, format!("{} of memory that is not live: see the errors below", plural(n, "free"))))
}

fn waste(a: &Answers) -> Said {
    let g = &a.glance;
    if g.waste < WASTE || g.waste_bytes < WASTE_BYTES {
        return None;
    }
    let text = match &a.holes {
        Some(h) if h.free * 2 >= g.waste_bytes => format!(
            "{} of what is reserved ({}) is never needed: fragmentation, PyTorch took new segments while {} lay free in \
             pieces, the largest {}; expandable_segments:True lets them join",
            part(g.waste),
            bytes(g.waste_bytes),
            bytes(h.free),
            bytes(h.largest)
        ),
        _ => format!(
            "{} of what is reserved ({}) is never needed: it is kept for reuse",
            part(g.waste),
            bytes(g.waste_bytes)
        ),
    };
    Some((About::Waste, text))
}

fn outside(a: &Answers) -> Said {
    let peak = &a.glance.peak;
    if !peak.owners.iter().any(|o| o.owner == "PyTorch") {
        return None;
    }
    let (owner, most) = peak.owners.iter().find(|o| o.owner != "PyTorch").map(|o| (&o.owner, o.active))?;
    let all: u64 = peak.owners.iter().filter(|o| o.owner != "PyTorch").map(|o| o.active).sum();
    if all * 3 < peak.active || all < 256 << 20 {
        return None;
    }
    let text = format!(
        "nothing wrong, but {} of the peak ({} of {}) are outside PyTorch, which does not see them: most by {owner} ({})",
        part(all as f64 / peak.active.max(1) as f64),
        bytes(all),
        bytes(peak.active),
        bytes(most)
    );
    Some((About::OutsidePytorch, text))
}

fn driver_time(a: &Answers) -> Said {
    let c = &a.churn;
    let took = c.driver_allocs.took + c.driver_frees.took + c.host_waits.took;
    let calls = c.driver_allocs.count + c.driver_frees.count + c.host_waits.count;
    let all = a.program.time;
    if all == 0 || calls < 100 || (took as f64) < DRIVER * all as f64 {
        return None;
    }
    let place = c.driver_top.first().map_or(String::new(), |t| format!(", most of it at {}", t.name));
    let calls = plural(calls, "call");
    let text = format!(
        "{calls} of the driver for memory took {}, all threads together, in a run of {}{place}",
        time(took),
        time(all)
    );
    Some((About::DriverTime, text))
}

fn never_freed(a: &Answers) -> Said {
    let left: Vec<_> = a.leaks.suspects.iter().filter(|s| s.kind == Kind::NeverFreed).collect();
    let first = left.first()?;
    let sum: u64 = left.iter().map(|s| s.bytes).sum();
    Some((About::NeverFreed, format!("nothing grows, but {} were never freed, first from {}", bytes(sum), first.place)))
}

fn killed(a: &Answers) -> Said {
    a.program.killed.then(|| {
        let text =
            format!("the program was killed with {} active; nothing wrong was seen before", bytes(a.glance.end.active));
        (About::Killed, text)
    })
}

/// One allocation of half the device or more, as JAX makes by itself: what it is used for is not seen.
fn preallocation(a: &Answers) -> Said {
    let total = a.devices.iter().map(|d| d.total).max().filter(|t| *t > 0)?;
    let held = a.holders.iter().find(|h| h.moment == "peak")?.list.entries.first()?;
    if held.count != 1 || held.bytes < total / 2 {
        return None;
    }
    let share = part(held.bytes as f64 / total as f64);
    let jax = if held.what.contains("xla") {
        "; JAX takes it at its start unless XLA_PYTHON_CLIENT_PREALLOCATE=false"
    } else {
        ""
    };
    let text = format!(
        "{} took {} in one piece, {share} of the GPU, and what of it is used is not seen{jax}",
        held.what,
        bytes(held.bytes)
    );
    Some((About::Preallocation, text))
}

fn fine(a: &Answers) -> (About, String) {
    let steps = match &a.leaks.steps {
        Some(s) => format!("nothing wrong: nothing grows over {} steps, ", super::text::count(s.count)),
        None if a.churn.allocations >= MANY => {
            "nothing wrong was seen, but no steps were found to measure growth by; ".to_string()
        }
        None => "nothing wrong: ".to_string(),
    };
    let failed = match a.glance.failed {
        0 => "no request failed".to_string(),
        n => plural(n, "failed request"),
    };
    let waste = match a.glance.waste {
        w if w < 0.01 => "what is reserved is needed".to_string(),
        w => format!("{} of what is reserved is never needed", part(w)),
    };
    (About::Fine, format!("{steps}{failed}, {waste}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Page;
    use crate::report::testing::{MIB, Script, sample};
    use crate::report::text::Paint;
    use vramscope_core::event::{Event, EventKind, FreeHow, Memory};
    use vramscope_core::trace::{Line, Oom, OomLimit};

    fn verdict(s: &Script) -> Verdict {
        let history = s.history();
        Answers::of(&mut Page::new(Paint::default(), &[], 10), &history, &Default::default()).unwrap().glance.verdict
    }

    fn failed(oom: Oom) -> String {
        let mut s = Script::new();
        s.direct(Memory::Device, MIB, 0, 0);
        s.lines.push(Line::Oom(Box::new(oom)));
        s.event(Event { kind: EventKind::Exit, ..Event::default() });
        let verdict = verdict(&s);
        assert_eq!(verdict.about, About::OutOfMemory);
        verdict.text
    }

    #[test]
    fn why_out_of_memory_in_one_sentence() {
        let oom = Oom { what: "PyTorch".into(), asked: 2 << 30, total: 80 << 30, free: MIB, ..Oom::default() };
        let pieces =
            Oom { pytorch_active: 40 << 30, pytorch_inactive: 39 << 30, pytorch_largest: 1 << 30, ..oom.clone() };
        assert!(failed(pieces).ends_with("while 39.0 GiB lay unused in PyTorch in pieces of at most 1.00 GiB"));
        assert!(failed(Oom { asked: 90 << 30, ..oom.clone() }).ends_with("more than the whole GPU has (80.0 GiB)"));
        assert!(failed(Oom { others: Some(60 << 30), ..oom.clone() }).ends_with("while other processes held 60.0 GiB"));
        assert!(failed(Oom { free: 70 << 30, ..oom.clone() }).contains("a limit of this process refused it"));
        let unknown = failed(Oom { total: 0, others: Some(0), ..oom.clone() });
        assert!(unknown.ends_with("PyTorch asked for 2.00 GiB with 1.00 MiB free"), "{unknown}");
        let limit = Some(OomLimit { bytes: 10 << 30, used: 9 << 30, by: "set_limit()".into() });
        let text = failed(Oom { free: 70 << 30, limit, ..oom });
        assert!(text.contains("beyond the limit of 10.0 GiB by set_limit(), 9.00 GiB of it in use, "), "{text}");
    }

    #[test]
    fn what_matters_most_comes_first() {
        // It has a failure without an explanation, and a double free.
        assert_eq!(verdict(&sample()).about, About::BadFree);
        let mut s = Script::new();
        let id = s.direct(Memory::Device, 200 * MIB, 0, 0);
        s.free(id, FreeHow::Driver);
        s.footer("exit");
        let v = verdict(&s);
        assert_eq!(
            (v.about, v.text.as_str()),
            (About::Fine, "nothing wrong: no request failed, what is reserved is needed")
        );
        // Of the same without its end nobody knows.
        s.lines.pop();
        let v = verdict(&s);
        assert_eq!(v.about, About::Unfinished);
        assert!(
            v.is_bad()
                && v.text.starts_with("the history is not finished: ")
                && v.text.contains("; up to there: nothing wrong")
        );
        for end in ["cut", "stopped"] {
            s.footer(end);
            assert_eq!(verdict(&s).about, About::Unfinished, "{end}");
            s.lines.pop();
        }
        s.footer("exit");
        let gone = s.lines.iter().position(|l| matches!(l, Line::Event(..))).unwrap();
        s.lines.remove(gone);
        assert!(verdict(&s).text.contains("1 event fewer than its last line counts"));
        let mut s = Script::new();
        s.direct(Memory::Device, 200 * MIB, 0, 0);
        s.footer("killed");
        let mut history = s.history();
        history.footer.as_mut().unwrap().status = None;
        let answers = Answers::of(&mut Page::new(Paint::default(), &[], 10), &history, &Default::default()).unwrap();
        assert_eq!(answers.glance.verdict.about, About::Killed);
    }

    #[test]
    fn what_was_not_measured_is_not_said_to_be_right() {
        // Cells of a notebook, each a file of its own: no line comes back.
        let mut s = Script::new();
        for cell in 0..70 {
            let stack = s.stack(&[(1, 0x1000 + cell * 16)]);
            let id = s.direct(Memory::Device, MIB, stack, 0);
            s.free(id, FreeHow::Driver);
        }
        s.footer("exit");
        let history = s.history();
        let mut page = Page::new(Paint::default(), &[], 10);
        let answers = Answers::of(&mut page, &history, &Default::default()).unwrap();
        let text = &answers.glance.verdict.text;
        assert!(
            text.starts_with("nothing wrong was seen, but no steps were found to measure growth by; no "),
            "{text}"
        );
        let nothing = &answers.leaks.nothing;
        assert!(nothing.starts_with("nothing was seen to grow, but no steps were found"), "{nothing}");
    }

    #[test]
    fn a_snapshot_is_one_moment() {
        let mut s = Script::new();
        s.direct(Memory::Device, 200 * MIB, 0, 0);
        s.becomes_snapshot();
        let v = verdict(&s);
        assert_eq!(v.about, About::Snapshot);
        assert!(v.text.starts_with("a snapshot: 200 MiB active, 200 MiB reserved at one moment"), "{}", v.text);
    }
}
