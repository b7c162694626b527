// Contexts: primary, created and green; which one is current; the device barrier (cuCtxRecordEvent, cuCtxWaitEvent).
#include "sim.h"

namespace sim {

static auto& contexts = *new std::set<Context*>;

Thread& self() {
  static __thread Thread* mine = nullptr;
  static uint64_t last = 0; // under the lock
  if (!mine) {
    mine = new Thread;
    mine->id = ++last;
  }
  return *mine;
}
Context* top() { return self().stack.empty() ? nullptr : self().stack.back(); }
Context* here() { return top() ? top()->root : nullptr; }
Context* context_of(CUcontext handle) {
  auto* ctx = (Context*)handle;
  return contexts.count(ctx) ? ctx : nullptr;
}

static void add_stream(Context* ctx, Stream* s) {
  s->ctx = ctx;
  s->id = next_id();
  ctx->streams.insert(s);
}

CUresult create_context(Device* dev, unsigned flags, bool primary, Context** out) {
  std::vector<uint32_t> overhead;
  if (!dev->take((size_t)env("SIMGPU_CONTEXT_MB", 256) / 2, overhead)) return CUDA_ERROR_OUT_OF_MEMORY;
  start_engine();
  // A primary context keeps its handle when it comes back after a reset, but not its id.
  Context* ctx = primary && dev->primary ? dev->primary : new Context;
  ctx->id = next_id();
  ctx->dev = dev;
  ctx->root = ctx;
  ctx->primary = primary;
  ctx->flags = flags;
  ctx->sticky = CUDA_SUCCESS;
  ctx->alive = true;
  ctx->overhead = overhead;
  ctx->legacy = new Stream;
  ctx->legacy->legacy = true;
  add_stream(ctx, ctx->legacy);
  if (primary) dev->primary = ctx;
  contexts.insert(ctx);
  return *out = ctx, CUDA_SUCCESS;
}

void destroy_context(Context* ctx) {
  wait_idle(ctx);
  for (Stream* s : ctx->streams) {
    abandon(s);
    s->alive = false;
  }
  ctx->streams.clear();
  ctx->per_thread.clear();
  ctx->barriers.clear();
  ctx->orphans.clear();
  ctx->peers.clear();
  forget_modules(ctx);
  release_context_memory(ctx);
  ctx->dev->give(ctx->overhead);
  ctx->overhead.clear();
  ctx->alive = false;
}

TaskRef all_work(Context* ctx) {
  std::vector<TaskRef> pending;
  for (Stream* s : ctx->streams) pending.push_back(s->last);
  for (auto& t : ctx->orphans) pending.push_back(t.first);
  return submit(ctx, {}, pending);
}
CUresult wait_idle(Context* ctx) { return wait(ctx, all_work(ctx)); }

} // namespace sim

using namespace sim;

static CUresult retain(Device* dev, CUcontext* out) {
  if (!dev->primary || !dev->primary->alive) {
    Context* ctx;
    CUresult result = create_context(dev, dev->primary_flags, true, &ctx);
    if (result) return result;
  }
  *out = (CUcontext)dev->primary;
  return CUDA_SUCCESS;
}

