//! The regions that a thread is in: `vramscope_region_begin`, and NVTX ranges, of which a program may have millions.
//!
//! Entering one copies its name and nothing more. Only when something is recorded in the thread (an allocation, a free, a
//! mark) the regions around it get their lines; one in which nothing happened leaves none. Nothing here waits, and but for a
//! thread's first region nothing asks the system for anything.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use vramscope_core::event::{Event, EventKind};

use crate::thread::{self, Thread};
use crate::{driver, exit, labels, pause, recorder, state};

/// Regions inside one another; deeper ones are counted and no more.
const DEPTH: usize = 64;
/// Domains whose deeper ranges are counted; a range of a further one is not followed.
const DEEPER: usize = 128;
/// Bits of a token that count within a thread; those above them are the thread's.
const COUNTED: u32 = 40;
/// Bytes of a name; longer ones are cut.
pub const NAME: usize = 232;

/// Who entered a region: each has a stack of its own in the thread.
pub type Domain = u32;
/// `vramscope_region_begin`. (NVTX's are 0, the default one, and upwards.)
const OWN: Domain = u32::MAX;

/// A region that a thread is in.
struct Open {
    /// What its beginner knows it by.
    token: u64,
    /// Its number in the history; 0: it is not in it.
    id: u64,
    /// When it was entered.
    since: u64,
    domain: Domain,
    length: u32,
    name: [u8; NAME],
}

/// The regions of a thread, the outermost first. In memory that the system gave zeroed.
pub struct Regions {
    depth: u32,
    /// The outermost so many are in the history.
    written: u32,
    /// Domains in `beyond`.
    domains: u32,
    /// 1 while the thread is at work here: a signal handler that comes meanwhile is not heard.
    busy: u32,
    /// The token of the region begun last: above `COUNTED` bits, what no other thread of the process has.
    begun: u64,
    open: [Open; DEPTH],
    /// NVTX ranges beyond the depth, by domain. Each is inside of all the domain's followed ones.
    beyond: [(Domain, u32); DEEPER],
}

/// A signal handler jumped out of what a thread did with its regions.
pub fn left(t: &Thread) {
    let place = t.regions.get();
    if !place.is_null() {
        // SAFETY: made by `first` for this thread alone; nothing of what was left goes on.
        unsafe { (*place).busy = 0 };
    }
}

/// Works on the calling thread's regions; `None`: it has none and there was no memory, or it is at it already.
fn with<T>(t: &Thread, f: impl FnOnce(&mut Regions, &Thread) -> T) -> Option<T> {
    let place = t.regions.get();
    let place = if place.is_null() { first(t)? } else { place };
    // SAFETY: made by `first` for this thread alone, which has no reference to it now, as `busy` tells.
    if unsafe { (*place).busy } != 0 {
        return None;
    }
    // SAFETY: as above.
    let regions = unsafe { &mut *place };
    regions.busy = 1;
    let result = f(regions, t);
    regions.busy = 0;
    t.unwritten.set(regions.depth - regions.written);
    Some(result)
}

