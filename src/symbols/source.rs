//! Where one module's names come from: its files, what the cache holds, and what to say of what is missing.

use std::path::PathBuf;

use vramscope_core::trace::Module;

use super::cache::{Cache, Entry, Stamp};
use super::find::{Found, Places};
use super::{Name, file_name, identity};

/// Modules whose names nobody misses.
const UNMISSED: [&str; 5] = ["[", "linux-vdso", "libvramscope.so", "libcuda.so", "libcudart.so"];

/// Modules that come stripped, and whose debug files nobody has at hand or needs.
const UNDEBUGGED: [&str; 18] = [
    "ld-linux",
    "libc.so",
    "libc-",
    "libm.so",
    "libpthread",
    "libgcc_s",
    "libgomp",
    "libffi",
    "libpython",
    "python3",
    "libcublas",
    "libcudnn",
    "libcufft",
    "libcurand",
    "libcusolver",
    "libcusparse",
    "libnv",
    "libnccl",
];

/// Where a module's names come from.
#[derive(Default)]
pub(super) struct Source {
    pub(super) files: Vec<PathBuf>,
    pub(super) bytes: u64,
    /// What the cache holds, with what is found now.
    pub(super) kept: Entry,
    /// What to say if a name is missing, once.
    pub(super) note: Option<String>,
    /// What to say if most names are missing.
    pub(super) stripped: Option<String>,
    /// Whether that is among the notes, or was.
    pub(super) said: bool,
    /// Addresses looked up so far, and those of them that have no name.
    pub(super) asked: usize,
    pub(super) nameless: usize,
}

impl Source {
    /// Of this module, looked for in these places.
    pub(super) fn of(module: &Module, places: &Places, cache: &Cache) -> Source {
        let name = file_name(&module.path);
        let kept = cache.load(&module.build_id).unwrap_or_default();
        let (found, rejected) = places.look(module);
        let note = match found {
            Found::Files(files) => {
                let stamps: Vec<Stamp> = files.iter().filter_map(|f| Stamp::of(f)).collect();
                let bytes = stamps.iter().map(Stamp::bytes).sum();
                let stripped = stripped(module, &files, &rejected);
                return Source { files, bytes, kept: kept.with_files(stamps), stripped, ..Source::default() };
            }
            // The kernel's page of code has no file, our own and CUDA's frames are not shown: nobody misses them.
            _ if UNMISSED.iter().any(|m| name.starts_with(m)) || name.is_empty() => None,
            Found::Missing => Some(format!("{name} is not at {}", module.path)),
            Found::Changed => {
                let file = rejected.first().map_or(module.path.clone(), |r| r.display().to_string());
                Some(format!("{file} is not the file that ran (its build id differs)"))
            }
        };
        // The file is gone, but what was read from it stays true.
        Source { note, kept, ..Source::default() }
    }

    /// What is known of an address without a look.
    pub(super) fn known(&self, offset: u64) -> Option<Vec<Name>> {
        let names = self.kept.names.get(&offset);
        if !self.files.is_empty() {
            return names.cloned();
        }
        // No file: what others said is the best there is.
        names.filter(|n| !n.is_empty()).or_else(|| self.kept.others.get(&offset)).cloned()
    }
}

/// What to say of a module whose files have hardly a name: where its debug file should be, or which one was rejected.
pub(super) fn stripped(module: &Module, files: &[PathBuf], rejected: &[PathBuf]) -> Option<String> {
    let name = file_name(&module.path);
    let unmissed = UNMISSED.iter().chain(&UNDEBUGGED).any(|m| name.starts_with(m));
    if unmissed || !files.iter().all(|f| identity::stripped(f)) {
        return None;
    }
    // As many digits as tell them apart.
    let brief = |id: &str| id.get(..8).unwrap_or(id).to_string();
    let id = if module.build_id.is_empty() { "none".to_string() } else { brief(&module.build_id) };
    if let Some(file) = rejected.first() {
        let other = identity::section_build_id(file).map_or("none".to_string(), |i| brief(&i));
        return Some(format!(
            "{name} is stripped, and of another build (build id {other}, not {id}): {}",
            file.display()
        ));
    }
    Some(match files.iter().find_map(|f| identity::debug_link(f)) {
        Some(link) => {
            // By build id the link has the file's name alone, without its folder.
            let link = match module.build_id.split_at_checked(2) {
                Some((first, rest)) if link.name == format!("{rest}.debug") => {
                    format!(".build-id/{first}/{}", link.name)
                }
                _ => link.name,
            };
            format!("{name} is stripped, its debug file {link} (build id {id}) not found: --symbols DIR")
        }
        None => format!("{name} is stripped (build id {id}): give its debug file by --symbols DIR"),
    })
}
