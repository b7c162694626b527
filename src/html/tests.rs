//! What the page holds against what is true, by playing histories made by hand.

use std::collections::{BTreeMap, HashMap};
use std::io::Read;

use base64::Engine;
use proptest::prelude::*;
use vramscope_core::event::{Event, EventKind, FreeHow, Memory, Source};
use vramscope_core::trace::Line;

use super::kept::ALIVE;
use super::layers::{Layer, active};
use super::live::HOST;
use super::page::{self, Part};
use super::run::{self, Limits, Run};
use super::stacks::Stacks;
use crate::report::History;
use crate::report::testing::{MIB, Script, names, sample, trained};

const FEW: Limits = Limits {
    leaves: 64,
    whole: 0,
    at_moments: 400,
    moments: 20,
    tiles: [50, 50, 50, 50],
    segments: 1_000,
    regions: 100,
    shares: 1_000,
};

fn played(script: &Script, limits: &Limits) -> Run {
    run::play(&script.history(), script.lines.iter().cloned(), limits)
}

/// PyTorch: segments by libc10_cuda, tensors in them, and what NCCL has besides.
fn training(steps: u64) -> Script {
    let (mut s, stack) = trained();
    s.module(9, "/usr/lib/libnccl.so.2");
    let tensor = |s: &mut Script, at: u64, bytes: u64| {
        let id = s.id();
        let address = 0x7f00_0000_0000 + at * MIB;
        s.event(Event {
            kind: EventKind::Alloc,
            memory: Memory::Tensor,
            id,
            address,
            bytes,
            stack,
            context: 1,
            ..Event::default()
        });
        id
    };
    let id = s.id();
    s.event(Event {
        kind: EventKind::Alloc,
        memory: Memory::Device,
        how: Source::Hoarder as u8,
        id,
        address: 0x7f00_0000_0000,
        bytes: 64 * MIB,
        caller: 4,
        context: 1,
        stack,
        ..Event::default()
    });
    s.direct(Memory::Device, 10 * MIB, stack, 9);
    tensor(&mut s, 0, 8 * MIB);
    for step in 0..steps {
        s.event(Event { kind: EventKind::Mark, extra: [1 + step % 3, 0, 0], ..Event::default() });
        let a = tensor(&mut s, 8, (4 + step % 7) * MIB);
        let b = tensor(&mut s, 32, MIB);
        s.free(a, FreeHow::Driver);
        s.free(b, FreeHow::Driver);
    }
    s
}

#[test]
fn layers_add_up_to_what_the_report_counts() {
    for script in [sample(), training(5)] {
        let mut history = History::of_lines(std::iter::empty());
        let run = played(&script, &Limits::of(1));
        let mut seen = BTreeMap::new();
        for (i, line) in script.lines.iter().enumerate() {
            let Line::Event(_, e) = line else { continue };
            history = History::of_lines(script.lines[..=i].iter().cloned());
            let told = history.state.devices.get(&0).copied().unwrap_or_default();
            seen.insert(e.time, (told.active(), told.reserved() + told.rounding));
        }
        let curve = &run.curves[&0];
        assert_eq!(curve.leaf, 1);
        for bucket in &curve.levels[0] {
            let s = bucket.last;
            let taken: u64 = s.iter().sum::<u64>() - s[Layer::Rest as usize];
            assert_eq!(taken, seen[&bucket.time].1, "at {}", bucket.time);
            // What the report calls active holds PyTorch's segments whole.
            assert_eq!(active(&s) + s[Layer::TensorsInactive as usize], seen[&bucket.time].0, "at {}", bucket.time);
        }
        assert_eq!(history.events, history.all_events());
    }
}

#[test]
fn tensors_lie_in_segments_and_peaks_are_theirs() {
    let run = played(&training(10), &Limits::of(1));
    let curve = &run.curves[&0];
    assert_eq!(curve.peak_active, (10 + 8 + 10 + 1) * MIB);
    let at_peak = curve.levels[0].iter().rev().find(|b| b.time <= curve.peak).unwrap().last;
    assert_eq!(at_peak[Layer::Tensors as usize], 19 * MIB);
    assert_eq!(at_peak[Layer::TensorsInactive as usize], (64 - 19) * MIB);
    assert_eq!(at_peak[Layer::Outside as usize], 10 * MIB);
    assert_eq!(run.stays.len(), 1);
    assert_eq!((run.stays[0].segment.bytes, run.stays[0].end), (64 * MIB, ALIVE));
    assert!(run.moments.iter().any(|m| m.label == "peak of GPU 0" && m.time == curve.peak));
}

