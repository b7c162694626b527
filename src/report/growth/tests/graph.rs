//! What a graph keeps, what gradients do, and what only looks like it.

use super::*;
use crate::report::testing::SUM;

#[test]
fn what_lies_between_is_a_graph() {
    // Also if the loss itself is added to another, and goes.
    for loss_goes in [false, true] {
        let mut before = None;
        let l = train(40, |l, _| {
            l.tensor("sub", 14, 3 * MIB);
            l.tensor("abs", 15, 3 * MIB);
            l.tensor("pow", 15, 3 * MIB);
            let loss = l.tensor("mean", 15, 512);
            if let Some(old) = before.replace(loss).filter(|_| loss_goes) {
                l.drop(old);
            }
        });
        assert_eq!(found(&l).iter().map(|s| s.0).collect::<Vec<_>>(), [Kind::GraphRetained]);
    }
}

const RELU: &str = "torch/nn/functional.py:relu<torch/nn/modules/module.py:Module._call_impl";

/// A loop without a backward pass, a model of four layers called in line 11; `kept` says which activations stay.
fn forward(kept: &dyn Fn(usize) -> bool, mut more: impl FnMut(&mut Loop)) -> Vec<Kind> {
    let l = train(40, |l, _| {
        let x = l.tensor("randn", 20, MIB);
        for layer in 0..4 {
            let linear =
                l.tensor("torch/nn/functional.py:linear<torch/nn/modules/module.py:Module._call_impl", 21, MIB);
            let relu = l.tensor(RELU, 21, MIB);
            l.drop(linear);
            if !kept(layer) {
                l.drop(relu);
            }
        }
        l.drop(x);
        more(l);
    });
    found(&l).iter().map(|s| s.0).collect()
}

/// What a list, a dictionary or a hook can keep is no graph, of whatever number and from whatever lines it is.
#[test]
fn what_else_can_keep_it_is_no_graph() {
    let kept = |kinds: Vec<Kind>| !kinds.is_empty() && kinds.iter().all(|k| *k == Kind::ReferencesKept);
    let (none, last, all) = (|_| false, |layer| layer == 3, |_| true);
    // A replay buffer: one tensor, two of one line, two results of one call, and of several lines.
    assert!(kept(forward(&none, |l| _ = l.tensor("to", 22, MIB))));
    for lines in [[22, 22], [22, 23]] {
        assert!(kept(forward(&none, |l| lines.iter().for_each(|line| _ = l.tensor("clone", *line, MIB)))));
    }
    assert!(kept(forward(&none, |l| ["topk", "topk.indices"].iter().for_each(|op| _ = l.tensor(op, 22, MIB)))));
    // An input, the model's result, and a reward, from three lines or one.
    for line in [22, 21] {
        let more = |l: &mut Loop| ["randn", "zeros"].iter().for_each(|op| _ = l.tensor(op, line, MIB));
        assert!(kept(forward(&last, more)));
    }
    // Hooks keep all activations, and the loss goes.
    let loss = |l: &mut Loop| {
        let loss = l.tensor("mean", 21, 512);
        l.drop(loss);
    };
    assert!(kept(forward(&all, loss)));
    assert!(kept(forward(&all, |_| ())));
    // The loss stays, and its graph with it.
    assert_eq!(forward(&all, |l| _ = l.tensor("mean", 21, 512)), [Kind::GraphRetained]);
}

/// What is kept of gradients, in a loop whose backward passes add them up as a graph or not.
fn gradients(of_graph: bool, sums: &dyn Fn(&mut Loop, &mut Vec<u64>)) -> (Kind, u64) {
    let mut before = Vec::new();
    let l = train(40, |l, _| {
        l.tensor("tanh", 15, 3 * MIB);
        if of_graph {
            l.tensor("mean", 15, 512);
        }
        l.tensor("mm", 0, 4 * MIB);
        sums(l, &mut before);
    });
    let [(kind, Shape::Linear, bytes)] = found(&l)[..] else { panic!("{:?}", found(&l)) };
    (kind, bytes >> 20)
}

/// What the backward pass makes stays: only where gradients are added up as a graph, and nothing takes the sums away, is that the
/// reason. Otherwise a graph of gradients is kept, or the gradients themselves.
#[test]
fn what_backward_makes_and_stays_is_told_by_how_gradients_add_up() {
    let none = |_: &mut Loop, _: &mut Vec<u64>| ();
    let never_zeroed = |l: &mut Loop, before: &mut Vec<u64>| {
        let sum = l.tensor(SUM, 0, MIB);
        before.drain(..).for_each(|old| l.release(old));
        before.push(sum);
    };
    // Two backward passes a step, and zero_grad after them.
    let zeroed = |l: &mut Loop, before: &mut Vec<u64>| {
        before.drain(..).for_each(|old| l.drop(old));
        let first = l.tensor(SUM, 0, MIB);
        before.push(l.tensor(SUM, 0, MIB));
        l.release(first);
    };
    assert_eq!(gradients(true, &never_zeroed), (Kind::GradientsAccumulating, 7));
    assert_eq!(gradients(true, &zeroed), (Kind::GraphRetained, 7));
    assert_eq!(gradients(true, &none), (Kind::GraphRetained, 7));
    assert_eq!(gradients(false, &zeroed), (Kind::ReferencesKept, 7));
    assert_eq!(gradients(false, &none), (Kind::ReferencesKept, 7));
}

