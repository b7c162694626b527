//! docs/trace-format.md speaks of everything that a history can hold, and its example is one.

mod record_common;

use record_common::Folder;
use vramscope_core::counters::NAMES;
use vramscope_core::event::{EventKind, FreeHow, Memory, Source, TrimWhy};
use vramscope_core::trace::read::Reader;
use vramscope_core::trace::{Line, write};

const PAGE: &str = include_str!("../../docs/trace-format.md");

fn example() -> &'static str {
    let (_, rest) = PAGE.split_once("```json\n").expect("an example");
    rest.split_once("```").expect("its end").0
}

#[test]
fn the_example_is_what_the_writer_writes() {
    let folder = Folder::new();
    let path = folder.file("example.jsonl");
    std::fs::write(&path, example()).unwrap();
    let mut reader = Reader::open(&path).unwrap();
    let mut again = Vec::new();
    let mut events = 0;
    for line in reader.by_ref() {
        assert_ne!(line, Line::Unknown);
        events += u64::from(matches!(line, Line::Event(..)));
        if let Line::Footer(footer) = &line {
            assert_eq!(footer.events, events);
        }
        write::line(&mut again, &line);
    }
    assert_eq!(reader.damage(), None);
    assert_eq!(String::from_utf8(again).unwrap(), example());
}

#[test]
fn every_name_is_explained() {
    let (_, prose) = PAGE.split_once("## Lines that are no events").unwrap();
    let numbers = 0..=u8::MAX;
    let mut names: Vec<&str> = NAMES.to_vec();
    names.extend(numbers.clone().filter_map(EventKind::from_number).map(EventKind::name));
    names.extend(numbers.clone().filter_map(Memory::from_number).map(Memory::name));
    names.extend(numbers.clone().filter_map(Source::from_number).map(Source::name));
    names.extend(numbers.clone().filter_map(FreeHow::from_number).map(FreeHow::name));
    names.extend(numbers.filter_map(TrimWhy::from_number).map(TrimWhy::name));
    for line in example().lines() {
        let object: serde_json::Map<String, serde_json::Value> = serde_json::from_str(line).unwrap();
        for key in object.keys().filter(|key| *key != "kind") {
            assert!(prose.contains(&format!("`{key}`")), "the field {key} is not explained");
        }
    }
    for name in names {
        assert!(prose.contains(&format!("`{name}`")), "{name} is not explained");
    }
}