API CUresult cuDevicePrimaryCtxRetain(CUcontext* out, CUdevice ordinal) {
  return enter("cuDevicePrimaryCtxRetain", INIT, [&] {
    Device* dev = device_at(ordinal);
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    if (!dev) return CUDA_ERROR_INVALID_DEVICE;
    CUresult result = retain(dev, out);
    if (!result) ++dev->primary_refs;
    return result;
  });
}
API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice ordinal) {
  return enter("cuDevicePrimaryCtxRelease_v2", INIT, [&] {
    note("device=%d", ordinal);
    Device* dev = device_at(ordinal);
    if (!dev) return CUDA_ERROR_INVALID_DEVICE;
    if (!dev->primary_refs) return CUDA_ERROR_INVALID_CONTEXT;
    if (--dev->primary_refs == 0 && dev->primary->alive) destroy_context(dev->primary); // only the last one destroys
    return CUDA_SUCCESS;
  });
}
API CUresult cuDevicePrimaryCtxReset_v2(CUdevice ordinal) {
  return enter("cuDevicePrimaryCtxReset_v2", INIT, [&] {
    note("device=%d", ordinal);
    Device* dev = device_at(ordinal);
    if (!dev) return CUDA_ERROR_INVALID_DEVICE;
    if (dev->primary && dev->primary->alive) destroy_context(dev->primary);
    return CUDA_SUCCESS;
  });
}
API CUresult cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned* flags, int* active) {
  return enter("cuDevicePrimaryCtxGetState", INIT, [&] {
    Device* dev = device_at(ordinal);
    if (!dev) return CUDA_ERROR_INVALID_DEVICE;
    put(flags, dev->primary_flags);
    put(active, (int)(dev->primary && dev->primary->alive));
    return CUDA_SUCCESS;
  });
}
API CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice ordinal, unsigned flags) {
  return enter("cuDevicePrimaryCtxSetFlags_v2", INIT, [&] {
    Device* dev = device_at(ordinal);
    if (!dev) return CUDA_ERROR_INVALID_DEVICE;
    dev->primary_flags = flags;
    return CUDA_SUCCESS;
  });
}

