/* Stream-ordered memory: what a program may rely on when it allocates and frees on streams. Every case writes numbers of its
 * own into each block with kernels that act when they end, so that a block handed out too early, to whoever, is seen. */
#include "ordered.h"
#include <sys/resource.h>

enum { N = 20000 };

/* The kinds of streams. */
enum { LEGACY, PER_THREAD, BLOCKING, NON_BLOCKING, KINDS };
static const char* kind_names[KINDS] = {"legacy", "per thread", "blocking", "non-blocking"};
static CUstream make(int kind) {
  switch (kind) {
    case LEGACY: return CU_STREAM_LEGACY;
    case PER_THREAD: return CU_STREAM_PER_THREAD;
    default: return stream(kind == BLOCKING ? cudaStreamDefault : cudaStreamNonBlocking);
  }
}
static void end(int kind, CUstream s) {
  if (kind >= BLOCKING) MUST(cudaStreamDestroy(s));
}

/* One stream's own blocks, one after the other, with work pending all along. */
static void case_one_stream(void) {
  begin_on(0);
  static const int sizes[] = {N, 1, 100, N, 130000, 127, N, 600000, 5};
  for (int kind = 0; kind < KINDS; ++kind) {
    CUstream s = make(kind);
    CUdeviceptr out[LENGTH(sizes)];
    for (size_t i = 0; i < LENGTH(sizes); ++i) {
      int n = sizes[i];
      CUdeviceptr p = get(4 * (size_t)n, s);
      out[i] = get(4 * (size_t)n, s);
      slow_fill(s, p, n, (int)i + 1, MS(2));
      slow_copy(s, out[i], p, n, MS(1));
      put(p, s);
    }
    for (size_t i = 0; i < LENGTH(sizes); ++i) {
      check_block("one stream", out[i], sizes[i], (int)i + 1, s);
      put(out[i], s);
    }
    end(kind, s);
    verdict(kind_names[kind]);
  }
}
/* A block freed on one stream behind pending work, and asked for on another. */
static void steal(int ms, size_t bytes, CUstream a, CUstream b) {
  int n = (int)(bytes / 4);
  CUdeviceptr out = get(bytes, a), old = get(bytes, a);
  slow_fill(a, old, n, 11, MS(ms));
  slow_copy(a, out, old, n, MS(ms / 2));
  put(old, a);
  CUdeviceptr fresh = get(bytes, b);
  slow_fill(b, fresh, n, 22, 1);
  MUST(cudaStreamSynchronize(a));
  check_block("the new block", fresh, n, 22, b);
  check_block("what was copied from the old one", out, n, 11, a);
  put(fresh, b);
  put(out, a);
}
static void case_steal(void) {
  begin_on(0);
  static const size_t sizes[] = {2000, 200000, 3 * MB};
  for (int from = 0; from < KINDS; ++from)
    for (int to = 0; to < KINDS; ++to) {
      CUstream a = make(from), b = from == to && from < BLOCKING ? a : make(to);
      for (size_t i = 0; i < LENGTH(sizes); ++i) steal(8, sizes[i], a, b);
      if (b != a) end(to, b);
      end(from, a);
      char what[60];
      snprintf(what, sizeof what, "%s to %s", kind_names[from], kind_names[to]);
      verdict(what);
    }
}
/* The same for two streams only, with nothing of the program that waits: what holds is what the pool makes wait. */
static void case_steal_alone(void) {
  begin_on(0);
  CUstream a = make(NON_BLOCKING), b = make(NON_BLOCKING);
  for (int i = 0; i < 8; ++i) steal(8, 3 * MB, a, b);
  verdict("steal");
}
/* And on a device with room for two blocks (64 MiB): the third can only be the one that is still in use. */
static void case_steal_when_full(void) {
  begin_on(0);
  CUstream a = make(NON_BLOCKING), b = make(NON_BLOCKING);
  for (int i = 0; i < 4; ++i) {
    steal(60, 24 * MB, i % 2 ? a : b, i % 2 ? b : a);
    MUST(cudaDeviceSynchronize());
  }
  verdict("steal when full");
}
/* The same with no clock in it: the work that must come first begins when the host says so, after the other stream had all it needs. */
static void held(int ends) {
  begin_on(0);
  int* flag;
  CUdeviceptr on_device;
  alarm(60);
  MUST(cuMemHostAlloc((void**)&flag, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
  MUST(cuMemHostGetDevicePointer(&on_device, flag, 0));
  CUstream a = NULL, b = make(NON_BLOCKING);
  for (int i = 0; i < 4; ++i) {
    if (!a) a = make(NON_BLOCKING);
    CUdeviceptr filler = get(24 * MB, a), old = get(24 * MB, a); /* there is no room for a third */
    *(volatile int*)flag = 0;
    spin_flag(a, on_device);
    MUST(cuMemsetD32Async(old, 11, 6 * MB, a));
    put(old, a);
    if (ends) {
      MUST(cudaStreamDestroy(a));
      a = NULL;
    }
    CUdeviceptr fresh = get(24 * MB, b);
    MUST(cuMemsetD32Async(fresh, 22, 6 * MB, b)); /* behind the other stream's, or it is lost */
    *(volatile int*)flag = 1;
    MUST(cudaDeviceSynchronize());
    check_block("held", fresh, 6 * MB, 22, b);
    put(fresh, b);
    put(filler, b);
    MUST(cudaDeviceSynchronize());
  }
  verdict("held");
}
static void case_held(void) { held(0); }
static void case_held_by_an_ended_stream(void) { held(1); }
/* Freed where it was used last: on another stream than it came from, behind an event. */
static void case_freed_elsewhere(void) {
  begin_on(0);
  for (int from = 0; from < KINDS; ++from)
    for (int to = 0; to < KINDS; ++to) {
      CUstream a = make(from), b = from == to && from < BLOCKING ? a : make(to);
      CUdeviceptr out = get(4 * N, b), p = get(4 * N, a);
      slow_fill(a, p, N, 31, MS(3));
      after(b, a);
      slow_copy(b, out, p, N, MS(8));
      put(p, b);
      CUdeviceptr q = get(4 * N, a); /* a knows nothing of b's work */
      slow_fill(a, q, N, 32, 1);
      check_block("what the other stream copied", out, N, 31, b);
      check_block("the next block", q, N, 32, a);
      put(q, a);
      put(out, b);
      if (b != a) end(to, b);
      end(from, a);
    }
  verdict("freed elsewhere");
}
/* Freed on a stream that never used it, after the host has waited in one of the ways there are. */
static void case_freed_after_waiting(void) {
  begin_on(0);
  CUstream a = make(NON_BLOCKING), b = make(NON_BLOCKING), c = make(NON_BLOCKING);
  cudaEvent_t e;
  MUST(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
  for (int way = 0; way < 10; ++way) {
    CUdeviceptr p = get(4 * N, a);
    slow_fill(a, p, N, 40 + way, MS(5));
    MUST(cudaEventRecord(e, a));
    switch (way % 5) {
      case 0: MUST(cudaStreamSynchronize(a)); break;
      case 1: MUST(cudaEventSynchronize(e)); break;
      case 2: MUST(cudaDeviceSynchronize()); break;
      case 3: while (cudaEventQuery(e) == cudaErrorNotReady) usleep(100); break;
      case 4: while (cudaStreamQuery(a) == cudaErrorNotReady) usleep(100); break;
    }
    check_block("the block itself", p, N, 40 + way, b);
    if (way < 5) put(p, b);
    else MUST(cudaFree((void*)(uintptr_t)p));
    CUdeviceptr q = get(4 * N, c);
    slow_fill(c, q, N, 50, MS(2));
    CUdeviceptr r = get(4 * N, a);
    slow_fill(a, r, N, 51, 1);
    check_block("one stream's", q, N, 50, c);
    check_block("another's", r, N, 51, a);
    put(q, c);
    put(r, a);
  }
  verdict("freed after waiting");
  cudaGetLastError();
}
/* Implicit order: the legacy stream waits for blocking streams, and they for it. */
static void case_legacy(void) {
  begin_on(0);
  CUstream b = make(BLOCKING), b2 = make(BLOCKING), n = make(NON_BLOCKING);
  for (int i = 0; i < 4; ++i) {
    CUdeviceptr p = get(4 * N, b), out = get(4 * N, b);
    slow_fill(b, p, N, 60 + i, MS(6));
    slow_copy(b, out, p, N, MS(4));
    put(p, CU_STREAM_LEGACY); /* in order: it waits for b */
    CUdeviceptr q = get(4 * N, i % 2 ? n : b2);
    slow_fill(i % 2 ? n : b2, q, N, 70 + i, 1);
    CUdeviceptr r = get(4 * N, CU_STREAM_LEGACY);
    slow_fill(CU_STREAM_LEGACY, r, N, 80 + i, 1);
    check_block("copied", out, N, 60 + i, b);
    check_block("after it", q, N, 70 + i, i % 2 ? n : b2);
    check_block("on the legacy stream", r, N, 80 + i, CU_STREAM_LEGACY);
    put(out, b);
    put(q, i % 2 ? n : b2);
    put(r, CU_STREAM_LEGACY);
  }
  /* used on the legacy stream, freed on a blocking one */
  for (int i = 0; i < 4; ++i) {
    CUdeviceptr p = get(4 * N, CU_STREAM_LEGACY), out = get(4 * N, CU_STREAM_LEGACY);
    slow_fill(CU_STREAM_LEGACY, p, N, 90 + i, MS(6));
    slow_copy(CU_STREAM_LEGACY, out, p, N, MS(4));
    put(p, b);
    CUdeviceptr q = get(4 * N, n);
    slow_fill(n, q, N, 95 + i, 1);
    check_block("copied", out, N, 90 + i, CU_STREAM_LEGACY);
    check_block("after it", q, N, 95 + i, n);
    put(out, CU_STREAM_LEGACY);
    put(q, n);
  }
  verdict("legacy");
}
/* Streams end with blocks of theirs alive and with frees pending; handles come again for others. */
static void case_ended_streams(void) {
  begin_on(0);
  enum { ROUNDS = 24 };
  CUdeviceptr kept[ROUNDS];
  CUstream last = make(NON_BLOCKING);
  for (int i = 0; i < ROUNDS; ++i) {
    CUstream s = make(i % 2 ? BLOCKING : NON_BLOCKING);
    CUdeviceptr gone = get(4 * N, s);
    kept[i] = get(4 * N, s);
    slow_fill(s, gone, N, 100 + i, MS(4));
    slow_copy(s, kept[i], gone, N, MS(2));
    put(gone, s);
    MUST(cudaStreamDestroy(s)); /* its work goes on */
    CUstream t = make(i % 3 ? NON_BLOCKING : BLOCKING);
    CUdeviceptr q = get(4 * N, t);
    slow_fill(t, q, N, 200 + i, 1);
    check_block("on a new stream", q, N, 200 + i, t);
    if (i % 2) put(q, t);
    MUST(cudaStreamDestroy(t));
    if (i % 2 == 0) {
      MUST(cudaDeviceSynchronize());
      put(q, last); /* where it never was */
    }
  }
  MUST(cudaDeviceSynchronize());
  for (int i = 0; i < ROUNDS; ++i) {
    check_block("a block of an ended stream", kept[i], N, 100 + i, last);
    if (i % 3 == 0) put(kept[i], CU_STREAM_LEGACY);
    else if (i % 3 == 1) put(kept[i], last);
    else MUST(cudaFree((void*)(uintptr_t)kept[i]));
  }
  verdict("ended streams");
}
/* A graph has the block's address, and is what the free has to wait for. */
static void case_graph(void) {
  begin_on(0);
  CUstream a = make(NON_BLOCKING), b = make(NON_BLOCKING);
  for (int i = 0; i < 3; ++i) {
    CUdeviceptr p = get(4 * N, a), out = get(4 * N, a);
    cudaGraph_t g;
    cudaGraphExec_t exec;
    MUST(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal));
    slow_fill(a, p, N, 300 + i, MS(6));
    slow_copy(a, out, p, N, MS(4));
    MUST(cudaStreamEndCapture(a, &g));
    MUST(cudaGraphInstantiate(&exec, g, 0));
    MUST(cudaGraphLaunch(exec, a));
    put(p, a);
    CUdeviceptr q = get(4 * N, b);
    slow_fill(b, q, N, 310 + i, 1);
    check_block("the graph's", out, N, 300 + i, a);
    check_block("after it", q, N, 310 + i, b);
    put(q, b);
    put(out, a);
    MUST(cudaGraphExecDestroy(exec));
    MUST(cudaGraphDestroy(g));
  }
  verdict("graph");
}
/* Memory asked for on a capturing stream is the graph's; on other streams all goes on, where the mode allows it. */
static void capturing(enum cudaStreamCaptureMode mode) {
  CUstream a = make(NON_BLOCKING), b = make(NON_BLOCKING);
  CUdeviceptr out = get(4 * N, a), before = get(4 * N, b), in_graph = 0;
  cudaGraph_t g = NULL;
  cudaGraphExec_t exec;
  MUST(cudaMemsetAsync((void*)(uintptr_t)out, 0, 4 * N, a));
  slow_fill(b, before, N, 400, MS(5));
  MUST(cudaStreamBeginCapture(a, mode));
  void* p = NULL;
  SAY(cudaMallocAsync(&p, 4 * N, a));
  in_graph = (CUdeviceptr)(uintptr_t)p;
  if (mode == cudaStreamCaptureModeRelaxed) { /* others go on */
    put(before, b);
    CUdeviceptr q = get(4 * N, b);
    slow_fill(b, q, N, 401, 1);
    put(q, b);
    before = get(4 * N, b);
    slow_fill(b, before, N, 400, 1);
  }
  if (in_graph) {
    slow_fill(a, in_graph, N, 402, MS(1));
    slow_copy(a, out, in_graph, N, MS(1));
    SAY(cudaFreeAsync((void*)(uintptr_t)in_graph, a));
  }
  SAY(cudaFreeAsync((void*)(uintptr_t)before, a)); /* not of the graph: refused */
  cudaGetLastError();
  SAY(cudaStreamEndCapture(a, &g));
  check_block("beside the capture", before, N, 400, b);
  put(before, b);
  if (g) {
    MUST(cudaGraphInstantiate(&exec, g, 0));
    for (int i = 0; i < 3; ++i) MUST(cudaGraphLaunch(exec, a));
    check_block("by the graph", out, N, 402, a);
    MUST(cudaGraphExecDestroy(exec));
    MUST(cudaGraphDestroy(g));
  }
  put(out, a);
  MUST(cudaStreamSynchronize(a));
  MUST(cudaStreamDestroy(a));
  MUST(cudaStreamDestroy(b));
}
static void case_captures(void) {
  begin_on(0);
  capturing(cudaStreamCaptureModeRelaxed);
  capturing(cudaStreamCaptureModeThreadLocal);
  capturing(cudaStreamCaptureModeGlobal);
  verdict("captures");
}
/* What Triton, numba and CuPy ask about a pointer. */
static void asked(const char* when, CUdeviceptr p, CUdeviceptr from, size_t bytes) {
  CUdeviceptr at = 0, base = 0, start = 0;
  unsigned type = 9, managed = 9;
  int ordinal = -5;
  size_t size = 0, range = 0;
  CUcontext context = (CUcontext)7;
  int code = (int)cuPointerGetAttribute(&at, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, p);
  printf("%s: pointer %d %d;", when, code, code == 0 && at == p);
  code = (int)cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p);
  printf(" type %d %u;", code, type);
  code = (int)cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, p);
  printf(" managed %d %u;", code, managed);
  code = (int)cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p);
  printf(" device %d %d;", code, ordinal);
  code = (int)cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, p);
  printf(" context %d;", code);
  code = (int)cuMemGetAddressRange(&base, &size, p);
  printf(" range %d %d", code, code == 0 && base == from && size == bytes);
  CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                 CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  void* data[] = {&type, &at, &ordinal, &start, &range};
  code = (int)cuPointerGetAttributes(5, which, data, p);
  printf("; all at once %d type %u %d device %d range %d", code, type, at == p, ordinal, start == from && range == bytes);
  struct cudaPointerAttributes a;
  memset(&a, 0, sizeof a);
  code = (int)cudaPointerGetAttributes(&a, (void*)(uintptr_t)p);
  printf("; runtime %d type %d %d\n", code, (int)a.type, a.devicePointer == (void*)(uintptr_t)p);
  cudaGetLastError();
}
static CUdeviceptr asked_about;
static void* asks(void* arg) {
  (void)arg;
  MUST(cudaSetDevice(0));
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  MUST(cuThreadExchangeStreamCaptureMode(&mode));
  asked("another thread", asked_about, asked_about, 4 * N);
  return NULL;
}
static void case_asked_in_capture(void) {
  begin_on(0);
  CUstream a = make(NON_BLOCKING), b = make(NON_BLOCKING), c = make(NON_BLOCKING);
  cudaGraph_t g, other;
  cudaGraphExec_t exec;
  pthread_t t;
  CUdeviceptr out = get(4 * N, a);
  MUST(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal));
  CUdeviceptr p = get(4 * N, a), q = get(8 * N, a);
  asked("begin", p, p, 4 * N);
  asked("inside", p + 1000, p, 4 * N);
  asked("in no memory", 0x123456789000ull, 0, 0);
  asked("other memory", out, out, 4 * N);
  asked_about = p;
  REQUIRE(!pthread_create(&t, NULL, asks, NULL));
  pthread_join(t, NULL);
  after(b, a); /* b joins */
  CUdeviceptr r = get(4 * N, b);
  asked("of a stream that joined", r, r, 4 * N);
  put(r, b);
  after(a, b);
  put(q, a);
  asked("freed in it", q, q, 8 * N);
  slow_fill(a, p, N, 77, 1);
  slow_copy(a, out, p, N, 1);
  MUST(cudaStreamBeginCapture(c, cudaStreamCaptureModeThreadLocal)); /* a second one, which goes on */
  CUdeviceptr s = get(4 * N, c);
  MUST(cudaStreamEndCapture(a, &g));
  asked("the other capture's", s, s, 4 * N);
  asked("after it", p, p, 4 * N);
  put(s, c);
  MUST(cudaStreamEndCapture(c, &other));
  asked("after both", s, s, 4 * N);
  MUST(cudaGraphDestroy(other));
  MUST(cudaGraphInstantiate(&exec, g, 0));
  MUST(cudaGraphLaunch(exec, a));
  MUST(cudaStreamSynchronize(a));
  asked("launched", p, p, 4 * N);
  check_block("by the graph", out, N, 77, a);
  put(p, a);
  MUST(cudaGraphExecDestroy(exec));
  MUST(cudaGraphDestroy(g));
  put(out, a);
  verdict("asked in a capture");
}
/* What a capture in the strictest mode forbids the thread that began it. */
static void case_forbidden(void) {
  begin_on(0);
  CUstream a = make(NON_BLOCKING), b = make(NON_BLOCKING);
  CUdeviceptr x = get(4 * N, b);
  void* p = NULL;
  cudaGraph_t g = NULL;
  MUST(cudaDeviceSynchronize());
  MUST(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal));
  SAY(cudaMallocAsync(&p, 4 * N, b));
  SAY(cudaStreamEndCapture(a, &g));
  MUST(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal));
  SAY(cudaFreeAsync((void*)(uintptr_t)x, b));
  SAY(cudaStreamEndCapture(a, &g));
  MUST(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal));
  SAY(cudaFree((void*)(uintptr_t)x));
  SAY(cudaStreamEndCapture(a, &g));
  cudaGetLastError();
  slow_fill(b, x, N, 410, 1);
  check_block("after the refusals", x, N, 410, b);
  put(x, b);
  verdict("forbidden");
}
/* A kernel that ends only when the host has seen what another stream did: nobody may be made to wait for it. */
static void case_endless(void) {
  begin_on(0);
  int* flag;
  CUdeviceptr on_device;
  alarm(30);
  MUST(cuMemHostAlloc((void**)&flag, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
  MUST(cuMemHostGetDevicePointer(&on_device, flag, 0));
  CUstream a = make(NON_BLOCKING), b = make(NON_BLOCKING);
  static const size_t sizes[] = {1000, 100000, 3 * MB, 40 * MB};
  for (size_t i = 0; i < LENGTH(sizes); ++i) {
    CUdeviceptr old = get(sizes[i], a);
    *(volatile int*)flag = 0;
    spin_flag(a, on_device);
    put(old, a); /* behind the kernel */
    CUdeviceptr fresh = get(sizes[i], b);
    slow_fill(b, fresh, (int)(sizes[i] / 4), 420 + (int)i, 1);
    check_block("beside an endless kernel", fresh, (int)(sizes[i] / 4), 420 + (int)i, b);
    put(fresh, b);
    *(volatile int*)flag = 1;
    MUST(cudaStreamSynchronize(a));
  }
  verdict("endless");
}
/* What only a memory checker sees: a kernel that goes past its block's end, and one that comes after its block's free. */
static void case_past_the_end(void) {
  begin_on(0);
  CUstream a = make(NON_BLOCKING);
  slow_fill(a, get(4 * N, a), N + 1, 1, 1);
  SAY(cudaStreamSynchronize(a));
}
static void case_after_its_free(void) {
  begin_on(0);
  CUstream a = make(NON_BLOCKING);
  CUdeviceptr p = get(4 * N, a);
  put(p, a);
  slow_fill(a, p, N, 1, 1);
  SAY(cudaStreamSynchronize(a));
}
/* A block's free while another stream captures, and its memory wanted then. */
static void case_freed_beside_capture(void) {
  begin_on(0);
  CUstream a = make(NON_BLOCKING), b = make(NON_BLOCKING), c = make(NON_BLOCKING);
  for (int i = 0; i < 4; ++i) {
    CUdeviceptr p = get(4 * N, b), out = get(4 * N, b);
    cudaGraph_t g;
    slow_fill(b, p, N, 500 + i, MS(6));
    slow_copy(b, out, p, N, MS(3));
    MUST(cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed));
    slow_fill(a, out, N, 1, 1);
    put(p, b);
    CUdeviceptr q = get(4 * N, c);
    slow_fill(c, q, N, 510 + i, 1);
    MUST(cudaStreamEndCapture(a, &g));
    MUST(cudaGraphDestroy(g));
    check_block("copied", out, N, 500 + i, b);
    check_block("after it", q, N, 510 + i, c);
    put(q, c);
    put(out, b);
  }
  /* freed on the very stream that is about to capture, and taken by another during the capture */
  for (int i = 0; i < 4; ++i) {
    CUdeviceptr p = get(4 * N, a), out = get(4 * N, a);
    cudaGraph_t g;
    slow_fill(a, p, N, 520 + i, MS(6));
    slow_copy(a, out, p, N, MS(3));
    put(p, a);
    MUST(cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed));
    slow_fill(a, out, N, 1, 1);
    CUdeviceptr q = get(4 * N, c);
    slow_fill(c, q, N, 530 + i, 1);
    MUST(cudaStreamEndCapture(a, &g));
    MUST(cudaGraphDestroy(g));
    check_block("copied", out, N, 520 + i, a);
    check_block("after it", q, N, 530 + i, c);
    put(q, c);
    put(out, a);
  }
  verdict("freed beside a capture");
}

