//! A function's name as the linker has it, to the name that a person wrote: C++, Rust (its hashes dropped) and what
//! nvcc makes of kernels. Compilers' clones (`.cold`, `.isra.0`, `.part.1`) are the function that they were cut from.

use std::borrow::Cow;
use std::fmt::{self, Write};

use cpp_demangle::DemangleOptions;

use super::packs::{Marked, Packs, packs, written_out};
use super::readable::readable;
use super::shorten::{collapse, shorten, without_parameters};

/// No demangled name is longer: a name that nests templates can grow without end.
const LONGEST: usize = 32 << 10;

/// No name that is kept is longer.
const KEPT: usize = 1000;

/// What compilers and linkers append to the name of a function that they copied or cut.
const CLONES: [&str; 14] = [
    ".cold",
    ".part",
    ".isra",
    ".constprop",
    ".lto_priv",
    ".localalias",
    ".clone",
    ".llvm",
    ".__uniq",
    ".specialized",
    ".actor",
    ".resume",
    ".destroy",
    ".cleanup",
];

/// How nvcc calls the function on the host that launches a kernel; what follows is the kernel's own symbol.
const STUB: &str = "__device_stub_";
/// The same for a template, whose name goes on as it was written.
const WRAPPER: &str = "__wrapper__device_stub_";
/// What it puts before the name of a kernel that only its file sees.
const STATIC: &str = "__nv_static_";

/// The readable name of a symbol; the symbol itself if it is no mangled name. A kernel's launch is
/// `kernel<float> (launch)`.
pub fn demangle(symbol: &str) -> String {
    // A version (`malloc@@GLIBC_2.2.5`) is no part of the name.
    let name = symbol.find('@').filter(|at| *at > 0).map_or(symbol, |at| &symbol[..at]);
    let (name, outlined) = match name.split_once("._omp_fn.") {
        Some((name, _)) if !name.is_empty() => (name, " (OpenMP part)"),
        _ => (name, ""),
    };
    let name = without_clones(name);
    let text = launch(name).or_else(|| plain(name, Parts::All)).or_else(|| outline(name));
    let text = text.unwrap_or_else(|| name.to_string());
    let text = readable(&text);
    let text = if text.chars().count() > KEPT { shorten(&text, KEPT) } else { text };
    text + outlined
}

fn without_clones(mut name: &str) -> &str {
    loop {
        let word = name.trim_end_matches(|c: char| c.is_ascii_digit());
        // `.part.0`, `.cold`: the number with its dot, or no number.
        let word = if word.len() < name.len() { word.strip_suffix('.').unwrap_or(name) } else { name };
        match CLONES.iter().find_map(|c| word.strip_suffix(c)).filter(|n| !n.is_empty()) {
            Some(shorter) => name = shorter,
            None => return name,
        }
    }
}

/// How much of a C++ name is wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Parts {
    All,
    /// Without parameters and the type of the result.
    Name,
}

/// The demangled name, if it is a mangled one.
fn plain(symbol: &str, parts: Parts) -> Option<String> {
    if let Ok(rust) = rustc_demangle::try_demangle(symbol) {
        let mut text = Limited::default();
        return write!(text, "{rust:#}").is_ok().then_some(text.0);
    }
    // Mach-O has one underscore more; without this look a variable `i` would be a type.
    if !["_Z", "__Z", "_GLOBAL_"].iter().any(|start| symbol.starts_with(start)) {
        return None;
    }
    // Rather no parameters than wrong ones.
    let hidden = || without_parameters(&cpp(symbol, parts)?, parts == Parts::All);
    let Some(right) = constructor(symbol) else { return hidden() };
    match packs(&right) {
        Packs::None => cpp(&right, parts),
        Packs::Marked(marked) => with_packs(&marked, parts).or_else(hidden),
        Packs::Hard => hidden(),
    }
}

