//! What the steps are: the loop's, and not those of a loop inside of it.

use super::*;
use vramscope_core::event::{Event, EventKind};
use vramscope_core::trace::{Line, Text};

const CALL: &str = "torch/nn/modules/module.py:Module._call_impl";

/// Calls a model of so many layers, of two operators each, in line 11.
fn layers(l: &mut Loop, n: usize) -> Vec<u64> {
    let mut last = None;
    for _ in 0..n {
        for layer in ["linear", "relu"] {
            let stack = format!("torch/nn/functional.py:{layer}<{CALL}<torch/nn/modules/container.py:forward<{CALL}");
            let y = l.tensor(&stack, 11, MIB);
            last.replace(y).into_iter().for_each(|old| l.drop(old));
        }
    }
    last.into_iter().collect()
}

fn steps(l: &Loop) -> (u64, u64, &'static str) {
    let [cached, pooled] = [&l.script, &l.one_by_one()].map(|script| {
        let steps = find(&script.history()).steps.expect("steps");
        (steps.count, steps.allocations, steps.by)
    });
    assert_eq!(pooled, cached, "by the pool");
    cached
}

fn infer(n: u64, layers_of: usize, mut more: impl FnMut(&mut Loop, u64)) -> Loop {
    let mut l = Loop::new();
    l.tensor("empty", 3, 4 * MIB);
    let mut held = Vec::new();
    for i in 0..n {
        let x = l.tensor("randn", 10, MIB);
        let mut y = layers(&mut l, layers_of);
        y.push(x);
        std::mem::replace(&mut held, y).into_iter().for_each(|id| l.drop(id));
        more(&mut l, i);
    }
    l.script.footer("exit");
    l
}

#[test]
fn layers_of_a_forward_pass_are_no_steps() {
    let keeps = |l: &mut Loop, _| _ = l.tensor("to", 12, MIB);
    for (n, of) in [(80, 4), (40, 12), (40, 48)] {
        assert_eq!(steps(&infer(n, of, keeps)), (n, 2 + 2 * of as u64, "recurring"), "{of} layers");
        let found = find(&infer(n, of, keeps).script.history());
        let told: Vec<_> = found.suspects.iter().map(|s| (s.kind, (s.bytes() + 0.5) as u64 / MIB)).collect();
        assert_eq!(told, [(Kind::ReferencesKept, 1)], "{of} layers");
    }
}

/// What is done now and then around the steps does not make them fewer.
#[test]
fn what_comes_every_tenth_step_is_no_step() {
    let l = train(120, |l, i| {
        if i % 10 == 9 {
            let y = l.tensor("stack", 20, MIB);
            l.drop(y);
        }
    });
    assert_eq!(steps(&l).0, 120);
}

/// The program's own words count, also where allocations tell of another loop.
#[test]
fn a_region_or_mark_that_comes_regularly_tells_the_steps() {
    for region in [true, false] {
        let mut l = Loop::new();
        l.script.lines.push(Line::Text(Text { text: 1, value: "step".into() }));
        l.tensor("empty", 3, 4 * MIB);
        let kind = if region { EventKind::RegionBegin } else { EventKind::Mark };
        for i in 0..40u64 {
            l.script.on(1, Event { kind, id: 5000 + i, extra: [1, 0, 0], ..Event::default() });
            layers(&mut l, 12).into_iter().for_each(|y| l.drop(y));
            if region {
                l.script.on(1, Event { kind: EventKind::RegionEnd, id: 5000 + i, ..Event::default() });
            }
        }
        l.script.footer("exit");
        assert_eq!(steps(&l), (40, 24, if region { "region" } else { "mark" }));
    }
}

/// `vramscope.mark("epoch 3")` is none of a step, however regular.
#[test]
fn a_mark_an_epoch_tells_no_steps() {
    let mut marked = false;
    let l = train(120, |l, i| {
        if !std::mem::replace(&mut marked, true) {
            l.script.lines.push(Line::Text(Text { text: 1, value: "epoch".into() }));
        }
        if i % 10 == 0 {
            l.script.on(1, Event { kind: EventKind::Mark, extra: [1, 0, 0], ..Event::default() });
        }
    });
    assert_eq!((steps(&l).0, steps(&l).2), (120, "recurring"));
}

/// Epochs, each with a validation that makes as much as a dozen steps.
#[test]
fn a_validation_after_each_epoch_does_not_hide_the_steps() {
    let epochs = |keeps: bool| {
        train(240, |l, i| {
            let y = l.tensor("addmm", 15, MIB);
            if !keeps {
                l.drop(y);
            }
            for _ in 0..if i % 60 == 59 { 60 } else { 0 } {
                let y = l.tensor("addmm", 20, MIB);
                l.drop(y);
            }
        })
    };
    assert_eq!(steps(&epochs(false)).0, 240);
    assert_eq!(found(&epochs(false)), []);
    assert_eq!(found(&epochs(true)), [(Kind::ReferencesKept, Shape::Linear, MIB)]);
}
