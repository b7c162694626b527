//! One thread's own copy of the rules it needs, linked in the order of its stacks.
//!
//! In a live program a capture begins with the processor's caches full of other work, and most of its
//! time goes into fetching rules from memory. Here a rule lies beside those that were first seen with it,
//! and each knows the one that followed it last, so that the next fetch need not wait for the return
//! address to be read, and neighbours on the stack are neighbours in memory. No other thread writes
//! here: shared links would make threads that go through the same functions in other orders fight.
//!
//! The memory is the thread's from its first capture to its end, and is forgotten whole when code was
//! unloaded anywhere.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::*, compiler_fence};

use super::close::Epoch;
use super::rule::Rule;
use super::walk::{Rules, shared_rule};

/// Rules kept. A training step of PyTorch needs 400.
const ENTRIES: usize = 4096;
const INDEX_BITS: u32 = 13;
const ADDRESS: u64 = (1 << 48) - 1;

/// A code address and, above its 48 bits, the entry that followed last; and the rule. Entry 0 holds no rule: every walk
/// starts from it.
#[derive(Clone, Copy)]
struct Entry {
    key: u64,
    rule: u64,
}

/// As the kernel gives it, all zero, it is empty: no code is at address 0.
struct Cache {
    /// The generations begun when it was last found valid.
    generation: u64,
    /// Entries in use, without entry 0.
    used: usize,
    entries: [Entry; ENTRIES],
    /// Entries by code address, open addressing; 0 is a free place.
    index: [u16; 1 << INDEX_BITS],
}

/// A thread's place for its cache.
#[repr(C)]
#[derive(Default)]
pub(super) struct Slot {
    cache: AtomicPtr<UnsafeCell<Cache>>,
    /// A walk of the thread is at it: one that a signal handler begins meanwhile goes without.
    busy: AtomicBool,
}

/// A walk's use of its thread's cache.
pub(super) struct Linked<'a> {
    slot: &'a Slot,
    cache: *mut Cache,
    epoch: Epoch,
    /// The entry of the frame before.
    at: *mut Entry,
}

impl Slot {
    #[cfg(test)]
    pub(super) const fn new() -> Slot {
        Slot { cache: AtomicPtr::new(std::ptr::null_mut()), busy: AtomicBool::new(false) }
    }

    /// The cache for a walk of the calling thread, unless it can't be used now.
    #[inline(always)]
    pub(super) fn begin(&self, epoch: Epoch) -> Option<Linked<'_>> {
        if epoch.closing() || self.busy.load(Relaxed) {
            return None;
        }
        let mut cache = self.cache.load(Relaxed);
        if cache.is_null() {
            cache = self.take()?;
        }
        // For a signal handler in this thread, hence no more than the compiler's order.
        self.busy.store(true, Relaxed);
        compiler_fence(SeqCst);
        let cache = UnsafeCell::raw_get(cache);
        // SAFETY: the thread's own memory, which `busy` keeps its signal handlers from.
        unsafe {
            if (*cache).generation != epoch.begun() {
                Cache::clear(cache, epoch.begun());
            }
            Some(Linked { slot: self, cache, epoch, at: (&raw mut (*cache).entries).cast() })
        }
    }

    #[cold]
    fn take(&self) -> Option<*mut UnsafeCell<Cache>> {
        // SAFETY: new memory, of no address that anybody knows.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size_of::<Cache>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            return None;
        }
        let cache = memory.cast::<UnsafeCell<Cache>>();
        match self.cache.compare_exchange(std::ptr::null_mut(), cache, Relaxed, Relaxed) {
            Ok(_) => Some(cache),
            // A signal handler was faster.
            Err(first) => {
                // SAFETY: mapped above, used by nobody.
                unsafe { libc::munmap(memory, size_of::<Cache>()) };
                Some(first)
            }
        }
    }

    pub(super) fn release(&self) {
        if self.busy.load(Relaxed) {
            return;
        }
        let cache = self.cache.swap(std::ptr::null_mut(), Relaxed);
        if !cache.is_null() {
            // SAFETY: mapped by `take`, of this size, and nobody walks with it.
            unsafe { libc::munmap(cache.cast(), size_of::<Cache>()) };
        }
    }
}

impl Drop for Linked<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        compiler_fence(SeqCst);
        self.slot.busy.store(false, Relaxed);
    }
}

impl Rules for Linked<'_> {
    #[inline(always)]
    fn rule(&mut self, at: u64) -> Rule {
        // SAFETY: links are below the number of entries; the cache is the thread's own.
        unsafe {
            let next = (&raw mut (*self.cache).entries).cast::<Entry>().add(((*self.at).key >> 48) as usize);
            if (*next).key & ADDRESS == at {
                self.at = next;
                return Rule((*next).rule);
            }
        }
        self.find(at)
    }
}

