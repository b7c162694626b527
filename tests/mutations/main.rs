//! Whatever is done to a history, nothing panics, hangs or eats memory, and lines in parallel are the reader's lines.
//!
//! By default a second of it, the same every time. For longer, with histories of one's own, and to see one case again:
//!
//!     VRAMSCOPE_MUTATE_SECONDS=1800 VRAMSCOPE_MUTATE_TRACES=FOLDER cargo test --release --test mutations -- --nocapture
//!     VRAMSCOPE_MUTATE_SEED=SEED … shows that case; VRAMSCOPE_MUTATE_MIB=4096 … makes larger bombs

mod bombs;
mod mutate;
#[path = "../../benches/training/mod.rs"]
mod training;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use mutate::Random;
use vramscope_cli::reading::Batches;
use vramscope_cli::report::text::Paint;
use vramscope_cli::report::{self, History, Page};
use vramscope_cli::verify::verify;
use vramscope_core::trace::Line;
use vramscope_core::trace::read::{Damage, Reader};

/// Reads a file in every way there is.
fn look_at(path: &Path) {
    let Ok(mut reader) = Reader::open(path) else {
        assert!(Batches::with_threads(path, 2).is_err(), "only the reader refuses it");
        assert!(verify(path).is_err() && History::read(path).is_err(), "only the reader refuses it");
        return;
    };
    let lines: Vec<Line> = reader.by_ref().collect();
    for threads in [0, 2] {
        let (got, damage) = batches(path, threads);
        assert!(got == lines[1..], "{threads} threads read other lines");
        assert_eq!(damage.as_ref(), reader.damage(), "{threads} threads");
    }
    verify(path).expect("a history");
    let history = History::read(path).expect("a history");
    assert_eq!(history.events, lines.iter().filter(|l| matches!(l, Line::Event(..))).count() as u64);
    let mut page = Page::new(Paint::default(), &[], 10);
    let answers =
        report::answers::Answers::of(&mut page, &history, &report::answers::Asked::default()).expect("answers");
    report::write(&mut page, &history, &answers);
    let _ = report::summary::text(&history);
}

fn batches(path: &Path, threads: usize) -> (Vec<Line>, Option<Damage>) {
    let mut batches = Batches::with_threads(path, threads).expect("a history");
    let lines = batches.by_ref().flatten().map(|(_, item)| item.line()).collect();
    (lines, batches.damage().cloned())
}

/// Histories to begin with: their text.
fn histories() -> Vec<Vec<u8>> {
    let mut training = Vec::new();
    training::write_history(&mut training, 500, false).expect("a history");
    let example = include_str!("../../docs/trace-format.md");
    let from = example.find("```json\n").expect("an example") + 8;
    let to = from + example[from..].find("```").expect("its end");
    let mut all = vec![training, example.as_bytes()[from..to].to_vec()];
    let folder = std::env::var_os("VRAMSCOPE_MUTATE_TRACES").map(PathBuf::from);
    for entry in folder.iter().flat_map(|folder| std::fs::read_dir(folder).expect("the folder").flatten()) {
        let bytes = std::fs::read(entry.path()).expect("the file");
        let text = zstd::stream::decode_all(&bytes[..]).unwrap_or(bytes);
        if text.starts_with(b"{\"kind\":\"header\"") {
            // What the first lines cannot provoke, more of them rarely do.
            let end =
                text.iter().enumerate().filter(|(_, b)| **b == b'\n').nth(4000).map_or(text.len(), |(i, _)| i + 1);
            all.push(text[..end].to_vec());
        }
    }
    all
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
fn nothing_breaks() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x.jsonl");
    let histories = histories();
    let seconds = number("VRAMSCOPE_MUTATE_SECONDS");
    let one = number("VRAMSCOPE_MUTATE_SEED");
    let begun = Instant::now();
    let mut broken = Vec::new();
    for seed in one.unwrap_or(1).. {
        let over = match (one, seconds) {
            (Some(one), _) => seed > one,
            (None, Some(seconds)) => begun.elapsed() > Duration::from_secs(seconds),
            (None, None) => seed > 60,
        };
        if over {
            println!("{} cases", seed - 1);
            break;
        }
        std::fs::write(&path, mutate::case(&histories, &mut Random::of(seed))).expect("the case");
        let start = Instant::now();
        let done = catch_unwind(AssertUnwindSafe(|| look_at(&path)));
        let took = start.elapsed();
        if done.is_err() || took > Duration::from_secs(60) {
            let kept = std::env::temp_dir().join(format!("vramscope-mutation-{seed}"));
            std::fs::copy(&path, &kept).expect("the case, kept");
            println!("seed {seed}: {took:?}, kept as {}", kept.display());
            broken.push(seed);
        }
    }
    assert!(broken.is_empty(), "seeds {broken:?}");
}
