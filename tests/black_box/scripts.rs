//! The scripts of `scripts/`: they can be read by their interpreters, and what checks histories on a GPU (`tensor_peak.py`,
//! `found.py`, `same.py`) is right about histories made by hand.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::{Mode, Program};

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts")
}

fn python(words: &[&Path]) -> Output {
    Command::new("python3").args(words).env("PYTHONDONTWRITEBYTECODE", "1").output().expect("python3")
}

/// What it says, and whether it is content.
fn said(out: &Output) -> (String, bool) {
    assert!(out.stderr.is_empty(), "{}", String::from_utf8_lossy(&out.stderr));
    (String::from_utf8_lossy(&out.stdout).into_owned(), out.status.success())
}

fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let all = fs::read_dir(folder).expect("the folder").flatten().map(|e| e.path());
    let (folders, files): (Vec<PathBuf>, Vec<PathBuf>) = all.partition(|p| p.is_dir());
    let mut found: Vec<PathBuf> = folders.iter().flat_map(|f| self::files(f, extension)).collect();
    found.extend(files.into_iter().filter(|p| p.extension().is_some_and(|e| e == extension)));
    found
}

#[test]
fn scripts_can_be_read() {
    let shell = files(&scripts(), "sh");
    let scripts = files(&scripts(), "py");
    assert!(shell.len() >= 5 && scripts.len() >= 20, "{} and {}", shell.len(), scripts.len());
    for script in &shell {
        let out = Command::new("bash").arg("-n").arg(script).output().expect("bash");
        assert!(out.status.success(), "{}: {}", script.display(), String::from_utf8_lossy(&out.stderr));
    }
    let check = Path::new("import ast, sys\nfor p in sys.argv[1:]: ast.parse(open(p, encoding='utf-8').read(), p)");
    let words: Vec<&Path> = [Path::new("-c"), check].into_iter().chain(scripts.iter().map(PathBuf::as_path)).collect();
    assert_eq!(said(&python(&words)), (String::new(), true));
}

/// What a newcomer sees first: the planted leak by its line, and the training steps.
#[test]
fn the_quickstart_tells_its_leak() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("program");
    let source = scripts().join("quickstart.c");
    let built = Command::new("gcc").args(["-g", "-O1", "-o"]).arg(&program).arg(&source).arg("-ldl").status();
    assert!(built.expect("gcc").success());
    let run = Program::at(&program).launched(&["--trace", "q.jsonl"]).run(Mode::Bare);
    run.assert_success();
    assert!(run.stderr.contains("never freed  120 MiB in 60 allocations"), "{}", run.stderr);
    let mut report = Command::new(env!("CARGO_BIN_EXE_vramscope"));
    let report = report.arg("report").args(run.traces()).output().expect("a report");
    let (text, content) = said(&report);
    let one_line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "memory leaks: +2.00 MiB a step from",
        "keep_loss_history: references kept",
        "steps 60 of",
        "120 MiB in 60 allocations",
    ] {
        assert!(content && one_line.contains(part), "{part} is missing in\n{text}");
    }
}

