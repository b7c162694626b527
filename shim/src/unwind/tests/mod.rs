//! Captures compared with libgcc's, on real frames made by a C compiler.

mod jit;
mod nested;
mod shape;
mod signal;
mod unload;

use std::ffi::{CStr, CString, c_int, c_long, c_void};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::{Captured, Unwinder, address, hash, module};

/// Calls C functions `depth` deep, then `leaf`.
type Chain = unsafe extern "C" fn(c_int, unsafe extern "C" fn(*mut c_void), *mut c_void) -> c_long;

const CHAIN: &str = include_str!("chain.c");
const TWIN: &str = include_str!("twin.c");
const DEEPEST: usize = 256;

unsafe fn resolve(name: &CStr) -> *mut c_void {
    // SAFETY: a C string; nothing hooks dlsym in a test.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

pub(super) fn set_up() {
    // SAFETY: it is dlsym itself.
    unsafe { super::init(resolve) };
}

/// While a library is being closed, frames are not guessed.
static CLOSING: RwLock<()> = RwLock::new(());

pub(super) fn no_close() -> RwLockReadGuard<'static, ()> {
    CLOSING.read().unwrap_or_else(PoisonError::into_inner)
}

/// For tests that close.
pub(super) fn exclusive() -> RwLockWriteGuard<'static, ()> {
    CLOSING.write().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    static UNWINDER: Unwinder = const { Unwinder::new() };
}

/// What a capture gave.
struct Stack {
    pcs: [u64; DEEPEST],
    captured: Captured,
}

impl Stack {
    fn pcs(&self) -> &[u64] {
        &self.pcs[..self.captured.len]
    }
}

/// The stack from the caller on, by both walks: where they differ it is empty.
#[inline(always)]
fn ours() -> Stack {
    let mut pcs = [0; DEEPEST];
    let captured = walked(&mut pcs, 0..0);
    Stack { pcs, captured }
}

#[inline(always)]
fn walked(pcs: &mut [u64], own: std::ops::Range<u64>) -> Captured {
    // SAFETY: this thread's.
    let (recorded, fast) = UNWINDER.with(|unwinder| unsafe { super::both(unwinder, pcs, own) });
    // A guess may be refused to one of them only, while another test closes a library.
    let same = recorded == fast || recorded.guessed + fast.guessed > 0;
    if same { recorded } else { Captured { len: 0, hash: 0, guessed: 0, interrupted: 0 } }
}

unsafe extern "C" {
    fn _Unwind_Backtrace(visit: unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int, to: *mut c_void) -> c_int;
    fn _Unwind_GetIP(frame: *mut c_void) -> usize;
    fn __register_frame(begin: *const c_void);
    fn __deregister_frame(begin: *const c_void);
}

/// The stack as libgcc sees it, from its caller on.
#[inline(never)]
fn libgcc() -> Stack {
    unsafe extern "C" fn visit(frame: *mut c_void, to: *mut c_void) -> c_int {
        // SAFETY: what is given to `_Unwind_Backtrace` below.
        let to = unsafe { &mut *to.cast::<Stack>() };
        let Some(slot) = to.pcs.get_mut(to.captured.len) else { return 5 };
        // SAFETY: libgcc's frame.
        *slot = unsafe { _Unwind_GetIP(frame) } as u64;
        to.captured.len += 1;
        0
    }
    let mut stack = Stack { pcs: [0; DEEPEST], captured: Captured { len: 0, hash: 0, guessed: 0, interrupted: 0 } };
    // SAFETY: `visit` gets back what is given here.
    unsafe { _Unwind_Backtrace(visit, (&raw mut stack).cast()) };
    // This function's own frame comes first; a 0 may come last.
    stack.pcs.copy_within(1.., 0);
    stack.captured.len -= 1;
    while stack.pcs().last() == Some(&0) {
        stack.captured.len -= 1;
    }
    stack
}

/// Both stacks, from the caller of the function that this is expanded in.
struct Both {
    ours: Vec<u64>,
    libgcc: Vec<u64>,
    guessed: u32,
}

unsafe extern "C" fn compare(both: *mut c_void) {
    let (a, b) = (ours(), libgcc());
    assert_eq!(a.captured.hash, hash(a.pcs()));
    // SAFETY: `run` gave it.
    let both = unsafe { &mut *both.cast::<Both>() };
    // The first frame is this function, at two places.
    both.ours = a.pcs().iter().skip(1).map(|&pc| address(pc)).collect();
    both.libgcc = b.pcs().iter().skip(1).copied().collect();
    // The deepest that fits is one frame later for libgcc, whose own came first.
    let len = both.ours.len().min(both.libgcc.len());
    if a.captured.len == DEEPEST {
        both.ours.truncate(len);
        both.libgcc.truncate(len);
    }
    both.guessed = a.captured.guessed;
}

fn run(chain: Chain, depth: c_int) -> Both {
    let mut both = Both { ours: vec![], libgcc: vec![], guessed: 0 };
    // SAFETY: the C function calls `compare` with the pointer.
    unsafe { chain(depth, compare, (&raw mut both).cast()) };
    both
}

#[track_caller]
fn assert_same(both: &Both, least: usize) {
    assert!(both.libgcc.len() >= least, "libgcc saw only {} frames", both.libgcc.len());
    assert_eq!(both.ours, both.libgcc);
    assert_eq!(both.guessed, 0);
}

/// A compiled and loaded C source, unloaded by `close` only.
struct Library {
    handle: *mut c_void,
    chain: Chain,
}

impl Library {
    fn open(path: &std::path::Path) -> Library {
        let path = CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: a library of ours without constructors.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!handle.is_null());
        // SAFETY: a handle and a C string.
        let chain = unsafe { libc::dlsym(handle, c"chain".as_ptr()) };
        assert!(!chain.is_null());
        // SAFETY: the C function has this type.
        let chain = unsafe { std::mem::transmute::<*mut c_void, Chain>(chain) };
        Library { handle, chain }
    }

    fn close(self) {
        // SAFETY: the handle is open; nobody runs the library's code.
        assert_eq!(unsafe { libc::dlclose(self.handle) }, 0);
    }
}

fn compile(source: &str, flags: &[&str]) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = format!("unwind-{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
    let path = std::env::temp_dir().join(name);
    let (c, so) = (path.with_extension("c"), path.with_extension("so"));
    std::fs::write(&c, source).unwrap();
    let status = Command::new("cc").args(["-O2", "-shared", "-fPIC", "-o"]).arg(&so).arg(&c).args(flags).status();
    assert!(status.expect("a C compiler").success());
    std::fs::remove_file(c).unwrap();
    so
}

/// Compiles and loads; the file is gone afterwards.
fn library(source: &str, flags: &[&str]) -> Library {
    let path = compile(source, flags);
    let library = Library::open(&path);
    std::fs::remove_file(path).unwrap();
    library
}

/// The addresses of this program, as of a library of ours.
fn program() -> std::ops::Range<u64> {
    let module = module::find(program as *const () as u64).unwrap();
    module.start..module.end
}
