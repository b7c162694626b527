//! Streams: watched, because the first one besides the default makes barriers necessary; and host functions, because they
//! make the host see.

use crate::capture;
use crate::context;
use crate::cuda::{Ptr, Result, STREAM_PER_THREAD, SUCCESS, Size, Stream, Uint};
use crate::hooks::{self, types};
use crate::{arena, pool, sight, state, sync};

/// A stream was created in the current context.
fn created(r: Result) -> Result {
    if r == SUCCESS && !state::switched_off() && !state::forked() {
        state::guarded("cuStreamCreate", || {
            if let Some(id) = context::note_stream() {
                sync::first_stream(id);
            }
        });
    }
    r
}

/// `cuStreamCreate`.
pub unsafe fn create(real: types::cuStreamCreate, _: usize, out: *mut Stream, flags: Uint) -> Result {
    // SAFETY: the program's arguments.
    created(pool::retrying(|| unsafe { real(out, flags) }))
}

/// `cuStreamCreateWithPriority`.
pub unsafe fn create_with_priority(
    real: types::cuStreamCreateWithPriority,
    _: usize,
    out: *mut Stream,
    flags: Uint,
    priority: i32,
) -> Result {
    // SAFETY: the program's arguments.
    created(pool::retrying(|| unsafe { real(out, flags, priority) }))
}

/// `cuGreenCtxStreamCreate`: a stream of the device's primary context, which need not be current.
pub unsafe fn create_green(
    real: types::cuGreenCtxStreamCreate,
    _: usize,
    out: *mut Stream,
    green: Ptr,
    flags: Uint,
    priority: i32,
) -> Result {
    // SAFETY: the program's arguments.
    let r = pool::retrying(|| unsafe { real(out, green, flags, priority) });
    if r == SUCCESS {
        // Which device is not asked: every context gets its barriers from here on.
        hooks::note_per_thread_streams();
    }
    r
}

/// `cuStreamDestroy`.
pub unsafe fn destroy(real: types::cuStreamDestroy_v2, _: usize, stream: Stream) -> Result {
    if arena::knows_streams() && state::started() && !state::exiting() {
        state::guarded("cuStreamDestroy", || arena::stream_ends(stream));
    }
    // SAFETY: the program's argument.
    let r = unsafe { real(stream) };
    if r == SUCCESS && capture::any() {
        capture::forget(stream, false);
    }
    r
}

/// A host function will run in a stream's order. Inside it the driver refuses every call of its own accord (measured: also the
/// ones a barrier is made of), so nothing has to know that it runs.
fn queued(stream: Stream) {
    if stream == STREAM_PER_THREAD {
        hooks::note_per_thread_streams();
    }
    if !state::switched_off() {
        sight::seen();
        sync::before_submission();
    }
}

/// `cuLaunchHostFunc`.
pub unsafe fn launch_host_func(
    real: types::cuLaunchHostFunc,
    _: usize,
    stream: Stream,
    function: Ptr,
    data: Ptr,
) -> Result {
    queued(stream);
    // SAFETY: the program's arguments.
    unsafe { real(stream, function, data) }
}

/// `cuLaunchHostFunc_ptsz`.
pub unsafe fn launch_host_func_ptsz(
    real: types::cuLaunchHostFunc_ptsz,
    from: usize,
    stream: Stream,
    function: Ptr,
    data: Ptr,
) -> Result {
    hooks::note_per_thread_streams();
    // SAFETY: the program's arguments.
    unsafe { launch_host_func(real, from, stream, function, data) }
}

/// `cuStreamAddCallback`.
pub unsafe fn add_callback(
    real: types::cuStreamAddCallback,
    _: usize,
    stream: Stream,
    callback: Ptr,
    data: Ptr,
    flags: Uint,
) -> Result {
    queued(stream);
    // SAFETY: the program's arguments.
    unsafe { real(stream, callback, data, flags) }
}

/// `cuStreamAddCallback_ptsz`.
pub unsafe fn add_callback_ptsz(
    real: types::cuStreamAddCallback_ptsz,
    from: usize,
    stream: Stream,
    callback: Ptr,
    data: Ptr,
    flags: Uint,
) -> Result {
    hooks::note_per_thread_streams();
    // SAFETY: the program's arguments.
    unsafe { add_callback(real, from, stream, callback, data, flags) }
}

/// CU_GRAPH_NODE_TYPE_HOST
const NODE_HOST: i32 = 3;

/// A host function was put into a graph: it runs when the graph is launched.
fn node(host: bool) {
    if host && !state::switched_off() {
        sight::seen();
    }
}

/// `cuGraphAddHostNode`.
pub unsafe fn graph_add_host_node(
    real: types::cuGraphAddHostNode,
    _: usize,
    out: Ptr,
    graph: Ptr,
    nodes: Ptr,
    count: Size,
    params: Ptr,
) -> Result {
    node(true);
    // SAFETY: the program's arguments.
    unsafe { real(out, graph, nodes, count, params) }
}

/// `cuGraphAddNode`: the parameters begin with the node's type.
pub unsafe fn graph_add_node(
    real: types::cuGraphAddNode,
    _: usize,
    out: Ptr,
    graph: Ptr,
    nodes: Ptr,
    count: Size,
    params: *const i32,
) -> Result {
    // SAFETY: null or the program's structure.
    node(!params.is_null() && unsafe { *params } == NODE_HOST);
    // SAFETY: the program's arguments.
    unsafe { real(out, graph, nodes, count, params) }
}

/// `cuGraphAddNode_v2`.
#[allow(clippy::too_many_arguments, reason = "the driver's")]
pub unsafe fn graph_add_node_v2(
    real: types::cuGraphAddNode_v2,
    _: usize,
    out: Ptr,
    graph: Ptr,
    nodes: Ptr,
    edges: Ptr,
    count: Size,
    params: *const i32,
) -> Result {
    // SAFETY: null or the program's structure.
    node(!params.is_null() && unsafe { *params } == NODE_HOST);
    // SAFETY: the program's arguments.
    unsafe { real(out, graph, nodes, edges, count, params) }
}