/// What lives at a time, from the lines alone: bytes by id.
fn truth(script: &Script, time: u64) -> HashMap<u64, u64> {
    let mut live = HashMap::new();
    for line in &script.lines {
        match line {
            Line::Event(_, e) if e.time > time => break,
            Line::Event(_, e) if e.kind == EventKind::Alloc && e.how != Source::Hoarder as u8 => {
                live.insert(e.id, e.bytes.max(e.block));
            }
            Line::Event(_, e) if e.kind == EventKind::Free => {
                live.remove(&e.id);
            }
            _ => {}
        }
    }
    live
}

#[test]
fn a_short_history_is_held_whole() {
    let script = training(50);
    let run = played(&script, &Limits::of(1));
    assert!(run.whole && run.tiles.is_empty() && run.moments.iter().all(|m| m.shares.is_empty()));
    for time in (0..=run.end).step_by(7_000_000) {
        let alive = |l: &&super::kept::Life| l.live.time <= time && l.end > time;
        let held: HashMap<u64, u64> = run.lives.iter().filter(alive).map(|l| (l.live.id, l.live.bytes)).collect();
        assert_eq!(held, truth(&script, time), "at {time}");
    }
}

#[test]
fn a_long_history_is_whole_at_its_moments() {
    let script = training(400);
    let run = played(&script, &FEW);
    assert!(!run.whole);
    assert!(run.curves[&0].levels[0].len() <= 64 && run.curves[&0].leaf > 1);
    assert!(run.moments.len() >= 30, "{} moments", run.moments.len());
    assert!(run.moments.is_sorted_by_key(|m| m.time));
    for moment in &run.moments {
        assert_eq!(moment.untold, 0);
        let live = truth(&script, moment.time);
        let told: u64 = moment.shares.iter().map(|s| s.bytes).sum();
        assert_eq!(told, live.values().sum::<u64>(), "at {} {}", moment.time, moment.label);
        assert_eq!(moment.shares.iter().map(|s| s.count).sum::<u64>(), live.len() as u64);
        let kept: HashMap<u64, &super::kept::Life> = run.lives.iter().map(|l| (l.live.id, l)).collect();
        for id in live.keys() {
            let life = kept[id];
            assert!(life.live.time <= moment.time && life.end > moment.time);
        }
    }
    let peak = run.moments.iter().find(|m| m.label == "peak of GPU 0").unwrap();
    assert_eq!(peak.shares.iter().map(|s| s.bytes).sum::<u64>(), run.curves[&0].peak_active);
}

#[test]
fn tiles_hold_what_covers_most() {
    let script = training(400);
    let run = played(&script, &FEW);
    let levels = |level| run.tiles.iter().filter(move |t| t.level == level && t.device == 0);
    assert_eq!((levels(0).count(), levels(1).count()), (1, 16));
    assert!(levels(2).count() > 200);
    // What lives all along covers most, in the whole and in every part.
    let first = run.lives.iter().position(|l| l.live.bytes == 10 * MIB).unwrap() as u32;
    assert!(run.tiles.iter().filter(|t| t.device == 0 && t.start > 10_000_000).all(|t| t.members.contains(&first)));
    for tile in levels(1) {
        assert!(tile.members.is_sorted() && tile.members.len() <= 50);
        for member in &tile.members {
            let life = &run.lives[*member as usize];
            assert!(life.live.time <= tile.end && life.end >= tile.start);
        }
    }
}

#[test]
fn a_free_that_did_not_happen_and_a_context_that_ends() {
    let mut s = Script::new();
    let kept = s.direct(Memory::Device, 2 * MIB, 0, 1);
    s.free(kept, FreeHow::Driver);
    s.event(Event { kind: EventKind::FreeFailed, id: kept, code: 700, ..Event::default() });
    s.direct(Memory::Pinned, MIB, 0, 1);
    let before = s.time;
    s.event(Event { kind: EventKind::ContextEnd, context: 1, ..Event::default() });
    for limits in [Limits::of(1), FEW] {
        let run = played(&s, &limits);
        let life = run.lives.iter().find(|l| l.live.id == kept).unwrap();
        assert!(life.end > before && life.end != ALIVE);
        assert!(run.curves.values().all(|c| c.levels[0].last().unwrap().last.iter().all(|n| *n == 0)));
        assert_eq!(run.curves[&HOST].peak_active, MIB);
        assert_eq!(run.holders.all().iter().map(|g| (g.count, g.bytes, g.times)).collect::<Vec<_>>(), [(0, 0, 1); 2]);
    }
}

