//! Who holds most: groups whose place in the program reads the same become one holder.

use std::collections::HashMap;

use super::books::Books;
use crate::event::Memory;
use crate::record::live::{Growth, Known, Live};
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
    /// Its place, innermost first.
    pub place: String,
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
    let mut known: HashMap<String, usize> = HashMap::new();
    for g in groups {
        let place = place(live, g.stack, g.caller);
        let at = *known.entry(place.clone()).or_insert(held.len());
        if at == held.len() {
            let (stack, caller, tensor) = (g.stack, g.caller, g.memory == Memory::Tensor);
            held.push(Held { stack, caller, bytes: 0, count: 0, place, tensor, growth: None });
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

/// The place of a stack, in one line: the user's innermost Python lines, or modules.
pub(super) fn place(live: &Live, stack: u32, caller: u32) -> String {
    let known = live.known();
    let mut user = Vec::new();
    let mut others = Vec::new();
    let mut native: Vec<(u32, u64)> = Vec::new();
    for frame in known.frames(stack) {
        match frame {
            Frame::Python(number) => {
                let Some(p) = known.python(number) else { continue };
                let list = if is_users(&p.file) { &mut user } else { &mut others };
                if list.len() < LINES {
                    list.push(format!("{}:{} {}", short(&p.file, live.directory()), p.line, p.function));
                }
            }
            Frame::Native(module, offset) | Frame::Guessed(module, offset, _) => {
                if !is_plumbing(known.file(module)) {
                    native.push((module, offset));
                }
            }
            Frame::Other(_) => {}
        }
        if user.len() == LINES {
            break;
        }
    }
    let lines = if user.is_empty() { others } else { user };
    let text = match lines.is_empty() {
        false => lines.join(" < "),
        true => modules(known, &native, caller),
    };
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// The innermost frame, and the one that called into its module; where all are in one module, the two innermost.
fn modules(known: &Known, native: &[(u32, u64)], caller: u32) -> String {
    let innermost = native.first().copied();
    let other = native.iter().find(|f| innermost.is_some_and(|i| i.0 != f.0)).or(native.get(1)).copied();
    let name = |&(module, offset): &(u32, u64)| format!("{}+{offset:#x}", known.file(module));
    match native.is_empty() {
        false => innermost.iter().chain(&other).map(name).collect::<Vec<_>>().join(" < "),
        true if caller != 0 => known.file(caller).to_owned(),
        true => "(no stack recorded)".to_owned(),
    }
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
