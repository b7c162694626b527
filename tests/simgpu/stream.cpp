// Streams and events: the order of work. A stream is first in, first out; the legacy stream waits for every blocking stream
// and they wait for it; non-blocking streams wait for nobody; context barriers bind all.
#include "sim.h"
#include <algorithm>

namespace sim {

static auto& streams = *new std::set<Stream*>; // live created ones
static auto& ended = *new std::vector<Stream*>; // handles come back
static auto& events = *new std::set<Event*>;

Stream* stream_of(CUstream handle, bool per_thread) {
  if (!handle) handle = per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
  if (handle == CU_STREAM_LEGACY) return here()->legacy;
  if (handle == CU_STREAM_PER_THREAD) {
    Stream*& s = here()->per_thread[self().id];
    if (!s) {
      s = new Stream;
      s->ctx = here();
      s->id = next_id();
      here()->streams.insert(s);
    }
    return s;
  }
  auto* s = (Stream*)handle;
  return streams.count(s) && s->alive ? s : nullptr;
}
Event* event_of(CUevent handle) {
  auto* e = (Event*)handle;
  return events.count(e) ? e : nullptr;
}

// What the next task of a stream must wait for.
static std::vector<TaskRef> before(Stream* s) {
  std::vector<TaskRef> after{s->last};
  Context* ctx = s->ctx;
  for (auto& t : ctx->barriers) after.push_back(t);
  if (s->legacy) {
    for (Stream* other : ctx->streams)
      if (other->blocking()) after.push_back(other->last);
    for (auto& t : ctx->orphans)
      if (t.second) after.push_back(t.first);
  } else if (s->blocking()) {
    after.push_back(ctx->legacy->last);
  }
  return after;
}

// Puts work on a stream, or into the graph that the stream captures.
CUresult enqueue(Stream* s, Op op, int node_type, TaskRef* out) {
  if (s->capture) return capture_node(s, std::move(op), node_type);
  if (s->legacy)
    for (Stream* other : s->ctx->streams)
      if (other->blocking() && other->capture) {
        invalidate(other->capture);
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
      }
  s->last = submit(s->ctx, std::move(op), before(s));
  if (out) *out = s->last;
  return CUDA_SUCCESS;
}

TaskRef join(Stream* s, std::vector<TaskRef> more) {
  std::vector<TaskRef> after = before(s);
  after.insert(after.end(), more.begin(), more.end());
  return s->last = submit(s->ctx, {}, after);
}

static CUresult create(const char* name, CUstream* out, unsigned flags, int priority, CUgreenCtx green = nullptr) {
  return enter(name, green ? INIT : CONTEXT, [&] {
    Context* ctx = green ? context_of((CUcontext)green) : here();
    if (!out || !ctx || flags > 1) return CUDA_ERROR_INVALID_VALUE;
    Stream* s = ended.empty() ? new Stream : ended.back();
    if (!ended.empty()) ended.pop_back();
    *s = {};
    s->ctx = ctx->root;
    s->id = next_id();
    s->flags = flags;
    s->priority = priority;
    s->ctx->streams.insert(s);
    streams.insert(s);
    *out = (CUstream)s;
    return CUDA_SUCCESS;
  });
}

} // namespace sim

using namespace sim;

API CUresult cuStreamCreate(CUstream* out, unsigned flags) { return create("cuStreamCreate", out, flags, 0); }
API CUresult cuStreamCreateWithPriority(CUstream* out, unsigned flags, int priority) { return create("cuStreamCreateWithPriority", out, flags, priority); }
API CUresult cuGreenCtxStreamCreate(CUstream* out, CUgreenCtx green, unsigned flags, int priority) { return create("cuGreenCtxStreamCreate", out, flags, priority, green); }
API CUresult cuStreamDestroy_v2(CUstream handle) {
  return enter("cuStreamDestroy_v2", CONTEXT, [&] {
    Stream* s = streams.count((Stream*)handle) ? (Stream*)handle : nullptr; // a default stream cannot be destroyed
    if (!s || !s->alive) return CUDA_ERROR_INVALID_HANDLE;
    abandon(s);
    Context* ctx = s->ctx;
    decltype(ctx->orphans) still; // its pending work goes on
    for (auto& t : ctx->orphans)
      if (!t.first->done) still.push_back(t);
    if (s->last && !s->last->done) still.push_back({s->last, s->blocking()});
    ctx->orphans = still;
    ctx->streams.erase(s);
    streams.erase(s);
    s->alive = false;
    ended.insert(ended.begin(), s); // the longest unused one first
    return CUDA_SUCCESS;
  });
}