impl Linked<'_> {
    /// The rule for an address that did not follow here before.
    #[inline(never)]
    fn find(&mut self, at: u64) -> Rule {
        // SAFETY: the cache is the thread's own, and no other reference to it is live.
        let cache = unsafe { &mut *self.cache };
        let mut i = home(at);
        loop {
            let n = usize::from(cache.index[i]);
            if n == 0 {
                break;
            }
            if cache.entries[n].key & ADDRESS == at {
                return self.follow(n);
            }
            i = (i + 1) % cache.index.len();
        }
        let (rule, lasts) = shared_rule(at, self.epoch);
        if !lasts {
            return rule;
        }
        if cache.used + 1 == ENTRIES {
            // SAFETY: as above.
            unsafe { Cache::clear(self.cache, self.epoch.begun()) };
            self.at = (&raw mut cache.entries).cast();
            i = home(at);
        }
        cache.used += 1;
        cache.entries[cache.used] = Entry { key: at, rule: rule.0 };
        cache.index[i] = cache.used as u16;
        self.follow(cache.used)
    }

    fn follow(&mut self, n: usize) -> Rule {
        // SAFETY: `n` is an entry in use, `at` an entry of the same cache.
        unsafe {
            (*self.at).key = (*self.at).key & ADDRESS | (n as u64) << 48;
            self.at = (&raw mut (*self.cache).entries).cast::<Entry>().add(n);
            Rule((*self.at).rule)
        }
    }
}

impl Cache {
    /// # Safety
    /// The cache is the calling thread's.
    #[cold]
    #[inline(never)]
    unsafe fn clear(cache: *mut Cache, generation: u64) {
        // SAFETY: as the caller says; plain numbers.
        unsafe {
            (*cache).entries[0].key = 0;
            let used = (*cache).used;
            for entry in &mut (&mut (*cache).entries)[1..=used] {
                entry.key = 0;
            }
            if used > 0 {
                (*cache).index.fill(0);
            }
            (*cache).used = 0;
            (*cache).generation = generation;
        }
    }
}

#[inline(always)]
fn home(at: u64) -> usize {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - INDEX_BITS)) as usize
}

#[cfg(test)]
mod tests {
    use super::super::close::forget;
    use super::super::module;
    use super::super::tests::{no_close, set_up};
    use super::*;

    /// More code addresses than the cache has entries, and their rules.
    fn many() -> Vec<(u64, Rule)> {
        let start = libc::qsort as *const () as u64;
        let module = module::find(start).unwrap();
        let known = |at: u64| module::find(at).is_some_and(|m| m.start == module.start);
        let all = (start..).step_by(7).take_while(|&at| known(at)).take(3 * ENTRIES);
        // While another test closes a library nothing may be kept, so each is asked for until it may.
        let lasting = |at: u64| (0..100_000).map(|_| shared_rule(at, Epoch::now())).find(|(_, lasts)| *lasts);
        let rules: Vec<_> = all.filter_map(|at| Some((at, lasting(at)?.0))).collect();
        assert!(rules.len() > ENTRIES, "{}", rules.len());
        rules
    }

    #[test]
    fn rules_stay_right_when_it_is_full_and_in_any_order() {
        set_up();
        let _no_close = no_close();
        let slot = Slot::new();
        let all = many();
        let mut seed = 7u64;
        for stride in [1, 5, 977] {
            // Another test may begin a generation meanwhile: the walk goes without the cache then.
            let Some(mut rules) = slot.begin(Epoch::now()) else { continue };
            for i in 0..2 * all.len() {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let (at, rule) = all[if stride == 977 { seed as usize >> 5 } else { i * stride } % all.len()];
                assert_eq!(rules.rule(at), rule);
            }
        }
        slot.release();
    }

    #[test]
    fn one_walk_at_a_time_and_none_from_before() {
        set_up();
        let _no_close = no_close();
        let slot = Slot::new();
        let (at, rule) = many()[0];
        let mut first = None;
        for _ in 0..1000 {
            first = slot.begin(Epoch::now());
            if first.is_some() {
                break;
            }
        }
        let mut first = first.unwrap();
        assert_eq!(first.rule(at), rule);
        // As a signal handler would find it.
        assert!(slot.begin(Epoch::now()).is_none());
        slot.release();
        drop(first);
        forget();
        // SAFETY: no walk is under way.
        let used = |slot: &Slot| unsafe { (*UnsafeCell::raw_get(slot.cache.load(Relaxed))).used };
        assert_eq!(used(&slot), 1);
        for _ in 0..1000 {
            if slot.begin(Epoch::now()).is_some() {
                break;
            }
        }
        assert_eq!(used(&slot), 0);
        slot.release();
        assert!(slot.cache.load(Relaxed).is_null());
    }
}
