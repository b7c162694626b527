//! Names as long as the screen: a C++ template's name can fill a page, and its end says what it is.

use super::readable::{readable, without_casts};

/// What stands behind names, and is said of them.
const MARKS: [&str; 5] = [" (inlined)", " (guessed)", " (launch)", " (OpenMP part)", " (vectorized)"];

/// Shortens a demangled name to this many characters: the type of its result goes, then template arguments and
/// parameters, the innermost before those around them, then the start.
///
/// Marks behind the name stay: `kernel<...> (launch) (inlined)`.
pub fn shorten(name: &str, width: usize) -> String {
    if fits(name, width) {
        return name.to_string();
    }
    let mut bare = name;
    while let Some(shorter) = MARKS.iter().find_map(|m| bare.strip_suffix(m)) {
        bare = shorter;
    }
    let marks = &name[bare.len()..];
    // A mark alone says nothing.
    match width.checked_sub(marks.len()) {
        Some(room) if room >= 4 && !marks.is_empty() => shorten_bare(bare, room) + marks,
        _ => shorten_bare(bare, width),
    }
}

fn shorten_bare(name: &str, width: usize) -> String {
    if fits(name, width) {
        return name.to_string();
    }
    // A history's own names may be another tool's.
    let name = readable(name);
    if fits(&name, width) {
        return name;
    }
    let name = &without_casts(without_result(&name), |_| true);
    if fits(name, width) {
        return name.to_string();
    }
    let templates = |depth| collapse(name, '<', '>', "<...>", depth);
    let parameters = |name: &str| collapse(name, '(', ')', "(...)", 1);
    let first = |keep| parameters(&first_arguments(&templates(2), keep));
    let ways: [&dyn Fn() -> String; 6] =
        [&|| templates(3), &|| templates(2), &|| parameters(&templates(2)), &|| first(2), &|| first(1), &|| {
            templates(1)
        }];
    if let Some(short) = ways.iter().map(|way| way()).find(|short| fits(short, width)) {
        return short;
    }
    let short = parameters(&templates(1));
    if fits(&short, width) {
        return short;
    }
    // Whole parts of the path from the end, as many as fit.
    let parts: Vec<&str> = short.split("::").collect();
    let tail = (1..parts.len()).map(|i| format!("...::{}", parts[i..].join("::"))).find(|t| fits(t, width));
    tail.unwrap_or_else(|| crate::report::text::clip(parts.last().copied().unwrap_or(&short), width))
}

/// A demangled function without the type of its result, every list of parameters in it as `(...)`. `whole`: it has its
/// own parameters.
pub(super) fn without_parameters(name: &str, whole: bool) -> Option<String> {
    let name = readable(name);
    let name = if whole { without_result(&name) } else { &name };
    // Pointers to functions keep their stars.
    let stars = [("(*)", "\u{3}"), ("(&)", "\u{4}"), ("(&&)", "\u{5}")];
    let name = stars.iter().fold(name.to_string(), |name, (star, sign)| name.replace(star, sign));
    let short = collapse(&name, '(', ')', "(...)", 1);
    // Brackets that do not fit each other: nothing is known of it.
    (short != name || !name.replace("(...)", "").replace("operator()", "").contains('('))
        .then(|| stars.iter().fold(short, |short, (star, sign)| short.replace(sign, star)))
}

/// Of each outermost pair of template brackets, so many arguments and `...` for the others.
fn first_arguments(name: &str, keep: usize) -> String {
    let mut out = String::with_capacity(name.len());
    let (mut templates, mut others, mut commas) = (0usize, 0usize, 0);
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        let word = name_of_brackets(rest);
        let step = word.map_or(c.len_utf8(), str::len);
        let is_arrow = c == '>' && name[..name.len() - rest.len()].ends_with('-');
        match c {
            _ if word.is_some() => {}
            '<' => {
                templates += 1;
                commas = if templates == 1 { 0 } else { commas };
            }
            '>' if !is_arrow => {
                if templates == 1 && commas >= keep {
                    out.push_str(", ...");
                    commas = 0;
                }
                templates = templates.saturating_sub(1);
            }
            '(' | '{' | '[' => others += 1,
            ')' | '}' | ']' => others = others.saturating_sub(1),
            ',' if templates == 1 && others == 0 => commas += 1,
            _ => {}
        }
        if templates == 0 || commas < keep {
            out.push_str(&rest[..step]);
        }
        rest = &rest[step..];
    }
    if templates == 0 && others == 0 { out } else { name.to_string() }
}

