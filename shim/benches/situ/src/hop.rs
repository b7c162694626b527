//! framehop, with a cache for each thread.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, Module, Unwinder};

use crate::frames::Frames;

type Bytes = &'static [u8];
type Hop = UnwinderX86_64<Bytes>;

/// Its list of modules has no more than was loaded when it was first armed.
static HOP: OnceLock<Hop> = OnceLock::new();
/// Memory below the stack pointer that a function may use.
const RED_ZONE: u64 = 128;
/// How far up from the stack pointer it may read. It checks nothing itself, and nothing here is damaged.
const FARTHEST: u64 = 8 << 20;

thread_local! {
    static CACHE: RefCell<CacheX86_64> = RefCell::new(CacheX86_64::new());
}

/// Makes the list of modules.
pub fn load() {
    HOP.get_or_init(|| {
        let mut hop = Hop::new();
        // SAFETY: the callback fits what it is given.
        unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut hop).cast()) };
        hop
    });
}

unsafe extern "C" fn add(object: *mut libc::dl_phdr_info, _size: usize, hop: *mut c_void) -> c_int {
    // SAFETY: `load` gave it, and the loader gives a description of a loaded object.
    let (hop, object) = unsafe { (&mut *hop.cast::<Hop>(), &*object) };
    if let Some(module) = module(object) {
        hop.add_module(module);
    }
    0
}

fn module(object: &libc::dl_phdr_info) -> Option<Module<Bytes>> {
    let base = object.dlpi_addr;
    // SAFETY: the object's program headers.
    let headers = unsafe { std::slice::from_raw_parts(object.dlpi_phdr, usize::from(object.dlpi_phnum)) };
    let loaded = || headers.iter().filter(|h| h.p_type == libc::PT_LOAD).map(|h| h.p_vaddr..h.p_vaddr + h.p_memsz);
    let (low, high) = (loaded().map(|r| r.start).min()?, loaded().map(|r| r.end).max()?);
    let index = headers.iter().find(|h| h.p_type == libc::PT_GNU_EH_FRAME)?;
    // SAFETY: the loaded object's index, which nothing in this program unloads.
    let hdr: Bytes = unsafe { std::slice::from_raw_parts((base + index.p_vaddr) as *const u8, index.p_memsz as usize) };
    // Version 1, and `.eh_frame` as a distance from the second word, as all linkers write it.
    let [1, 0x1b, _, _, a, b, c, d, ..] = *hdr else { return None };
    let distance = i32::from_le_bytes([a, b, c, d]);
    let start = (index.p_vaddr + 4).checked_add_signed(i64::from(distance))?;
    let end = loaded().find(|r| r.contains(&start))?.end;
    // SAFETY: as above: in memory up to the segment's end.
    let eh_frame: Bytes = unsafe { std::slice::from_raw_parts((base + start) as *const u8, (end - start) as usize) };
    let sections = ExplicitModuleSectionInfo {
        base_svma: 0,
        eh_frame_hdr_svma: Some(index.p_vaddr..index.p_vaddr + index.p_memsz),
        eh_frame_hdr: Some(hdr),
        eh_frame_svma: Some(start..end),
        eh_frame: Some(eh_frame),
        ..Default::default()
    };
    Some(Module::new(String::new(), base + low..base + high, base, sections))
}

/// From this function on.
#[inline(never)]
pub fn capture(frames: &mut Frames) {
    let Some(hop) = HOP.get() else { return };
    let (pc, sp, bp): (u64, u64, u64);
    // SAFETY: reads registers only.
    unsafe {
        std::arch::asm!(
            "lea {pc}, [rip]",
            "mov {sp}, rsp",
            "mov {bp}, rbp",
            pc = out(reg) pc,
            sp = out(reg) sp,
            bp = out(reg) bp,
            options(nomem, nostack, preserves_flags)
        );
    }
    let mut read = |address: u64| {
        let inside = address >= sp - RED_ZONE && address < sp + FARTHEST;
        // SAFETY: on the stack, if the unwinder is right; its rows are the compilers'.
        if inside { Ok(unsafe { (address as *const u64).read_volatile() }) } else { Err(()) }
    };
    // A thread that ends has no cache any more.
    let _ = CACHE.try_with(|cache| {
        let Ok(mut cache) = cache.try_borrow_mut() else { return };
        let mut walk = hop.iter_frames(pc, UnwindRegsX86_64::new(pc, sp, bp), &mut cache, &mut read);
        while let Ok(Some(frame)) = walk.next() {
            if !frames.push(frame.address()) {
                break;
            }
        }
    });
}
