//! Frames that change under the thread (sub-interpreters, greenlets), and interpreters whose frames are not read.

use crate::notes::{Note, Recorded, compare};
use crate::pythons::{each, strangers, three_ways, with};

/// Code in sub-interpreters, with the GIL shared and (3.12 and newer) of their own.
#[test]
fn sub_interpreters() {
    each("sub_interpreters", |python, tally| {
        for run in three_ways(&python.script("interpreters.py")) {
            compare(&run, python, tally);
            let notes = Note::all(run.folder.path());
            let said: Vec<&str> = notes.iter().filter_map(|n| n.get("interpreter").as_str()).collect();
            if said.is_empty() {
                tally.not_run.push("there is no module for sub-interpreters".to_owned());
                return;
            }
            tally.check(said.contains(&"ran"), || format!("{run}: no sub-interpreter ran: {said:?}"));
            let mut others: Vec<&str> = said.into_iter().filter(|s| *s != "ran").collect();
            others.sort_unstable();
            others.dedup();
            for other in others {
                let what = format!("one kind of sub-interpreter: {other}");
                if !tally.not_run.contains(&what) {
                    tally.not_run.push(what);
                }
            }
        }
    });
}

/// Greenlets, where the package is installed.
#[test]
fn greenlets() {
    each("greenlets", |python, tally| {
        if !python.greenlet {
            tally.not_run.push("there is no greenlet package".to_owned());
            return;
        }
        for run in three_ways(&python.script("greenlets.py")) {
            compare(&run, python, tally);
        }
    });
}

/// Older, newer and free-threaded interpreters run as bare, with native frames alone; or, if newer, with the right ones.
#[test]
fn strange_interpreters() {
    with("strange_interpreters", &strangers(), |python, tally| {
        for script in ["ways.py", "threads.py"] {
            for run in three_ways(&python.script(script).talks()) {
                let recorded = Recorded::of(&run);
                let said: Vec<&str> = run.stderr.lines().filter(|l| l.starts_with("vramscope:")).collect();
                tally.check(said.len() <= 1, || format!("{run}: it says {said:?}"));
                if recorded.places().next().is_some() {
                    // A newer one may tell where things lie: then they must be right.
                    tally.check(python.minor > 14, || format!("{run}: places of Python"));
                    compare(&run, python, tally);
                }
            }
        }
    });
}
