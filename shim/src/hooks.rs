//! The one list of hooked driver functions. Exported names, real pointers and the pointer-to-hook map are expanded from it.
//!
//! Every name is an ELF symbol of libcuda. `N name(arguments) = body` is a hook: an entry of two instructions puts the
//! return address into argument register N (which tells who called) and jumps to the body, which gets the real function
//! first. A `watched` name is a jump to the real function that first notes whether its stream argument is the calling
//! thread's default stream; a `per_thread` name always notes it. Nothing is hooked by a name that means another ABI.

use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};

use crate::cuda::*;
use crate::entry::{entry, fits, jump_to_real};
use crate::hook;
use crate::real;

/// Set once a per-thread default stream may have been used: a stream that no create call announced.
static PER_THREAD_STREAMS: AtomicU32 = AtomicU32::new(0);

/// Notes that a per-thread default stream is in use.
#[inline]
pub fn note_per_thread_streams() {
    PER_THREAD_STREAMS.store(1, Relaxed);
}

/// Whether per-thread default streams have been seen.
pub fn per_thread_streams() -> bool {
    PER_THREAD_STREAMS.load(Relaxed) != 0
}

macro_rules! hooks {
    (hooked { $($n:tt $name:ident($($a:ident: $t:ty),*) = $body:path;)* }
     watched { $($w:ident @ $stream:literal;)* }
     per_thread { $($p:ident;)* }) => {
        $(const _: () = assert!(fits(stringify!($n), &[$(stringify!($t)),*]), concat!("register of ", stringify!($name)));)*

        /// Index of a hooked function.
        #[allow(non_camel_case_types, missing_docs, clippy::upper_case_acronyms)]
        #[repr(usize)]
        #[derive(Clone, Copy, PartialEq, Eq)]
        pub enum Index { $($name,)* $($w,)* $($p,)* Count }

        /// How many functions are hooked.
        pub const COUNT: usize = Index::Count as usize;

        /// Their names, by index.
        pub static NAMES: [&std::ffi::CStr; COUNT] = [
            $(const { cstr(concat!(stringify!($name), "\0")) },)*
            $(const { cstr(concat!(stringify!($w), "\0")) },)*
            $(const { cstr(concat!(stringify!($p), "\0")) },)*
        ];

        /// The real functions, by index; null until resolved, or where this driver lacks one.
        pub static REAL: [AtomicPtr<()>; COUNT] = [const { AtomicPtr::new(std::ptr::null_mut()) }; COUNT];

        /// Our entry of an index.
        pub fn entry_of(index: usize) -> *mut () {
            static ENTRIES: [fn() -> *mut (); COUNT] = [
                $(|| export::$name as *const () as *mut (),)* $(|| export::$w as *const () as *mut (),)*
                $(|| export::$p as *const () as *mut (),)*
            ];
            ENTRIES[index]()
        }

        /// The types of the real functions.
        #[allow(non_camel_case_types, missing_docs)]
        pub mod types {
            use super::*;
            $(pub type $name = unsafe extern "C-unwind" fn($($t),*) -> Result;)*
        }

        /// The bodies' first stop: finds the real function.
        #[allow(non_snake_case)]
        mod body {
            use super::*;
            $(pub unsafe extern "C-unwind" fn $name($($a: $t,)* from: usize) -> Result {
                let Some(real) = real::get(Index::$name as usize) else { return ERROR_NOT_FOUND };
                // SAFETY: the pointer is libcuda's function of this very name, whose C type the table states.
                let real: types::$name = unsafe { std::mem::transmute::<*mut (), types::$name>(real) };
                // SAFETY: the program's own arguments, handed on.
                unsafe { $body(real, from $(, $a)*) }
            })*
        }

        /// The exported names.
        #[allow(non_snake_case, missing_docs, clippy::missing_safety_doc, unused_variables)]
        pub mod export {
            use super::*;
            $(#[unsafe(naked)] #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name($($a: $t),*) -> Result { entry!($n, body::$name) })*
            $(#[unsafe(naked)] #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $w() -> Result {
                jump_to_real!(Index::$w;
                    concat!("cmp ", $stream, ", 2"), "jne 3f", "mov dword ptr [rip + {flag}], 1", "3:",)
            })*
            $(#[unsafe(naked)] #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $p() -> Result {
                jump_to_real!(Index::$p; "mov dword ptr [rip + {flag}], 1",)
            })*
        }
    };
}

