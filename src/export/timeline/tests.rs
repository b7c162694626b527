//! Timelines read back as their readers do.

use std::collections::HashMap;

use prost::Message;
use serde_json::Value as Json;
use vramscope_core::event::{Event, EventKind, Memory};

use super::perfetto_proto as proto;
use super::*;
use crate::export::training::{PEAK, TENSORS, opened, training};
use crate::report::testing::MIB;

/// The packets of a file.
#[derive(Clone, PartialEq, Message)]
struct Trace {
    #[prost(message, repeated, tag = "1")]
    packet: Vec<proto::TracePacket>,
}

/// A trace with the texts in place of their numbers.
struct Read {
    tracks: HashMap<u64, proto::TrackDescriptor>,
    events: Vec<(u64, proto::TrackEvent)>,
    names: HashMap<u64, String>,
}

impl Read {
    fn of(bytes: &[u8]) -> Read {
        let mut read = Read { tracks: HashMap::new(), events: Vec::new(), names: HashMap::new() };
        for p in Trace::decode(bytes).unwrap().packet {
            for name in p.interned_data.iter().flat_map(|i| &i.event_names) {
                assert!(read.names.insert(name.iid(), name.name().to_string()).is_none());
            }
            if let Some(t) = p.track_descriptor.clone() {
                assert!(read.tracks.insert(t.uuid(), t).is_none(), "a track twice");
            }
            if let Some(e) = p.track_event.clone() {
                assert!(read.tracks.contains_key(&e.track_uuid()), "a track before its use");
                read.events.push((p.timestamp(), e));
            }
        }
        read
    }

    fn highest(&self, counter: &str) -> u64 {
        let track = self.tracks.values().find(|t| t.counter.is_some() && t.name() == counter);
        let track = track.unwrap_or_else(|| panic!("no {counter}")).uuid();
        self.events
            .iter()
            .filter(|(_, e)| e.track_uuid() == track)
            .map(|(_, e)| e.counter_value() as u64)
            .max()
            .unwrap()
    }

