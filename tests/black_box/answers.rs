//! The answers to real histories of known truth: `scripts/pytorch`, recorded on a GPU, must each be named right.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn history(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/pytorch").join(format!("{name}.jsonl.zst"))
}

fn vramscope(arguments: &[&str], trace: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vramscope"));
    command.arg(arguments[0]).arg(history(trace)).args(&arguments[1..]).env("NO_COLOR", "1");
    command.output().unwrap()
}

fn text(out: &Output) -> String {
    String::from_utf8(out.stdout.clone()).unwrap()
}

fn json(name: &str) -> Value {
    let out = vramscope(&["report", "--json"], name);
    assert!(out.status.success(), "{name}: {}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).unwrap()
}

/// Script, kind, shape, line where it is allocated, MiB a step.
const SUSPECTS: [(&str, &str, &str, &str, f64); 6] = [
    ("kept_in_list", "references_kept", "linear", "kept_in_list.py:23", 2.0),
    ("loss_with_graph", "graph_retained", "linear", "loss_with_graph.py:2", 4.0),
    ("gradients_never_zeroed", "gradients_accumulating", "linear", "gradients_never_zeroed.py:28", 6.0),
    ("validation_without_no_grad", "graph_retained", "bursts", "validation_without_no_grad.py:38", 5.0),
    ("retain_graph", "graph_retained", "linear", "retain_graph.py:26", 14.0),
    ("cache_growing", "cache_growing", "linear", "cache_growing.py:23", 3.6),
];

#[test]
fn each_mistake_is_named() {
    for (name, kind, shape, place, mib) in SUSPECTS {
        let json = json(name);
        let suspects = json["leaks"]["suspects"].as_array().unwrap();
        assert_eq!(suspects.len(), 1, "{name}: {suspects:#?}");
        let s = &suspects[0];
        assert_eq!((s["kind"].as_str(), s["shape"].as_str()), (Some(kind), Some(shape)), "{name}");
        assert!(s["place"].as_str().unwrap().contains(place), "{name}: {}", s["place"]);
        let a_step = s["bytes_per_step"].as_f64().unwrap() / f64::from(1 << 20);
        assert!((a_step / mib - 1.0).abs() < 0.2, "{name}: {a_step} MiB a step");
        assert_eq!(json["glance"]["verdict"]["about"], "leak", "{name}");
        if shape == "linear" {
            assert_eq!(json["leaks"]["steps"]["count"], 40, "{name}");
        }
    }
}

/// Mistakes of `tests/data/mistakes`, written without a look at the rules: kind, shape, line, suspects, MiB in all.
const MISTAKES: [(&str, &str, &str, &str, usize, f64); 3] = [
    ("hooks_activations", "references_kept", "linear", "hooks_activations.py:13", 1, 30.3),
    ("model_reloaded", "references_kept", "linear", "model_reloaded.py:5", 1, 80.0),
    ("kv_never_reset", "cache_growing", "swelling", "kv_lib.py:1", 2, 17.0),
];

#[test]
fn mistakes_of_others_are_named() {
    for (name, kind, shape, place, count, mib) in MISTAKES {
        let json = json(&format!("../mistakes/{name}"));
        let suspects = json["leaks"]["suspects"].as_array().unwrap();
        assert_eq!(suspects.len(), count, "{name}: {suspects:#?}");
        for s in suspects {
            assert_eq!((s["kind"].as_str(), s["shape"].as_str()), (Some(kind), Some(shape)), "{name}");
            assert!(s["place"].as_str().unwrap().contains(place), "{name}: {}", s["place"]);
        }
        let all: f64 = suspects.iter().map(|s| s["bytes"].as_f64().unwrap()).sum::<f64>() / f64::from(1 << 20);
        assert!((all / mib - 1.0).abs() < 0.05, "{name}: {all} MiB");
    }
}

#[test]
fn the_healthy_loop_gets_no_suspect() {
    let json = json("healthy");
    assert_eq!(json["leaks"]["suspects"].as_array().unwrap().len(), 0);
    assert_eq!(json["glance"]["verdict"]["about"], "fine");
    assert_eq!(json["leaks"]["steps"]["count"], 40);
}

#[test]
fn fragmentation_is_told_from_a_leak() {
    let json = json("fragmentation");
    assert_eq!(json["leaks"]["suspects"].as_array().unwrap().len(), 0);
    assert_eq!(json["glance"]["verdict"]["about"], "waste");
    assert!(json["glance"]["verdict"]["text"].as_str().unwrap().contains("fragmentation"));
    // 8 MiB a session in use, 20 reserved.
    assert!(json["glance"]["waste"].as_f64().unwrap() > 0.5);
    let pin = &json["holes"]["pins"][0];
    assert!(pin["place"].as_str().unwrap().contains("fragmentation.py:"), "{pin}");
    assert!(pin["free"].as_u64().unwrap() > 300 << 20);
}

#[test]
fn an_out_of_memory_says_what_would_have_fit() {
    let json = json("oom_limit");
    let oom = &json["out_of_memory"][0];
    assert_eq!((oom["what"].as_str(), oom["asked"].as_u64()), (Some("PyTorch"), Some(192 << 20)));
    assert_eq!(oom["would_have_fit"], oom["pytorch_largest"]);
    assert!(oom["holders"][0]["name"].as_str().unwrap().contains("train.py:5"));
    assert!(oom["segments"]["segments"].as_u64().unwrap() > 0);
    assert_eq!(json["glance"]["verdict"]["about"], "out_of_memory");
    assert!(text(&vramscope(&["report"], "oom_limit")).contains("would have fit"));
}

#[test]
fn the_peak_is_what_pytorch_says() {
    // `torch says: … peak`, plus what is not PyTorch's.
    for (name, peak) in [("kept_in_list", 177_227_776), ("healthy", 153_174_528), ("cache_growing", 218_252_800)] {
        let json = json(name);
        let layers = json["glance"]["peak"]["layers"].as_array().unwrap();
        let tensors = layers.iter().find(|l| l["layer"] == "PyTorch's tensors").unwrap();
        let all: u64 = layers.iter().filter(|l| l["on_device"] == true).map(|l| l["active"].as_u64().unwrap()).sum();
        assert_eq!(json["glance"]["peak"]["active"].as_u64(), Some(all), "{name}");
        assert!(tensors["active"].as_u64().unwrap() <= peak, "{name}");
        let held: u64 =
            json["holders"][0]["entries"].as_array().unwrap().iter().map(|e| e["bytes"].as_u64().unwrap()).sum();
        assert_eq!(held + json["holders"][0]["rest_bytes"].as_u64().unwrap(), all, "{name}");
    }
}

#[test]
fn holders_at_any_moment_in_any_grouping() {
    for by in ["stack", "line", "function", "library", "region", "thread", "device"] {
        let out = vramscope(&["report", "--at", "5000ms", "--by", by, "--json"], "kept_in_list");
        let json: Value = serde_json::from_slice(&out.stdout).unwrap();
        let holders = &json["holders"][0];
        assert_eq!((holders["moment"].as_str(), holders["by"].as_str()), (Some("5.00 s"), Some(by)));
        let held: u64 = holders["entries"].as_array().unwrap().iter().map(|e| e["bytes"].as_u64().unwrap()).sum();
        assert_eq!(holders["active"].as_u64(), Some(held), "{by}");
    }
    let out = vramscope(&["report", "--at", "end", "--by", "line"], "kept_in_list");
    assert!(text(&out).contains("HOLDERS at the end"), "{}", text(&out));
    let out = vramscope(&["report", "--at", "epoch 3"], "kept_in_list");
    let error = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(2));
    assert!(error.contains("no mark \"epoch 3\"") && error.lines().count() == 1, "{error}");
}

