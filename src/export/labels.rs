//! A frame, and a stack, in a few words.

use super::source::{Frame, Source};
use crate::report::room::{self, Row};
use crate::report::text::clean;
use crate::report::{frames, python};
use crate::symbols::file_name;
use crate::symbols::shorten::shorten;

/// Columns of a place, and of a function.
const WIDTH: usize = 90;

/// What ran: the program, or the script or module that Python was given.
pub fn program(source: &Source) -> String {
    let arguments = &source.history.header.arguments;
    let script = arguments.iter().skip(1).find(|a| a.ends_with(".py")).map(|a| file_name(a));
    let module = || arguments.iter().skip_while(|a| *a != "-m").nth(1).map(String::as_str);
    let python = source.history.program().starts_with("python");
    let ran = script.or_else(module).filter(|_| python);
    clean(ran.unwrap_or(source.history.program()))
}

/// A frame as flame graphs show it: `Net.forward (train.py:20)`, `at::linear(…) (libtorch_cpu.so)`, `libfoo.so+0x10`.
pub fn frame(source: &Source, f: &Frame) -> String {
    let place = place(source, f);
    let text = if place.is_empty() || f.function.starts_with(&format!("{place}+0x")) {
        f.function.clone()
    } else {
        format!("{} ({place})", f.function)
    };
    clean(&text)
}

/// Where a frame is: `train.py:20`, or the module.
pub fn place(source: &Source, f: &Frame) -> String {
    if f.line == 0 && !f.python {
        return f.module.clone();
    }
    let directory = source.history.header.directory.as_str();
    let file = if f.python { python::short(&f.file, directory) } else { frames::short(&f.file, directory) };
    if f.line == 0 { file } else { format!("{file}:{}", f.line) }
}

/// Where a stack is: its innermost line of the user's own Python; else the step of a backward pass; else the innermost
/// frame that is not PyTorch's allocator; without any frame, who called.
pub fn stack(source: &Source, frames: &[Frame], caller: u32) -> String {
    let own = frames.iter().find(|f| f.python && python::whose(&f.file) == python::Whose::User);
    let backward = || frames.iter().find(|f| f.function.contains("::autograd::") && f.function.contains("Backward"));
    let outside = || frames.iter().find(|f| !f.module.starts_with("libc10"));
    match own.or_else(backward).or_else(outside).or(frames.first()) {
        Some(f) => shorten(&frame(source, f), WIDTH),
        None if caller != 0 => clean(source.history.module_name(caller)),
        None => "(no stack)".to_string(),
    }
}

/// The frames of a stack that a report would show in so many lines, innermost first.
pub fn lines(source: &Source, stack: u32, room: usize) -> Vec<String> {
    let lines = source.lines(stack);
    let text = |row: Row<'_>| match row {
        Row::Frame(f) if f.place.is_empty() => f.what.clone(),
        Row::Frame(f) => format!("{} ({})", shorten(&f.what, WIDTH), f.place),
        Row::Gap(text) => text,
    };
    room::rows(&lines, room).into_iter().map(text).collect()
}
