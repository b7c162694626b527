//! Who goes past us: loaded objects whose reference to a hooked name is bound to somebody else. RTLD_DEEPBIND does that, and
//! so does a definition of the object's own. For `vramscope doctor`; nothing else looks.

use std::ffi::{CStr, c_int, c_void};

use crate::hooks::NAMES;
use crate::modules;
use crate::unwind::module;

#[repr(C)]
struct Rela {
    offset: u64,
    info: u64,
    addend: i64,
}

#[repr(C)]
struct Sym {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: u64,
    size: u64,
}

/// What an object's dynamic section says of its references.
#[derive(Default)]
struct Tables {
    symbols: u64,
    strings: u64,
    relocations: [(u64, u64); 2],
}

/// Calls `found` with the object's path, the name, and the path of what the name is bound to there.
pub fn each(found: &mut dyn FnMut(&str, &str, &str)) {
    let mut state = found;
    // SAFETY: the callback gets the pointer back, and no object goes away while the loader's lock is held.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut state).cast()) };
}

unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, state: *mut c_void) -> c_int {
    // SAFETY: what `each` gave.
    let found = unsafe { &mut *state.cast::<&mut dyn FnMut(&str, &str, &str)>() };
    // SAFETY: the loader's structure.
    let info = unsafe { &*info };
    // SAFETY: the loader's C string.
    let path = unsafe { CStr::from_ptr(info.dlpi_name) }.to_string_lossy().into_owned();
    let path = if path.is_empty() { crate::settings::program_path() } else { path };
    let file = path.rsplit('/').next().unwrap_or("");
    // The driver's references to itself, and the loader, are not calls of a program.
    if file.starts_with("libcuda.so") || file.starts_with("ld-linux") || file.starts_with("linux-vdso") {
        return 0;
    }
    // SAFETY: as many headers as the loader says.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum as usize) };
    let Some(dynamic) = headers.iter().find(|h| h.p_type == libc::PT_DYNAMIC) else { return 0 };
    // SAFETY: the object's dynamic section, mapped.
    let tables = unsafe { read(info.dlpi_addr, dynamic.p_vaddr) };
    if tables.symbols == 0 || tables.strings == 0 {
        return 0;
    }
    let own = modules::own_range();
    for (at, bytes) in tables.relocations {
        for i in 0..bytes / size_of::<Rela>() as u64 {
            // SAFETY: within the table that the dynamic section names.
            let r = unsafe { &*((at as *const Rela).add(i as usize)) };
            // R_X86_64_64, GLOB_DAT, JUMP_SLOT
            if !matches!(r.info as u32, 1 | 6 | 7) {
                continue;
            }
            // SAFETY: a symbol of the object.
            let symbol = unsafe { &*((tables.symbols as *const Sym).add((r.info >> 32) as usize)) };
            // SAFETY: its name in the string table.
            let name = unsafe { CStr::from_ptr((tables.strings + u64::from(symbol.name)) as *const _) };
            if name != c"dlsym" && !NAMES.contains(&name) {
                continue;
            }
            // SAFETY: the slot that the relocation fills.
            let bound = unsafe { *((info.dlpi_addr + r.offset) as *const u64) };
            // Not bound yet: a call through it will find us, or will not; nobody knows.
            let Some(target) = module::find(bound).filter(|m| !own.contains(&m.start)) else { continue };
            let lazy = module::find(info.dlpi_addr + r.offset).is_some_and(|m| m.start == target.start);
            if lazy && symbol.section == 0 {
                continue;
            }
            let mut text = [0u8; 512];
            let (n, _) = module::describe(&target, &mut text, &mut [0u8; 64]);
            found(&path, &name.to_string_lossy(), &String::from_utf8_lossy(&text[..n]));
        }
    }
    0
}

/// # Safety
/// The dynamic section of a loaded object.
unsafe fn read(base: u64, vaddr: u64) -> Tables {
    let mut t = Tables::default();
    let mut at = (base + vaddr) as *const [u64; 2];
    loop {
        // SAFETY: entries up to the null tag.
        let [tag, value] = unsafe { *at };
        // glibc stores addresses in place of offsets, but not in read-only sections.
        let address = if value < base { base + value } else { value };
        match tag {
            0 => return t,
            5 => t.strings = address,
            6 => t.symbols = address,
            7 => t.relocations[0].0 = address,
            8 => t.relocations[0].1 = value,
            23 => t.relocations[1].0 = address,
            2 => t.relocations[1].1 = value,
            _ => {}
        }
        // SAFETY: as above.
        at = unsafe { at.add(1) };
    }
}