#[test]
fn a_request_that_failed_is_one_failure_however_often_it_was_tried() {
    // PyTorch asks the driver, gives back what it keeps, asks again, and then says that it is out of memory.
    for (name, failed, calls, served) in [("oom_limit", 1, 2, 0), ("torch_oom", 1, 2, 1), ("healthy", 0, 0, 0)] {
        let glance = &json(name)["glance"];
        let number = |field: &str| glance[field].as_u64().unwrap();
        assert_eq!((number("failed"), number("failed_out_of_memory")), (failed, failed), "{name}");
        assert_eq!((number("failed_calls"), number("served_later")), (calls, served), "{name}");
        let out = vramscope(&["check", "--no-failures"], name);
        let said = if failed > 0 { "1 failed request," } else { "" };
        assert!(text(&out).contains(said), "{name}: {}", text(&out));
        let report = text(&vramscope(&["report"], name));
        assert_eq!(report.matches("failed allocation").count() as u64, failed, "{report}");
        if failed > 0 {
            assert!(report.contains("1 failed allocation after 2 calls: PyTorch CUDA_ERROR_OUT_OF_MEMORY"), "{report}");
            assert!(report.contains("1 request, for want of memory, after 2 calls of the driver"), "{report}");
        }
        assert_eq!(report.matches("1 request served only when PyTorch asked again").count() as u64, served, "{report}");
    }
}