    fn named(&self, kind: i32) -> Vec<(u64, &str)> {
        let mut all: Vec<(u64, &str)> = self
            .events
            .iter()
            .filter(|(_, e)| e.r#type() == kind)
            .map(|(t, e)| (*t, e.name_iid.map_or("", |n| self.names[&n].as_str())))
            .collect();
        all.sort();
        all
    }
}

fn written(format: &dyn Format, change: impl Fn(&mut Source)) -> (Vec<u8>, Vec<String>) {
    let (folder, mut source) = opened(&training());
    change(&mut source);
    let path = folder.path().join("out");
    let notes = format.write(&mut source, &Target::Path(path.clone())).unwrap();
    (std::fs::read(path).unwrap(), notes)
}

#[test]
fn counters_are_the_reports() {
    let read = Read::of(&written(&Perfetto, |_| ()).0);
    assert_eq!(read.highest("GPU 0 active"), PEAK);
    assert_eq!(read.highest("GPU 0 PyTorch allocated (tensors)"), TENSORS);
    assert_eq!(read.highest("GPU 0 PyTorch reserved"), 64 * MIB);
    assert_eq!(read.highest("GPU 0 PyTorch inactive"), 64 * MIB);
    assert_eq!(read.highest("GPU 0 inactive in the pool"), 16 * MIB);
    assert_eq!(read.highest("GPU 0 outside PyTorch and the pool"), 34 * MIB);
    assert_eq!(read.highest("GPU 0 used"), 1 << 30);
    assert_eq!(read.highest("GPU 0 context, modules, driver, other processes"), (1 << 30) - 96 * MIB);
    assert_eq!(read.highest("GPU 0 layer: pinned host memory"), MIB);
}

#[test]
fn slices_regions_and_failures() {
    let (bytes, notes) = written(&Perfetto, |_| ());
    assert!(notes.is_empty(), "{notes:?}");
    let read = Read::of(&bytes);
    let begun = read.named(proto::BEGIN);
    assert_eq!(begun.len(), 10 + 4, "{begun:?}");
    assert_eq!(read.named(proto::END).len(), begun.len());
    assert_eq!(begun.iter().filter(|(_, n)| *n == "30.0 MiB Net.forward (train.py:20)").count(), 2);
    // Entered before what was recorded in it.
    let step = begun.iter().find(|(_, n)| *n == "step").unwrap();
    assert_eq!(step.0 % 1_000_000, 999_000);
    let moments: Vec<&str> = read.named(proto::INSTANT).into_iter().map(|(_, n)| n).collect();
    assert!(moments.contains(&"step 1") && moments.contains(&"step 2"), "{moments:?}");
    assert_eq!(moments.iter().filter(|m| m.contains("failed: 200 GiB")).count(), 1);
    assert_eq!(moments.iter().filter(|m| m.contains("bad_free")).count(), 1);
}

#[test]
fn what_never_ends_is_a_moment_and_pytorchs_failure_has_its_name() {
    let mut script = training();
    let begin =
        |id, text, process| Event { kind: EventKind::RegionBegin, id, extra: [text, 0, process], ..Event::default() };
    // One of the process, and one of a thread.
    script.event(begin(901, 1, 1));
    script.event(begin(902, 2, 0));
    script.event(Event {
        kind: EventKind::AllocFailed,
        memory: Memory::Tensor,
        code: 2,
        bytes: 7 << 30,
        ..Event::default()
    });
    for format in [&Perfetto as &dyn Format, &Chrome] {
        let (folder, mut source) = opened(&script);
        let path = folder.path().join("out");
        format.write(&mut source, &Target::Path(path.clone())).unwrap();
        let bytes = std::fs::read(path).unwrap();
        if let Ok(json) = serde_json::from_slice::<Json>(&bytes) {
            let text = json.to_string();
            assert_eq!(text.matches("(open at the end)").count(), 2, "{text}");
            continue;
        }
        let read = Read::of(&bytes);
        let begun = read.named(proto::BEGIN);
        assert_eq!((begun.len(), read.named(proto::END).len()), (10 + 4, 10 + 4), "{begun:?}");
        let moments: Vec<&str> = read.named(proto::INSTANT).into_iter().map(|(_, n)| n).collect();
        assert_eq!(moments.iter().filter(|m| m.ends_with("(open at the end)")).count(), 2, "{moments:?}");
        assert!(moments.contains(&"PyTorch failed: 7.00 GiB"), "{moments:?}");
    }
}

#[test]
fn the_largest_are_kept_and_the_rest_is_said() {
    let (bytes, notes) = written(&Perfetto, |source| source.options.limit = Some(2));
    let begun = Read::of(&bytes).named(proto::BEGIN).len();
    assert_eq!(begun, 2 + 4);
    assert!(notes[0].contains("8 smaller or shorter allocations"), "{notes:?}");
}

#[test]
fn chrome_says_the_same() {
    let text = written(&Chrome, |_| ()).0;
    let json: Json = serde_json::from_slice(&text).unwrap();
    let events = json["traceEvents"].as_array().unwrap();
    let of = |phase: &str| events.iter().filter(|e| e["ph"] == phase).collect::<Vec<_>>();
    let active = of("C").into_iter().filter(|e| e["name"] == "GPU 0 active");
    assert_eq!(active.map(|e| e["args"]["bytes"].as_u64().unwrap()).max(), Some(PEAK));
    assert_eq!((of("X").len(), of("B").len(), of("E").len()), (10, 4, 4));
    let slice = of("X").into_iter().find(|e| e["args"]["bytes"] == 30 * MIB).unwrap();
    assert_eq!(slice["args"]["region"], "step/forward");
    assert_eq!(slice["args"]["stack"][1], "Net.forward (train.py:20)");
    // No two on one thread overlap.
    let mut ends: HashMap<u64, f64> = HashMap::new();
    let mut slices = of("X");
    slices.sort_by(|a, b| a["ts"].as_f64().partial_cmp(&b["ts"].as_f64()).unwrap());
    for s in slices {
        let (from, long) = (s["ts"].as_f64().unwrap(), s["dur"].as_f64().unwrap());
        let end = ends.entry(s["tid"].as_u64().unwrap()).or_default();
        assert!(*end <= from + 0.001);
        *end = from + long;
    }
}

#[test]
fn ranks_are_processes_of_one_timeline() {
    let (folder, first) = opened(&training());
    let mut script = training();
    // The other began two seconds later, on another machine, with the same process id.
    if let vramscope_core::trace::Line::Header(h) = &mut script.lines[0] {
        (h.start_seconds, h.host) = (2, "gpu08".into());
        h.rank.insert("RANK".into(), "1".into());
    }
    let (_other, second) = opened(&script);
    let path = folder.path().join("out");
    Perfetto.write_all(&mut [first, second], &Target::Path(path.clone())).unwrap();
    let read = Read::of(&std::fs::read(path).unwrap());
    let mut processes: Vec<(i32, &str)> =
        read.tracks.values().filter_map(|t| t.process.as_ref()).map(|p| (p.pid(), p.process_name())).collect();
    processes.sort();
    assert_eq!(processes[0], (4242, "rank 0: program (gpu07)"));
    assert!(processes[1].0 != 4242 && processes[1].1 == "rank 1: program (gpu08)");
    let marks: Vec<u64> = read.named(proto::INSTANT).iter().filter(|(_, n)| *n == "step 1").map(|(t, _)| *t).collect();
    assert_eq!(marks[1] - marks[0], 2_000_000_000);
}

#[test]
fn where_much_changes_the_highest_is_kept() {
    use super::counters::tests::changes;
    let kept = changes(200_000, 1_000_000_000, |i| if i == 77_777 { 1 << 40 } else { i % 97 + 1 });
    assert!(kept.len() < 30_100, "{}", kept.len());
    assert_eq!(kept.iter().map(|k| k.1).max(), Some(1 << 40));
    assert!(kept.is_sorted_by_key(|k| k.0));
    assert_eq!(kept.last().unwrap().1, 199_999 % 97 + 1);
}
