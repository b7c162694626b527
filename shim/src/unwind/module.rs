//! Loaded libraries: which one holds an address, and what it is called.
//!
//! glibc 2.35 and later answer by `_dl_find_object`, without a lock (16 ns). Before that there is
//! only `dl_iterate_phdr`, which takes the loader's lock (2.4 us with 91 libraries), so that it is
//! asked on misses only.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null;
use std::sync::atomic::{AtomicPtr, Ordering::*};

use super::memory::{is_readable, is_readable_through};

/// A loaded library, the program itself or the kernel's vDSO. Plain numbers, valid while it is loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Module {
    /// Where it begins in memory. With `end` also its name in the history: unique while loaded.
    pub start: u64,
    /// Where it ends in memory.
    pub end: u64,
    /// What must be taken from an address to get the one in the file (the loader's `l_addr`).
    pub bias: u64,
    /// The loader's `struct link_map`, or null where only `dl_iterate_phdr` is there to ask.
    pub link_map: *const c_void,
    /// Its .eh_frame_hdr, or 0.
    pub(super) eh_frame_hdr: u64,
}

/// glibc's `struct dl_find_object`.
#[repr(C)]
struct FoundObject {
    flags: u64,
    map_start: u64,
    map_end: u64,
    link_map: *const LinkMap,
    eh_frame: u64,
    reserved: [u64; 7],
}

/// The public beginning of the loader's `struct link_map`.
#[repr(C)]
struct LinkMap {
    addr: u64,
    name: *const c_char,
}

type FindObject = unsafe extern "C" fn(*mut c_void, *mut FoundObject) -> c_int;

/// `_dl_find_object`, or null.
static FIND_OBJECT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// Notes the loader's `_dl_find_object`.
///
/// # Safety
/// It is that function, or null.
pub(super) unsafe fn set_find_object(function: *mut c_void) {
    FIND_OBJECT.store(function, Relaxed);
}

/// Which module holds the code at `pc`.
#[inline]
pub fn find(pc: u64) -> Option<Module> {
    let function = FIND_OBJECT.load(Relaxed);
    if function.is_null() {
        return find_in_list(pc);
    }
    // SAFETY: `set_find_object`'s caller says that this is the loader's function.
    let function: FindObject = unsafe { std::mem::transmute(function) };
    let mut found = FoundObject { flags: 0, map_start: 0, map_end: 0, link_map: null(), eh_frame: 0, reserved: [0; 7] };
    // SAFETY: the structure is glibc's; any address may be asked for.
    if unsafe { function(pc as *mut c_void, &mut found) } != 0 {
        return None;
    }
    // SAFETY: the loader gives the link map of an object that is loaded; the caller's frame (or a
    // `Scan`) keeps it so.
    let bias = unsafe { (*found.link_map).addr };
    Some(Module {
        start: found.map_start,
        end: found.map_end,
        bias,
        link_map: found.link_map.cast(),
        eh_frame_hdr: found.eh_frame,
    })
}

/// The same from the loader's list.
#[cold]
#[inline(never)]
pub(super) fn find_in_list(pc: u64) -> Option<Module> {
    let mut found = None;
    each_object(&mut |object| {
        let mut module = Module { start: u64::MAX, end: 0, bias: object.dlpi_addr, link_map: null(), eh_frame_hdr: 0 };
        let mut holds = false;
        for header in headers_of(object) {
            let start = object.dlpi_addr.wrapping_add(header.p_vaddr);
            if header.p_type == libc::PT_LOAD {
                let end = start.wrapping_add(header.p_memsz);
                module.start = module.start.min(start & !0xfff);
                module.end = module.end.max(end);
                holds |= start <= pc && pc < end;
            } else if header.p_type == libc::PT_GNU_EH_FRAME {
                module.eh_frame_hdr = start;
            }
        }
        if holds {
            found = Some(module);
        }
        holds as c_int
    });
    found
}

fn headers_of(object: &libc::dl_phdr_info) -> &[libc::Elf64_Phdr] {
    if object.dlpi_phdr.is_null() {
        return &[];
    }
    // SAFETY: the loader gives the headers and their number, valid while it holds its lock.
    unsafe { std::slice::from_raw_parts(object.dlpi_phdr, usize::from(object.dlpi_phnum)) }
}

