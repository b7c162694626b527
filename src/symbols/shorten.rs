//! Names as long as the screen: a C++ template's name can fill a page, and its end says what it is.

/// Shortens a demangled name to this many characters: first template arguments go, then parameters, then the start.
pub fn shorten(name: &str, width: usize) -> String {
    if fits(name, width) {
        return name.to_string();
    }
    let short = collapse(name, '<', '>', "<...>");
    if fits(&short, width) {
        return short;
    }
    let short = collapse(&short, '(', ')', "(...)");
    if fits(&short, width) {
        return short;
    }
    // Whole parts of the path from the end, as many as fit.
    let parts: Vec<&str> = short.split("::").collect();
    let tail = (1..parts.len()).map(|i| format!("...::{}", parts[i..].join("::"))).find(|t| fits(t, width));
    tail.unwrap_or_else(|| crate::report::text::clip(parts.last().copied().unwrap_or(&short), width))
}

fn fits(name: &str, width: usize) -> bool {
    name.chars().count() <= width
}

/// Replaces each outermost pair of brackets and what is between by `with`. `operator<`, `operator->` and `operator()`
/// are names, `(anonymous namespace)` is a part of one, and `<T as Trait>::f` begins with what it is about.
fn collapse(name: &str, open: char, close: char, with: &str) -> String {
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
    let mut out = String::with_capacity(name.len());
    let mut depth = 0usize;
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        let word = NAMES.iter().find(|n| rest.starts_with(**n)).copied().or_else(|| {
            // `operator<` only where no template arguments of a conversion operator follow; `operator>` likewise.
            ["operator<", "operator>"]
                .into_iter()
                .find(|n| rest.starts_with(*n) && !rest[n.len()..].starts_with(char::is_alphabetic))
        });
        let step = word.map_or(c.len_utf8(), str::len);
        if word.is_none() && c == open {
            depth += 1;
            if depth == 1 {
                out.push_str(with);
            }
        } else if word.is_none()
            && c == close
            && depth > 0
            && !(c == '>' && name[..name.len() - rest.len()].ends_with('-'))
        {
            depth -= 1;
        } else if depth == 0 {
            out.push_str(&rest[..step]);
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
        assert_eq!(shorten(name, 80), "void at::native::kernel<...>(int, at::native::Fill<...>)");
        assert_eq!(shorten(name, 40), "void at::native::kernel<...>(...)");
        assert_eq!(shorten(name, 24), "...::kernel<...>(...)");
        assert_eq!(shorten(name, 8), "kerne...");
    }

    #[test]
    fn operators_and_namespaces_are_no_brackets() {
        let name = "(anonymous namespace)::Log<Sink<std::string>, 8>::operator<<(char const*, std::vector<int>)";
        assert_eq!(shorten(name, 75), "(anonymous namespace)::Log<...>::operator<<(char const*, std::vector<...>)");
        assert_eq!(shorten(name, 60), "(anonymous namespace)::Log<...>::operator<<(...)");
        let call = "Functor<float, double, int, long>::operator()(float const&, double) const";
        assert_eq!(shorten(call, 40), "Functor<...>::operator()(...) const");
        assert_eq!(shorten("Box<Very<Long<Thing>>>::operator->() const", 34), "Box<...>::operator->() const");
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
