//! Tables read back.

use std::collections::HashMap;
use std::path::Path;

use ::parquet::file::reader::{FileReader, SerializedFileReader};
use ::parquet::record::Field;

use super::schema::{TABLES, Type};
use super::*;
use crate::export::training::{PEAK, opened, training};
use vramscope_core::trace::{Line, Oom, OomLimit};

type Row = HashMap<String, String>;

fn files(folder: &Path, out: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()) {
        if entry.is_dir() { files(&entry, out) } else { out.push(entry) }
    }
}

/// The rows of a table, as text: in every file of it.
fn rows(folder: &Path, table: &str) -> Vec<Row> {
    let mut found = Vec::new();
    files(&folder.join(table), &mut found);
    found.sort();
    found.iter().flat_map(|f| if f.extension().unwrap() == "csv" { of_csv(f) } else { of_parquet(f) }).collect()
}

fn of_csv(path: &Path) -> Vec<Row> {
    ::csv::Reader::from_path(path).unwrap().deserialize().map(|row| row.unwrap()).collect()
}

fn of_parquet(path: &Path) -> Vec<Row> {
    let reader = SerializedFileReader::new(std::fs::File::open(path).unwrap()).unwrap();
    let text = |f: &Field| match f {
        Field::Null => String::new(),
        Field::Str(text) => text.clone(),
        Field::Long(n) => n.to_string(),
        Field::Bool(b) => b.to_string(),
        Field::TimestampMicros(us) => us.to_string(),
        other => panic!("{other:?}"),
    };
    let row = |r: ::parquet::record::Row| r.get_column_iter().map(|(n, f)| (n.clone(), text(f))).collect();
    reader.get_row_iter(None).unwrap().map(|r| row(r.unwrap())).collect()
}

fn written(file: File) -> tempfile::TempDir {
    let (_folder, mut source) = opened(&training());
    let out = tempfile::tempdir().unwrap();
    let notes = Tables(file).write(&mut source, &Target::Path(out.path().into())).unwrap();
    assert!(notes[0].contains("run program-1970-01-01-000000"), "{notes:?}");
    out
}

#[test]
fn both_kinds_hold_the_same() {
    let (csv, parquet) = (written(File::Csv), written(File::Parquet));
    for t in TABLES {
        let (a, b) = (rows(csv.path(), t.name), rows(parquet.path(), t.name));
        assert_eq!(a.len(), b.len(), "{}", t.name);
        for (a, b) in a.iter().zip(&b) {
            for c in t.columns {
                let (a, mut b) = (&a[c.name], b[c.name].clone());
                // CSV has times of day as text.
                if c.kind == Type::Time && !b.is_empty() {
                    b = partition::iso(b.parse::<u64>().unwrap() * 1_000);
                }
                assert_eq!(*a, b, "{} of {}", c.name, t.name);
            }
        }
    }
}

#[test]
fn rows_say_what_happened() {
    let out = written(File::Parquet);
    let count = |t: &str| rows(out.path(), t).len();
    let wanted = [
        ("processes", 1),
        ("devices", 1),
        ("allocations", 10),
        ("segments", 2),
        ("samples", 1),
        ("marks", 2),
        ("regions", 4),
        ("ooms", 0),
        ("stacks", 3 + 3),
    ];
    for (table, n) in wanted {
        assert_eq!(count(table), n, "{table}");
    }
    let allocations = rows(out.path(), "allocations");
    let tensor = allocations.iter().find(|r| r["bytes"] == (10 << 20).to_string()).unwrap();
    for (column, value) in [
        ("layer", "tensor"),
        ("place", "Net.forward (train.py:20)"),
        ("region", "step/forward"),
        ("mark", "step 1"),
        ("marks", "1"),
        ("caller", "libc10_cuda.so"),
        ("thread_name", "python"),
        ("pytorch_segment", "false"),
        ("freed", "driver"),
        ("process", "gpu07-4242-0"),
    ] {
        assert_eq!(tensor[column], value, "{column}");
    }
    assert_eq!(allocations.iter().filter(|r| r["pytorch_segment"] == "true").count(), 1);
    let events = rows(out.path(), "events");
    let of = |kind: &str| events.iter().filter(|r| r["kind"] == kind).count();
    assert_eq!((of("alloc"), of("free"), of("free_failed"), of("alloc_failed"), of("mark")), (10, 9, 2, 1, 2));
    let stacks = rows(out.path(), "stacks");
    let inlined = stacks.iter().find(|r| r["function"] == "helper").unwrap();
    assert_eq!((inlined["inlined"].as_str(), inlined["line"].as_str(), inlined["frame"].as_str()), ("true", "3", "1"));
}