/// Calls `visit` with each loaded object until it answers other than 0. It must not panic.
pub fn each_object(visit: &mut dyn FnMut(&libc::dl_phdr_info) -> c_int) {
    type Visit<'a> = &'a mut dyn FnMut(&libc::dl_phdr_info) -> c_int;

    unsafe extern "C" fn call(object: *mut libc::dl_phdr_info, _size: usize, visit: *mut c_void) -> c_int {
        // SAFETY: it is the pointer given to `dl_iterate_phdr` below.
        let visit = unsafe { &mut *visit.cast::<Visit>() };
        // SAFETY: the loader's structure, valid during this call.
        visit(unsafe { &*object })
    }

    let mut visit: Visit = visit;
    let pointer: *mut Visit = &mut visit;
    // SAFETY: `call` gets back what is given here, during this call only.
    unsafe { libc::dl_iterate_phdr(Some(call), pointer.cast()) };
}

/// How many objects were ever loaded, and how many unloaded (25 ns: the first entry of the loader's list has both).
pub fn counts() -> (u64, u64) {
    let mut counts = (0, 0);
    each_object(&mut |object| {
        counts = (object.dlpi_adds, object.dlpi_subs);
        1
    });
    counts
}

/// Writes the module's path and build id and tells how long they are (0: unknown, or no room).
///
/// The path is what the loader knows, relative if it was loaded so; the program's own is asked of
/// the kernel. No heap and, with `_dl_find_object`, no lock. `module` must still be loaded.
#[cold]
#[inline(never)]
pub fn describe(module: &Module, path: &mut [u8], build_id: &mut [u8; 64]) -> (usize, usize) {
    if let Some(headers) = headers_in_memory(module) {
        // SAFETY: the link map of a loaded module begins like this.
        let link_map = unsafe { module.link_map.cast::<LinkMap>().as_ref() };
        if let Some(link_map) = link_map {
            return (copy_path(link_map.name, path), copy_build_id(module.bias, headers, build_id));
        }
    }
    let mut lengths = (0, 0);
    each_object(&mut |object| {
        let headers = headers_of(object);
        let starts_here = |h: &libc::Elf64_Phdr| {
            h.p_type == libc::PT_LOAD && object.dlpi_addr.wrapping_add(h.p_vaddr) & !0xfff == module.start
        };
        if object.dlpi_addr != module.bias || !headers.iter().any(starts_here) {
            return 0;
        }
        lengths = (copy_path(object.dlpi_name, path), copy_build_id(module.bias, headers, build_id));
        1
    });
    lengths
}

/// The program headers, where the module's first page is that of its file.
fn headers_in_memory(module: &Module) -> Option<&[libc::Elf64_Phdr]> {
    if !is_readable(module.start) {
        return None;
    }
    // SAFETY: the page can be read (just asked), and the header is shorter than a page.
    let header = unsafe { &*(module.start as *const libc::Elf64_Ehdr) };
    let size = size_of::<libc::Elf64_Phdr>();
    if header.e_ident[..4] != *b"\x7fELF" || usize::from(header.e_phentsize) != size {
        return None;
    }
    let start = module.start.checked_add(header.e_phoff)?;
    let end = start.checked_add(u64::from(header.e_phnum) * size as u64)?;
    if start % 8 != 0 || end > module.end || !is_readable_through(start, end) {
        return None;
    }
    // SAFETY: the range can be read (just asked), lies in the module and is aligned.
    Some(unsafe { std::slice::from_raw_parts(start as *const libc::Elf64_Phdr, usize::from(header.e_phnum)) })
}

fn copy_path(name: *const c_char, path: &mut [u8]) -> usize {
    let name = if name.is_null() {
        &[]
    } else {
        // SAFETY: the loader's names end in a zero byte and stay while the module is loaded.
        unsafe { CStr::from_ptr(name) }.to_bytes()
    };
    if name.is_empty() {
        // The program itself has no name there.
        // SAFETY: writes at most the buffer's length.
        let length = unsafe { libc::readlink(c"/proc/self/exe".as_ptr(), path.as_mut_ptr().cast(), path.len()) };
        return match usize::try_from(length) {
            // A full buffer may hold a cut path.
            Ok(length) if length < path.len() => length,
            _ => 0,
        };
    }
    match path.get_mut(..name.len()) {
        Some(room) => {
            room.copy_from_slice(name);
            name.len()
        }
        None => 0,
    }
}