// name, and its _ptsz twin, for functions of one stream
#define STREAM_CALL(name, parameters, arguments, ...)                                         \
  static CUresult name##_on(const char* entry, bool per_thread, CUstream handle, ##__VA_ARGS__);     \
  API CUresult name parameters { return name##_on(#name, false, handle arguments); }                 \
  API CUresult name##_ptsz parameters { return name##_on(#name "_ptsz", true, handle arguments); }

#define COMMA ,
// A default stream is the current context's; a created one is known by its handle.
static bool needs_context(CUstream handle) { return !handle || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD; }
STREAM_CALL(cuStreamQuery, (CUstream handle), )
static CUresult cuStreamQuery_on(const char* entry, bool per_thread, CUstream handle) {
  return enter(entry, SOUND | ALWAYS, [&] {
    if (needs_context(handle) && !top()) return CUDA_ERROR_INVALID_CONTEXT;
    Stream* s = stream_of(handle, per_thread);
    if (!s) return CUDA_ERROR_INVALID_HANDLE;
    if (s->capture) { invalidate(s->capture); return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; }
    if (capture_forbids()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (s->legacy) join(s);
    return s->ctx->sticky ? s->ctx->sticky : !s->last || s->last->done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  });
}
STREAM_CALL(cuStreamSynchronize, (CUstream handle), )
static CUresult cuStreamSynchronize_on(const char* entry, bool per_thread, CUstream handle) {
  return enter(entry, CONTEXT | UNSAFE, [&] {
    Stream* s = stream_of(handle, per_thread);
    if (!s) return CUDA_ERROR_INVALID_HANDLE;
    if (s->capture) { invalidate(s->capture); return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; }
    if (in_child()) return CUDA_SUCCESS;
    if (s->legacy) join(s);
    uint64_t id = s->id;
    Device* dev = s->ctx->dev;
    CUresult result = wait(s->ctx, s->last);
    trim_pools(dev, id);
    return result;
  });
}
STREAM_CALL(cuStreamGetId, (CUstream handle, unsigned long long* id), COMMA id, unsigned long long* id)
static CUresult cuStreamGetId_on(const char* entry, bool per_thread, CUstream handle, unsigned long long* id) {
  return enter(entry, SOUND | ALWAYS, [&] {
    if (needs_context(handle) && !top()) return CUDA_ERROR_INVALID_CONTEXT;
    Stream* s = stream_of(handle, per_thread);
    if (!id) return CUDA_ERROR_INVALID_VALUE;
    if (!s) return CUDA_ERROR_INVALID_HANDLE;
    if (s->capture) { invalidate(s->capture); return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; } // in every mode
    if (s->legacy)
      for (Stream* other : s->ctx->streams)
        if (other->blocking() && other->capture) {
          invalidate(other->capture);
          return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        }
    *id = s->id;
    return CUDA_SUCCESS;
  });
}
STREAM_CALL(cuStreamGetCtx, (CUstream handle, CUcontext* ctx), COMMA ctx, CUcontext* ctx)
static CUresult cuStreamGetCtx_on(const char* entry, bool per_thread, CUstream handle, CUcontext* ctx) {
  return enter(entry, CONTEXT, [&] {
    Stream* s = stream_of(handle, per_thread);
    if (!ctx) return CUDA_ERROR_INVALID_VALUE;
    if (!s) return CUDA_ERROR_INVALID_HANDLE;
    *ctx = (CUcontext)s->ctx;
    return CUDA_SUCCESS;
  });
}
// 12.5: green contexts too, of which there are only the primary's
STREAM_CALL(cuStreamGetCtx_v2, (CUstream handle, CUcontext* ctx, CUgreenCtx* green), COMMA ctx COMMA green, CUcontext* ctx, CUgreenCtx* green)
static CUresult cuStreamGetCtx_v2_on(const char* entry, bool per_thread, CUstream handle, CUcontext* ctx, CUgreenCtx* green) {
  return enter(entry, CONTEXT, [&] {
    Stream* s = stream_of(handle, per_thread);
    if (!s) return CUDA_ERROR_INVALID_HANDLE;
    put(ctx, (CUcontext)s->ctx);
    put<CUgreenCtx>(green, nullptr);
    return CUDA_SUCCESS;
  });
}
STREAM_CALL(cuStreamGetFlags, (CUstream handle, unsigned* flags), COMMA flags, unsigned* flags)
static CUresult cuStreamGetFlags_on(const char* entry, bool per_thread, CUstream handle, unsigned* flags) {
  return enter(entry, CONTEXT, [&] {
    Stream* s = stream_of(handle, per_thread);
    if (!flags) return CUDA_ERROR_INVALID_VALUE;
    if (!s) return CUDA_ERROR_INVALID_HANDLE;
    *flags = s->flags;
    return CUDA_SUCCESS;
  });
}
STREAM_CALL(cuStreamGetPriority, (CUstream handle, int* priority), COMMA priority, int* priority)
static CUresult cuStreamGetPriority_on(const char* entry, bool per_thread, CUstream handle, int* priority) {
  return enter(entry, CONTEXT, [&] {
    Stream* s = stream_of(handle, per_thread);
    if (!priority) return CUDA_ERROR_INVALID_VALUE;
    if (!s) return CUDA_ERROR_INVALID_HANDLE;
    *priority = s->priority;
    return CUDA_SUCCESS;
  });
}
STREAM_CALL(cuStreamGetDevice, (CUstream handle, CUdevice* device), COMMA device, CUdevice* device)
static CUresult cuStreamGetDevice_on(const char* entry, bool per_thread, CUstream handle, CUdevice* device) {
  return enter(entry, CONTEXT, [&] {
    Stream* s = stream_of(handle, per_thread);
    if (!device) return CUDA_ERROR_INVALID_VALUE;
    if (!s) return CUDA_ERROR_INVALID_HANDLE;
    *device = s->ctx->dev->ordinal;
    return CUDA_SUCCESS;
  });
}
STREAM_CALL(cuStreamAttachMemAsync, (CUstream handle, CUdeviceptr dptr, size_t length, unsigned flags), COMMA dptr COMMA length COMMA flags, CUdeviceptr dptr, size_t length, unsigned flags)
static CUresult cuStreamAttachMemAsync_on(const char* entry, bool per_thread, CUstream handle, CUdeviceptr dptr, size_t, unsigned) {
  return enter(entry, CONTEXT, [&] {
    Stream* s = stream_of(handle, per_thread);
    Allocation* a = find(dptr);
    if (!s) return CUDA_ERROR_INVALID_HANDLE;
    if (!a || a->kind != Kind::Managed) return CUDA_ERROR_INVALID_VALUE;
    return enqueue(s, {}, 5);
  });
}
STREAM_CALL(cuLaunchHostFunc, (CUstream handle, CUhostFn fn, void* data), COMMA fn COMMA data, CUhostFn fn, void* data)
static CUresult cuLaunchHostFunc_on(const char* entry, bool per_thread, CUstream handle, CUhostFn fn, void* data) {
  return enter(entry, CONTEXT, [&] {
    Stream* s = stream_of(handle, per_thread);
    if (!s) return CUDA_ERROR_INVALID_HANDLE;
    if (!fn) return CUDA_ERROR_INVALID_VALUE;
    Op op;
    op.host = [fn, data] { fn(data); };
    return enqueue(s, std::move(op), 3);
  });
}
STREAM_CALL(cuStreamAddCallback, (CUstream handle, CUstreamCallback fn, void* data, unsigned flags), COMMA fn COMMA data COMMA flags, CUstreamCallback fn, void* data, unsigned flags)
static CUresult cuStreamAddCallback_on(const char* entry, bool per_thread, CUstream handle, CUstreamCallback fn, void* data, unsigned flags) {
  return enter(entry, CONTEXT, [&] {
    Stream* s = stream_of(handle, per_thread);
    if (!s) return CUDA_ERROR_INVALID_HANDLE;
    if (!fn || flags) return CUDA_ERROR_INVALID_VALUE;
    if (s->capture) { invalidate(s->capture); return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; }
    Op op;
    Context* ctx = s->ctx;
    op.host = [=] { fn(handle, ctx->sticky, data); };
    return enqueue(s, std::move(op), 3);
  });
}

// ---- events ----

API CUresult cuEventCreate(CUevent* out, unsigned flags) {
  return enter("cuEventCreate", CONTEXT, [&] {
    if (!out || flags > 7) return CUDA_ERROR_INVALID_VALUE;
    auto* e = new Event;
    e->ctx = here();
    e->flags = flags;
    events.insert(e);
    *out = (CUevent)e;
    return CUDA_SUCCESS;
  });
}
API CUresult cuEventDestroy_v2(CUevent handle) {
  return enter("cuEventDestroy_v2", INIT, [&] {
    Event* e = event_of(handle);
    if (!e) return CUDA_ERROR_INVALID_HANDLE;
    CUresult fault = e->ctx->sticky; // it goes all the same
    events.erase(e);
    delete e;
    return fault;
  });
}
static CUresult record(const char* name, CUevent handle, CUstream stream, bool per_thread) {
  return enter(name, SOUND, [&] {
    if (needs_context(stream) && !top()) return CUDA_ERROR_INVALID_CONTEXT;
    Event* e = event_of(handle);
    Stream* s = stream_of(stream, per_thread);
    if (!e || !s) return CUDA_ERROR_INVALID_HANDLE;
    if (e->ctx != s->ctx) return CUDA_ERROR_INVALID_HANDLE;
    if (s->capture) {
      CUresult result = s->capture->status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
      e->capture = s->capture;
      e->nodes = s->tail;
      return result;
    }
    e->capture = nullptr;
    e->nodes.clear();
    e->stream = s->id;
    return enqueue(s, {}, 7, &e->task);
  });
}
API CUresult cuEventRecord(CUevent e, CUstream s) { return record("cuEventRecord", e, s, false); }
API CUresult cuEventRecord_ptsz(CUevent e, CUstream s) { return record("cuEventRecord_ptsz", e, s, true); }
API CUresult cuEventRecordWithFlags(CUevent e, CUstream s, unsigned) { return record("cuEventRecordWithFlags", e, s, false); }
API CUresult cuEventRecordWithFlags_ptsz(CUevent e, CUstream s, unsigned) { return record("cuEventRecordWithFlags_ptsz", e, s, true); }

// A captured event has no state to ask for; asking spoils the capture.
static bool captured(Event* e) {
  if (!e->capture) return false;
  invalidate(e->capture);
  return true;
}
API CUresult cuEventQuery(CUevent handle) {
  return enter("cuEventQuery", INIT | ALWAYS, [&] {
    Event* e = event_of(handle);
    if (!e) return CUDA_ERROR_INVALID_HANDLE;
    if (!e->ctx->alive) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (captured(e)) return CUDA_ERROR_CAPTURED_EVENT;
    if (capture_forbids()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return e->ctx->sticky ? e->ctx->sticky : !e->task || e->task->done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  });
}
API CUresult cuEventSynchronize(CUevent handle) {
  return enter("cuEventSynchronize", INIT | ALWAYS, [&] {
    Event* e = event_of(handle);
    if (!e) return CUDA_ERROR_INVALID_HANDLE;
    if (captured(e)) return CUDA_ERROR_CAPTURED_EVENT;
    if (capture_forbids()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    TaskRef task = e->task;
    Context* ctx = e->ctx;
    uint64_t stream = e->stream;
    CUresult result = wait(ctx, task);
    trim_pools(ctx->dev, stream);
    return result;
  });
}
API CUresult cuEventElapsedTime_v2(float* ms, CUevent start, CUevent stop) {
  return enter("cuEventElapsedTime_v2", INIT | UNSAFE, [&] {
    Event *a = event_of(start), *b = event_of(stop);
    if (!ms) return CUDA_ERROR_INVALID_VALUE;
    if (!a || !b || ((a->flags | b->flags) & CU_EVENT_DISABLE_TIMING) || !a->task || !b->task) return CUDA_ERROR_INVALID_HANDLE;
    if (!a->task->done || !b->task->done) return CUDA_ERROR_NOT_READY;
    *ms = std::chrono::duration<float, std::milli>(b->task->finish - a->task->finish).count();
    return CUDA_SUCCESS;
  });
}
API CUresult cuEventElapsedTime(float* ms, CUevent start, CUevent stop) { return cuEventElapsedTime_v2(ms, start, stop); }

static CUresult wait_event(const char* name, CUstream stream, CUevent handle, unsigned flags, bool per_thread) {
  return enter(name, SOUND, [&] {
    if (needs_context(stream) && !top()) return CUDA_ERROR_INVALID_CONTEXT;
    Event* e = event_of(handle);
    Stream* s = stream_of(stream, per_thread);
    if (!e || !s) return CUDA_ERROR_INVALID_HANDLE;
    if (flags) return flags == 1 ? CUDA_ERROR_ILLEGAL_STATE : CUDA_ERROR_INVALID_VALUE; // 1: an external node, of a capture
    if (e->capture && e->capture->status == CU_STREAM_CAPTURE_STATUS_INVALIDATED) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (e->capture) { // the stream joins the capture, or takes in another branch of its own
      if (s->legacy) { invalidate(e->capture); return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT; }
      if (s->capture && s->capture != e->capture) {
        invalidate(s->capture);
        invalidate(e->capture);
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
      }
      s->capture = e->capture;
      e->capture->streams.insert(s);
      for (Node* n : e->nodes) s->tail.push_back(n);
      return CUDA_SUCCESS;
    }
    if (s->capture) {
      invalidate(s->capture);
      return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    if (e->task && !e->task->done) join(s, {e->task});
    if (e->task && e->stream) s->seen[e->stream] = std::max(s->seen[e->stream], e->task->seq);
    return CUDA_SUCCESS;
  });
}
API CUresult cuStreamWaitEvent(CUstream s, CUevent e, unsigned flags) { return wait_event("cuStreamWaitEvent", s, e, flags, false); }
API CUresult cuStreamWaitEvent_ptsz(CUstream s, CUevent e, unsigned flags) { return wait_event("cuStreamWaitEvent_ptsz", s, e, flags, true); }
