//! Every format, fed with histories that follow no rule: it ends with a file or with one line, and does not panic.

use proptest::prelude::*;
use vramscope_core::event::{Event, EventKind, Memory};

use super::*;
use crate::report::testing::Script;

/// An event of any kind, about few ids, so that they meet.
fn event() -> impl Strategy<Value = (u32, Event)> {
    let numbers = (0u64..5, 0u64..4, 0u64..1 << 45, 0u64..1 << 45, 0u64..3, 0u64..3);
    (1u8..20, 0u8..11, 0u8..7, 0u16..3, 0u32..3, numbers).prop_map(|(kind, memory, how, context, thread, n)| {
        let (id, address, bytes, block, a, b) = n;
        let event = Event {
            kind: EventKind::from_number(kind).unwrap_or(EventKind::Exit),
            memory: Memory::from_number(memory).unwrap_or_default(),
            how,
            context,
            id,
            address,
            bytes,
            block,
            stack: thread + 1,
            caller: thread,
            extra: [a, b, a],
            ..Event::default()
        };
        (thread, event)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    #[test]
    fn no_history_breaks_a_format(
        events in proptest::collection::vec(event(), 0..80),
        from in 0u64..20,
        to in 0u64..90,
        at in any::<bool>(),
        allocated in any::<bool>(),
    ) {
        let mut s = Script::new();
        s.module(2, "/usr/lib/libc10_cuda.so");
        s.stack(&[(1, 0x10), (2, 0x20)]);
        let frame = s.python("f", "/job/a.py", 1);
        s.stack_of(&[frame]);
        events.into_iter().for_each(|(thread, e)| s.on(thread, e));
        for kind in <Kind as clap::ValueEnum>::value_variants() {
            let (folder, path) = testing::file(&s);
            let mut source = Source::open(&path, &[]).unwrap();
            let (from, to) = (from * 1_000_000, (from + to) * 1_000_000);
            source.selection = if at { Selection::at(to) } else { Selection { from, to, ..Selection::default() } };
            source.options.allocated = allocated;
            source.options.limit = Some(20);
            let target = Target::Path(folder.path().join("out"));
            if let Err(e) = kind.format().write(&mut source, &target) {
                prop_assert!(!format!("{e:#}").contains('\n'), "{kind:?}: {e:#}");
            }
        }
    }
}
