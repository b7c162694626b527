/* Contexts come and go: created, destroyed, reset, released; several devices; peers; frees from somewhere else. */
#include "common.h"

/* A device reset in the middle: all memory is gone, and the addresses mean nothing. */
static void reset_with(void (*reset)(void)) {
  CUdeviceptr p[4], freed;
  for (int round = 0; round < 3; ++round) {
    primary(0);
    for (int i = 0; i < 4; ++i) p[i] = take(100000 * (size_t)(i + 1));
    freed = take(5000);
    MUST(cuMemFree(freed));
    reset();
    primary(0);
    SAY(cuMemFree(p[0]));
    SAY(cuMemFree(freed));
    size_t free, total;
    SAY(cuMemGetInfo(&free, &total));
    printf("free %zu MiB\n", free / MB);
    CUdeviceptr q = take(100000);
    SAY(cuMemsetD8(q, 1, 100000));
    SAY(cuMemFree(q));
    SAY(cuMemFree(q));
    reset();
  }
}
static void do_reset(void) { SAY(cuDevicePrimaryCtxReset(0)); }
static void do_release(void) {
  int active;
  unsigned flags;
  do {
    SAY(cuDevicePrimaryCtxRelease(0));
    MUST(cuDevicePrimaryCtxGetState(0, &flags, &active));
  } while (active);
}
static void case_reset(void) { reset_with(do_reset); }
static void case_release(void) { reset_with(do_release); }
/* Only the last release ends it. */
static void case_retained_twice(void) {
  primary(0);
  primary(0);
  CUdeviceptr p = take(9000);
  SAY(cuDevicePrimaryCtxRelease(0));
  SAY(cuMemsetD8(p, 1, 9000));
  SAY(cuMemFree(p));
  SAY(cuMemAlloc(&p, 9000));
  SAY(cuDevicePrimaryCtxRelease(0));
  SAY(cuMemAlloc(&p, 9000));
  SAY(cuDevicePrimaryCtxRelease(0));
}
static void case_created(void) {
  CUcontext first, ctx[3];
  CUdeviceptr p[3], q;
  first = primary(0);
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 3; ++i) {
      MUST(cuCtxCreate(&ctx[i], NULL, 0, 0));
      p[i] = take(100000);
      MUST(cuMemsetD32(p[i], (unsigned)i, 25000));
      MUST(cuMemFree(take(100000)));
    }
    /* freed with another context current */
    SAY(cuCtxSetCurrent(ctx[0]));
    print_ints("of another", p[2], 25000);
    SAY(cuMemFree(p[2]));
    SAY(cuMemFree(p[2]));
    SAY(cuMemAlloc(&q, 100000)); /* not p[2]: it is another context's */
    printf("another %d\n", q != p[2]);
    SAY(cuMemFree(q));
    /* destroyed with memory live and cached */
    SAY(cuCtxDestroy(ctx[1]));
    SAY(cuMemFree(p[1]));
    SAY(cuCtxDestroy(ctx[1]));
    SAY(cuCtxDestroy(ctx[2]));
    SAY(cuCtxDestroy(ctx[0]));
    CUcontext popped;
    while (!cuCtxPopCurrent(&popped)) {}
    MUST(cuCtxSetCurrent(first));
    SAY(cuMemAlloc(&q, 100000));
    SAY(cuMemFree(q));
    size_t free, total;
    /* of small blocks that are cached nobody can tell which share a page with live ones: not to the last 2 MiB */
    MUST(cuMemGetInfo(&free, &total));
    printf("free %zu x 64 MiB\n", (free + 8 * MB) / (64 * MB));
  }
}
/* A block of one context reused in it only: the barrier of the other context says nothing about it. */
static void case_two_orders(void) {
  CUcontext a = primary(0), b;
  CUstream in_a, in_b;
  enum { N = 2000 };
  MUST(cuStreamCreate(&in_a, CU_STREAM_NON_BLOCKING));
  CUdeviceptr out = take(4 * N), block = take(4 * N), again;
  MUST(cuMemsetD32(block, 3, N));
  MUST(cuCtxSynchronize());
  slow_copy(in_a, out, block, N, MS(80));
  MUST(cuCtxCreate(&b, NULL, 0, 0));
  MUST(cuStreamCreate(&in_b, CU_STREAM_NON_BLOCKING));
  SAY(cuMemFree(block)); /* a's, with b current */
  again = take(4 * N);   /* b's */
  MUST(cuMemsetD32Async(again, 9, N, in_b));
  MUST(cuStreamSynchronize(in_b));
  MUST(cuCtxSetCurrent(a));
  again = take(4 * N);
  MUST(cuStreamCreate(&in_b, CU_STREAM_NON_BLOCKING));
  MUST(cuMemsetD32Async(again, 99, N, in_b));
  MUST(cuCtxSynchronize());
  print_ints("out", out, N);
}
static void case_devices(void) {
  CUcontext zero = primary(0), one = primary(1);
  CUdeviceptr p, q;
  for (int round = 0; round < 3; ++round) {
    MUST(cuCtxSetCurrent(zero));
    p = take(70000);
    MUST(cuMemsetD32(p, 10, 100));
    MUST(cuCtxSetCurrent(one));
    q = take(70000);
    MUST(cuMemsetD32(q, 11, 100));
    int a, b;
    MUST(cuPointerGetAttribute(&a, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p));
    MUST(cuPointerGetAttribute(&b, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, q));
    printf("on %d and %d\n", a, b);
    SAY(cuMemFree(p)); /* device 0's, with device 1 current */
    SAY(cuMemFree(q));
    q = take(70000); /* device 1's again */
    MUST(cuPointerGetAttribute(&b, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, q));
    printf("on %d\n", b);
    SAY(cuMemFree(q));
  }
}
static void case_peers(void) {
  CUcontext zero = primary(0), one = primary(1);
  CUdeviceptr p, q;
  int can;
  SAY(cuDeviceCanAccessPeer(&can, 0, 1));
  printf("can %d\n", can);
  MUST(cuCtxSetCurrent(zero));
  p = take(4000);
  SAY(cuCtxEnablePeerAccess(one, 0));
  SAY(cuCtxEnablePeerAccess(one, 0));
  MUST(cuCtxSetCurrent(one));
  q = take(4000);
  MUST(cuMemsetD32(q, 5, 1000));
  MUST(cuCtxSynchronize());
  MUST(cuCtxSetCurrent(zero));
  for (int round = 0; round < 3; ++round) {
    copy_ints(0, p, q, 1000); /* a kernel of device 0 reads device 1 */
    print_ints("peer", p, 1000);
    MUST(cuMemcpyPeer(q, one, p, zero, 4000));
    SAY(cuMemFree(p));
    p = take(4000);
  }
  SAY(cuCtxDisablePeerAccess(one));
  SAY(cuMemFree(q));
  SAY(cuMemFree(p));
}
/* Green contexts are handles on the primary one's memory. */
static void case_green(void) {
  CUcontext zero = primary(0), g;
  CUgreenCtx green;
  CUdeviceptr p = take(30000), q;
  CUstream s;
  MUST(cuGreenCtxCreate(&green, NULL, 0, 1));
  MUST(cuCtxFromGreenCtx(&g, green));
  MUST(cuCtxSetCurrent(g));
  SAY(cuMemFree(p));
  SAY(cuMemAlloc(&q, 30000));
  SAY(cuMemsetD32(q, 8, 100));
  print_ints("green", q, 100);
  MUST(cuCtxSetCurrent(zero));
  MUST(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  p = take(4000);
  slow_fill(s, p, 1000, 6, MS(60));
  MUST(cuCtxSetCurrent(g));
  SAY(cuMemFree(q));
  print_ints("primary's", p, 1000);
  MUST(cuCtxSetCurrent(zero));
  SAY(cuMemFree(p));
  SAY(cuGreenCtxDestroy(green));
}
/* A context on another thread, destroyed there while this one frees. */
static volatile int stop;
static void* churn(void* unused) {
  (void)unused;
  primary(0);
  while (!stop) {
    CUdeviceptr p = take(20000);
    MUST(cuMemFree(p));
  }
  return NULL;
}
static void case_racing(void) {
  primary(0);
  pthread_t t[2];
  for (int i = 0; i < 2; ++i) REQUIRE(!pthread_create(&t[i], NULL, churn, NULL));
  for (int i = 0; i < 60; ++i) {
    CUcontext ctx, popped;
    MUST(cuCtxCreate(&ctx, NULL, 0, 0));
    CUdeviceptr p = take(20000);
    MUST(cuMemFree(p));
    p = take(40000);
    MUST(cuCtxDestroy(ctx));
    cuCtxPopCurrent(&popped);
    primary(0);
    /* p is not freed again here: the address may be a block that another thread is just being given. */
  }
  stop = 1;
  for (int i = 0; i < 2; ++i) pthread_join(t[i], NULL);
  printf("done\n");
}
/* More contexts than the pool keeps books of. */
static void case_hundred(void) {
  enum { N = 100 };
  static CUcontext ctx[N];
  static CUdeviceptr p[N];
  MUST(cuInit(0));
  for (int i = 0; i < N; ++i) {
    MUST(cuCtxCreate(&ctx[i], NULL, 0, 0));
    p[i] = take(1000);
    MUST(cuMemFree(p[i]));
    p[i] = take(1000);
  }
  int bad = 0;
  for (int i = 0; i < N; ++i) bad += cuMemFree(p[i]) != CUDA_SUCCESS;
  for (int i = 0; i < N; ++i) bad += cuCtxDestroy(ctx[i]) != CUDA_SUCCESS;
  printf("%d failed\n", bad);
  primary(0);
  MUST(cuMemFree(take(1000)));
}
CASES(CASE(reset), CASE(release), CASE(retained_twice), CASE(created), CASE(two_orders), CASE(devices), CASE(peers), CASE(green),
      CASE(racing), CASE(hundred))
