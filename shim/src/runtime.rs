//! The runtime's names, exported to label an event with the name and the library that called. They forward to what their
//! caller would have bound: a process may hold two runtimes, and RTLD_NEXT would be null or the wrong one.

use std::ffi::{CStr, c_int, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::*};

use vramscope_core::api::Api;

use crate::cuda::{IpcHandle, Ptr, Size, Uint};
use crate::entry::{entry, fits};
use crate::thread;
use crate::unwind::module;
use crate::{real, state};

/// cudaErrorInitializationError: what a runtime says that can't be found.
const ERROR_INITIALIZATION: c_int = 3;

/// cudaExtent, passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Extent {
    width: Size,
    height: Size,
    depth: Size,
}

// ---- (caller, name) → the real function ---------------------------------------------------------------------------------

const SLOTS: usize = 512;
struct Cached {
    /// key ^ value: a torn pair does not match.
    check: AtomicU64,
    value: AtomicU64,
}
static CACHE: [Cached; SLOTS] = [const { Cached { check: AtomicU64::new(0), value: AtomicU64::new(0) } }; SLOTS];

/// Answers by the calling module's start and the function.
static KNOWN: Mutex<Vec<(u64, usize, usize)>> = Mutex::new(Vec::new());

/// A library was unloaded.
pub fn forget() {
    KNOWN.lock().unwrap_or_else(|e| e.into_inner()).clear();
    for c in &CACHE {
        c.check.store(0, Relaxed);
        c.value.store(0, Relaxed);
    }
}

#[inline]
fn resolve(from: usize, api: usize, name: &'static CStr) -> *mut c_void {
    let key = from as u64 ^ (api as u64) << 56;
    let c = &CACHE[(key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 55) as usize];
    let value = c.value.load(Acquire);
    if c.check.load(Acquire) ^ value == key && value != 0 {
        return value as *mut c_void;
    }
    let p = find_once(from, api, name);
    if !p.is_null() {
        c.value.store(p as u64, Release);
        c.check.store(key ^ p as u64, Release);
    }
    p
}

/// Looks once for a module and name, from however many places it calls: every look-up of ours clears what the program's
/// dlerror() might still have to say.
#[cold]
fn find_once(from: usize, api: usize, name: &'static CStr) -> *mut c_void {
    let Some(m) = module::find(from as u64) else { return find(from, name) };
    let mut known = KNOWN.lock().unwrap_or_else(|e| e.into_inner());
    if let Some(k) = known.iter().find(|k| k.0 == m.start && k.1 == api) {
        return k.2 as *mut c_void;
    }
    drop(known);
    let p = find(from, name);
    // A place inside an interposer's own function gets another answer than the rest of its module.
    if !p.is_null() && module::find(p as u64).is_some_and(|t| t.start != m.start) {
        known = KNOWN.lock().unwrap_or_else(|e| e.into_inner());
        known.push((m.start, api, p as usize));
    }
    p
}

/// What `name` means to the module that holds `from`.
#[cold]
fn find(from: usize, name: &'static CStr) -> *mut c_void {
    real::prepare_unwind();
    let mine = |p: *mut c_void| {
        !p.is_null() && module::find(p as u64).is_some_and(|m| crate::modules::own_range().start == m.start)
    };
    // A library that links the runtime: it and its own dependencies are searched as they were when it was bound.
    if let Some(m) = module::find(from as u64) {
        let mut path = [0u8; 4096];
        let (n, _) = module::describe(&m, &mut path[..4095], &mut [0; 64]);
        // Another copy of this library, preloaded before us, asks for what comes next.
        let copy = crate::modules::is_vramscope(&path[..n]);
        if n > 0 && !copy && path[..n] != *crate::settings::program_path().as_bytes() {
            let p = in_object(path.as_ptr().cast(), name);
            if !p.is_null() && !mine(p) && !is_inside(from, p) {
                return p;
            }
        }
    }
    // The program itself, or a library that was bound through the global scope: what comes after us there.
    let p = real::symbol(libc::RTLD_NEXT, name);
    if !p.is_null() && !mine(p) {
        return p;
    }
    // A runtime that somebody loaded for himself.
    any_runtime(name)
}

/// Whether an address lies in the function that begins at `p`: then the caller is an interposer of this very name, asking for
/// the next one.
fn is_inside(from: usize, p: *mut c_void) -> bool {
    // SAFETY: all zeroes is a valid Dl_info.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address, and a pointer to a local.
    unsafe { libc::dladdr(from as *const c_void, &mut info) != 0 && info.dli_saddr == p }
}