/// Checkpointing runs the forward pass again in the thread of the backward pass: what a hook keeps of it is no gradient.
#[test]
fn what_is_computed_again_is_no_gradient() {
    let l = train(40, |l, _| {
        l.tensor("torch/utils/checkpoint.py:unpack_hook", 0, 4 * MIB);
        l.tensor("clone", 15, MIB);
    });
    assert!(found(&l).iter().all(|s| s.0 == Kind::ReferencesKept) && found(&l).len() == 2, "{:?}", found(&l));
}

/// A line that calls a model gets what several lines in it make, and keeps it all; only where all lines of many keep theirs, it
/// is the graph.
#[test]
fn results_of_a_call_are_no_graph() {
    let calls = |kept: usize, lines: usize| {
        let l = train(40, |l, _| {
            l.tensor("randn", 14, MIB);
            let line = |i| format!("/job/model.py:layer{i}<torch/nn/modules/module.py:Module._call_impl");
            let layers: Vec<u64> = (0..lines).map(|i| l.tensor(&line(i), 15, MIB)).collect();
            layers[..lines - kept].iter().for_each(|y| l.drop(*y));
        });
        found(&l)[0].0
    };
    assert_eq!(
        [calls(2, 2), calls(3, 4), calls(3, 3)],
        [Kind::ReferencesKept, Kind::ReferencesKept, Kind::GraphRetained]
    );
}

/// A list of models, or of inputs with gradients: a leaf keeps its `.grad`, which is as large as it is.
#[test]
fn a_leaf_that_stays_keeps_its_gradient() {
    let l = train(40, |l, _| {
        l.tensor("randn", 15, 4 * MIB);
        l.tensor("mm", 0, 4 * MIB);
    });
    let [(kind, shape, bytes)] = found(&l)[..] else { panic!("{:?}", found(&l)) };
    assert_eq!((kind, shape, (bytes + MIB / 2) / MIB), (Kind::ReferencesKept, Shape::Linear, 8));
}

/// Hooks on modules keep their outputs, several of one line, and the backward pass frees what the graph saved beside them.
#[test]
fn where_backward_freed_the_graph_references_are_kept() {
    let l = train(40, |l, _| {
        l.tensor("addmm", 15, MIB);
        let first = l.tensor("relu", 15, MIB);
        l.tensor("addmm", 15, MIB);
        let second = l.tensor("relu", 15, MIB);
        l.release(first);
        l.release(second);
    });
    let [(kind, shape, bytes)] = found(&l)[..] else { panic!("{:?}", found(&l)) };
    assert_eq!((kind, shape, (bytes + MIB / 2) / MIB), (Kind::ReferencesKept, Shape::Linear, 2));
}

#[test]
fn graphs_of_a_validation_are_told_by_their_bursts() {
    let mut l = train(20, |_, _| ());
    for _ in 0..3 {
        let mut graph = Vec::new();
        for _ in 0..30 {
            graph.push(l.tensor("randn", 30, 2 * MIB));
            let hidden = l.tensor("addmm", 31, 2 * MIB);
            graph.push(l.tensor(RELU, 31, 4 * MIB));
            graph.push(l.tensor(RELU, 31, 4 * MIB));
            l.drop(hidden);
        }
        graph.into_iter().for_each(|id| l.drop(id));
        for _ in 0..10 {
            for id in step(&mut l) {
                l.drop(id);
            }
        }
    }
    let history = l.script.history();
    let found = find(&history);
    let told: Vec<_> = found.suspects.iter().map(|s| (s.kind, s.shape, s.bursts)).collect();
    assert_eq!(told, [(Kind::GraphRetained, Shape::Bursts, (3, 30))]);
}

/// A validation that gathers what a batch results in, without gradients: several results, and no graph.
#[test]
fn a_validation_that_gathers_results_keeps_no_graph() {
    let mut l = train(20, |_, _| ());
    for _ in 0..3 {
        let mut gathered = Vec::new();
        for _ in 0..30 {
            let x = l.tensor("randn", 30, 2 * MIB);
            let hidden = l.tensor("addmm", 31, 2 * MIB);
            gathered.extend([l.tensor("tanh", 31, 4 * MIB), l.tensor("mul", 32, 4 * MIB)]);
            l.drop(hidden);
            l.drop(x);
        }
        gathered.into_iter().for_each(|id| l.drop(id));
        for _ in 0..10 {
            for id in step(&mut l) {
                l.drop(id);
            }
        }
    }
    assert!(find(&l.script.history()).suspects.is_empty());
}
