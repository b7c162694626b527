//! Recorded programs: what they need is mapped, and little more.

use crate::cases::sim;
use crate::sim::Held;
use std::collections::HashMap;
use vramscope_core::arena::{Options, StreamId};

/// (operation, alloc?, tensor, bytes): frees of a step come before its allocations.
fn ops(text: &str) -> Vec<(u64, bool, u64, u64)> {
    let mut ops = Vec::new();
    for line in text.lines().skip(1) {
        let n: Vec<u64> = line.split(',').map(|n| n.parse().unwrap()).collect();
        ops.push((n[1], true, n[0], n[3]));
        ops.push((n[2], false, n[0], n[3]));
    }
    ops.sort_unstable();
    ops
}

/// Reserved at the peak over active at the peak, in thousandths.
fn replay(text: &str, streams: u64) -> u64 {
    let sim = sim();
    let arena = Held::new(&sim, Options::default());
    let mut at = HashMap::new();
    for (_, alloc, id, bytes) in ops(text) {
        let stream = StreamId(1 + if id % 4 == 0 { id / 4 % streams } else { 0 });
        if alloc {
            let b = arena.alloc(bytes, stream, id).unwrap();
            sim.check_handed_out(stream.0, b.address, b.bytes);
            at.insert(id, b);
        } else {
            let b = at.remove(&id).unwrap();
            if id % 8 == 0 {
                sim.work(stream.0, b.address, b.bytes);
            }
            sim.leave(b.address);
            assert_eq!(arena.free(b.address, stream), Ok(b));
        }
    }
    let c = arena.counts();
    assert_eq!(c.allocated.now, 0);
    1000 * c.reserved.peak / c.active.peak
}

#[test]
fn resnet50() {
    let text = include_str!("../../../benches/data/resnet50_training_step.csv");
    let waste = (replay(text, 1), replay(text, 3));
    assert!(waste.0 <= 1030 && waste.1 <= 1060, "{waste:?}");
}

#[test]
fn pangu() {
    let text = include_str!("../../../benches/data/pangu_2.6b_training_step.csv");
    let waste = replay(text, 1);
    assert!(waste <= 1125, "{waste}");
}