#[test]
fn what_was_live_before_comes_in_no_order() {
    let mut s = Script::new();
    s.time = 900;
    for (id, time) in [(1, 700), (2, 100), (3, 400)] {
        let live = Event {
            kind: EventKind::Alloc,
            memory: Memory::Device,
            id,
            time,
            bytes: MIB,
            context: 1,
            ..Event::default()
        };
        s.lines.push(Line::Live(1, live));
    }
    s.free(2, FreeHow::Driver);
    for limits in [Limits::of(1), FEW] {
        let run = played(&s, &limits);
        let curve = &run.curves[&0];
        assert!(curve.levels[0].is_sorted_by_key(|b| b.time));
        assert_eq!(curve.levels[0].last().unwrap().last[Layer::Outside as usize], 2 * MIB);
        assert_eq!(run.lives.iter().map(|l| l.live.id).collect::<Vec<_>>(), [2, 3, 1]);
        assert_eq!(curve.peak_active, 3 * MIB);
    }
}

/// The data in a page.
fn data(page: &str) -> (serde_json::Value, Vec<u8>) {
    let from = page.find("type=\"application/octet-stream\">").unwrap() + 32;
    let to = from + page[from..].find('<').unwrap();
    let packed = base64::engine::general_purpose::STANDARD.decode(&page[from..to]).unwrap();
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut bytes).unwrap();
    let length = u32::from_le_bytes(bytes[..4].try_into().unwrap()) as usize;
    (serde_json::from_slice(&bytes[4..4 + length]).unwrap(), bytes[4 + length..].to_vec())
}

