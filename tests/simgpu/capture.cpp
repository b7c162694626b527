// Stream capture and graphs. What a capture forbids is the point: a call that could block or synchronise, made by a thread in
// the wrong mode, fails and spoils every capture it could have disturbed.
#include "sim.h"
#include <algorithm>
#include <cstdio>

namespace sim {

static auto& captures = *new std::set<Capture*>; // active or invalidated, until EndCapture
static auto& graphs = *new std::set<Graph*>;
struct Exec {
  Graph* graph;
};
static auto& execs = *new std::set<Exec*>;

void invalidate(Capture* c) { c->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED; }

// An unsafe call is refused if this thread has a capture that is not relaxed or, in the thread's global mode (the default),
// if any thread has a global one. In relaxed mode (cuThreadExchangeStreamCaptureMode) everything is allowed.
bool capture_forbids() {
  Thread& me = self();
  if (me.mode == CU_STREAM_CAPTURE_MODE_RELAXED) return false;
  bool refused = false;
  for (Capture* c : captures) {
    bool mine = c->thread == me.id && c->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    bool global = me.mode == CU_STREAM_CAPTURE_MODE_GLOBAL && c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (!mine && !global) continue;
    invalidate(c);
    refused = true;
  }
  return refused;
}

bool context_captures(Context* ctx, bool spoil) {
  bool any = false;
  for (Capture* c : captures)
    for (Stream* s : c->streams)
      if (s->ctx == ctx) {
        if (spoil) invalidate(c);
        any = true;
      }
  return any;
}

Node* graph_node(Graph* graph, Op op, int type, const std::vector<Node*>& deps) {
  auto* node = new Node{type, std::move(op), deps};
  graph->nodes.push_back(node); // in an order in which they can run
  return node;
}

CUresult capture_node(Stream* s, Op op, int type) {
  if (s->capture->status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  s->tail = {graph_node(s->capture->graph, std::move(op), type, s->tail)};
  return CUDA_SUCCESS;
}

static void leave(Capture* c) {
  for (Stream* s : c->streams) {
    s->capture = nullptr;
    s->tail.clear();
  }
  captures.erase(c); // the object stays: events may still point at it
}

static void disown(Graph* graph);
void abandon(Stream* s) {
  Capture* c = s->capture;
  if (!c) return;
  invalidate(c);
  if (c->origin != s) {
    c->streams.erase(s);
  } else { // nobody can end it any more
    leave(c);
    disown(c->graph);
  }
}

static void disown(Graph* graph) {
  if (--graph->owners) return;
  for (Allocation* a : graph->memory) {
    a->orphan = a->outside; // what a launch left allocated stays so (the manual says it; not measured)
    if (a->orphan) continue;
    wait_idle(a->ctx);
    release_device(a);
  }
  graphs.erase(graph);
  graph->memory.clear();
}

static Graph* graph_of(CUgraph handle) { return graphs.count((Graph*)handle) ? (Graph*)handle : nullptr; }

static CUresult begin_capture(const char* name, CUstream stream, CUstreamCaptureMode mode, Graph* into, bool per_thread) {
  return enter(name, CONTEXT, [&] {
    Stream* s = stream_of(stream, per_thread);
    if (!s) return CUDA_ERROR_INVALID_HANDLE;
    if (mode < 0 || mode > 2) return CUDA_ERROR_INVALID_VALUE;
    if (s->legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (s->capture) return CUDA_ERROR_ILLEGAL_STATE;
    auto* c = new Capture;
    c->id = next_id();
    c->thread = self().id;
    c->mode = mode;
    c->origin = s;
    c->streams.insert(s);
    c->graph = into ? into : new Graph;
    graphs.insert(c->graph);
    s->capture = c;
    s->tail.clear();
    captures.insert(c);
    note("mode=%d", mode);
    return CUDA_SUCCESS;
  });
}

static CUresult end_capture(const char* name, CUstream stream, CUgraph* out, bool per_thread) {
  return enter(name, CONTEXT, [&] {
    Stream* s = stream_of(stream, per_thread);
    if (!s) return CUDA_ERROR_INVALID_HANDLE;
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    Capture* c = s->capture;
    *out = nullptr;
    if (!c) return CUDA_ERROR_ILLEGAL_STATE;
    if (c->origin != s) { invalidate(c); return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED; }
    CUresult result = CUDA_SUCCESS;
    if (c->thread != self().id && c->mode != CU_STREAM_CAPTURE_MODE_RELAXED) {
      result = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD; // and it ends all the same
    } else if (c->status != CU_STREAM_CAPTURE_STATUS_ACTIVE) {
      result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    } else {
      std::set<Node*> joined; // everything that the origin's end depends on
      std::vector<Node*> todo = s->tail;
      while (!todo.empty()) {
        Node* n = todo.back();
        todo.pop_back();
        if (joined.insert(n).second) todo.insert(todo.end(), n->deps.begin(), n->deps.end());
      }
      for (Stream* other : c->streams)
        for (Node* n : other->tail)
          if (!joined.count(n)) result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    }
    leave(c);
    c->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED; // for events recorded in it
    if (result) disown(c->graph);
    else *out = (CUgraph)c->graph;
    return result;
  });
}

static CUresult capture_info(const char* name, CUstream stream, bool per_thread, CUstreamCaptureStatus* status, uint64_t* id, CUgraph* graph,
                             const CUgraphNode** deps, const CUgraphEdgeData** data, size_t* count) {
  return enter(name, SOUND | ALWAYS, [&] {
    if ((!stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD) && !top()) return CUDA_ERROR_INVALID_CONTEXT;
    Stream* s = stream_of(stream, per_thread);
    if (!status) return CUDA_ERROR_INVALID_VALUE;
    if (!s) return CUDA_ERROR_INVALID_HANDLE;
    if (s->legacy)
      for (Stream* other : s->ctx->streams)
        if (other->blocking() && other->capture) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    Capture* c = s->capture;
    *status = c ? c->status : CU_STREAM_CAPTURE_STATUS_NONE;
    if (!c || c->status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
    put(id, c->id);
    put(graph, (CUgraph)c->graph);
    put(deps, (const CUgraphNode*)s->tail.data());
    put<const CUgraphEdgeData*>(data, nullptr);
    put(count, s->tail.size());
    return CUDA_SUCCESS;
  });
}

// Graph memory is backed by the first launch. What the graph does not free itself stays allocated.
static bool back_memory(Graph* graph) {
  for (Allocation* a : graph->memory) {
    if (!back(a)) return false;
    a->outside = !graph->freed.count(a);
  }
  return true;
}

// All nodes become tasks behind what the stream has to wait for, and the stream goes on when all are done.
static CUresult launch(const char* name, CUgraphExec handle, CUstream stream, bool per_thread) {
  return enter(name, CONTEXT, [&] {
    auto* exec = (Exec*)handle;
    Stream* s = stream_of(stream, per_thread);
    if (!execs.count(exec)) return CUDA_ERROR_INVALID_VALUE;
    if (!s) return CUDA_ERROR_INVALID_HANDLE;
    note("graph=%p", (void*)exec);
    std::map<Node*, TaskRef> tasks;
    std::vector<TaskRef> all;
    if (s->capture) { // a child graph: its nodes, again
      std::map<Node*, Node*> copies;
      std::vector<Node*> tail = s->tail;
      for (Node* n : exec->graph->nodes) {
        std::vector<Node*> deps = n->deps.empty() ? tail : std::vector<Node*>{};
        for (Node* d : n->deps) deps.push_back(copies[d]);
        copies[n] = graph_node(s->capture->graph, n->op, n->type, deps);
        s->tail.push_back(copies[n]);
      }
      return CUDA_SUCCESS;
    }
    if (!back_memory(exec->graph)) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = enqueue(s, {}, 4);
    if (result) return result;
    TaskRef first = s->last;
    for (Node* n : exec->graph->nodes) {
      std::vector<TaskRef> after{first};
      for (Node* d : n->deps) after.push_back(tasks[d]);
      all.push_back(tasks[n] = submit(s->ctx, n->op, after));
    }
    join(s, all);
    return CUDA_SUCCESS;
  });
}

} // namespace sim

using namespace sim;

#define BOTH(name, parameters, call) \
  API CUresult name parameters { const char* fn = #name; const bool per_thread = false; return call; } \
  API CUresult name##_ptsz parameters { const char* fn = #name "_ptsz"; const bool per_thread = true; return call; }

BOTH(cuStreamBeginCapture_v2, (CUstream s, CUstreamCaptureMode mode), begin_capture(fn, s, mode, nullptr, per_thread))
BOTH(cuStreamBeginCapture, (CUstream s), begin_capture(fn, s, CU_STREAM_CAPTURE_MODE_GLOBAL, nullptr, per_thread)) // before 10.1: no mode
BOTH(cuStreamEndCapture, (CUstream s, CUgraph* out), end_capture(fn, s, out, per_thread))
BOTH(cuStreamBeginCaptureToGraph, (CUstream s, CUgraph graph, const CUgraphNode*, const CUgraphEdgeData*, size_t, CUstreamCaptureMode mode),
     (graph ? begin_capture(fn, s, mode, (Graph*)graph, per_thread) : CUDA_ERROR_INVALID_VALUE))
BOTH(cuStreamIsCapturing, (CUstream s, CUstreamCaptureStatus* status), capture_info(fn, s, per_thread, status, nullptr, nullptr, nullptr, nullptr, nullptr))
BOTH(cuStreamGetCaptureInfo, (CUstream s, CUstreamCaptureStatus* status, uint64_t* id), capture_info(fn, s, per_thread, status, id, nullptr, nullptr, nullptr, nullptr))
BOTH(cuStreamGetCaptureInfo_v2, (CUstream s, CUstreamCaptureStatus* status, uint64_t* id, CUgraph* graph, const CUgraphNode** deps, size_t* count),
     capture_info(fn, s, per_thread, status, id, graph, deps, nullptr, count))
BOTH(cuStreamGetCaptureInfo_v3, (CUstream s, CUstreamCaptureStatus* status, uint64_t* id, CUgraph* graph, const CUgraphNode** deps, const CUgraphEdgeData** data, size_t* count),
     capture_info(fn, s, per_thread, status, id, graph, deps, data, count))
BOTH(cuGraphLaunch, (CUgraphExec exec, CUstream s), launch(fn, exec, s, per_thread))
BOTH(cuGraphUpload, (CUgraphExec exec, CUstream s), (enter(fn, CONTEXT, [&] {
  if (!execs.count((Exec*)exec)) return CUDA_ERROR_INVALID_VALUE;
  return stream_of(s, per_thread) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
})))

API CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  return enter("cuThreadExchangeStreamCaptureMode", INIT, [&] {
    if (!mode || *mode < 0 || *mode > 2) return CUDA_ERROR_INVALID_VALUE;
    std::swap(*mode, self().mode);
    return CUDA_SUCCESS;
  });
}
API CUresult cuGraphCreate(CUgraph* out, unsigned flags) {
  return enter("cuGraphCreate", INIT, [&] {
    if (!out || flags) return CUDA_ERROR_INVALID_VALUE;
    auto* graph = new Graph;
    graphs.insert(graph);
    *out = (CUgraph)graph;
    return CUDA_SUCCESS;
  });
}
API CUresult cuGraphDestroy(CUgraph handle) {
  return enter("cuGraphDestroy", INIT, [&] {
    Graph* graph = graph_of(handle);
    if (!graph) return CUDA_ERROR_INVALID_VALUE;
    disown(graph);
    return CUDA_SUCCESS;
  });
}
API CUresult cuGraphGetNodes(CUgraph handle, CUgraphNode* out, size_t* count) {
  return enter("cuGraphGetNodes", INIT, [&] {
    Graph* graph = graph_of(handle);
    if (!graph || !count) return CUDA_ERROR_INVALID_VALUE;
    if (out)
      for (size_t i = 0; i < *count; ++i) out[i] = i < graph->nodes.size() ? (CUgraphNode)graph->nodes[i] : nullptr;
    *count = out ? std::min(*count, graph->nodes.size()) : graph->nodes.size();
    return CUDA_SUCCESS;
  });
}
static CUresult dependencies(const char* name, CUgraphNode handle, CUgraphNode* out, size_t* count) {
  return enter(name, INIT, [&] {
    auto* node = (Node*)handle;
    if (!node || !count) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; out && i < *count; ++i) out[i] = i < node->deps.size() ? (CUgraphNode)node->deps[i] : nullptr;
    *count = out ? std::min(*count, node->deps.size()) : node->deps.size();
    return CUDA_SUCCESS;
  });
}
API CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode* out, size_t* count) { return dependencies("cuGraphNodeGetDependencies", node, out, count); }
// Edges here have no data: the caller's is left as it is, as zeros are what a plain edge has.
API CUresult cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode* out, CUgraphEdgeData*, size_t* count) {
  return dependencies("cuGraphNodeGetDependencies_v2", node, out, count);
}
API CUresult cuGraphDebugDotPrint(CUgraph handle, const char* path, unsigned) {
  return enter("cuGraphDebugDotPrint", INIT, [&] {
    Graph* graph = graph_of(handle);
    FILE* file = graph && path ? fopen(path, "w") : nullptr;
    if (!file) return CUDA_ERROR_INVALID_VALUE;
    fprintf(file, "digraph {\n");
    for (Node* n : graph->nodes) {
      fprintf(file, "\"%p\" [label=\"type %d\"]\n", (void*)n, n->type);
      for (Node* d : n->deps) fprintf(file, "\"%p\" -> \"%p\"\n", (void*)d, (void*)n);
    }
    fprintf(file, "}\n");
    fclose(file);
    return CUDA_SUCCESS;
  });
}
static CUresult instantiate(const char* name, CUgraphExec* out, CUgraph handle) {
  return enter(name, CONTEXT, [&] {
    Graph* graph = graph_of(handle);
    if (!out || !graph) return CUDA_ERROR_INVALID_VALUE;
    ++graph->owners; // nodes are not edited afterwards, so the executable shares them
    auto* exec = new Exec{graph};
    execs.insert(exec);
    *out = (CUgraphExec)exec;
    return CUDA_SUCCESS;
  });
}
API CUresult cuGraphInstantiateWithFlags(CUgraphExec* out, CUgraph graph, unsigned long long) { return instantiate("cuGraphInstantiateWithFlags", out, graph); }
// What cuGetProcAddress gives for cuGraphInstantiate of CUDA 12: not an exported symbol.
extern "C" CUresult simgpu_graph_instantiate_12000(CUgraphExec* out, CUgraph graph, unsigned long long);
extern "C" CUresult simgpu_graph_instantiate_12000(CUgraphExec* out, CUgraph graph, unsigned long long) { return instantiate("cuGraphInstantiate@12000", out, graph); }
API CUresult cuGraphInstantiate_v2(CUgraphExec* out, CUgraph graph, CUgraphNode*, char*, size_t) { return instantiate("cuGraphInstantiate_v2", out, graph); }
API CUresult cuGraphInstantiate(CUgraphExec* out, CUgraph graph, CUgraphNode*, char*, size_t) { return instantiate("cuGraphInstantiate", out, graph); }
struct InstantiateParams { uint64_t flags; CUstream upload; CUgraphNode error_node; int result; };
BOTH(cuGraphInstantiateWithParams, (CUgraphExec* out, CUgraph graph, InstantiateParams* params), ((void)per_thread, params ? (params->result = 0, instantiate(fn, out, graph)) : CUDA_ERROR_INVALID_VALUE))
API CUresult cuGraphExecDestroy(CUgraphExec handle) {
  return enter("cuGraphExecDestroy", INIT, [&] {
    auto* exec = (Exec*)handle;
    if (!execs.erase(exec)) return CUDA_ERROR_INVALID_VALUE;
    disown(exec->graph);
    return CUDA_SUCCESS;
  });
}