#[test]
fn a_line_is_one_row() {
    for (name, ..) in SUSPECTS {
        for by in ["line", "function", "library"] {
            let out = vramscope(&["report", "--by", by, "--json"], name);
            let json: Value = serde_json::from_slice(&out.stdout).unwrap();
            let entries = json["holders"][0]["entries"].as_array().unwrap();
            let names: std::collections::BTreeSet<&str> = entries.iter().map(|e| e["name"].as_str().unwrap()).collect();
            assert_eq!(names.len(), entries.len(), "{name} by {by}: {entries:#?}");
        }
    }
}

#[test]
fn what_grew_is_exact_or_said_to_be_at_most() {
    // (What the script itself kept: 40 times 2 MiB.)
    let json = json("kept_in_list");
    let s = &json["leaks"]["suspects"][0];
    assert_eq!(
        (s["exact"].as_bool(), s["count"].as_u64(), s["bytes"].as_u64()),
        (Some(true), Some(40), Some(80 << 20))
    );
    for (name, ..) in SUSPECTS {
        let json = self::json(name);
        let s = &json["leaks"]["suspects"][0];
        let report = text(&vramscope(&["report"], name));
        let head = report.lines().find(|l| l.starts_with("  1. ")).unwrap();
        assert_eq!(head.contains("at most"), s["exact"] == false, "{name}: {head}");
        // Nobody leaks more than there is.
        assert!(s["bytes"].as_u64() <= json["glance"]["peak"]["active"].as_u64(), "{name}: {s}");
        // (Its sizes grow, too.)
        if s["exact"] == true && name != "cache_growing" {
            let grown = s["bytes_per_step"].as_f64().unwrap() * 40.0;
            assert!((s["bytes"].as_f64().unwrap() / grown - 1.0).abs() < 0.12, "{name}: {} of {grown}", s["bytes"]);
        }
    }
}

#[test]
fn a_device_at_the_peak_is_what_the_layers_say_and_the_rest() {
    for entry in std::fs::read_dir(history("x").parent().unwrap()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let name = name.strip_suffix(".jsonl.zst").unwrap();
        let glance = &json(name)["glance"];
        let d = &glance["devices_at_peak"][0];
        let number = |field: &str| d[field].as_u64().unwrap();
        // Of the moment at which it was asked; the driver's rounding comes on top.
        assert!(number("ours") < glance["reserved_peak"].as_u64().unwrap() + (16 << 20), "{name}: {d}");
        assert_eq!(number("used"), number("ours") + number("rest"), "{name}");
        assert!(number("used") <= number("total"), "{name}");
        let report = text(&vramscope(&["report"], name));
        assert!(report.contains(" ours + ") && report.contains("asked"), "{report}");
    }
    // 71 GiB were another process's when it began, and gone when it mattered.
    let glance = &json("oom_limit")["glance"];
    let d = &glance["devices_at_peak"][0];
    assert!(d["used"].as_u64().unwrap() < 4 << 30, "{d}");
    assert!(d["said_at"].as_u64().unwrap().abs_diff(glance["peak"]["time"].as_u64().unwrap()) < 10_000_000, "{d}");
}

