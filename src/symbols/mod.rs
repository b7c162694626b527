//! Addresses to names, offline: a history holds modules (path and build id) and offsets, and the names are read from
//! the files when a person asks. Nothing here fails: a frame without a name is `libfoo.so+0x1234`.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use vramscope_core::trace::Module;
pub use vramscope_core::trace::Name;

pub mod cache;
pub mod demangle;
pub mod find;
pub mod identity;
pub mod look_up;
pub mod readable;
pub mod shorten;

use cache::{Cache, Entry, Stamp};
use find::{Found, Places};
use look_up::Job;

/// Modules whose names nobody misses.
const UNMISSED: [&str; 5] = ["[", "linux-vdso", "libvramscope.so", "libcuda.so", "libcudart.so"];

/// The names of one history's addresses, found as they are asked for and kept.
pub struct Names {
    places: Places,
    cache: Cache,
    sources: HashMap<u32, Source>,
    known: HashMap<(u32, u64), Vec<Name>>,
    /// File names of the modules that are gone or are not those that ran.
    pub missing: Vec<String>,
    /// What a person should know: files that are gone or are not those that ran.
    pub notes: Vec<String>,
}

/// Where a module's names come from.
#[derive(Default)]
struct Source {
    files: Vec<PathBuf>,
    bytes: u64,
    /// What the cache holds, with what is found now.
    kept: Entry,
    /// What to say if a name is missing, once.
    note: Option<String>,
}

impl Names {
    /// Names from the modules' files, and from these folders first. Those found before come from the user's cache.
    pub fn new(folders: &[PathBuf]) -> Names {
        // Unit tests leave the home of who runs them alone.
        let cache = if cfg!(test) { Cache::off() } else { Cache::of_user() };
        Names::with(Places::of_system(folders), cache)
    }

    /// Names from files in these places, kept in this cache.
    pub fn with(places: Places, cache: Cache) -> Names {
        let (sources, known) = (HashMap::new(), HashMap::new());
        Names { places, cache, sources, known, missing: Vec::new(), notes: Vec::new() }
    }

    /// Looks up these return addresses, several modules at a time.
    pub fn resolve(&mut self, modules: &BTreeMap<u32, Module>, wanted: impl IntoIterator<Item = (u32, u64)>) {
        let mut by_module: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        for (module, offset) in wanted {
            if !self.known.contains_key(&(module, offset)) {
                by_module.entry(module).or_default().push(offset);
            }
        }
        let (mut numbers, mut jobs) = (Vec::new(), Vec::new());
        for (number, mut offsets) in by_module {
            offsets.sort_unstable();
            offsets.dedup();
            let Some(module) = modules.get(&number) else {
                self.known.extend(offsets.into_iter().map(|o| ((number, o), Vec::new())));
                continue;
            };
            let (places, cache) = (&self.places, &self.cache);
            let source = self.sources.entry(number).or_insert_with(|| Source::of(module, places, cache));
            offsets.retain(|offset| match source.kept.names.get(offset) {
                Some(names) => {
                    self.known.insert((number, *offset), names.clone());
                    false
                }
                None => true,
            });
            if offsets.is_empty() {
                continue;
            }
            if let Some(note) = source.note.take() {
                self.missing.push(file_name(&module.path).to_string());
                self.notes.push(note);
            }
            jobs.push(Job { files: source.files.clone(), bytes: source.bytes, offsets });
            numbers.push(number);
        }
        let answers = look_up::all(&jobs, &self.places.links());
        for ((number, job), mut answers) in numbers.into_iter().zip(jobs).zip(answers) {
            answers.resize(job.offsets.len(), Vec::new());
            let found = job.offsets.into_iter().zip(answers);
            let Some(source) = self.sources.get_mut(&number).filter(|s| !s.files.is_empty()) else {
                self.known.extend(found.map(|(offset, names)| ((number, offset), names)));
                continue;
            };
            for (offset, names) in found {
                source.kept.names.insert(offset, names.clone());
                self.known.insert((number, offset), names);
            }
            if let Some(module) = modules.get(&number) {
                self.cache.save(&module.build_id, &source.kept);
            }
        }
    }

    /// The names at a resolved address, innermost first; none if nothing is known.
    pub fn at(&self, module: u32, offset: u64) -> &[Name] {
        self.known.get(&(module, offset)).map_or(&[], Vec::as_slice)
    }

    /// The names at a resolved address; `None` if there was no file to find them in.
    pub fn found(&self, module: u32, offset: u64) -> Option<&[Name]> {
        let names = self.at(module, offset);
        let no_file = self.sources.get(&module).is_none_or(|s| s.files.is_empty());
        if names.is_empty() && no_file { None } else { Some(names) }
    }

    /// Takes names that were found before.
    pub fn know(&mut self, names: &HashMap<(u32, u64), Vec<Name>>) {
        self.known.extend(names.iter().map(|(at, names)| (*at, names.clone())));
    }