fn copy_build_id(bias: u64, headers: &[libc::Elf64_Phdr], build_id: &mut [u8; 64]) -> usize {
    for header in headers.iter().filter(|h| h.p_type == libc::PT_NOTE) {
        let start = bias.wrapping_add(header.p_vaddr);
        let Some(end) = start.checked_add(header.p_memsz) else { continue };
        // A damaged or unloaded segment must not be read.
        if header.p_memsz > 1 << 20 || !is_readable_through(start, end) {
            continue;
        }
        // SAFETY: the range can be read (just asked).
        let notes = unsafe { std::slice::from_raw_parts(start as *const u8, header.p_memsz as usize) };
        let align = if header.p_align == 8 { 8 } else { 4 };
        if let Some(id) = build_id_in(notes, align)
            && let Some(room) = build_id.get_mut(..id.len())
        {
            room.copy_from_slice(id);
            return id.len();
        }
    }
    0
}

/// The note of type 3 by "GNU".
fn build_id_in(mut notes: &[u8], align: usize) -> Option<&[u8]> {
    const NT_GNU_BUILD_ID: usize = 3;
    let word = |notes: &[u8], i: usize| {
        let bytes = notes.get(i * 4..i * 4 + 4)?.try_into().ok()?;
        Some(u32::from_ne_bytes(bytes) as usize)
    };
    loop {
        let (name_size, size, kind) = (word(notes, 0)?, word(notes, 1)?, word(notes, 2)?);
        let name = notes.get(12..12 + name_size)?;
        let start = (12 + name_size).next_multiple_of(align);
        let value = notes.get(start..start + size)?;
        if kind == NT_GNU_BUILD_ID && name == b"GNU\0" {
            return Some(value);
        }
        notes = notes.get((start + size).next_multiple_of(align)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::set_up;
    use super::*;

    fn name_and_id(pc: u64) -> (String, usize) {
        let module = find(pc).unwrap();
        let listed = find_in_list(pc).unwrap();
        assert_eq!((module.bias, module.eh_frame_hdr), (listed.bias, listed.eh_frame_hdr));
        assert_eq!(module.start, listed.start);
        let (mut path, mut id) = ([0; 4096], [0; 64]);
        let (path_length, id_length) = describe(&module, &mut path, &mut id);
        let (mut path_again, mut id_again) = ([0; 4096], [0; 64]);
        describe(&listed, &mut path_again, &mut id_again);
        assert_eq!((path, id), (path_again, id_again));
        assert!(id_length == 0 || id[..id_length].iter().any(|&b| b != 0));
        (String::from_utf8_lossy(&path[..path_length]).into_owned(), id_length)
    }

    #[test]
    fn the_program_a_library_and_the_vdso_are_known() {
        set_up();
        let program = name_and_id(name_and_id as *const () as u64).0;
        assert_eq!(program, std::env::current_exe().unwrap().to_str().unwrap());
        let (libc, id) = name_and_id(libc::getpid as *const () as u64);
        assert!(libc.ends_with("/libc.so.6"), "{libc}");
        assert_eq!(id, 20);
        // SAFETY: has no preconditions.
        let vdso = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) };
        if vdso != 0 {
            let (name, id) = name_and_id(vdso + 0x100);
            assert!(name.contains("vdso"), "{name}");
            assert_eq!(id, 20);
        }
    }

    #[test]
    fn no_module_holds_the_stack() {
        set_up();
        let local = 0u64;
        assert_eq!(find(&raw const local as u64), None);
        assert_eq!(find_in_list(&raw const local as u64), None);
    }

    #[test]
    fn a_short_buffer_holds_no_half_path() {
        set_up();
        let module = find(libc::getpid as *const () as u64).unwrap();
        assert_eq!(describe(&module, &mut [0; 3], &mut [0; 64]).0, 0);
        let module = find(name_and_id as *const () as u64).unwrap();
        assert_eq!(describe(&module, &mut [0; 3], &mut [0; 64]).0, 0);
    }

    #[test]
    fn damaged_notes_end_the_search() {
        let mut notes = Vec::new();
        notes.extend([4u32, 2, 1].map(u32::to_ne_bytes).concat());
        notes.extend(b"GNU\0xx\0\0");
        notes.extend([4u32, 4, 3].map(u32::to_ne_bytes).concat());
        notes.extend(b"GNU\0abcd");
        assert_eq!(build_id_in(&notes, 4), Some(&b"abcd"[..]));
        for length in 0..notes.len() {
            assert_eq!(build_id_in(&notes[..length], 4), None);
        }
        notes[0] = 0xff;
        notes[3] = 0xff;
        assert_eq!(build_id_in(&notes, 4), None);
    }
}
