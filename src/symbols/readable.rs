//! A demangled name as a person would write it: what a library's author had to spell out, and nobody reads, goes
//! (default template arguments, inline namespaces, ABI tags, the wrappers around PyTorch's operators).

use super::shorten::name_of_brackets;
use super::template;

/// A deeper name stays as it is.
const DEEPEST: usize = 100;

/// The readable form of a demangled name. What it does not understand stays.
pub fn readable(name: &str) -> String {
    // Most names: nothing to do.
    if !name.contains(['<', '[', ':']) {
        return name.to_string();
    }
    let name = namespaces(name);
    let mut reader = Reader { rest: &name };
    match reader.part(None, 0) {
        Some(text) if reader.rest.is_empty() => text,
        // Brackets that do not fit each other.
        _ => name,
    }
}

/// Without inline namespaces and tags.
fn namespaces(name: &str) -> String {
    let mut text = name.to_string();
    for (long, short) in [
        ("std::__1::", "std::"),
        ("std::__ndk1::", "std::"),
        ("std::__cxx11::", "std::"),
        ("::__cxx11::", "::"),
        ("::_V2::", "::"),
        ("[abi:cxx11]", ""),
    ] {
        if text.contains(long) {
            text = text.replace(long, short);
        }
    }
    text = without_casts(&text, |of| matches!(of, "unsigned long" | "unsigned int" | "long"));
    // CUDA's libraries name their inline namespaces after version and architectures: `THRUST_200302_500_600_NS::`.
    for start in ["::THRUST_", "::CUB_"] {
        let mut from = 0;
        while let Some(at) = text[from..].find(start).map(|at| from + at) {
            let word = at + 2;
            let end =
                text[word..].find(|c: char| !c.is_ascii_alphanumeric() && c != '_').map_or(text.len(), |i| word + i);
            if text[word..end].ends_with("_NS") && text[end..].starts_with("::") {
                text.replace_range(word..end + 2, "");
            }
            from = word;
        }
    }
    // nvcc's namespace for what only one file sees: `_INTERNAL_1f3c_9_kernel_cu_2b4d::`.
    while let Some(at) = text.find("_INTERNAL_") {
        let end = text[at..].find(|c: char| !c.is_alphanumeric() && c != '_').map_or(text.len(), |i| at + i);
        if !text[end..].starts_with("::") || at > 0 && !text[..at].ends_with([':', ' ', '<', '(', '&', '*']) {
            break;
        }
        text.replace_range(at..end + 2, "");
    }
    text
}

/// Numbers among template arguments without their type: `array<char*, (unsigned long)2>`.
pub(super) fn without_casts(name: &str, which: impl Fn(&str) -> bool) -> String {
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(open) = rest.find('(') {
        let (before, inside) = (&rest[..open], &rest[open + 1..]);
        out.push_str(before);
        rest = &rest[open..];
        let Some((of, number)) = inside.split_once(')') else { break };
        let is_argument = out.ends_with(['<', ',', ' ']) && number.starts_with(|c: char| c.is_ascii_digit());
        if is_argument && of.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | ':' | ' ')) && which(of) {
            rest = number;
        } else {
            out.push('(');
            rest = inside;
        }
    }
    out + rest
}

struct Reader<'a> {
    rest: &'a str,
}