    /// Says what is at an address, in place of looking it up.
    pub fn insert(&mut self, module: u32, offset: u64, names: Vec<Name>) {
        self.known.insert((module, offset), names);
    }
}

impl Source {
    fn of(module: &Module, places: &Places, cache: &Cache) -> Source {
        let name = file_name(&module.path);
        let kept = cache.load(&module.build_id);
        let note = match places.find(module) {
            Found::Files(files) => {
                let stamps: Vec<Stamp> = files.iter().filter_map(|f| Stamp::of(f)).collect();
                let bytes = stamps.iter().map(Stamp::bytes).sum();
                // Other files than then may know more.
                let kept = kept.filter(|k| k.files == stamps).unwrap_or(Entry { files: stamps, ..Entry::default() });
                return Source { files, bytes, kept, note: None };
            }
            // The kernel's page of code has no file, our own and CUDA's frames are not shown: nobody misses them.
            _ if UNMISSED.iter().any(|m| name.starts_with(m)) || name.is_empty() => None,
            Found::Missing => Some(format!("{name} is not at {}", module.path)),
            Found::Changed => Some(format!("{} is not the file that ran (its build id differs)", module.path)),
        };
        // The file is gone, but what was read from it stays true.
        Source { note, kept: kept.unwrap_or_default(), ..Source::default() }
    }
}

/// The last part of a path.
pub fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// This test's own module and the offset of a place in it, found in the file's own symbol table.
    pub(crate) fn own_symbol(part: &str) -> (Module, u64) {
        use object::{Object, ObjectSymbol};
        let path = std::env::current_exe().unwrap();
        let data = std::fs::read(&path).unwrap();
        let file = object::File::parse(&*data).unwrap();
        let code = |s: &object::Symbol| s.kind() == object::SymbolKind::Text && s.size() > 1;
        let symbol = file.symbols().find(|s| code(s) && s.name().is_ok_and(|n| n.contains(part))).unwrap();
        let id = file.build_id().unwrap().unwrap_or_default().iter().map(|b| format!("{b:02x}")).collect();
        (Module { module: 3, path: path.display().to_string(), build_id: id, ..Module::default() }, symbol.address())
    }

    #[test]
    fn a_function_of_our_own() {
        let (module, address) = own_symbol("a_function_of_our_own");
        let modules = BTreeMap::from([(3, module)]);
        let mut names = Names::new(&[]);
        names.resolve(&modules, [(3, address + 1), (3, 1 << 40), (9, 5)]);
        let found = names.at(3, address + 1);
        assert!(found.last().unwrap().function.contains("a_function_of_our_own"), "{found:?}");
        assert!(found.iter().any(|n| n.file.ends_with("symbols/mod.rs") && n.line > 0), "{found:?}");
        assert!(names.at(3, 1 << 40).is_empty() && names.at(9, 5).is_empty());
        assert!(names.notes.is_empty());
    }

    #[test]
    fn a_file_that_is_gone_is_said_once() {
        let module = Module { module: 1, path: "/gone/libx.so".into(), build_id: "aa".into(), ..Module::default() };
        let modules = BTreeMap::from([(1, module)]);
        let mut names = Names::new(&[]);
        names.resolve(&modules, [(1, 16)]);
        names.resolve(&modules, [(1, 32)]);
        assert_eq!(names.notes, ["libx.so is not at /gone/libx.so"]);
    }

    #[test]
    fn names_outlive_their_file_in_the_cache() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(&folder.path().join("cache"));
        let (mut module, address) = own_symbol("names_outlive_their_file_in_the_cache");
        let copy = folder.path().join("copy");
        std::fs::copy(&module.path, &copy).unwrap();
        module.path = copy.display().to_string();
        let modules = BTreeMap::from([(3, module.clone())]);
        let ask = |offset| {
            let mut names = Names::with(Places::default(), cache.clone());
            names.resolve(&modules, [(3, offset)]);
            (names.at(3, offset).to_vec(), names.notes)
        };
        let first = ask(address + 1);
        assert!(!first.0.is_empty() && first.1.is_empty());
        // What the cache says is believed as long as the file is the same.
        let mut entry = cache.load(&module.build_id).unwrap();
        entry.names.insert(address + 1, vec![Name { function: "kept".into(), ..Name::default() }]);
        cache.save(&module.build_id, &entry);
        assert_eq!(ask(address + 1).0[0].function, "kept");
        std::fs::File::options()
            .append(true)
            .open(&copy)
            .unwrap()
            .set_modified(std::time::SystemTime::UNIX_EPOCH)
            .unwrap();
        assert_eq!(ask(address + 1), first);
        std::fs::remove_file(&copy).unwrap();
        assert_eq!(ask(address + 1), first);
        let (none, notes) = ask(address + 2);
        assert!(none.is_empty() && notes.len() == 1, "{notes:?}");
    }
}
