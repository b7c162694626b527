//! Limits of a device, and what is told of several devices and of several contexts of one.

use std::collections::BTreeSet;

use crate::api::{api, said};
use crate::support::{History, Link, Mode, Program, Run};
use vramscope_core::event::{Event, EventKind, Memory};
use vramscope_core::trace::Line;

#[test]
fn a_limit_that_the_program_sets() {
    for mode in [Mode::Pooled, Mode::Recording] {
        let run = api("limit").talks().run(mode);
        assert_eq!(
            said(&run),
            [
                "limited: 40 of 100 free, the device 100",
                "cuMemAlloc(&b, 60 * MB) = 2",
                "freed: 100 of 100 free, the device 100",
                "cuMemAlloc(&b, 80 * MB) = 0",
                "full: 20 of 100 free, the device 100",
                "cuMemAlloc(&c, 30 * MB) = 2",
                "cuMemAlloc(&c, 30 * MB) = 0",
                "a quarter: 256 of 256 free, the device 256",
                "cuMemAlloc(&c, 200 * MB) = 0",
                "none: 1024",
            ],
            "{run}"
        );
        let history = run.history();
        let limits = history.lines.iter().filter_map(|l| if let Line::Oom(o) = l { o.limit.clone() } else { None });
        let limits: Vec<(u64, String)> = limits.map(|l| (l.bytes >> 20, l.by)).collect();
        assert!(!limits.is_empty() && limits.iter().all(|l| *l == (100, "set_limit()".into())), "{run}: {limits:?}");
        assert!(run.stderr.contains("100 MiB by set_limit(), "), "{run}: {}", run.stderr);
        let codes: BTreeSet<u16> = history.of(EventKind::AllocFailed).map(|e| e.code).collect();
        assert_eq!(codes, BTreeSet::from([2]));
    }
}

#[test]
fn a_limit_that_is_set() {
    let ran = |limit: &str| {
        let run = api("set").env("SIMGPU_DEVICES", "2").env("VRAMSCOPE_LIMIT", limit).talks().run(Mode::Pooled);
        said(&run).join("\n")
    };
    let whole = "device 0: 1024 MiB, info 1024 MiB, 250 MiB = 0, limit 0 MiB";
    let second = |text: &str| text.replace("device 0", "device 1");
    let small = "device 0: 200 MiB, info 200 MiB, 250 MiB = 2, limit 200 MiB";
    let half = "device 0: 512 MiB, info 512 MiB, 250 MiB = 0, limit 512 MiB";
    assert_eq!(ran(""), format!("{whole}\n{}", second(whole)));
    assert_eq!(ran("200MiB"), format!("{small}\n{}", second(small)));
    assert_eq!(ran("50%"), format!("{half}\n{}", second(half)));
    assert_eq!(ran("0:200MiB,1:50%"), format!("{small}\n{}", second(half)));
    assert_eq!(ran("1:200MiB"), format!("{whole}\n{}", second(small)));
    assert_eq!(ran("200MiB,1:50%"), format!("{small}\n{}", second(half)));
    assert_eq!(ran("none"), ran(""));
    let run = api("set").env("SIMGPU_DEVICES", "2").env("VRAMSCOPE_LIMIT", "200MiB").talks().run(Mode::Pooled);
    assert!(run.stderr.contains("200 MiB by VRAMSCOPE_LIMIT, "), "{}", run.stderr);
    // Wrong: said, and no limit.
    let missing = api("set").env("SIMGPU_DEVICES", "2").env("VRAMSCOPE_LIMIT", "7:200MiB").talks().run(Mode::Pooled);
    assert_eq!(missing.stderr.matches("VRAMSCOPE_LIMIT: there is no device 7;").count(), 1, "{}", missing.stderr);
    assert_eq!(ran("much"), format!("{whole}\n{}", second(whole)));
    // A limit above what there is is none.
    assert_eq!(ran("100GiB").matches("1024 MiB, info 1024 MiB").count(), 2);
}

fn devices(case: &str) -> Program {
    Program::new("devices", Link::Driver).arg(case).env("SIMGPU_MEMORY_MB", "1024").env("SIMGPU_CONTEXT_MB", "256")
}

/// The first line of a script is where a limit is set: CUDA is not there yet, nor is known how large a device is.
#[test]
fn a_limit_before_cuda_is_used() {
    let run = devices("early").talks().run(Mode::Pooled);
    assert_eq!(
        said(&run),
        [
            "set 0 0 0",
            "device 0: 512 of 512 free, the device 512",
            "600 MiB = 2, 90 MiB = 0",
            "device 1: 100 of 100 free, the device 100",
            "600 MiB = 2, 90 MiB = 0",
            "of device 9 by now -1",
            "device 0: 678 of 1024 free, the device 1024",
        ]
    );
    let unknown = "set_limit(): there is no device 9; its limit holds for nothing";
    assert_eq!(run.stderr.matches(unknown).count(), 1, "{}", run.stderr);
}

