//! Not a test: `cargo test --release speed -- --ignored --nocapture`.

use super::*;
use std::time::Instant;

struct Times {
    warm: f64,
    forgotten: f64,
    frames: usize,
}

fn best(rounds: u32, batch: u32, mut work: impl FnMut()) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..rounds {
        let start = Instant::now();
        for _ in 0..batch {
            work();
        }
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(batch));
    }
    best
}

unsafe extern "C" fn measure(times: *mut c_void) {
    // SAFETY: given below.
    let times = unsafe { &mut *times.cast::<Times>() };
    let mut pcs = [0; DEEPEST];
    STACK.with(|stack| {
        // SAFETY: this thread's.
        times.frames = unsafe { capture(stack, &mut pcs, 0..0) }.len;
        times.warm = best(200, 500, || {
            // SAFETY: as above.
            std::hint::black_box(unsafe { capture(stack, &mut pcs, 0..0) });
        });
        times.forgotten = best(2000, 1, || {
            super::super::close::forget();
            // SAFETY: as above.
            std::hint::black_box(unsafe { capture(stack, &mut pcs, 0..0) });
        });
    });
}

#[test]
#[ignore = "measures"]
fn speed() {
    set_up();
    let library = library(CHAIN, &[]);
    for depth in [0, 10, 20, 30, 60] {
        let mut times = Times { warm: 0.0, forgotten: 0.0, frames: 0 };
        // SAFETY: the C function calls `measure` with the pointer.
        unsafe { (library.chain)(depth, measure, (&raw mut times).cast()) };
        let Times { warm, forgotten, frames } = times;
        println!(
            "{frames} frames: {warm:.0} ns, {:.1} a frame; at first sight {:.0} a frame",
            warm / frames as f64,
            forgotten / frames as f64
        );
    }
}
