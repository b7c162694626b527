//! Marks, regions and pauses of a program's own, in C and from Python.

use std::collections::HashMap;

use crate::api::{api, said};
use crate::from_python::python;
use crate::support::{History, Mode};
use vramscope_core::event::{Event, EventKind};
use vramscope_core::trace::Line;

/// Texts of marks and regions, in their order, each with its thread: `+name`, `-name`, `!mark`, `a5` for 5 MiB, `f`.
pub fn labels(history: &History) -> Vec<String> {
    let (mut texts, mut open) = (HashMap::new(), HashMap::new());
    let mut all = Vec::new();
    for line in &history.lines {
        match line {
            Line::Text(t) => drop(texts.insert(u64::from(t.text), t.value.clone())),
            Line::Event(_, e) => match e.kind {
                EventKind::RegionBegin => {
                    let name = texts.get(&e.extra[0]).expect("its text comes before").clone();
                    all.push(format!("+{name}"));
                    assert!(open.insert(e.id, name).is_none());
                }
                EventKind::RegionEnd => all.push(format!("-{}", open.remove(&e.id).expect("an open region"))),
                EventKind::Pause => all.push("(".to_owned()),
                EventKind::Resume => all.push(")".to_owned()),
                EventKind::Mark => all.push(format!("!{}", texts[&e.extra[0]])),
                EventKind::Alloc => all.push(format!("a{}", e.bytes >> 20)),
                EventKind::Free => all.push("f".to_owned()),
                _ => {}
            },
            _ => {}
        }
    }
    all
}

#[test]
fn marks_and_regions() {
    let run = api("labels").run(Mode::Pooled);
    said(&run);
    let long = format!("+{}", "x".repeat(232));
    let all = labels(&run.history());
    let expected = [
        "+early",
        "!epoch 3",
        "+outer",
        "+inn\"er é",
        "a1",
        "-inn\"er é",
        "!epoch 3",
        "+other thread",
        "a1",
        "-other thread",
        "-outer",
        "+first",
        "+second",
        "f",
        "-first",
        "a3",
        "-second",
        &long,
        "a5",
        &long.replace('+', "-"),
        "-early",
    ];
    assert_eq!(all, expected);
    let history = run.history();
    let begun: Vec<&Event> = history.of(EventKind::RegionBegin).collect();
    assert!(begun.iter().all(|e| e.extra[1] > 0 && e.extra[2] == 0), "each was open before its line");
    let texts = history.lines.iter().filter(|l| matches!(l, Line::Text(_))).count();
    assert_eq!(texts, 8, "each text once, and none of regions in which nothing was");
    let notes = history.lines.iter().filter(|l| matches!(l, Line::Note(n) if n.message.contains("64 regions at once")));
    assert_eq!(notes.count(), 1);
}

#[test]
fn a_region_in_which_nothing_is_costs_little() {
    let run = api("cost").run(Mode::Pooled);
    said(&run);
    println!("{}", run.stderr);
    assert_eq!(run.history().of(EventKind::RegionBegin).count(), 0);
}

#[test]
fn a_pause() {
    let run = api("pause").talks().run(Mode::Pooled);
    said(&run);
    let history = run.history();
    let stacks: Vec<(u64, bool)> = history.of(EventKind::Alloc).map(|e| (e.bytes >> 20, e.stack != 0)).collect();
    assert_eq!(
        stacks,
        [(7, false), (1, true), (3, false), (5, true)],
        "what the driver gives is recorded, without stacks"
    );
    assert_eq!(labels(&history), ["(", "a7", ")", "a1", "(", "a3", "f", ")", "a5", "!seen"], "and when it was");
    let snapshot = History::read(&run.folder.path().join("paused.snapshot"));
    let kinds = snapshot.lines.iter().filter_map(|l| if let Line::Live(_, e) = l { Some(e.kind) } else { None });
    let told: Vec<EventKind> = kinds.filter(|k| matches!(k, EventKind::Pause | EventKind::Resume)).collect();
    assert_eq!(told, [EventKind::Pause, EventKind::Resume], "what lives may not be all");
}

#[test]
fn regions_from_python() {
    let run = python("api_regions.py").run(Mode::Pooled);
    assert_eq!(said(&run), ["done"], "{}", run.stderr);
    assert_eq!(
        labels(&run.history()),
        [
            "+step",
            "+forward",
            "a1",
            "-forward",
            "+raises",
            "a1",
            "-raises",
            "!after",
            "-step",
            "+decorated",
            "a1",
            "+decorated",
            "a1",
            "-decorated",
            "-decorated",
            "+one",
            "a1",
            "-one",
            "+two",
            "a1",
            "-two",
        ]
    );
}

/// Calling a generator or a coroutine runs nothing of it: it is in its region when it goes on. One that another thread closes, or that
/// is cancelled, does no harm.
#[test]
fn regions_of_generators_and_coroutines() {
    let run = python("api_steps.py").run(Mode::Pooled);
    assert_eq!(said(&run), ["done"], "{}", run.stderr);
    let all = labels(&run.history()).join(" ");
    assert_eq!(
        all,
        "+gen a1 -gen a9 +gen a2 -gen +gen a3 -gen +gen f a4 f -gen a9 +co a1 -co +co f a2 f -co a9 +agen a1 -agen a9 +agen a2 -agen \
         +agen a3 -agen a9 +held a1 a9"
    );
    let bare = python("api_steps.py").run(Mode::Bare);
    assert_eq!(said(&bare), ["done"], "{}", bare.stderr);
}
