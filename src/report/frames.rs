//! Which frames of a stack a person sees: the program's own first. The way from the program through CUDA's runtime into
//! our hook says nothing, nor does what lies below `main`, nor ten library frames in a row without a name, nor the
//! interpreter at work between lines of Python ([`interpreter`]), nor how a standard library does what it was called
//! for.

use vramscope_core::trace::Module;

use super::history::{At, History};
use super::interpreter;
use super::python::{self, Whose};
use super::text::clean;
use crate::symbols::{Name, Names, file_name};
use plumbing::{plumbing, standard, start};
pub use shown::{Shown, line};
use shown::{join, one};
pub use torch::BACKWARD;

mod plumbing;
mod shown;
mod torch;

/// A frame with a name, before it is decided whether it is shown.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Number of its module, 0: none.
    pub number: u32,
    /// Path of the module.
    pub path: String,
    /// File name of the module.
    pub module: String,
    /// Function; empty if it has no name.
    pub function: String,
    /// `file:line`, or empty.
    pub place: String,
    /// The source file as it is named where the name was found; empty: unknown.
    pub file: String,
    /// The line in it; 0: unknown.
    pub line: u32,
    /// Return address in the module.
    pub offset: u64,
    /// Found by guessing.
    pub guessed: bool,
    /// Inlined into the next one.
    pub inlined: bool,
    /// Whose code it is.
    pub whose: Whose,
    /// A frame of the machinery behind Python's `import`.
    pub imports: bool,
    /// A frame of the standard library of C++ or Rust, or of CUDA's.
    pub standard: bool,
}

impl Default for Entry {
    fn default() -> Entry {
        let empty = String::new;
        Entry {
            number: 0,
            path: empty(),
            module: empty(),
            function: empty(),
            place: empty(),
            file: empty(),
            line: 0,
            offset: 0,
            guessed: false,
            inlined: false,
            whose: Whose::Native,
            imports: false,
            standard: false,
        }
    }
}

impl Entry {
    /// Whether it is a frame of Python code.
    pub fn is_python(&self) -> bool {
        self.whose != Whose::Native
    }
}

/// The frames of a stack with their names, innermost first.
#[derive(Clone, Debug, Default)]
pub struct Frames {
    entries: Vec<Entry>,
}

/// The frames of a stack. Its addresses must have been resolved.
pub fn shown(history: &History, names: &Names, stack: u32) -> Frames {
    let frames = history.stacks.get(&stack).into_iter().flatten();
    Frames { entries: frames.flat_map(|f| entries(history, names, f)).collect() }
}

impl Frames {
    /// The lines that a person sees; `all`: a line for each frame, whatever it is.
    pub fn lines(&self, all: bool) -> Vec<Shown> {
        if all {
            return self.entries.iter().map(one).collect();
        }
        let told = torch::tell(&self.kept(false));
        join(&told.iter().collect::<Vec<_>>())
    }

    /// The frames that a person sees, one by one; `all`: every one.
    pub fn kept(&self, all: bool) -> Vec<&Entry> {
        if all {
            return self.entries.iter().collect();
        }
        let own = interpreter::own(&self.entries);
        let entries: Vec<&Entry> = self.entries.iter().zip(own).filter(|(_, own)| !own).map(|(e, _)| e).collect();
        let from = entries.iter().position(|e| !plumbing(e)).unwrap_or(entries.len());
        // What called `main` may also be on the way from one Python frame to another (a nameless `qsort`).
        let python = entries.iter().rposition(|e| e.is_python()).unwrap_or(0);
        let to = (from.max(python)..entries.len()).find(|i| start(entries[*i])).unwrap_or(entries.len());
        // A stack of nothing but plumbing is still better shown than not.
        if from == to { entries } else { entries[from..to].to_vec() }
    }
}

/// All addresses of some stacks, to resolve them at once.
pub fn addresses(history: &History, stacks: impl IntoIterator<Item = u32>) -> Vec<(u32, u64)> {
    let frames = stacks.into_iter().filter_map(|s| history.stacks.get(&s));
    let native = |f: &At| match f {
        At::Native(module, offset, _) => Some((*module, *offset)),
        At::Python(_) | At::Other(_) => None,
    };
    frames.flat_map(|frames| frames.iter().filter_map(native)).collect()
}