/* ---- threads ---- */

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turned = PTHREAD_COND_INITIALIZER;
static struct { CUdeviceptr p; cudaEvent_t done; int full; } mailbox;
static void* producer(void* arg) {
  (void)arg;
  MUST(cudaSetDevice(0));
  for (int i = 0; i < 12; ++i) {
    void* p;
    MUST(cudaMallocAsync_ptsz(&p, 4 * N, NULL)); /* the thread's own stream */
    slow_fill(CU_STREAM_PER_THREAD, (CUdeviceptr)(uintptr_t)p, N, 600 + i, MS(2));
    pthread_mutex_lock(&turn);
    while (mailbox.full) pthread_cond_wait(&turned, &turn);
    mailbox.p = (CUdeviceptr)(uintptr_t)p;
    MUST(cudaEventRecord(mailbox.done, (cudaStream_t)CU_STREAM_PER_THREAD));
    mailbox.full = 1;
    pthread_cond_broadcast(&turned);
    pthread_mutex_unlock(&turn);
  }
  return NULL;
}
/* One thread makes, another uses and frees on a stream of its own. */
static void case_handed_over(void) {
  begin_on(0);
  CUstream s = make(NON_BLOCKING);
  pthread_t t;
  MUST(cudaEventCreateWithFlags(&mailbox.done, cudaEventDisableTiming));
  REQUIRE(!pthread_create(&t, NULL, producer, NULL));
  CUdeviceptr out = get(4 * N, s);
  for (int i = 0; i < 12; ++i) {
    pthread_mutex_lock(&turn);
    while (!mailbox.full) pthread_cond_wait(&turned, &turn);
    CUdeviceptr p = mailbox.p;
    MUST(cudaStreamWaitEvent(s, mailbox.done, 0));
    mailbox.full = 0;
    pthread_cond_broadcast(&turned);
    pthread_mutex_unlock(&turn);
    slow_copy(s, out, p, N, MS(2));
    put(p, s);
    check_block("handed over", out, N, 600 + i, s);
  }
  pthread_join(t, NULL); /* its stream goes */
  put(out, s);
  verdict("handed over");
}
static void* own_stream(void* arg) {
  int me = (int)(uintptr_t)arg;
  MUST(cudaSetDevice(0));
  for (int i = 0; i < 20; ++i) {
    void *p, *out;
    MUST(cudaMallocAsync_ptsz(&p, 4 * N, NULL));
    MUST(cudaMallocAsync_ptsz(&out, 4 * N, NULL));
    CUdeviceptr a = (CUdeviceptr)(uintptr_t)p, b = (CUdeviceptr)(uintptr_t)out;
    int v = me * 1000 + i;
    slow_fill(CU_STREAM_PER_THREAD, a, N, v, MS(1));
    slow_copy(CU_STREAM_PER_THREAD, b, a, N, MS(1));
    MUST(cudaFreeAsync_ptsz(p, NULL));
    static __thread int got[N];
    MUST(cudaMemcpyAsync_ptsz(got, out, 4 * N, cudaMemcpyDeviceToHost, NULL));
    MUST(cudaStreamSynchronize_ptsz(NULL));
    for (int k = 0; k < N; ++k)
      if (got[k] != v) {
        __atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);
        break;
      }
    __atomic_fetch_add(&checked, 1, __ATOMIC_RELAXED);
    MUST(cudaFreeAsync_ptsz(out, NULL));
  }
  void* left;
  MUST(cudaMallocAsync_ptsz(&left, 4 * N, NULL));
  slow_fill(CU_STREAM_PER_THREAD, (CUdeviceptr)(uintptr_t)left, N, me, MS(2));
  return left; /* with work pending */
}
/* Threads with their own default streams, come and go, and leave blocks behind. */
static void case_threads(void) {
  begin_on(0);
  enum { THREADS = 6 };
  for (int round = 0; round < 2; ++round) {
    pthread_t t[THREADS];
    void* left[THREADS];
    for (int i = 0; i < THREADS; ++i) REQUIRE(!pthread_create(&t[i], NULL, own_stream, (void*)(uintptr_t)i));
    for (int i = 0; i < THREADS; ++i) pthread_join(t[i], &left[i]);
    MUST(cudaDeviceSynchronize());
    for (int i = 0; i < THREADS; ++i) {
      check_block("left behind", (CUdeviceptr)(uintptr_t)left[i], N, i, CU_STREAM_LEGACY);
      MUST(cudaFreeAsync(left[i], CU_STREAM_LEGACY));
    }
    verdict("threads");
  }
}
/* Many streams at once, more than anybody keeps in a small table. */
static void case_many_streams(void) {
  begin_on(0);
  enum { MANY = 150 };
  static CUstream s[MANY];
  static CUdeviceptr p[MANY], out[MANY];
  for (int i = 0; i < MANY; ++i) s[i] = make(i % 5 ? NON_BLOCKING : BLOCKING);
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < MANY; ++i) {
      CUstream mine = s[(i * 7 + round * 13) % MANY];
      p[i] = get(4000, mine);
      out[i] = get(4000, mine);
      slow_fill(mine, p[i], 1000, round * 1000 + i, MS(1));
      slow_copy(mine, out[i], p[i], 1000, MS(1));
      put(p[i], mine);
    }
    for (int i = 0; i < MANY; ++i) {
      CUstream mine = s[(i * 7 + round * 13) % MANY];
      check_block("of many", out[i], 1000, round * 1000 + i, mine);
      put(out[i], mine);
    }
  }
  for (int i = 0; i < MANY; ++i) MUST(cudaStreamDestroy(s[i]));
  verdict("many streams");
}

