/* The virtual memory API and stream-ordered memory: recorded, not served. */
#include "common.h"

static void case_map(void) {
  primary(0);
  CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  size_t grain;
  MUST(cuMemGetAllocationGranularity(&grain, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  printf("grain %zu\n", grain);
  for (int round = 0; round < 3; ++round) {
    CUdeviceptr at;
    CUmemGenericAllocationHandle h[2];
    SAY(cuMemAddressReserve(&at, 4 * grain, 0, 0, 0));
    for (int i = 0; i < 2; ++i) {
      SAY(cuMemCreate(&h[i], 2 * grain, &prop, 0));
      SAY(cuMemMap(at + (CUdeviceptr)i * 2 * grain, 2 * grain, 0, h[i], 0));
    }
    SAY(cuMemSetAccess(at, 4 * grain, &access, 1));
    SAY(cuMemsetD32(at, 12, grain));
    print_ints("mapped", at, (int)grain);
    MUST(cuMemFree(take(5000))); /* the pool beside it */
    SAY(cuMemRelease(h[0])); /* before the unmapping: it lives on */
    SAY(cuMemUnmap(at, 4 * grain));
    SAY(cuMemRelease(h[1]));
    SAY(cuMemRelease(h[1]));
    SAY(cuMemAddressFree(at, 4 * grain));
    SAY(cuMemFree(at));
  }
}
static void case_ordered(void) {
  primary(0);
  CUstream s, t;
  CUdeviceptr p, q;
  MUST(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  MUST(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
  for (int i = 0; i < 30; ++i) {
    MUST(cuMemAllocAsync(&p, 4000 + 100 * (size_t)i, s));
    slow_fill(s, p, 1000, i, MS(2));
    MUST(cuMemAllocAsync(&q, 4000, s));
    slow_copy(s, q, p, 1000, MS(1));
    MUST(cuMemFreeAsync(p, s));
    MUST(cuMemFree(take(10000)));
    MUST(cuStreamSynchronize(s));
    print_ints("q", q, 1000);
    MUST(cuMemFreeAsync(q, t));
  }
  MUST(cuMemAllocAsync(&p, 4000, 0));
  SAY(cuMemFree(p)); /* by the other API */
  SAY(cuMemFree(p));
  SAY(cuMemFreeAsync(p, s));
}
/* cudaFreeAsync of what cudaMalloc gave: in the order of its stream. */
static void case_plain_async(void) {
  primary(0);
  CUstream s, t;
  enum { N = 3000 };
  MUST(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  MUST(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
  CUdeviceptr out = take(4 * N), first = 0;
  for (int i = 0; i < 3; ++i) {
    CUdeviceptr block = take(4 * N), again;
    if (!i) first = block;
    MUST(cuMemsetD32(block, 30 + (unsigned)i, N));
    MUST(cuCtxSynchronize());
    slow_copy(s, out, block, N, MS(50));
    SAY(cuMemFreeAsync(block, s));
    again = take(4 * N);
    MUST(cuMemsetD32Async(again, 99, N, t));
    MUST(cuCtxSynchronize());
    print_ints("out", out, N);
    SAY(cuMemFreeAsync(again, t));
    MUST(cuCtxSynchronize());
  }
  (void)first;
  SAY(cuMemFreeAsync(out + 512, s));
  SAY(cuMemFreeAsync(out, (CUstream)12345));
  SAY(cuMemFreeAsync(out, s));
  SAY(cuMemFreeAsync(out, s));
  SAY(cuMemFree(out));
}
static void case_pools(void) {
  primary(0);
  CUmemoryPool pool;
  CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  CUdeviceptr p;
  unsigned long long used = 0;
  CUstream s;
  MUST(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  SAY(cuMemPoolCreate(&pool, &props));
  SAY(cuMemAllocFromPoolAsync(&p, 9000, pool, s));
  SAY(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
  printf("used %llu\n", used);
  SAY(cuMemsetD8Async(p, 3, 9000, s));
  SAY(cuMemFreeAsync(p, s));
  SAY(cuStreamSynchronize(s));
  SAY(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
  printf("used %llu\n", used);
  SAY(cuMemPoolTrimTo(pool, 0));
  SAY(cuMemPoolDestroy(pool));
}
/* Memory that belongs to a graph. */
static void case_graph_memory(void) {
  primary(0);
  kernel("copy");
  CUstream s;
  CUgraph graph;
  CUgraphExec exec;
  CUdeviceptr p = 0, out = take(4000);
  MUST(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  MUST(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  SAY(cuMemAllocAsync(&p, 4000, s));
  slow_fill(s, p, 1000, 21, MS(1));
  copy_ints(s, out, p, 1000);
  SAY(cuMemFreeAsync(p, s));
  SAY(cuStreamEndCapture(s, &graph));
  SAY(cuGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < 3; ++i) {
    SAY(cuGraphLaunch(exec, s));
    MUST(cuMemFree(take(4000)));
    print_ints("out", out, 1000);
  }
  SAY(cuGraphExecDestroy(exec));
  SAY(cuGraphDestroy(graph));
}
/* A file descriptor of device memory. */
static void case_shareable(void) {
  primary(0);
  CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                              .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  CUmemGenericAllocationHandle h, again;
  int fd = -1;
  SAY(cuMemCreate(&h, 4 * MB, &prop, 0));
  SAY(cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  printf("descriptor %d\n", fd >= 0);
  SAY(cuMemImportFromShareableHandle(&again, (void*)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  SAY(cuMemRelease(again));
  SAY(cuMemRelease(h));
  SAY(cuMemGetHandleForAddressRange(&fd, take(2 * MB), 2 * MB, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
}
CASES(CASE(map), CASE(ordered), CASE(plain_async), CASE(pools), CASE(graph_memory), CASE(shareable))