fn entries(history: &History, names: &Names, frame: &At) -> Vec<Entry> {
    let directory = history.header.directory.as_str();
    let (number, offset, guessed) = match frame {
        At::Native(module, offset, guessed) => (*module, *offset, *guessed),
        At::Python(number) => {
            let mut e = Entry { function: "(unknown Python)".into(), whose: Whose::User, ..Entry::default() };
            // The line that said what it is may be lost, and so may the function's name.
            if let Some(p) = history.python.get(number) {
                e.place = with_line(&python::short(&p.file, directory), p.line);
                (e.file, e.line) = (p.file.clone(), p.line);
                (e.whose, e.imports) = (python::whose(&p.file), python::imports(&p.file));
                if !p.function.is_empty() {
                    e.function = clean(&p.function);
                }
            }
            return vec![e];
        }
        At::Other(text) => return vec![Entry { function: clean(text), ..Entry::default() }],
    };
    let path = history.modules.get(&number).map_or("", |m: &Module| m.path.as_str());
    let module = clean(file_name(path));
    let plain = Entry { number, path: path.to_string(), module, offset, guessed, ..Entry::default() };
    let found = names.at(number, offset);
    if found.is_empty() {
        return vec![plain];
    }
    let entry = |n: &Name| Entry {
        function: clean(&n.function),
        place: with_line(&short(&n.file, directory), n.line),
        file: n.file.clone(),
        line: n.line,
        inlined: n.inlined,
        standard: standard(&n.file),
        ..plain.clone()
    };
    found.iter().map(entry).collect()
}

/// A file as short as it stays clear.
pub fn short(file: &str, directory: &str) -> String {
    let inside = file.strip_prefix(directory).and_then(|f| f.strip_prefix('/'));
    match inside.filter(|_| !directory.is_empty()) {
        Some(inside) => inside.to_string(),
        // The last two parts say which file it is, mostly.
        None => match file.rmatch_indices('/').nth(1) {
            Some((at, _)) => file[at + 1..].to_string(),
            None => file.to_string(),
        },
    }
}

