//! Which frames of a stack a person sees: the program's own first. The way from the program through CUDA's runtime into
//! our hook says nothing, nor does what lies below `main`, nor ten library frames in a row without a name.

use vramscope_core::trace::Module;

use super::history::{At, History};
use super::text::{clean, clip_start};
use crate::symbols::{Names, file_name, shorten};

/// A frame as shown.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Shown {
    /// Function, or `libfoo.so+0x1234`.
    pub what: String,
    /// `file:line`, or the module.
    pub place: String,
}

/// A frame with a name, before it is decided whether it is shown.
struct Entry {
    module: String,
    function: String,
    place: String,
    offset: u64,
    guessed: bool,
    inlined: bool,
}

/// The frames to show of a stack, innermost first. Its addresses must have been resolved.
pub fn shown(history: &History, names: &Names, stack: u32) -> Vec<Shown> {
    let Some(frames) = history.stacks.get(&stack) else { return Vec::new() };
    let entries: Vec<Entry> = frames.iter().flat_map(|f| entries(history, names, f)).collect();
    let from = entries.iter().position(|e| !plumbing(e)).unwrap_or(entries.len());
    let to = entries.iter().skip(from).position(start).map_or(entries.len(), |i| from + i);
    // A stack of nothing but plumbing is still better shown than not.
    let kept = if from == to { &entries[..] } else { &entries[from..to] };
    join(kept)
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
    let (number, offset, guessed) = match frame {
        At::Native(module, offset, guessed) => (*module, *offset, *guessed),
        At::Python(number) => {
            let Some(p) = history.python.get(number) else { return Vec::new() };
            let place = place(&p.file, p.line, &history.header.directory);
            let (module, function) = (String::new(), clean(&p.function));
            return vec![Entry { module, function, place, offset: 0, guessed: false, inlined: false }];
        }
        At::Other(text) => {
            let (module, place) = (String::new(), String::new());
            return vec![Entry { module, function: clean(text), place, offset: 0, guessed: false, inlined: false }];
        }
    };
    let path = history.modules.get(&number).map_or("", |m: &Module| m.path.as_str());
    let module = clean(file_name(path));
    let found = names.at(number, offset);
    if found.is_empty() {
        return vec![Entry { module, function: String::new(), place: String::new(), offset, guessed, inlined: false }];
    }
    let entry = |n: &crate::symbols::Name| Entry {
        module: module.clone(),
        function: clean(&n.function),
        place: place(&n.file, n.line, &history.header.directory),
        offset,
        guessed,
        inlined: n.inlined,
    };
    found.iter().map(entry).collect()
}

/// `file:line`, the file as short as it stays clear.
fn place(file: &str, line: u32, directory: &str) -> String {
    if file.is_empty() {
        return String::new();
    }
    let inside = file.strip_prefix(directory).and_then(|f| f.strip_prefix('/'));
    let short = match inside.filter(|_| !directory.is_empty()) {
        Some(inside) => inside.to_string(),
        // The last two parts say which file it is, mostly.
        None => match file.rmatch_indices('/').nth(1) {
            Some((at, _)) => file[at + 1..].to_string(),
            None => file.to_string(),
        },
    };
    let short = clean(&short);
    if line == 0 { short } else { format!("{short}:{line}") }
}

/// The way from the program into our hook.
fn plumbing(e: &Entry) -> bool {
    const MODULES: [&str; 3] = ["libvramscope.so", "libcudart.so", "libcuda.so"];
    // The runtime linked into a program has these names, if any.
    const FUNCTIONS: [&str; 5] = ["__cudart", "cudart::", "cudaMalloc", "cudaFree", "cudaHost"];
    // Templates of cuda_runtime.h: `cudaError cudaMalloc<float>(float**, unsigned long)`.
    let function = e.function.strip_prefix("cudaError ").or(e.function.strip_prefix("static ")).unwrap_or(&e.function);
    MODULES.iter().any(|m| e.module.starts_with(m)) || FUNCTIONS.iter().any(|f| function.starts_with(f))
}

/// What called `main`, or a thread's function: from there on, nothing is the program's.
fn start(e: &Entry) -> bool {
    const C: [&str; 6] = ["_start", "__libc_start_main", "__libc_start_call_main", "clone", "clone3", "start_thread"];
    const ANY: [&str; 4] =
        ["__libc_start_main_", "__clone", "std::rt::lang_start", "std::sys::backtrace::__rust_begin"];
    let function = e.function.split('@').next().unwrap_or_default();
    let loader = e.function.is_empty() && (e.module.starts_with("libc.so") || e.module.starts_with("libpthread.so"));
    C.contains(&function) || loader || ANY.iter().any(|s| function.starts_with(s))
}

/// Frames as lines; runs without names in one module become one line.
fn join(entries: &[Entry]) -> Vec<Shown> {
    let mut lines: Vec<Shown> = Vec::new();
    let mut i = 0;
    while i < entries.len() {
        let e = &entries[i];
        let mark = match (e.guessed, e.inlined) {
            (true, _) => " (guessed)",
            (false, true) => " (inlined)",
            (false, false) => "",
        };
        if e.function.is_empty() {
            let same = |n: &&Entry| n.function.is_empty() && n.module == e.module;
            let run = entries[i..].iter().take_while(same).count();
            let module = if e.module.is_empty() { "?" } else { &e.module };
            let what = format!("{module}+0x{:x}{mark}", e.offset);
            let place = if run > 1 { format!("and {} more without names", run - 1) } else { String::new() };
            lines.push(Shown { what, place });
            i += run;
            continue;
        }
        let place = if e.place.is_empty() { e.module.clone() } else { e.place.clone() };
        lines.push(Shown { what: format!("{}{mark}", e.function), place });
        i += 1;
    }
    lines
}

/// One frame as a line of this width: function left, place behind it, in a column of its own where it fits.
pub fn line(frame: &Shown, width: usize) -> String {
    let place = clip_start(&frame.place, width * 2 / 5);
    if place.is_empty() {
        return shorten::shorten(&frame.what, width);
    }
    let room = width - 2 - place.chars().count();
    let column = width * 3 / 5 - 2;
    let what = shorten::shorten(&frame.what, room);
    format!("{what:<column$}  {place}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing::{Script, named};

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
        let lines = shown(&history, &names, stack);
        let show = |what: &str, place: &str| Shown { what: what.into(), place: place.into() };
        assert_eq!(
            lines,
            [
                show("libcublasLt.so.13+0x30", "and 2 more without names"),
                show("forward(Model&)", "model.cu:88"),
                show("step", "train.cpp:41"),
                show("main", "program"),
            ]
        );
    }

    #[test]
    fn a_stack_of_plumbing_only_is_shown() {
        let mut s = Script::new();
        s.module(2, "/opt/libvramscope.so");
        let stack = s.stack(&[(2, 0x10)]);
        assert_eq!(shown(&s.history(), &Names::new(&[]), stack)[0].what, "libvramscope.so+0x10");
    }

    #[test]
    fn a_line_fits() {
        let frame = Shown {
            what: "void at::native::vectorized<4, at::native::Fill<float>, std::array<char*, 1ul>>(int, Fill<float>)"
                .into(),
            place: "a/very/long/folder/that/goes/on/and/on/kernel.cuh:123".into(),
        };
        for width in [40, 60, 92] {
            assert!(line(&frame, width).chars().count() <= width);
        }
        assert!(line(&frame, 92).contains("kernel.cuh:123"));
    }
}