/// Device of each context of a history.
fn device_of(history: &History, e: &Event) -> u64 {
    history.of(EventKind::Context).find(|c| c.context == e.context).expect("its context").extra[0]
}

/// `cuMemCreate` names a device, which need not be that of the current context.
#[test]
fn memory_of_another_device() {
    let check = |run: &Run| {
        assert_eq!(
            said(run),
            [
                "created: device 0: allocated 10 (10) reserved 10 (10) inactive 0 limit 0",
                "created: device 1: allocated 64 (64) reserved 64 (64) inactive 0 limit 0",
                "64 MiB of device 1 = 2, of device 0 = 0",
                "32 MiB of device 1 = 0, of device 0 = 2",
                "device 0: 6 of 80 free, the device 80",
                "device 1: 4 of 100 free, the device 100",
                "released: device 1: allocated 0 (96) reserved 0 (96) inactive 0 limit 100",
            ]
        );
    };
    let run = devices("elsewhere").talks().run(Mode::Pooled);
    check(&run);
    assert!(run.stderr.contains("asked for 64.0 MiB on GPU 1") && run.stderr.contains("asked for 32.0 MiB on GPU 0"));
    let history = run.history();
    let seen =
        |kind| history.of(kind).filter(|e| e.memory == Memory::Vmm).map(|e| (e.bytes >> 20, device_of(&history, e)));
    assert_eq!(seen(EventKind::Alloc).collect::<Vec<_>>(), [(64, 1), (64, 0), (32, 1)]);
    assert_eq!(seen(EventKind::AllocFailed).collect::<Vec<_>>(), [(64, 1), (32, 0)]);
    let untold = devices("elsewhere").env("VRAMSCOPE_TRACE", "off").talks().unhooked().run(Mode::Pooled);
    check(&untold);
}

/// A stream names a device, too.
#[test]
fn memory_for_a_stream_of_another_device() {
    for mode in [Mode::Recording, Mode::Pooled, Mode::Ordered] {
        let run = devices("stream").talks().run(mode);
        assert_eq!(
            said(&run),
            [
                "taken: device 0: allocated 10 (10) reserved 10 (10) inactive 0 limit 0",
                "taken: device 1: allocated 64 (64) reserved 64 (64) inactive 0 limit 0",
                "64 MiB of device 1 = 2, of device 0 = 0",
                "freed: device 0: allocated 10 (74) reserved 10 (74) inactive 0 limit 0",
                "freed: device 1: allocated 0 (64) reserved 0 (64) inactive 0 limit 100",
            ],
            "{run}"
        );
        assert!(run.stderr.contains("asked for 64.0 MiB on GPU 1"), "{run}: {}", run.stderr);
        let history = run.history();
        let seen = history.of(EventKind::Alloc).filter(|e| e.memory == Memory::Async);
        assert_eq!(
            seen.map(|e| (e.bytes >> 20, device_of(&history, e))).collect::<Vec<_>>(),
            [(64, 1), (64, 0)],
            "{run}"
        );
    }
}

#[test]
fn peaks_of_several_contexts() {
    assert_eq!(
        said(&devices("contexts").run(Mode::Pooled)),
        [
            "both: device 0: allocated 70 (150) reserved 170 (170) inactive 100 limit 0",
            "emptied: device 0: allocated 20 (150) reserved 20 (170) inactive 0 limit 0",
            "new peaks: device 0: allocated 50 (50) reserved 50 (50) inactive 0 limit 0",
        ]
    );
}

/// PyTorch's garbage collection threshold is a share of what the process may have.
#[test]
fn the_collection_threshold_is_one_of_the_limit() {
    let program = devices("collect").env("VRAMSCOPE_GC_THRESHOLD", "0.3").env("VRAMSCOPE_MAX_SPLIT_SIZE", "20MiB");
    let of_the_device = program.run(Mode::Ordered);
    assert_eq!(said(&of_the_device), ["40: 40", "80: 120", "120: 240", "160: 306", "200: 304"]);
    // (180 MiB; the limit goes after the third.)
    let limited = program.env("VRAMSCOPE_LIMIT", "600MiB").run(Mode::Ordered);
    assert_eq!(said(&limited), ["40: 40", "80: 120", "120: 178", "160: 306", "200: 304"]);
}
