//! Runs whose difference is known by construction.

use vramscope_core::event::{Event, EventKind, FreeHow, Memory, Source};
use vramscope_core::trace::{Frame, Line, Text};

use super::align::Match;
use super::change::Change;
use super::verdict::{Limit, failures, verdict};
use super::*;
use crate::moment::Moment;
use crate::report::Page;
use crate::report::testing::{Loop, MIB, Script, named};
use crate::report::text::{Paint, WIDTH};

fn run(script: &Script, basis: &Basis) -> Run {
    Run::of_lines(script.lines.iter().cloned(), basis)
}

/// Names for a program: offset, function, line.
fn names(all: &[(u64, &str, u32)]) -> Names {
    let mut names = Names::new(&[]);
    for (offset, function, line) in all {
        names.insert(1, *offset, vec![named(function, "/job/model.cu", *line)]);
    }
    names
}

/// Compares two runs of one program, each with names of its own.
fn compared(runs: [(&Script, Names); 2], basis: Basis) -> Diff {
    let [(b, mut one), (a, mut other)] = runs;
    compare(&run(b, &basis), &run(a, &basis), &basis, [&mut one, &mut other], false)
}

/// A tensor of PyTorch's, as its own allocator tells.
fn tensor(s: &mut Script, bytes: u64, stack: u32) -> u64 {
    s.direct(Memory::Tensor, bytes, stack, 0)
}

fn mark(s: &mut Script, text: u32) {
    s.event(Event { kind: EventKind::Mark, extra: [u64::from(text), 0, 0], ..Event::default() });
}

/// The changes by function and line of the innermost frame.
fn told(diff: &Diff) -> Vec<(String, i64, Option<Match>)> {
    let text = |c: &Change| c.frames.first().map_or(c.note.clone(), |f| format!("{} {}", f.what, f.place));
    diff.changes.iter().map(|c| (text(c), c.bytes() / MIB as i64, c.how)).collect()
}

/// The weights, and as much for a batch as `batch` says. Addresses from `base` on, and stacks in another order if asked.
fn trained(base: u64, batch: u64, other_order: bool) -> Script {
    let mut s = Script::new();
    let mut stacks = [vec![(1, base + 0x10), (1, base + 0x90)], vec![(1, base + 0x20), (1, base + 0x90)]];
    if other_order {
        stacks.reverse();
    }
    let numbers = stacks.map(|frames| s.stack(&frames));
    let [weights, forward] = if other_order { [numbers[1], numbers[0]] } else { numbers };
    for _ in 0..3 {
        s.direct(Memory::Device, 40 * MIB, weights, 1);
    }
    let id = s.direct(Memory::Device, batch * MIB, forward, 1);
    s.free(id, FreeHow::Driver);
    s.event(Event { kind: EventKind::Exit, ..Event::default() });
    s
}

#[test]
fn addresses_and_lines_may_move() {
    let before = (
        &trained(0x1000, 64, false),
        names(&[(0x1010, "load()", 10), (0x1020, "forward()", 20), (0x1090, "main", 90)]),
    );
    let after = (
        &trained(0x7000, 128, true),
        names(&[(0x7010, "load()", 13), (0x7020, "forward()", 23), (0x7090, "main", 93)]),
    );
    let diff = compared([before, after], Basis::default());
    assert_eq!(
        told(&diff),
        [
            ("forward() model.cu:23".to_string(), 64, Some(Match::Lines)),
            ("load() model.cu:13".to_string(), 0, Some(Match::Lines))
        ]
    );
    assert_eq!((diff.held, diff.grew()), ([184 * MIB, 248 * MIB], 64 * MIB as i64));
    assert!(
        verdict(&diff)
            .starts_with("+64.0 MiB at the peak (+34.8 %, 184 MiB -> 248 MiB); 1 stack grew; most by forward()")
    );
}