impl Reader<'_> {
    /// The text up to this bracket, or to the end. `None`: the brackets do not fit.
    fn part(&mut self, close: Option<char>, depth: usize) -> Option<String> {
        if depth > DEEPEST {
            return None;
        }
        let mut out = String::new();
        while let Some(c) = self.rest.chars().next() {
            if let Some(word) = name_of_brackets(self.rest) {
                out.push_str(word);
                self.rest = &self.rest[word.len()..];
                continue;
            }
            if Some(c) == close && !(c == '>' && out.ends_with('-')) || close == Some('>') && c == ',' {
                return Some(out);
            }
            self.rest = &self.rest[c.len_utf8()..];
            let end = match c {
                '<' => {
                    let arguments = self.arguments(depth)?;
                    template::append(&mut out, arguments, depth);
                    continue;
                }
                '(' => ')',
                '[' => ']',
                '{' => '}',
                ')' | ']' | '}' => return None,
                _ => {
                    out.push(c);
                    continue;
                }
            };
            let inside = self.part(Some(end), depth + 1)?;
            self.rest = self.rest.strip_prefix(end)?;
            if c == '[' && (inside.starts_with("abi:") || inside.starts_with("clone ")) {
                out.truncate(out.trim_end().len());
                continue;
            }
            out.push(c);
            out.push_str(&inside);
            out.push(end);
        }
        close.is_none().then_some(out)
    }

    /// Template arguments, behind their `<`.
    fn arguments(&mut self, depth: usize) -> Option<Vec<String>> {
        let mut all = Vec::new();
        loop {
            all.push(self.part(Some('>'), depth + 1)?.trim().to_string());
            if let Some(rest) = self.rest.strip_prefix(',') {
                self.rest = rest;
                continue;
            }
            self.rest = self.rest.strip_prefix('>')?;
            // Empty packs.
            if all.len() > 1 {
                all.retain(|a| !a.is_empty());
            }
            return Some(all);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_standard_library_spells_out() {
        for (long, short) in [
            ("main", "main"),
            ("std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >", "std::string"),
            ("std::__1::basic_string<char, std::__1::char_traits<char>, std::__1::allocator<char>>", "std::string"),
            ("f(std::basic_string_view<wchar_t, std::char_traits<wchar_t> >)", "f(std::wstring_view)"),
            (
                "std::vector<float, std::allocator<float> >::push_back(float&&)",
                "std::vector<float>::push_back(float&&)",
            ),
            ("std::vector<float, My<float> >", "std::vector<float, My<float>>"),
            (
                "std::map<std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >, int, std::less<std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> > >, std::allocator<std::pair<std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> > const, int> > >",
                "std::map<std::string, int>",
            ),
            (
                "std::unordered_map<int, A, std::hash<int>, std::equal_to<int>, std::allocator<std::pair<int const, A> > >::find",
                "std::unordered_map<int, A>::find",
            ),
            (
                "std::unique_ptr<T<1>, std::default_delete<T<1> > >::~unique_ptr()",
                "std::unique_ptr<T<1>>::~unique_ptr()",
            ),
            ("name[abi:cxx11](int [4]) [clone .cold]", "name(int [4])"),
            ("std::pair<int, std::allocator<int> >", "std::pair<int, std::allocator<int>>"),
            (
                "std::priority_queue<int, std::vector<int, std::allocator<int> >, std::less<int> >",
                "std::priority_queue<int>",
            ),
            ("std::chrono::_V2::steady_clock::now()", "std::chrono::steady_clock::now()"),
            ("a::_INTERNAL_1f3c_9_kernel_cu_2b4d::f(int)", "a::f(int)"),
            (
                "std::ostream& operator<< <char>(std::ostream&, T<(E)1>)",
                "std::ostream& operator<< <char>(std::ostream&, T<(E)1>)",
            ),
            ("A<B>::operator->() const", "A<B>::operator->() const"),
            ("<alloc::vec::Vec<u8> as core::fmt::Debug>::fmt", "<alloc::vec::Vec<u8> as core::fmt::Debug>::fmt"),
            ("f::<fn(u8) -> u8>", "f::<fn(u8) -> u8>"),
            ("odd<name::of(", "odd<name::of("),
        ] {
            assert_eq!(readable(long), short);
            assert_eq!(readable(short), short);
        }
    }

    #[test]
    fn what_pytorch_spells_out() {
        for (long, short) in [
            (
                "c10::impl::wrap_kernel_functor_unboxed_<c10::impl::detail::WrapFunctionIntoFunctor_<c10::CompileTimeFunctionPointer<at::Tensor (at::Tensor const&, c10::Scalar const&), &at::(anonymous namespace)::(anonymous namespace)::wrapper_CUDA__add(at::Tensor const&, c10::Scalar const&)>, at::Tensor, c10::guts::typelist::typelist<at::Tensor const&, c10::Scalar const&> >, at::Tensor (at::Tensor const&, c10::Scalar const&)>::call(c10::OperatorKernel*, c10::DispatchKeySet, at::Tensor const&, c10::Scalar const&)",
                "c10::impl::wrap_kernel_functor_unboxed_<&at::wrapper_CUDA__add>::call(c10::OperatorKernel*, c10::DispatchKeySet, at::Tensor const&, c10::Scalar const&)",
            ),
            (
                "c10::intrusive_ptr<c10::TensorImpl, c10::detail::intrusive_target_default_null_type<c10::TensorImpl> >::reset_()",
                "c10::intrusive_ptr<c10::TensorImpl>::reset_()",
            ),
            (
                "void g<__nv_dl_wrapper_t<__nv_dl_tag<void (*)(at::TensorIteratorBase&), &at::native::fill, 4u>, float> >(int)",
                "void g<{lambda#4 in at::native::fill}>(int)",
            ),
            (
                "__nv_hdl_wrapper_t<false, true, false, __nv_dl_tag<void (*)(at::Base&, S<int>), &at::(anonymous namespace)::clamp(at::Base&, S<int>), (unsigned int)7>, float (float), >::manager<A>::do_delete(void*)",
                "{lambda#7 in at::clamp}::manager<A>::do_delete(void*)",
            ),
            (
                "c10::impl::detail::WrapFunctionIntoFunctor_<c10::CompileTimeFunctionPointer<void (int), &void torch::(anonymous namespace)::A::f<int>(int)>, void>::~WrapFunctionIntoFunctor_()",
                "c10::impl::detail::WrapFunctionIntoFunctor_<&torch::A::f<int>>::~WrapFunctionIntoFunctor_()",
            ),
            (
                "W<c10::CompileTimeFunctionPointer<at::Tensor (int), &torch::autograd::VariableType::(anonymous namespace)::add_(int)> >",
                "W<&VariableType::add_>",
            ),
            (
                "std::array<char*, (unsigned long)2>::f<(long)-1, (long)1>(long)",
                "std::array<char*, 2>::f<(long)-1, 1>(long)",
            ),
            ("thrust::THRUST_200302_500_NS::cuda_cub::f<cub::CUB_1_NS::A, >(int)", "thrust::cuda_cub::f<cub::A>(int)"),
        ] {
            assert_eq!(readable(long), short);
            assert_eq!(readable(short), short);
        }
    }

    fn balanced(text: &str) -> bool {
        let mut open = Vec::new();
        text.chars().all(|c| match c {
            '<' | '(' | '[' | '{' => {
                open.push(c);
                true
            }
            '>' => open.pop() == Some('<'),
            ')' => open.pop() == Some('('),
            ']' => open.pop() == Some('['),
            '}' => open.pop() == Some('{'),
            _ => true,
        }) && open.is_empty()
    }

    /// Names whose brackets fit, of words that mean something here.
    fn name() -> impl proptest::strategy::Strategy<Value = String> {
        use proptest::prelude::*;
        const WORDS: &[&str] = &[
            "std::",
            "vector",
            "basic_string",
            "char",
            "allocator",
            "__cxx11::",
            "std::map",
            "int",
            "&f",
            "4u",
            "__nv_dl_tag",
            "__nv_hdl_wrapper_t",
            "c10::",
            "WrapFunctionIntoFunctor_",
            "_INTERNAL_a::",
            ", ",
            " ",
            "[abi:cxx11]",
            "CompileTimeFunctionPointer",
            "std::char_traits",
            "\u{e9}",
        ];
        let leaf = proptest::sample::select(WORDS).prop_map(str::to_string);
        leaf.prop_recursive(6, 60, 6, |inner| {
            (proptest::collection::vec(inner, 1..6), 0usize..5).prop_map(|(parts, how)| {
                let text = parts.concat();
                match how {
                    0 | 1 => format!("std::vector<{text}>"),
                    2 => format!("({text})"),
                    3 => format!("{{{text}}}"),
                    _ => text,
                }
            })
        })
    }

    proptest::proptest! {
        #[test]
        fn brackets_that_fit_still_do(name in name()) {
            proptest::prop_assert!(balanced(&name));
            let short = readable(&name);
            proptest::prop_assert!(balanced(&short), "{name:?} became {short:?}");
            proptest::prop_assert!(short.len() <= name.len() + name.matches(',').count() + 32 * name.matches("__nv").count());
        }

        #[test]
        fn whatever_the_name_it_ends(name in "[a-z<>():&* ~{},\\[\\]-]{0,80}|\\PC{0,40}|(operator[<>()=-]{1,3}|[a-z]{1,5}::|std::vector|<|>|\\(|\\)|, ){0,30}") {
            readable(&name);
        }
    }
}
