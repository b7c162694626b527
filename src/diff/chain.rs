//! A call stack as something that can be met again in another run, where addresses, lines and library versions moved.

use crate::report::frames::Shown;
use crate::report::python::Whose;
use crate::symbols::file_name;
use crate::symbols::shorten::shorten;

/// How exactly two stacks must be the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Function, file and line of every frame.
    Lines,
    /// Function and file of every frame; lines may differ.
    Functions,
    /// Functions without classes, parameters and template arguments, wherever they are; inlined and nameless frames may
    /// be missing.
    Names,
}

/// A frame, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Link {
    function: String,
    /// File name, or the library's without its version.
    place: String,
    /// Line; of a frame without a name where in the library it is.
    line: u64,
    nameless: bool,
    inlined: bool,
}

/// A call stack, innermost frame first.
#[derive(Clone, Debug)]
pub struct Chain {
    /// As a person sees it.
    pub shown: Vec<Shown>,
    links: Vec<Link>,
}

impl Chain {
    /// The chain of visible frames.
    pub fn of(shown: Vec<Shown>) -> Chain {
        let links = shown.iter().map(link).collect();
        Chain { shown, links }
    }

    /// Equal for stacks that are the same at this level.
    pub fn key(&self, level: Level) -> String {
        let mut key = String::new();
        for link in self.links.iter().filter(|l| level != Level::Names || !(l.nameless || l.inlined)) {
            match level {
                Level::Lines => key += &format!("{}\0{}\0{}\n", link.function, link.place, link.line),
                Level::Functions => key += &format!("{}\0{}\n", link.function, link.place),
                Level::Names => key += &format!("{}\n", bare(&link.function)),
            }
        }
        if key.is_empty() {
            // No name at all: the libraries that it went through.
            let mut places: Vec<&str> = self.links.iter().map(|l| l.place.as_str()).collect();
            places.dedup();
            key = places.join("\n");
        }
        key
    }

    /// Lines, the outermost first: they tell apart, and put in order, what is the same function by function.
    pub fn lines(&self) -> Vec<u64> {
        self.links.iter().rev().map(|l| l.line).collect()
    }

    /// Names of its frames without what moves, for a likeness of chains.
    pub fn names(&self) -> Vec<String> {
        let named = self.links.iter().filter(|l| !l.inlined);
        named.map(|l| if l.nameless { l.place.clone() } else { bare(&l.function) }).collect()
    }

    /// Frames for a flame graph, the outermost first: function and file, no lines.
    pub fn folded(&self) -> Vec<String> {
        // A template's name may fill a page.
        const LONGEST: usize = 80;
        let text = |l: &Link| match (l.nameless, l.place.is_empty()) {
            (true, _) => l.place.clone(),
            (false, true) => shorten(&l.function, LONGEST),
            (false, false) => format!("{} ({})", shorten(&l.function, LONGEST), l.place),
        };
        self.links.iter().rev().map(text).collect()
    }

    /// Whether nothing is known of it.
    pub fn is_empty(&self) -> bool {
        self.links.is_empty()
    }
}

fn link(frame: &Shown) -> Link {
    let mut what = frame.what.as_str();
    let mut inlined = false;
    for (mark, means_inlined) in [(" (inlined)", true), (" (guessed)", false)] {
        if let Some(rest) = what.strip_suffix(mark) {
            what = rest;
            inlined |= means_inlined;
        }
    }
    // `libfoo.so.3+0x1234`, alone or for several frames.
    let offset = what.rsplit_once("+0x").and_then(|(file, hex)| Some((file, u64::from_str_radix(hex, 16).ok()?)));
    if let Some((file, offset)) = offset.filter(|_| frame.whose == Whose::Native) {
        return Link { function: String::new(), place: library(file), line: offset, nameless: true, inlined };
    }
    let (file, line) = match frame.place.rsplit_once(':') {
        Some((file, line)) => line.parse().map_or((frame.place.as_str(), 0), |line| (file, line)),
        None => (frame.place.as_str(), 0),
    };
    let place = if frame.whose == Whose::Native && line == 0 { library(file) } else { file_name(file).to_string() };
    Link { function: whole(what).to_string(), place, line, nameless: false, inlined }
}

/// A function without what a compiler adds to copies of it: `f(int) [clone .isra.0]`, `f.cold`.
fn whole(function: &str) -> &str {
    let function = function.split(" [clone ").next().unwrap_or(function);
    const COPIES: [&str; 5] = [".cold", ".isra.", ".constprop.", ".part.", ".llvm."];
    let end = COPIES.iter().filter_map(|c| function.find(c)).min().unwrap_or(function.len());
    if end == 0 { function } else { &function[..end] }
}

