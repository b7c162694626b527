use super::*;
use crate::report::testing::{Loop, MIB, Script};
use vramscope_core::event::{FreeHow, Source};

mod graph;
mod repeat;

/// A step of training: input, two layers, a loss; backward frees what it needs no more. Gives what the program holds.
fn step(l: &mut Loop) -> Vec<u64> {
    let x = l.tensor("randn", 10, MIB);
    let hidden = l.tensor("addmm", 11, 2 * MIB);
    let act = l.tensor("tanh", 11, 2 * MIB);
    let loss = l.tensor("mean", 12, 512);
    l.drop(hidden);
    let grad = l.tensor("mm", 0, 4 * MIB);
    l.release(act);
    l.drop(loss);
    l.release(grad);
    vec![x]
}

fn find(history: &History) -> Found {
    let mut names = Names::new(&[]);
    names.know(&history.symbols);
    super::find(history, &mut names)
}

/// What is found, whether PyTorch's own cache gives out the tensors or the pool.
fn found(l: &Loop) -> Vec<(Kind, Shape, u64)> {
    let [cached, pooled] = [&l.script, &l.one_by_one()].map(|script| {
        let found = find(&script.history());
        assert_eq!(found.steps.as_ref().map_or(0, |s| s.count.min(1)), 1, "no steps");
        found.suspects.iter().map(|s| (s.kind, s.shape, s.bytes().round() as u64)).collect::<Vec<_>>()
    });
    assert_eq!(pooled, cached, "by the pool");
    cached
}

/// `n` steps, in each of which `more` makes something that it may keep.
fn train(n: u64, mut more: impl FnMut(&mut Loop, u64)) -> Loop {
    let mut l = Loop::new();
    for _ in 0..8 {
        l.tensor("empty", 3, 4 * MIB);
    }
    let mut held = Vec::new();
    for i in 0..n {
        let x = step(&mut l);
        more(&mut l, i);
        // The program's variables go when they are bound anew.
        for id in std::mem::replace(&mut held, x) {
            l.drop(id);
        }
    }
    l.script.footer("exit");
    l
}

#[test]
fn a_healthy_loop_gets_no_suspect() {
    for n in [12, 40, 400] {
        let mut moments = false;
        let l = train(n, |l, i| {
            if !std::mem::replace(&mut moments, true) {
                l.tensor("zeros_like", 14, 8 * MIB);
            }
            if i % 10 == 9 {
                for _ in 0..4 {
                    let y = l.tensor("addmm", 20, MIB);
                    l.drop(y);
                }
            }
        });
        assert_eq!(found(&l), [], "{n} steps");
    }
}

#[test]
fn a_result_that_stays_is_a_reference_kept() {
    let l = train(40, |l, _| {
        let between = l.tensor("abs", 15, 3 * MIB);
        l.tensor("mean", 15, MIB);
        l.drop(between);
    });
    assert_eq!(found(&l), [(Kind::ReferencesKept, Shape::Linear, MIB)]);
}

/// PyTorch 2.15: a matrix product takes its result first and then cuBLAS's workspace.
#[test]
fn scratch_is_no_result() {
    let l = train(40, |l, _| {
        let between = l.tensor("addmm", 15, 3 * MIB);
        l.tensor("addmm", 15, MIB);
        let workspace = l.tensor("getCUDABlasLtWorkspace", 15, 32 * MIB);
        l.drop(workspace);
        l.drop(between);
    });
    let [(kind, shape, _)] = found(&l)[..] else { panic!("{:?}", found(&l)) };
    assert_eq!((kind, shape), (Kind::ReferencesKept, Shape::Linear));
}

#[test]
fn one_an_epoch_is_a_staircase() {
    let l = train(200, |l, i| {
        let y = l.tensor("clone", 15, 2 * MIB);
        if i % 20 != 19 {
            l.drop(y);
        }
    });
    assert_eq!(found(&l)[0].0, Kind::ReferencesKept);
    let bytes = found(&l)[0].2;
    assert!((90 << 10..120 << 10).contains(&bytes), "{bytes}");
}

/// PyTorch's cache of pinned memory keeps what it took: for a few batches ahead of the loop, and one more now and then.
#[test]
fn a_cache_that_is_asked_now_and_then_does_not_grow() {
    let pin = |l: &mut Loop| {
        let stack = l.stack("torch/utils/data/_utils/pin_memory.py:pin_memory", 16);
        l.script.direct(Memory::Pinned, MIB, stack, 4);
    };
    let l = train(80, |l, i| {
        let more = [(0, 6), (2, 2), (50, 2)].iter().find(|(step, _)| *step == i).map_or(0, |(_, more)| *more);
        (0..more).for_each(|_| pin(l));
    });
    assert_eq!(found(&l), []);
    let l = train(80, |l, _| pin(l));
    assert_eq!(found(&l), [(Kind::ReferencesKept, Shape::Linear, MIB)]);
}

