//! The interpreter of this process, if there is one whose frames we can read.

use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering::*};

use super::layout::{self, Layout, Refused};
use crate::exports::Exports;
use crate::message::error;
use crate::recorder;
use crate::unwind::memory;
use crate::unwind::module::{self, each_object};

type GetWord = unsafe extern "C" fn() -> u64;
type GetInt = unsafe extern "C" fn() -> c_int;

/// An interpreter whose frames can be read.
pub struct Interpreter {
    /// Where things lie.
    pub layout: Layout,
    /// `PyCode_Type`, `PyUnicode_Type` and `PyBytes_Type`.
    pub code_type: u64,
    /// As above.
    pub str_type: u64,
    /// As above.
    pub bytes_type: u64,
    /// `_PyEval_EvalFrameDefault`, or 0.
    pub evaluator: u64,
    /// `PyGILState_GetThisThreadState`: the state of this thread, whether or not it holds the GIL.
    this_thread: GetWord,
    /// `_PyThreadState_UncheckedGet`: from 3.12 on the state attached to this thread, before that the one that holds the GIL.
    attached: GetWord,
    /// `Py_IsFinalizing`.
    finalizing: GetInt,
    /// An address in its code, and where its object begins: to see whether it is still loaded.
    code: u64,
    start: u64,
    /// It is the program itself, which is never unloaded.
    is_program: bool,
}

impl Interpreter {
    /// The calling thread's state, if it has one that is safe to read.
    #[inline]
    pub fn thread(&self) -> Option<u64> {
        // SAFETY: functions of the interpreter that read one word each and may be called in any state of it.
        let (state, attached) = unsafe { ((self.this_thread)(), (self.attached)()) };
        // At its end the interpreter frees the states of threads that still run; the thread that ends it is attached.
        // SAFETY: as above.
        if unsafe { (self.finalizing)() } != 0 && (state == 0 || attached != state) {
            return None;
        }
        // In a sub-interpreter the attached state is the one that runs; the other one may be its parent's.
        let state = if self.layout.minor >= 12 && attached != 0 { attached } else { state };
        (state != 0).then_some(state)
    }
}

/// The interpreter, while it may be used. One that was found is never given back: threads may be using it.
static READY: AtomicPtr<Interpreter> = AtomicPtr::new(std::ptr::null_mut());
/// Libraries are being unloaded (`dlclose` is under way): the interpreter's may be one of them.
static HELD: AtomicU32 = AtomicU32::new(0);
/// There is one that can't be read: said once, and not looked for again.
static REFUSED: AtomicBool = AtomicBool::new(false);
/// How many objects had ever been loaded when we looked last.
static LOADED: AtomicU64 = AtomicU64::new(0);

/// The interpreter, if one was found.
#[inline(always)]
pub fn interpreter() -> Option<&'static Interpreter> {
    // SAFETY: null, or a leaked box.
    let found = unsafe { READY.load(Acquire).as_ref() }?;
    (found.is_program || HELD.load(Acquire) == 0).then_some(found)
}

/// A `dlclose` begins: what it unloads must not be called meanwhile.
pub fn closing() {
    HELD.fetch_add(1, SeqCst);
}

/// It is over; an interpreter that went with it is forgotten, and another one may be found.
pub fn closed() {
    let found = READY.load(Acquire);
    // SAFETY: null, or a leaked box.
    if let Some(i) = unsafe { found.as_ref() }
        && module::find(i.code).is_none_or(|m| m.start != i.start)
        && READY.compare_exchange(found, std::ptr::null_mut(), AcqRel, Acquire).is_ok()
    {
        LOADED.store(0, Relaxed);
    }
    HELD.fetch_sub(1, SeqCst);
}

/// Looks for an interpreter among the loaded objects, if there are new ones. Whether one is there now.
///
/// `runs` says whether the calling thread's stack goes through this code. Nothing is called in an object that it does not
/// go through: one that is just being loaded is listed before it can be run.
#[cold]
pub fn look(runs: &dyn Fn(&std::ops::Range<u64>) -> bool) -> bool {
    if interpreter().is_some() {
        return true;
    }
    if REFUSED.load(Relaxed) || HELD.load(Acquire) != 0 {
        return false;
    }
    let (loaded, _) = module::counts();
    // (Threads that come at once all look: the one that finds it last finds the same.)
    if LOADED.load(Relaxed) == loaded {
        return false;
    }
    let mut found = None;
    let mut any = false;
    // The program may have copies of the types of a libpython that it is linked with: all use those.
    let mut program = None;
    each_object(&mut |object| -> c_int {
        let Some(exports) = Exports::of(object) else { return 0 };
        let is_program = program.is_none();
        program.get_or_insert(exports);
        if exports.get(c"PyGILState_GetThisThreadState").is_none() {
            return 0;
        }
        any = true;
        if runs(&exports.code()) {
            found = Some((exports, is_program));
        }
        c_int::from(found.is_some())
    });
    let (Some((exports, is_program)), Some(program)) = (found, program) else {
        // One that is there and does not run here may run in the next thread that asks.
        LOADED.store(if any { 0 } else { loaded }, Relaxed);
        return false;
    };
    match read(&exports, &program) {
        Ok(interpreter) => {
            let interpreter = Box::leak(Box::new(Interpreter { is_program, ..interpreter }));
            READY.store(interpreter, Release);
            true
        }
        Err(why) => {
            refuse(&why);
            false
        }
    }
}

