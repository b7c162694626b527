//! Calls that are not about memory but need some: if the device is full of what the pool keeps, everything goes back and the
//! call is made once more. None of them has done anything when it fails so.

use crate::cuda::{Device, ERROR_OUT_OF_MEMORY, Ptr, Result, STREAM_PER_THREAD, SUCCESS, Size, Str, Stream, Uint};
use crate::hooks::{self, types};
use crate::pool::retrying;
use crate::{oom, sight, state, sync};

/// CUlaunchConfig, as far as the stream.
#[repr(C)]
pub struct LaunchConfig {
    sizes: [Uint; 7],
    stream: Stream,
}

/// The result of the driver's function of this name; one that found no memory is explained.
#[inline]
fn explained(what: &str, result: Result) -> Result {
    if result == ERROR_OUT_OF_MEMORY {
        oom::of_call(what);
    }
    result
}

macro_rules! retried {
    ($($(#[$doc:meta])* $name:ident: $t:ident($($a:ident: $ty:ty),*) $(, stream = $stream:expr)?;)*) => {
        $($(#[$doc])*
        #[allow(clippy::too_many_arguments)]
        pub unsafe fn $name(real: types::$t, _: usize, $($a: $ty),*) -> Result {
            $(if $stream == STREAM_PER_THREAD { hooks::note_per_thread_streams(); }
            sync::before_submission();)?
            // SAFETY: the program's arguments.
            explained(stringify!($t), retrying(|| unsafe { real($($a),*) }))
        })*
    };
}

retried! {
    /// `cuCtxSetLimit`: the device's heap, stacks and printf buffer.
    ctx_set_limit: cuCtxSetLimit(limit: i32, value: Size);
    /// `cuModuleLoad`, `cuModuleLoadData`, `cuModuleLoadFatBinary`.
    module_load: cuModuleLoadData(out: Ptr, image: Ptr);
    /// `cuModuleLoadDataEx`.
    module_load_ex: cuModuleLoadDataEx(out: Ptr, image: Ptr, count: Uint, options: Ptr, values: Ptr);
    /// `cuLibraryLoadData`, `cuLibraryLoadFromFile`.
    library_load: cuLibraryLoadData(out: Ptr, code: Ptr, o: Ptr, ov: Ptr, on: Uint, l: Ptr, lv: Ptr, ln: Uint);
    /// `cuModuleGetFunction`: loads lazily.
    module_get_function: cuModuleGetFunction(out: Ptr, module: Ptr, name: Str);
    /// `cuGraphInstantiate` of CUDA 10.0 and 11.0.
    graph_instantiate_old: cuGraphInstantiate(out: Ptr, graph: Ptr, node: Ptr, log: Ptr, size: Size);
    /// `cuFuncLoad`.
    func_load: cuFuncLoad(function: Ptr);
    /// `cuLibraryGetModule`: loads.
    library_get_module: cuLibraryGetModule(out: Ptr, library: Ptr);
    /// `cuGreenCtxCreate`.
    green_ctx_create: cuGreenCtxCreate(out: Ptr, desc: Ptr, device: Device, flags: Uint);
    /// `cuKernelGetFunction`: loads lazily.
    kernel_get_function: cuKernelGetFunction(out: Ptr, kernel: Ptr);
    /// `cuArrayCreate`, `cuArray3DCreate`.
    array_create: cuArrayCreate_v2(out: Ptr, desc: Ptr);
    /// `cuMipmappedArrayCreate`.
    mipmapped_create: cuMipmappedArrayCreate(out: Ptr, desc: Ptr, levels: Uint);
    /// `cuGraphInstantiateWithFlags`.
    graph_instantiate: cuGraphInstantiateWithFlags(out: Ptr, graph: Ptr, flags: u64);
    /// `cuGraphInstantiateWithParams`.
    graph_instantiate_params: cuGraphInstantiateWithParams(out: Ptr, graph: Ptr, params: Ptr);
    /// `cuGraphInstantiateWithParams_ptsz`.
    graph_instantiate_params_ptsz: cuGraphInstantiateWithParams_ptsz(out: Ptr, graph: Ptr, params: Ptr), stream = STREAM_PER_THREAD;
    /// `cuGraphLaunch`: memory nodes allocate then.
    graph_launch: cuGraphLaunch(graph: Ptr, stream: Stream), stream = stream;
    /// `cuGraphLaunch_ptsz`.
    graph_launch_ptsz: cuGraphLaunch_ptsz(graph: Ptr, stream: Stream), stream = STREAM_PER_THREAD;
    /// `cuLaunchKernel`: loads lazily, and a kernel with a large frame wants local memory.
    launch_kernel: cuLaunchKernel(f: Ptr, gx: Uint, gy: Uint, gz: Uint, bx: Uint, by: Uint, bz: Uint, shared: Uint, stream: Stream, params: Ptr, extra: Ptr), stream = stream;
    /// `cuLaunchKernel_ptsz`.
    launch_kernel_ptsz: cuLaunchKernel_ptsz(f: Ptr, gx: Uint, gy: Uint, gz: Uint, bx: Uint, by: Uint, bz: Uint, shared: Uint, stream: Stream, params: Ptr, extra: Ptr), stream = STREAM_PER_THREAD;
    /// `cuLaunchKernelEx_ptsz`.
    launch_kernel_ex_ptsz: cuLaunchKernelEx_ptsz(config: *const LaunchConfig, f: Ptr, params: Ptr, extra: Ptr), stream = STREAM_PER_THREAD;
    /// `cuLaunchCooperativeKernel`.
    launch_cooperative: cuLaunchCooperativeKernel(f: Ptr, gx: Uint, gy: Uint, gz: Uint, bx: Uint, by: Uint, bz: Uint, shared: Uint, stream: Stream, params: Ptr), stream = stream;
    /// `cuLaunchCooperativeKernel_ptsz`.
    launch_cooperative_ptsz: cuLaunchCooperativeKernel_ptsz(f: Ptr, gx: Uint, gy: Uint, gz: Uint, bx: Uint, by: Uint, bz: Uint, shared: Uint, stream: Stream, params: Ptr), stream = STREAM_PER_THREAD;
}

/// `cuLaunchKernelEx`: the stream is in the configuration.
pub unsafe fn launch_kernel_ex(
    real: types::cuLaunchKernelEx,
    _: usize,
    config: *const LaunchConfig,
    f: Ptr,
    params: Ptr,
    extra: Ptr,
) -> Result {
    // SAFETY: null or the program's structure, which begins with seven numbers and the stream.
    if !config.is_null() && unsafe { (*config).stream } == STREAM_PER_THREAD {
        hooks::note_per_thread_streams();
    }
    sync::before_submission();
    // SAFETY: the program's arguments.
    explained("cuLaunchKernelEx", retrying(|| unsafe { real(config, f, params, extra) }))
}

/// `cuImportExternalMemory`: memory that another interface fills and the host may see through it.
pub unsafe fn import_external_memory(real: types::cuImportExternalMemory, _: usize, out: Ptr, desc: Ptr) -> Result {
    // SAFETY: the program's arguments.
    let r = retrying(|| unsafe { real(out, desc) });
    if r == SUCCESS && !state::switched_off() {
        sight::seen();
    }
    r
}
