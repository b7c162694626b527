//! The simulated driver answers as the real one does: one program prints a fact a line on both, and its output from an H200 is
//! kept in tests/simgpu/h200.txt. A line that may differ is named in tests/simgpu/differs.txt, with the reason.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use crate::support::{Link, Mode, Program, build};

fn facts(text: &str) -> BTreeMap<&str, &str> {
    text.lines().filter_map(|l| l.split_once(": ")).collect()
}

/// (fact, reason) of the lines that may differ.
fn allowed() -> Vec<(String, String)> {
    let text = fs::read_to_string(build::root().join("tests/simgpu/differs.txt")).unwrap_or_default();
    let lines = text.lines().filter(|l| !l.trim().is_empty() && !l.starts_with('#'));
    lines
        .map(|l| {
            let (fact, reason) =
                l.split_once(": ").unwrap_or_else(|| panic!("differs.txt: a line without a reason: {l}"));
            (fact.trim().to_owned(), reason.trim().to_owned())
        })
        .collect()
}

fn conformance() -> Program {
    Program::at(&build::program_at(&build::root().join("tests/simgpu/conformance.c"), Link::Runtime13))
}

#[test]
fn the_simulated_driver_answers_as_the_real_one() {
    let run = conformance().run(Mode::Bare);
    run.assert_success();
    let simulated = facts(&run.stdout);
    assert!(simulated.len() > 50, "{} facts only:\n{}", simulated.len(), run.stdout);
    assert!(!run.stdout.contains("broken at line"), "{}", run.stdout);
    let path: PathBuf = build::root().join("tests/simgpu/h200.txt");
    let real_text = match fs::read_to_string(&path) {
        Ok(text) => text,
        // Without the hardware's answers only the program itself can be tested.
        Err(e) => {
            println!("{}: {e}", path.display());
            return;
        }
    };
    let real = facts(&real_text);
    let allowed = allowed();
    let mut wrong = Vec::new();
    for (fact, answer) in &real {
        let here = simulated.get(fact).copied().unwrap_or("(not printed)");
        if here != *answer && !allowed.iter().any(|(f, _)| f == fact) {
            wrong.push(format!("{fact}: {answer} on the H200, {here} here"));
        }
    }
    for fact in simulated.keys().filter(|f| !real.contains_key(*f) && !allowed.iter().any(|(a, _)| a == *f)) {
        wrong.push(format!("{fact}: not asked of the H200"));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for (fact, _) in &allowed {
        assert_ne!(
            simulated.get(fact.as_str()),
            real.get(fact.as_str()),
            "differs.txt: {fact} does not differ any more"
        );
    }
}

/// The same program under the library: recorded, it is answered as bare, fact by fact.
#[test]
fn the_library_changes_no_answer() {
    let bare = conformance().run(Mode::Bare);
    // It starts children that end without their exit handlers: their histories are not whole.
    let run = conformance().unchecked().run(Mode::Recording);
    assert!(!run.traces().is_empty(), "the hooks were not active");
    let (bare, run) = (facts(&bare.stdout), facts(&run.stdout));
    let differing: Vec<String> = bare
        .iter()
        .filter(|(f, a)| run.get(*f) != Some(*a))
        .map(|(f, a)| format!("{f}: {a} bare, {:?} recorded", run.get(f)))
        .collect();
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}
