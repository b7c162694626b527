//! Small files that become large: memory stays bounded.

use std::io::Write;
use std::path::Path;

use super::*;

/// What the process had in memory at most since the last call.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("status");
    let peak = status.lines().find_map(|l| l.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")).expect("VmHWM");
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    peak.parse::<u64>().expect("a number") << 10
}

/// Writes a history whose text ends in so many times this piece.
fn bomb(path: &Path, piece: &[u8], times: usize) {
    let mut text = Vec::new();
    training::write_history(&mut text, 0, false).expect("a history");
    let mut frame =
        zstd::stream::write::Encoder::new(std::fs::File::create(path).expect("a file"), 1).expect("a frame");
    frame.write_all(&text).expect("the beginning");
    for _ in 0..times {
        frame.write_all(piece).expect("the piece");
    }
    frame.finish().expect("the end");
}

#[test]
fn bombs() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x.jsonl.zst");
    let mib = number("VRAMSCOPE_MUTATE_MIB").unwrap_or(8) as usize;
    let line = |text: &str| format!("{text}\n").into_bytes();
    let pieces = [
        vec![0; 1 << 20],
        vec![b'\n'; 1 << 20],
        vec![b'x'; 1 << 20],
        line("{}"),
        line("{\"kind\":\"note\",\"time\":1,\"message\":\"again\"}"),
        line("{\"kind\":\"oom\",\"time\":1,\"thread\":1,\"advice\":[\"less\"],\"holders\":[{\"stack\":1}]}"),
        line("{\"kind\":\"free\",\"thread\":1,\"time\":1,\"id\":77}"),
        line("{\"kind\":\"bad_free\",\"thread\":1,\"time\":1,\"id\":77}"),
        line("{\"kind\":\"alloc_failed\",\"thread\":1,\"time\":1,\"bytes\":77}"),
        line("{\"kind\":\"sample\",\"thread\":1,\"time\":1,\"free\":77,\"total\":99,\"active\":5,\"inactive\":6}"),
        line("{\"kind\":\"region_begin\",\"thread\":1,\"time\":1,\"id\":77,\"text\":1}"),
        line(&format!("{{\"kind\":\"stack\",\"stack\":7,\"frames\":[{}1]}}", "1,".repeat(1 << 20))),
        line(&format!("{{\"kind\":\"stack\",\"stack\":7,\"frames\":[{}[]]}}", "[],".repeat(1 << 20))),
        line(&format!("{{\"kind\":\"alloc\",\"thread\":1,{}\"id\":7}}", "\"a\":[],".repeat(1 << 20))),
    ];
    for piece in pieces {
        bomb(&path, &piece, (mib << 20) / piece.len());
        let start = Instant::now();
        let before = peak();
        let lines = Reader::open(&path).expect("a history").count();
        let read =
            Batches::with_threads(&path, 2).expect("a history").map(|batch| batch.into_iter().count()).sum::<usize>();
        assert_eq!(read + 1, lines);
        verify(&path).expect("a history");
        let history = History::read(&path).expect("a history");
        let mut page = Page::new(Paint::default(), &[], 10);
        let answers =
            report::answers::Answers::of(&mut page, &history, &report::answers::Asked::default()).expect("answers");
        report::write(&mut page, &history, &answers);
        let (piece, peak) = (String::from_utf8_lossy(&piece[..piece.len().min(60)]).into_owned(), peak() >> 20);
        println!("{piece:?}: {lines} lines, {peak} MiB at most ({} before), {:?}", before >> 20, start.elapsed());
        assert!(peak < 2048, "{piece}: {peak} MiB");
    }
}