#[test]
fn the_rate_is_what_stays_over_the_steps() {
    // Close together in the step: between two points lie more than between the steps in which they fall.
    for n in [27, 30, 34, 100, 333] {
        let l = train(n, |l, _| {
            for _ in 0..4 {
                l.tensor("clone", 15, MIB);
            }
        });
        assert_eq!(found(&l), [(Kind::ReferencesKept, Shape::Linear, 4 * MIB)], "{n} steps");
    }
}

/// All the weights, each 50 steps.
#[test]
fn the_rate_of_stairs_is_that_of_all_steps() {
    for epochs in [5, 6, 7, 8] {
        let l = train(epochs * 50, |l, i| {
            for _ in 0..if i % 50 == 49 { 25 } else { 0 } {
                l.tensor("clone", 15, 2 * MIB);
            }
        });
        assert_eq!(found(&l), [(Kind::ReferencesKept, Shape::Staircase, MIB)], "{epochs} epochs");
    }
}

#[test]
fn a_model_that_is_loaded_again_and_again_may_stay() {
    let load = |l: &mut Loop, i: u64| {
        if i.is_multiple_of(4) {
            for _ in 0..4 {
                l.tensor("torch/nn/modules/module.py:Module._apply", 15, 3 * MIB);
            }
        }
    };
    let l = train(40, load);
    let [(kind, _, bytes)] = found(&l)[..] else { panic!("{:?}", found(&l)) };
    assert_eq!((kind, (bytes + MIB / 2) / MIB), (Kind::ReferencesKept, 3));
}

/// The best weights so far: the old go when the new are there, and the last that are made are in the last step.
#[test]
fn copies_that_take_each_others_place_do_not_grow() {
    for epochs in [4, 5, 6, 12] {
        let mut best = Vec::new();
        let l = train(epochs * 10, |l, i| {
            if i % 10 == 9 {
                let copies: Vec<u64> = (0..6).map(|_| l.tensor("torch/_tensor.py:__deepcopy__", 15, MIB)).collect();
                best.drain(..).for_each(|old| l.drop(old));
                best = copies;
            }
        });
        assert_eq!(found(&l), [], "{epochs} epochs");
    }
}

#[test]
fn no_graph_keeps_what_an_optimizer_makes() {
    let l = train(40, |l, i| {
        for _ in 0..if i.is_multiple_of(4) { 8 } else { 0 } {
            l.tensor("torch/optim/adam.py:Adam._init_group", 15, MIB);
        }
    });
    assert_eq!(found(&l).iter().map(|s| s.0).collect::<Vec<_>>(), [Kind::ReferencesKept]);
}

#[test]
fn a_loop_that_keeps_most_of_what_it_makes_is_busy() {
    let l = train(40, |l, _| {
        for i in 0..24 {
            l.tensor(&format!("clone{i}"), 15, MIB);
        }
    });
    let history = l.script.history();
    assert_eq!(find(&history).suspects[0].live().0, 24 * 40);
}

/// A cache of keys and values to which each token is joined, and lengths that only get larger.
#[test]
fn what_each_step_is_joined_to_swells_and_longer_inputs_do_not() {
    let join = |lengthen: &dyn Fn(u64) -> u64| {
        let mut old = None;
        train(60, |l, i| {
            let new = l.tensor("cat", 15, (1 + i) * MIB);
            if let Some(old) = old.replace(new) {
                l.drop(old);
            }
            for line in 21..24 {
                let scores = l.tensor("bmm", line, lengthen(i));
                l.drop(scores);
            }
        })
    };
    assert_eq!(found(&join(&|_| MIB)), [(Kind::CacheGrowing, Shape::Swelling, MIB)]);
    let longer = |l: &mut Loop, i: u64, held: &mut Vec<u64>| {
        let x = l.tensor("to", 30, (8 + i) << 18);
        let y = l.tensor("addmm", 31, (8 + i) << 20);
        let loss = l.tensor("mean", 32, (8 + i) << 10);
        for id in std::mem::replace(held, vec![x, y, loss]) {
            l.drop(id);
        }
    };
    let (mut l, mut held) = (Loop::new(), Vec::new());
    (0..60).for_each(|i| longer(&mut l, i, &mut held));
    assert_eq!(found(&l), []);
}

#[test]
fn one_for_each_size_is_a_cache_and_a_full_one_is_none() {
    let l = train(40, |l, i| {
        l.tensor("tril", 15, (1 + i) << 18);
    });
    assert_eq!(found(&l)[0].0, Kind::CacheGrowing);
    let mut kept = Vec::new();
    let l = train(40, |l, i| {
        kept.push(l.tensor("tril", 15, (1 + i) << 18));
        if kept.len() > 8 {
            let old = kept.remove(0);
            l.drop(old);
        }
    });
    assert_eq!(found(&l), []);
}

#[test]
fn loading_a_model_is_no_leak() {
    let mut l = Loop::new();
    for i in 0..200 {
        let host = l.tensor("to", 5, MIB);
        l.tensor("empty", 6, MIB + i % 3);
        if i == 0 {
            l.drop(host);
        }
    }
    assert!(find(&l.script.history()).suspects.is_empty());
}

