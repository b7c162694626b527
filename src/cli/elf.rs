//! What an ELF file says of itself: how it is linked, what it exports.

use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result};
use object::read::ReadCache;
use object::read::elf::{Dyn, ElfFile64, FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectSymbol, elf};

/// The facts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// It has a dynamic loader, which reads LD_PRELOAD.
    pub dynamic: bool,
    /// A file for another processor or word size.
    pub foreign: bool,
    /// Names of the libraries it is linked with.
    pub needed: Vec<String>,
    /// Names it exports.
    pub exports: Vec<String>,
    /// Versions of glibc that it speaks of, as (major, minor).
    pub glibc: Vec<(u32, u32)>,
}

/// Reads an ELF file; `None` if it is none (a script, say).
pub fn read(path: &Path) -> Result<Option<Facts>> {
    let what = || path.display().to_string();
    let file = File::open(path).with_context(what)?;
    let cache = ReadCache::new(file);
    let mut head = [0u8; 20];
    {
        use object::read::ReadRef;
        match (&cache).read_bytes_at(0, 20) {
            Ok(bytes) => head.copy_from_slice(bytes),
            Err(()) => return Ok(None),
        }
    }
    if head[..4] != *b"\x7fELF" {
        return Ok(None);
    }
    let machine = if cfg!(target_arch = "aarch64") { elf::EM_AARCH64 } else { elf::EM_X86_64 };
    if head[4] != 2 || u16::from_le_bytes([head[18], head[19]]) != machine.0 {
        return Ok(Some(Facts { foreign: true, ..Facts::default() }));
    }
    let file = ElfFile64::<Endianness, _>::parse(&cache).with_context(what)?;
    let endian = file.endian();
    let header = file.elf_header();
    let mut facts = Facts::default();
    for segment in header.program_headers(endian, &cache).with_context(what)? {
        facts.dynamic |= segment.p_type(endian) == elf::PT_INTERP;
    }
    let sections = file.elf_section_table();
    if let Some((entries, link)) = sections.dynamic(endian, &cache).with_context(what)? {
        let strings = sections.strings(endian, &cache, link).with_context(what)?;
        for entry in entries.iter().filter(|d| d.tag(endian) == elf::DT_NEEDED) {
            let name = entry.string(endian, strings).with_context(what)?;
            facts.needed.push(String::from_utf8_lossy(name).into_owned());
        }
    }
    let exported = file.dynamic_symbols().filter(|s| s.is_definition());
    facts.exports = exported.filter_map(|s| s.name().ok().map(str::to_string)).collect();
    if let Some(section) = file.section_by_name_bytes(b".dynstr") {
        use object::ObjectSection;
        facts.glibc = versions(section.data().with_context(what)?);
    }
    Ok(Some(facts))
}

/// The `GLIBC_2.34` in a table of strings.
fn versions(strings: &[u8]) -> Vec<(u32, u32)> {
    let number = |s: &str| {
        let (major, minor) = s.strip_prefix("GLIBC_")?.split_once('.')?;
        Some((major.parse().ok()?, minor.split('.').next()?.parse().ok()?))
    };
    let mut found: Vec<_> = strings.split(|b| *b == 0).filter_map(|s| number(std::str::from_utf8(s).ok()?)).collect();
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program() {
        let facts = read(&std::env::current_exe().unwrap()).unwrap().unwrap();
        assert!(facts.dynamic && !facts.foreign);
        assert!(facts.needed.iter().any(|n| n.starts_with("libc.so")), "{:?}", facts.needed);
        assert!(!facts.glibc.is_empty());
    }

    #[test]
    fn a_script_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("script");
        std::fs::write(&path, "#!/bin/sh\necho a script that is long enough\n").unwrap();
        assert_eq!(read(&path).unwrap(), None);
        std::fs::write(&path, "").unwrap();
        assert_eq!(read(&path).unwrap(), None);
        assert!(read(Path::new("/nowhere/at/all")).is_err());
    }

    #[test]
    fn glibc_versions() {
        assert_eq!(versions(b"\0GLIBC_2.34\0memcpy\0GLIBC_2.2.5\0GLIBC_PRIVATE\0"), [(2, 2), (2, 34)]);
    }
}