fn with_line(file: &str, line: u32) -> String {
    let file = clean(file);
    if line == 0 || file.is_empty() { file } else { format!("{file}:{line}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing::{Script, named, names, trained};
    use vramscope_core::trace::Frame;

    #[test]
    fn the_programs_own_frames_come_first() {
        let mut s = Script::new();
        let stack = s.stack(&[(2, 0x10), (3, 0x20), (4, 0x30), (4, 0x38), (4, 0x3c), (1, 0x40), (1, 0x50), (5, 0x60)]);
        s.module(2, "/opt/libvramscope.so");
        s.module(3, "/usr/lib/libcudart.so.13");
        s.module(4, "/usr/lib/libcublasLt.so.13");
        s.module(5, "/usr/lib/libc.so.6");
        let history = s.history();
        let mut names = Names::new(&[]);
        names.insert(1, 0x40, vec![named("forward(Model&)", "/job/model.cu", 88)]);
        names.insert(1, 0x50, vec![named("step", "/job/train.cpp", 41), named("main", "", 0)]);
        let frames = shown(&history, &names, stack);
        let lines = [
            "libcublasLt.so.13+0x30  and 2 more without names",
            "forward(Model&)  model.cu:88",
            "step  train.cpp:41",
            "main  program",
        ];
        assert_eq!(text(&frames.lines(false)), lines);
        assert_eq!(frames.lines(false).iter().map(|l| l.count).collect::<Vec<_>>(), [3, 1, 1, 1]);
        assert_eq!(frames.lines(true).len(), 9);
    }

    /// Lines as text.
    fn text(lines: &[Shown]) -> Vec<String> {
        lines.iter().map(|l| format!("{}  {}", l.what, l.place).trim_end().to_string()).collect()
    }

    #[test]
    fn python_lines_stand_among_native_ones_without_the_interpreter() {
        let (s, stack) = trained();
        let frames = shown(&s.history(), &names(), stack);
        let lines = [
            "c10::cuda::raw_alloc(unsigned long)  libc10_cuda.so",
            "at::linear(at::Tensor const&)  libtorch_cpu.so",
            "Linear.forward  torch/nn/modules/linear.py:125",
            "Module._call_impl  torch/nn/modules/module.py:1750",
            "Net.forward  train.py:20",
            "Module._call_impl  torch/nn/modules/module.py:1750",
            "main  train.py:41",
            "<module>  train.py:60",
        ];
        assert_eq!(text(&frames.lines(false)), lines);
        let all = text(&frames.lines(true));
        assert_eq!(all.len(), s.history().stacks[&stack].len());
        assert_eq!((all[0].as_str(), all[1].as_str()), ("libvramscope.so+0x99", "libcudart.so.13+0x20"));
        assert!(all.iter().any(|l| l.starts_with("_PyEval_EvalFrameDefault  libpython3.11.so")));
        assert!(all.iter().any(|l| l.starts_with("libc.so.6+0x90")));
    }

    #[test]
    fn python_functions_are_never_taken_for_plumbing_or_the_start() {
        let mut s = Script::new();
        s.module(2, "/opt/libvramscope.so");
        s.module(3, "/usr/lib/libc.so.6");
        let frames = [
            Frame::Native(2, 0x10),
            s.python("cudaMalloc", "/job/cuda.py", 3),
            s.python("clone", "/job/cuda.py", 8),
            // `qsort` calling back, in a libc without names.
            Frame::Native(3, 0x20),
            s.python("main", "/job/run.py", 9),
            Frame::Native(3, 0x90),
            Frame::Native(1, 0x60),
        ];
        let stack = s.stack_of(&frames);
        let lines = ["cudaMalloc  cuda.py:3", "clone  cuda.py:8", "libc.so.6+0x20", "main  run.py:9"];
        assert_eq!(text(&shown(&s.history(), &Names::new(&[]), stack).lines(false)), lines);
    }

    #[test]
    fn an_import_is_one_line() {
        let mut s = Script::new();
        const BOOTSTRAP: &str = "<frozen importlib._bootstrap>";
        const LOADER: &str = "<frozen importlib._bootstrap_external>";
        let frames = [
            s.python("<module>", "/job/model.py", 1),
            s.python("_call_with_frames_removed", BOOTSTRAP, 241),
            s.python("exec_module", LOADER, 940),
            s.python("_find_and_load", BOOTSTRAP, 1176),
            s.python("import_module", "/usr/lib/python3.11/importlib/__init__.py", 126),
            s.python("<module>", "<stdin>", 1),
            Frame::Python(99),
        ];
        let stack = s.stack_of(&frames);
        let lines = shown(&s.history(), &Names::new(&[]), stack).lines(false);
        assert_eq!(
            text(&lines),
            [
                "<module>  model.py:1",
                "(import)",
                "import_module  python3.11/importlib/__init__.py:126",
                "<module>  <stdin>:1",
                "(unknown Python)"
            ]
        );
        assert_eq!(lines[1].count, 3);
    }

    #[test]
    fn a_stack_of_plumbing_only_is_shown() {
        let mut s = Script::new();
        s.module(2, "/opt/libvramscope.so");
        let stack = s.stack(&[(2, 0x10)]);
        let frames = shown(&s.history(), &Names::new(&[]), stack);
        assert_eq!(text(&frames.lines(false)), ["libvramscope.so+0x10"]);
    }

    #[test]
    fn of_a_standard_librarys_frames_the_outermost_is_left() {
        let mut s = Script::new();
        let stack = s.stack(&[(1, 0x10), (1, 0x20), (1, 0x30), (1, 0x40)]);
        let history = s.history();
        let mut names = Names::new(&[]);
        let inlined = |function, file| Name { inlined: true, ..named(function, file, 7) };
        names.insert(1, 0x10, vec![named("Pool::get(int)", "/job/pool.cpp", 3)]);
        names.insert(
            1,
            0x20,
            vec![
                inlined("std::__new_allocator<N>::allocate(unsigned long)", "/usr/include/c++/12/bits/new_allocator.h"),
                inlined(
                    "std::_Rb_tree<A>::_M_get_node()",
                    "/usr/lib/gcc/x/12/../../../../include/c++/12/bits/stl_tree.h",
                ),
                inlined("std::map<A, B>::operator[](A const&)", "/usr/include/c++/12/bits/stl_map.h"),
                named("load(char const*)", "/job/load.cpp", 9),
            ],
        );
        names.insert(
            1,
            0x30,
            vec![named("core::ops::FnOnce::call_once", "/rustc/59807/library/core/src/ops/function.rs", 250)],
        );
        names.insert(1, 0x40, vec![named("main", "/job/main.cpp", 7)]);
        let frames = shown(&history, &names, stack);
        let lines = frames.lines(false);
        assert_eq!(
            text(&lines),
            [
                "Pool::get(int)  pool.cpp:3",
                "std::map<A, B>::operator[](A const&) (inlined)  bits/stl_map.h:7",
                "load(char const*)  load.cpp:9",
                "core::ops::FnOnce::call_once  ops/function.rs:250",
                "main  main.cpp:7",
            ]
        );
        assert_eq!(lines[1].count, 3);
        assert_eq!(frames.lines(true).len(), 7);
    }
}