/// `cpp_demangle` takes the first parameter of a constructor that is a template for the type of its result, which is not
/// shown: here such a name gets one. `None`: parameters would be missing.
fn constructor(symbol: &str) -> Option<Cow<'_, str>> {
    const PLACES: usize = 200;
    // An inherited one.
    if ["ECI1N", "ECI2N", "ECI1S", "ECI2S"].iter().any(|c| symbol.contains(c)) {
        return None;
    }
    let starts = |at: usize| matches!(symbol.as_bytes().get(at + 1..at + 3), Some([b'1'..=b'5', b'I']));
    let Some((from, _)) = symbol.match_indices('C').find(|(at, _)| starts(*at)) else { return Some(symbol.into()) };
    let Some(name) = cpp(symbol, Parts::Name) else { return Some(symbol.into()) };
    let bare = collapse(&name, '<', '>', "", 1);
    let mut path = bare.rsplit("::");
    if path.next() != path.next() || !name.ends_with('>') {
        // One inside, in the name of what is local to it; or `C1I` is part of a word.
        return (!symbol[2..].contains('Z')).then_some(symbol.into());
    }
    // The type belongs behind the whole name: where it can stand without being part of the name.
    let ends = symbol[from..].match_indices("EE").map(|(at, _)| from + at + 2).take(PLACES);
    let overlapping = ends.flat_map(|end| [end, end + 1]).filter(|end| symbol.is_char_boundary(*end));
    let with_result = overlapping.map(|end| format!("{}v{}", &symbol[..end], &symbol[end..]));
    with_result.into_iter().find(|s| cpp(s, Parts::Name).as_ref() == Some(&name)).map(Cow::from)
}

/// A name in which packs are marked.
fn with_packs(marked: &str, parts: Parts) -> Option<String> {
    let symbol = cpp_demangle::Symbol::new(marked).ok()?;
    let options = match parts {
        Parts::All => DemangleOptions::new(),
        Parts::Name => DemangleOptions::new().no_params().no_return_type(),
    };
    let mut text = Marked::new(LONGEST);
    symbol.structured_demangle(&mut text, &options).ok()?;
    written_out(&signs_in_place(text.text))
}

/// `cpp_demangle` writes `A&&::B` for `A::B&&` where `A` was named before, and `A&&::*` likewise.
fn signs_in_place(mut text: String) -> String {
    let mut from = 0;
    while let Some(at) = text[from..].find("::").map(|at| from + at) {
        from = at + 2;
        let bare = |mut name: &str| {
            while let Some(less) = ["&", "*", " const", " volatile"].iter().find_map(|s| name.strip_suffix(s)) {
                name = less;
            }
            name.len()
        };
        let start = bare(&text[..at]);
        if !text[..at].ends_with(['&', '*']) || start == 0 || text[..start].ends_with(['(', '<', ' ', 'r']) {
            continue;
        }
        let mut depth = 0usize;
        let end = text[from..].find(|c: char| {
            match c {
                '<' => depth += 1,
                '>' if depth > 0 => {
                    depth -= 1;
                    return false;
                }
                _ => {}
            }
            depth == 0 && !c.is_alphanumeric() && !matches!(c, '_' | ':' | '*')
        });
        let end = end.map_or(text.len(), |i| from + i);
        let signs = text[start..at].to_string();
        text.insert_str(end, &signs);
        text.replace_range(start..at, "");
    }
    text
}

fn cpp(symbol: &str, parts: Parts) -> Option<String> {
    let symbol = cpp_demangle::Symbol::new(symbol).ok()?;
    let short = || DemangleOptions::new().no_params().no_return_type();
    let written = |options: DemangleOptions| {
        let mut text = Limited::default();
        symbol.structured_demangle(&mut text, &options).is_ok().then(|| signs_in_place(text.0))
    };
    match parts {
        Parts::All => written(DemangleOptions::new()).or_else(|| written(short())),
        Parts::Name => written(short()),
    }
}

/// The path at the start of a C++ name that is too hard to demangle: `pybind11::cast<...>`. And what a vectorized
/// function (`_ZGVdN4v_sin`) is made of.
fn outline(symbol: &str) -> Option<String> {
    let mut rest = symbol.strip_prefix("_Z")?;
    if let Some((kind, name)) = rest.strip_prefix("GV").and_then(|r| r.split_once('_')) {
        let is_kind = kind.bytes().all(|b| b.is_ascii_alphanumeric()) && kind.contains(|c: char| c.is_ascii_digit());
        return (is_kind && !name.is_empty()).then(|| format!("{name} (vectorized)"));
    }
    rest = rest.strip_prefix('N').unwrap_or(rest).trim_start_matches(['K', 'V', 'r', 'R', 'O', 'L']);
    let mut path: Vec<&str> = Vec::new();
    if let Some(after) = rest.strip_prefix("St") {
        path.push("std");
        rest = after;
    }
    let digits = |text: &str| text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    while let Some(length) = rest.get(..digits(rest)).filter(|d| !d.is_empty()) {
        let from = length.len();
        let end = from.checked_add(length.parse().ok()?)?;
        let word = rest.get(from..end)?;
        path.push(if word.starts_with("_GLOBAL__N") { "(anonymous namespace)" } else { word });
        rest = &rest[end..];
    }
    let is_known = path.iter().any(|p| *p != "std" && !p.is_empty());
    is_known.then(|| path.join("::") + if rest.starts_with('I') { "<...>" } else { "" })
}

