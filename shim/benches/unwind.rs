//! Nanoseconds for a native call stack, once its code was seen: the walk alone, with its hash.

#[path = "../src/unwind/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the library and its tests use all of it")]
mod unwind;

use std::ffi::{CStr, c_void};
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::time::Instant;

unsafe fn resolve(name: &CStr) -> *mut c_void {
    // SAFETY: a C string; nothing hooks dlsym here.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

#[inline(never)]
fn deep(depth: u32, work: &mut dyn FnMut()) -> u32 {
    if depth == 0 {
        work();
        return 0;
    }
    black_box(deep(depth - 1, work)) + 1
}

fn main() {
    // SAFETY: it is dlsym itself.
    unsafe { unwind::init(resolve) };
    // SAFETY: all zeroes is what the library starts with.
    let unwinder: unwind::Unwinder = unsafe { MaybeUninit::zeroed().assume_init() };
    for depth in [0, 10, 20, 50] {
        deep(depth, &mut || {
            let mut frames = 0;
            let mut best = f64::MAX;
            for _ in 0..200 {
                let start = Instant::now();
                for _ in 0..500 {
                    // SAFETY: this thread's stack.
                    frames = black_box(unsafe { unwind::capture(&unwinder, 128, 0..0) }).len;
                }
                best = best.min(start.elapsed().as_nanos() as f64 / 500.0);
            }
            println!("{frames} frames: {best:.0} ns, {:.1} a frame", best / frames as f64);
        });
    }
}
