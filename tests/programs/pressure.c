/* Memory runs out: what the pool keeps must be given back before anything fails that works bare. Run with a device of 1 GiB,
 * of which the context takes 256 MiB, and no limit on the cache. */
#include "common.h"

/* Takes the device whole in blocks of so many MiB, and frees them (into the cache). */
static void fill_cache(size_t mb) {
  CUdeviceptr p[1024];
  int n = 0;
  while (n < 1024 && !cuMemAlloc(&p[n], mb * MB)) ++n;
  REQUIRE(n > 1 && n < 1024);
  while (n > 0) MUST(cuMemFree(p[--n]));
}
static size_t free_mb(void) {
  size_t free, total;
  MUST(cuMemGetInfo(&free, &total));
  return free / MB;
}
static void case_large(void) {
  primary(0);
  CUdeviceptr p = 0;
  for (int round = 0; round < 3; ++round) {
    fill_cache(16);
    printf("free %zu MiB\n", free_mb());
    SAY(cuMemAlloc(&p, 700 * MB));
    SAY(cuMemFree(p));
    fill_cache(3);
    SAY(cuMemAlloc(&p, 100 * MB));
    SAY(cuMemFree(p));
  }
}
static void case_small(void) {
  primary(0);
  CUdeviceptr p = 0;
  fill_cache(64);
  SAY(cuMemAlloc(&p, 1000));
  SAY(cuMemFree(p));
  fill_cache(5);
  SAY(cuMemAlloc(&p, 1000));
  SAY(cuMemFree(p));
}
static void case_pitch(void) {
  primary(0);
  CUdeviceptr p = 0;
  size_t pitch;
  fill_cache(16);
  SAY(cuMemAllocPitch(&p, &pitch, MB, 600, 4));
  SAY(cuMemFree(p));
}
static void case_async(void) {
  primary(0);
  CUdeviceptr p = 0;
  fill_cache(16);
  SAY(cuMemAllocAsync(&p, 600 * MB, 0));
  SAY(cuMemFreeAsync(p, 0));
  SAY(cuStreamSynchronize(0));
  CUmemoryPool pool;
  CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  MUST(cuMemPoolCreate(&pool, &props));
  fill_cache(16);
  SAY(cuMemAllocFromPoolAsync(&p, 600 * MB, pool, 0));
  SAY(cuMemFreeAsync(p, 0));
  SAY(cuStreamSynchronize(0));
}
static void case_vmm(void) {
  primary(0);
  CUmemGenericAllocationHandle h;
  CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  fill_cache(16);
  SAY(cuMemCreate(&h, 600 * MB, &prop, 0));
  SAY(cuMemRelease(h));
}
static void case_context(void) {
  primary(0);
  CUcontext ctx;
  fill_cache(16);
  SAY(cuCtxCreate(&ctx, NULL, 0, 0));
  SAY(cuCtxDestroy(ctx));
}
static void case_module(void) {
  primary(0);
  CUmodule m;
  CUlibrary l;
  CUdeviceptr p;
  size_t bytes;
  fill_cache(2);
  SAY(cuModuleLoadData(&m, SIMGPU_PTX_GLOBALS));
  fill_cache(2);
  SAY(cuLibraryLoadData(&l, SIMGPU_PTX_GLOBALS, NULL, NULL, 0, NULL, NULL, 0));
  SAY(cuLibraryGetGlobal(&p, &bytes, l, "device_array"));
}
static void case_graph(void) {
  primary(0);
  CUstream s;
  CUgraph graph;
  CUgraphExec exec;
  CUdeviceptr p;
  MUST(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  fill_cache(16);
  SAY(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
  SAY(cuMemAllocAsync(&p, 100 * MB, s));
  SAY(cuMemFreeAsync(p, s));
  SAY(cuStreamEndCapture(s, &graph));
  SAY(cuGraphInstantiate(&exec, graph, 0));
  SAY(cuGraphLaunch(exec, s));
  SAY(cuStreamSynchronize(s));
}
/* What is really too much fails, with everything as before. */
static void case_too_much(void) {
  primary(0);
  CUdeviceptr kept = take(MB), p = 1;
  MUST(cuMemsetD8(kept, 7, MB));
  fill_cache(16);
  SAY(cuMemAlloc(&p, 900 * MB));
  printf("null %d\n", p == 0);
  SAY(cuMemAlloc(&p, 700 * MB));
  SAY(cuMemAlloc(&kept, 700 * MB));
  SAY(cuMemFree(p));
}
/* Several threads run into the end at once: together they never hold more than there is, so nothing fails. */
static void* worker(void* number) {
  primary(0);
  unsigned seed = (unsigned)(uintptr_t)number;
  for (int i = 0; i < 150; ++i) {
    seed = seed * 1664525 + 1013904223;
    size_t bytes = ((seed >> 16) % 160 + 1) * MB;
    MUST(cuMemFree(take(bytes)));
  }
  return NULL;
}
static void case_threads(void) {
  primary(0);
  pthread_t t[4];
  for (int i = 0; i < 4; ++i) REQUIRE(!pthread_create(&t[i], NULL, worker, (void*)(uintptr_t)(i + 1)));
  for (int i = 0; i < 4; ++i) pthread_join(t[i], NULL);
  printf("none failed\n");
}
/* Memory of a second context of the device, and of a second device, is given back or left alone. */
static void case_contexts(void) {
  CUcontext first = primary(0), second;
  fill_cache(16);
  MUST(cuCtxCreate(&second, NULL, 0, 0));
  CUdeviceptr p;
  fill_cache(16);
  MUST(cuCtxSetCurrent(first));
  SAY(cuMemAlloc(&p, 450 * MB));
  SAY(cuMemFree(p));
  SAY(cuCtxDestroy(second));
  primary(1);
  SAY(cuMemAlloc(&p, 700 * MB));
  SAY(cuMemFree(p));
}
/* A pending kernel uses what is given back: the giving back waits for it, as every cuMemFree does. */
static void case_pending(void) {
  primary(0);
  CUstream s;
  MUST(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  CUdeviceptr out = take(4096), p;
  CUdeviceptr scratch = take(300 * MB);
  slow_fill(s, out, 1000, 4, MS(60));
  MUST(cuMemFree(scratch));
  SAY(cuMemAlloc(&p, 600 * MB));
  print_ints("out", out, 1000);
}
CASES(CASE(large), CASE(small), CASE(pitch), CASE(async), CASE(vmm), CASE(context), CASE(module), CASE(graph), CASE(too_much),
      CASE(threads), CASE(contexts), CASE(pending))
