//! Code that goes away: what was remembered about its addresses must not outlive it.
//!
//! Every rule belongs to a generation. `dlclose` (our hook of it) calls [`closing`] before and
//! [`closed`] after the real one; if a library was really unloaded, a new generation begins. In
//! between nothing is read from the table of rules and nothing is put there, because another
//! library can already be at the address while the generation is still the old one.
//!
//! `dlopen` needs nothing: what a new library brings is not in the table, since addresses that no
//! library holds are never remembered.
//!
//! glibc's own closes (NSS, iconv) don't pass our hook; the next one that does makes up for them.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

use super::{module, table};

/// Bits 0..48: generations begun; 48..64: closes under way. One word, so that a walk sees both
/// at one instant.
static EPOCH: AtomicU64 = AtomicU64::new(0);
const CLOSE: u64 = 1 << 48;
/// How many libraries had been unloaded when we looked last.
static UNLOADED: AtomicU64 = AtomicU64::new(0);
/// Closes under way that really may unload code: those that a [`Scan`] gives way to.
static CLOSES: AtomicU32 = AtomicU32::new(0);
/// Threads that look at code which no frame of theirs keeps loaded: see [`Scan`].
static SCANS: AtomicU32 = AtomicU32::new(0);

/// What a walk needs to know before it uses the table of rules.
#[derive(Clone, Copy)]
pub(super) struct Epoch(u64);

impl Epoch {
    #[inline(always)]
    pub(super) fn now() -> Epoch {
        Epoch(EPOCH.load(Acquire))
    }

    /// Nothing may be read from the table and nothing put there.
    #[inline(always)]
    pub(super) fn closing(self) -> bool {
        self.0 >= CLOSE
    }

    /// How many generations have begun: a number that does not come again.
    #[inline(always)]
    pub(super) fn begun(self) -> u64 {
        self.0 & (CLOSE - 1)
    }

    /// 16 bits. They come again after 65,536 generations, so the table is cleared then.
    #[inline(always)]
    pub(super) fn generation(self) -> u64 {
        self.0 & 0xffff
    }

    /// False once a close has begun or a generation ended since.
    pub(super) fn is_current(self) -> bool {
        EPOCH.load(Acquire) == self.0
    }
}

/// A library may be unloaded from now on. [`closed`] must follow, on any thread.
pub fn closing() {
    EPOCH.fetch_add(CLOSE, SeqCst);
    CLOSES.fetch_add(1, SeqCst);
    // A scan is over in microseconds. Waiting for ever would hang a forked child whose parent
    // scanned on another thread.
    for _ in 0..1000 {
        if SCANS.load(SeqCst) == 0 {
            break;
        }
        std::thread::yield_now();
    }
}

/// The close that [`closing`] announced is over.
pub fn closed() {
    let now = module::counts().1;
    if UNLOADED.swap(now, SeqCst) != now {
        begin_generation();
    }
    CLOSES.fetch_sub(1, SeqCst);
    EPOCH.fetch_sub(CLOSE, SeqCst);
}

/// Code has gone, or changed, in some other way: forget all rules.
pub(super) fn forget() {
    EPOCH.fetch_add(CLOSE, SeqCst);
    begin_generation();
    EPOCH.fetch_sub(CLOSE, SeqCst);
}

/// The caller has a close under way, so nobody reads the table while it is cleared.
fn begin_generation() {
    if (EPOCH.fetch_add(1, SeqCst) + 1) & 0xffff == 0 {
        table::clear();
    }
}

/// Held while code is looked at that may be unloaded at any time: words on the stack that look
/// like return addresses. [`closing`] waits until none is left.
pub(super) struct Scan(());

impl Scan {
    /// `None` while a close is under way: a stack that needs a guess just then is cut short.
    pub(super) fn begin() -> Option<Scan> {
        SCANS.fetch_add(1, SeqCst);
        let scan = Scan(());
        (CLOSES.load(SeqCst) == 0).then_some(scan)
    }
}

impl Drop for Scan {
    fn drop(&mut self) {
        SCANS.fetch_sub(1, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::super::rule::{Rule, SavedBp};
    use super::*;

    #[test]
    fn an_old_rule_never_comes_back() {
        let rule = Rule::new(false, false, 4096, SavedBp::Same).unwrap();
        let before = EPOCH.load(SeqCst) & (CLOSE - 1);
        let generation = before & 0xffff;
        table::put(0x1234_5678, generation, rule);
        // Other tests may begin generations as well: stop at the same number or past it.
        while (EPOCH.load(SeqCst) & (CLOSE - 1)) < before + 0x1_0000 {
            forget();
        }
        assert_eq!(table::get(0x1234_5678, generation), None);
    }

    #[test]
    fn a_close_that_unloads_nothing_keeps_the_generation() {
        let _no_close = super::super::tests::exclusive();
        // A test of generations may run beside this one, hence the tries.
        let kept = (0..1000).any(|_| {
            let before = Epoch::now().generation();
            closing();
            assert!(Epoch::now().closing());
            closed();
            Epoch::now().generation() == before
        });
        assert!(kept);
    }
}
