/* What the driver says of memory must be what it says without a pool: free bytes, ranges, attributes. */
#include "common.h"

static long long free_at_start;
static void info(const char* when) {
  size_t free, total;
  MUST(cuMemGetInfo(&free, &total));
  printf("%s: %lld KiB taken of %zu MiB\n", when, (free_at_start - (long long)free) / 1024, total / MB);
}
static void begin(void) {
  size_t free, total;
  primary(0);
  MUST(cuMemGetInfo(&free, &total));
  free_at_start = (long long)free;
}
/* Blocks that are cached count as free, as bare. */
static void case_info(void) {
  begin();
  CUdeviceptr p[20];
  for (int i = 0; i < 20; ++i) {
    p[i] = take((size_t)(i + 1) * 2 * MB);
    info("allocated");
  }
  for (int i = 0; i < 20; ++i) {
    MUST(cuMemFree(p[i]));
    info("freed");
  }
  for (int round = 0; round < 2; ++round) {
    CUdeviceptr q = take(40 * MB);
    info("again");
    MUST(cuMemFree(q));
    info("freed again");
  }
}
static void range(CUdeviceptr p, CUdeviceptr at) {
  CUdeviceptr base = 0;
  size_t size = 0;
  int code = (int)cuMemGetAddressRange(&base, &size, at);
  printf("range %d: %lld, %zu bytes;", code, code ? 0 : (long long)(at - base), size);
  code = (int)cuMemGetAddressRange(NULL, &size, at);
  printf(" %d %zu;", code, size);
  code = (int)cuMemGetAddressRange(&base, NULL, at);
  printf(" %d %d\n", code, code ? 0 : base == p);
}
static void case_ranges(void) {
  begin();
  static const size_t sizes[] = {1, 511, 512, 5000, 100001, MB, MB + 1, 3 * MB - 5, 17 * MB};
  for (int round = 0; round < 2; ++round) /* the second from the cache */
    for (size_t i = 0; i < LENGTH(sizes); ++i) {
      CUdeviceptr p = take(sizes[i]);
      range(p, p);
      range(p, p + sizes[i] - 1);
      range(p, p + sizes[i] / 2);
      MUST(cuMemFree(p));
      range(p, p); /* a freed block is no block */
      range(p, p + sizes[i] / 2);
    }
  /* the end of one that came from a larger cached block */
  CUdeviceptr p = take(100 * 1024);
  MUST(cuMemFree(p));
  p = take(97 * 1024 + 3);
  range(p, p + 97 * 1024 + 2);
  MUST(cuMemFree(p));
}
static void attributes(CUdeviceptr p, CUdeviceptr at, size_t size) {
  CUcontext ctx = NULL, now;
  unsigned type = 0, managed = 9, sync = 9;
  int ordinal = -5, mapped = 9, ipc = 9;
  CUdeviceptr device = 0, start = 0;
  void* host = (void*)1;
  size_t range_size = 0;
  unsigned long long id = 0;
  MUST(cuCtxGetCurrent(&now));
  printf("%d", (int)cuPointerGetAttribute(&ctx, CU_POINTER_ATTRIBUTE_CONTEXT, at));
  printf(" %d", (int)cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at));
  printf(" %d", (int)cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, at));
  printf(" %d", (int)cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, at));
  printf(" %d", (int)cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, at));
  printf(" %d", (int)cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at));
  printf(" %d", (int)cuPointerGetAttribute(&ipc, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, at));
  printf(" %d", (int)cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, at));
  printf(" %d", (int)cuPointerGetAttribute(&range_size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, at));
  printf(" %d", (int)cuPointerGetAttribute(&mapped, CU_POINTER_ATTRIBUTE_MAPPED, at));
  printf(" %d", (int)cuPointerGetAttribute(&sync, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at));
  printf(" %d", (int)cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, at));
  printf(": ctx %d type %u device %lld host %d managed %u ordinal %d ipc %d start %d size %zu mapped %d sync %u id %d\n", ctx == now,
         type, device ? (long long)(device - p) : -1, host == NULL, managed, ordinal, ipc, start == p, range_size, mapped, sync, id != 0);
  /* all at once */
  CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                 CU_POINTER_ATTRIBUTE_BUFFER_ID};
  size_t size2 = 1;
  unsigned type2 = 1;
  CUdeviceptr start2 = 1;
  unsigned long long id2 = 1;
  void* data[] = {&size2, &type2, &start2, &id2};
  int code = (int)cuPointerGetAttributes(4, which, data, at);
  printf("%d: size %zu type %u start %d same id %d\n", code, size2, type2, start2 == p, id2 == id);
  (void)size;
}
static void case_attributes(void) {
  begin();
  static const size_t sizes[] = {3, 5000, MB + 7, 9 * MB};
  unsigned long long before = 0;
  for (int round = 0; round < 3; ++round)
    for (size_t i = 0; i < LENGTH(sizes); ++i) {
      CUdeviceptr p = take(sizes[i]);
      unsigned long long id = 0, same = 0;
      attributes(p, p, sizes[i]);
      attributes(p, p + sizes[i] - 1, sizes[i]);
      MUST(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, p));
      MUST(cuPointerGetAttribute(&same, CU_POINTER_ATTRIBUTE_BUFFER_ID, p + sizes[i] - 1));
      printf("new id %d, one block one id %d\n", id != before, id == same);
      before = id;
      MUST(cuMemFree(p));
      attributes(p, p, sizes[i]);
    }
  int local;
  attributes(0, (CUdeviceptr)(uintptr_t)&local, 1);
  void* pinned;
  CUdeviceptr managed;
  MUST(cuMemAllocHost(&pinned, 1000));
  MUST(cuMemAllocManaged(&managed, 1000, CU_MEM_ATTACH_GLOBAL));
  attributes((CUdeviceptr)(uintptr_t)pinned, (CUdeviceptr)(uintptr_t)pinned, 1);
  attributes(managed, managed + 5, 1);
}
/* Setting what makes a block leave the pool. */
static void case_set(void) {
  begin();
  unsigned on = 1, got = 0;
  for (int i = 0; i < 3; ++i) {
    CUdeviceptr p = take(5000);
    SAY(cuPointerGetAttribute(&got, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p));
    printf("was %u\n", got); /* a block used again has forgotten */
    SAY(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p));
    SAY(cuPointerGetAttribute(&got, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p));
    printf("is %u\n", got);
    SAY(cuMemFree(p));
    SAY(cuMemFree(p));
  }
  SAY(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, 12345));
}
CASES(CASE(info), CASE(ranges), CASE(attributes), CASE(set))
