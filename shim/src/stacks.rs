//! Call stacks by number: each distinct one is written to the history once.
//!
//! A capture makes nothing but a hash: of the native frames' return addresses and the Python frames' places, while they
//! are walked. Only a stack that was never seen is walked a second time, for its frames, which are spliced in the order of
//! the C stack.

use std::sync::atomic::{AtomicU32, Ordering::*};

use crate::numbers::{Full, Numbers};
use crate::python::State;
use crate::settings::Settings;
use crate::thread::Thread;
use crate::{modules, pause, python, recorder, settings, unwind};

/// Most frames of one kind that `VRAMSCOPE_STACK_DEPTH` allows.
pub const DEEPEST: usize = 1024;

static STACKS: Numbers<{ 1 << 16 }> = Numbers::new();
static NEXT: AtomicU32 = AtomicU32::new(1);

/// The number of the calling thread's stack; 0: not recorded.
#[inline(never)]
pub fn here(t: &Thread) -> u32 {
    if pause::on() {
        return 0;
    }
    let s = settings::get();
    // Twice if an interpreter was found at the first look: it was there in the first walk already.
    for _ in 0..2 {
        let Some(hash) = hash(t, s) else { return 0 };
        let mut again = false;
        let found = STACKS.get(hash, || {
            again = s.python_stacks && !python::is_ready() && look(t);
            if again { 0 } else { define(t, s) }
        });
        match found {
            Ok(_) if again => {}
            Ok(number) => return number,
            Err(Full) => {
                recorder::stack_refused();
                return 0;
            }
        }
    }
    0
}

/// The same for a free, which `VRAMSCOPE_STACKS_ON_FREE=off` leaves without.
pub fn of_free(t: &Thread) -> u32 {
    if settings::get().stacks_on_free { here(t) } else { 0 }
}

#[inline(always)]
fn hash(t: &Thread, s: &Settings) -> Option<u64> {
    let mut hash = 0;
    let mut frames = 0;
    let mut state = State::Called;
    if s.native_stacks || python::needs_state() {
        // SAFETY: the walk's state is this thread's.
        let got = unsafe { unwind::capture(&t.unwinder, s.stack_depth, modules::own_range()) };
        if s.native_stacks {
            (hash, frames) = (got.hash, got.len);
        }
        state = state_of(got.interrupted);
    }
    if s.python_stacks {
        if !s.native_stacks && !python::is_ready() {
            look(t);
        }
        let (with_python, places) = python::fold(hash, s.stack_depth, state);
        hash = with_python;
        frames += places;
    }
    (frames > 0).then_some(hash)
}

/// (A signal handler further out than the walk reached is not seen; where it interrupted, Python's frames are deeper still.)
fn state_of(interrupted: u32) -> State {
    if interrupted == 0 { State::Called } else { State::Interrupted }
}

/// Looks for an interpreter that runs in this thread.
#[cold]
#[inline(never)]
fn look(t: &Thread) -> bool {
    python::look(&|code| {
        let mut frames = [unwind::Recorded::default(); 64];
        // SAFETY: the walk's state is this thread's.
        let got = unsafe { unwind::record(&t.unwinder, &mut frames, modules::own_range()) };
        frames[..got.len].iter().any(|f| code.contains(&unwind::address(f.pc)))
    })
}

/// Room for a stack, taken from the system for the moment: no hook has so much of its thread's stack to spare.
struct Room {
    native: [unwind::Recorded; DEEPEST],
    python: [python::Frame; DEEPEST],
    packed: [u64; 2 * DEEPEST],
    names: python::Names,
}

#[cold]
#[inline(never)]
fn define(t: &Thread, s: &Settings) -> u32 {
    // SAFETY: new memory, of no address that anybody knows.
    let memory = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            size_of::<Room>(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if memory == libc::MAP_FAILED {
        return 0;
    }
    // SAFETY: as large as that, zeroed, and all its fields are numbers.
    let room = unsafe { &mut *memory.cast::<Room>() };
    let number = define_in(t, s, room);
    // SAFETY: mapped above; no reference to it is left.
    unsafe { libc::munmap(memory, size_of::<Room>()) };
    number
}

fn define_in(t: &Thread, s: &Settings, room: &mut Room) -> u32 {
    let Room { native, python, packed, names } = room;
    let depth = s.stack_depth;
    let own = modules::own_range();
    let (natives, state) = if s.native_stacks {
        // SAFETY: the walk's state is this thread's.
        let got = unsafe { unwind::record(&t.unwinder, &mut native[..depth], own.clone()) };
        (got.len, state_of(got.interrupted))
    } else {
        // (Only a stack's first sight: every read may be asked about.)
        (0, State::Interrupted)
    };
    let places = if s.python_stacks { python::record(&mut python[..depth], state) } else { 0 };
    let cut = natives == depth || places == depth;
    // Ours stand between the runtime and its caller too: they never show.
    let is_own = |f: &unwind::Recorded| own.contains(&unwind::address(f.pc));
    let mut n = 0;
    let mut failed = false;
    splice(&native[..natives], &python[..places], |frame| {
        let word = match frame {
            Spliced::Native(f) if is_own(f) => return,
            Spliced::Native(f) => modules::pack(f.pc),
            Spliced::Python(f) => match python::place_of(f, names) {
                0 => {
                    failed = true;
                    return;
                }
                place => recorder::pack_python_frame(place),
            },
        };
        packed[n] = word;
        n += 1;
    });
    if failed {
        return 0;
    }
    let number = NEXT.fetch_add(1, Relaxed);
    if recorder::define_stack(number, &packed[..n], cut) { number } else { 0 }
}

/// A frame of a spliced stack.
enum Spliced<'a> {
    Native(&'a unwind::Recorded),
    Python(&'a python::Frame),
}

/// Both kinds of frames in their order, innermost first: Python frames come before the native frame of the C call that
/// runs them. Those whose C call is not among the native frames (the walk was cut) come last.
fn splice<'a>(native: &'a [unwind::Recorded], places: &'a [python::Frame], mut each: impl FnMut(Spliced<'a>)) {
    let (mut done_native, mut done_places) = (0, 0);
    for (i, place) in places.iter().enumerate() {
        let rest = &native[done_native..];
        let runs = match place.run_by {
            0 => continue,
            // Its own C call is the next frame that runs Python, behind the one of the place before.
            python::EACH => {
                let behind = usize::from(done_places > 0);
                rest.iter().skip(behind).position(|f| python::is_evaluator(f.pc)).map(|at| at + behind)
            }
            // (Where the last one ends is not known; it is the thread's beginning, or the walk was cut there.)
            address => rest.windows(2).position(|f| (f[0].sp..f[1].sp).contains(&address)),
        };
        let Some(at) = runs else { continue };
        rest[..at].iter().for_each(|f| each(Spliced::Native(f)));
        places[done_places..=i].iter().for_each(|f| each(Spliced::Python(f)));
        (done_native, done_places) = (done_native + at, i + 1);
    }
    native[done_native..].iter().for_each(|f| each(Spliced::Native(f)));
    places[done_places..].iter().for_each(|f| each(Spliced::Python(f)));
}

/// A library was unloaded, so the same addresses may come to mean another one: the table begins anew.
pub fn forget() {
    STACKS.clear();
}