/* ---- devices and contexts ---- */

static void case_devices(void) {
  begin_on(1);
  CUstream there = make(NON_BLOCKING);
  CUdeviceptr far = get(4 * N, there), far_out = get(4 * N, there);
  slow_fill(there, far, N, 700, MS(6));
  begin_on(0);
  CUstream here = make(NON_BLOCKING);
  CUdeviceptr near = get(4 * N, here);
  slow_fill(here, near, N, 701, MS(3));
  /* the other device's stream and block, with this device current */
  SAY(cudaFreeAsync((void*)(uintptr_t)far, there));
  CUdeviceptr near2 = get(4 * N, here);
  slow_fill(here, near2, N, 702, 1);
  check_block("here", near, N, 701, here);
  check_block("here too", near2, N, 702, here);
  struct cudaPointerAttributes a;
  MUST(cudaPointerGetAttributes(&a, (void*)(uintptr_t)near));
  printf("near: type %d device %d\n", (int)a.type, a.device);
  MUST(cudaPointerGetAttributes(&a, (void*)(uintptr_t)far_out));
  printf("far: type %d device %d\n", (int)a.type, a.device);
  put(near, here);
  put(near2, here);
  MUST(cudaSetDevice(1));
  kernel("copy");
  slow_fill(there, far_out, N, 703, MS(1));
  check_block("there", far_out, N, 703, there);
  /* the first device is let in */
  MUST(cudaSetDevice(0));
  CUmemAccessDesc let = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUmemLocation me = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  SAY(cudaMemPoolGetAccess(&flags, pool_of(1), &me));
  printf("access %d\n", (int)flags);
  SAY(cudaMemPoolSetAccess(pool_of(1), &let, 1));
  SAY(cudaMemPoolGetAccess(&flags, pool_of(1), &me));
  printf("access %d\n", (int)flags);
  kernel("copy");
  slow_fill(here, far_out, N, 704, MS(1));
  check_block("written from the other device", far_out, N, 704, here);
  MUST(cudaSetDevice(1));
  CUdeviceptr later = get(4 * MB, there); /* memory that comes afterwards is open, too */
  MUST(cudaStreamSynchronize(there));
  MUST(cudaSetDevice(0));
  slow_fill(here, later, N, 705, MS(1));
  check_block("and later memory", later, N, 705, here);
  MUST(cudaSetDevice(1));
  put(later, there);
  put(far_out, there);
  verdict("devices");
  MUST(cudaSetDevice(0));
  verdict("devices");
}
/* Without access the other device's kernel faults, as natively. */
static void case_no_access(void) {
  begin_on(1);
  CUstream there = make(NON_BLOCKING);
  CUdeviceptr far = get(4 * N, there);
  MUST(cudaStreamSynchronize(there));
  begin_on(0);
  CUstream here = make(NON_BLOCKING);
  slow_fill(here, far, N, 1, 1);
  SAY(cudaStreamSynchronize(here));
  printf("and so it goes on: %d\n", cudaMallocAsync((void**)&far, 100, here));
}
/* A second context of the device has the same pool. */
static void case_contexts(void) {
  begin_on(0);
  CUcontext first, second;
  CUctxCreateParams params;
  memset(&params, 0, sizeof params);
  MUST(cuCtxGetCurrent(&first));
  CUstream a = make(NON_BLOCKING), b;
  CUdeviceptr p = get(4 * N, a), out = get(4 * N, a);
  slow_fill(a, p, N, 800, MS(4));
  cudaEvent_t done;
  MUST(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
  MUST(cudaEventRecord(done, a));
  MUST(cuCtxCreate(&second, &params, 0, 0));
  MUST(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
  MUST(cuStreamWaitEvent(b, done, 0));
  slow_copy(b, out, p, N, MS(6)); /* in the other context */
  MUST(cuMemFreeAsync(p, b));
  CUdeviceptr q = 0, third = 0;
  MUST(cuMemAllocAsync(&third, 4 * N, b));
  slow_fill(b, third, N, 801, MS(2));
  MUST(cuCtxSetCurrent(first));
  kernel("copy");
  q = get(4 * N, a);
  slow_fill(a, q, N, 802, 1);
  check_block("in the first context", q, N, 802, a);
  MUST(cuCtxSetCurrent(second));
  MUST(cuCtxSynchronize());
  int got[2] = {0, 0};
  MUST(cuMemcpyDtoH(&got[0], out, 4));
  MUST(cuMemcpyDtoH(&got[1], third + 4 * (N - 1), 4));
  printf("seen from the second: %d %d\n", got[0], got[1]);
  SAY(cuMemFreeAsync(third, b));
  SAY(cuMemFreeAsync(third, b));
  MUST(cuCtxSynchronize());
  MUST(cuCtxSetCurrent(first));
  put(q, a);
  put(out, a);
  MUST(cuCtxDestroy(second));
  CUdeviceptr end_block = get(4 * N, a);
  kernel("copy");
  slow_fill(a, end_block, N, 803, 1);
  check_block("after the second context", end_block, N, 803, a);
  put(end_block, a);
  verdict("contexts");
}
/* A reset ends streams and takes nothing stream-ordered with it; what comes after it works. */
static void case_reset(void) {
  for (int round = 0; round < 3; ++round) {
    MUST(cudaSetDevice(0));
    CUstream a = make(NON_BLOCKING);
    CUdeviceptr p = get(4 * N, a), q = get(4 * N, CU_STREAM_LEGACY);
    MUST(cuMemsetD32Async(p, 900 + (unsigned)round, N, a));
    MUST(cuMemsetD32Async(q, 910 + (unsigned)round, N, CU_STREAM_LEGACY));
    check_block("before a reset", p, N, 900 + round, a);
    check_block("before a reset", q, N, 910 + round, CU_STREAM_LEGACY);
    if (round != 1) {
      put(p, a);
      put(q, CU_STREAM_LEGACY);
    }
    printf("round %d: %ld wrong\n", round, wrong);
    SAY(cudaDeviceReset());
  }
}
/* A thread's own stream ends with it, its work does not; the next thread has the same pthread_self. */
static void* leaves_work(void* _) {
  void* p;
  MUST(cudaSetDevice(0));
  MUST(cudaMallocAsync_ptsz(&p, 4 * N, NULL));
  slow_fill(CU_STREAM_PER_THREAD, (CUdeviceptr)(uintptr_t)p, N, 111, MS(200));
  MUST(cudaFreeAsync_ptsz(p, NULL));
  return _;
}
static void* comes_after(void* _) {
  void* p[20];
  MUST(cudaSetDevice(0));
  for (int i = 0; i < 20; ++i) {
    MUST(cudaMallocAsync_ptsz(&p[i], 4 * N, NULL));
    slow_fill(CU_STREAM_PER_THREAD, (CUdeviceptr)(uintptr_t)p[i], N, 222 + i, 1);
  }
  usleep(300000);
  for (int i = 0; i < 20; ++i) check_block("a later thread's", (CUdeviceptr)(uintptr_t)p[i], N, 222 + i, CU_STREAM_PER_THREAD);
  return _;
}
static void case_ended_threads(void) {
  void* (*all[])(void*) = {leaves_work, comes_after};
  begin_on(0);
  for (int i = 0; i < 2; ++i) {
    pthread_t t;
    REQUIRE(!pthread_create(&t, NULL, all[i], NULL));
    pthread_join(t, NULL);
  }
  verdict("ended threads");
}

/* Short threads with their own default streams: hundreds at once, all of them the first to ask for memory, and one after the
 * other. What one leaves, and what it waits for, must cost the others nothing. */
static pthread_barrier_t ready;
static void* short_thread(void* arg) {
  void *p, *q;
  MUST(cudaSetDevice(0));
  if (arg) pthread_barrier_wait(&ready);
  for (int i = 0; i < 4; ++i) {
    MUST(cudaMallocAsync_ptsz(&p, 3000 + 512 * (size_t)i, NULL));
    MUST(cudaMallocAsync_ptsz(&q, 100000, NULL));
    slow_fill(CU_STREAM_PER_THREAD, (CUdeviceptr)(uintptr_t)p, 700, i, 1);
    MUST(cudaFreeAsync_ptsz(p, NULL));
    MUST(cudaFreeAsync_ptsz(q, NULL));
  }
  return NULL;
}
static void case_short_threads(void) {
  enum { CROWD = 400 };
  static pthread_t t[CROWD];
  begin_on(0);
  MUST(pthread_barrier_init(&ready, NULL, CROWD));
  for (int i = 0; i < CROWD; ++i) REQUIRE(!pthread_create(&t[i], NULL, short_thread, &ready));
  for (int i = 0; i < CROWD; ++i) pthread_join(t[i], NULL);
  for (int i = 0; i < 1000; ++i) {
    REQUIRE(!pthread_create(&t[0], NULL, short_thread, NULL));
    pthread_join(t[0], NULL);
  }
  struct rusage used;
  MUST(getrusage(RUSAGE_SELF, &used));
  printf("cheap: %d\n", used.ru_utime.tv_sec + used.ru_stime.tv_sec < 2);
  verdict("short threads");
}

CASES(CASE(one_stream), CASE(short_threads), CASE(asked_in_capture), CASE(steal), CASE(steal_alone), CASE(steal_when_full), CASE(held), CASE(held_by_an_ended_stream), CASE(freed_elsewhere), CASE(freed_after_waiting), CASE(legacy), CASE(ended_streams),
      CASE(graph), CASE(captures), CASE(forbidden), CASE(endless), CASE(past_the_end), CASE(after_its_free), CASE(freed_beside_capture), CASE(handed_over), CASE(threads), CASE(many_streams), CASE(devices), CASE(no_access),
      CASE(contexts), CASE(reset), CASE(ended_threads))
