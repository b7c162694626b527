//! What the stream-ordered arena costs by itself, over a driver that does nothing: nanoseconds a pair of alloc and free.
//! Then recorded programs: the memory mapped at the peak over what is in use at the peak, beside a model of PyTorch's
//! allocator; how many chunks were mapped once more for stitched blocks, and how many of those in the last third. `cargo bench -p vramscope-core --bench arena -- FILE…` replays further files: `id,lower,upper,size` lines, `begin end size`
//! lines, or Umpire's JSON lines.

use std::collections::{BTreeSet, HashMap};
use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;
use vramscope_core::arena::{Arena, Backing, Options, StreamId};

/// A driver with endless memory.
#[derive(Default)]
struct Endless {
    reserved: AtomicU64,
    /// Whether all work is known to be done, or none.
    done: bool,
    /// Chunks mapped once more.
    aliases: AtomicU64,
}

impl Backing for Endless {
    type Error = ();
    type Chunk = ();
    type Event = ();
    fn reserve(&self, bytes: u64) -> Result<u64, ()> {
        Ok(0x7f00_0000_0000 + self.reserved.fetch_add(bytes, Relaxed))
    }
    fn unreserve(&self, _: u64, _: u64) {}
    fn map(&self, _: u64, _: u64) -> Result<(), ()> {
        Ok(())
    }
    fn open(&self, _: u64, _: u64) -> Result<(), ()> {
        Ok(())
    }
    fn unmap(&self, _: u64, _: u64, (): ()) -> Result<(), ()> {
        Ok(())
    }
    fn alias(&self, _: u64, _: u64, _: u64, (): ()) -> Result<(), ()> {
        self.aliases.fetch_add(1, Relaxed);
        Ok(())
    }
    fn unalias(&self, _: u64, _: u64) -> Result<(), ()> {
        Ok(())
    }
    fn record(&self, _: StreamId) -> Option<()> {
        Some(())
    }
    fn wait(&self, _: StreamId, (): &()) -> bool {
        true
    }
    fn is_done(&self, (): &()) -> bool {
        self.done
    }
    fn release(&self, (): ()) {}
}

