//! What no variable can ask for: a file that Python runs at its start waits for `import cupy`, to select its asynchronous
//! allocator, and for PyTorch's compiler, whose CUDA graph trees cannot do with the backend that was asked for.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use super::Wanted;
use crate::cli::preload::splits;

/// The file: see there.
const HOOK: &str = include_str!("sitecustomize.py");

/// Takes part in `wanted`: writes the file into the run's `folder`, and puts that before what `PYTHONPATH` has.
pub fn ask(python_path: &OsStr, folder: &Path, wanted: &mut Wanted) {
    let compiles = wanted.who.contains(&super::torch::SERVED);
    let folder = folder.join("python");
    let written = std::fs::create_dir(&folder).and_then(|()| std::fs::write(folder.join("sitecustomize.py"), HOOK));
    // PYTHONPATH cannot hold every path either.
    if splits(&folder) {
        return;
    }
    if let Err(e) = written {
        wanted.say(format!("CuPy keeps its own pool: {}: {e}", folder.display()));
        if compiles {
            wanted.say("torch.compile(mode=\"reduce-overhead\") fails with CUDA graph trees".to_owned());
        }
        return;
    }
    let mut path = OsString::from(folder);
    if !python_path.is_empty() {
        path.push(":");
        path.push(python_path);
    }
    wanted.set("PYTHONPATH", path);
    wanted.who.push("CuPy (malloc_async, by a sitecustomize on PYTHONPATH)");
    if compiles {
        wanted.who.push("torch.compile (triton.cudagraph_trees=False, by the same)");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_first_on_the_path() {
        let folder = tempfile::tempdir().unwrap();
        let mut wanted = Wanted::default();
        ask(OsStr::new("/a::/b"), folder.path(), &mut wanted);
        let ours = folder.path().join("python");
        assert_eq!(wanted.set, [("PYTHONPATH", format!("{}:/a::/b", ours.display()).into())]);
        assert!(std::fs::read_to_string(ours.join("sitecustomize.py")).unwrap().contains("malloc_async"));
        let mut again = Wanted::default();
        ask(OsStr::new(""), folder.path(), &mut again);
        assert!(again.set.is_empty() && again.notes.len() == 1, "{again:?}");
    }

    /// Where PyTorch keeps its own allocator it keeps its trees.
    #[test]
    fn the_compiler_is_asked_only_with_the_backend() {
        for (who, count) in [(vec![], 1), (vec![crate::cli::frameworks::torch::SERVED], 3)] {
            let folder = tempfile::tempdir().unwrap();
            let mut wanted = Wanted { who, ..Wanted::default() };
            ask(OsStr::new(""), folder.path(), &mut wanted);
            assert_eq!(wanted.who.len(), count, "{wanted:?}");
        }
    }
}
