/* The driver's own entry points: every kind of memory, and what it answers to nonsense. */
#include "common.h"

static void case_plain(void) {
  primary(0);
  static const size_t sizes[] = {1, 512, 513, 65536, MB, MB + 1, 5 * MB};
  for (int round = 0; round < 3; ++round)
    for (size_t i = 0; i < LENGTH(sizes); ++i) {
      CUdeviceptr p = 0;
      SAY(cuMemAlloc(&p, sizes[i]));
      REQUIRE(p % 512 == 0);
      SAY(cuMemsetD8(p, (unsigned char)(i + 1), sizes[i]));
      unsigned char last = 0;
      SAY(cuMemcpyDtoH(&last, p + sizes[i] - 1, 1));
      printf("%d\n", last);
      SAY(cuMemFree(p));
    }
}
static void case_kinds(void) {
  primary(0);
  CUdeviceptr p, managed;
  size_t pitch;
  void *pinned, *pinned2;
  SAY(cuMemAllocPitch(&p, &pitch, 700, 30, 4));
  printf("pitch %zu\n", pitch);
  SAY(cuMemsetD32(p, 77, pitch * 30 / 4));
  print_ints("pitched", p, (int)(pitch * 30 / 4));
  SAY(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
  SAY(cuMemAllocHost(&pinned, 4096));
  SAY(cuMemHostAlloc(&pinned2, 4096, CU_MEMHOSTALLOC_PORTABLE));
  memset(pinned, 1, 4096);
  SAY(cuMemcpyHtoD(managed, pinned, 4096));
  printf("managed %d\n", *(char*)(uintptr_t)managed);
  void* mine = NULL;
  REQUIRE(!posix_memalign(&mine, 4096, 4096));
  SAY(cuMemHostRegister(mine, 4096, 0));
  SAY(cuMemHostRegister(mine, 4096, 0));
  SAY(cuMemHostUnregister(mine));
  SAY(cuMemHostUnregister(mine));
  free(mine);
  SAY(cuMemFreeHost(pinned));
  SAY(cuMemFreeHost(pinned));
  SAY(cuMemFreeHost(pinned2));
  SAY(cuMemFree(managed));
  SAY(cuMemFree(p));
}
static void case_bad_frees(void) {
  primary(0);
  CUdeviceptr p = 1, q;
  SAY(cuMemAlloc(&p, 0));
  printf("zero %d\n", p == 0);
  SAY(cuMemAlloc(NULL, 16));
  SAY(cuMemFree(0));
  SAY(cuMemFree(512));
  SAY(cuMemFree((CUdeviceptr)(uintptr_t)&p));
  for (int i = 0; i < 3; ++i) {
    size_t size = i == 0 ? 3000 : i == 1 ? 5 * MB : 1;
    p = take(size);
    SAY(cuMemFree(p + 256));
    SAY(cuMemFree(p + 512));
    SAY(cuMemFree(p));
    SAY(cuMemFree(p));
    SAY(cuMemFree(p));
    q = take(size); /* freed twice, it must not be given out twice */
    CUdeviceptr r = take(size);
    printf("different %d\n", q != r);
    SAY(cuMemFree(q));
    SAY(cuMemFree(q));
    SAY(cuMemFree(r));
  }
  p = 5;
  SAY(cuMemAlloc(&p, (size_t)1 << 50));
  printf("left %d\n", p == 0);
  SAY(cuMemAllocPitch(&p, NULL, 1, 1, 4));
  SAY(cuMemAllocPitch(NULL, NULL, 1, 1, 4));
  SAY(cuMemAllocManaged(NULL, 1, 1));
  SAY(cuMemAllocManaged(&p, 0, 1));
  SAY(cuMemAllocHost(NULL, 5));
  SAY(cuMemHostAlloc(NULL, 5, 0));
  SAY(cuMemHostRegister(NULL, 5, 0));
  SAY(cuMemHostUnregister(NULL));
  SAY(cuMemFreeHost(NULL));
  SAY(cuMemAllocAsync(NULL, 5, 0));
  SAY(cuMemAllocAsync(&p, 0, 0));
  SAY(cuMemFreeAsync(0, 0));
  SAY(cuMemFreeAsync(12345, 0));
  SAY(cuMemGetInfo(NULL, NULL));
  SAY(cuMemGetAddressRange(NULL, NULL, 12345));
  SAY(cuPointerGetAttribute(NULL, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 12345));
  SAY(cuPointerGetAttributes(0, NULL, NULL, 12345));
  SAY(cuIpcGetMemHandle(NULL, 12345));
  SAY(cuMemCreate(NULL, 0, NULL, 0));
  SAY(cuMemRelease(0));
  SAY(cuMemMap(0, 0, 0, 0, 0));
  SAY(cuMemUnmap(0, 0));
  SAY(cuStreamCreate(NULL, 0));
  SAY(cuStreamDestroy((CUstream)12345));
  SAY(cuStreamBeginCapture((CUstream)12345, 0));
  SAY(cuStreamEndCapture((CUstream)12345, NULL));
  SAY(cuLaunchHostFunc(0, NULL, NULL));
  SAY(cuStreamAddCallback(0, NULL, NULL, 0));
  SAY(cuCtxDestroy(NULL));
  SAY(cuModuleLoadData(NULL, NULL));
}
/* Without cuInit, and without a context. */
static void case_no_context(void) {
  CUdeviceptr p = 0;
  CUcontext ctx;
  size_t a, b;
  SAY(cuMemAlloc(&p, 16));
  SAY(cuMemFree(16));
  SAY(cuInit(0));
  SAY(cuMemAlloc(&p, 16));
  SAY(cuMemFree(16));
  SAY(cuMemGetInfo(&a, &b));
  SAY(cuMemAllocAsync(&p, 16, 0));
  SAY(cuDevicePrimaryCtxRelease(0));
  SAY(cuDevicePrimaryCtxReset(0));
  SAY(cuDevicePrimaryCtxRetain(&ctx, 77));
  SAY(cuDevicePrimaryCtxRetain(NULL, 0));
  SAY(cuCtxCreate(NULL, NULL, 0, 0));
  primary(0);
  SAY(cuMemAlloc(&p, 16));
  SAY(cuMemFree(p));
}
/* A pointer freed in another thread, and with no context current there. */
static void* free_there(void* p) {
  CUcontext ctx;
  SAY(cuMemFree(*(CUdeviceptr*)p));
  MUST(cuDevicePrimaryCtxRetain(&ctx, 0));
  MUST(cuCtxSetCurrent(ctx));
  SAY(cuMemFree(*(CUdeviceptr*)p));
  SAY(cuMemFree(*(CUdeviceptr*)p));
  return NULL;
}
static void case_other_thread(void) {
  primary(0);
  for (int i = 0; i < 3; ++i) {
    CUdeviceptr p = take(100000);
    pthread_t t;
    REQUIRE(!pthread_create(&t, NULL, free_there, &p));
    pthread_join(t, NULL);
    SAY(cuMemFree(p));
  }
}
CASES(CASE(plain), CASE(kinds), CASE(bad_frees), CASE(no_context), CASE(other_thread))
