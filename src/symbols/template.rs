//! A template's arguments as a person would write them: without those that it has by default, or a word in place of all.

use super::shorten::without_result;

/// Appends template arguments to the name that `out` ends with.
pub fn append(out: &mut String, mut arguments: Vec<String>, depth: usize) {
    let start = out.rfind(|c: char| !c.is_alphanumeric() && !matches!(c, '_' | ':' | '~')).map_or(0, |at| {
        // The character's own bytes stay before the name.
        at + out[at..].chars().next().map_or(1, char::len_utf8)
    });
    let name = out[start..].to_string();
    // In a destructor's name and the like, the wrapper itself is what is meant.
    let wrapper = depth == 0 && name.ends_with("::WrapFunctionIntoFunctor_");
    if let Some(word) = alone(&name, &arguments).filter(|_| !wrapper) {
        out.truncate(start);
        out.push_str(&word);
        return;
    }
    if name.starts_with("std::") || name == "c10::intrusive_ptr" {
        while arguments.len() > 1 && is_default(&name, &arguments) {
            arguments.pop();
        }
    }
    if wrapper
        || name.ends_with("::wrap_kernel_functor_unboxed_")
        || name.ends_with("::make_boxed_from_unboxed_functor")
    {
        arguments.truncate(1);
    }
    out.push('<');
    out.push_str(&arguments.join(", "));
    out.push('>');
}

/// Templates that have a name without arguments, or stand for one of their arguments.
fn alone(name: &str, arguments: &[String]) -> Option<String> {
    let first = arguments.first()?;
    match name.rsplit("::").next()? {
        "basic_string"
        | "basic_string_view"
        | "basic_ostream"
        | "basic_istream"
        | "basic_stringstream"
        | "basic_ostringstream"
        | "basic_istringstream"
        | "basic_ofstream"
        | "basic_ifstream"
            if name.starts_with("std::basic_")
                && arguments[1..].iter().all(|a| a.starts_with("std::char_traits<") || is_allocator(a, first)) =>
        {
            let word = name.strip_prefix("std::basic_")?;
            match first.as_str() {
                "char" => Some(format!("std::{word}")),
                "wchar_t" => Some(format!("std::w{word}")),
                _ => None,
            }
        }
        // A function as a type: what is meant is the function.
        "CompileTimeFunctionPointer" => {
            let function = function(arguments.get(1)?)?;
            // Namespace and name say which it is: `VariableType::add_`.
            let from = if function.contains('<') { None } else { function.rmatch_indices("::").nth(1) };
            Some(format!("&{}", from.map_or(&*function, |(at, _)| &function[at + 2..])))
        }
        "WrapFunctionIntoFunctor_" => Some(first.clone()),
        // nvcc's lambdas: the function that they stand in, and their number there.
        "__nv_dl_tag" | "__nv_dl_trailing_return_tag" => {
            let number = arguments.iter().skip(2).find_map(|a| {
                let digits = a.rsplit(')').next()?.trim_end_matches(['u', 'l']);
                digits.parse::<u32>().ok()
            })?;
            Some(format!("{{lambda#{number} in {}}}", function(arguments.get(1)?)?))
        }
        "__nv_dl_wrapper_t" | "__nv_hdl_wrapper_t" => arguments.iter().find(|a| a.starts_with("{lambda#")).cloned(),
        _ => None,
    }
}

/// The function that an argument points to, by its name alone.
fn function(argument: &str) -> Option<String> {
    let name = without_result(argument.strip_prefix('&')?.trim());
    // `&(f)`, and `&f(int)` with its parameters.
    let name = name.strip_prefix('(').and_then(|n| n.strip_suffix(')')).unwrap_or(name);
    let name = name.replace("(anonymous namespace)::", "");
    let mut depth = 0usize;
    let open = name.char_indices().rev().find(|(_, c)| {
        match c {
            ')' => depth += 1,
            '(' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0
    });
    let name = match open {
        Some((at, '(')) if at > 0 && !name.ends_with("operator()") => &name[..at],
        _ => &name,
    };
    Some(name.to_string())
}

fn is_allocator(argument: &str, of: &str) -> bool {
    argument.strip_prefix("std::allocator<").and_then(|a| a.strip_suffix('>')).is_some_and(|a| a.trim_end() == of)
}

/// Whether the last argument is what its template has without it.
fn is_default(template: &str, arguments: &[String]) -> bool {
    const ANYWHERE: [&str; 7] = [
        "std::allocator<",
        "std::less<",
        "std::hash<",
        "std::equal_to<",
        "std::char_traits<",
        "std::default_delete<",
        "c10::detail::intrusive_target_default_null_type<",
    ];
    let adapted: &[&str] = match template {
        "std::stack" | "std::queue" => &["std::deque<"],
        "std::priority_queue" => &["std::vector<"],
        // Whose arguments are the program's.
        "std::pair" | "std::tuple" | "std::variant" => return false,
        _ => &[],
    };
    let (Some(first), Some(last)) = (arguments.first(), arguments.last()) else { return false };
    let of = ANYWHERE.iter().chain(adapted).find_map(|t| last.strip_prefix(t)).and_then(|a| a.strip_suffix('>'));
    // The allocator of a map is one of its pairs.
    of.is_some_and(|of| of == first || of.starts_with(&format!("std::pair<{first} const,")))
}