#[test]
fn a_moment_that_is_not_there_is_one_line() {
    let file = history("kept_in_list");
    let file = file.to_str().unwrap();
    for arguments in [
        &["report", "--at", "9s"][..],
        &["report", "--at", "1h", "--json"],
        &["report", "--at", "9s", "--flamegraph", "/none/x.svg"],
        &["export", "-f", "rmm", "--at", "9s"],
        &["diff", file, "--at", "9s"],
    ] {
        let out = vramscope(arguments, "kept_in_list");
        let error = String::from_utf8(out.stderr.clone()).unwrap();
        assert_eq!((out.status.code(), text(&out).as_str()), (Some(2), ""), "{arguments:?}");
        assert!(error.contains("the history ends at 5.60 s"), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    for arguments in [
        &["report", "--at", "epoch 3"][..],
        &["export", "-f", "rmm", "--at", "epoch 3"],
        &["export", "-f", "rmm", "--from", "epoch 3"],
        &["diff", file, "--at", "epoch 3"],
    ] {
        let error = String::from_utf8(vramscope(arguments, "kept_in_list").stderr).unwrap();
        let flag = if arguments.contains(&"--from") { "--from" } else { "--at" };
        let says = "no mark \"epoch 3\": the history has no marks; or give peak, end, a time after the start (1.5s, 200ms, 2min)";
        assert!(error.contains(&format!("{flag}: {says}")), "{error}");
    }
}

#[test]
fn a_flame_graph_is_an_svg() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("peak.svg");
    let out = vramscope(&["report", "--flamegraph", file.to_str().unwrap()], "kept_in_list");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let svg = std::fs::read_to_string(file).unwrap();
    assert!(svg.contains("aten::addmm") && svg.contains("kept_in_list.py:23") && svg.contains("</svg>"));
}

#[test]
fn check_asserts() {
    let code = |arguments: &[&str], name: &str| vramscope(arguments, name).status.code();
    let healthy = ["check", "--max-peak", "1GiB", "--no-leaks", "--max-waste", "10%", "--no-failures", "--whole"];
    assert_eq!(code(&healthy, "healthy"), Some(0));
    let out = vramscope(&["check", "--max-peak", "100MiB", "--no-leaks"], "kept_in_list");
    let lines = text(&out);
    assert_eq!((out.status.code(), lines.lines().count()), (Some(1), 2), "{lines}");
    assert!(lines.contains("--no-leaks: references kept at ") && lines.contains("+2.0"), "{lines}");
    assert_eq!(code(&["check", "--max-waste", "10%"], "fragmentation"), Some(1));
    assert_eq!(code(&["check", "--no-failures"], "oom_limit"), Some(1));
    assert_eq!(code(&["check"], "healthy"), Some(2));
    assert_eq!(code(&["check", "--no-leaks"], "there_is_none"), Some(2));
}

#[test]
fn what_is_left_of_a_history_passes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let whole = zstd::decode_all(std::fs::File::open(history("healthy")).unwrap()).unwrap();
    let lines: Vec<&[u8]> = whole.split_inclusive(|b| *b == b'\n').collect();
    let part = folder.path().join("part.jsonl");
    std::fs::write(&part, lines[..lines.len() / 2].concat()).unwrap();
    let part = part.to_str().unwrap();
    let run = |arguments: &[&str]| {
        let out = Command::new(env!("CARGO_BIN_EXE_vramscope")).args(arguments).env("NO_COLOR", "1").output().unwrap();
        (out.status.code(), text(&out) + &String::from_utf8_lossy(&out.stderr))
    };
    let fails = |why: &str| {
        let (code, said) = run(&["check", part, "--no-failures"]);
        assert!(code == Some(1) && said.contains(why), "{said}");
        let before = history("healthy");
        let (code, said) = run(&["diff", before.to_str().unwrap(), part, "--fail-if-grew", "5%"]);
        assert!(code == Some(1) && said.contains(&format!("--fail-if-grew: after: {why}")), "{said}");
        let (_, said) = run(&["report", part, "--json"]);
        let json: Value = serde_json::from_str(said.lines().find(|l| l.starts_with('{')).unwrap()).unwrap();
        assert_eq!(json["glance"]["verdict"]["about"], "unfinished");
    };
    fails("the history is not finished");
    let (_, said) = run(&["recover", part]);
    assert!(said.contains("how the program ended is not known") && !said.contains("killed"), "{said}");
    fails("the end of the history is lost");
}

