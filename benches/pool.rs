//! What the plain pool costs by itself, over a driver that costs nothing: nanoseconds a pair of alloc and free.
//! Then two recorded training steps: how much memory it takes for what they need.

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;
use vramscope_core::pool::{ContextId, Fence, Freed, Pool, Segment, Upstream};

const C: ContextId = ContextId(0);

/// A driver with endless memory, that never uses an address again.
#[derive(Default)]
struct Endless {
    next: AtomicU64,
    ids: AtomicU64,
    charged: AtomicU64,
}

thread_local!(static LANE: usize = {
    static N: AtomicU64 = AtomicU64::new(0);
    N.fetch_add(1, Relaxed) as usize
});

/// The driver's grain: whole 2 MiB pages over 1 MiB. Below, steps of 512 B, as if its packing lost nothing.
fn charge(bytes: u64) -> u64 {
    bytes.next_multiple_of(if bytes > 1 << 20 { 2 << 20 } else { 512 })
}

impl Upstream for Endless {
    type Error = ();
    fn alloc(&self, _: ContextId, bytes: u64, _: u64) -> Result<u64, ()> {
        self.charged.fetch_add(charge(bytes), Relaxed);
        Ok(0x7f00_0000_0000 + self.next.fetch_add(charge(bytes), Relaxed))
    }
    fn free(&self, s: &Segment) -> Result<(), ()> {
        self.charged.fetch_sub(charge(s.bytes), Relaxed);
        Ok(())
    }
    fn out_of_memory((): ()) -> bool {
        false
    }
    fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Relaxed)
    }
    fn fence(&self, _: ContextId) -> Fence {
        Fence::Device
    }
    fn lane(&self) -> usize {
        LANE.with(|l| *l)
    }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    /// Most up to 64 KiB, some up to 2 MiB, few up to 18 MiB: the mix the peers were measured with.
    fn sizes(&mut self) -> Vec<u64> {
        let size = |_| {
            let (kind, r) = (self.next() % 100, self.next());
            match kind {
                0..60 => 256 + r % (64 << 10),
                60..95 => (64 << 10) + r % (2 << 20),
                _ => (2 << 20) + r % (16 << 20),
            }
        };
        (0..4096).map(size).collect()
    }
}

fn ping_pong(up: &Endless, pool: &Pool, pairs: u64, ids: &mut u64) {
    for _ in 0..pairs {
        *ids += 1;
        let s = pool.alloc(up, C, black_box(1024), *ids).expect("endless");
        assert!(matches!(pool.free(up, s.address), Freed::Kept { .. }));
    }
}

/// Frees a random one of `live` blocks and allocates another.
fn mix(up: &Endless, pool: &Pool, live: usize, pairs: u64, r: &mut Random) {
    let sizes = r.sizes();
    let mut ids = 0;
    let mut alloc = |r: &mut Random| {
        ids += 1;
        pool.alloc(up, C, sizes[r.next() as usize >> 32 & 4095], ids).expect("endless").address
    };
    let mut blocks: Vec<u64> = (0..live).map(|_| alloc(r)).collect();
    for _ in 0..pairs {
        let i = (r.next() >> 32) as usize % live;
        assert!(matches!(pool.free(up, blocks[i]), Freed::Kept { .. }));
        blocks[i] = alloc(r);
    }
    for b in blocks {
        pool.free(up, b);
    }
}

/// Nanoseconds a pair, the best of some rounds: the machine is shared.
fn best(pairs: u64, mut round: impl FnMut()) -> f64 {
    round();
    let times = (0..7).map(|_| {
        let start = Instant::now();
        round();
        start.elapsed().as_nanos() as f64 / pairs as f64
    });
    times.fold(f64::MAX, f64::min)
}

fn threads(n: usize, pairs: u64, work: impl Fn(u64) + Sync) -> f64 {
    let run = || {
        let barrier = Barrier::new(n + 1);
        std::thread::scope(|s| {
            for t in 0..n {
                let (barrier, work) = (&barrier, &work);
                s.spawn(move || {
                    barrier.wait();
                    work(t as u64 + 1);
                });
            }
            barrier.wait();
            Instant::now()
        })
        .elapsed()
    };
    (0..4).map(|_| (n as u64 * pairs) as f64 / run().as_secs_f64() / 1e6).fold(0.0, f64::max)
}

/// Peak of what lives, peak of what the pool holds, and the share of the latter that is wasted.
fn replay(file: &str, text: &str) {
    let (up, pool) = (Endless::default(), Pool::new());
    // (step, alloc?, tensor, bytes): frees of a step come before its allocations.
    let mut ops: Vec<(u64, bool, u64, u64)> = Vec::new();
    for line in text.lines().skip(1) {
        let n: Vec<u64> = line.split(',').map(|n| n.parse().expect("a number")).collect();
        let &[id, lower, upper, size] = &n[..] else { panic!("{file}: {line}") };
        ops.push((lower, true, id, size));
        ops.push((upper, false, id, size));
    }
    ops.sort_unstable();
    let (mut live, mut peak, mut reserved) = (0, 0, 0);
    let mut at = std::collections::HashMap::new();
    let start = Instant::now();
    for (_, alloc, id, size) in &ops {
        if *alloc {
            live += size;
            peak = peak.max(live);
            at.insert(id, pool.alloc(&up, C, *size, *id).expect("endless").address);
            reserved = reserved.max(up.charged.load(Relaxed));
        } else if let Some(a) = at.remove(id) {
            live -= size;
            pool.free(&up, a);
        }
    }
    let ns = start.elapsed().as_nanos() as f64 / ops.len() as f64;
    let c = pool.counters();
    let hits = (c.hits_exact + c.hits_near) as f64 / c.requests as f64;
    println!(
        "{file}: live at most {:.0} MB, reserved {:.0} MB: {:.1} % waste; {:.1} % served from the cache ({} near); {ns:.0} ns an operation",
        peak as f64 / 1e6,
        reserved as f64 / 1e6,
        100.0 * (1.0 - peak as f64 / reserved as f64),
        100.0 * hits,
        c.hits_near,
    );
}

fn main() {
    const PAIRS: u64 = 1_000_000;
    let (up, pool) = (Endless::default(), Pool::new());
    let mut ids = 0;
    println!("1 KiB ping-pong, 1 thread: {:.1} ns a pair", best(PAIRS, || ping_pong(&up, &pool, PAIRS, &mut ids)));
    let (up, pool, mut r) = (Endless::default(), Pool::new(), Random(42));
    println!("mix of 500 live, 1 thread: {:.1} ns a pair", best(PAIRS, || mix(&up, &pool, 500, PAIRS, &mut r)));
    for n in [2, 4, 16] {
        let pairs = 200_000;
        let (up, pool) = (Endless::default(), Pool::new());
        let rate = threads(n, pairs, |t| ping_pong(&up, &pool, pairs, &mut (t << 32)));
        println!("1 KiB ping-pong, {n} threads: {rate:.1} M pairs/s");
        let (up, pool) = (Endless::default(), Pool::new());
        let rate = threads(n, pairs, |t| mix(&up, &pool, 500, pairs, &mut Random(t)));
        println!("mix of 500 live, {n} threads: {rate:.1} M pairs/s");
    }
    replay("pangu 2.6B", include_str!("data/pangu_2.6b_training_step.csv"));
    replay("ResNet-50", include_str!("data/resnet50_training_step.csv"));
}