/// A history of 2 segments of PyTorch, one mapped in pieces, and tensors in them.
const HISTORY: &str = r#"{"kind":"header","format":"vramscope-history","version":1,"pid":7,"start_seconds":100,"start_nanoseconds":0}
{"kind":"module","module":1,"path":"/lib/libc10_cuda.so","address":0,"bytes":1}
{"kind":"module","module":2,"path":"/lib/libcublas.so","address":0,"bytes":1}
{"kind":"python","python":1,"function":"f","file":"/x/guilty.py","line":2}
{"kind":"stack","stack":1,"frames":[[1,5],1]}
{"kind":"thread","thread":1,"tid":7,"name":"a","sequence":0}
{"kind":"context","thread":1,"time":1000,"handle":1,"device":0,"primary":1,"context":1}
{"kind":"alloc","thread":1,"time":2000,"id":1,"address":4096,"bytes":8192,"context":1,"caller":1,"stack":1}
{"kind":"alloc","thread":1,"time":2100,"id":2,"address":65536,"bytes":1000,"context":1,"caller":2}
{"kind":"alloc","thread":1,"time":3000,"id":3,"address":9,"bytes":2048,"memory":"vmm","context":1,"caller":1}
{"kind":"alloc","thread":1,"time":3001,"id":4,"address":10,"bytes":2048,"memory":"vmm","context":1,"caller":1}
{"kind":"map","thread":1,"time":3100,"id":3,"address":1000000,"bytes":2048}
{"kind":"map","thread":1,"time":3101,"id":4,"address":1002048,"bytes":2048}
{"kind":"alloc","thread":1,"time":4000,"id":11,"address":4096,"bytes":4096,"memory":"tensor","context":1,"stack":1}
{"kind":"alloc","thread":1,"time":4200,"id":12,"address":1001024,"bytes":2048,"memory":"tensor","context":1,"stack":1}
{"kind":"free","thread":1,"time":4100,"id":11}
{"kind":"alloc","thread":1,"time":4300,"id":13,"address":8192,"bytes":4096,"memory":"tensor","context":1,"stack":1}
{"kind":"exit","thread":1,"time":9000}
{"kind":"footer","time":9000,"events":13,"lost":0,"stacks_refused":0,"end":"exit","by":"launcher"}
"#;

struct Folder(tempfile::TempDir);

impl Folder {
    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, text).expect("a file");
        path
    }
}

fn folder() -> Folder {
    Folder(tempfile::tempdir().expect("a folder"))
}