#[test]
fn every_report_fits_the_screen() {
    for entry in std::fs::read_dir(history("x").parent().unwrap()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let out = vramscope(&["report"], name.strip_suffix(".jsonl.zst").unwrap());
        for line in text(&out).lines() {
            assert!(line.chars().count() <= 100 && line.trim_end() == line, "{name}: {line:?}");
        }
    }
}

#[test]
fn what_another_tool_recorded_has_no_empty_words() {
    let folder = tempfile::tempdir().unwrap();
    let snapshot = folder.path().join("snapshot.pickle");
    let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/torch_snapshot.pickle.zst");
    let pickle = zstd::decode_all(std::fs::File::open(packed).unwrap()).unwrap();
    std::fs::write(&snapshot, pickle).unwrap();
    let log = folder.path().join("log.csv");
    let head = "Thread,Time,Action,Pointer,Size,Stream\n1,00:00:01.000000,allocate,0x1000,1048576,0\n";
    std::fs::write(&log, head.to_string() + "1,00:00:02.000000,free,0x1000,1048576,0\n").unwrap();
    for file in [snapshot, log] {
        let run = |arguments: &[&str], file: &Path| {
            Command::new(env!("CARGO_BIN_EXE_vramscope"))
                .args(arguments)
                .arg(file)
                .env("NO_COLOR", "1")
                .output()
                .unwrap()
        };
        assert!(run(&["import"], &file).status.success());
        let report = text(&run(&["report"], &file.with_extension("jsonl.zst")));
        for odd in ["0 B GPU", "(imported), 0 B", "process 0", "POOL", "recording began", "ended early", "from pool"] {
            assert!(!report.contains(odd), "{odd:?} in {report}");
        }
        assert!(report.contains("imported ") && report.contains("all that its file held"), "{report}");
        // No section is a heading alone.
        let lines: Vec<&str> = report.lines().collect();
        let heading = |l: &&str| !l.is_empty() && !l.starts_with(' ');
        assert!(lines.windows(2).all(|w| !(heading(&w[0]) && w[1].is_empty())), "{report}");
    }
}

#[test]
fn the_readmes_sample_is_what_is_printed() {
    let readme = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    let sample = readme.split("```").find(|part| part.trim_start().starts_with("AT A GLANCE")).expect("a sample");
    let report = text(&vramscope(&["report"], "kept_in_list"));
    // What stands between two cuts stands there in the report.
    let mut rest = report.as_str();
    for part in sample.split("[...]").map(|p| p.trim_matches('\n')).filter(|p| !p.is_empty()) {
        let at = rest.find(part).unwrap_or_else(|| panic!("not printed, or not there:\n{part}\nin\n{report}"));
        rest = &rest[at + part.len()..];
    }
}
