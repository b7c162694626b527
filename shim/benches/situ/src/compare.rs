//! Our walk held against libgcc's, frame by frame.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

use crate::frames::{DEPTH, Frames};
use crate::{libgcc, ours};

/// What was compared so far.
#[repr(C)]
#[derive(Default)]
pub struct Counts {
    /// Stacks, also the ones that differ.
    pub stacks: u64,
    /// The program's frames that both gave and that are the same.
    pub frames: u64,
    /// Stacks with guesses, compared as far as they are certain, and as far as libgcc goes.
    pub guessed: u64,
    /// Stacks that were longer than there was room for, compared as far as there was.
    pub cut: u64,
    /// Stacks where our walk that only hashes went another way than the one that gives the frames.
    pub disagreed: u64,
    /// Stacks that differ, those included.
    pub different: u64,
}

static STACKS: AtomicU64 = AtomicU64::new(0);
static FRAMES: AtomicU64 = AtomicU64::new(0);
static GUESSED: AtomicU64 = AtomicU64::new(0);
static CUT: AtomicU64 = AtomicU64::new(0);
static DISAGREED: AtomicU64 = AtomicU64::new(0);
static DIFFERENT: AtomicU64 = AtomicU64::new(0);

/// The first stacks that differ are kept to be looked at.
const KEPT: usize = 8;

struct Slot {
    ready: AtomicBool,
    stacks: UnsafeCell<[Stack; 2]>,
}

#[derive(Clone, Copy)]
struct Stack {
    pcs: [u64; DEPTH],
    len: usize,
}

// SAFETY: written once, by whom `DIFFERENT` gave the slot to, and read after `ready`.
unsafe impl Sync for Slot {}

static SLOTS: [Slot; KEPT] =
    [const { Slot { ready: AtomicBool::new(false), stacks: UnsafeCell::new([Stack { pcs: [0; DEPTH], len: 0 }; 2]) } };
        KEPT];

/// Compares the calling thread's stack from the caller on. In a signal's handler, too.
#[inline(never)]
pub fn here() {
    let mut ours = Frames::new();
    let both_walks_agree = ours::record(&mut ours);
    let mut theirs = Frames::new();
    libgcc::capture(&mut theirs);
    note(&ours, &theirs, both_walks_agree);
}

fn note(ours: &Frames, theirs: &Frames, both_walks_agree: bool) {
    let (a, b) = (ours.of_program(), theirs.of_program());
    let same = a.iter().zip(b).take_while(|&(&a, &b)| ours::plain(a) == b).count();
    STACKS.fetch_add(1, Relaxed);
    FRAMES.fetch_add(same as u64, Relaxed);
    let is_right = if let Some(certain) = a.iter().position(|&pc| ours::is_guessed(pc)) {
        // libgcc ends where there is no information. Where it goes on there was some, and the guess must be right.
        GUESSED.fetch_add(1, Relaxed);
        same >= certain && (b.len() == certain || same == a.len().min(b.len()))
    } else if ours.is_full() || theirs.is_full() {
        CUT.fetch_add(1, Relaxed);
        same == a.len().min(b.len())
    } else {
        same == a.len() && same == b.len()
    };
    if !both_walks_agree {
        DISAGREED.fetch_add(1, Relaxed);
    }
    // An empty stack is none.
    if !is_right || same == 0 || !both_walks_agree {
        keep(a, b);
    }
}

#[cold]
fn keep(a: &[u64], b: &[u64]) {
    let number = DIFFERENT.fetch_add(1, SeqCst);
    let Some(slot) = SLOTS.get(number as usize) else { return };
    // SAFETY: the number is this call's alone.
    let stacks = unsafe { &mut *slot.stacks.get() };
    for (stack, pcs) in stacks.iter_mut().zip([a, b]) {
        stack.len = pcs.len().min(DEPTH);
        stack.pcs[..stack.len].copy_from_slice(&pcs[..stack.len]);
    }
    slot.ready.store(true, Release);
}

/// What was compared so far.
pub fn counts() -> Counts {
    Counts {
        stacks: STACKS.load(SeqCst),
        frames: FRAMES.load(SeqCst),
        guessed: GUESSED.load(SeqCst),
        cut: CUT.load(SeqCst),
        disagreed: DISAGREED.load(SeqCst),
        different: DIFFERENT.load(SeqCst),
    }
}

/// One of the first stacks that differ, as we have it (0) or libgcc (1).
pub fn difference(number: usize, whose: usize) -> Option<&'static [u64]> {
    let slot = SLOTS.get(number).filter(|slot| slot.ready.load(Acquire))?;
    // SAFETY: ready, so nobody writes it any more.
    let stack = unsafe { (*slot.stacks.get()).get(whose)? };
    stack.pcs.get(..stack.len)
}
