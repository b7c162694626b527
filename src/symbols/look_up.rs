//! Addresses of one module to names, from its files; and many modules at once, each by a thread.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{CodeInfo, Input, Sym, Symbolized, Symbolizer};

use super::Name;
use super::demangle::demangle;
use super::identity::debug_link;

/// Modules looked at in the same moment, at most: each holds a table of symbols (100 MB for the largest of PyTorch).
const THREADS: usize = 8;
/// The stack of a thread: demangling goes deep.
const STACK: usize = 8 << 20;

/// What to look up in a module.
#[derive(Clone, Debug, Default)]
pub struct Job {
    /// Its files, the best first.
    pub files: Vec<PathBuf>,
    /// Their bytes: how long it may take.
    pub bytes: u64,
    /// Return addresses.
    pub offsets: Vec<u64>,
}

/// Looks up all jobs, the largest first, on as many threads as there are cores. The answers are in the order of the
/// jobs, and of the addresses in each.
pub fn all(jobs: &[Job], debug: &[PathBuf]) -> Vec<Vec<Vec<Name>>> {
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    on(cores.min(THREADS), jobs, debug)
}

fn on(threads: usize, jobs: &[Job], debug: &[PathBuf]) -> Vec<Vec<Vec<Name>>> {
    let mut order: Vec<usize> = (0..jobs.len()).collect();
    order.sort_by_key(|i| std::cmp::Reverse((jobs[*i].bytes, jobs[*i].offsets.len())));
    let next = AtomicUsize::new(0);
    let answers: Mutex<Vec<Vec<Vec<Name>>>> = Mutex::new(vec![Vec::new(); jobs.len()]);
    let work = || {
        while let Some(&i) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
            let job = &jobs[i];
            // A file that breaks the reader costs its own names only.
            let names = catch_unwind(AssertUnwindSafe(|| one(&job.files, &job.offsets, debug)));
            let names = names.unwrap_or_else(|_| vec![Vec::new(); job.offsets.len()]);
            answers.lock().unwrap_or_else(|e| e.into_inner())[i] = names;
        }
    };
    std::thread::scope(|s| {
        for _ in 1..threads.min(jobs.len()) {
            // Without a thread, the others do its work.
            let _ = std::thread::Builder::new().stack_size(STACK).spawn_scoped(s, work);
        }
        work();
    });
    answers.into_inner().unwrap_or_else(|e| e.into_inner())
}

/// Names at the return addresses, innermost first: from the first file that knows the line, else from the first that
/// knows the function.
pub fn one(files: &[PathBuf], offsets: &[u64], debug: &[PathBuf]) -> Vec<Vec<Name>> {
    let mut answers: Vec<Vec<Name>> = vec![Vec::new(); offsets.len()];
    let mut readable = HashMap::new();
    for file in files {
        let open: Vec<usize> = (0..offsets.len()).filter(|i| answers[*i].iter().all(|n| n.line == 0)).collect();
        if open.is_empty() {
            break;
        }
        // A return address is behind its call, and may be the first of the next function.
        let calls: Vec<u64> = open.iter().map(|i| offsets[*i].saturating_sub(1)).collect();
        for (i, names) in open.into_iter().zip(of_file(file, &calls, debug, &mut readable)) {
            if answers[i].is_empty() || names.iter().any(|n| n.line > 0) {
                answers[i] = names;
            }
        }
    }
    answers
}

type Readable = HashMap<String, String>;

fn of_file(path: &Path, addresses: &[u64], debug: &[PathBuf], readable: &mut Readable) -> Vec<Vec<Name>> {
    // Its debug file was found before, by build id; blazesym would take one whose checksum differs for an error.
    let linked = debug_link(path).is_some();
    let ways = [true, false].into_iter().skip(usize::from(linked));
    for lines in ways {
        let symbolizer = Symbolizer::builder()
            .enable_auto_reload(false)
            .enable_code_info(true)
            .enable_inlined_fns(true)
            .enable_demangling(false)
            .set_debug_dirs(Some(debug))
            .build();
        let mut elf = Elf::new(path);
        elf.debug_syms = lines;
        // Debug information that cannot be read: the symbols are left.
        if let Ok(found) = symbolizer.symbolize(&Source::Elf(elf), Input::VirtOffset(addresses)) {
            let names = |s: &Symbolized| match s {
                Symbolized::Sym(sym) => names(sym, readable),
                Symbolized::Unknown(_) => Vec::new(),
            };
            return found.iter().map(names).collect();
        }
    }
    Vec::new()
}

/// A symbol with what was inlined into it, innermost first. Each inlined function's place is that of the code in it.
fn names(sym: &Sym, readable: &mut Readable) -> Vec<Name> {
    let mut name = |function: &str, code: Option<&CodeInfo>, inlined| Name {
        // Most of a look-up in a large C++ library is demangling, and most frames come again.
        function: match readable.get(function) {
            Some(known) => known.clone(),
            None => readable.entry(function.to_string()).or_insert_with(|| demangle(function)).clone(),
        },
        file: code.map(|c| c.to_path().display().to_string()).unwrap_or_default(),
        line: code.and_then(|c| c.line).unwrap_or(0),
        inlined,
    };
    let outer = name(&sym.name, sym.code_info.as_deref(), false);
    let mut all = vec![outer];
    all.extend(sym.inlined.iter().map(|f| name(&f.name, f.code_info.as_ref(), true)));
    all.reverse();
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbols::tests::own_symbol;

    #[test]
    fn every_job_gets_its_own_answers() {
        let (module, address) = own_symbol("every_job_gets_its_own_answers");
        let (_, other) = own_symbol("a_function_of_our_own");
        let job = |offsets: &[u64]| Job {
            files: vec![module.path.clone().into()],
            bytes: offsets.len() as u64,
            offsets: offsets.to_vec(),
        };
        let jobs = [job(&[address + 1]), job(&[other + 1, 1 << 40]), Job::default()];
        for threads in [1, 2, 7] {
            let answers = on(threads, &jobs, &[]);
            assert_eq!(answers.iter().map(Vec::len).collect::<Vec<_>>(), [1, 2, 0]);
            assert!(answers[0][0].iter().any(|n| n.function.contains("every_job_gets_its_own_answers")));
            assert!(answers[1][0].iter().any(|n| n.function.contains("a_function_of_our_own")));
            assert!(answers[1][1].is_empty());
        }
    }

    #[test]
    fn a_file_that_is_none_has_no_names() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("libx.so");
        std::fs::write(&path, b"\x7fELF\x02\x01\x01 and nothing more").unwrap();
        assert_eq!(one(&[path, "/nowhere".into()], &[1, 2], &[]), [vec![], vec![]]);
    }
}
