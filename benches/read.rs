//! Speed of reading: lines by `Reader`, batches in parallel, and a whole report's play of the events, of a training loop
//! of so many events, plain and compressed.
//!
//!     cargo bench --bench read -- [EVENTS]             figures, by default of 2 million events
//!     cargo bench --bench read -- FILE                 figures of a history that is there
//!     cargo bench --bench read -- EVENTS FILE          only writes one: FILE.jsonl or FILE.jsonl.zst

mod training;

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::time::Instant;

use vramscope_cli::reading::Batches;
use vramscope_cli::report::History;
use vramscope_core::trace::Line;
use vramscope_core::trace::read::{Item, Reader};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    if let Some(path) = arguments.first().map(Path::new).filter(|path| path.exists()) {
        return measure(path);
    }
    let events = arguments.first().map_or(2_000_000, |a| a.parse().expect("a number of events"));
    if let Some(path) = arguments.get(1) {
        write(Path::new(path), events);
        return;
    }
    for extension in ["jsonl", "jsonl.zst"] {
        let path = std::env::temp_dir().join(format!("vramscope-bench-{}.{extension}", std::process::id()));
        write(&path, events);
        measure(&path);
        std::fs::remove_file(&path).expect("the file");
    }
}

fn write(path: &Path, events: u64) {
    let out = BufWriter::new(File::create(path).expect("a file"));
    training::write_history(out, events, path.extension().is_some_and(|e| e == "zst")).expect("a history");
}

fn measure(path: &Path) {
    let bytes = std::fs::metadata(path).expect("the file").len();
    let start = Instant::now();
    let events = Reader::open(path).expect("a history").filter(|l| matches!(l, Line::Event(..))).count() as f64;
    let say = |what: &str, seconds: f64| println!("  {what:<24} {:>6.2} M events/s", events / seconds / 1e6);
    println!("{}: {events} events, {:.1} bytes each", path.display(), bytes as f64 / events);
    say("lines", start.elapsed().as_secs_f64());
    let start = Instant::now();
    let batches = Batches::open(path).expect("a history");
    let parsed = batches.flatten().filter(|(_, item)| matches!(item, Item::Event(..))).count();
    assert_eq!(parsed as f64, events);
    say("batches", start.elapsed().as_secs_f64());
    let start = Instant::now();
    let history = History::read(path).expect("a history");
    assert_eq!(history.events as f64, events);
    say("a report's reading", start.elapsed().as_secs_f64());
}