static CUresult create(const char* name, CUcontext* out, unsigned flags, CUdevice ordinal) {
  return enter(name, INIT, [&] {
    note("device=%d", ordinal);
    Device* dev = device_at(ordinal);
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    if (!dev) return CUDA_ERROR_INVALID_DEVICE;
    Context* ctx;
    CUresult result = create_context(dev, flags, false, &ctx);
    if (!result) {
      self().stack.push_back(ctx);
      *out = (CUcontext)ctx;
    }
    return result;
  });
}
API CUresult cuCtxCreate_v2(CUcontext* out, unsigned flags, CUdevice dev) { return create("cuCtxCreate_v2", out, flags, dev); }
API CUresult cuCtxCreate_v3(CUcontext* out, void*, int, unsigned flags, CUdevice dev) { return create("cuCtxCreate_v3", out, flags, dev); }
API CUresult cuCtxCreate_v4(CUcontext* out, CUctxCreateParams*, unsigned flags, CUdevice dev) { return create("cuCtxCreate_v4", out, flags, dev); }
API CUresult cuCtxDestroy_v2(CUcontext handle) {
  return enter("cuCtxDestroy_v2", INIT, [&] {
    note("%p", (void*)handle);
    Context* ctx = context_of(handle);
    if (!ctx || ctx->primary || ctx->root != ctx) return handle ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_VALUE;
    if (!ctx->alive) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    destroy_context(ctx);
    if (top() == ctx) self().stack.pop_back(); // on other threads it stays current, destroyed
    return CUDA_SUCCESS;
  });
}
API CUresult cuCtxPushCurrent_v2(CUcontext handle) {
  return enter("cuCtxPushCurrent_v2", INIT, [&] {
    Context* ctx = context_of(handle);
    if (!ctx) return handle ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_VALUE;
    self().stack.push_back(ctx);
    return CUDA_SUCCESS;
  });
}
API CUresult cuCtxPopCurrent_v2(CUcontext* out) {
  return enter("cuCtxPopCurrent_v2", INIT, [&] {
    if (!top()) return CUDA_ERROR_INVALID_CONTEXT;
    put(out, (CUcontext)top());
    self().stack.pop_back();
    return CUDA_SUCCESS;
  });
}
API CUresult cuCtxSetCurrent(CUcontext handle) {
  return enter("cuCtxSetCurrent", INIT, [&] {
    Context* ctx = context_of(handle);
    if (handle && !ctx) return CUDA_ERROR_INVALID_CONTEXT;
    if (!self().stack.empty()) self().stack.pop_back();
    if (ctx) self().stack.push_back(ctx);
    return CUDA_SUCCESS;
  });
}
API CUresult cuCtxGetCurrent(CUcontext* out) {
  return enter("cuCtxGetCurrent", INIT, [&] {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    *out = (CUcontext)top();
    return CUDA_SUCCESS;
  });
}
API CUresult cuCtxGetDevice(CUdevice* out) {
  return enter("cuCtxGetDevice", INIT, [&] {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    if (!top()) return CUDA_ERROR_INVALID_CONTEXT;
    *out = here()->dev->ordinal;
    return CUDA_SUCCESS;
  });
}
API CUresult cuCtxGetDevice_v2(CUdevice* out, CUcontext handle) {
  return enter("cuCtxGetDevice_v2", INIT, [&] {
    Context* ctx = handle ? context_of(handle) : top();
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    if (!ctx) return CUDA_ERROR_INVALID_CONTEXT;
    *out = ctx->dev->ordinal;
    return CUDA_SUCCESS;
  });
}
API CUresult cuCtxGetFlags(unsigned* flags) {
  return enter("cuCtxGetFlags", CONTEXT, [&] {
    if (!flags) return CUDA_ERROR_INVALID_VALUE;
    *flags = here()->flags;
    return CUDA_SUCCESS;
  });
}
API CUresult cuCtxGetId(CUcontext handle, unsigned long long* id) {
  return enter("cuCtxGetId", INIT, [&] {
    Context* ctx = handle ? context_of(handle) : top();
    if (!id) return CUDA_ERROR_INVALID_VALUE;
    if (!ctx) return CUDA_ERROR_INVALID_CONTEXT;
    if (!ctx->root->alive) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *id = ctx->id;
    return CUDA_SUCCESS;
  });
}
API CUresult cuCtxGetApiVersion(CUcontext handle, unsigned* version) {
  return enter("cuCtxGetApiVersion", INIT, [&] {
    if (!version) return CUDA_ERROR_INVALID_VALUE;
    if (!(handle ? context_of(handle) : top())) return CUDA_ERROR_INVALID_CONTEXT;
    *version = 3020;
    return CUDA_SUCCESS;
  });
}
API CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  return enter("cuCtxGetStreamPriorityRange", CONTEXT, [&] {
    put(least, 0);
    put(greatest, -5);
    return CUDA_SUCCESS;
  });
}
static CUresult synchronize(const char* name, CUcontext handle) {
  return enter(name, CONTEXT | UNSAFE, [&] {
    Context* ctx = handle ? context_of(handle) : top();
    if (!ctx) return CUDA_ERROR_INVALID_CONTEXT;
    if (context_captures(ctx->root, true)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    CUresult result = wait_idle(ctx->root);
    trim_pools(ctx->dev);
    return result;
  });
}
API CUresult cuCtxSynchronize(void) { return synchronize("cuCtxSynchronize", nullptr); }
API CUresult cuCtxSynchronize_v2(CUcontext ctx) { return synchronize("cuCtxSynchronize_v2", ctx); }

API CUresult cuCtxEnablePeerAccess(CUcontext handle, unsigned flags) {
  return enter("cuCtxEnablePeerAccess", CONTEXT, [&] {
    Context* peer = context_of(handle);
    if (!peer || !peer->alive) return CUDA_ERROR_INVALID_CONTEXT;
    if (flags || peer == here()) return CUDA_ERROR_INVALID_VALUE;
    if (peer->dev == here()->dev) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    return here()->peers.insert(peer).second ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  });
}
API CUresult cuCtxDisablePeerAccess(CUcontext handle) {
  return enter("cuCtxDisablePeerAccess", CONTEXT, [&] {
    Context* peer = context_of(handle);
    if (!peer) return CUDA_ERROR_INVALID_CONTEXT;
    return here()->peers.erase(peer) ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
  });
}

// The device barrier. Recording takes in everything submitted to the context until now, on every stream, graphs and host
// functions too; after waiting, everything later waits for it, also on streams made afterwards. Measured with barrier.cu.
// The context is the one named; none has to be current.
static CUresult barrier_call(const char* name, CUcontext handle, CUevent e, const std::function<CUresult(Context*, Event*)>& body) {
  return enter(name, INIT, [&] {
    Context* ctx = context_of(handle);
    Event* event = event_of(e);
    if (!ctx) return CUDA_ERROR_INVALID_CONTEXT;
    if (!event) return CUDA_ERROR_INVALID_HANDLE;
    ctx = ctx->root;
    if (!ctx->alive) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (ctx->sticky) return ctx->sticky;
    if (context_captures(ctx, true)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    note("event=%p", (void*)event);
    return body(ctx, event);
  });
}
API CUresult cuCtxRecordEvent(CUcontext handle, CUevent e) {
  return barrier_call("cuCtxRecordEvent", handle, e, [](Context* ctx, Event* event) {
    if (event->ctx != ctx) return CUDA_ERROR_INVALID_HANDLE; // the event must be of this context
    event->task = all_work(ctx);
    event->stream = 0;
    event->capture = nullptr;
    event->nodes.clear();
    return CUDA_SUCCESS;
  });
}
API CUresult cuCtxWaitEvent(CUcontext handle, CUevent e) {
  return barrier_call("cuCtxWaitEvent", handle, e, [](Context* ctx, Event* event) { // of any context
    std::vector<TaskRef> still;
    for (auto& t : ctx->barriers)
      if (!t->done) still.push_back(t);
    if (event->task && !event->task->done) still.push_back(event->task);
    ctx->barriers = still;
    return CUDA_SUCCESS;
  });
}

static CUresult limit(const char* name, size_t* out, int which) { // taken and ignored: the simulator has no stacks or heaps
  return enter(name, CONTEXT, [&] {
    if (which < 0 || which > 8) return CUDA_ERROR_INVALID_VALUE;
    put<size_t>(out, 0);
    return CUDA_SUCCESS;
  });
}
API CUresult cuCtxSetLimit(int which, size_t) { return limit("cuCtxSetLimit", nullptr, which); }
API CUresult cuCtxGetLimit(size_t* out, int which) { return out ? limit("cuCtxGetLimit", out, which) : CUDA_ERROR_INVALID_VALUE; }

// Green contexts: a handle on the primary context, with its streams and memory. Partitions of the device are not simulated.
API CUresult cuGreenCtxCreate(CUgreenCtx* out, CUdevResourceDesc, CUdevice ordinal, unsigned) {
  return enter("cuGreenCtxCreate", INIT, [&] {
    Device* dev = device_at(ordinal);
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    if (!dev) return CUDA_ERROR_INVALID_DEVICE;
    CUcontext primary;
    CUresult result = retain(dev, &primary);
    if (result) return result;
    ++dev->primary_refs;
    auto* green = new Context;
    green->id = next_id();
    green->dev = dev;
    green->root = dev->primary;
    green->alive = true;
    contexts.insert(green);
    *out = (CUgreenCtx)green;
    return CUDA_SUCCESS;
  });
}
API CUresult cuGreenCtxDestroy(CUgreenCtx handle) {
  return enter("cuGreenCtxDestroy", INIT, [&] {
    Context* green = context_of((CUcontext)handle);
    if (!green || green->root == green) return CUDA_ERROR_INVALID_VALUE;
    contexts.erase(green);
    if (--green->dev->primary_refs == 0 && green->root->alive) destroy_context(green->root);
    return CUDA_SUCCESS;
  });
}
API CUresult cuCtxFromGreenCtx(CUcontext* out, CUgreenCtx handle) {
  return enter("cuCtxFromGreenCtx", INIT, [&] {
    Context* green = context_of((CUcontext)handle);
    if (!out || !green || green->root == green) return CUDA_ERROR_INVALID_VALUE;
    *out = (CUcontext)green;
    return CUDA_SUCCESS;
  });
}
API CUresult cuGreenCtxRecordEvent(CUgreenCtx green, CUevent event) { return cuCtxRecordEvent((CUcontext)green, event); }
API CUresult cuGreenCtxWaitEvent(CUgreenCtx green, CUevent event) { return cuCtxWaitEvent((CUcontext)green, event); }
