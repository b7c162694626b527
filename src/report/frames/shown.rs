//! Frames as the lines that a person reads.

use serde::Serialize;

use super::Entry;
use crate::report::python::{STANDARD, Whose};
use crate::report::text::clip_start;
use crate::symbols::shorten;

/// A line of a stack, as shown.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Shown {
    /// Function, or `libfoo.so+0x1234`.
    #[serde(rename = "function")]
    pub what: String,
    /// `file:line`, or the module.
    pub place: String,
    /// Whose code it is.
    pub whose: Whose,
    /// Frames that the line stands for.
    #[serde(rename = "frames", skip_serializing_if = "is_one")]
    pub count: usize,
}

fn is_one(n: &usize) -> bool {
    *n == 1
}

/// Frames as lines; runs without names in one module become one line, and so does the machinery of an import. Of a run
/// in a standard library, what was called is left, the outermost.
pub(super) fn join(entries: &[&Entry]) -> Vec<Shown> {
    let mut lines: Vec<Shown> = Vec::new();
    let mut i = 0;
    while i < entries.len() {
        let e = entries[i];
        let same = |n: &&&Entry| match e.imports {
            true => n.imports,
            false if e.standard => n.standard,
            false => !e.is_python() && [e, n].iter().all(|x| x.function.is_empty()) && n.module == e.module,
        };
        let count = entries[i..].iter().take_while(same).count().max(1);
        lines.push(if e.imports {
            let whose = Whose::Library(STANDARD.to_string());
            Shown { what: "(import)".to_string(), place: String::new(), whose, count }
        } else if e.standard {
            Shown { count, ..one(entries[i + count - 1]) }
        } else if count > 1 {
            Shown { place: format!("and {} more without names", count - 1), count, ..one(e) }
        } else {
            one(e)
        });
        i += count;
    }
    lines
}

/// One frame as it is.
pub(super) fn one(e: &Entry) -> Shown {
    let mark = match (e.guessed, e.inlined) {
        (true, _) => " (guessed)",
        (false, true) => " (inlined)",
        (false, false) => "",
    };
    let (what, place) = if e.function.is_empty() {
        let module = if e.module.is_empty() { "?" } else { &e.module };
        (format!("{module}+0x{:x}{mark}", e.offset), String::new())
    } else {
        let place = if e.place.is_empty() { &e.module } else { &e.place };
        (format!("{}{mark}", e.function), place.clone())
    };
    Shown { what, place, whose: e.whose.clone(), count: 1 }
}

/// One frame as a line of this width: function left, place behind it, in a column of its own where it fits.
pub fn line(frame: &Shown, width: usize) -> String {
    let place = clip_start(&frame.place, width * 2 / 5);
    if place.is_empty() {
        return shorten::shorten(&frame.what, width);
    }
    let room = width - 2 - place.chars().count();
    let column = width * 3 / 5 - 2;
    let what = shorten::shorten(&frame.what, room);
    format!("{what:<column$}  {place}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_survives_on_a_narrow_line() {
        let what = "std::_Rb_tree<int, std::pair<int const, float>>::_M_construct_node<std::pair<int const, float>>(std::_Rb_tree_node<int>*, std::pair<int const, float>&&) (inlined)";
        let frame = Shown { what: what.into(), place: "bits/stl_tree.h:606".into(), whose: Whose::Native, count: 1 };
        for width in [60, 80, 92, 120] {
            let line = line(&frame, width);
            assert!(line.contains(" (inlined)  ") && line.chars().count() <= width, "{line}");
        }
    }

    #[test]
    fn a_line_fits() {
        let frame = Shown {
            what: "void at::native::vectorized<4, at::native::Fill<float>, std::array<char*, 1ul>>(int, Fill<float>)"
                .into(),
            place: "a/very/long/folder/that/goes/on/and/on/kernel.cuh:123".into(),
            whose: Whose::Native,
            count: 1,
        };
        for width in [40, 60, 92] {
            assert!(line(&frame, width).chars().count() <= width);
        }
        assert!(line(&frame, 92).contains("kernel.cuh:123"));
    }
}
