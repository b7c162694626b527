//! Random programs, one thread: the pool against a model that knows only what the program did.

use crate::sim::{Error, Sim};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::SeqCst;
use vramscope_core::pool::{ContextId, Freed, How, Pool, Release, Scope, State};

#[derive(Clone, Debug)]
enum Op {
    Alloc(u16, u64),
    Direct(u16, u64),
    Free(usize),
    DoubleFree(usize),
    Interior(usize),
    Unknown(u64),
    Export(usize),
    BehindBack(usize),
    Trim(Option<u16>, Option<u64>),
    Fence(u64),
    MaxCached(u64),
    BreakAlloc,
    BreakFree,
    FailedReset(u16),
    Reset(u16),
}

fn size() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 1u64..5000,
        3 => (0u32..21, 0u64..1000).prop_map(|(s, f)| (1 << s) + (f << s) / 1000),
        2 => (1u64 << 20)..(24 << 20),
        1 => (0u64..14).prop_map(|n| n << 20),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let context = 0u16..3;
    prop_oneof![
        60 => (context.clone(), size()).prop_map(|(c, b)| Op::Alloc(c, b)),
        5 => (context.clone(), size()).prop_map(|(c, b)| Op::Direct(c, b)),
        50 => any::<usize>().prop_map(Op::Free),
        5 => any::<usize>().prop_map(Op::DoubleFree),
        3 => any::<usize>().prop_map(Op::Interior),
        1 => any::<u64>().prop_map(|a| Op::Unknown(a | 1)),
        3 => any::<usize>().prop_map(Op::Export),
        2 => any::<usize>().prop_map(Op::BehindBack),
        3 => (proptest::option::of(context.clone()), proptest::option::of(size())).prop_map(|(c, b)| Op::Trim(c, b)),
        2 => (0u64..4).prop_map(Op::Fence),
        2 => prop_oneof![Just(u64::MAX), 0u64..40 << 20].prop_map(Op::MaxCached),
        1 => Just(Op::BreakAlloc),
        1 => Just(Op::BreakFree),
        1 => context.clone().prop_map(Op::FailedReset),
        1 => context.prop_map(Op::Reset),
    ]
}

struct Block {
    id: u64,
    requested: u64,
    bytes: u64,
    context: ContextId,
    direct: bool,
    exported: bool,
}

struct Program {
    up: Sim,
    pool: Pool,
    live: BTreeMap<u64, Block>,
    /// Freed last, and kept by the pool then.
    freed: Vec<(u64, u64)>,
    contexts: [u16; 3],
    ids: u64,
    kept: u64,
}

impl Program {
    fn new() -> Program {
        Program {
            up: Sim::new(64 << 20),
            pool: Pool::new(),
            live: BTreeMap::new(),
            freed: Vec::new(),
            contexts: [0, 1, 2],
            ids: 0,
            kept: 0,
        }
    }

    fn pick(&self, n: usize) -> Option<u64> {
        self.live.keys().nth(n % self.live.len().max(1)).copied()
    }

    fn run(&mut self, op: &Op) {
        match *op {
            Op::Alloc(c, bytes) => self.alloc(c, bytes, false),
            Op::Direct(c, bytes) => self.alloc(c, bytes, true),
            Op::Free(n) => {
                if let Some(a) = self.pick(n) {
                    self.free(a);
                }
            }
            Op::DoubleFree(n) => {
                let Some(&(address, id)) = self.freed.get(n % self.freed.len().max(1)) else { return };
                if self.live.contains_key(&address) {
                    return;
                }
                match self.pool.free(&self.up, address) {
                    Freed::Double(info) => assert_eq!((info.id, info.state), (id, State::Inactive)),
                    Freed::Unknown => assert_eq!(self.pool.block_of(address), None, "given back since"),
                    f => panic!("a second free of {address:#x}: {f:?}"),
                }
            }
            Op::Interior(n) => {
                if let Some(a) = self.pick(n)
                    && self.live[&a].bytes > 256
                {
                    assert_eq!(self.pool.free(&self.up, a + 256), Freed::Unknown);
                }
            }
            Op::Unknown(a) => assert_eq!(self.pool.free(&self.up, a), Freed::Unknown),
            Op::Export(n) => {
                if let Some(a) = self.pick(n) {
                    let b = self.live.get_mut(&a).unwrap();
                    assert_eq!(self.pool.export(a), Some(b.id));
                    b.exported = true;
                }
            }
            Op::BehindBack(n) => {
                if let Some(a) = self.pick(n) {
                    // The pool learns of it only when the driver gives the address out again.
                    self.up.behind_its_back(a);
                }
            }
            Op::Trim(c, bytes) => {
                let scope = match (c, bytes) {
                    (Some(c), Some(b)) => Scope::AtLeast(b, ContextId(self.contexts[usize::from(c)])),
                    (Some(c), None) => Scope::Context(ContextId(self.contexts[usize::from(c)])),
                    _ => Scope::All,
                };
                let before: u64 = self.inactive();
                let t = self.pool.trim(&self.up, scope);
                match scope {
                    Scope::All => assert_eq!(self.inactive(), 0),
                    Scope::Context(c) => assert_eq!(self.pool.inactive_bytes(c), 0),
                    Scope::AtLeast(b, _) => assert!(t.bytes >= b || self.inactive() == 0),
                }
                assert!(t.failed > 0 || before - self.inactive() == t.bytes);
            }
            Op::Fence(n) => self.up.fence.store(n, SeqCst),
            Op::MaxCached(n) => self.up.max_cached.store(n, SeqCst),
            Op::BreakAlloc => self.up.break_allocs.store(1, SeqCst),
            Op::BreakFree => self.up.break_frees.store(1, SeqCst),
            Op::FailedReset(c) => {
                let c = ContextId(self.contexts[usize::from(c)]);
                self.pool.mark_dying(c);
                self.pool.revive(c);
            }
            Op::Reset(i) => {
                let slot = &mut self.contexts[usize::from(i)];
                if *slot + 3 >= 64 {
                    return;
                }
                let c = ContextId(*slot);
                *slot += 3; // A new number: the old one is not used again.
                self.pool.mark_dying(c);
                self.up.destroy_context(c);
                let mut ids: Vec<u64> = self.pool.drop_context(c).iter().map(|b| b.id).collect();
                ids.sort_unstable();
                let mut ours: Vec<u64> = self.live.values().filter(|b| b.context == c).map(|b| b.id).collect();
                ours.sort_unstable();
                assert_eq!(ids, ours);
                self.live.retain(|_, b| b.context != c);
            }
        }
    }

