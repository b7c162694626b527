//! Addresses to names, offline: a history holds modules (path and build id) and offsets, and the names are read from
//! the files when a person asks. Nothing here fails: a frame without a name is `libfoo.so+0x1234`.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{CodeInfo, Input, Sym, Symbolized, Symbolizer};
use vramscope_core::trace::Module;

pub mod find;
pub mod shorten;

use find::Found;

/// A function at an address. One address has several where functions were inlined, innermost first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Name {
    /// The function, demangled; empty if it is not known.
    pub function: String,
    /// Path of the source file; empty if it is not known.
    pub file: String,
    /// Line in it, 0 if it is not known.
    pub line: u32,
    /// Inlined into the next one.
    pub inlined: bool,
}

/// Modules whose names nobody misses.
const UNMISSED: [&str; 5] = ["[", "linux-vdso", "libvramscope.so", "libcuda.so", "libcudart.so"];

/// The names of one history's addresses, found as they are asked for and kept.
pub struct Names {
    folders: Vec<PathBuf>,
    symbolizer: Symbolizer,
    files: HashMap<u32, Option<PathBuf>>,
    known: HashMap<(u32, u64), Vec<Name>>,
    /// What a person should know: files that are gone or are not those that ran.
    pub notes: Vec<String>,
}

impl Names {
    /// Names from the modules' files, and from these folders first.
    pub fn new(folders: &[PathBuf]) -> Names {
        Names {
            folders: folders.to_vec(),
            symbolizer: Symbolizer::builder()
                .enable_code_info(true)
                .enable_inlined_fns(true)
                .enable_demangling(true)
                .build(),
            files: HashMap::new(),
            known: HashMap::new(),
            notes: Vec::new(),
        }
    }

    /// Looks up these return addresses, a module at a time.
    pub fn resolve(&mut self, modules: &BTreeMap<u32, Module>, wanted: impl IntoIterator<Item = (u32, u64)>) {
        let mut by_module: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        for (module, offset) in wanted {
            if !self.known.contains_key(&(module, offset)) {
                by_module.entry(module).or_default().push(offset);
            }
        }
        for (number, mut offsets) in by_module {
            offsets.sort_unstable();
            offsets.dedup();
            let names = match modules.get(&number).and_then(|m| self.file(m)) {
                Some(path) => look_up(&self.symbolizer, &path, &offsets),
                None => Vec::new(),
            };
            for (i, offset) in offsets.into_iter().enumerate() {
                self.known.insert((number, offset), names.get(i).cloned().unwrap_or_default());
            }
        }
    }

    /// The names at a resolved address, innermost first; none if nothing is known.
    pub fn at(&self, module: u32, offset: u64) -> &[Name] {
        self.known.get(&(module, offset)).map_or(&[], Vec::as_slice)
    }

    /// Says what is at an address, in place of looking it up.
    pub fn insert(&mut self, module: u32, offset: u64, names: Vec<Name>) {
        self.known.insert((module, offset), names);
    }

    fn file(&mut self, module: &Module) -> Option<PathBuf> {
        if let Some(known) = self.files.get(&module.module) {
            return known.clone();
        }
        let name = file_name(&module.path);
        let (file, note) = match find::find(module, &self.folders) {
            Found::File(path) => (Some(path), None),
            // The kernel's page of code has no file, our own and CUDA's frames are not shown: nobody misses them.
            _ if UNMISSED.iter().any(|m| name.starts_with(m)) || name.is_empty() => (None, None),
            Found::Missing => (None, Some(format!("{name} is not at {}", module.path))),
            Found::Changed => (None, Some(format!("{} is not the file that ran (its build id differs)", module.path))),
        };
        self.notes.extend(note);
        self.files.insert(module.module, file.clone());
        file
    }
}

/// The last part of a path.
pub fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn look_up(symbolizer: &Symbolizer, path: &Path, offsets: &[u64]) -> Vec<Vec<Name>> {
    // A return address is behind its call, and may be the first of the next function.
    let calls: Vec<u64> = offsets.iter().map(|o| o.saturating_sub(1)).collect();
    let source = Source::Elf(Elf::new(path));
    let Ok(found) = symbolizer.symbolize(&source, Input::VirtOffset(&calls)) else { return Vec::new() };
    found
        .into_iter()
        .map(|s| match s {
            Symbolized::Sym(sym) => names(&sym),
            Symbolized::Unknown(_) => Vec::new(),
        })
        .collect()
}

/// A symbol with what was inlined into it, innermost first. Each inlined function's place is that of the code in it.
fn names(sym: &Sym) -> Vec<Name> {
    let name = |function: &str, code: Option<&CodeInfo>, inlined| Name {
        function: function.to_string(),
        file: code.map(|c| c.to_path().display().to_string()).unwrap_or_default(),
        line: code.and_then(|c| c.line).unwrap_or(0),
        inlined,
    };
    let outer = name(&sym.name, sym.code_info.as_deref(), false);
    let inlined = sym.inlined.iter().map(|f| name(&f.name, f.code_info.as_ref(), true));
    let mut all: Vec<Name> = std::iter::once(outer).chain(inlined).collect();
    all.reverse();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This test's own module and the offset of a place in it, found in the file's own symbol table.
    fn own_symbol(part: &str) -> (Module, u64) {
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
}
