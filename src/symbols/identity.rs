//! What tells whether an ELF file is the one that ran, or the debug file that was made of it: build ids, and the name
//! and checksum of a debug link.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use object::Endian;
use object::elf::{FileHeader64, NT_GNU_BUILD_ID};
use object::read::ReadCache;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};

/// The name and the checksum of the debug file that a stripped file refers to (`.gnu_debuglink`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DebugLink {
    /// File name, without a folder.
    pub name: String,
    /// CRC-32 of the whole debug file.
    pub checksum: u32,
}

/// Whether the file has this build id. One without, recorded so, can't be told apart: it is believed.
pub fn same(path: &Path, recorded: &str) -> bool {
    let now = section_build_id(path);
    now.as_deref().unwrap_or_default().eq_ignore_ascii_case(recorded)
        || loaded_build_ids(path).iter().any(|id| id.eq_ignore_ascii_case(recorded))
}

/// The build id in a file's section for it.
pub fn section_build_id(path: &Path) -> Option<String> {
    blazesym::helper::read_elf_build_id(&path).ok().flatten().map(|id| text(&id))
}

fn text(id: &[u8]) -> String {
    id.iter().map(|b| format!("{b:02x}")).collect()
}

/// The build ids in the parts of a file that are loaded. Tools that rewrite libraries (patchelf, as Python wheels are
/// made) may leave the section and the loaded note with different ones, and the process saw the loaded one.
fn loaded_build_ids(path: &Path) -> Vec<String> {
    let read = || -> Option<Vec<String>> {
        let data = ReadCache::new(File::open(path).ok()?);
        let header = FileHeader64::<object::Endianness>::parse(&data).ok()?;
        let endian = header.endian().ok()?;
        let mut ids = Vec::new();
        for segment in header.program_headers(endian, &data).ok()? {
            let Ok(Some(mut notes)) = segment.notes(endian, &data) else { continue };
            while let Ok(Some(note)) = notes.next() {
                if note.name() == b"GNU" && note.n_type(endian) == NT_GNU_BUILD_ID {
                    ids.push(text(note.desc()));
                }
            }
        }
        Some(ids)
    };
    read().unwrap_or_default()
}

/// Whether a file has neither a table of all its symbols nor debug information.
pub fn stripped(path: &Path) -> bool {
    let read = || -> Option<bool> {
        let data = ReadCache::new(File::open(path).ok()?);
        let header = FileHeader64::<object::Endianness>::parse(&data).ok()?;
        let endian = header.endian().ok()?;
        let sections = header.sections(endian, &data).ok()?;
        let names: [&[u8]; 3] = [b".symtab", b".debug_info", b".gnu_debugdata"];
        Some(names.iter().all(|n| sections.section_by_name(endian, n).is_none()))
    };
    read().unwrap_or(false)
}

/// A file's debug link, if it has one. (Reads no more than the table of sections and this one.)
pub fn debug_link(path: &Path) -> Option<DebugLink> {
    let data = ReadCache::new(File::open(path).ok()?);
    let header = FileHeader64::<object::Endianness>::parse(&data).ok()?;
    let endian = header.endian().ok()?;
    let (_, section) = header.sections(endian, &data).ok()?.section_by_name(endian, b".gnu_debuglink")?;
    let bytes = section.data(endian, &data).ok()?;
    let end = bytes.iter().position(|b| *b == 0)?;
    let name = std::str::from_utf8(&bytes[..end]).ok()?;
    // The checksum comes at the next multiple of four behind the name's end.
    let sum: [u8; 4] = bytes.get((end + 4) / 4 * 4..)?.get(..4)?.try_into().ok()?;
    // A name with folders in it is nobody's debug link.
    let checksum = if endian.is_little_endian() { u32::from_le_bytes(sum) } else { u32::from_be_bytes(sum) };
    (!name.is_empty() && !name.contains('/')).then(|| DebugLink { name: name.to_string(), checksum })
}

/// The checksum that debug links have of a file: CRC-32 as in gzip. Reads all of it.
pub fn checksum(path: &Path) -> Option<u32> {
    let mut file = File::open(path).ok()?;
    let mut buffer = vec![0u8; 256 << 10];
    let mut crc = !0u32;
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Some(!crc),
            Ok(n) => crc = buffer[..n].iter().fold(crc, |crc, b| TABLE[usize::from(crc as u8 ^ b)] ^ (crc >> 8)),
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
}

static TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        let mut crc = i as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { 0xedb8_8320 ^ (crc >> 1) } else { crc >> 1 };
            bit += 1;
        }
        table[i] = crc;
        i += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_gzip() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("digits");
        std::fs::write(&path, "123456789").unwrap();
        assert_eq!(checksum(&path), Some(0xcbf4_3926));
        assert_eq!(checksum(&folder.path().join("none")), None);
    }

    #[test]
    fn what_is_no_elf_file_has_no_identity() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        std::fs::write(&path, "no program").unwrap();
        assert!(!same(&path, "abcd") && same(&path, ""));
        assert_eq!(debug_link(&path), None);
    }
}