fn page_of(script: &Script, limits: &Limits) -> String {
    let history = script.history();
    let run = run::play(&history, script.lines.iter().cloned(), limits);
    let stacks = Stacks::of(&history, &mut names(), run.holders.all());
    let part = Part { history: &history, run, stacks, answers: serde_json::Value::Null };
    let mut out = Vec::new();
    page::write(&mut out, &[part]).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn the_page_is_one_file_that_needs_nothing_else() {
    let mut script = training(20);
    script.lines.iter_mut().for_each(|l| {
        if let Line::Header(h) = l {
            h.arguments = vec!["</script><b>".into(), "{{data}}".into()];
        }
    });
    let page = page_of(&script, &Limits::of(1));
    assert!(
        !page.contains("http://")
            && !page.contains("https://")
            && !page.contains("src=\"")
            && !page.contains("@import")
    );
    assert!(page.contains("default-src 'none'") && !page.contains("{{"));
    assert_eq!(page.matches("</script>").count(), 2);
    assert!(page.contains("<title>script&gt;&lt;b&gt;: GPU memory</title>"), "the program's name is text");
    let (meta, columns) = data(&page);
    assert_eq!(meta["runs"][0]["command"], "</script><b> {{data}}");
    let last = meta["columns"].as_array().unwrap().last().unwrap();
    assert!(last["at"].as_u64().unwrap() <= columns.len() as u64);
    assert_eq!(meta["runs"][0]["devices"][0]["peak_active"], 29 * MIB);
}

#[test]
fn several_histories_from_their_files() {
    let folder = tempfile::tempdir().unwrap();
    let mut histories = Vec::new();
    for rank in 0..2 {
        let mut script = training(3 + rank);
        if let Some(Line::Header(h)) = script.lines.first_mut() {
            h.rank.insert("RANK".into(), rank.to_string());
        }
        let mut text = Vec::new();
        script.lines.iter().for_each(|l| vramscope_core::trace::write::line(&mut text, l));
        let path = folder.path().join(format!("rank{rank}.jsonl"));
        std::fs::write(&path, text).unwrap();
        histories.push(History::read(&path).unwrap());
    }
    let mut out = Vec::new();
    super::write(&mut out, &histories, &[]).unwrap();
    let (meta, _) = data(&String::from_utf8(out).unwrap());
    let runs = meta["runs"].as_array().unwrap();
    assert_eq!(runs.iter().map(|r| r["rank"].as_str().unwrap()).collect::<Vec<_>>(), ["0", "1"]);
    assert_eq!(runs[1]["file"], "rank1.jsonl");
    assert!(runs.iter().all(|r| r["whole"] == true && !r["frames"].as_array().unwrap().is_empty()));
}

#[test]
fn the_size_of_a_page_has_a_bound() {
    let size = |steps| page_of(&training(steps), &Limits { tiles: [20, 10, 3, 0], ..FEW }).len();
    let (short, long) = (size(900), size(3_600));
    assert!(long < short + short / 8, "{short} bytes for 900 steps, {long} for 3,600");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever the events are, sums never go below nothing and both ways of keeping agree at the moments.
    #[test]
    fn any_events_are_played(events in prop::collection::vec((0u8..19, 0u64..12, 0u64..5, 0u8..11), 1..300)) {
        let mut s = Script::new();
        for (kind, id, size, memory) in events {
            let Some(kind) = EventKind::from_number(kind + 1) else { continue };
            let memory = Memory::from_number(memory).unwrap_or_default();
            s.event(Event { kind, id, bytes: size * MIB, address: id * 16 * MIB, memory, context: (id % 3) as u16, how: (size % 3) as u8, extra: [id, 0, 0], ..Event::default() });
        }
        let (whole, few) = (played(&s, &Limits::of(1)), played(&s, &FEW));
        prop_assert_eq!(whole.end, few.end);
        for (device, curve) in &whole.curves {
            prop_assert_eq!(curve.peak_active, few.curves[device].peak_active);
            prop_assert_eq!(curve.peak, few.curves[device].peak);
        }
    }
}

/// What lives in a snapshot comes in no order; the page has it all, at its one moment.
#[test]
fn a_snapshot_is_one_moment() {
    let mut s = Script::new();
    let (id, segment) = s.miss(3 * MIB, 4 * MIB, 0);
    s.free(id, FreeHow::Cached);
    s.pooled(Source::Hit, 3 * MIB, 4 * MIB, 0, segment);
    s.direct(Memory::Device, 2 * MIB, 0, 0);
    s.lines.retain(|l| !matches!(l, Line::Event(_, e) if e.id == id || e.kind == EventKind::Free));
    s.becomes_snapshot();
    let run = played(&s, &Limits::of(1));
    let curve = &run.curves[&0];
    assert_eq!((run.start, run.end, curve.peak), (s.time, s.time, s.time));
    assert_eq!((curve.peak_active, curve.levels[0].len(), run.lives.len()), (6 * MIB, 1, 2));
}

/// What is mapped a second time is no memory: the page shows the block where its memory lies first.
#[test]
fn a_stitched_block_lies_at_home() {
    let mut s = sample();
    let segment = |s: &mut Script, id, address| {
        let segment = Event { kind: EventKind::SegmentAlloc, id, address, bytes: 4 * MIB, ..Event::default() };
        s.event(Event { memory: Memory::Async, context: 1, ..segment });
    };
    segment(&mut s, 9001, 0x7e00_0000_0000);
    segment(&mut s, 9002, 0x7e00_0080_0000);
    for (id, address) in [(9001, 0x7e80_0000_0000), (9002, 0x7e80_0040_0000)] {
        let map = Event { kind: EventKind::Map, id, address, bytes: 4 * MIB, ..Event::default() };
        s.event(Event { memory: Memory::Async, context: 1, ..map });
    }
    let run = played(&s, &Limits::of(1));
    let homes: Vec<(u64, u64)> =
        run.stays.iter().filter(|s| s.segment.home != 0).map(|s| (s.segment.address, s.segment.home)).collect();
    assert_eq!(homes, [(0x7e80_0000_0000, 0x7e00_0000_0000), (0x7e80_0040_0000, 0x7e00_0080_0000)]);
    let memory = run.stays.iter().filter(|s| s.segment.home == 0 && s.segment.address >> 40 == 0x7e);
    assert_eq!(memory.map(|s| s.segment.bytes).sum::<u64>(), 8 * MIB);
}
