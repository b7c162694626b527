/* Captures with allocations and frees in the middle. Every code is printed: what a capture refuses, and what spoils it, is the
 * driver's business. */
#include "common.h"

static CUstream s, other;
static CUdeviceptr block, out;
enum { N = 1000 };

static void begin(void) {
  primary(0);
  kernel("copy");
  MUST(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  MUST(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  out = take(4 * N);
  MUST(cuMemFree(take(70000))); /* something in the cache */
  block = take(60000);
  MUST(cuCtxSynchronize());
}
static void* alloc_and_free(void* unused) {
  (void)unused;
  CUcontext ctx;
  CUdeviceptr p = 0;
  MUST(cuDevicePrimaryCtxRetain(&ctx, 0));
  MUST(cuCtxSetCurrent(ctx));
  SAY(cuMemAlloc(&p, 70000));
  SAY(cuMemFree(block));
  if (p) SAY(cuMemFree(p));
  return NULL;
}
static void end(void) {
  CUgraph graph = NULL;
  CUgraphExec exec;
  CUstreamCaptureStatus status;
  SAY(cuStreamIsCapturing(s, &status));
  printf("status %d\n", (int)status);
  SAY(cuStreamEndCapture(s, &graph));
  if (graph) {
    SAY(cuGraphInstantiate(&exec, graph, 0));
    SAY(cuGraphLaunch(exec, s));
    SAY(cuStreamSynchronize(s));
    print_ints("out", out, N);
    SAY(cuGraphExecDestroy(exec));
    SAY(cuGraphDestroy(graph));
  }
  CUdeviceptr p = 0; /* afterwards everything works again */
  SAY(cuMemAlloc(&p, 70000));
  SAY(cuMemFree(p));
  SAY(cuMemFree(block));
  slow_fill(other, out, N, 5, MS(30));
  block = take(60000);
  SAY(cuMemFree(block));
  print_ints("out", out, N);
}
static void in_capture(CUstreamCaptureMode mode, int elsewhere) {
  begin();
  SAY(cuStreamBeginCapture(s, mode));
  slow_fill(s, out, N, 3, MS(1));
  if (elsewhere) {
    pthread_t t;
    REQUIRE(!pthread_create(&t, NULL, alloc_and_free, NULL));
    pthread_join(t, NULL);
  } else {
    alloc_and_free(NULL);
  }
  end();
}
static void case_global_same(void) { in_capture(CU_STREAM_CAPTURE_MODE_GLOBAL, 0); }
static void case_global_other(void) { in_capture(CU_STREAM_CAPTURE_MODE_GLOBAL, 1); }
static void case_local_same(void) { in_capture(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, 0); }
static void case_local_other(void) { in_capture(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, 1); }
static void case_relaxed_same(void) { in_capture(CU_STREAM_CAPTURE_MODE_RELAXED, 0); }
static void case_relaxed_other(void) { in_capture(CU_STREAM_CAPTURE_MODE_RELAXED, 1); }
/* The thread is in relaxed mode: then a global capture allows it. */
static void case_exchanged(void) {
  begin();
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  SAY(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  SAY(cuThreadExchangeStreamCaptureMode(&mode));
  printf("was %d\n", (int)mode);
  alloc_and_free(NULL);
  SAY(cuThreadExchangeStreamCaptureMode(&mode));
  printf("was %d\n", (int)mode);
  slow_fill(s, out, N, 4, MS(1));
  end();
}
/* Other calls that a capture may refuse: the same codes, and no capture spoiled by us. */
static void case_other_calls(void) {
  begin();
  size_t a, b;
  CUdeviceptr p = 0;
  unsigned v = 0;
  void* host;
  SAY(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  SAY(cuMemGetInfo(&a, &b));
  SAY(cuMemGetAddressRange(&p, &a, block));
  SAY(cuPointerGetAttribute(&v, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, block));
  SAY(cuMemAllocAsync(&p, 5000, s));
  SAY(cuMemsetD8Async(p, 1, 5000, s));
  SAY(cuMemFreeAsync(p, s));
  CUstreamCaptureStatus status;
  SAY(cuStreamIsCapturing(s, &status));
  printf("status %d\n", (int)status);
  SAY(cuMemAllocHost(&host, 100));
  SAY(cuStreamIsCapturing(s, &status));
  printf("status %d\n", (int)status);
  end();
}
/* A capture whose stream is destroyed, and one ended in the wrong thread or stream. */
static void* end_there(void* unused) {
  (void)unused;
  CUgraph graph = NULL;
  primary(0);
  SAY(cuStreamEndCapture(s, &graph));
  return NULL;
}
static void case_odd_ends(void) {
  begin();
  CUgraph graph = NULL;
  CUstream t;
  SAY(cuStreamEndCapture(s, &graph));
  SAY(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  SAY(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  pthread_t thread;
  REQUIRE(!pthread_create(&thread, NULL, end_there, NULL));
  pthread_join(thread, NULL);
  SAY(cuStreamEndCapture(other, &graph));
  SAY(cuStreamEndCapture(s, &graph));
  MUST(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
  SAY(cuStreamBeginCapture(t, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  SAY(cuStreamDestroy(t));
  SAY(cuStreamBeginCapture(CU_STREAM_LEGACY, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  SAY(cuStreamBeginCapture(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  SAY(cuStreamEndCapture(CU_STREAM_PER_THREAD, &graph));
  SAY(cuStreamBeginCapture_v2_ptsz(0, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  SAY(cuStreamEndCapture_ptsz(0, &graph));
  end();
}
/* A capture that forks into a second stream through an event. */
static void case_fork(void) {
  begin();
  CUevent e, f;
  MUST(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
  MUST(cuEventCreate(&f, CU_EVENT_DISABLE_TIMING));
  SAY(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
  SAY(cuEventRecord(e, s));
  SAY(cuStreamWaitEvent(other, e, 0));
  slow_fill(other, out, N, 8, MS(1));
  CUdeviceptr p = 0;
  SAY(cuMemAlloc(&p, 70000));
  SAY(cuMemFree(p));
  SAY(cuEventRecord(f, other));
  SAY(cuStreamWaitEvent(s, f, 0));
  end();
}
/* A block that the graph uses is freed after the capture and before the launch's end. */
static void case_replay(void) {
  begin();
  CUgraph graph;
  CUgraphExec exec;
  CUdeviceptr copy = take(4 * N);
  MUST(cuMemsetD32(out, 6, N));
  MUST(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  slow_copy(s, copy, out, N, MS(40));
  MUST(cuStreamEndCapture(s, &graph));
  MUST(cuGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < 3; ++i) {
    MUST(cuMemsetD32(out, (unsigned)i, N));
    MUST(cuCtxSynchronize());
    MUST(cuGraphLaunch(exec, s));
    MUST(cuMemFree(take(4 * N)));
    print_ints("copy", copy, N);
  }
  MUST(cuGraphLaunch(exec, s));
  MUST(cuMemFree(out));
  CUdeviceptr again[3];
  for (int i = 0; i < 3; ++i) {
    again[i] = take(4 * N);
    MUST(cuMemsetD32Async(again[i], 77, N, other));
  }
  MUST(cuCtxSynchronize());
  print_ints("copy", copy, N);
}
/* One thread begins and ends captures that forbid nothing to others, while others allocate and free. */
static volatile int stop;
static void* churn(void* size) {
  primary(0);
  while (!stop) {
    CUdeviceptr p[4] = {0};
    for (int i = 0; i < 4; ++i) MUST(cuMemAlloc(&p[i], (size_t)(uintptr_t)size * (size_t)(i + 1)));
    for (int i = 0; i < 4; ++i) MUST(cuMemFree(p[i]));
  }
  return NULL;
}
static void case_race(void) {
  begin();
  pthread_t t[3];
  for (int i = 0; i < 3; ++i) REQUIRE(!pthread_create(&t[i], NULL, churn, (void*)(uintptr_t)(1000 << (3 * i))));
  int spoiled = 0, refused = 0;
  for (int i = 0; i < 1500; ++i) {
    CUgraph graph = NULL;
    if (cuStreamBeginCapture(s, i % 2 ? CU_STREAM_CAPTURE_MODE_RELAXED : CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)) { ++refused; continue; }
    int n = N, v = i;
    long long clocks = 0;
    void* a[] = {&out, &n, &v, &clocks};
    if (cuLaunchKernel(kernel("slow_fill"), 1, 1, 1, 1, 1, 1, 0, s, a, NULL)) ++refused;
    if (cuStreamEndCapture(s, &graph)) ++spoiled;
    else MUST(cuGraphDestroy(graph));
  }
  stop = 1;
  for (int i = 0; i < 3; ++i) pthread_join(t[i], NULL);
  printf("%d spoiled, %d refused\n", spoiled, refused);
}
CASES(CASE(global_same), CASE(global_other), CASE(local_same), CASE(local_other), CASE(relaxed_same), CASE(relaxed_other),
      CASE(exchanged), CASE(other_calls), CASE(odd_ends), CASE(fork), CASE(replay), CASE(race))
