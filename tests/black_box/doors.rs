//! The doors: every way in which a program or a library finds the driver and the runtime, and what else they look up.

use std::collections::BTreeSet;
use std::fs;

use crate::support::{Link, Mode, Program, Run, build, hooks, program, same_in, vramscope_library};
use vramscope_core::event::EventKind;

#[test]
fn programs_that_open_the_driver_themselves() {
    for case in ["look_up", "look_up_of_look_up", "old_look_up", "names", "global", "nonsense", "again"] {
        same_in("dlopened", case, &[Link::None], Mode::ALL);
    }
}

/// For every hooked name, `dlsym` and `cuGetProcAddress` give our entry of exactly the function that the driver gives; for
/// every other the driver's own.
#[test]
fn every_look_up_leads_to_the_entry_of_the_same_name() {
    let names = hooks::driver_names();
    let ask = || names.iter().fold(Program::new("dlopened", Link::None).arg("where").unhooked(), |p, n| p.arg(n));
    let bare = ask().run(Mode::Bare);
    let hooked = ask().run(Mode::Pooled);
    bare.assert_success();
    hooked.assert_success();
    assert_eq!(bare.stdout.lines().count(), hooked.stdout.lines().count(), "{}\n{}", bare.stdout, hooked.stdout);
    let known: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    let mut ours = 0;
    for (b, h) in bare.stdout.lines().zip(hooked.stdout.lines()) {
        let (how, theirs) = b.split_once(": ").expect("how: what");
        let symbol = theirs.split(' ').next().unwrap_or_default();
        let expected = if known.contains(symbol) { format!("{symbol} ours") } else { theirs.to_owned() };
        assert_eq!(h, format!("{how}: {expected}"), "bare {b}");
        ours += usize::from(known.contains(symbol));
    }
    assert!(ours > 500, "{ours} look-ups led to us");
}

#[test]
fn two_runtimes_in_a_process() {
    program("user", Link::Library);
    program("user", Link::Library12);
    for case in ["two_runtimes", "two_opened"] {
        same_in("libraries", case, &[Link::Runtime13], Mode::SYNC);
    }
}

/// After a library left and another came, stacks name the one that called.
#[test]
fn libraries_that_come_and_go() {
    let user = program("user", Link::Library);
    let other = build::programs_dir().join("libother.so");
    let copy = build::programs_dir().join(format!("libother.so.{}", std::process::id()));
    fs::copy(user, &copy).and_then(|_| fs::rename(&copy, &other)).expect("a copy of the library");
    let runs = Program::new("libraries", Link::Runtime13).arg("reload").same(Mode::ALL);
    runs[0].assert_success();
    for run in &runs[1..] {
        let history = run.history();
        let mut found = 0;
        for e in history.of(EventKind::Alloc) {
            let expected = match e.bytes {
                11111 => "libuser.so",
                22222 => "libother.so",
                _ => continue,
            };
            let files = history.files_of(e);
            assert!(files.iter().any(|f| f == expected), "{run}: {e:?} came through {files:?}, not {expected}");
            let caller = history.modules().get(&e.caller).map(|m| m.path.clone()).unwrap_or_default();
            assert!(caller.ends_with(expected), "{run}: {e:?} was called by {caller}, not {expected}");
            found += 1;
        }
        assert_eq!(found, 6, "{run}");
    }
}

#[test]
fn a_library_that_relies_on_its_runpath() {
    program("plugin", Link::Plugin);
    program("runpath", Link::WithPlugins);
    same_in("libraries", "runpath", &[Link::Runtime13], Mode::ALL);
}

/// Other libraries are preloaded as well, before and after ours.
#[test]
fn a_library_that_looks_for_the_next() {
    let next = program("next", Link::PlainLibrary);
    let (next, ours) = (next.display(), vramscope_library().display());
    let case = || Program::new("libraries", Link::Runtime13).arg("next");
    let bare = case().env("LD_PRELOAD", next.to_string()).run(Mode::Bare);
    bare.assert_success();
    for mode in Mode::ALL {
        case().preload(format!("{next}:{ours}")).run(*mode).assert_same(&bare);
    }
}

/// The same file twice, and two files: each call is served and recorded once.
#[test]
fn preloaded_twice() {
    let folder = tempfile::tempdir().expect("a folder");
    let copy = folder.path().join("libvramscope.so");
    fs::copy(vramscope_library(), &copy).expect("a copy");
    let ours = vramscope_library().display();
    for (program, case, link) in [
        ("basics_rt", "kinds", Link::Runtime13),
        ("basics_drv", "kinds", Link::Driver),
        ("dlopened", "look_up", Link::None),
    ] {
        let ask = || Program::new(program, link).arg(case);
        let bare = ask().run(Mode::Bare);
        let once = ask().run(Mode::Pooled);
        for twice in
            [format!("{ours}:{ours}"), format!("{ours}:{}", copy.display()), format!("{ours} {}", copy.display())]
        {
            // Two files are two libraries, and the second has nothing to do: it may say so.
            let run = ask().preload(&twice).talks().run(Mode::Pooled);
            run.assert_same(&bare);
            let total: usize = run.histories().iter().map(|h| h.allocations()).sum();
            assert_eq!(total, once.history().allocations(), "{run} with {twice}");
        }
    }
}

/// A program over a driver that has this source file before the true functions.
fn over(driver: &str, program: &str) -> Vec<Run> {
    let mut path = build::simgpu_with(driver).into_os_string();
    path.push(":");
    path.push(build::simgpu());
    let runs = Program::new(program, Link::Runtime13).arg("all").env("LD_LIBRARY_PATH", path).same(Mode::ALL);
    runs[0].assert_success();
    runs
}

/// Exceptions pass through the hooks, and the hooks work afterwards.
#[test]
fn exceptions_through_hooked_calls() {
    let runs = over("throwing_driver.cpp", "throws");
    assert_eq!(runs[0].stdout.matches(" threw ").count(), 3 * 7, "{}", runs[0].stdout);
}

/// So does longjmp.
#[test]
fn jumps_over_hooked_calls() {
    let runs = over("jumping_driver.cpp", "jumps");
    assert_eq!(runs[0].stdout.matches(" jumped: 7").count(), 3 * 4, "{}", runs[0].stdout);
}
