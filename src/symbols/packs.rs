//! Parameter packs in C++ names. `cpp_demangle` writes the `&&` of `T&&...` behind the last type of the pack only:
//! `run(int, int, int&&)` for `run(int&&, int&&, int&&)`. A wrong type is worse than none, so such a pack is given to it
//! as a type with a mark behind, and the types are written out here; where that is too hard, parameters are `(...)`.

use std::fmt::{self, Write};

use cpp_demangle::{DemangleNodeType, DemangleWrite};

use super::shorten::name_of_brackets;

/// The mark's name; behind it are the letters of what the pack's types are: `O` of `T&&...`.
const MARK: &str = "vspack";
/// Where a template parameter's own text begins and ends.
const BEGIN: char = '\u{1}';
const END: char = '\u{2}';

/// What a mangled name has of parameter packs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packs {
    /// None that would come out wrong.
    None,
    /// The same name with marks.
    Marked(String),
    /// What cannot be written out here.
    Hard,
}

/// Looks for packs whose types are made of their parameter: `DpOT_`, not `DpT_`.
pub fn packs(symbol: &str) -> Packs {
    if symbol.match_indices("Dp").all(|(at, _)| parameter(&symbol.as_bytes()[at + 2..])) {
        return Packs::None;
    }
    let bytes = symbol.as_bytes();
    let (mut out, mut copied, mut at) = (String::new(), 0, 0);
    // Whether a number was met that may be a name's length or not.
    let (mut unsure, mut hard) = (false, false);
    // Whether the last byte was a token of its own, not the end of one.
    let mut bare = false;
    while let Some(b) = bytes.get(at) {
        let rest = &symbol.as_bytes()[at + 1..];
        let count = |accept: fn(&u8) -> bool| rest.iter().take_while(|b| accept(b)).count();
        let step = match b {
            b'0'..=b'9' => {
                let digits = 1 + count(u8::is_ascii_digit);
                let length: usize = symbol[at..at + digits].parse().unwrap_or(0);
                let end = bytes.get(at + digits);
                unsure |= match bytes[..at].last() {
                    // The value of an enumeration's constant; the number of a lambda.
                    Some(b'E') => end == Some(&b'E') || end == Some(&b'_') && symbol.contains("Ul"),
                    Some(b'p') => end == Some(&b'_'),
                    // The number of a local name.
                    Some(b'_') => bare,
                    _ => false,
                };
                digits + if at + digits + length <= bytes.len() { length } else { 0 }
            }
            b'S' | b'T' => {
                let number = count(|b| b.is_ascii_digit() || b.is_ascii_uppercase());
                if rest.get(number) == Some(&b'_') { number + 2 } else { 2 }
            }
            // A number as a template argument: `Li3E`.
            b'L' if rest.first().is_some_and(u8::is_ascii_lowercase) => {
                let number = rest[1..].iter().take_while(|b| b.is_ascii_digit() || **b == b'n').count();
                if number > 0 && rest.get(1 + number) == Some(&b'E') { number + 3 } else { 1 }
            }
            b'D' if rest.first() == Some(&b'p') => {
                let letters = rest[1..].iter().take_while(|b| b"ORPKV".contains(b)).count();
                let is_plain = parameter(&rest[1 + letters..]);
                hard |= !is_plain;
                if is_plain && letters > 0 {
                    let letters = &symbol[at + 2..at + 2 + letters];
                    out += &symbol[copied..at];
                    let _ = write!(out, "U{}{MARK}{letters}", MARK.len() + letters.len());
                    copied = at + 2;
                }
                2
            }
            _ => 1,
        };
        bare = step == 1;
        at += step;
        if !symbol.is_char_boundary(at.min(symbol.len())) {
            return Packs::Hard;
        }
    }
    match () {
        () if hard || unsure => Packs::Hard,
        () if copied == 0 => Packs::None,
        () => Packs::Marked(out + &symbol[copied..]),
    }
}

/// Whether a template parameter is next: `T_`, `T0_`.
fn parameter(bytes: &[u8]) -> bool {
    let digits = bytes.iter().skip(1).take_while(|b| b.is_ascii_digit()).count();
    bytes.first() == Some(&b'T') && bytes.get(1 + digits) == Some(&b'_')
}