#[test]
fn renamed_functions_new_stacks_and_gone_ones() {
    let script = |frames: &[&[(u32, u64)]]| {
        let mut s = Script::new();
        for frames in frames {
            let stack = s.stack(frames);
            s.direct(Memory::Device, 10 * MIB, stack, 1);
        }
        s
    };
    let deep = |offset| vec![(1, offset), (1, 0x60), (1, 0x70), (1, 0x90)];
    let common = [(0x60, "step", 60), (0x70, "epoch", 70), (0x90, "main", 90)];
    let of = |more: &[(u64, &'static str, u32)]| names(&[&common[..], more].concat());
    let before = script(&[&deep(0x10), &[(1, 0x20), (1, 0x90)]]);
    let after = script(&[&deep(0x10), &[(1, 0x30), (1, 0x90)]]);
    let diff = compared(
        [
            (&before, of(&[(0x10, "attend", 1), (0x20, "old_cache", 2)])),
            (&after, of(&[(0x10, "attention", 5), (0x30, "new_cache", 3)])),
        ],
        Basis::default(),
    );
    let mut told = told(&diff);
    told.sort();
    assert_eq!(
        told,
        [
            ("attention model.cu:5".to_string(), 0, Some(Match::Nearly)),
            ("new_cache model.cu:3".to_string(), 10, None),
            ("old_cache model.cu:2".to_string(), -10, None)
        ]
    );
    assert!(diff.changes.iter().any(Change::is_new) && diff.changes.iter().any(Change::is_gone));
    assert!(verdict(&diff).starts_with("as much at the peak: 20.0 MiB; 1 is new, 1 is gone"), "{}", verdict(&diff));
}

#[test]
fn a_stack_that_holds_nothing_at_the_moment_is_not_new() {
    let script = |keep: bool| {
        let mut s = Script::new();
        let (one, other) = (s.stack(&[(1, 0x10)]), s.stack(&[(1, 0x20)]));
        let id = s.direct(Memory::Device, MIB, one, 1);
        if !keep {
            s.free(id, FreeHow::Driver);
        }
        s.direct(Memory::Device, 5 * MIB, other, 1);
        s
    };
    let names = || names(&[(0x10, "cache", 1), (0x20, "weights", 2)]);
    let diff = compared([(&script(false), names()), (&script(true), names())], Basis::default());
    assert_eq!(told(&diff)[0], ("cache model.cu:1".to_string(), 1, Some(Match::Exact)));
}

#[test]
fn tensors_stand_in_the_place_of_their_segments() {
    let script = |tensors: u64| {
        let mut s = Script::new();
        s.module(4, "/usr/lib/libc10_cuda.so");
        let segment = s.stack(&[(4, 0x10)]);
        let step = s.python("step", "/job/train.py", 7);
        let step = s.stack_of(&[Frame::Native(4, 0x20), step]);
        s.direct(Memory::Device, 20 * MIB, segment, 4);
        for _ in 0..tensors {
            tensor(&mut s, 2 * MIB, step);
        }
        s
    };
    let diff = compared([(&script(3), Names::new(&[])), (&script(8), Names::new(&[]))], Basis::default());
    assert_eq!(told(&diff), [("step train.py:7".to_string(), 10, Some(Match::Exact))]);
    assert_eq!((diff.held, diff.reserved), ([6 * MIB, 16 * MIB], [20 * MIB, 20 * MIB]));
    let row = |name: &str| diff.headline.iter().find(|r| r.name == name).map(|r| (r.before / MIB, r.after / MIB));
    assert_eq!(row("peak active"), Some((6, 16)));
    assert_eq!(row("PyTorch's tensors"), Some((6, 16)));
    assert_eq!((row("direct"), row("kept by PyTorch")), (None, Some((14, 4))));
}

#[test]
fn moments() {
    let script = |late: u64| {
        let mut s = Script::new();
        s.lines.push(Line::Text(Text { text: 1, value: "step".into() }));
        let stack = s.stack(&[(1, 0x10)]);
        s.direct(Memory::Device, MIB, stack, 1);
        mark(&mut s, 1);
        let id = s.direct(Memory::Device, late * MIB, stack, 1);
        mark(&mut s, 1);
        s.free(id, FreeHow::Driver);
        s
    };
    let held = |moment: &str| {
        let diff = compared([(&script(3), Names::new(&[])), (&script(9), Names::new(&[]))], moment.parse().unwrap());
        diff.held.map(|b| b / MIB)
    };
    assert_eq!(held("peak"), [4, 10]);
    assert_eq!(held("most"), [4, 10]);
    assert_eq!(held("end"), [1, 1]);
    assert_eq!(held("total"), [4, 10]);
    assert_eq!(held("step"), [1, 1]);
    assert_eq!(held("step#2"), [4, 10]);
    // The first event is at 1 ms, each other one 1 ms later.
    assert_eq!(held("2.5ms"), [1, 1]);
    assert_eq!(held("4ms"), [4, 10]);
    assert_eq!(held("1h"), [1, 1]);
    let run = run(&script(1), &"epoch".parse().unwrap());
    assert!(!run.held.has_moment());
    assert_eq!(
        run.marks.iter().map(|m| (m.text.as_str(), m.number, m.active / MIB)).collect::<Vec<_>>(),
        [("step", 1, 1), ("step", 2, 2)]
    );
}

#[test]
fn a_pool_a_context_and_a_free_that_failed() {
    let moment = Basis::At(Moment::End);
    let mut s = Script::new();
    let stack = s.stack(&[(1, 0x10)]);
    let (id, segment) = s.miss(3 * MIB, 4 * MIB, stack);
    s.free(id, FreeHow::CachedDevice);
    let id = s.pooled(Source::Hit, 4 * MIB, 4 * MIB, stack, segment);
    let kept = s.direct(Memory::Device, 7 * MIB, stack, 1);
    s.free(kept, FreeHow::Driver);
    s.event(Event { kind: EventKind::FreeFailed, id: kept, code: 1, ..Event::default() });
    let first = run(&s, &moment);
    assert_eq!((first.held.now().active(false), first.held.reserved.bytes), (11 * MIB, 11 * MIB));
    assert_eq!(first.held.now().outside(false), 7 * MIB);
    // The block leaves the pool with its segment.
    s.event(Event { kind: EventKind::Export, id, ..Event::default() });
    let exported = run(&s, &moment);
    assert_eq!((exported.held.now().active(false), exported.held.now().outside(false)), (11 * MIB, 11 * MIB));
    assert_eq!(exported.held.now().reserved(), 11 * MIB);
    s.event(Event { kind: EventKind::ContextEnd, context: 1, ..Event::default() });
    assert_eq!(run(&s, &moment).held.now().reserved(), 0);
    assert_eq!(run(&s, &moment).held.peak().bytes, 11 * MIB);
}

#[test]
fn snapshots_and_later_parts_are_compared_as_far_as_they_go() {
    let whole = trained(0x1000, 64, false);
    // What was live in it, as a snapshot has it, and as a later part of a rotated history begins.
    let opening = |part: bool| {
        let mut s = trained(0x1000, 64, false);
        let live = |line: Line| match line {
            Line::Event(thread, e) if e.kind == EventKind::Alloc => Some(Line::Live(thread, e)),
            Line::Event(..) => None,
            other => Some(other),
        };
        s.lines = s.lines.into_iter().filter_map(live).collect();
        if let Some(Line::Header(h)) = s.lines.first_mut() {
            (h.part, h.events_before) = (u32::from(part), 6);
        }
        s.footer(if part { "exit" } else { "snapshot" });
        s
    };
    let names = || names(&[(0x1010, "load()", 10), (0x1020, "forward()", 20), (0x1090, "main", 90)]);
    for (part, says) in [(false, "after: a snapshot"), (true, "after: only the last part of the run is left")] {
        let diff = compared([(&whole, names()), (&opening(part), names())], Basis::default());
        assert_eq!((diff.held, diff.changes.len()), ([184 * MIB; 2], 2));
        assert!(diff.caveats.iter().any(|c| c.starts_with(says)), "{:?}", diff.caveats);
    }
    let nothing = compared([(&Script::new(), names()), (&whole, names())], Basis::At(Moment::End));
    assert_eq!((nothing.held[0], nothing.of(false).filter(|c| c.is_new()).count()), (0, 1));
    assert!(flame::svg(&nothing).is_ok());
}

#[test]
fn libraries_are_compared_where_there_are_no_stacks() {
    let script = |file: &str, bytes| {
        let mut s = Script::new();
        s.module(4, file);
        s.direct(Memory::Device, bytes, 0, 4);
        s
    };
    let (before, after) = (script("/usr/lib/libnccl.so.2", MIB), script("/opt/libnccl.so.3", 3 * MIB));
    let diff = compared([(&before, Names::new(&[])), (&after, Names::new(&[]))], Basis::default());
    assert_eq!((diff.changes.len(), diff.grew()), (1, 2 * MIB as i64));
    assert!(diff.caveats.iter().any(|c| c.contains("libraries are compared")), "{:?}", diff.caveats);
    let row = diff.headline.iter().find(|r| r.name == "of it libnccl.so").unwrap();
    assert_eq!((row.before, row.after), (MIB, 3 * MIB));
    assert!(diff.differs.iter().any(|d| (d.before.as_str(), d.after.as_str()) == ("libnccl.so.2", "libnccl.so.3")));
}

#[test]
fn growth_that_fails() {
    let names = || names(&[(0x1010, "load()", 10), (0x1020, "forward()", 20), (0x1090, "main", 90)]);
    let diff = |batch, moment| {
        compared([(&trained(0x1000, 64, false), names()), (&trained(0x1000, batch, false), names())], moment)
    };
    assert_eq!(failures(&diff(66, Basis::default()), Limit::Percent(5.0)), Vec::<String>::new());
    assert_eq!(
        failures(&diff(128, Basis::default()), Limit::Percent(5.0)),
        [
            "memory in use at the peak grew from 184 MiB to 248 MiB (+34.8 %)",
            "memory reserved at most grew from 184 MiB to 248 MiB (+34.8 %)"
        ]
    );
    assert_eq!(failures(&diff(128, Basis::At(Moment::End)), Limit::Bytes(0)), Vec::<String>::new());
    assert_eq!(failures(&diff(32, Basis::default()), Limit::Bytes(0)), Vec::<String>::new());
}

#[test]
fn written_within_the_screen_and_as_json() {
    let (mut before, mut after) = (trained(0x1000, 64, false), trained(0x7000, 200, true));
    before.footer("exit");
    let pinned = after.stack(&[(1, 0x7020)]);
    after.direct(Memory::Pinned, 9 * MIB, pinned, 1);
    if let Some(Line::Header(h)) = after.lines.first_mut() {
        h.arguments = vec!["./program".into(), "--steps".into(), "200".into()];
    }
    let moment = Basis::default();
    let (b, a) = (run(&before, &moment), run(&after, &moment));
    let mut one = names(&[(0x1010, "load()", 10), (0x1020, "forward()", 20), (0x1090, "main", 90)]);
    let mut other = names(&[(0x7010, "load()", 13), (0x7020, "forward()", 23), (0x7090, "main", 93)]);
    let diff = compare(&b, &a, &moment, [&mut one, &mut other], false);
    let mut page = Page::new(Paint::default(), &[], 10);
    text::write(&mut page, &diff, &b, &a);
    println!("{}", page.out);
    for line in page.out.lines() {
        assert!(line.chars().count() <= WIDTH && line.is_ascii() && line.trim_end() == line, "{line:?}");
    }
    for part in [
        "arguments             --steps 100 -> --steps 200",
        "GREW at the peak, by call stack: +136 MiB",
        "1.   +136 MiB   x3.12   64.0 MiB in 1 -> 200 MiB in 1  cuMemAlloc by program",
        "(before: model.cu:20 and 1 more line)",
        "+136 MiB at the peak (+73.9 %, 184 MiB -> 320 MiB)",
    ] {
        assert!(page.out.contains(part), "{part} is missing");
    }
    let json: serde_json::Value = serde_json::from_str(&json::write(&diff, &b, &a, &[])).unwrap();
    assert_eq!(json["stacks"][0]["change"], 136 * MIB);
    assert_eq!(json["stacks"][0]["match"], "lines");
    assert_eq!(json["held"]["after"], 320 * MIB);
    assert_eq!(json["stacks"][0]["frames"][0]["function"], "forward()");
    let svg = String::from_utf8(flame::svg(&diff).unwrap()).unwrap();
    assert!(svg.contains("forward() (model.cu)") && svg.contains("<svg"));
    assert_eq!(flame::folded(&diff)[0], format!("main (model.cu);forward() (model.cu) {} {}", 64 * MIB, 200 * MIB));
}

/// The same tensors, in PyTorch's segments and each an allocation of its own, are as many allocations of as many bytes.
#[test]
fn segments_are_not_counted_beside_their_tensors() {
    let mut l = Loop::new();
    for line in 1..=5 {
        let id = l.tensor("aten::relu", line, 3 * MIB);
        l.drop(id);
    }
    let apart = run(&l.one_by_one(), &Basis::default()).work;
    let work = run(&l.script, &Basis::default()).work;
    assert_eq!((work.allocations, work.bytes), (5, 15 * MIB));
    assert_eq!((work.allocations, work.bytes), (apart.allocations, apart.bytes));
    // What another library took counts.
    l.script.direct(Memory::Device, MIB, 0, 9);
    assert_eq!(run(&l.script, &Basis::default()).work.allocations, 6);
}
