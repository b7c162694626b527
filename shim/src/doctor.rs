//! What `vramscope doctor` shows of the library's side: which hooks were asked for, through which door, and which driver
//! names went past us.

use std::ffi::{CStr, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering::*};

use crate::hooks::{COUNT, NAMES};
use crate::{bypass, message, real, settings};

/// How a program came to a function.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Door {
    /// `dlsym` of an object.
    Dlsym = 1,
    /// `cuGetProcAddress`.
    ProcAddress = 2,
}

/// Bits of the doors that an entry was asked through.
static ASKED: [AtomicU8; COUNT] = [const { AtomicU8::new(0) }; COUNT];
/// Names of allocating functions that were asked for and that we do not hook.
static PASSED: Mutex<Vec<(String, u64)>> = Mutex::new(Vec::new());
static PASSED_COUNT: AtomicU32 = AtomicU32::new(0);
static WANTED: AtomicBool = AtomicBool::new(false);

/// An entry of ours was given out.
pub fn asked(index: usize, door: Door) {
    ASKED[index].fetch_or(door as u8, Relaxed);
}

/// A driver function that we do not hook was given out. Counted; remembered by name if it could move memory.
pub fn passed(name: &CStr, _given: *mut c_void, _door: Door) {
    let n = name.to_bytes();
    if !["Alloc", "Free", "Create", "Map", "Import", "Capture"]
        .iter()
        .any(|w| n.windows(w.len()).any(|x| x == w.as_bytes()))
    {
        return;
    }
    PASSED_COUNT.fetch_add(1, Relaxed);
    if !wanted() {
        return;
    }
    if let Ok(mut p) = PASSED.try_lock() {
        let text = String::from_utf8_lossy(n);
        if let Some((_, c)) = p.iter_mut().find(|(k, _)| *k == text) {
            *c += 1;
        } else if p.len() < 512 {
            p.push((text.into_owned(), 1));
        }
    }
}

fn wanted() -> bool {
    static LOOKED: AtomicBool = AtomicBool::new(false);
    if !LOOKED.swap(true, Relaxed) {
        WANTED.store(settings::variable(c"VRAMSCOPE_LOG").as_deref() == Some("doctor"), Relaxed);
        if WANTED.load(Relaxed) {
            extern "C" fn at_exit() {
                if !crate::state::forked() {
                    report();
                }
            }
            // SAFETY: a handler without arguments.
            unsafe { libc::atexit(at_exit) };
        }
    }
    WANTED.load(Relaxed)
}

/// At a look-up: makes sure that the report at exit is printed when it is wanted.
pub fn watch() {
    wanted();
}

fn report() {
    let (found, of) = real::found();
    message::line(format_args!("vramscope-doctor: hooks {found} of {of} found in this driver"));
    let by = |bit: u8| ASKED.iter().filter(|a| a.load(Relaxed) & bit != 0).count();
    message::line(format_args!("vramscope-doctor: door dlsym gave out {} hooks", by(Door::Dlsym as u8)));
    message::line(format_args!(
        "vramscope-doctor: door cuGetProcAddress gave out {} hooks",
        by(Door::ProcAddress as u8)
    ));
    for (i, a) in ASKED.iter().enumerate() {
        let a = a.load(Relaxed);
        if a != 0 {
            let doors = match a {
                1 => "dlsym",
                2 => "cuGetProcAddress",
                _ => "dlsym cuGetProcAddress",
            };
            message::line(format_args!("vramscope-doctor: live {} {doors}", NAMES[i].to_string_lossy()));
        }
    }
    message::line(format_args!(
        "vramscope-doctor: passed {} look-ups of functions that are not hooked",
        PASSED_COUNT.load(Relaxed)
    ));
    if let Ok(p) = PASSED.try_lock() {
        for (n, c) in p.iter() {
            message::line(format_args!("vramscope-doctor: bypass {n} {c}"));
        }
    }
    bypass::each(&mut |object, name, target| {
        message::line(format_args!("vramscope-doctor: bypassed {name} by {object}, bound to {target}"));
    });
}
