//! Speed of the recorder and the history: nanoseconds a push, events a second written and read, bytes an event.
//!
//! On two mixes of events: steps that repeat, as training loops do, and everything drawn by lot.

use std::hint::black_box;
use std::io;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use vramscope_core::api::Api;
use vramscope_core::event::{Event, EventKind, FreeHow, Memory, Source};
use vramscope_core::record::{ClockKind, Definition, Options, Output, Pushed, Setup, Spool, Writer, frame};
use vramscope_core::trace::read::Reader;
use vramscope_core::trace::{FORMAT, Header, Line, VERSION};

const EVENTS: u64 = 2_000_000;
const SLOTS: usize = 16384;

/// A file's bytes, kept.
#[derive(Default)]
struct Bytes(Vec<u8>);

impl Output for &mut Bytes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn next_part(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

fn alloc(time: u64, id: u64, block: u64, bytes: u64, stack: u64, random: &mut Random) -> Event {
    let miss = random.below(200) == 0;
    Event {
        kind: EventKind::Alloc,
        time,
        id,
        api: Api::CudaMalloc,
        memory: Memory::Device,
        how: if miss { Source::Miss } else { Source::Hit } as u8,
        context: 1,
        address: 0x7f12_0000_0000 + block * (32 << 20),
        bytes,
        block: bytes.next_multiple_of(512),
        stack: stack as u32,
        caller: 3,
        extra: [block, 0, if miss { 2_000 + random.below(60_000) } else { 0 }],
        ..Event::default()
    }
}

fn free(time: u64, id: u64, stack: u64) -> Event {
    Event {
        kind: EventKind::Free,
        time,
        id,
        api: Api::CudaFree,
        how: FreeHow::CachedDevice as u8,
        stack: stack as u32,
        ..Event::default()
    }
}

const SIZES: [u64; 6] = [512, 4096, 16_384, 1 << 20, 2 << 20, 20 << 20];

/// 300 to 500 live blocks of mixed sizes, everything drawn by lot: the hardest to compress.
fn mixed(n: u64) -> Vec<Event> {
    let mut random = Random(88172645463325252);
    let mut live: Vec<(u64, u64)> = Vec::new();
    let mut blocks: Vec<u64> = (0..600).collect();
    let (mut time, mut id) = (1_000_000, 0);
    (0..n)
        .map(|_| {
            time += 300 + random.below(4_000);
            let stack = 1 + random.below(300);
            if live.len() < 300 || (live.len() < 500 && random.below(2) == 0) {
                id += 1;
                let block = blocks.swap_remove(random.below(blocks.len() as u64) as usize);
                live.push((id, block));
                let bytes = SIZES[(block % 6) as usize] - random.below(4) * 4;
                alloc(time, id, block, bytes, stack, &mut random)
            } else {
                let (id, block) = live.swap_remove(random.below(live.len() as u64) as usize);
                blocks.push(block);
                free(time, id, stack)
            }
        })
        .collect()
}

/// Steps of 512 allocations that do the same each time, but for the time they take and one request in 20.
fn training(n: u64) -> Vec<Event> {
    let mut random = Random(88172645463325252);
    // What a step does: allocate (size, stack), or free the allocation made so many allocations ago.
    let step: Vec<(u64, u64)> = (0..512).map(|_| (SIZES[random.below(6) as usize], 1 + random.below(300))).collect();
    let lives: Vec<usize> = (0..512).map(|_| 1 + random.below(60) as usize).collect();
    let mut cached: Vec<Vec<u64>> = vec![Vec::new(); 6];
    let (mut time, mut id, mut blocks) = (1_000_000, 0, 0);
    let mut due: Vec<Vec<(u64, u64, u64)>> = vec![Vec::new(); 64];
    let mut events = Vec::new();
    for i in (0..512).cycle() {
        let (bytes, stack) = step[i];
        let bytes = if random.below(20) == 0 { bytes - 8 * random.below(8) } else { bytes };
        let class = SIZES.iter().position(|s| *s >= bytes).unwrap_or(0);
        let block = cached[class].pop().unwrap_or_else(|| {
            blocks += 1;
            blocks
        });
        id += 1;
        time += 300 + random.below(4_000);
        events.push(alloc(time, id, block, bytes, stack, &mut random));
        due[(id as usize + lives[i]) % 64].push((id, block, class as u64));
        for (id, block, class) in std::mem::take(&mut due[id as usize % 64]) {
            time += 300 + random.below(4_000);
            events.push(free(time, id, 1 + (stack * 7) % 300));
            cached[class as usize].push(block);
        }
        if events.len() as u64 >= n {
            break;
        }
    }
    events.truncate(n as usize);
    events
}

fn main() {
    measure("training", &training(EVENTS));
    measure("mixed", &mixed(EVENTS));
}

fn measure(name: &str, events: &[Event]) {
    let words: Vec<AtomicU64> = (0..Spool::size_in_words(2, SLOTS)).map(|_| AtomicU64::new(0)).collect();
    for compress in [false, true] {
        words.iter().for_each(|w| w.store(0, std::sync::atomic::Ordering::Relaxed));
        let setup = Setup {
            rings: 2,
            slots: SLOTS,
            usable_rings: 2,
            pid: 1,
            start_time: 0,
            clock: ClockKind::Tsc,
            ticks_per_second: 0,
            zero_raw: 0,
            zero_ns: 0,
        };
        let spool = Spool::format(&words, &setup).expect("a spool");
        spool.set_header(&Header { format: FORMAT.into(), version: VERSION, ..Header::default() });
        let mut bytes = Bytes(Vec::with_capacity(EVENTS as usize * 160));
        let (mut pushing, mut writing) = (0.0, 0.0);
        {
            let mut writer = Writer::new(spool, &mut bytes, &Options { compress, max_bytes: None }).expect("a writer");
            let mut producer = spool.claim_ring(1, b"main").expect("a ring");
            for number in 1..=300 {
                let frames: Vec<u64> =
                    (0..30).map(|f| frame(1 + f % 7, u64::from(number * 977 + u32::from(f) * 7919), false)).collect();
                let stack = Definition::Stack { number, frames: &frames, cut: false };
                assert_eq!(producer.push_definition(&stack), Pushed::Yes);
                writer.round(1, 1).expect("a round");
            }
            for chunk in events.chunks(SLOTS / 4) {
                let start = Instant::now();
                for event in chunk {
                    let _ = black_box(producer.push(black_box(event)));
                }
                pushing += start.elapsed().as_secs_f64();
                let start = Instant::now();
                let now = chunk.last().map_or(0, |e| e.time);
                writer.round(now, now).expect("a round");
                writing += start.elapsed().as_secs_f64();
            }
            writer.flush(u64::MAX >> 1, u64::MAX >> 1).expect("a round");
        }
        let path = std::env::temp_dir().join(format!("vramscope-bench-{}", std::process::id()));
        std::fs::write(&path, &bytes.0).expect("a file");
        let start = Instant::now();
        let read = Reader::open(&path).expect("a history").filter(|l| matches!(l, Line::Event(..))).count();
        let reading = start.elapsed().as_secs_f64();
        std::fs::remove_file(&path).expect("the file");
        assert_eq!(read as u64, EVENTS);
        let n = EVENTS as f64;
        println!(
            "{name}, {}: push {:.1} ns, write {:.2} M events/s, read {:.2} M events/s, {:.1} bytes an event",
            if compress { "zstd" } else { "plain" },
            pushing / n * 1e9,
            n / writing / 1e6,
            n / reading / 1e6,
            bytes.0.len() as f64 / n,
        );
    }
}