#[test]
fn the_peak_of_tensors() {
    let folder = folder();
    let check = |history: &str, told: &str| {
        let (history, told) = (folder.file("h.jsonl", history), folder.file("told", told));
        let tool = scripts().join("gpu/tensor_peak.py");
        said(&python(&[&tool, Path::new("--said"), &told, &history]))
    };
    // At 100 s + 5000 ns two tensors of 6144 bytes are live; by time, a third was gone before the second came.
    let right =
        "loss: 1\n# said pid=7 time=100000005000 device=0 backend=native allocated=6144 peak=6144 reserved=12288\n";
    let (text, ok) = check(HISTORY, right);
    assert!(ok && text.contains("GPU 0: tensor peak 6144") && text.contains("3 numbers compared, 0 wrong"), "{text}");
    let (text, ok) = check(HISTORY, &right.replace("peak=6144", "peak=6145"));
    assert!(!ok && text.contains("PyTorch says peak 6145, the history 6144"), "{text}");
    let (text, ok) = check(HISTORY, &right.replace("time=100000005000", "time=100000004150"));
    assert!(!ok && text.contains("PyTorch says allocated 6144, the history 0"), "{text}");
    let (text, ok) = check(HISTORY, "torch says: allocated 5 peak 6144 reserved 9\n");
    assert!(ok && text.contains("1 numbers compared"), "{text}");
    let (text, ok) = check(HISTORY, &right.replace("pid=7", "pid=8"));
    assert!(!ok && text.contains("process 8 said a peak of 6144 and has no history"), "{text}");
    let (text, ok) = check(HISTORY, &right.replace("native", "cudaMallocAsync").replace("6144", "1"));
    assert!(ok && text.contains("0 numbers compared"), "{text}");
    // A tensor over a hole, and one whose segment went before.
    let (text, ok) = check(&HISTORY.replace(r#""address":1002048"#, r#""address":1002060"#), "");
    assert!(!ok && text.contains("tensor 12 of 2048 bytes is outside"), "{text}");
    let freed = r#"{"kind":"free","thread":1,"time":4250,"id":1}"#;
    let (text, ok) = check(&HISTORY.replace(r#"{"kind":"exit""#, &format!("{freed}\n{{\"kind\":\"exit\"")), "");
    assert!(!ok && text.contains("tensor 13 of 4096 bytes is outside"), "{text}");
    let unmapped = r#"{"kind":"unmap","thread":1,"time":4150,"address":1002048,"bytes":2048}"#;
    let (text, ok) = check(&HISTORY.replace(r#"{"kind":"exit""#, &format!("{unmapped}\n{{\"kind\":\"exit\"")), "");
    assert!(!ok && text.contains("1 tensors outside"), "{text}");
    let (text, ok) = check(&HISTORY.replace(r#""lost":0"#, r#""lost":2"#), "");
    assert!(!ok && text.contains("2 events were lost"), "{text}");
}

#[test]
fn lines_that_grow() {
    let folder = folder();
    let script = folder.file("guilty.py", "def f():\n    return new()  # grows\n");
    let mut text: String = HISTORY.lines().filter(|l| !l.contains("\"tensor\"")).map(|l| format!("{l}\n")).collect();
    let healthy = text.clone() + r#"{"kind":"alloc","time":5000,"id":50,"bytes":512,"memory":"tensor","stack":1}"#;
    for i in 0..20 {
        let (time, id) = (5000 + i, 100 + i);
        text += &format!(
            "{{\"kind\":\"alloc\",\"time\":{time},\"id\":{id},\"bytes\":512,\"memory\":\"tensor\",\"stack\":1}}\n"
        );
    }
    let tool = scripts().join("gpu/pytorch/found.py");
    let check = |history: &str| said(&python(&[&tool, Path::new("grows"), &script, &folder.file("h.jsonl", history)]));
    let (words, ok) = check(&text);
    assert!(
        ok && words.contains("ok: 20 allocations, 20 with a stack, 20 with a line of it; line 2: 0.0 MiB in 20"),
        "{words}"
    );
    let (words, ok) = check(&healthy);
    assert!(!ok && words.contains("NO GROWTH at line [2]"), "{words}");
    let oom = r#"{"kind":"oom","time":1,"device":0,"what":"PyTorch","asked":5,"free":1,"total":9,"holders":[{"stack":1,"bytes":4}]}"#;
    let find = |history: &str| said(&python(&[&tool, Path::new("oom"), &folder.file("o.jsonl", history)]));
    let (words, ok) = find(&format!("{HISTORY}{oom}\n"));
    assert!(ok && words.contains("1 explanations, by PyTorch; asked 5, free 1, 1 holders"), "{words}");
    assert!(!find(HISTORY).1);
}

#[test]
fn what_varies_bare_is_not_compared() {
    let folder = folder();
    let tool = scripts().join("gpu/pytorch/same.py");
    let compare = |a: &str, b: &str, c: &str, how: &str| {
        let (a, b, c) = (folder.file("a", a), folder.file("b", b), folder.file("c", c));
        let out = python(&[&tool, &a, &b, &c, Path::new(how)]);
        (String::from_utf8_lossy(&out.stdout).trim().to_owned(), out.status.success())
    };
    let told = "# said x\nloss 0: 0x1p0\nloss 1: 0x1p1\nGPU 0 active: 5\n";
    assert_eq!(compare(told, told, told, ""), ("same".into(), true));
    assert_eq!(compare(told, told, &told.replace("0x1p1", "0x1p2"), ""), ("1 of 3 DIFFER".into(), false));
    assert_eq!(compare(told, told, &told.replace("loss 1", "loss 2"), ""), ("2 of 3 DIFFER".into(), false));
    let other = told.replace("active: 5", "active: 6");
    assert_eq!(compare(told, &other, told, ""), ("1 not compared".into(), true));
    assert_eq!(compare(told, told, &other, ""), ("1 of 3 DIFFER".into(), false));
    assert_eq!(compare(told, told, &other, "results"), ("same".into(), true));
    let varied = told.replace("0x1p", "0x2p");
    assert_eq!(compare(told, &varied, told, ""), ("losses vary bare".into(), true));
    assert_eq!(compare("", "", "", ""), ("WRONG: bare told nothing".into(), false));
}
