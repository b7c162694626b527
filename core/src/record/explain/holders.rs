//! Who holds most: groups of one and the same stack become one holder. (Where several go through the same helpers, what is
//! shown of each is what tells it from the others.)

use std::collections::HashMap;

use super::books::Books;
use crate::event::Memory;
use crate::record::live::{Growth, Live};
use crate::trace::Frame;

/// Groups looked at: what is smaller is never among the first ten.
const CANDIDATES: usize = 500;
/// Python lines shown of a stack.
const LINES: usize = 3;

/// Live allocations of one place in the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub stack: u32,
    pub caller: u32,
    pub bytes: u64,
    pub count: u64,
    /// Its place, innermost first, as [`name`] made it of its lines.
    pub place: String,
    /// The line that tells it from the others.
    pub at: String,
    lines: Vec<String>,
    /// Tensors of PyTorch's.
    pub tensor: bool,
    pub growth: Option<Growth>,
}

/// All holders of a device among the largest groups, the largest first.
pub(super) fn of(live: &Live, device: u32, books: &Books) -> Vec<Held> {
    let all = live.groups().iter().filter(|g| g.count > 0 && live.device(g.context) == device);
    let mut groups: Vec<_> = all
        .filter(|g| g.memory == Memory::Tensor || g.memory.on_device() && !books.is_segment(g.caller, g.memory))
        .collect();
    groups.sort_by_key(|g| (std::cmp::Reverse(g.bytes), g.stack));
    groups.truncate(CANDIDATES);
    let mut held: Vec<Held> = Vec::new();
    let mut known: HashMap<(Vec<(u32, u64)>, u32), usize> = HashMap::new();
    for g in groups {
        let at = *known.entry((identity(live, g.stack), g.caller)).or_insert(held.len());
        if at == held.len() {
            held.push(Held {
                stack: g.stack,
                caller: g.caller,
                bytes: 0,
                count: 0,
                place: String::new(),
                at: String::new(),
                lines: Vec::new(),
                tensor: g.memory == Memory::Tensor,
                growth: None,
            });
        }
        let h = &mut held[at];
        h.bytes = h.bytes.saturating_add(g.bytes);
        h.count += g.count;
        if let Some(more) = live.growth(g) {
            let sum = h.growth.get_or_insert(Growth { count: 0, bytes: 0, since: 0, busy: false });
            sum.count += more.count;
            sum.bytes = sum.bytes.saturating_add(more.bytes);
            sum.since = sum.since.max(more.since);
            sum.busy |= more.busy;
        }
    }
    held.sort_by_key(|h| std::cmp::Reverse(h.bytes));
    held
}

/// What makes two stacks the same place: all Python lines, or without any all native frames.
fn identity(live: &Live, stack: u32) -> Vec<(u32, u64)> {
    let (mut python, mut native) = (Vec::new(), Vec::new());
    for frame in live.known().frames(stack) {
        match frame {
            Frame::Python(place) => python.push((u32::MAX, u64::from(place))),
            Frame::Native(module, offset) | Frame::Guessed(module, offset, _) => native.push((module, offset)),
            Frame::Other(_) => {}
        }
    }
    if python.is_empty() { native } else { python }
}

/// Says where each holder is: its innermost line and, further out, the first that the others do not have.
pub(super) fn name(live: &Live, held: &mut [Held]) {
    for h in held.iter_mut() {
        h.lines = lines(live, h.stack, h.caller);
    }
    for i in 0..held.len() {
        let own = &held[i].lines;
        let apart = |other: &Vec<String>| own.iter().zip(other).position(|(a, b)| a != b);
        let others = held.iter().enumerate().filter(|(j, _)| *j != i);
        let k = others.filter_map(|(_, h)| apart(&h.lines)).max().unwrap_or(0);
        let (at, place) = (own.get(k).cloned().unwrap_or_default(), joined(own, k));
        (held[i].at, held[i].place) = (at, place);
    }
}

/// Lines of a stack as one: the innermost ones, and the one that counts.
fn joined(lines: &[String], counts: usize) -> String {
    if counts < LINES {
        return lines[..lines.len().min(LINES)].join(" < ");
    }
    let rest = &lines[counts..lines.len().min(counts + LINES - 1)];
    format!("{} < ... < {}", lines[0], rest.join(" < "))
}

/// The place of a stack, in one line: the user's innermost Python lines, or modules.
pub(super) fn place(live: &Live, stack: u32, caller: u32) -> String {
    joined(&lines(live, stack, caller), 0)
}

/// Whether nothing but modules and offsets can be said of a stack here.
pub(super) fn is_native(live: &Live, stack: u32) -> bool {
    let mut frames = live.known().frames(stack).peekable();
    frames.peek().is_some() && !frames.any(|f| matches!(f, Frame::Python(_)))
}

/// A stack, innermost first: the user's Python lines; without any, others' Python lines; without any, modules and offsets.
fn lines(live: &Live, stack: u32, caller: u32) -> Vec<String> {
    let known = live.known();
    let (mut user, mut others, mut native) = (Vec::new(), Vec::new(), Vec::<(u32, u64)>::new());
    for frame in known.frames(stack) {
        match frame {
            Frame::Python(number) => {
                let Some(p) = known.python(number) else { continue };
                let list = if is_users(&p.file) { &mut user } else { &mut others };
                list.push(format!("{}:{} {}", short(&p.file, live.directory()), p.line, p.function));
            }
            Frame::Native(module, offset) | Frame::Guessed(module, offset, _) => {
                if !is_plumbing(known.file(module)) {
                    native.push((module, offset));
                }
            }
            Frame::Other(_) => {}
        }
    }
    // Of a library that was called into its innermost frame; of the program, which called it, all.
    let program = native.last().map_or(0, |f| f.0);
    let own = native.iter().rposition(|f| f.0 != program).map_or(0, |i| i + 1);
    let kept = |i: &usize| *i >= own || *i == 0 || native[*i].0 != native[*i - 1].0;
    let name = |i: usize| format!("{}+{:#x}", known.file(native[i].0), native[i].1);
    let native: Vec<String> = (0..native.len()).filter(kept).map(name).collect();
    let nothing = || match caller {
        0 => "(no stack recorded)".to_owned(),
        _ => known.file(caller).to_owned(),
    };
    let mut lines = [user, others, native].into_iter().find(|l| !l.is_empty()).unwrap_or_else(|| vec![nothing()]);
    for line in &mut lines {
        if line.chars().any(char::is_control) {
            *line = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        }
    }
    lines
}

/// Whether a Python file is the user's own.
fn is_users(file: &str) -> bool {
    let library = ["/site-packages/", "/dist-packages/", "/lib/python3", "/lib64/python3"];
    !file.starts_with("<frozen") && !library.iter().any(|l| file.contains(l))
}

/// The way from whoever asked into our hook, and what lies below `main`.
fn is_plumbing(module: &str) -> bool {
    ["libvramscope", "libcudart", "libcuda.so", "libc.so", "libpthread.so", "ld-linux", "?"]
        .iter()
        .any(|m| module.starts_with(m))
}

/// A Python file as short as it stays clear.
fn short<'a>(file: &'a str, directory: &str) -> &'a str {
    if let Some(inside) =
        file.strip_prefix(directory).and_then(|f| f.strip_prefix('/')).filter(|_| !directory.is_empty())
    {
        return inside;
    }
    for packages in ["/site-packages/", "/dist-packages/"] {
        if let Some((_, inside)) = file.split_once(packages) {
            return inside;
        }
    }
    match file.rmatch_indices('/').nth(1) {
        Some((at, _)) => &file[at + 1..],
        None => file,
    }
}
