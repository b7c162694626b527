//! In what two runs differ, apart from their memory: what was changed on purpose, and what was not known to have changed.

use std::collections::BTreeMap;

use serde::Serialize;

use super::chain::library;
use super::run::Run;
use crate::report::text::clean;
use crate::symbols::file_name;

/// Something that is not the same in both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Differs {
    /// What.
    pub what: String,
    /// As it was.
    pub before: String,
    /// As it is.
    pub after: String,
}

/// What was given to make the run what it is; not where it ran or wrote.
const UNIMPORTANT: [&str; 2] = ["VRAMSCOPE_RUN_DIR", "VRAMSCOPE_TRACE"];

/// Everything in which two runs differ.
pub fn differs(before: &Run, after: &Run) -> Vec<Differs> {
    let mut list = Vec::new();
    let mut add = |what: &str, before: &str, after: &str| {
        if before != after {
            let text = |t: &str| if t.is_empty() { "-".to_string() } else { clean(t) };
            list.push(Differs { what: what.to_string(), before: text(before), after: text(after) });
        }
    };
    let both = [before, after].map(|r| &r.history.header);
    let [b, a] = both;
    add("program", file_name(&b.program), file_name(&a.program));
    let [one, other] = both.map(|h| h.arguments.as_slice());
    let (one, other) = apart(one.get(1..).unwrap_or(&[]), other.get(1..).unwrap_or(&[]));
    add("arguments", &one, &other);
    add("host", &b.host, &a.host);
    let gpus = |r: &Run| r.history.devices.values().map(|d| d.name.clone()).collect::<Vec<_>>().join(", ");
    add("GPU", &gpus(before), &gpus(after));
    let driver = |n: u32| if n == 0 { String::new() } else { format!("CUDA {}.{}", n / 1000, n % 1000 / 10) };
    add("driver", &driver(b.driver), &driver(a.driver));
    add("vramscope", &b.vramscope, &a.vramscope);
    let names: std::collections::BTreeSet<&String> = b.settings.keys().chain(a.settings.keys()).collect();
    for name in names.into_iter().filter(|n| !UNIMPORTANT.contains(&n.as_str())) {
        let value = |r: &Run| r.history.header.settings.get(name).cloned().unwrap_or_default();
        add(name, &value(before), &value(after));
    }
    let allocator = |r: &Run| if r.held.tensors() { "tells of tensors" } else { "" };
    if before.held.tensors() != after.held.tensors() {
        add("PyTorch's allocator", allocator(before), allocator(after));
    }
    let (one, other) = (libraries(before), libraries(after));
    for (name, (file, build)) in &one {
        let Some((other_file, other_build)) = other.get(name) else { continue };
        if file != other_file {
            add(name, file, other_file);
        } else if build != other_build {
            let short = |id: &str| format!("build {}", id.get(..8).unwrap_or(id));
            add(name, &short(build), &short(other_build));
        }
    }
    list
}

/// Two lists of arguments without what they have in common at both ends, but for one before it: it is often the flag.
fn apart(one: &[String], other: &[String]) -> (String, String) {
    let start = one.iter().zip(other).take_while(|(a, b)| a == b).count();
    let most = one.len().min(other.len()) - start;
    let end = one.iter().rev().zip(other.iter().rev()).take(most).take_while(|(a, b)| a == b).count();
    let flag = start.checked_sub(1).filter(|at| one[*at].starts_with('-')).unwrap_or(start);
    (one[flag..one.len() - end].join(" "), other[flag..other.len() - end].join(" "))
}

/// Libraries that asked for memory or are in its stacks: file and build, by name without version. One that is loaded
/// twice under different names says nothing.
fn libraries(run: &Run) -> BTreeMap<String, (String, String)> {
    let mut by: BTreeMap<String, (String, String)> = BTreeMap::new();
    for m in run.history.modules.values() {
        let file = file_name(&m.path).to_string();
        by.insert(library(&file), (file, m.build_id.clone()));
    }
    by
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_told_where_they_differ() {
        let list = |text: &str| text.split(' ').map(str::to_string).collect::<Vec<_>>();
        let apart = |one, other| apart(&list(one), &list(other));
        let pair = |a: &str, b: &str| (a.to_string(), b.to_string());
        assert_eq!(apart("train.py --batch 32 --lr 1", "train.py --batch 64 --lr 1"), pair("--batch 32", "--batch 64"));
        assert_eq!(apart("train.py 32", "train.py 64"), pair("32", "64"));
        assert_eq!(apart("train.py", "train.py --compile"), pair("", "--compile"));
        assert_eq!(apart("a a", "a a a"), pair("", "a"));
        assert_eq!(apart("same", "same"), pair("", ""));
    }
}