/// A library's file without its version, build or hash: `libcublasLt.so.13` and `libcublasLt-1a2b3c4d.so.12` are one.
pub(crate) fn library(file: &str) -> String {
    let file = file_name(file);
    let stem = match file.find(".so") {
        Some(at) => &file[..at],
        None => return file.to_string(),
    };
    // `_C.cpython-311-x86_64-linux-gnu.so`
    let stem = stem.split(".cpython-").next().unwrap_or(stem);
    let stem = stem.strip_suffix(".abi3").unwrap_or(stem);
    // What makes wheels adds a hash of eight digits.
    let stem = match stem.rsplit_once('-') {
        Some((name, hash)) if hash.len() == 8 && hash.bytes().all(|b| b.is_ascii_hexdigit()) => name,
        _ => stem,
    };
    // `libpython3.11`
    let stem = if stem.starts_with("libpython") { "libpython" } else { stem };
    format!("{stem}.so")
}

/// The name alone: no result, no parameters, no template arguments, no namespace or class, no numbers of lambdas.
fn bare(function: &str) -> String {
    let mut out = String::new();
    let mut depth = 0u32;
    let text = function.replace("(anonymous namespace)::", "").replace("<locals>.", "");
    // Python's own names in brackets, and operators, are names.
    if text.starts_with('<') && text.ends_with('>') {
        return text;
    }
    if let Some(at) = text.find("operator").filter(|at| text[..*at].ends_with("::") || *at == 0) {
        return text[at..].split('(').next().unwrap_or_default().to_string();
    }
    for c in text.chars() {
        match c {
            '<' | '(' | '{' | '[' => depth += 1,
            '>' | ')' | '}' | ']' => depth = depth.saturating_sub(1),
            _ if depth == 0 => out.push(c),
            _ => {}
        }
    }
    let out = out.trim_end_matches(" const").trim_end();
    let out = out.rsplit([' ', ':', '.']).find(|part| !part.is_empty()).unwrap_or(out);
    if out.is_empty() { text } else { out.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn native(what: &str, place: &str) -> Shown {
        Shown { what: what.into(), place: place.into(), whose: Whose::Native, count: 1 }
    }

    fn python(what: &str, place: &str) -> Shown {
        Shown { whose: Whose::User, ..native(what, place) }
    }

    fn keys(level: Level, one: &[Shown], other: &[Shown]) -> (String, String) {
        (Chain::of(one.to_vec()).key(level), Chain::of(other.to_vec()).key(level))
    }

    #[test]
    fn lines_that_moved_are_the_same_by_function() {
        let before = [native("f(int)", "src/a.cu:10"), python("Net.forward", "/old/train.py:20")];
        let after = [native("f(int)", "src/a.cu:12"), python("Net.forward", "train.py:24")];
        let (a, b) = keys(Level::Lines, &before, &after);
        assert_ne!(a, b);
        let (a, b) = keys(Level::Functions, &before, &after);
        assert_eq!(a, b);
    }

    #[test]
    fn versions_of_libraries_are_the_same() {
        for (before, after) in [
            (native("libcublasLt.so.12+0x10", ""), native("libcublasLt.so.13+0x99", "and 2 more without names")),
            (native("gemm", "libcublas-0a1b2c3d.so.12"), native("gemm", "libcublas.so.13.1.0")),
            (native("run", "_C.cpython-311-x86_64-linux-gnu.so"), native("run", "_C.cpython-312-x86_64-linux-gnu.so")),
            (native("run.cold", "libpython3.11.so.1.0"), native("run", "libpython3.12.so.1.0")),
        ] {
            let (a, b) = keys(Level::Functions, &[before], &[after]);
            assert_eq!(a, b);
        }
        let (a, b) = keys(Level::Functions, &[native("liba.so+0x10", "")], &[native("libb.so+0x10", "")]);
        assert_ne!(a, b);
    }

    #[test]
    fn by_name_alone_files_classes_and_inlining_may_change() {
        let before = [native("Pool::get(unsigned long)", "pool.cpp:3"), python("forward", "net.py:4")];
        let after = [
            native("std::map<A, B>::operator[](A const&) (inlined)", "bits/stl_map.h:7"),
            native("mem::Pool<int>::get(unsigned long, int)", "mem/pool.cc:8"),
            native("libfoo.so+0x77", ""),
            python("Net.forward", "model.py:4"),
        ];
        let (a, b) = keys(Level::Names, &before, &after);
        assert_eq!(a, b);
    }

    #[test]
    fn names_alone() {
        for (name, alone) in [
            ("void at::native::fill<float>(at::Tensor const&) const", "fill"),
            ("Model::load(std::string const&)", "load"),
            ("train.<locals>.step", "step"),
            ("<module>", "<module>"),
            ("<lambda>", "<lambda>"),
            ("main", "main"),
            ("(anonymous namespace)::work(int)", "work"),
            ("std::map<A, B>::operator[](A const&)", "operator[]"),
            ("f::{lambda(int)#1}::operator()(int) const", "operator"),
            ("std::vector<int, std::allocator<int>>::push_back(int&&)", "push_back"),
        ] {
            assert_eq!(bare(name), alone, "{name}");
        }
    }

    #[test]
    fn frames_of_a_flame_graph() {
        let chain =
            Chain::of(vec![native("libnccl.so.2+0x77", ""), python("step", "src/train.py:7"), native("main", "")]);
        assert_eq!(chain.folded(), ["main", "step (train.py)", "libnccl.so"]);
    }
}