const fn cstr(s: &str) -> &std::ffi::CStr {
    match std::ffi::CStr::from_bytes_with_nul(s.as_bytes()) {
        Ok(c) => c,
        Err(_) => panic!("a name with a NUL in it"),
    }
}

hooks! {
    hooked {
        // Look-up: the third door. Under each of its names.
        none cuGetProcAddress(name: Str, out: *mut Ptr, version: i32, flags: u64) = hook::lookup::get_proc_address;
        none cuGetProcAddress_ptsz(name: Str, out: *mut Ptr, version: i32, flags: u64) = hook::lookup::get_proc_address;
        none cuGetProcAddress_v2(name: Str, out: *mut Ptr, version: i32, flags: u64, status: *mut i32) = hook::lookup::get_proc_address_v2;
        none cuGetProcAddress_v2_ptsz(name: Str, out: *mut Ptr, version: i32, flags: u64, status: *mut i32) = hook::lookup::get_proc_address_v2;

        // Plain device memory: served.
        2 cuMemAlloc_v2(out: *mut DevicePtr, bytes: Size) = hook::device::alloc;
        1 cuMemFree_v2(p: DevicePtr) = hook::device::free;
        5 cuMemAllocPitch_v2(out: *mut DevicePtr, pitch: *mut Size, width: Size, height: Size, element: Uint) = hook::device::alloc_pitch;

        // Recorded.
        3 cuMemAllocManaged(out: *mut DevicePtr, bytes: Size, flags: Uint) = hook::managed::alloc;
        3 cuMemHostAlloc(out: *mut Ptr, bytes: Size, flags: Uint) = hook::pinned::alloc;
        2 cuMemAllocHost_v2(out: *mut Ptr, bytes: Size) = hook::pinned::alloc_host;
        1 cuMemFreeHost(p: Ptr) = hook::pinned::free;
        3 cuMemHostRegister_v2(p: Ptr, bytes: Size, flags: Uint) = hook::pinned::register;
        1 cuMemHostUnregister(p: Ptr) = hook::pinned::unregister;
        3 cuMemAllocAsync(out: *mut DevicePtr, bytes: Size, stream: Stream) = hook::ordered::alloc;
        3 cuMemAllocAsync_ptsz(out: *mut DevicePtr, bytes: Size, stream: Stream) = hook::ordered::alloc_ptsz;
        4 cuMemAllocFromPoolAsync(out: *mut DevicePtr, bytes: Size, pool: Ptr, stream: Stream) = hook::ordered::alloc_from_pool;
        4 cuMemAllocFromPoolAsync_ptsz(out: *mut DevicePtr, bytes: Size, pool: Ptr, stream: Stream) = hook::ordered::alloc_from_pool_ptsz;
        2 cuMemFreeAsync(p: DevicePtr, stream: Stream) = hook::ordered::free;
        2 cuMemFreeAsync_ptsz(p: DevicePtr, stream: Stream) = hook::ordered::free_ptsz;
        2 cuMemPoolCreate(out: *mut Ptr, props: *const PoolProps) = hook::memory_pool::create;
        1 cuMemPoolDestroy(pool: Ptr) = hook::memory_pool::destroy;
        2 cuMemPoolTrimTo(pool: Ptr, keep: Size) = hook::memory_pool::trim_to;
        3 cuMemPoolGetAttribute(pool: Ptr, attribute: i32, value: Ptr) = hook::memory_pool::get_attribute;
        3 cuMemPoolSetAttribute(pool: Ptr, attribute: i32, value: Ptr) = hook::memory_pool::set_attribute;
        3 cuMemPoolSetAccess(pool: Ptr, list: *const Access, count: Size) = hook::memory_pool::set_access;
        2 cuDeviceSetMemPool(device: Device, pool: Ptr) = hook::memory_pool::set_current;
        3 cuMemSetMemPool(place: *mut i32, kind: i32, pool: Ptr) = hook::memory_pool::set_current_of;
        4 cuMemCreate(out: *mut u64, bytes: Size, prop: *const AllocationProp, flags: u64) = hook::vmm::create;
        2 cuMemRetainAllocationHandle(out: *mut u64, p: Ptr) = hook::vmm::retain;
        3 cuMemImportFromShareableHandle(out: *mut u64, os: Ptr, kind: i32) = hook::vmm::import;
        1 cuMemRelease(handle: u64) = hook::vmm::release;
        5 cuMemMap(p: DevicePtr, bytes: Size, offset: Size, handle: u64, flags: u64) = hook::vmm::map;
        2 cuMemUnmap(p: DevicePtr, bytes: Size) = hook::vmm::unmap;
        4 cuMemSetAccess(p: DevicePtr, bytes: Size, desc: Ptr, count: Size) = hook::vmm::set_access;
        4 cuMemExportToShareableHandle(out: Ptr, handle: u64, kind: i32, flags: u64) = hook::export::vmm;
        4 cuMemPoolExportToShareableHandle(out: Ptr, pool: Ptr, kind: i32, flags: u64) = hook::export::pool;

        // Told the truth.
        2 cuMemGetInfo_v2(free: *mut Size, total: *mut Size) = hook::truth::get_info;
        2 cuDeviceTotalMem_v2(total: *mut Size, device: i32) = hook::truth::total_mem;
        3 cuMemGetAddressRange_v2(base: *mut DevicePtr, bytes: *mut Size, p: DevicePtr) = hook::truth::address_range;
        3 cuPointerGetAttribute(data: Ptr, attribute: i32, p: DevicePtr) = hook::truth::attribute;
        4 cuPointerGetAttributes(count: Uint, attributes: *mut i32, data: *mut Ptr, p: DevicePtr) = hook::truth::attributes;

        // Leaves the pool for good.
        3 cuPointerSetAttribute(value: Ptr, attribute: i32, p: DevicePtr) = hook::export::set_attribute;
        2 cuIpcGetMemHandle(out: Ptr, p: DevicePtr) = hook::export::ipc;
        5 cuMemGetHandleForAddressRange(out: Ptr, p: DevicePtr, bytes: Size, kind: i32, flags: u64) = hook::export::range;
        2 cuIpcOpenMemHandle_v2(out: *mut DevicePtr, handle: IpcHandle, flags: Uint) = hook::export::ipc_open;
        1 cuIpcCloseMemHandle(p: DevicePtr) = hook::export::ipc_close;

        // Streams and captures: watched.
        2 cuStreamCreate(out: *mut Stream, flags: Uint) = hook::stream::create;
        3 cuStreamCreateWithPriority(out: *mut Stream, flags: Uint, priority: i32) = hook::stream::create_with_priority;
        4 cuGreenCtxStreamCreate(out: *mut Stream, green: Ptr, flags: Uint, priority: i32) = hook::stream::create_green;
        1 cuStreamDestroy_v2(stream: Stream) = hook::stream::destroy;
        1 cuStreamDestroy(stream: Stream) = hook::stream::destroy;
        1 cuStreamSynchronize(stream: Stream) = hook::wait::stream_synchronize;
        1 cuStreamSynchronize_ptsz(stream: Stream) = hook::wait::stream_synchronize_ptsz;
        1 cuEventSynchronize(event: Size) = hook::wait::event_synchronize;
        0 cuCtxSynchronize() = hook::wait::context_synchronize;
        1 cuCtxSynchronize_v2(context: Context) = hook::wait::context_synchronize_of;
        1 cuStreamBeginCapture(stream: Stream) = hook::capture::begin_old;
        1 cuStreamBeginCapture_ptsz(stream: Stream) = hook::capture::begin_old_ptsz;
        2 cuStreamBeginCapture_v2(stream: Stream, mode: i32) = hook::capture::begin;
        2 cuStreamBeginCapture_v2_ptsz(stream: Stream, mode: i32) = hook::capture::begin_ptsz;
        none cuStreamBeginCaptureToGraph(stream: Stream, graph: Ptr, nodes: Ptr, edges: Ptr, count: Size, mode: i32) = hook::capture::begin_to_graph;
        none cuStreamBeginCaptureToGraph_ptsz(stream: Stream, graph: Ptr, nodes: Ptr, edges: Ptr, count: Size, mode: i32) = hook::capture::begin_to_graph_ptsz;
        2 cuStreamBeginCaptureToCig(stream: Stream, params: Ptr) = hook::capture::begin_to_cig;
        2 cuStreamBeginCaptureToCig_ptsz(stream: Stream, params: Ptr) = hook::capture::begin_to_cig_ptsz;
        1 cuStreamEndCaptureToCig(stream: Stream) = hook::capture::end_to_cig;
        1 cuStreamEndCaptureToCig_ptsz(stream: Stream) = hook::capture::end_to_cig_ptsz;
        2 cuStreamEndCapture(stream: Stream, graph: *mut Ptr) = hook::capture::end;
        2 cuStreamEndCapture_ptsz(stream: Stream, graph: *mut Ptr) = hook::capture::end_ptsz;
        3 cuLaunchHostFunc(stream: Stream, function: Ptr, data: Ptr) = hook::stream::launch_host_func;
        3 cuLaunchHostFunc_ptsz(stream: Stream, function: Ptr, data: Ptr) = hook::stream::launch_host_func_ptsz;
        4 cuStreamAddCallback(stream: Stream, callback: Ptr, data: Ptr, flags: Uint) = hook::stream::add_callback;
        4 cuStreamAddCallback_ptsz(stream: Stream, callback: Ptr, data: Ptr, flags: Uint) = hook::stream::add_callback_ptsz;

        5 cuGraphAddHostNode(out: Ptr, graph: Ptr, nodes: Ptr, count: Size, params: Ptr) = hook::stream::graph_add_host_node;
        5 cuGraphAddNode(out: Ptr, graph: Ptr, nodes: Ptr, count: Size, params: *const i32) = hook::stream::graph_add_node;
        none cuGraphAddNode_v2(out: Ptr, graph: Ptr, nodes: Ptr, edges: Ptr, count: Size, params: *const i32) = hook::stream::graph_add_node_v2;

        // Contexts: watched.
        3 cuCtxCreate_v2(out: *mut Context, flags: Uint, device: Device) = hook::context::create_v2;
        5 cuCtxCreate_v3(out: *mut Context, params: Ptr, count: i32, flags: Uint, device: Device) = hook::context::create_v3;
        4 cuCtxCreate_v4(out: *mut Context, params: Ptr, flags: Uint, device: Device) = hook::context::create_v4;
        1 cuCtxDestroy_v2(context: Context) = hook::context::destroy;
        1 cuCtxDetach(context: Context) = hook::context::destroy;
        2 cuCtxFromGreenCtx(out: *mut Context, green: Ptr) = hook::context::from_green;
        2 cuDevicePrimaryCtxRetain(out: *mut Context, device: Device) = hook::context::retain;
        1 cuDevicePrimaryCtxRelease(device: Device) = hook::context::release;
        1 cuDevicePrimaryCtxRelease_v2(device: Device) = hook::context::release;
        1 cuDevicePrimaryCtxReset(device: Device) = hook::context::reset;
        1 cuDevicePrimaryCtxReset_v2(device: Device) = hook::context::reset;
        2 cuCtxEnablePeerAccess(peer: Context, flags: Uint) = hook::context::enable_peer_access;
        2 cuCtxSetLimit(limit: i32, value: Size) = hook::retry::ctx_set_limit;

        // May fail for want of memory that the pool holds: tried again after every cached byte has been given back.
        2 cuModuleLoad(out: Ptr, path: Ptr) = hook::retry::module_load;
        2 cuModuleLoadData(out: Ptr, image: Ptr) = hook::retry::module_load;
        5 cuModuleLoadDataEx(out: Ptr, image: Ptr, count: Uint, options: Ptr, values: Ptr) = hook::retry::module_load_ex;
        2 cuModuleLoadFatBinary(out: Ptr, image: Ptr) = hook::retry::module_load;
        none cuLibraryLoadData(out: Ptr, code: Ptr, o: Ptr, ov: Ptr, on: Uint, l: Ptr, lv: Ptr, ln: Uint) = hook::retry::library_load;
        none cuLibraryLoadFromFile(out: Ptr, code: Ptr, o: Ptr, ov: Ptr, on: Uint, l: Ptr, lv: Ptr, ln: Uint) = hook::retry::library_load;
        3 cuModuleGetFunction(out: Ptr, module: Ptr, name: Str) = hook::retry::module_get_function;
        4 cuModuleGetGlobal_v2(out: *mut DevicePtr, bytes: *mut Size, module: Ptr, name: Str) = hook::managed::global;
        4 cuLibraryGetGlobal(out: *mut DevicePtr, bytes: *mut Size, library: Ptr, name: Str) = hook::managed::global;
        4 cuLibraryGetManaged(out: *mut DevicePtr, bytes: *mut Size, library: Ptr, name: Str) = hook::managed::library_managed;
        5 cuGraphInstantiate(out: Ptr, graph: Ptr, node: Ptr, log: Ptr, size: Size) = hook::retry::graph_instantiate_old;
        5 cuGraphInstantiate_v2(out: Ptr, graph: Ptr, node: Ptr, log: Ptr, size: Size) = hook::retry::graph_instantiate_old;
        1 cuFuncLoad(function: Ptr) = hook::retry::func_load;
        2 cuLibraryGetModule(out: Ptr, library: Ptr) = hook::retry::library_get_module;
        4 cuGreenCtxCreate(out: Ptr, desc: Ptr, device: Device, flags: Uint) = hook::retry::green_ctx_create;
        2 cuImportExternalMemory(out: Ptr, desc: Ptr) = hook::retry::import_external_memory;
        2 cuKernelGetFunction(out: Ptr, kernel: Ptr) = hook::retry::kernel_get_function;
        2 cuArrayCreate_v2(out: Ptr, desc: Ptr) = hook::retry::array_create;
        2 cuArray3DCreate_v2(out: Ptr, desc: Ptr) = hook::retry::array_create;
        3 cuMipmappedArrayCreate(out: Ptr, desc: Ptr, levels: Uint) = hook::retry::mipmapped_create;
        3 cuGraphInstantiateWithFlags(out: Ptr, graph: Ptr, flags: u64) = hook::retry::graph_instantiate;
        3 cuGraphInstantiateWithParams(out: Ptr, graph: Ptr, params: Ptr) = hook::retry::graph_instantiate_params;
        3 cuGraphInstantiateWithParams_ptsz(out: Ptr, graph: Ptr, params: Ptr) = hook::retry::graph_instantiate_params_ptsz;
        2 cuGraphLaunch(graph: Ptr, stream: Stream) = hook::retry::graph_launch;
        2 cuGraphLaunch_ptsz(graph: Ptr, stream: Stream) = hook::retry::graph_launch_ptsz;
        none cuLaunchKernel(f: Ptr, gx: Uint, gy: Uint, gz: Uint, bx: Uint, by: Uint, bz: Uint, shared: Uint, stream: Stream, params: Ptr, extra: Ptr) = hook::retry::launch_kernel;
        none cuLaunchKernel_ptsz(f: Ptr, gx: Uint, gy: Uint, gz: Uint, bx: Uint, by: Uint, bz: Uint, shared: Uint, stream: Stream, params: Ptr, extra: Ptr) = hook::retry::launch_kernel_ptsz;
        none cuLaunchKernelEx(config: *const hook::retry::LaunchConfig, f: Ptr, params: Ptr, extra: Ptr) = hook::retry::launch_kernel_ex;
        none cuLaunchKernelEx_ptsz(config: *const hook::retry::LaunchConfig, f: Ptr, params: Ptr, extra: Ptr) = hook::retry::launch_kernel_ex_ptsz;
        none cuLaunchCooperativeKernel(f: Ptr, gx: Uint, gy: Uint, gz: Uint, bx: Uint, by: Uint, bz: Uint, shared: Uint, stream: Stream, params: Ptr) = hook::retry::launch_cooperative;
        none cuLaunchCooperativeKernel_ptsz(f: Ptr, gx: Uint, gy: Uint, gz: Uint, bx: Uint, by: Uint, bz: Uint, shared: Uint, stream: Stream, params: Ptr) = hook::retry::launch_cooperative_ptsz;
    }
    watched {
        cuMemPrefetchAsync_v2 @ "r8";
        cuMemPrefetchBatchAsync @ "qword ptr [rsp + 16]";
        cuMemDiscardBatchAsync @ "r8";
        cuMemDiscardAndPrefetchBatchAsync @ "qword ptr [rsp + 16]";
        cuMemcpyHtoAAsync_v2 @ "r8";
        cuMemcpyAtoHAsync_v2 @ "r8";
        cuMemcpyHtoDAsync_v2 @ "rcx";
        cuMemcpyDtoHAsync_v2 @ "rcx";
        cuMemcpyDtoDAsync_v2 @ "rcx";
        cuMemcpy2DAsync_v2 @ "rsi";
        cuMemcpy3DAsync_v2 @ "rsi";
        cuMemcpyBatchAsync_v2 @ "qword ptr [rsp + 16]";
        cuMemcpy3DBatchAsync_v2 @ "rcx";
        cuStreamWriteValue32_v2 @ "rdi";
        cuStreamWaitValue32_v2 @ "rdi";
        cuStreamWriteValue64_v2 @ "rdi";
        cuStreamWaitValue64_v2 @ "rdi";
        cuStreamBatchMemOp_v2 @ "rdi";
        cuMemcpyAsync @ "rcx";
        cuMemcpyPeerAsync @ "r9";
        cuMemcpy3DPeerAsync @ "rsi";
        cuMemsetD8Async @ "rcx";
        cuMemsetD16Async @ "rcx";
        cuMemsetD32Async @ "rcx";
        cuMemsetD2D8Async @ "r9";
        cuMemsetD2D16Async @ "r9";
        cuMemsetD2D32Async @ "r9";
        cuStreamWaitEvent @ "rdi";
        cuStreamAttachMemAsync @ "rdi";
        cuEventRecord @ "rsi";
        cuEventRecordWithFlags @ "rsi";
        cuGraphicsMapResources @ "rdx";
        cuGraphicsUnmapResources @ "rdx";
        cuSignalExternalSemaphoresAsync @ "rcx";
        cuWaitExternalSemaphoresAsync @ "rcx";
        cuGraphUpload @ "rsi";
        cuMemMapArrayAsync @ "rdx";
        cuMemBatchDecompressAsync @ "r8";
        // First versions of functions above, still bound by older programs.
        cuMemPrefetchAsync @ "rcx";
        cuMemcpyBatchAsync @ "qword ptr [rsp + 24]";
        cuMemcpy3DBatchAsync @ "r8";
        cuStreamWriteValue32 @ "rdi";
        cuStreamWaitValue32 @ "rdi";
        cuStreamWriteValue64 @ "rdi";
        cuStreamWaitValue64 @ "rdi";
        cuStreamBatchMemOp @ "rdi";
        cuLaunchGridAsync @ "rcx";
    }
    per_thread {
        cuMemPrefetchAsync_v2_ptsz;
        cuMemPrefetchBatchAsync_ptsz;
        cuMemDiscardBatchAsync_ptsz;
        cuMemDiscardAndPrefetchBatchAsync_ptsz;
        cuMemcpyHtoD_v2_ptds;
        cuMemcpyDtoH_v2_ptds;
        cuMemcpyDtoD_v2_ptds;
        cuMemcpyDtoA_v2_ptds;
        cuMemcpyAtoD_v2_ptds;
        cuMemcpyHtoA_v2_ptds;
        cuMemcpyAtoH_v2_ptds;
        cuMemcpyAtoA_v2_ptds;
        cuMemcpyHtoAAsync_v2_ptsz;
        cuMemcpyAtoHAsync_v2_ptsz;
        cuMemcpy2D_v2_ptds;
        cuMemcpy2DUnaligned_v2_ptds;
        cuMemcpy3D_v2_ptds;
        cuMemcpyHtoDAsync_v2_ptsz;
        cuMemcpyDtoHAsync_v2_ptsz;
        cuMemcpyDtoDAsync_v2_ptsz;
        cuMemcpy2DAsync_v2_ptsz;
        cuMemcpy3DAsync_v2_ptsz;
        cuMemcpyBatchAsync_v2_ptsz;
        cuMemcpy3DBatchAsync_v2_ptsz;
        cuMemsetD8_v2_ptds;
        cuMemsetD16_v2_ptds;
        cuMemsetD32_v2_ptds;
        cuMemsetD2D8_v2_ptds;
        cuMemsetD2D16_v2_ptds;
        cuMemsetD2D32_v2_ptds;
        cuStreamWriteValue32_v2_ptsz;
        cuStreamWaitValue32_v2_ptsz;
        cuStreamWriteValue64_v2_ptsz;
        cuStreamWaitValue64_v2_ptsz;
        cuStreamBatchMemOp_v2_ptsz;
        cuMemcpy_ptds;
        cuMemcpyAsync_ptsz;
        cuMemcpyPeer_ptds;
        cuMemcpyPeerAsync_ptsz;
        cuMemcpy3DPeer_ptds;
        cuMemcpy3DPeerAsync_ptsz;
        cuMemsetD8Async_ptsz;
        cuMemsetD16Async_ptsz;
        cuMemsetD32Async_ptsz;
        cuMemsetD2D8Async_ptsz;
        cuMemsetD2D16Async_ptsz;
        cuMemsetD2D32Async_ptsz;
        cuStreamWaitEvent_ptsz;
        cuStreamAttachMemAsync_ptsz;
        cuEventRecord_ptsz;
        cuEventRecordWithFlags_ptsz;
        cuGraphicsMapResources_ptsz;
        cuGraphicsUnmapResources_ptsz;
        cuSignalExternalSemaphoresAsync_ptsz;
        cuWaitExternalSemaphoresAsync_ptsz;
        cuGraphUpload_ptsz;
        cuMemMapArrayAsync_ptsz;
        cuMemBatchDecompressAsync_ptsz;
        cuMemPrefetchAsync_ptsz;
        cuMemcpyBatchAsync_ptsz;
        cuMemcpy3DBatchAsync_ptsz;
        cuStreamWriteValue32_ptsz;
        cuStreamWaitValue32_ptsz;
        cuStreamWriteValue64_ptsz;
        cuStreamWaitValue64_ptsz;
        cuStreamBatchMemOp_ptsz;
    }
}
