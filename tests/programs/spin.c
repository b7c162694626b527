/* Calls that do not wait bare, beside a kernel that never ends by itself: whoever waits for it waits for ever. */
#include "common.h"

static CUdeviceptr flag_of(int** host) {
  MUST(cuMemAllocHost((void**)host, 4096));
  **host = 0;
  return (CUdeviceptr)(uintptr_t)*host;
}
/* cudaMalloc, from the cache and from the driver. */
static void case_alloc(void) {
  primary(0);
  CUstream s;
  int* host;
  CUdeviceptr flag = flag_of(&host), p[8], cached = take(50000);
  MUST(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  MUST(cuMemFree(cached));
  spin_flag(s, flag);
  for (int i = 0; i < 8; ++i) p[i] = take(i == 0 ? 50000 : MB * (size_t)i);
  printf("allocated beside a kernel: %d\n", (int)cuStreamQuery(s));
  *host = 1;
  MUST(cuStreamSynchronize(s));
  for (int i = 0; i < 8; ++i) MUST(cuMemFree(p[i]));
}
/* The other allocating calls. */
static void case_other_allocs(void) {
  primary(0);
  CUstream s, t;
  int* host;
  CUdeviceptr flag = flag_of(&host), p;
  void* pinned;
  size_t free, total, size;
  CUmodule m;
  kernel("copy");
  MUST(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  CUdeviceptr known = take(1000);
  spin_flag(s, flag);
  SAY(cuMemAllocManaged(&p, 1000, CU_MEM_ATTACH_GLOBAL));
  SAY(cuMemAllocHost(&pinned, 1000));
  SAY(cuMemAllocPitch(&p, &size, 1000, 10, 4));
  SAY(cuMemGetInfo(&free, &total));
  SAY(cuMemGetAddressRange(&p, &size, known));
  SAY(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
  SAY(cuModuleLoadData(&m, SIMGPU_PTX));
  SAY(cuMemAllocAsync(&p, 1000, t));
  SAY(cuMemFreeAsync(p, t));
  SAY(cuStreamSynchronize(t));
  *host = 1;
  SAY(cuCtxSynchronize());
}
/* A kernel on the legacy stream spins until a kernel on the first stream created after it sets its flag. */
static void case_first_stream(void) {
  primary(0);
  CUstream s;
  CUdeviceptr flag = take(4096), other = take(4096);
  kernel("copy");
  MUST(cuMemsetD32(flag, 0, 1));
  MUST(cuMemFree(other));
  spin_flag(0, flag);
  MUST(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  slow_write(s, flag, 1, MS(1));
  MUST(cuStreamSynchronize(s));
  MUST(cuCtxSynchronize());
  printf("the new stream was not held up\n");
}
/* The same, with per-thread streams. */
static void case_per_thread(void) {
  primary(0);
  CUdeviceptr flag = take(4096), other = take(4096);
  kernel("copy");
  MUST(cuMemsetD32(flag, 0, 1));
  MUST(cuStreamSynchronize(0));
  MUST(cuMemFree(other));
  CUstream s;
  MUST(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  spin_flag(s, flag);
  slow_write(CU_STREAM_PER_THREAD, flag, 1, MS(1));
  MUST(cuStreamSynchronize(CU_STREAM_PER_THREAD));
  MUST(cuCtxSynchronize());
  printf("the thread's own stream was not held up\n");
}
/* An allocation that fails must not wait either. */
static void case_failing(void) {
  primary(0);
  CUstream s;
  int* host;
  CUdeviceptr flag = flag_of(&host), p;
  MUST(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  spin_flag(s, flag);
  SAY(cuMemAlloc(&p, (size_t)1 << 45));
  *host = 1;
  MUST(cuStreamSynchronize(s));
}
/* A kernel that is launched for the first time. Where kernels are loaded late that waits for the context's work: the other thread then
 * ends it. */
static int* late_flag;
static void* raises_it_late(void* returned) {
  for (int i = 0; i < 100 && !__atomic_load_n((int*)returned, __ATOMIC_ACQUIRE); ++i) usleep(10000);
  *(volatile int*)late_flag = 1;
  return NULL;
}
static void case_first_launch(void) {
  primary(0);
  CUstream s, t;
  CUdeviceptr flag = flag_of(&late_flag), p = take(4096);
  pthread_t thread;
  int returned = 0;
  MUST(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  MUST(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
  spin_flag(s, flag);
  REQUIRE(!pthread_create(&thread, NULL, raises_it_late, &returned));
  slow_write(t, p, 1, 1);
  printf("launched beside a kernel: %d\n", (int)cuStreamQuery(s));
  __atomic_store_n(&returned, 1, __ATOMIC_RELEASE);
  pthread_join(thread, NULL);
  MUST(cuCtxSynchronize());
}
CASES(CASE(first_launch), CASE(alloc), CASE(other_allocs), CASE(first_stream), CASE(per_thread), CASE(failing))