fn arena() -> Arena<Endless> {
    Arena::new(Endless::default(), Options::default())
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

fn ping_pong(arena: &Arena<Endless>, stream: u64, bytes: u64, pairs: u64) {
    for id in 0..pairs {
        let b = arena.alloc(black_box(bytes), StreamId(stream), id).expect("endless");
        arena.free(b.address, StreamId(stream)).expect("live");
    }
}

/// Frees a random one of `live` blocks and allocates another.
fn mix(arena: &Arena<Endless>, stream: u64, live: usize, pairs: u64, r: &mut Random) {
    let sizes = r.sizes();
    let stream = StreamId(stream);
    let mut ids = 0;
    let mut alloc = |r: &mut Random| {
        ids += 1;
        arena.alloc(sizes[r.next() as usize >> 32 & 4095], stream, ids).expect("endless").address
    };
    let mut blocks: Vec<u64> = (0..live).map(|_| alloc(r)).collect();
    for _ in 0..pairs {
        let i = (r.next() >> 32) as usize % live;
        arena.free(blocks[i], stream).expect("live");
        blocks[i] = alloc(r);
    }
    for b in blocks {
        arena.free(b, stream).expect("live");
    }
}

/// Nanoseconds a pair, the best of some rounds: the machine is shared.
fn best(pairs: u64, mut round: impl FnMut()) -> f64 {
    round();
    let times = (0..200).map(|_| {
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

/// An allocation of so many bytes, or a free.
type Op = (u64, Option<u64>);

/// (id, begin, end, size) to operations: frees of a step come before its allocations.
fn spans(spans: impl Iterator<Item = (u64, u64, u64, u64)>) -> Vec<Op> {
    let mut ops: Vec<(u64, bool, u64, u64)> = Vec::new();
    for (id, lower, upper, size) in spans {
        ops.push((lower, true, id, size));
        ops.push((upper, false, id, size));
    }
    ops.sort_unstable();
    ops.into_iter().map(|(_, alloc, id, size)| (id, alloc.then_some(size))).collect()
}

fn parse(name: &str, text: &str) -> Vec<Op> {
    let numbers = |line: &str, by: char| -> Vec<u64> {
        line.split(by).filter(|n| !n.is_empty()).map(|n| n.trim().parse().expect("a number")).collect()
    };
    if name.ends_with(".csv") {
        let lines = text.lines().skip(1).map(|l| numbers(l, ','));
        return spans(lines.map(|n| (n[0], n[1], n[2], n[3])));
    }
    if name.ends_with(".log") {
        let lines = text.lines().map(|l| numbers(l, ' ')).filter(|n| n.len() == 3);
        return spans(lines.enumerate().map(|(i, n)| (i as u64, n[0], n[1], n[2])));
    }
    if name.ends_with(".jsonl") {
        return history(text);
    }
    // Umpire: device and managed pointers begin with 0x20.
    let field = |line: &str, key: &str| {
        let rest = line.split_once(&format!("\"{key}\":"))?.1;
        Some(rest.trim_start_matches('"').split(['"', ',', '}']).next()?.to_string())
    };
    let mut ops = Vec::new();
    for line in text.lines() {
        let (Some(name), Some(pointer)) = (field(line, "name"), field(line, "pointer")) else { continue };
        let Some(id) = u64::from_str_radix(pointer.trim_start_matches("0x"), 16).ok().filter(|p| p >> 40 == 0x20)
        else {
            continue;
        };
        match (name.as_str(), field(line, "size")) {
            ("allocate", Some(size)) => ops.push((id, size.parse().ok())),
            ("deallocate", _) => ops.push((id, None)),
            _ => {}
        }
    }
    ops
}

/// A history of vramscope's: PyTorch's tensors, or stream-ordered memory.
fn history(text: &str) -> Vec<Op> {
    let mut live = std::collections::HashSet::new();
    let mut ops = Vec::new();
    for line in text.lines() {
        let number = |key: &str| -> Option<u64> {
            let rest = line.split_once(&format!("\"{key}\":"))?.1;
            rest.split([',', '}']).next()?.parse().ok()
        };
        let ours = line.contains("\"memory\":\"tensor\"") || line.contains("\"memory\":\"async\"");
        let Some(id) = number("id") else { continue };
        if line.starts_with("{\"kind\":\"alloc\"") && ours {
            live.insert(id);
            ops.push((id, number("bytes")));
        } else if line.starts_with("{\"kind\":\"free\"") && live.remove(&id) {
            ops.push((id, None));
        }
    }
    ops
}

/// PyTorch's native allocator: segments of 2 MiB for up to 1 MiB, of 20 MiB for up to 10 MiB, else of 2 MiB steps; best fit
/// in each of the two pools; blocks joined within a segment only. Gives what it reserves.
fn torch(ops: &[Op]) -> u64 {
    const SMALL: u64 = 1 << 20;
    let mut free: [BTreeSet<(u64, u64)>; 2] = Default::default();
    // Address → (bytes, free, small); segments never touch.
    let mut blocks = std::collections::BTreeMap::<u64, (u64, bool, usize)>::new();
    let (mut live, mut next, mut reserved) = (HashMap::new(), 0u64, 0u64);
    for &(id, size) in ops {
        if let Some(size) = size {
            let size = size.max(1).next_multiple_of(512);
            let pool = usize::from(size > SMALL);
            let found = free[pool].range((size, 0)..).next().copied();
            let (bytes, at) = found.unwrap_or_else(|| {
                let bytes = if size <= SMALL {
                    2 << 20
                } else if size < 10 << 20 {
                    20 << 20
                } else {
                    size.next_multiple_of(2 << 20)
                };
                let at = next;
                (next, reserved) = (next + bytes + 512, reserved + bytes);
                (bytes, at)
            });
            free[pool].remove(&(bytes, at));
            let rest = bytes - size;
            let split = rest >= if pool == 0 { 512 } else { SMALL + 1 };
            if split {
                free[pool].insert((rest, at + size));
                blocks.insert(at + size, (rest, true, pool));
            }
            blocks.insert(at, (if split { size } else { bytes }, false, pool));
            live.insert(id, at);
        } else if let Some(mut at) = live.remove(&id) {
            let (mut bytes, _, pool) = blocks[&at];
            if let Some((&before, &(len, true, _))) = blocks.range(..at).next_back()
                && before + len == at
            {
                free[pool].remove(&(len, before));
                blocks.remove(&at);
                (at, bytes) = (before, bytes + len);
            }
            if let Some(&(len, true, _)) = blocks.get(&(at + bytes)) {
                free[pool].remove(&(len, at + bytes));
                blocks.remove(&(at + bytes));
                bytes += len;
            }
            free[pool].insert((bytes, at));
            blocks.insert(at, (bytes, true, pool));
        }
    }
    reserved
}

/// Each fourth tensor's stream is another one, so that memory is stolen all the time.
fn stream_of(id: u64, streams: u64) -> StreamId {
    StreamId(if streams > 1 && id.is_multiple_of(4) { 1 + id / 4 % (streams - 1) } else { 0 })
}

fn replay(name: &str, ops: &[Op], what: &str, options: Options, streams: u64) {
    let arena = Arena::new(Endless { done: what.ends_with("done"), ..Endless::default() }, options);
    let mut at = HashMap::new();
    // The last third: what it costs once everything has its place.
    let (mut start, late) = (Instant::now(), ops.len() * 2 / 3);
    let mut early = 0;
    for (i, (id, size)) in ops.iter().enumerate() {
        if i == late {
            start = Instant::now();
            early = arena.backing().aliases.load(Relaxed);
        }
        let stream = stream_of(*id, streams);
        if let Some(size) = size {
            at.insert(id, arena.alloc(*size, stream, *id).expect("endless").address);
        } else if let Some(a) = at.remove(id) {
            arena.free(a, stream).expect("live");
        }
    }
    let ns = start.elapsed().as_nanos() as f64 / (ops.len() - late) as f64;
    let c = arena.counts();
    let chunks = arena.backing().aliases.load(Relaxed);
    println!(
        "{name:28} {what:18} {:10.1} {:10.1} {:7.3} {:6} {:6} {:6} {ns:7.0} {:6} {chunks:7} {:6}",
        c.active.peak as f64 / 1e6,
        c.reserved.peak as f64 / 1e6,
        c.reserved.peak as f64 / c.active.peak as f64,
        c.grows,
        c.steals,
        c.records,
        c.stitches,
        chunks - early,
    );
}

fn table(name: &str, text: &str) {
    let ops = parse(name, text);
    let name = name.rsplit('/').next().unwrap_or(name);
    let live = |(mut now, mut peak, mut sizes): (u64, u64, HashMap<u64, u64>), &(id, size): &Op| {
        match size {
            Some(s) => {
                now += s.max(1).next_multiple_of(512);
                sizes.insert(id, s.max(1).next_multiple_of(512));
            }
            None => now -= sizes.remove(&id).unwrap_or(0),
        }
        peak = peak.max(now);
        (now, peak, sizes)
    };
    let (_, peak, _) = ops.iter().fold((0, 0, HashMap::new()), live);
    let reserved = torch(&ops);
    println!(
        "{name:28} {:18} {:10.1} {:10.1} {:7.3}",
        "PyTorch's policy",
        peak as f64 / 1e6,
        reserved as f64 / 1e6,
        reserved as f64 / peak as f64
    );
    let options = Options::default;
    replay(name, &ops, "arena", options(), 1);
    replay(name, &ops, "work is done", options(), 1);
    let stitched = || {
        let mut o = options();
        o.stitch_above = 4 << 20;
        o
    };
    replay(name, &ops, "stitched", stitched(), 1);
    replay(name, &ops, "stitched, done", stitched(), 1);
    let mut anywhere = stitched();
    anywhere.repeat = false;
    replay(name, &ops, "best fit alone", anywhere, 1);
    replay(name, &ops, "4 streams", options(), 4);
    let mut last = options();
    last.steal_first = false;
    replay(name, &ops, "4, grow first", last.clone(), 4);
    replay(name, &ops, "4, grow, done", last.clone(), 4);
    last.stitch_above = 4 << 20;
    replay(name, &ops, "4, stitched", last.clone(), 4);
    replay(name, &ops, "4, stitched, done", last, 4);
}

fn main() {
    if !std::env::args().any(|a| a == "--tables") {
        speeds();
    }
    println!(
        "\n{:28} {:18} {:>10} {:>10} {:>7} {:>6} {:>6} {:>6} {:>7} {:>6} {:>7} {:>6}",
        "peaks, MB", "", "active", "reserved", "ratio", "grows", "steals", "events", "ns/op", "sewn", "chunks", "late"
    );
    table("pangu_2.6b.csv", include_str!("data/pangu_2.6b_training_step.csv"));
    table("resnet50.csv", include_str!("data/resnet50_training_step.csv"));
    for file in std::env::args().skip(1).filter(|a| !a.starts_with("--")) {
        match std::fs::read_to_string(&file) {
            Ok(text) => table(&file, &text),
            Err(e) => eprintln!("{file}: {e}"),
        }
    }
}

fn speeds() {
    const PAIRS: u64 = 20_000; // Short rounds: on a busy machine some are left alone.
    let a = arena();
    println!("1 KiB ping-pong, 1 thread: {:.1} ns a pair", best(PAIRS, || ping_pong(&a, 1, 1024, PAIRS)));
    println!("4 MiB ping-pong, 1 thread: {:.1} ns a pair", best(PAIRS, || ping_pong(&a, 1, 4 << 20, PAIRS)));
    let (a, mut r) = (arena(), Random(42));
    println!("mix of 500 live, 1 thread: {:.1} ns a pair", best(PAIRS, || mix(&a, 1, 500, PAIRS, &mut r)));
    for n in [2, 4, 16] {
        let pairs = 200_000;
        let a = arena();
        let rate = threads(n, pairs, |t| ping_pong(&a, t, 1024, pairs));
        println!("1 KiB ping-pong, {n} threads, a stream each: {rate:.1} M pairs/s");
        let a = arena();
        let rate = threads(n, pairs, |t| mix(&a, t, 500, pairs, &mut Random(t)));
        println!("mix of 500 live, {n} threads, a stream each: {rate:.1} M pairs/s");
    }
}