/// The demangled text of a marked name, as a [`Marked`] has it, with its packs written out. `None`: too hard.
pub fn written_out(text: &str) -> Option<String> {
    let mut text = text.to_string();
    let mark = format!(" {MARK}");
    while let Some(at) = text.find(&mark) {
        let letters = text[at + mark.len()..].chars().take_while(|c| "ORPKV".contains(*c)).collect::<String>();
        let end = at + mark.len() + letters.len();
        // Before the mark comes what the last type has of the letters, and before that the parameter.
        let close = text[..at].rfind(END)?;
        if !text[close + 1..at].split([' ', '*', '&']).all(|w| matches!(w, "" | "const" | "volatile")) {
            return None;
        }
        let mut depth = 0usize;
        let open = text[..=close].char_indices().rev().find(|(_, c)| {
            match *c {
                END => depth += 1,
                BEGIN => depth -= 1,
                _ => {}
            }
            depth == 0
        });
        let open = open?.0;
        // Whatever stands before it on its own is part of the type, or an argument of the same list.
        if !text[..open].ends_with(['(', '<']) && !text[..open].ends_with(", ") {
            return None;
        }
        let types = elements(&text[open..=close].replace([BEGIN, END], ""))?;
        let types: Option<Vec<String>> = types.iter().map(|t| with(t, &letters)).collect();
        let types = types?.join(", ");
        let from = match types.is_empty() {
            true => text[..open].strip_suffix(", ").map_or(open, str::len),
            false => open,
        };
        let to = if types.is_empty() && from == open && text[end..].starts_with(", ") { end + 2 } else { end };
        text.replace_range(from..to, &types);
    }
    Some(text.replace([BEGIN, END], ""))
}

/// Types between commas.
fn elements(text: &str) -> Option<Vec<String>> {
    let (mut all, mut depth, mut start, mut at) = (Vec::new(), 0usize, 0, 0);
    while let Some(c) = text[at..].chars().next() {
        if let Some(word) = name_of_brackets(&text[at..]) {
            at += word.len();
            continue;
        }
        match c {
            '(' | '<' | '[' | '{' => depth += 1,
            '>' if text[..at].ends_with('-') => {}
            ')' | '>' | ']' | '}' => depth = depth.checked_sub(1)?,
            ',' if depth == 0 => {
                all.push(text[start..at].trim().to_string());
                start = at + 1;
            }
            _ => {}
        }
        at += c.len_utf8();
    }
    all.push(text[start..].trim().to_string());
    all.retain(|t| !t.is_empty());
    (depth == 0).then_some(all)
}

/// A type with what the letters say, the last first: `int` with `RK` is `int const&`.
fn with(of: &str, letters: &str) -> Option<String> {
    // `void (*)(int)` and `int [3]` have it in their middle.
    let is_function = of.rfind([')', ']']).is_some_and(|at| !of[at..].contains("::") && !of[at..].contains('>'));
    if is_function && !of.ends_with("(anonymous namespace)") {
        return None;
    }
    let mut of = of.to_string();
    for letter in letters.chars().rev() {
        let is_reference = of.ends_with('&');
        match letter {
            'R' if is_reference => of.truncate(of.trim_end_matches('&').len() + 1),
            'R' => of.push('&'),
            'O' if !is_reference => of += "&&",
            'P' if is_reference => return None,
            'P' => of.push('*'),
            'K' if !is_reference && !of.ends_with(" const") => of += " const",
            'V' if !is_reference && !of.ends_with(" volatile") => of += " volatile",
            _ => {}
        }
    }
    Some(of)
}

/// A text that takes no more than so many bytes, with the bounds of template parameters in it.
pub struct Marked {
    /// The text.
    pub text: String,
    limit: usize,
    open: Vec<bool>,
}

impl Marked {
    /// Of so many bytes at most.
    pub fn new(limit: usize) -> Marked {
        Marked { text: String::new(), limit, open: Vec::new() }
    }
}

impl DemangleWrite for Marked {
    fn push_demangle_node(&mut self, kind: DemangleNodeType) {
        let is_parameter = matches!(kind, DemangleNodeType::TemplateParam);
        self.open.push(is_parameter);
        if is_parameter {
            self.text.push(BEGIN);
        }
    }

