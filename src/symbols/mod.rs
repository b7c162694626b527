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
mod packs;
pub mod readable;
pub mod shorten;
mod source;
mod template;

use cache::Cache;
use find::Places;
use look_up::Job;
use source::Source;

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
        let (mut numbers, mut jobs, mut touched) = (Vec::new(), Vec::new(), Vec::new());
        for (number, mut offsets) in by_module {
            offsets.sort_unstable();
            offsets.dedup();
            let Some(module) = modules.get(&number) else {
                self.known.extend(offsets.into_iter().map(|o| ((number, o), Vec::new())));
                continue;
            };
            let (places, cache) = (&self.places, &self.cache);
            let source = self.sources.entry(number).or_insert_with(|| Source::of(module, places, cache));
            offsets.retain(|offset| match source.known(*offset) {
                Some(names) => {
                    source.asked += 1;
                    source.nameless += usize::from(names.is_empty());
                    self.known.insert((number, *offset), names);
                    false
                }
                None => true,
            });
            touched.push(number);
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
                let names = source.kept.learn(offset, names);
                source.asked += 1;
                source.nameless += usize::from(names.is_empty());
                self.known.insert((number, offset), names);
            }
            if let Some(module) = modules.get(&number) {
                self.cache.save(&module.build_id, &source.kept);
            }
        }
        touched.into_iter().for_each(|number| self.say_if_stripped(number));
    }

    /// Notes that most of a module's names are missing, or no longer does.
    fn say_if_stripped(&mut self, number: u32) {
        let Some(source) = self.sources.get_mut(&number) else { return };
        let Some(note) = &source.stripped else { return };
        let most = source.nameless * 2 > source.asked;
        if most && !source.said {
            self.notes.push(note.clone());
            source.said = true;
        } else if let Some(at) = self.notes.iter().position(|n| n == note).filter(|_| !most && source.said) {
            // The names of a later list are there.
            self.notes.remove(at);
            source.said = false;
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
        let kept = Name { function: "kept".into(), line: 1, ..Name::default() };
        entry.names.insert(address + 1, vec![kept]);
        cache.save(&module.build_id, &entry);
        let kept = ask(address + 1);
        assert_eq!(kept.0[0].function, "kept");
        // Of the same build in another file, a name with its line stays true.
        let file = std::fs::File::options().append(true).open(&copy).unwrap();
        file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(ask(address + 1), kept);
        std::fs::remove_file(&copy).unwrap();
        assert_eq!(ask(address + 1), kept);
        let (none, notes) = ask(address + 2);
        assert!(none.is_empty() && notes.len() == 1, "{notes:?}");
    }

    /// A program in this folder with a build id, without symbols, and its debug file; `None` without a compiler.
    fn built(folder: &std::path::Path, debug: &str, link: bool) -> Option<(Module, u64)> {
        let run = |program: &str, arguments: &[&str]| {
            let out = std::process::Command::new(program).current_dir(folder).args(arguments).output().ok()?;
            out.status.success().then_some(())
        };
        let text = "__attribute__((noinline)) int work(int a) { return a + 1; }\nint main(int n, char **v) { return work(n); }\n";
        std::fs::write(folder.join("app.c"), text).unwrap();
        run("cc", &["-g", "-O0", "-Wl,--build-id", "-o", "app", "app.c"])?;
        run("objcopy", &["--only-keep-debug", "app", debug])?;
        use object::{Object, ObjectSymbol};
        let data = std::fs::read(folder.join("app")).unwrap();
        let address =
            object::File::parse(&*data).unwrap().symbols().find(|s| s.name() == Ok("work")).unwrap().address();
        run("strip", &["app"])?;
        if link {
            run("objcopy", &[&format!("--add-gnu-debuglink={debug}"), "app"])?;
        }
        let path = folder.join("app");
        let id = identity::section_build_id(&path)?;
        Some((Module { module: 1, path: path.display().to_string(), build_id: id, ..Module::default() }, address + 1))
    }

    #[test]
    fn a_stripped_file_loses_no_names_and_says_what_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let (dbg, cache) = (folder.path().join("dbg"), Cache::at(&folder.path().join("cache")));
        std::fs::create_dir(&dbg).unwrap();
        let Some((module, address)) = built(folder.path(), "app.debug", true) else { return };
        let modules = BTreeMap::from([(1, module.clone())]);
        let ask = |folders: &[PathBuf], cache: &Cache| {
            let places = Places { folders: folders.to_vec(), ..Places::default() };
            let mut names = Names::with(places, cache.clone());
            names.resolve(&modules, [(1, address)]);
            names.resolve(&modules, [(1, address)]);
            let name = names.at(1, address).first().map(|n| (n.function.clone(), n.line > 0));
            (name, names.notes)
        };
        let good = (Some(("work".to_string(), true)), Vec::new());
        // By the debug link, then without it: the cache has the names.
        assert_eq!(ask(&[], &cache), good);
        std::fs::rename(folder.path().join("app.debug"), dbg.join("app.debug")).unwrap();
        for _ in 0..2 {
            assert_eq!(ask(&[], &cache), good);
        }
        assert_eq!(ask(std::slice::from_ref(&dbg), &Cache::off()), good);
        let id = &module.build_id[..8];
        let missing = format!("app is stripped, its debug file app.debug (build id {id}) not found: --symbols DIR");
        assert_eq!(ask(&[], &Cache::off()), (None, vec![missing]));
        // The cache is not poisoned by a look without the debug file either.
        let other = Cache::at(&folder.path().join("other"));
        assert_eq!(ask(&[], &other).0, None);
        assert_eq!(ask(std::slice::from_ref(&dbg), &other), good);
        assert_eq!(ask(&[], &other), good);
        std::fs::remove_file(dbg.join("app.debug")).unwrap();
        std::fs::copy(std::env::current_exe().unwrap(), dbg.join("app.debug")).unwrap();
        let (none, notes) = ask(std::slice::from_ref(&dbg), &Cache::off());
        assert!(none.is_none() && notes.len() == 1, "{notes:?}");
        assert!(notes[0].contains("another build") && notes[0].ends_with("dbg/app.debug"), "{notes:?}");
    }

    /// Distributions name a debug file by its build id, below a folder of its first two digits.
    #[test]
    fn a_debug_file_that_is_named_by_build_id_is_told_with_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        // The link names the file; what it is called when the module was built does not matter.
        let Some((module, address)) = built(folder.path(), "app.debug", true) else { return };
        std::fs::remove_file(folder.path().join("app.debug")).unwrap();
        let named = |build_id: &str| {
            let module = Module { build_id: build_id.into(), ..module.clone() };
            source::stripped(&module, &[PathBuf::from(&module.path)], &[])
        };
        assert!(address > 0 && named("28app").unwrap().contains("its debug file .build-id/28/app.debug ("));
        assert!(named("28ap").unwrap().contains("its debug file app.debug ("));
    }

    #[test]
    fn a_stripped_file_without_a_debug_link() {
        let folder = tempfile::tempdir().unwrap();
        let Some((module, address)) = built(folder.path(), "far.debug", false) else { return };
        let modules = BTreeMap::from([(1, module.clone())]);
        let mut names = Names::with(Places::default(), Cache::off());
        names.resolve(&modules, [(1, address)]);
        let id = &module.build_id[..8];
        let note = format!("app is stripped (build id {id}): give its debug file by --symbols DIR");
        assert_eq!(names.notes, [note]);
    }
}