#[test]
fn a_native_program_that_forgets_some_and_some_at_the_end() {
    let mut s = Script::new();
    let (setup, leak, work) = (s.stack(&[(1, 0x10)]), s.stack(&[(1, 0x20)]), s.stack(&[(1, 0x30)]));
    let (_, segment) = s.miss(3 * MIB, 4 * MIB, setup);
    for _ in 0..50 {
        let id = s.pooled(Source::Hit, 2 * MIB, 2 * MIB, work, segment);
        s.pooled(Source::Hit, MIB, MIB, leak, segment);
        s.free(id, FreeHow::Cached);
    }
    s.footer("exit");
    let history = s.history();
    let told: Vec<_> = find(&history).suspects.iter().map(|s| (s.kind, s.bytes().round() as u64, s.live().1)).collect();
    assert_eq!(told, [(Kind::ReferencesKept, MIB, 50 * MIB), (Kind::NeverFreed, 0, 4 * MIB)]);
}

#[test]
fn regions_name_the_steps_and_who_holds_it() {
    use crate::moment::Moment;
    use crate::report::Page;
    use crate::report::answers::{Answers, Asked};
    use crate::report::by::By;
    use crate::report::text::Paint;
    use vramscope_core::event::{Event, EventKind};
    use vramscope_core::trace::{Line, Text};

    let mut l = Loop::new();
    for (text, value) in [(1, "step"), (2, "forward"), (3, "epoch")] {
        l.script.lines.push(Line::Text(Text { text, value: value.into() }));
    }
    let mut held = Vec::new();
    for i in 0..20u64 {
        if i % 10 == 0 {
            l.script.on(1, Event { kind: EventKind::Mark, extra: [3, 0, 0], ..Event::default() });
        }
        l.script.on(1, Event { kind: EventKind::RegionBegin, id: 1000 + i, extra: [1, 0, 0], ..Event::default() });
        l.script.on(1, Event { kind: EventKind::RegionBegin, id: 2000 + i, extra: [2, 0, 0], ..Event::default() });
        l.tensor("clone", 15, MIB);
        l.script.on(1, Event { kind: EventKind::RegionEnd, id: 2000 + i, ..Event::default() });
        for id in std::mem::replace(&mut held, step(&mut l)) {
            l.drop(id);
        }
        l.script.on(1, Event { kind: EventKind::RegionEnd, id: 1000 + i, ..Event::default() });
    }
    let wanted: Moment = "epoch#2".parse().unwrap();
    let history = History::of_lines_at(l.script.lines.iter().cloned(), std::slice::from_ref(&wanted));
    let mut page = Page::new(Paint::default(), &[], 10);
    let asked = Asked { at: vec![wanted], by: By::Region };
    let answers = Answers::of(&mut page, &history, &asked).unwrap();
    let steps = answers.leaks.steps.as_ref().unwrap();
    assert_eq!((steps.count, steps.by, steps.name.as_str()), (20, "region", "step"));
    // Ten clones, and the input of the tenth step.
    let held: Vec<_> = answers.holders[0].list.entries.iter().map(|e| (e.name.as_str(), e.bytes)).collect();
    assert_eq!(held, [("step > forward", 10 * MIB), ("step", MIB)]);
    let regions: Vec<_> = answers.named.regions.iter().map(|r| (r.name.as_str(), r.count, r.allocations)).collect();
    // The first also took a segment, before PyTorch told of any tensor.
    assert_eq!(regions[1], ("step > forward", 20, 21));
    assert_eq!((regions[0].0, answers.named.marks.len()), ("step", 2));
    crate::report::write(&mut page, &history, &answers);
    assert!(page.out.contains("REGIONS, by time") && page.out.contains("MARKS"), "{}", page.out);
}

#[test]
fn what_grew_is_told_exactly_although_steps_hold_more_and_the_exit_frees_it() {
    // (Of 400 steps the curve has no point for each.)
    for n in [40, 400, 4000] {
        let mut l = Loop::new();
        let mut held = Vec::new();
        for i in 0..n {
            // One line makes two, of which one stays; and now and then a third, for a while.
            let first = l.tensor("addmm", 20, MIB);
            held.push(l.tensor("addmm", 20, MIB));
            l.drop(first);
            if i % 7 == 3 {
                let third = l.tensor("addmm", 20, MIB);
                l.drop(third);
            }
            step(&mut l).into_iter().for_each(|id| l.drop(id));
        }
        held.into_iter().for_each(|id| l.drop(id));
        l.script.footer("exit");
        let history = l.script.history();
        let found = find(&history);
        let s = &found.suspects[0];
        assert_eq!((found.suspects.len(), s.exact(), s.live()), (1, true, (n, n * MIB)), "{n} steps");
        let most = history.facts.sites.all[s.parts[0].site as usize].most.count;
        assert!(most > n, "{most}");
    }
}