    fn inactive(&self) -> u64 {
        self.contexts.iter().map(|c| self.pool.inactive_bytes(ContextId(*c))).sum()
    }

    fn alloc(&mut self, c: u16, requested: u64, direct: bool) {
        let context = ContextId(self.contexts[usize::from(c)]);
        self.ids += 1;
        let served = if direct {
            self.pool.alloc_direct(&self.up, context, requested, self.ids)
        } else {
            self.pool.alloc(&self.up, context, requested, self.ids)
        };
        match served {
            Ok(s) => {
                self.up.check_handed_out(&s);
                if let Some(stale) = s.stale {
                    assert_eq!(stale.address, s.address);
                    if let Some(b) = self.live.remove(&s.address) {
                        assert_eq!((b.id, State::Active), (stale.id, stale.state));
                    }
                }
                assert!(s.block >= requested);
                assert_eq!(s.how == How::Direct, direct);
                match s.how {
                    How::HitNear => assert!(requested * 8 >= s.block * 7, "{requested} of {}", s.block),
                    How::Direct => assert_eq!((s.block, s.segment), (requested, 0)),
                    _ => assert!(
                        s.block - requested < (requested / 8 + 512).max(if requested > 1 << 20 { 2 << 20 } else { 0 })
                    ),
                }
                let b = Block { id: self.ids, requested, bytes: s.block, context, direct, exported: false };
                assert!(self.live.insert(s.address, b).is_none(), "{:#x} is live", s.address);
                self.freed.retain(|(a, _)| *a != s.address);
            }
            Err(f) => match f.error {
                Error::OutOfMemory => {
                    assert_eq!(self.inactive(), 0, "everything idle went back first");
                    assert!(!self.up.would_fit(requested), "the driver has room for {requested}");
                }
                Error::InvalidValue => assert_eq!(requested, 0),
                Error::Broken => assert_eq!(f.trimmed.blocks, 0),
            },
        }
    }

    fn free(&mut self, address: u64) {
        self.up.used(address);
        let b = self.live.remove(&address).unwrap();
        let freed = self.pool.free(&self.up, address);
        match freed {
            Freed::Kept { info, .. } => {
                self.kept += 1;
                assert_eq!((info.id, info.requested, info.block), (b.id, b.requested, b.bytes));
                assert!(!b.direct && !b.exported);
                assert!(self.inactive() <= self.up.max_cached.load(SeqCst));
                self.freed.push((address, b.id));
            }
            Freed::Released { info, result, why, .. } => {
                assert_eq!(info.id, b.id);
                match why {
                    Release::Direct => assert!(b.direct),
                    Release::Exported => assert!(b.exported),
                    Release::FenceRefused => assert_eq!(self.up.fence.load(SeqCst), 3),
                    Release::Exact | Release::Shed => {}
                    w => panic!("no reason for {w:?}"),
                }
                if result.is_err() {
                    assert_eq!(self.pool.find_active(address).map(|i| i.id), Some(b.id));
                    self.live.insert(address, b);
                } else {
                    assert_eq!(self.pool.block_of(address), None);
                }
            }
            f => panic!("a live block: {f:?}"),
        }
    }

    fn check(&self) {
        let c = self.pool.counters();
        let sum = |direct| self.live.values().filter(|b| b.direct == direct).map(|b| b.bytes).sum::<u64>();
        assert_eq!(c.active, sum(false));
        assert_eq!(c.active + c.inactive, c.reserved);
        assert!(c.active_peak >= c.active && c.reserved_peak >= c.reserved && c.active_peak <= c.reserved_peak);
        assert_eq!(c.waiting, 0);
        let direct: u64 = self.contexts.iter().map(|c| self.pool.usage(ContextId(*c)).direct).sum();
        assert_eq!(direct, sum(true));
        assert_eq!(c.frees_cached, self.kept);
        assert_eq!(self.up.fences.load(SeqCst), self.kept, "one fence for each block kept");
        assert_eq!(c.requests, self.ids);
        for (a, b) in &self.live {
            let i = self.pool.find_active(*a).unwrap();
            assert_eq!((i.id, i.requested, i.block, i.context), (b.id, b.requested, b.bytes, b.context));
            assert_eq!((i.direct, i.exported), (b.direct, b.exported));
            if let Some(bytes) = self.up.bytes_of(*a) {
                assert_eq!(bytes, b.bytes);
            }
        }
        for ((a, b), (next, _)) in self.live.iter().zip(self.live.iter().skip(1)) {
            // A block freed behind our back may be overlapped, by what the device gave out since.
            assert!(a + b.bytes <= *next || self.up.bytes_of(*a).is_none() || self.up.bytes_of(*next).is_none());
        }
    }
}

proptest! {
    #[test]
    fn the_pool_does_what_the_program_expects(ops in prop::collection::vec(op(), 1..400)) {
        let mut p = Program::new();
        for op in &ops {
            p.run(op);
            p.check();
        }
    }
}
