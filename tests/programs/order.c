/* Programs that are right today only because cudaFree waits: the order on the device between streams. Each frees an unrelated
 * block (`scratch`) or the block itself while a kernel runs, and then reads what the kernel writes. All of it through the
 * device, so that a barrier on the device is enough. */
#include "common.h"

enum { N = 5000 };
static CUdeviceptr out, scratch;
static CUstream one, two;

static void begin(void) {
  primary(0);
  kernel("copy"); /* a module is loaded, which no capture allows */
  MUST(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
  MUST(cuStreamCreate(&two, CU_STREAM_NON_BLOCKING));
  out = take(4 * N);
  scratch = take(4 * N);
  MUST(cuMemsetD32(out, 1, N));
  MUST(cuMemsetD32(scratch, 2, N));
  MUST(cuCtxSynchronize());
}

/* K<<<one>>>(out, scratch); cudaFree(scratch); cudaMemcpy(host, out) */
static void case_legacy_copy(void) {
  begin();
  for (int i = 0; i < 3; ++i) {
    slow_fill(one, out, N, 10 + i, MS(60));
    MUST(cuMemFree(scratch));
    print_ints("out", out, N);
    scratch = take(4 * N);
  }
}
/* The same, small and large blocks, with a neighbour in the same page alive. */
static void case_sizes(void) {
  begin();
  static const size_t sizes[] = {16, 1000, MB, 3 * MB, 40 * MB};
  CUdeviceptr neighbour = take(16);
  for (size_t i = 0; i < LENGTH(sizes); ++i) {
    CUdeviceptr p = take(sizes[i]);
    slow_fill(one, out, N, 100 + (int)i, MS(40));
    MUST(cuMemFree(p));
    print_ints("out", out, N);
  }
  MUST(cuMemFree(neighbour));
}
/* Read by a kernel on a second stream. */
static void case_second_stream(void) {
  begin();
  CUdeviceptr copy = take(4 * N);
  slow_fill(one, out, N, 20, MS(60));
  MUST(cuMemFree(scratch));
  copy_ints(two, copy, out, N);
  MUST(cuStreamSynchronize(two));
  print_ints("copy", copy, N);
}
/* … on a stream that was created after the free. */
static void case_later_stream(void) {
  begin();
  CUdeviceptr copy = take(4 * N);
  CUstream three;
  slow_fill(one, out, N, 30, MS(60));
  MUST(cuMemFree(scratch));
  MUST(cuStreamCreate(&three, CU_STREAM_NON_BLOCKING));
  copy_ints(three, copy, out, N);
  MUST(cuStreamSynchronize(three));
  print_ints("copy", copy, N);
}
/* … that is the first stream of the process: until then the legacy stream was the only one. */
static void case_first_stream(void) {
  primary(0);
  out = take(4 * N);
  scratch = take(4 * N);
  CUdeviceptr copy = take(4 * N);
  slow_fill(0, out, N, 40, MS(60));
  MUST(cuMemFree(scratch));
  MUST(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
  copy_ints(one, copy, out, N);
  MUST(cuStreamSynchronize(one));
  print_ints("copy", copy, N);
}
/* Per-thread default streams, by the handle 2 and by the _ptsz names. */
static void* own_stream(void* p) {
  CUdeviceptr copy = *(CUdeviceptr*)p;
  primary(0);
  copy_ints(CU_STREAM_PER_THREAD, copy, out, N);
  MUST(cuStreamSynchronize(CU_STREAM_PER_THREAD));
  return NULL;
}
static void case_per_thread_handle(void) {
  primary(0); /* no stream is ever created */
  out = take(4 * N);
  scratch = take(4 * N);
  CUdeviceptr copy = take(4 * N);
  pthread_t t;
  slow_fill(CU_STREAM_PER_THREAD, out, N, 50, MS(60));
  MUST(cuMemFree(scratch));
  REQUIRE(!pthread_create(&t, NULL, own_stream, &copy));
  pthread_join(t, NULL);
  print_ints("copy", copy, N);
}
static void* own_stream_ptsz(void* p) {
  CUdeviceptr copy = *(CUdeviceptr*)p;
  primary(0);
  MUST(cuMemcpyDtoDAsync_v2_ptsz(copy, out, 4 * N, 0));
  MUST(cuStreamSynchronize_ptsz(0));
  return NULL;
}
static void case_per_thread_names(void) {
  primary(0);
  out = take(4 * N);
  scratch = take(4 * N);
  CUdeviceptr copy = take(4 * N);
  pthread_t t;
  int n = N, v = 60;
  long long clocks = MS(60);
  void* a[] = {&out, &n, &v, &clocks};
  MUST(cuLaunchKernel_ptsz(kernel("slow_fill"), 1, 1, 1, 1, 1, 1, 0, 0, a, NULL));
  MUST(cuMemFree(scratch));
  REQUIRE(!pthread_create(&t, NULL, own_stream_ptsz, &copy));
  pthread_join(t, NULL);
  int first;
  MUST(cuMemcpyDtoH_v2_ptds(&first, copy, 4));
  printf("copy %d\n", first);
}
/* Another thread's work counts too. */
static void* fill_there(void* unused) {
  (void)unused;
  primary(0);
  slow_fill(CU_STREAM_PER_THREAD, out, N, 70, MS(60));
  return NULL;
}
static void case_other_thread(void) {
  begin();
  CUdeviceptr copy = take(4 * N);
  pthread_t t;
  REQUIRE(!pthread_create(&t, NULL, fill_there, NULL));
  pthread_join(t, NULL);
  MUST(cuMemFree(scratch));
  copy_ints(two, copy, out, N);
  MUST(cuStreamSynchronize(two));
  print_ints("copy", copy, N);
}
/* A graph launched after the free. */
static void case_graph(void) {
  begin();
  CUdeviceptr copy = take(4 * N);
  CUgraph graph;
  CUgraphExec exec;
  MUST(cuStreamBeginCapture(two, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  copy_ints(two, copy, out, N);
  MUST(cuStreamEndCapture(two, &graph));
  MUST(cuGraphInstantiate(&exec, graph, 0));
  slow_fill(one, out, N, 80, MS(60));
  MUST(cuMemFree(scratch));
  MUST(cuGraphLaunch(exec, two));
  MUST(cuStreamSynchronize(two));
  print_ints("copy", copy, N);
  /* and a graph whose work is pending at the free */
  CUgraph slow;
  CUgraphExec run;
  MUST(cuStreamBeginCapture(one, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  slow_fill(one, out, N, 90, MS(60));
  MUST(cuStreamEndCapture(one, &slow));
  MUST(cuGraphInstantiate(&run, slow, 0));
  scratch = take(4 * N);
  MUST(cuGraphLaunch(run, one));
  MUST(cuMemFree(scratch));
  copy_ints(two, copy, out, N);
  MUST(cuStreamSynchronize(two));
  print_ints("copy", copy, N);
}
/* The block itself is still read by a pending kernel when it is freed and given out again. */
static void reuse(CUstream reader, CUstream writer, size_t bytes) {
  int n = (int)(bytes / 4);
  CUdeviceptr block = take(bytes), copy = take(bytes);
  MUST(cuMemsetD32(block, 3, (size_t)n));
  MUST(cuCtxSynchronize());
  slow_copy(reader, copy, block, n, MS(60));
  MUST(cuMemFree(block));
  CUdeviceptr again[4];
  for (int i = 0; i < 4; ++i) { /* one of them is the block */
    again[i] = take(bytes);
    MUST(cuMemsetD32Async(again[i], 99, (size_t)n, writer));
  }
  MUST(cuStreamSynchronize(writer));
  MUST(cuStreamSynchronize(reader));
  print_ints("copy", copy, n);
  for (int i = 0; i < 4; ++i) MUST(cuMemFree(again[i]));
  MUST(cuMemFree(copy));
}
static void case_reuse(void) {
  begin();
  CUstream blocking;
  MUST(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
  static const size_t sizes[] = {4096, 300000, MB, 3 * MB, 12 * MB};
  for (size_t i = 0; i < LENGTH(sizes); ++i) {
    reuse(one, two, sizes[i]);
    reuse(one, one, sizes[i]);
    reuse(one, 0, sizes[i]);
    reuse(0, two, sizes[i]);
    reuse(blocking, one, sizes[i]);
    reuse(CU_STREAM_PER_THREAD, two, sizes[i]);
  }
}
/* The reader is the legacy stream, and the writer the first stream there is. */
static void case_reuse_first_stream(void) {
  primary(0);
  CUdeviceptr block = take(4 * N), copy = take(4 * N);
  MUST(cuMemsetD32(block, 3, N));
  slow_copy(0, copy, block, N, MS(60));
  MUST(cuMemFree(block));
  CUdeviceptr again = take(4 * N);
  MUST(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
  MUST(cuMemsetD32Async(again, 99, N, one));
  MUST(cuStreamSynchronize(one));
  MUST(cuCtxSynchronize());
  print_ints("copy", copy, N);
}
/* Streams destroyed with work pending. */
static void case_destroyed_stream(void) {
  begin();
  slow_fill(one, out, N, 110, MS(60));
  MUST(cuStreamDestroy(one));
  MUST(cuMemFree(scratch));
  print_ints("out", out, N);
}
/* Frees of many blocks share nothing that could go wrong. */
static void case_many_frees(void) {
  begin();
  CUdeviceptr p[64];
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < 64; ++i) p[i] = take(1000 * (size_t)(i + 1));
    slow_fill(one, out, N, 120 + round, MS(30));
    for (int i = 0; i < 64; ++i) MUST(cuMemFree(p[i]));
    print_ints("out", out, N);
  }
}
/* Pitched memory and managed memory go through the real call, which waits. */
static void case_other_frees(void) {
  begin();
  CUdeviceptr p;
  size_t pitch;
  MUST(cuMemAllocPitch(&p, &pitch, 100, 100, 4));
  slow_fill(one, out, N, 130, MS(60));
  MUST(cuMemFree(p));
  print_ints("out", out, N);
}
CASES(CASE(legacy_copy), CASE(sizes), CASE(second_stream), CASE(later_stream), CASE(first_stream), CASE(per_thread_handle),
      CASE(per_thread_names), CASE(other_thread), CASE(graph), CASE(reuse), CASE(reuse_first_stream), CASE(destroyed_stream),
      CASE(many_frees), CASE(other_frees))