#[test]
fn an_out_of_memory_has_its_segment_and_its_limit() {
    let mut script = training();
    let end = script.lines.pop().unwrap();
    let limit = OomLimit { bytes: 24 << 30, used: 23 << 30, by: "set_limit()".into() };
    let oom = Oom { what: "PyTorch".into(), asked: 3 << 20, segment: 20 << 20, limit: Some(limit), ..Oom::default() };
    script.lines.extend([oom, Oom { what: "cudaMalloc".into(), ..Oom::default() }].map(|o| Line::Oom(Box::new(o))));
    script.lines.push(end);
    let (_folder, mut source) = opened(&script);
    let out = tempfile::tempdir().unwrap();
    Tables(File::Csv).write(&mut source, &Target::Path(out.path().into())).unwrap();
    let columns = ["asked", "segment", "limit_bytes", "limit_used", "limit_by"];
    let ooms = rows(out.path(), "ooms");
    let told = |what: &str| columns.map(|c| ooms.iter().find(|r| r["what"] == what).unwrap()[c].clone());
    let [bytes, used] = [24u64 << 30, 23 << 30].map(|n| n.to_string());
    assert_eq!(told("PyTorch"), ["3145728", "20971520", &bytes, &used, "set_limit()"]);
    assert_eq!(told("cudaMalloc"), ["0", "", "", "", ""]);
}

#[test]
fn the_peak_by_sums() {
    let out = written(File::Csv);
    let mut changes: Vec<(u64, i64)> = Vec::new();
    for r in rows(out.path(), "allocations") {
        if ["tensor", "pinned"].contains(&r["layer"].as_str()) {
            continue;
        }
        let block: i64 = r["block"].parse().unwrap();
        changes.push((r["alloc_ns"].parse().unwrap(), block));
        if let Ok(freed) = r["free_ns"].parse() {
            changes.push((freed, -block));
        }
    }
    changes.sort();
    let mut now = 0;
    let peak = changes.iter().map(|(_, change)| {
        now += change;
        now
    });
    assert_eq!(peak.max(), Some(PEAK as i64));
}

#[test]
fn a_second_export_takes_the_place_of_the_first_if_it_may() {
    let (_folder, mut source) = opened(&training());
    let out = tempfile::tempdir().unwrap();
    source.options.run = Some("night/7".into());
    let target = Target::Path(out.path().into());
    Tables(File::Parquet).write(&mut source, &target).unwrap();
    let e = Tables(File::Parquet).write(&mut source, &target).unwrap_err();
    assert!(e.to_string().ends_with("gpu07-4242-0.parquet: is there already; --force replaces it"), "{e}");
    source.options.force.force = true;
    Tables(File::Parquet).write(&mut source, &target).unwrap();
    source.options.force.force = false;
    // Of another run everything is new.
    source.options.run = Some("night/8".into());
    Tables(File::Parquet).write(&mut source, &target).unwrap();
    std::fs::remove_dir_all(out.path()).unwrap();
    source.options.run = Some("night/7".into());
    Tables(File::Parquet).write(&mut source, &target).unwrap();
    let mut found = Vec::new();
    files(out.path(), &mut found);
    assert_eq!(found.len(), TABLES.len());
    let name = "marks/run=night%2F7/rank=0/date=1970-01-01/gpu07-4242-0.parquet";
    assert!(found.contains(&out.path().join(name)), "{found:?}");
}

#[test]
fn a_row_of_another_shape_is_refused() {
    let out = tempfile::tempdir().unwrap();
    let target = Target::Path(out.path().join("x"));
    let mut sheet = File::Parquet.sheet(schema::table("marks"), &target).unwrap();
    assert!(sheet.row(&[Cell::None]).is_err());
    assert!(sheet.row(&[Cell::Int(1); 6]).is_err());
}