/// The interpreter's frames can't be read: it is said once, and stacks go on without them.
pub fn refuse(why: &str) {
    READY.store(std::ptr::null_mut(), Release);
    if !REFUSED.swap(true, AcqRel) {
        error!("no Python frames in call stacks: {why}; native frames are recorded");
        recorder::note(&format!("no Python frames in call stacks: {why}"));
    }
}

fn read(exports: &Exports, program: &Exports) -> Result<Interpreter, String> {
    let (minor, text) = version(exports).ok_or("this Python does not tell its version")?;
    let need = |name: &CStr| {
        exports.get(name).ok_or_else(|| format!("Python {text} does not export {}", name.to_string_lossy()))
    };
    let any = |names: &[&CStr]| {
        names.iter().find_map(|n| exports.get(n)).ok_or_else(|| {
            let first = names.first().map_or("", |n| n.to_str().unwrap_or(""));
            format!("Python {text} does not export {first}")
        })
    };
    let shared = |name: &CStr| program.get(name).map_or_else(|| need(name), Ok);
    let layout = match layout::of_version(minor) {
        Some(layout) => layout,
        None if (13..=15).contains(&minor) => {
            let runtime = need(c"_PyRuntime")?;
            if !memory::is_readable(runtime) || !memory::is_readable(runtime + layout::WORDS as u64 * 8) {
                return Err(format!("Python {text} has no table of offsets"));
            }
            // SAFETY: it can be read (just asked).
            let table = unsafe { &*(runtime as *const [u64; layout::WORDS]) };
            layout::of_table(minor, table).map_err(|refused| match refused {
                Refused::FreeThreaded => format!("Python {text} is a free-threaded build"),
                Refused::Unknown => format!("Python {text} has an unknown table of offsets"),
            })?
        }
        None => return Err(format!("Python {text} is not known (3.9 to 3.15 are)")),
    };
    let this_thread = need(c"PyGILState_GetThisThreadState")?;
    let attached = any(&[c"_PyThreadState_UncheckedGet", c"PyThreadState_GetUnchecked"])?;
    let finalizing = any(&[c"Py_IsFinalizing", c"_Py_IsFinalizing"])?;
    // SAFETY: CPython's functions of these types.
    let (this_thread, attached, finalizing) = unsafe {
        (
            std::mem::transmute::<usize, GetWord>(this_thread as usize),
            std::mem::transmute::<usize, GetWord>(attached as usize),
            std::mem::transmute::<usize, GetInt>(finalizing as usize),
        )
    };
    Ok(Interpreter {
        layout,
        code_type: shared(c"PyCode_Type")?,
        str_type: shared(c"PyUnicode_Type")?,
        bytes_type: shared(c"PyBytes_Type")?,
        evaluator: exports.get(c"_PyEval_EvalFrameDefault").unwrap_or(0),
        this_thread,
        attached,
        finalizing,
        code: this_thread as usize as u64,
        start: module::find(this_thread as usize as u64).map_or(0, |m| m.start),
        is_program: false,
    })
}

/// The minor version, and the version as text.
fn version(exports: &Exports) -> Option<(u32, String)> {
    let get = exports.get(c"Py_GetVersion")?;
    // SAFETY: CPython's function, which gives a text of its own.
    let text = unsafe {
        let get = std::mem::transmute::<usize, unsafe extern "C" fn() -> *const c_char>(get as usize);
        CStr::from_ptr(get())
    };
    let text = text.to_str().ok()?.split(' ').next()?.to_owned();
    let minor = text.strip_prefix("3.")?;
    let digits = minor.find(|c: char| !c.is_ascii_digit()).unwrap_or(minor.len());
    Some((minor[..digits].parse().ok()?, text))
}