// Memory nodes. The addresses are the graph's from now until it and its executables are destroyed.
API CUresult cuGraphAddMemAllocNode(CUgraphNode* out, CUgraph handle, const CUgraphNode* deps, size_t count, CUDA_MEM_ALLOC_NODE_PARAMS* params) {
  return enter("cuGraphAddMemAllocNode", CONTEXT, [&] {
    Graph* graph = graph_of(handle);
    if (!out || !graph || !params || !params->bytesize) return CUDA_ERROR_INVALID_VALUE;
    note("size=%zu", params->bytesize);
    Allocation* a;
    CUresult result = reserve_device(here(), params->bytesize, Kind::Graph, &a);
    if (result) return result;
    graph->memory.push_back(a);
    note("-> 0x%llx", params->dptr = a->base);
    *out = (CUgraphNode)graph_node(graph, {}, 10, std::vector<Node*>((Node**)deps, (Node**)deps + count));
    return CUDA_SUCCESS;
  });
}
API CUresult cuGraphAddMemFreeNode(CUgraphNode* out, CUgraph handle, const CUgraphNode* deps, size_t count, CUdeviceptr dptr) {
  return enter("cuGraphAddMemFreeNode", CONTEXT, [&] {
    Graph* graph = graph_of(handle);
    Allocation* a = find_base(dptr);
    if (!out || !graph || !a || a->kind != Kind::Graph) return CUDA_ERROR_INVALID_VALUE;
    graph->freed.insert(a);
    *out = (CUgraphNode)graph_node(graph, {}, 11, std::vector<Node*>((Node**)deps, (Node**)deps + count));
    return CUDA_SUCCESS;
  });
}
API CUresult cuDeviceGraphMemTrim(CUdevice dev) {
  return enter("cuDeviceGraphMemTrim", INIT, [&] { return device_at(dev) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE; });
}
