/* What the host sees after cudaFree: memory that host and device share, and host functions. Right in every mode that waits;
 * with VRAMSCOPE_SYNC=device the host may look too early. */
#include "common.h"

static CUstream one;
static CUdeviceptr scratch;
static void begin(void) {
  primary(0);
  MUST(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
  scratch = take(100000);
  MUST(cuMemFree(scratch)); /* in the cache */
  scratch = take(100000);
}
static void case_pinned(void) {
  begin();
  int* p;
  MUST(cuMemAllocHost((void**)&p, 4096));
  *p = 1;
  slow_write(one, (CUdeviceptr)(uintptr_t)p, 11, MS(60));
  MUST(cuMemFree(scratch));
  printf("pinned %d\n", *(volatile int*)p);
}
static void case_host_alloc(void) {
  begin();
  int* p;
  MUST(cuMemHostAlloc((void**)&p, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
  slow_write(one, (CUdeviceptr)(uintptr_t)p, 12, MS(60));
  MUST(cuMemFree(scratch));
  printf("pinned %d\n", *(volatile int*)p);
}
static void case_registered(void) {
  begin();
  void* mine;
  REQUIRE(!posix_memalign(&mine, 4096, 4096));
  memset(mine, 0, 4096);
  MUST(cuMemHostRegister(mine, 4096, 0));
  slow_write(one, (CUdeviceptr)(uintptr_t)mine, 13, MS(60));
  MUST(cuMemFree(scratch));
  printf("registered %d\n", *(volatile int*)mine);
}
static void case_managed(void) {
  begin();
  CUdeviceptr p;
  MUST(cuMemAllocManaged(&p, 4096, CU_MEM_ATTACH_GLOBAL));
  slow_write(one, p, 14, MS(60));
  MUST(cuMemFree(scratch));
  printf("managed %d\n", *(volatile int*)(uintptr_t)p);
}
static void case_pinned_copy(void) {
  begin();
  int* p;
  CUdeviceptr from = take(4096);
  MUST(cuMemAllocHost((void**)&p, 4096));
  slow_write(one, from, 15, MS(60));
  MUST(cuMemcpyDtoHAsync(p, from, 4, one));
  MUST(cuMemFree(scratch));
  printf("copied %d\n", *(volatile int*)p);
}
static volatile int flag;
static void raise_flag(void* value) { flag = *(int*)value; }
static void case_host_function(void) {
  begin();
  static int value = 16;
  CUdeviceptr p = take(4096);
  slow_write(one, p, 1, MS(60));
  MUST(cuLaunchHostFunc(one, raise_flag, &value));
  MUST(cuMemFree(scratch));
  printf("flag %d\n", flag);
}
static void called_back(CUstream s, CUresult status, void* value) {
  (void)s;
  flag = *(int*)value + (int)status;
}
static void case_callback(void) {
  begin();
  static int value = 17;
  CUdeviceptr p = take(4096);
  slow_write(one, p, 1, MS(60));
  MUST(cuStreamAddCallback(one, called_back, &value, 0));
  MUST(cuMemFree(scratch));
  printf("flag %d\n", flag);
}
/* A __managed__ variable: memory that no allocation call made. */
static void case_managed_variable(void) {
  begin();
  CUmodule m;
  CUdeviceptr p;
  size_t bytes;
  MUST(cuModuleLoadData(&m, SIMGPU_PTX_GLOBALS));
  MUST(cuModuleGetGlobal(&p, &bytes, m, "managed_word"));
  printf("%zu bytes, %d\n", bytes, *(volatile int*)(uintptr_t)p);
  slow_write(one, p, 18, MS(60));
  MUST(cuMemFree(scratch));
  printf("variable %d\n", *(volatile int*)(uintptr_t)p);
}
static void case_managed_library_variable(void) {
  begin();
  CUlibrary l;
  CUdeviceptr p;
  size_t bytes;
  MUST(cuLibraryLoadData(&l, SIMGPU_PTX_GLOBALS, NULL, NULL, 0, NULL, NULL, 0));
  MUST(cuLibraryGetManaged(&p, &bytes, l, "managed_word"));
  slow_write(one, p, 19, MS(60));
  MUST(cuMemFree(scratch));
  printf("variable %d\n", *(volatile int*)(uintptr_t)p);
}
/* The legacy stream alone, no other stream ever made. */
static void case_legacy_only(void) {
  primary(0);
  int* p;
  scratch = take(1000);
  MUST(cuMemFree(scratch));
  scratch = take(1000);
  MUST(cuMemAllocHost((void**)&p, 4096));
  *p = 0;
  slow_write(0, (CUdeviceptr)(uintptr_t)p, 20, MS(60));
  MUST(cuMemFree(scratch));
  printf("pinned %d\n", *(volatile int*)p);
}
CASES(CASE(pinned), CASE(host_alloc), CASE(registered), CASE(managed), CASE(pinned_copy), CASE(host_function), CASE(callback),
      CASE(managed_variable), CASE(managed_library_variable), CASE(legacy_only))
