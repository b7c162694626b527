//! Programs of every kind: each stack is what the interpreter itself says it is.

use std::path::Path;

use vramscope_core::trace::Frame;

use crate::notes::{Note, compare};
use crate::pythons::{Python, Tally, each, programs, three_ways};
use crate::support::{Mode, Program};

/// Runs a script three ways and compares every stack.
fn compared(test: &str, script: &str, arguments: &[&str]) {
    each(test, |python, tally| {
        let program = arguments.iter().fold(python.script(script), |p, a| p.arg(a));
        for run in three_ways(&program) {
            compare(&run, python, tally);
        }
    });
}

/// Recursion, closures, generators, comprehensions, classes, decorators, `__del__`, exceptions, calls over several lines,
/// imports; with the GIL released and held; also what fails and what frees.
#[test]
fn every_kind_of_call() {
    compared("every_kind_of_call", "calls.py", &[]);
}

/// Tasks of asyncio, asynchronous generators, coroutines driven by hand; where memory that was never set holds no zeroes, too.
#[test]
fn coroutines() {
    each("coroutines", |python, tally| {
        let program = python.script("coroutines.py");
        let unset = program.clone().env("PYTHONMALLOC", "debug").run(Mode::Pooled);
        unset.assert_success();
        for run in three_ways(&program).iter().chain([&unset]) {
            compare(run, python, tally);
        }
    });
}

/// Names of any script, any length, and files whose name is no UTF-8.
#[test]
fn hard_names() {
    compared("hard_names", "names.py", &[]);
}

/// Programs that nobody would write: random statements over random lines.
#[test]
fn invented_programs() {
    each("invented_programs", |python, tally| {
        for seed in ["1", "2", "3"] {
            let run = python.script("invented.py").arg(seed).run(Mode::Pooled);
            run.assert_success();
            compare(&run, python, tally);
        }
    });
}

/// Threads at once: each event has the stack of its own thread.
#[test]
fn threads() {
    compared("threads", "threads.py", &[]);
}

/// Handlers of signals that run between any two instructions.
#[test]
fn signal_handlers() {
    each("signal_handlers", |python, tally| {
        for run in three_ways(&python.script("signals.py")) {
            compare(&run, python, tally);
        }
    });
}

/// Objects that die while a call begins or a generator is made.
#[test]
fn the_collector_anywhere() {
    compared("the_collector_anywhere", "collected.py", &[]);
}

/// Traced, profiled and monitored functions, and the tracing functions themselves.
#[test]
fn traced_functions() {
    each("traced_functions", |python, tally| {
        for kind in ["trace", "opcodes", "profile", "both", "monitor"] {
            if kind == "monitor" && python.minor < 12 {
                continue;
            }
            let run = python.script("traced.py").arg(kind).run(Mode::Pooled);
            run.assert_success();
            compare(&run, python, tally);
        }
    });
}

/// C calls Python calls C: each row of Python frames stands before the interpreter's native frame that ran it, and where the
/// interpreter was entered anew a new row begins. The outermost frame is where the program began.
#[test]
fn native_and_python_frames_alternate() {
    each("native_and_python_frames_alternate", |python, tally| {
        for run in three_ways(&python.script("splice.py")) {
            let recorded = compare(&run, python, tally);
            let program = recorded.history.header().program.clone();
            let (fixed, start) = entry(&program);
            let modules = recorded.history.modules();
            for (thread, e) in recorded.history.events() {
                let Some(stack) = recorded.stack(e).filter(|_| thread == 1) else { continue };
                let right = match stack.frames.last() {
                    Some(Frame::Native(m, offset)) => modules.get(m).is_some_and(|m| {
                        let at = if fixed { m.address + offset } else { *offset };
                        m.path == program && (start..start + 64).contains(&at)
                    }),
                    _ => false,
                };
                tally.check(right, || format!("{run}: the outermost frame is not _start ({start:#x}): {stack:?}"));
            }
        }
    });
}

/// Whether a program is loaded at a fixed address, and where it begins: its address, or the offset from its own.
fn entry(program: &str) -> (bool, u64) {
    use object::read::elf::{ElfFile64, FileHeader};
    let bytes = std::fs::read(program).expect("the program");
    let elf: ElfFile64 = ElfFile64::parse(&*bytes).expect("an ELF file");
    let (header, e) = (elf.elf_header(), elf.endian());
    (header.e_type(e) == object::elf::ET_EXEC, header.e_entry(e))
}

/// A thousand levels: 1,024 frames of each kind are kept where that was asked for, 128 by default; the innermost ones, and
/// the stack is marked.
#[test]
fn deep_recursion() {
    each("deep_recursion", |python, tally| {
        for depth in ["1024", ""] {
            let mut program = python.script("deep.py").arg("1000");
            if !depth.is_empty() {
                program = program.env("VRAMSCOPE_STACK_DEPTH", depth);
            }
            for run in three_ways(&program) {
                let recorded = compare(&run, python, tally);
                let cut = recorded.history.stacks().values().filter(|s| s.cut).count();
                // Before 3.11 each level takes native frames of its own. The innermost 128 frames of both depths are the same.
                let expected = match (depth, python.minor) {
                    ("1024", 11..) => 0..=2,
                    ("1024", _) => 4..=4,
                    _ => 2..=4,
                };
                tally.check(expected.contains(&cut), || format!("{run}: {cut} stacks are cut, not {expected:?}"));
            }
        }
    });
}

/// 20,000 functions that live for one call, whose code objects get one another's addresses: not one wrong name.
#[test]
fn addresses_of_code_come_back() {
    each("addresses_of_code_come_back", |python, tally| {
        let run = python.script("recycled.py").run(Mode::Pooled);
        run.assert_success();
        let before = tally.checks;
        compare(&run, python, tally);
        tally.check(tally.checks - before >= 20_000, || format!("{run}: too few comparisons"));
        let again = Note::all(run.folder.path()).iter().find_map(|n| n.number("again")).unwrap_or(0);
        tally.check(again > 10_000, || format!("{run}: only {again} addresses came back"));
    });
}

/// Started as a script, by module name, from a text, from stdin, with the standard library frozen and not.
#[test]
fn ways_to_start() {
    let source = std::fs::read_to_string(programs().join("ways.py")).expect("ways.py");
    each("ways_to_start", |python, tally| {
        let script = programs().join("ways.py");
        let mut ways = vec![
            python.script("ways.py"),
            python.bare().arg("-m").arg("ways"),
            python.bare().arg("-c").arg(&source),
            // The shell's exec keeps the process.
            python
                .environment(Program::at(Path::new("/bin/sh")))
                .arg("-c")
                .arg("exec \"$0\" - <\"$1\"")
                .arg(&python.path)
                .arg(&script),
            python.script("ways.py").env("PYTHONMALLOC", "debug"),
        ];
        if python.minor >= 11 {
            for frozen in ["frozen_modules=on", "frozen_modules=off"] {
                ways.push(python.bare().arg("-X").arg(frozen).arg("-m").arg("ways"));
            }
        }
        for way in ways {
            compare_shown(&way, python, tally);
        }
    });
}

fn compare_shown(program: &Program, python: &Python, tally: &mut Tally) {
    for run in three_ways(program) {
        compare(&run, python, tally);
    }
}
