//! Loaded modules by number, and what a return address says of its caller.
//!
//! A module is met the first time one of its addresses is seen; its definition (path, build id) goes into the history
//! before its number is used. An address that dlclose freed and dlopen gave to another library is another module:
//! `forget` starts new numbers.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

use vramscope_core::record::MODULES;

use crate::unwind::{self, module};
use crate::{recorder, settings};

struct Known {
    start: u64,
    end: u64,
    bias: u64,
    number: u32,
    kind: Kind,
    /// Path and build id: a library that comes back to the same place is the same module.
    identity: Vec<u8>,
    unloaded: bool,
}

/// What matters about a calling library.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Nothing.
    Plain,
    /// CUDA's runtime: its driver calls are made for somebody else.
    Runtime,
    /// Itself a caching pool whose `empty_cache` must really give memory back.
    Hoarder,
    /// This library.
    Own,
}

static KNOWN: Mutex<Vec<Known>> = Mutex::new(Vec::new());
static NEXT: AtomicU32 = AtomicU32::new(1);

/// Libraries that are caching pools themselves, and the condition under which they are not.
const HOARDERS: [(&str, &std::ffi::CStr); 1] = [("libc10_cuda.so", c"PYTORCH_NO_CUDA_MEMORY_CACHING")];

/// Whether this is the path of a copy of this library.
pub fn is_vramscope(path: &[u8]) -> bool {
    path.rsplit(|b| *b == b'/').next().is_some_and(|name| name.starts_with(b"libvramscope"))
}

fn kind_of(path: &str) -> Kind {
    let name = path.rsplit('/').next().unwrap_or(path);
    if name.starts_with("libcudart.so") {
        return Kind::Runtime;
    }
    if is_vramscope(path.as_bytes()) {
        return Kind::Own;
    }
    for (library, unless) in HOARDERS {
        // libc10_cuda.so, libc10_cuda-1a2b3c.so
        if name.starts_with(library.trim_end_matches(".so")) && settings::variable(unless).is_none() {
            return Kind::Hoarder;
        }
    }
    Kind::Plain
}

/// A module's number, kind and load address; 0 where no module holds the address.
#[derive(Clone, Copy)]
pub struct Found {
    /// Number in the history.
    pub number: u32,
    /// Kind.
    pub kind: Kind,
    /// Load address.
    pub bias: u64,
}

/// The module that holds an address.
pub fn of(pc: u64) -> Option<Found> {
    let m = module::find(pc)?;
    let mut known = KNOWN.lock().unwrap_or_else(|e| e.into_inner());
    if let Some(k) = known.iter().find(|k| !k.unloaded && k.start == m.start && k.end == m.end && k.bias == m.bias) {
        return Some(Found { number: k.number, kind: k.kind, bias: k.bias });
    }
    let mut path = [0u8; 1024];
    let mut build_id = [0u8; 64];
    let (p, b) = module::describe(&m, &mut path, &mut build_id);
    let identity = [&path[..p], &build_id[..b]].concat();
    let same = |k: &&mut Known| (k.start, k.end, k.bias) == (m.start, m.end, m.bias) && k.identity == identity;
    if let Some(k) = known.iter_mut().find(same) {
        k.unloaded = false;
        return Some(Found { number: k.number, kind: k.kind, bias: k.bias });
    }
    let number = NEXT.load(Relaxed);
    if number > MODULES {
        return None;
    }
    // Committed before anybody can refer to it; with no ring to be had it will be tried again.
    if !recorder::define_module(number, m.bias, m.end - m.bias.min(m.end), &path[..p], &build_id[..b]) {
        return None;
    }
    NEXT.store(number + 1, Relaxed);
    let kind = kind_of(&String::from_utf8_lossy(&path[..p]));
    known.push(Known { start: m.start, end: m.end, bias: m.bias, number, kind, identity, unloaded: false });
    Some(Found { number, kind, bias: m.bias })
}

// ---- callers: return address → module, in one load -----------------------------------------------------------------------

const CALLERS: usize = 4096;
/// address (48 bits) | number (13 bits) << 48 | kind (2 bits) << 62. A torn pair is impossible: it is one word.
static CALLER: [AtomicU64; CALLERS] = [const { AtomicU64::new(0) }; CALLERS];
const ADDRESS: u64 = (1 << 48) - 1;

fn slot(pc: u64) -> usize {
    (pc.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 52) as usize
}

/// Number and kind of the module that a return address lies in.
#[inline]
pub fn caller(pc: usize) -> (u32, Kind) {
    let pc = pc as u64;
    let w = CALLER[slot(pc)].load(Relaxed);
    if w & ADDRESS == pc {
        let kind = match w >> 62 {
            0 => Kind::Plain,
            1 => Kind::Runtime,
            2 => Kind::Hoarder,
            _ => Kind::Own,
        };
        return ((w >> 48) as u32 & 0x3fff, kind);
    }
    caller_slow(pc)
}

#[cold]
fn caller_slow(pc: u64) -> (u32, Kind) {
    let Some(f) = of(pc) else { return (0, Kind::Plain) };
    if f.number < 0x3fff && pc & !ADDRESS == 0 {
        let kind = match f.kind {
            Kind::Plain => 0u64,
            Kind::Runtime => 1,
            Kind::Hoarder => 2,
            Kind::Own => 3,
        };
        CALLER[slot(pc)].store(pc | u64::from(f.number) << 48 | kind << 62, Relaxed);
    }
    (f.number, f.kind)
}

/// A library was unloaded: its addresses mean nothing any more.
pub fn forget() {
    let mut known = KNOWN.lock().unwrap_or_else(|e| e.into_inner());
    for c in &CALLER {
        c.store(0, Relaxed);
    }
    let loaded =
        |k: &Known| module::find(k.start).is_some_and(|m| (m.start, m.end, m.bias) == (k.start, k.end, k.bias));
    for k in known.iter_mut() {
        k.unloaded |= !loaded(k);
    }
}

/// The address range of this library: its frames never show.
pub fn own_range() -> std::ops::Range<u64> {
    static RANGE: once_cell::sync::OnceCell<(u64, u64)> = once_cell::sync::OnceCell::new();
    let (start, end) =
        *RANGE.get_or_init(|| module::find(own_range as *const () as u64).map_or((0, 0), |m| (m.start, m.end)));
    start..end
}

/// A frame as a history's stack holds it: `module << 48 | guessed << 63 | offset`.
pub fn pack(recorded: u64) -> u64 {
    let pc = unwind::address(recorded);
    let guessed = recorded & unwind::GUESSED != 0;
    // Readers look one byte before a return address; where a signal interrupted, the address itself is meant.
    let pc = pc + u64::from(recorded & unwind::EXACT != 0);
    match of(pc) {
        Some(f) => recorder::pack_frame(f.number, pc.wrapping_sub(f.bias), guessed),
        None => recorder::pack_frame(0, pc, guessed),
    }
}
