//! Files that follow no rule: what cannot be, what is damaged, and bytes.

use proptest::prelude::*;

use super::*;

/// Entries that follow no rule, and a state that does not go with them.
fn entries() -> impl Strategy<Value = Json> {
    const ACTIONS: [&str; 8] = [
        "alloc",
        "free_requested",
        "free_completed",
        "segment_alloc",
        "segment_free",
        "segment_map",
        "segment_unmap",
        "oom",
    ];
    let one = (0..ACTIONS.len(), 0..40u64, 0..12u64, 0..50u64).prop_map(|(action, at, size, time)| {
        let mut e = entry(ACTIONS[action], GIB + at * MIB, size * MIB, time);
        e["device_free"] = json!(5);
        e
    });
    let last = (0..40u64, 0..20u64, any::<bool>()).prop_map(|(at, size, expandable)| {
        let mut s =
            segment(GIB + at * MIB, 2 * size * MIB, &[(size * MIB, "active_allocated"), (size * MIB, "inactive")]);
        s["is_expandable"] = json!(expandable);
        s
    });
    (prop::collection::vec(one, 0..60), prop::collection::vec(last, 0..6))
        .prop_map(|(trace, segments)| json!({"segments": segments, "device_traces": [trace]}))
}

/// Bytes changed, cut out, doubled.
fn mutated(seed: Vec<u8>) -> impl Strategy<Value = Vec<u8>> {
    let change = (any::<prop::sample::Index>(), any::<u8>(), 0..4u8, 0..32usize);
    prop::collection::vec(change, 1..12).prop_map(move |changes| {
        let mut bytes = seed.clone();
        for (at, byte, how, n) in changes {
            if bytes.is_empty() {
                break;
            }
            let at = at.index(bytes.len());
            let end = (at + n).min(bytes.len());
            match how {
                0 => bytes[at] = byte,
                1 => drop(bytes.drain(at..end)),
                2 => {
                    let part = bytes[at..end].to_vec();
                    bytes.splice(at..at, part);
                }
                _ => bytes.truncate(at.max(20)),
            }
        }
        bytes
    })
}

fn seed_pickle() -> Vec<u8> {
    let (_folder, out) = exported(&script(), Torch::Pickle, Selection::default());
    std::fs::read(out).unwrap()
}

fn seed_log() -> Vec<u8> {
    let (_folder, out) = exported(&script(), crate::export::rmm::Rmm, Selection::default());
    std::fs::read(out).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn a_trace_without_rules_is_imported_and_its_export_plays(snapshot in entries()) {
        let folder = tempfile::tempdir().unwrap();
        let (file, out) = (folder.path().join("file"), folder.path().join("out"));
        std::fs::write(&file, pickled(&snapshot)).unwrap();
        let (history, _) = imported_file(&file).unwrap();
        prop_assert!(history.state.now.active() <= history.state.peak.totals.active());
        let mut source = Source::open(&file.with_extension("jsonl"), &[]).unwrap();
        Torch::Json.write(&mut source, &Target::Path(out.clone())).unwrap();
        backwards(&serde_json::from_slice(&std::fs::read(&out).unwrap()).unwrap());
    }

    #[test]
    fn a_damaged_pickle_ends_in_a_history_or_in_a_line(bytes in mutated(seed_pickle())) {
        if let Err(e) = imported(&bytes) {
            let text = format!("{e:#}");
            prop_assert!(!text.contains('\n'), "{text}");
        }
    }

    #[test]
    fn a_damaged_log_ends_in_a_history_or_in_a_line(bytes in mutated(seed_log())) {
        if let Err(e) = imported(&bytes) {
            let text = format!("{e:#}");
            prop_assert!(!text.contains('\n'), "{text}");
        }
    }

    #[test]
    fn noise_is_no_pickle(mut bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        bytes.splice(0..0, [0x80, 4]);
        let _ = imported(&bytes);
    }
}

/// Few, for every run of the tests; PROPTEST_CASES says another number.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(32)
}