/// A thread's first region.
#[cold]
fn first(t: &Thread) -> Option<*mut Regions> {
    // SAFETY: new memory, of no address that anybody knows.
    let memory = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            size_of::<Regions>(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if memory == libc::MAP_FAILED {
        return None;
    }
    if !t.has_producer.get() {
        exit::watch_thread();
    }
    static THREADS: AtomicU64 = AtomicU64::new(1);
    // All fields are numbers, for which zeroes are valid.
    let regions = memory.cast::<Regions>();
    // SAFETY: as above, and large enough.
    unsafe { (*regions).begun = THREADS.fetch_add(1, Relaxed) << COUNTED };
    t.regions.set(regions);
    Some(regions)
}

/// The thread ends.
pub fn thread_ends(t: &Thread) {
    let place = t.regions.replace(std::ptr::null_mut());
    t.unwritten.set(0);
    if !place.is_null() {
        // SAFETY: mapped by `first`; the thread has no reference to it any more.
        unsafe { libc::munmap(place.cast(), size_of::<Regions>()) };
    }
}

/// The name, cut at the end of a letter if it is too long.
fn cut(name: &[u8]) -> &[u8] {
    if name.len() <= NAME {
        return name;
    }
    let starts_letter = |i: &usize| name[*i] & 0xc0 != 0x80;
    let end = (NAME - 3..=NAME).rev().find(starts_letter).unwrap_or(NAME);
    &name[..end]
}

impl Regions {
    /// How many of a domain the thread is in.
    fn of(&self, domain: Domain) -> u32 {
        let beyond = self.beyond[..self.domains as usize].iter().find(|(d, _)| *d == domain).map_or(0, |(_, n)| *n);
        self.open[..self.depth as usize].iter().filter(|o| o.domain == domain).count() as u32 + beyond
    }

    /// Enters a range beyond the depth; whether it is counted.
    #[cold]
    fn enter_deeper(&mut self, domain: Domain) -> bool {
        let known = self.domains as usize;
        if let Some((_, n)) = self.beyond[..known].iter_mut().find(|(d, _)| *d == domain) {
            *n += 1;
            return true;
        }
        let Some(place) = self.beyond.get_mut(known) else { return false };
        *place = (domain, 1);
        self.domains += 1;
        true
    }

    /// Leaves the domain's innermost range if it is one beyond the depth.
    #[cold]
    fn leave_deeper(&mut self, domain: Domain) -> bool {
        let known = self.domains as usize;
        let Some(at) = self.beyond[..known].iter().position(|(d, _)| *d == domain) else { return false };
        self.beyond[at].1 -= 1;
        if self.beyond[at].1 == 0 {
            self.beyond.swap(at, known - 1);
            self.domains -= 1;
        }
        true
    }

    fn is_deeper(&self, domain: Domain) -> bool {
        self.domains != 0 && self.beyond[..self.domains as usize].iter().any(|(d, _)| *d == domain)
    }

    /// The token of a region that is now the innermost; `None`: too deep.
    #[inline]
    fn enter(&mut self, domain: Domain, name: &[u8]) -> Option<u64> {
        let Some(open) = self.open.get_mut(self.depth as usize) else {
            full();
            return None;
        };
        let name = cut(name);
        self.begun += 1;
        (open.token, open.id, open.since, open.domain) = (self.begun, 0, driver::now_ns(), domain);
        open.length = name.len() as u32;
        open.name[..name.len()].copy_from_slice(name);
        self.depth += 1;
        Some(self.begun)
    }

    /// Leaves the region at this place: commonly the innermost.
    #[inline]
    fn leave(&mut self, at: usize) {
        let id = self.open[at].id;
        self.open[at..self.depth as usize].rotate_left(1);
        self.depth -= 1;
        if at < self.written as usize {
            self.written -= 1;
        }
        if id != 0 {
            recorder::event(&Event { kind: EventKind::RegionEnd, id, ..Event::default() });
        }
    }

    fn write(&mut self) {
        say_missed();
        let now = driver::now_ns();
        while self.written < self.depth {
            let open = &mut self.open[self.written as usize];
            let text = labels::text(&open.name[..open.length as usize]);
            if text == 0 {
                return;
            }
            open.id = recorder::new_id();
            let extra = [u64::from(text), now.saturating_sub(open.since), 0];
            recorder::event(&Event { kind: EventKind::RegionBegin, id: open.id, extra, ..Event::default() });
            self.written += 1;
        }
    }
}

/// Whether a region had no place: 1, and the history does not say so yet; 2, it does.
static MISSED: AtomicU8 = AtomicU8::new(0);

/// A region begins and there is no place for it.
#[cold]
fn full() {
    let _ = MISSED.compare_exchange(0, 1, Relaxed, Relaxed);
    say_missed();
}

/// Says it once, as soon as there is a history.
fn say_missed() {
    let unsaid = MISSED.load(Relaxed) == 1 && recorder::recording() && state::started();
    if unsaid && MISSED.swap(2, Relaxed) == 1 {
        recorder::note(&format!(
            "a thread is in {DEPTH} regions at once (perhaps some are never ended): further ones are not in the history"
        ));
    }
}

/// An event of this kind is about to be recorded in the thread, which is in regions that are not in the history yet.
#[cold]
pub fn before(t: &Thread, kind: EventKind) {
    use EventKind::*;
    let labelled = matches!(kind, Alloc | Free | AllocFailed | FreeFailed | BadFree | Mark | Map | Unmap);
    if labelled && !pause::on() {
        with(t, |regions, _| regions.write());
    }
}

/// Whether regions matter here. (They may begin before the first CUDA call starts the recorder.)
#[inline]
fn is_of_use() -> bool {
    !state::switched_off() && !state::forked() && !state::broken()
}

/// The calling thread enters a region; what [`end`] knows it by, or 0.
pub fn begin(name: &[u8]) -> u64 {
    if !is_of_use() {
        return 0;
    }
    with(thread::current(), |regions, _| regions.enter(OWN, name)).flatten().unwrap_or(0)
}

/// The calling thread leaves the region that it entered by [`begin`].
pub fn end(token: u64) {
    if token == 0 || !is_of_use() {
        return;
    }
    with(thread::current(), |regions, _| {
        let open = &regions.open[..regions.depth as usize];
        if let Some(at) = open.iter().rposition(|o| o.domain == OWN && o.token == token) {
            regions.leave(at);
        }
    });
}

/// The calling thread enters an NVTX range; how many of the domain it was in. `None`: it is not followed.
pub fn push(domain: Domain, name: &[u8]) -> Option<u32> {
    if !is_of_use() {
        return None;
    }
    with(thread::current(), |regions, _| {
        let level = regions.of(domain);
        // (Inside of one beyond the depth, one that would have a place by now is beyond it too: they end in that order.)
        let followed = !regions.is_deeper(domain) && regions.enter(domain, name).is_some();
        (followed || regions.enter_deeper(domain)).then_some(level)
    })
    .flatten()
}

/// The calling thread leaves the domain's innermost range; how many it is still in. `None`: it was in none.
pub fn pop(domain: Domain) -> Option<u32> {
    if !is_of_use() || thread::current().regions.get().is_null() {
        return None;
    }
    with(thread::current(), |regions, _| {
        if regions.domains != 0 && regions.leave_deeper(domain) {
            return Some(regions.of(domain));
        }
        let at = regions.open[..regions.depth as usize].iter().rposition(|o| o.domain == domain)?;
        regions.leave(at);
        Some(regions.of(domain))
    })
    .flatten()
}

/// A stretch of the whole process's work begins, which any thread may end; its number, or 0.
pub fn start(name: &[u8]) -> u64 {
    if !recorder::recording() || pause::on() || !state::started() {
        return 0;
    }
    let text = labels::text(cut(name));
    if text == 0 {
        return 0;
    }
    let id = recorder::new_id();
    let extra = [u64::from(text), 0, 1];
    recorder::event(&Event { kind: EventKind::RegionBegin, id, extra, ..Event::default() });
    id
}

/// It ends.
pub fn stop(id: u64) {
    if id != 0 && recorder::recording() && state::started() {
        recorder::event(&Event { kind: EventKind::RegionEnd, id, ..Event::default() });
    }
}

const _: () = assert!(size_of::<Regions>() <= 5 * 4096, "touched by every thread that is in a region");