/// A function with parameters, without the type of its result: `void f<int>(int)` is `f<int>(int)`.
pub(super) fn without_result(name: &str) -> &str {
    let (mut depth, mut start, mut at) = (0usize, 0, 0);
    while let Some(c) = name[at..].chars().next() {
        // The name of an operator may have spaces in it.
        if depth == 0 && name[at..].starts_with("operator") && (at == start || name[..at].ends_with(':')) {
            break;
        }
        if let Some(word) = name_of_brackets(&name[at..]) {
            at += word.len();
            continue;
        }
        match c {
            '(' if depth == 0 => break,
            '(' | '<' | '[' | '{' => depth += 1,
            '>' if name[..at].ends_with('-') => {}
            ')' | '>' | ']' | '}' => depth = depth.saturating_sub(1),
            ' ' if depth == 0 => start = at + 1,
            _ => {}
        }
        at += c.len_utf8();
    }
    // Without parameters, a space is part of something else; and `void (*f(int))(char)` has its name in brackets.
    let nameless = start == at && name[at..].starts_with('(');
    if at == name.len() || nameless { name } else { &name[start..] }
}

fn fits(name: &str, width: usize) -> bool {
    name.chars().count() <= width
}

/// A name at the start of this text in which brackets are none: `operator<`, `operator->` and `operator()` are names,
/// `(anonymous namespace)` is a part of one.
pub(super) fn name_of_brackets(text: &str) -> Option<&'static str> {
    const NAMES: [&str; 11] = [
        "operator<<=",
        "operator>>=",
        "operator<=>",
        "operator<<",
        "operator>>",
        "operator->*",
        "operator->",
        "operator<=",
        "operator>=",
        "operator()",
        "(anonymous namespace)",
    ];
    if !text.starts_with(['o', '(']) {
        return None;
    }
    NAMES.into_iter().find(|n| text.starts_with(n)).or_else(|| {
        // `operator<` only where no template arguments of a conversion operator follow; `operator>` likewise.
        ["operator<", "operator>"]
            .into_iter()
            .find(|n| text.starts_with(n) && !text[n.len()..].starts_with(char::is_alphabetic))
    })
}

