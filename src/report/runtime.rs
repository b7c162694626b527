//! On whose behalf the CUDA runtime asked the driver. Where a program got `cudaMalloc` in a way that goes past the hook of that
//! name, the library that is seen calling is the runtime itself, of which everybody knows that it calls: the stack says more.

use super::history::{At, History};

/// What passes a call on from Python.
const GLUE: [&str; 5] = ["libcudart", "libffi", "_ctypes.", "libpython", "python"];

/// The library that called the runtime, if `caller` is the runtime and the stack has it.
pub fn caller(history: &History, caller: u32, stack: u32) -> Option<&str> {
    let is_runtime = |module: u32| history.module_name(module).starts_with("libcudart");
    if caller == 0 || !is_runtime(caller) {
        return None;
    }
    let frames = history.stacks.get(&stack)?.iter().map(|f| match f {
        At::Native(module, ..) => Some(*module),
        // Its line stands in the stack.
        At::Python(_) | At::Other(_) => None,
    });
    let called = frames.skip_while(|m| !m.is_some_and(is_runtime)).find(|m| !m.is_some_and(is_runtime))??;
    let name = history.module_name(called);
    (called != 0 && GLUE.iter().all(|glue| !name.starts_with(glue))).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing::Script;
    use vramscope_core::trace::Frame;

    #[test]
    fn the_runtime_calls_for_somebody() {
        let mut s = Script::new();
        for (number, path) in
            [(11, "/l/libvramscope.so"), (12, "/l/libcudart.so.12"), (13, "/l/libmine.so"), (14, "/l/libffi.so.8")]
        {
            s.module(number, path);
        }
        let mine = s.stack(&[(11, 1), (12, 2), (12, 3), (13, 4), (14, 5)]);
        let glue = s.stack(&[(11, 1), (12, 2), (14, 5)]);
        let python = s.python("f", "a.py", 1);
        let line = s.stack_of(&[Frame::Native(12, 2), python]);
        let h = s.history();
        assert_eq!(caller(&h, 12, mine), Some("libmine.so"));
        assert_eq!((caller(&h, 12, glue), caller(&h, 12, line), caller(&h, 12, 0)), (None, None, None));
        assert_eq!((caller(&h, 13, mine), caller(&h, 0, mine)), (None, None));
    }
}