/// A text that refuses to grow without end.
#[derive(Default)]
struct Limited(String);

impl Write for Limited {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > LONGEST {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

/// The kernel that this function launches, with a mark, if it is the stub of one.
fn launch(symbol: &str) -> Option<String> {
    let kernel = if symbol.contains(WRAPPER) {
        let name = plain(symbol, Parts::Name).unwrap_or_else(|| symbol.to_string());
        name.replacen(WRAPPER, "", 1)
    } else {
        let at = symbol.find(STUB)?;
        kernel(identifier(symbol, at).strip_prefix(STUB)?)
    };
    Some(format!("{kernel} (launch)"))
}

/// The identifier that begins at a place of a symbol: in a mangled one, its length stands before it.
fn identifier(symbol: &str, at: usize) -> &str {
    let before = &symbol[..at];
    let digits = before.len() - before.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let length: Option<usize> = before[before.len() - digits..].parse().ok();
    let rest = &symbol[at..];
    let word = || rest.split(|c: char| !c.is_alphanumeric() && !matches!(c, '_' | '$' | '.')).next().unwrap_or(rest);
    length.and_then(|n| rest.get(..n)).unwrap_or_else(word)
}

/// A kernel by its own symbol: mangled, or as it is (`extern "C"`); one that only its file sees has a prefix.
fn kernel(symbol: &str) -> String {
    let hidden = symbol.contains(STATIC);
    let mangled = if hidden { symbol.match_indices("_Z").map(|(at, _)| &symbol[at..]).collect() } else { vec![symbol] };
    match mangled.into_iter().find_map(|m| plain(m, Parts::Name)) {
        Some(name) => name,
        None => symbol.trim_start_matches('_').to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_languages_and_none() {
        for (symbol, name) in [
            ("main", "main"),
            ("i", "i"),
            ("malloc@@GLIBC_2.2.5", "malloc"),
            ("_ZN5Model4loadERKSs", "Model::load(std::string const&)"),
            ("_ZN4core3fmt9Formatter3pad17h0123456789abcdefE", "core::fmt::Formatter::pad"),
            ("_RNvC6_123foo3bar", "123foo::bar"),
            ("_ZNotReallyMangled", "_ZNotReallyMangled"),
            ("_ZN8pybind114castIN9not_to_beXXXX", "pybind11::cast<...>"),
            ("_ZSt4swapIN3c10XXXX", "std::swap<...>"),
            ("_ZN99toolong", "_ZN99toolong"),
            ("_ZGVdN4v_Sleef_acos_u10", "Sleef_acos_u10 (vectorized)"),
            ("", ""),
        ] {
            assert_eq!(demangle(symbol), name, "{symbol}");
        }
    }

    #[test]
    fn clones_are_their_function() {
        for symbol in [
            "_Z3fooi",
            "_Z3fooi.cold",
            "_Z3fooi.part.0",
            "_Z3fooi.isra.12.cold",
            "_Z3fooi.constprop.0.isra.0.lto_priv.7",
            "_Z3fooi.llvm.8123798123",
        ] {
            assert_eq!(demangle(symbol), "foo(int)", "{symbol}");
        }
        assert_eq!(demangle("loop.cold.3"), "loop");
        assert_eq!(demangle("_Z3fooi._omp_fn.0"), "foo(int) (OpenMP part)");
        assert_eq!(demangle("_Z3fooi._omp_fn.1.cold"), "foo(int) (OpenMP part)");
        assert_eq!(demangle("table.12"), "table.12");
        assert_eq!(demangle(".cold"), ".cold");
    }

    #[test]
    fn a_stub_is_the_launch_of_its_kernel() {
        for (symbol, name) in [
            ("_ZL26__device_stub__Z3addiPfS_iPfS_", "add (launch)"),
            ("_Z20__device_stub__Z1kPiPi", "k (launch)"),
            ("__device_stub__Z1kPi", "k (launch)"),
            ("__device_stub__Z1kPi(int*)", "k (launch)"),
            ("_ZL22__device_stub__saxpy_cPf", "saxpy_c (launch)"),
            ("_ZL28__device_stub__Z4fillIfEvPT_S0_", "fill<float> (launch)"),
            ("_ZL27__wrapper__device_stub_fillIfEvRPT_Ri", "fill<float> (launch)"),
            ("_ZL68__device_stub____nv_static_45__6f8b3c7b_12_kernels_cu_ab12__Z4scanPfPf", "scan (launch)"),
            (
                "_Z109__device_stub__ZN2at6native8internal45_GLOBAL__N__8f8ab667_12_UniqueCub_cu_fdb07b4114scatter_kernelElPKlS4_PllPKlS0_Pl",
                "at::native::internal::(anonymous namespace)::scatter_kernel (launch)",
            ),
        ] {
            assert_eq!(demangle(symbol), name, "{symbol}");
        }
    }

    #[test]
    fn constructors_that_are_templates_have_all_their_parameters() {
        for (symbol, name) in [
            ("_ZNSt5tupleIJiEEC1IJiELb1ELb1EEEDpOT_", "std::tuple<int>::tuple<int, true, true>(int&&)"),
            ("_ZN6serverC2I1AEEOT_i", "server::server<A>(A&&, int)"),
            ("_ZN6serverC2ISt4lessIiEEEOT_i", "server::server<std::less<int>>(std::less<int>&&, int)"),
            (
                "_ZNSt6threadC1IZ4mainEUlidE_JidEvEEOT_DpOT0_",
                "std::thread::thread<main::{lambda(int, double)#1}, int, double, void>(main::{lambda(int, double)#1}&&, int&&, double&&)",
            ),
            ("_ZN6serverC2Ei", "server::server(int)"),
            ("_ZN3C1I1fIiEEvT_", "void C1I::f<int>(int)"),
        ] {
            assert_eq!(demangle(symbol), name, "{symbol}");
        }
    }

    #[test]
    fn references_stand_behind_the_whole_type() {
        for (symbol, name) in [
            (
                "_ZNSt15__uniq_ptr_implINSt13__future_base12_Result_baseENS1_8_DeleterEEC1IS2_EEPS1_OT_",
                "std::__uniq_ptr_impl<std::__future_base::_Result_base, std::__future_base::_Result_base::_Deleter>::__uniq_ptr_impl<std::__future_base::_Result_base::_Deleter>(std::__future_base::_Result_base*, std::__future_base::_Result_base::_Deleter&&)",
            ),
            (
                "_ZSt7forwardIMN3app1PEiEOT_RNSt16remove_referenceIS3_E4typeE",
                "int app::P::*&& std::forward<int app::P::*>(std::remove_reference<int app::P::*>::type&)",
            ),
        ] {
            assert_eq!(demangle(symbol), name, "{symbol}");
        }
        for text in ["A<&::f>", "f(A::*)", "A& ::f", "std::operator*::a", "g(int*, b::C const&)"] {
            assert_eq!(signs_in_place(text.into()), text);
        }
        assert_eq!(signs_in_place("f(A const*::B<C, D>, int)".into()), "f(A::B<C, D> const*, int)");
    }

    #[test]
    fn a_name_that_would_fill_a_book_is_cut() {
        // Each S_ stands for all before it.
        let mut symbol = "_Z1fI1AIiiE".to_string();
        for i in 0..14 {
            let last = char::from_digit(i, 36).unwrap().to_ascii_uppercase();
            symbol += &format!("S{last}_S{last}_");
        }
        symbol += "EvT_";
        assert!(demangle(&symbol).chars().count() <= KEPT);
    }

    proptest::proptest! {
        #[test]
        fn whatever_the_symbol_it_ends(symbol in "(_Z|_ZN|_R|__device_stub_|_ZL2[0-9]__device_stub_|)[A-Za-z0-9_.@$]{0,60}|\\PC{0,30}") {
            proptest::prop_assert!(demangle(&symbol).chars().count() <= KEPT + 20);
        }
    }
}