/// Replaces each pair of brackets that is so deep (1: the outermost), and what is between, by `with`. `<T as Trait>::f`
/// begins with what it is about.
pub(super) fn collapse(name: &str, open: char, close: char, with: &str, deep: usize) -> String {
    let mut out = String::with_capacity(name.len());
    let mut depth = 0usize;
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        let word = name_of_brackets(rest);
        let step = word.map_or(c.len_utf8(), str::len);
        let is_arrow = c == '>' && name[..name.len() - rest.len()].ends_with('-');
        if word.is_none() && c == open {
            depth += 1;
            if depth == deep {
                out.push_str(with);
            }
        }
        if depth < deep {
            out.push_str(&rest[..step]);
        }
        if word.is_none() && c == close && depth > 0 && !is_arrow {
            depth -= 1;
        }
        rest = &rest[step..];
    }
    // An unbalanced name would lose its end.
    if depth == 0 { out } else { name.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_stay() {
        assert_eq!(shorten("std::vector<int>::push_back(int)", 40), "std::vector<int>::push_back(int)");
    }

    #[test]
    fn templates_first_then_parameters_then_the_start() {
        let name = "void at::native::kernel<4, at::native::Fill<float, std::array<char*, 1ul> > >(int, at::native::Fill<float>)";
        assert_eq!(
            shorten(name, 94),
            "at::native::kernel<4, at::native::Fill<float, std::array<...>>>(int, at::native::Fill<float>)"
        );
        assert_eq!(shorten(name, 80), "at::native::kernel<4, at::native::Fill<...>>(int, at::native::Fill<float>)");
        assert_eq!(shorten(name, 60), "at::native::kernel<4, at::native::Fill<...>>(...)");
        assert_eq!(shorten(name, 40), "at::native::kernel<4, ...>(...)");
        assert_eq!(shorten(name, 29), "at::native::kernel<...>(...)");
        assert_eq!(shorten(name, 24), "...::kernel<...>(...)");
        assert_eq!(shorten(name, 8), "kerne...");
    }

    #[test]
    fn the_first_arguments_of_templates() {
        let name = "a<1, b(2, 3), {c, d}>::e<f<g, h>, (anonymous namespace)::i>::operator<(j, k)";
        assert_eq!(first_arguments(name, 1), "a<1, ...>::e<f<g, h>, ...>::operator<(j, k)");
        assert_eq!(
            first_arguments(name, 2),
            "a<1, b(2, 3), ...>::e<f<g, h>, (anonymous namespace)::i>::operator<(j, k)"
        );
        let name = "void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<float, float>, std::array<char*, 3ul>>(int, float)";
        assert_eq!(
            shorten(name, 92),
            "at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<...>, ...>(...)"
        );
    }

    #[test]
    fn the_type_of_a_number() {
        let name = "pybind11::detail::op_impl<(pybind11::detail::op_id)41, (E)0, T<long>>::execute(T<long> const&)";
        assert_eq!(shorten(name, 80), "pybind11::detail::op_impl<41, 0, T<long>>::execute(T<long> const&)");
        assert_eq!(shorten(name, 60), "pybind11::detail::op_impl<41, 0, T<...>>::execute(...)");
    }

    #[test]
    fn the_type_of_a_result() {
        for (name, short) in [
            ("void f<int>(int)", "f<int>(int)"),
            ("std::tuple<A, B> c10::f<A, B>(A (*)(B)) const", "c10::f<A, B>(A (*)(B)) const"),
            ("std::ostream& operator<< <char>(std::ostream&)", "operator<< <char>(std::ostream&)"),
            ("A::operator unsigned long() const", "A::operator unsigned long() const"),
            ("int (anonymous namespace)::f(int)", "(anonymous namespace)::f(int)"),
            ("void (*f(int))(char)", "void (*f(int))(char)"),
            ("<a::B as c::D>::e", "<a::B as c::D>::e"),
            ("f(int)::{lambda(int)#1}::operator()(int) const", "f(int)::{lambda(int)#1}::operator()(int) const"),
            ("kernel<A, B> (launch)", "kernel<A, B> (launch)"),
        ] {
            assert_eq!(without_result(name), short);
        }
    }

    #[test]
    fn operators_and_namespaces_are_no_brackets() {
        let name = "(anonymous namespace)::Log<Sink<std::string>, 8>::operator<<(char const*, std::vector<int>)";
        assert_eq!(shorten(name, 75), "(anonymous namespace)::Log<Sink<...>, 8>::operator<<(...)");
        assert_eq!(shorten(name, 50), "(anonymous namespace)::Log<...>::operator<<(...)");
        let call = "Functor<float, double, int, long>::operator()(float const&, double) const";
        assert_eq!(shorten(call, 40), "Functor<...>::operator()(...) const");
        assert_eq!(shorten("Box<Very<Long<Thing>>>::operator->() const", 34), "Box<Very<...>>::operator->() const");
        assert_eq!(shorten("Box<Very<Long<Thing>>>::operator->() const", 33), "Box<...>::operator->() const");
    }

    #[test]
    fn marks_stay() {
        let name = "std::_Rb_tree<int, std::pair<int const, std::string>>::_M_construct_node<A>(A*, int&&) (inlined)";
        assert_eq!(shorten(name, 60), "std::_Rb_tree<int, ...>::_M_construct_node<A>(...) (inlined)");
        assert_eq!(shorten(name, 58), "std::_Rb_tree<...>::_M_construct_node<...>(...) (inlined)");
        assert_eq!(shorten(name, 50), "...::_M_construct_node<...>(...) (inlined)");
        assert_eq!(shorten("scan<float, Sum<float>> (launch) (guessed)", 34), "scan<...> (launch) (guessed)");
        assert_eq!(shorten("a_long_function (inlined)", 10), "a_long_...");
        assert_eq!(shorten("a_long_function_of_c (inlined)", 24), "a_long_func... (inlined)");
    }

    #[test]
    fn a_name_that_is_not_balanced_keeps_its_words() {
        assert_eq!(shorten("weird<name of something that is long", 20), "weird<name of som...");
    }

    #[test]
    fn rust_paths() {
        let name = "core::ops::function::FnOnce::call_once<alloc::boxed::Box<dyn core::ops::Fn(), Global>>";
        assert_eq!(shorten(name, 50), "core::ops::function::FnOnce::call_once<...>");
    }

    proptest::proptest! {
        #[test]
        fn whatever_the_name_it_fits(name in "[a-z<>():&* ~-]{0,80}|\\PC{0,40}|(operator[<>()=-]{1,3}|[a-z]{1,5}::|<|>|\\(|\\)){0,20}", width in 4usize..90) {
            let short = shorten(&name, width);
            proptest::prop_assert!(fits(&short, width) || fits(&name, width), "{short}");
        }
    }
}
