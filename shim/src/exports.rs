//! A name in one loaded object's own table of symbols.
//!
//! `dlsym` would take the loader's lock, which another thread may hold while it waits for a lock that our caller holds;
//! and it does not find what was loaded with RTLD_LOCAL, as plug-ins load an interpreter.

use std::ffi::CStr;

#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: u64,
    size: u64,
}

/// The tables of a loaded object that name what it exports.
#[derive(Clone, Copy)]
pub struct Exports {
    bias: u64,
    /// Where the object lies.
    low: u64,
    high: u64,
    symbols: *const Symbol,
    strings: *const std::ffi::c_char,
    /// DT_GNU_HASH.
    hash: *const u32,
}

const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_GNU_HASH: u64 = 0x6fff_fef5;

impl Exports {
    /// Of an object, while the loader's list is walked. `None` if it has no table of the usual (GNU) kind.
    pub fn of(object: &libc::dl_phdr_info) -> Option<Exports> {
        if object.dlpi_phdr.is_null() {
            return None;
        }
        // SAFETY: as many headers as the loader says.
        let headers = unsafe { std::slice::from_raw_parts(object.dlpi_phdr, usize::from(object.dlpi_phnum)) };
        let dynamic = headers.iter().find(|h| h.p_type == libc::PT_DYNAMIC)?;
        let bias = object.dlpi_addr;
        let mut found = [0u64; 3];
        let mut at = bias.wrapping_add(dynamic.p_vaddr) as *const [u64; 2];
        loop {
            // SAFETY: the dynamic section, mapped, up to its null tag.
            let [tag, value] = unsafe { *at };
            // glibc stores addresses in place of offsets, but not in read-only sections (the vDSO's).
            let address = if value < bias { bias.wrapping_add(value) } else { value };
            match tag {
                0 => break,
                DT_STRTAB => found[0] = address,
                DT_SYMTAB => found[1] = address,
                DT_GNU_HASH => found[2] = address,
                _ => {}
            }
            // SAFETY: as above.
            at = unsafe { at.add(1) };
        }
        let [strings, symbols, hash] = found;
        if strings == 0 || symbols == 0 || hash == 0 {
            return None;
        }
        let loads = headers.iter().filter(|h| h.p_type == libc::PT_LOAD);
        let (low, high) = loads.fold((u64::MAX, 0), |(low, high), h| {
            let start = bias.wrapping_add(h.p_vaddr);
            (low.min(start), high.max(start.wrapping_add(h.p_memsz)))
        });
        let (symbols, strings, hash) = (symbols as *const _, strings as *const _, hash as *const _);
        Some(Exports { bias, low, high, symbols, strings, hash })
    }

    /// Where the object lies.
    pub fn code(&self) -> std::ops::Range<u64> {
        self.low..self.high
    }

    /// The address of a defined symbol.
    pub fn get(&self, name: &CStr) -> Option<u64> {
        let wanted = name.to_bytes().iter().fold(5381u32, |h, &b| h.wrapping_mul(33).wrapping_add(u32::from(b)));
        // SAFETY: the table's header: buckets, first hashed symbol, words of the filter, its shift.
        let [buckets, first, filter, shift] = unsafe { *self.hash.cast::<[u32; 4]>() };
        if buckets == 0 || filter == 0 {
            return None;
        }
        // SAFETY: the filter follows the header.
        let filters = unsafe { self.hash.add(4) }.cast::<u64>();
        // SAFETY: an index below the number of words.
        let word = unsafe { filters.add((wanted / 64 % filter) as usize).read_unaligned() };
        let bits = 1u64 << (wanted % 64) | 1u64 << (wanted.wrapping_shr(shift) % 64);
        if word & bits != bits {
            return None;
        }
        // SAFETY: the buckets follow the filter, the chains the buckets.
        let bucket = unsafe { self.hash.add(4 + filter as usize * 2) };
        // SAFETY: as above.
        let chains = unsafe { bucket.add(buckets as usize) };
        // SAFETY: an index below the number of buckets.
        let mut i = unsafe { *bucket.add((wanted % buckets) as usize) };
        if i < first {
            return None;
        }
        loop {
            // SAFETY: a chain ends with an odd value.
            let hash = unsafe { *chains.add((i - first) as usize) };
            if hash | 1 == wanted | 1 {
                // SAFETY: the chain's symbol.
                let symbol = unsafe { &*self.symbols.add(i as usize) };
                // SAFETY: its name in the string table.
                let of = unsafe { CStr::from_ptr(self.strings.add(symbol.name as usize)) };
                if symbol.section != 0 && of == name {
                    return Some(self.bias.wrapping_add(symbol.value));
                }
            }
            if hash & 1 == 1 {
                return None;
            }
            i += 1;
        }
    }
}
