//! What `--pool on` asks of the frameworks that have a cache of their own: to take their memory where the pool serves it.
//!
//! They are asked by the variables that they read at their start. What the user said to one of them stays, and that is said.
//! Numba needs nothing: it has no cache, and its plain allocations come from the pool as they are.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use super::settings::Flags;

mod jax;
mod python;
mod torch;

/// Variables to set, and what to say of them.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Variables with their values.
    pub set: Vec<(&'static str, OsString)>,
    /// Who is served, and how.
    pub who: Vec<&'static str>,
    /// What was there and what became of it, one line each.
    pub notes: Vec<String>,
}

impl Wanted {
    fn set(&mut self, name: &'static str, value: impl Into<OsString>) {
        self.set.push((name, value.into()));
    }

    fn say(&mut self, note: String) {
        self.notes.push(note);
    }

    /// The lines to a person; to one who wants quiet, only what stood in the way.
    pub fn lines(&self, quiet: bool) -> Vec<String> {
        let who = match self.who.as_slice() {
            _ if quiet => None,
            [] => None,
            [one] => Some(format!("pool on: asked for {one}")),
            [all @ .., last] => Some(format!("pool on: asked for {} and {last}", all.join(", "))),
        };
        who.into_iter().chain(self.notes.iter().map(|n| format!("pool on: {n}"))).collect()
    }
}

/// Whether `VRAMSCOPE_POOL` is on, by flag or variable, and vramscope itself too.
fn is_on(get: &dyn Fn(&str) -> Option<String>) -> bool {
    let is = |name: &str, words: [&str; 2]| get(name).is_some_and(|v| words.contains(&v.as_str()));
    is("VRAMSCOPE_POOL", ["on", "1"]) && !is("VRAMSCOPE", ["off", "0"])
}

/// Settings that say something of `--pool on` only.
const OF_POOL_ON: [(&str, &str); 3] = [
    ("VRAMSCOPE_STITCH", "--stitch"),
    ("VRAMSCOPE_MAX_SPLIT_SIZE", "--max-split-size"),
    ("VRAMSCOPE_GC_THRESHOLD", "--gc-threshold"),
];

/// A line on flags that have no effect, as the pool is not `on`.
pub fn idle(flags: &Flags) -> Option<String> {
    let given: Vec<&str> = OF_POOL_ON.iter().filter(|(v, _)| flags.get(v).is_some()).map(|(_, flag)| *flag).collect();
    let get = |name: &str| Some(flags.get(name).cloned().or_else(|| std::env::var_os(name))?.to_string_lossy().into());
    if given.is_empty() || is_on(&get) {
        return None;
    }
    let have = if given.len() == 1 { "has" } else { "have" };
    Some(format!("{} {have} no effect without --pool on", given.join(" and ")))
}

/// What is to be asked, by flags and this process's variables; of nobody unless the pool is `on`. `folder`: the run's own,
/// which gets a file for Python.
pub fn wanted(flags: &Flags, folder: &Path) -> Wanted {
    let get = |name: &str| {
        let value = flags.get(name).cloned().or_else(|| std::env::var_os(name))?;
        Some(value.to_string_lossy().trim().to_owned()).filter(|v| !v.is_empty())
    };
    let mut wanted = Wanted::default();
    if !is_on(&get) {
        return wanted;
    }
    torch::ask(&get, &mut wanted);
    jax::ask(&get, &mut wanted);
    python::ask(std::env::var_os("PYTHONPATH").as_deref().unwrap_or(OsStr::new("")), folder, &mut wanted);
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_of_the_pool_that_is_not_on_is_told() {
        let flags = |all: &[(&'static str, &str)]| Flags(all.iter().map(|(v, t)| (*v, OsString::from(t))).collect());
        let (stitch, pool) = (("VRAMSCOPE_STITCH", "off"), ("VRAMSCOPE_POOL", "on"));
        assert_eq!(idle(&flags(&[stitch])).unwrap(), "--stitch has no effect without --pool on");
        let both = idle(&flags(&[stitch, ("VRAMSCOPE_GC_THRESHOLD", "0.8")])).unwrap();
        assert_eq!(both, "--stitch and --gc-threshold have no effect without --pool on");
        assert_eq!((idle(&flags(&[stitch, pool])), idle(&flags(&[]))), (None, None));
    }

    #[test]
    fn quiet_hides_who_was_asked_and_not_what_stood_in_the_way() {
        let wanted = Wanted { who: vec!["A"], notes: vec!["b stays".to_owned()], ..Wanted::default() };
        assert_eq!(wanted.lines(false), ["pool on: asked for A", "pool on: b stays"]);
        assert_eq!(wanted.lines(true), ["pool on: b stays"]);
    }

    #[test]
    fn nobody_is_asked_but_with_the_pool_on() {
        let folder = tempfile::tempdir().unwrap();
        let flags = |pool: &str, off: bool| {
            let mut all = vec![("VRAMSCOPE_POOL", OsString::from(pool))];
            all.extend(off.then(|| ("VRAMSCOPE", OsString::from("off"))));
            Flags(all)
        };
        for flags in [flags("auto", false), flags("off", false), flags("on", true)] {
            assert_eq!(wanted(&flags, folder.path()), Wanted::default());
        }
        let wanted = wanted(&flags("on", false), folder.path());
        let line = &wanted.lines(false)[0];
        assert!(line.starts_with("pool on: asked for PyTorch (") && line.contains("JAX (") && line.contains("CuPy ("));
        assert!(!wanted.lines(true).contains(line));
        assert!(line.ends_with(" and torch.compile (triton.cudagraph_trees=False, by the same)"), "{line}");
    }
}