    fn pop_demangle_node(&mut self) {
        if self.open.pop() == Some(true) {
            self.text.push(END);
        }
    }

    fn write_string(&mut self, text: &str) -> fmt::Result {
        if self.text.len() + text.len() > self.limit {
            return Err(fmt::Error);
        }
        self.text.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::demangle::demangle;
    use super::*;

    #[test]
    fn where_packs_are() {
        let marked = |s: &str| Packs::Marked(s.to_string());
        for (symbol, what) in [
            ("_Z3runIJiEEvDpT_", Packs::None),
            ("_ZN3net3runIJiiiEEEvDpOT_", marked("_ZN3net3runIJiiiEEEvU7vspackOOT_")),
            ("_ZN3net4DpOTEv", Packs::None),
            ("_Z1fILi12EJiEEvDpRKT0_", marked("_Z1fILi12EJiEEvU8vspackRKRKT0_")),
            ("_Z1fIJiEEvDpSt4pairIT_iE", Packs::Hard),
            ("_Z1fIJiEEvDp", Packs::Hard),
            ("_Z1f9\u{e9}DpOT_", Packs::Hard),
        ] {
            assert_eq!(packs(symbol), what, "{symbol}");
        }
    }

    /// Right hand: what c++filt says, but for what is `(...)`.
    #[test]
    fn no_type_of_a_pack_is_wrong() {
        for (symbol, name) in [
            ("_ZN3net3runIJiiiEEEvDpOT_", "void net::run<int, int, int>(int&&, int&&, int&&)"),
            ("_ZN3net3runIJEEEvDpOT_", "void net::run<>()"),
            ("_ZN3net3runIJRiRdR1AEEEvDpOT_", "void net::run<int&, double&, A&>(int&, double&, A&)"),
            ("_ZN3net4run2IJid1AEEEvDpRKT_", "void net::run2<int, double, A>(int const&, double const&, A const&)"),
            ("_ZN3net4run3IJid1AEEEvDpPT_", "void net::run3<int, double, A>(int*, double*, A*)"),
            ("_ZN3net4run4IiJidEEEvOT_DpOT0_", "void net::run4<int, int, double>(int&&, int&&, double&&)"),
            ("_ZN3net4run4IiJEEEvOT_DpOT0_", "void net::run4<int>(int&&)"),
            ("_ZN3net4run5IJidEEEvDpRKPKT_", "void net::run5<int, double>(int const* const&, double const* const&)"),
            ("_ZN3net4run6IJiiiEEEvPFvDpOT_E", "void net::run6<int, int, int>(void (*)(int&&, int&&, int&&))"),
            ("_ZN3net4run7IJid1AEEEvDpT_", "void net::run7<int, double, A>(int, double, A)"),
            ("_ZN3net1SIJidEE1gIJ1ARiEEEvidDpOT_", "void net::S<int, double>::g<A, int&>(int, double, A&&, int&)"),
            ("_ZN3net3runIJPFviES2_EEEvDpOT_", "net::run<void (*)(...), void (*)(...)>(...)"),
            ("_ZN3net5run11IJidEEEvDpPFvT_E", "net::run11<int, double>(...)"),
            ("_Z1fIJidEEvDpSt4pairIT_iE", "f<int, double>(...)"),
            (
                "_ZSt11make_uniqueI1TJRiRKSsEENSt8__detail9_MakeUniqIT_E15__single_objectEDpOT0_",
                "std::__detail::_MakeUniq<T>::__single_object std::make_unique<T, int&, std::string const&>(int&, std::string const&)",
            ),
        ] {
            assert_eq!(demangle(symbol), name, "{symbol}");
        }
    }

    proptest::proptest! {
        #[test]
        fn whatever_the_text_it_ends(text in "([a-z<>(),& *]|\u{1}|\u{2}| vspackO| vspackRK|\\PC){0,40}", symbol in "_Z([A-Z0-9_]|Dp|OT_|\\PC){0,30}") {
            let _ = written_out(&text);
            packs(&symbol);
            demangle(&symbol);
        }
    }
}