fn in_object(path: *const std::ffi::c_char, name: &CStr) -> *mut c_void {
    // SAFETY: the path of a loaded object; nothing is loaded by this.
    let handle = unsafe { libc::dlopen(path, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if handle.is_null() {
        return handle;
    }
    let p = real::symbol(handle, name);
    // The object is in use by its caller: giving our reference back unloads nothing.
    // SAFETY: the handle just got.
    unsafe { crate::close::dlclose(handle) };
    p
}

fn any_runtime(name: &CStr) -> *mut c_void {
    struct Found {
        paths: [[u8; 512]; 4],
        n: usize,
    }
    unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, out: *mut c_void) -> c_int {
        // SAFETY: our structure.
        let f = unsafe { &mut *out.cast::<Found>() };
        // SAFETY: the loader's C string.
        let path = unsafe { CStr::from_ptr((*info).dlpi_name) }.to_bytes_with_nul();
        let file = path.rsplit(|b| *b == b'/').next().unwrap_or(path);
        if file.starts_with(b"libcudart.so") && f.n < 4 && path.len() <= 512 {
            f.paths[f.n][..path.len()].copy_from_slice(path);
            f.n += 1;
        }
        0
    }
    let mut f = Found { paths: [[0; 512]; 4], n: 0 };
    // SAFETY: a callback that copies names.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut f).cast()) };
    for path in &f.paths[..f.n] {
        let p = in_object(path.as_ptr().cast(), name);
        if !p.is_null() {
            return p;
        }
    }
    std::ptr::null_mut()
}

// ---- the exported names -------------------------------------------------------------------------------------------------

macro_rules! labelled {
    ($($n:tt $name:ident($($a:ident: $t:ty),*) = $api:ident;)*) => {
        $(const _: () = assert!(fits(stringify!($n), &[$(stringify!($t)),*]), concat!("register of ", stringify!($name)));)*
        #[allow(non_snake_case, clippy::too_many_arguments)]
        mod body {
            use super::*;
            $(pub unsafe extern "C-unwind" fn $name($($a: $t,)* from: usize) -> c_int {
                const NAME: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(c) => c,
                    Err(_) => panic!("a name with a NUL in it"),
                };
                let f = resolve(from, Api::$api as usize | (NAME.count_bytes() & 1) << 7, NAME);
                if f.is_null() {
                    return ERROR_INITIALIZATION;
                }
                // SAFETY: the runtime's function of this very name.
                let f: unsafe extern "C-unwind" fn($($t),*) -> c_int = unsafe { std::mem::transmute(f) };
                if state::switched_off() {
                    // SAFETY: the program's arguments.
                    return unsafe { f($($a),*) };
                }
                let t = thread::current();
                let outer = (t.label.get(), t.label_from.get(), t.label_sp.get());
                t.label_from.set(from);
                t.label_sp.set(thread::stack_pointer());
                t.label.set(Api::$api as u8);
                // SAFETY: the program's arguments. Nothing here needs cleaning up if an exception passes.
                let r = unsafe { f($($a),*) };
                t.label.set(outer.0);
                t.label_from.set(outer.1);
                t.label_sp.set(outer.2);
                r
            })*
        }
        /// The exported names.
        #[allow(non_snake_case, missing_docs, clippy::missing_safety_doc, unused_variables)]
        pub mod export {
            use super::*;
            $(#[unsafe(naked)] #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name($($a: $t),*) -> c_int { entry!($n, body::$name) })*
        }
    };
}

labelled! {
    2 cudaMalloc(out: Ptr, bytes: Size) = CudaMalloc;
    1 cudaFree(p: Ptr) = CudaFree;
    4 cudaMallocPitch(out: Ptr, pitch: Ptr, width: Size, height: Size) = CudaMallocPitch;
    1 cudaMalloc3D(out: Ptr, extent: Extent) = CudaMalloc3D;
    3 cudaMallocManaged(out: Ptr, bytes: Size, flags: Uint) = CudaMallocManaged;
    2 cudaMallocHost(out: Ptr, bytes: Size) = CudaMallocHost;
    3 cudaHostAlloc(out: Ptr, bytes: Size, flags: Uint) = CudaHostAlloc;
    1 cudaFreeHost(p: Ptr) = CudaFreeHost;
    3 cudaHostRegister(p: Ptr, bytes: Size, flags: Uint) = CudaHostRegister;
    1 cudaHostUnregister(p: Ptr) = CudaHostUnregister;
    3 cudaMallocAsync(out: Ptr, bytes: Size, stream: Ptr) = CudaMallocAsync;
    3 cudaMallocAsync_ptsz(out: Ptr, bytes: Size, stream: Ptr) = CudaMallocAsync;
    4 cudaMallocFromPoolAsync(out: Ptr, bytes: Size, pool: Ptr, stream: Ptr) = CudaMallocFromPoolAsync;
    4 cudaMallocFromPoolAsync_ptsz(out: Ptr, bytes: Size, pool: Ptr, stream: Ptr) = CudaMallocFromPoolAsync;
    2 cudaFreeAsync(p: Ptr, stream: Ptr) = CudaFreeAsync;
    2 cudaFreeAsync_ptsz(p: Ptr, stream: Ptr) = CudaFreeAsync;
    5 cudaMallocArray(out: Ptr, desc: Ptr, width: Size, height: Size, flags: Uint) = CudaMallocArray;
    3 cudaMalloc3DArray(out: Ptr, desc: Ptr, extent: Extent, flags: Uint) = CudaMalloc3DArray;
    1 cudaFreeArray(p: Ptr) = CudaFreeArray;
    0 cudaDeviceReset() = CudaDeviceReset;
    2 cudaIpcOpenMemHandle(out: Ptr, handle: IpcHandle, flags: Uint) = CudaIpcOpenMemHandle;
    1 cudaIpcCloseMemHandle(p: Ptr) = CudaIpcCloseMemHandle;
}
