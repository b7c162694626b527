/* What stream-ordered memory costs and what is said about it: out of memory, free bytes, pool attributes, ranges, pointers. */
#include "ordered.h"

static size_t free_bytes(void) {
  size_t free, total;
  MUST(cudaMemGetInfo(&free, &total));
  return free;
}

/* A device of 1024 MiB, 768 of them free: filled, and again after half of it came back. */
static void case_full(void) {
  begin_on(0);
  CUstream a = stream(cudaStreamNonBlocking), b = stream(cudaStreamNonBlocking);
  static CUdeviceptr p[64];
  for (int round = 0; round < 3; ++round) {
    int n = 0;
    while (n < 64 && (p[n] = try(32 * MB, n % 2 ? a : b))) {
      MUST(cuMemsetD32Async(p[n], 1000 + (unsigned)n, 8 * MB, n % 2 ? a : b));
      ++n;
    }
    printf("round %d: %d blocks of 32 MiB\n", round, n);
    SAY(cudaDeviceSynchronize()); /* the failure spoils nothing */
    for (int i = 0; i < n; ++i) check_block("full", p[i], 5000, 1000 + i, i % 2 ? a : b);
    for (int i = 0; i < n; i += 2) put(p[i], b);
    SAY(cudaStreamSynchronize(b));
    int again = 0;
    for (int i = 0; i < n; i += 2)
      if ((p[i] = try(32 * MB, a))) ++again;
    printf("%d of %d again\n", again, (n + 1) / 2);
    printf("one more: %s\n", try(32 * MB, a) ? "yes" : "no");
    for (int i = 0; i < n; ++i)
      if (p[i]) put(p[i], a);
    SAY(cudaDeviceSynchronize());
  }
  /* one large block of what were many small ones */
  CUdeviceptr large = try(700 * MB, a);
  printf("700 MiB: %s\n", large ? "yes" : "no");
  if (large) put(large, a);
  SAY(cudaDeviceSynchronize());
  void* plain = NULL;
  SAY(cudaMalloc(&plain, 700 * MB));
  printf("beside it: %s\n", try(100 * MB, a) ? "yes" : "no");
  SAY(cudaFree(plain));
  large = try(700 * MB, a);
  printf("700 MiB: %s\n", large ? "yes" : "no");
  if (large) put(large, a);
  SAY(cudaDeviceSynchronize());
  CUdeviceptr huge = try((size_t)1 << 50, a);
  printf("1 PiB: %s\n", huge ? "yes" : "no");
  verdict("full");
}
/* A device that is full of what was freed just before, or beside, a capture: others get it while the capture goes on. */
static void case_full_beside_capture(void) {
  begin_on(0);
  CUstream a = stream(cudaStreamNonBlocking), b = stream(cudaStreamNonBlocking), c = stream(cudaStreamNonBlocking);
  for (int way = 0; way < 5; ++way) {
    /* freed on another stream before or in it, on the stream that captures, by cuMemFree in it; plain memory, freed before */
    static const char* const what[] = {"before", "beside", "own", "plain free", "plain"};
    static CUdeviceptr p[20];
    cudaGraph_t g;
    CUdeviceptr out = get(40000, b);
    CUstream of = way == 2 ? a : b;
    for (int i = 0; i < 20; ++i) MUST(cuMemsetD32Async(p[i] = way == 4 ? take(35 * MB) : get(35 * MB, of), 10 * way, 1, of));
    slow_fill(of, p[0], 10000, 70 + way, MS(8));
    slow_copy(of, out, p[0], 10000, MS(4));
    if (way == 0 || way == 2)
      for (int i = 0; i < 20; ++i) put(p[i], of);
    if (way == 4)
      for (int i = 0; i < 20; ++i) MUST(cuMemFree(p[i]));
    MUST(cudaStreamBeginCapture(a, way == 1 ? cudaStreamCaptureModeThreadLocal : cudaStreamCaptureModeRelaxed));
    slow_fill(a, out, 10000, 1, 1);
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED; /* what PyTorch does around such calls */
    MUST(cuThreadExchangeStreamCaptureMode(&mode));
    if (way == 3) MUST(cudaStreamSynchronize(b));
    if (way == 1 || way == 3)
      for (int i = 0; i < 20; ++i) {
        if (way == 1) put(p[i], b);
        else MUST(cuMemFree(p[i]));
      }
    CUdeviceptr large = try(700 * MB, c);
    printf("%s: %s\n", what[way], large ? "yes" : "no");
    MUST(cuThreadExchangeStreamCaptureMode(&mode));
    if (large) slow_fill(c, large, 10000, 5, 1);
    SAY(cudaStreamEndCapture(a, &g));
    if (g) MUST(cudaGraphDestroy(g));
    check_block(what[way], out, 10000, 70 + way, of);
    if (large) {
      check_block("large", large, 10000, 5, c);
      MUST(cuMemFree(large));
    }
    put(out, b);
    MUST(cudaDeviceSynchronize());
  }
  verdict("full beside a capture");
}
/* Every other user of the device gets the memory that was given back. */
static void case_others(void) {
  begin_on(0);
  CUstream a = stream(cudaStreamNonBlocking);
  for (int i = 0; i < 6; ++i) {
    CUdeviceptr p = get(600 * MB, a);
    put(p, a);
    SAY(cudaStreamSynchronize(a));
    void* q = NULL;
    CUmemGenericAllocationHandle h;
    CUmemAllocationProp prop;
    CUdeviceptr pitched;
    size_t pitch;
    memset(&prop, 0, sizeof prop);
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    switch (i % 3) {
      case 0:
        SAY(cudaMalloc(&q, 600 * MB));
        SAY(cudaFree(q));
        break;
      case 1:
        SAY(cuMemCreate(&h, 600 * MB, &prop, 0));
        SAY(cuMemRelease(h));
        break;
      case 2:
        SAY(cuMemAllocPitch(&pitched, &pitch, 512, 600 * MB / 512, 4));
        SAY(cuMemFree(pitched));
        break;
    }
  }
}
/* Free bytes tell what is taken, and that all came back. */
static void case_info(void) {
  begin_on(0);
  CUstream a = stream(cudaStreamNonBlocking), b = stream(cudaStreamDefault);
  cudaMemPool_t pool = pool_of(0);
  CUdeviceptr first = get(1000, a);
  put(first, a);
  MUST(cudaDeviceSynchronize());
  MUST(cudaMemPoolTrimTo(pool, 0));
  size_t start = free_bytes();
  for (int round = 0; round < 2; ++round) {
    CUdeviceptr p[10];
    size_t sum = 0;
    for (int i = 0; i < 10; ++i) {
      size_t bytes = (size_t)(i + 1) * 3 * MB;
      p[i] = get(bytes, i % 2 ? a : b);
      sum += bytes;
      size_t taken = start - free_bytes();
      printf("%d: at least what is used %d, not much more %d\n", i, taken >= sum, taken <= 2 * sum + 64 * MB);
    }
    for (int i = 0; i < 10; ++i) put(p[i], i % 2 ? a : b);
    MUST(cudaDeviceSynchronize());
    MUST(cudaMemPoolTrimTo(pool, 0));
    printf("all is back: %d\n", free_bytes() == start);
  }
}
/* The numbers that PyTorch's statistics are made of. */
static void show(const char* when, cudaMemPool_t pool) {
  unsigned long long used = pool_number(pool, cudaMemPoolAttrUsedMemCurrent), high = pool_number(pool, cudaMemPoolAttrUsedMemHigh);
  unsigned long long reserved = pool_number(pool, cudaMemPoolAttrReservedMemCurrent), reserved_high = pool_number(pool, cudaMemPoolAttrReservedMemHigh);
  printf("%s: used %llu, most %llu; reserved holds it %d, whole pages %d, its most %d\n", when, used, high, reserved >= used, reserved % (2 * MB) == 0, reserved_high >= reserved && reserved_high >= high);
}
static void case_attributes(void) {
  begin_on(0);
  CUstream a = stream(cudaStreamNonBlocking), b = stream(cudaStreamNonBlocking);
  cudaMemPool_t pool = pool_of(0), current;
  MUST(cudaDeviceGetMemPool(&current, 0));
  printf("the current pool is the default one: %d\n", current == pool);
  show("fresh", pool);
  static const size_t sizes[] = {1, 511, 512, 513, 100000, MB - 1, MB + 1, 20 * MB + 5};
  CUdeviceptr p[LENGTH(sizes)];
  set_pool_number(pool, cudaMemPoolAttrReleaseThreshold, ~0ull);
  for (size_t i = 0; i < LENGTH(sizes); ++i) {
    p[i] = get(sizes[i], i % 2 ? a : b);
    show("allocated", pool);
  }
  for (size_t i = 0; i < LENGTH(sizes); i += 2) {
    put(p[i], b);
    show("freed", pool);
  }
  set_pool_number(pool, cudaMemPoolAttrUsedMemHigh, 0);
  set_pool_number(pool, cudaMemPoolAttrReservedMemHigh, 0);
  show("marks reset", pool);
  printf("reserved and its most are one: %d\n", pool_number(pool, cudaMemPoolAttrReservedMemCurrent) == pool_number(pool, cudaMemPoolAttrReservedMemHigh));
  CUdeviceptr q = get(5 * MB, a);
  show("one more", pool);
  put(q, a);
  for (size_t i = 1; i < LENGTH(sizes); i += 2) put(p[i], a);
  MUST(cudaDeviceSynchronize());
  show("all freed", pool);
  unsigned long long v = 1;
  SAY(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &v));
  v = 0;
  SAY(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &v));
  SAY(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &v));
  SAY(cudaMemPoolSetAttribute(pool, (enum cudaMemPoolAttr)99, &v));
  SAY(cudaMemPoolGetAttribute(pool, (enum cudaMemPoolAttr)99, &v));
  SAY(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, NULL));
  SAY(cudaMemPoolGetAttribute(NULL, cudaMemPoolAttrUsedMemCurrent, &v));
  cudaGetLastError();
  for (int flag = 1; flag <= 3; ++flag) {
    int value[2] = {7, 7}, off = 0, on = 1;
    SAY(cudaMemPoolGetAttribute(pool, (enum cudaMemPoolAttr)flag, value));
    printf("%d %d\n", value[0], value[1]);
    SAY(cudaMemPoolSetAttribute(pool, (enum cudaMemPoolAttr)flag, &off));
    SAY(cudaMemPoolGetAttribute(pool, (enum cudaMemPoolAttr)flag, value));
    printf("%d %d\n", value[0], value[1]);
    SAY(cudaMemPoolSetAttribute(pool, (enum cudaMemPoolAttr)flag, &on));
  }
  SAY(cudaMemPoolDestroy(pool));
  cudaGetLastError();
}
/* The release threshold and trimming. */
static void case_threshold(void) {
  begin_on(0);
  CUstream a = stream(cudaStreamNonBlocking);
  cudaMemPool_t pool = pool_of(0);
  printf("threshold %llu\n", pool_number(pool, cudaMemPoolAttrReleaseThreshold));
  /* (Where a program has not said so, the library keeps some.) */
  set_pool_number(pool, cudaMemPoolAttrReleaseThreshold, 0);
  for (int way = 0; way < 3; ++way) {
    put(get(100 * MB, a), a);
    switch (way) {
      case 0: MUST(cudaStreamSynchronize(a)); break;
      case 1: MUST(cudaDeviceSynchronize()); break;
      case 2: {
        cudaEvent_t e;
        MUST(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
        MUST(cudaEventRecord(e, a));
        MUST(cudaEventSynchronize(e));
      }
    }
    printf("after a synchronisation %llu MiB are reserved\n", pool_number(pool, cudaMemPoolAttrReservedMemCurrent) / MB);
  }
  set_pool_number(pool, cudaMemPoolAttrReleaseThreshold, ~0ull);
  printf("threshold kept: %d\n", pool_number(pool, cudaMemPoolAttrReleaseThreshold) == ~0ull);
  put(get(100 * MB, a), a);
  MUST(cudaDeviceSynchronize());
  printf("kept: %d\n", pool_number(pool, cudaMemPoolAttrReservedMemCurrent) >= 100 * MB);
  CUdeviceptr live = get(64 * MB, a);
  MUST(cuMemsetD32Async(live, 77, 16 * MB, a));
  MUST(cudaDeviceSynchronize());
  SAY(cudaMemPoolTrimTo(pool, 0));
  printf("what is used stays: %d, not much more: %d\n", pool_number(pool, cudaMemPoolAttrReservedMemCurrent) >= 64 * MB,
         pool_number(pool, cudaMemPoolAttrReservedMemCurrent) <= 128 * MB);
  check_block("trimmed", live, 10000, 77, a);
  put(live, a);
  MUST(cudaStreamSynchronize(a));
  SAY(cudaMemPoolTrimTo(pool, 1000 * MB));
  printf("kept: %d\n", pool_number(pool, cudaMemPoolAttrReservedMemCurrent) >= 64 * MB);
  SAY(cudaMemPoolTrimTo(pool, 0));
  printf("reserved %llu\n", pool_number(pool, cudaMemPoolAttrReservedMemCurrent));
  /* nothing is taken away under a kernel */
  for (int i = 0; i < 4; ++i) {
    CUdeviceptr p = get(40 * MB, a), out = get(40000, a);
    slow_fill(a, p, 10000, 80 + i, MS(6));
    slow_copy(a, out, p, 10000, MS(4));
    put(p, a);
    MUST(cudaMemPoolTrimTo(pool, 0));
    check_block("trimmed under a kernel", out, 10000, 80 + i, a);
    put(out, a);
  }
  set_pool_number(pool, cudaMemPoolAttrReleaseThreshold, 0);
  MUST(cudaDeviceSynchronize());
  printf("reserved %llu\n", pool_number(pool, cudaMemPoolAttrReservedMemCurrent));
  verdict("threshold");
}
/* Ranges and attributes of pointers. */
static void pointer(const char* what, CUdeviceptr p, CUdeviceptr at, size_t size) {
  CUdeviceptr base = 0, start = 0, device = 0;
  size_t range = 0, range2 = 0;
  CUcontext ctx = (CUcontext)(void*)&ctx;
  unsigned type = 0, managed = 9, mapped = 9, ipc = 9;
  int ordinal = -5;
  void* host = &host;
  CUmemoryPool pool = NULL;
  unsigned long long id = 0;
  int code = (int)cuMemGetAddressRange(&base, &range, at);
  printf("%s: range %d %d %d;", what, code, code ? 0 : base == p, code ? 0 : range == size);
  printf(" %d", (int)cuPointerGetAttribute(&ctx, CU_POINTER_ATTRIBUTE_CONTEXT, at));
  printf(" %d", (int)cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at));
  printf(" %d", (int)cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, at));
  printf(" %d", (int)cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, at));
  printf(" %d", (int)cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, at));
  printf(" %d", (int)cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at));
  printf(" %d", (int)cuPointerGetAttribute(&ipc, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, at));
  printf(" %d", (int)cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, at));
  printf(" %d", (int)cuPointerGetAttribute(&range2, CU_POINTER_ATTRIBUTE_RANGE_SIZE, at));
  printf(" %d", (int)cuPointerGetAttribute(&mapped, CU_POINTER_ATTRIBUTE_MAPPED, at));
  printf(" %d", (int)cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, at));
  code = (int)cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, at);
  printf(" %d", code);
  printf("; context %d type %u device %d managed %u ordinal %d ipc %u start %d size %d mapped %u pool %d id %d\n", ctx == NULL, type, device == at, managed, ordinal, ipc,
         start == p, range2 == size, mapped, pool == pool_of(0), id != 0);
  CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_BUFFER_ID,
                                 CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, CU_POINTER_ATTRIBUTE_CONTEXT};
  unsigned type2 = 7;
  size_t size2 = 7;
  CUdeviceptr start2 = 7;
  unsigned long long id2 = 7;
  CUmemoryPool pool2 = (CUmemoryPool)7;
  CUcontext ctx2 = (CUcontext)7;
  void* data[] = {&type2, &size2, &start2, &id2, &pool2, &ctx2};
  code = (int)cuPointerGetAttributes(6, which, data, at);
  printf("  all at once %d: type %u size %d start %d same id %d pool %d context %d\n", code, type2, size2 == size, start2 == p, id2 == id, pool2 == pool, ctx2 == NULL);
  struct cudaPointerAttributes a;
  memset(&a, 0, sizeof a);
  code = (int)cudaPointerGetAttributes(&a, (void*)(uintptr_t)at);
  printf("  by the runtime %d: type %d device %d pointer %d host %d\n", code, (int)a.type, a.device, a.devicePointer == (void*)(uintptr_t)at, a.hostPointer == NULL);
  cudaGetLastError();
}
static void case_pointers(void) {
  begin_on(0);
  CUstream a = stream(cudaStreamNonBlocking);
  static const size_t sizes[] = {1, 100, 512, 5000, MB + 100, 17 * MB + 3, 40 * MB};
  unsigned long long last = 0;
  for (int round = 0; round < 2; ++round)
    for (size_t i = 0; i < LENGTH(sizes); ++i) {
      CUdeviceptr p = get(sizes[i], a), neighbour = get(300, a);
      unsigned long long id = 0;
      pointer("begin", p, p, sizes[i]);
      pointer("end", p, p + sizes[i] - 1, sizes[i]);
      pointer("neighbour", neighbour, neighbour + 299, 300);
      MUST(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, p));
      printf("a new id: %d\n", id != last);
      last = id;
      SAY(cuMemFree(p + 256));
      SAY(cuMemFreeAsync(p + 256, a));
      CUipcMemHandle handle;
      SAY(cuIpcGetMemHandle(&handle, p));
      CUmemGenericAllocationHandle h;
      SAY(cuMemRetainAllocationHandle(&h, (void*)(uintptr_t)p));
      put(p, a);
      CUdeviceptr base;
      size_t range;
      SAY(cuMemGetAddressRange(&base, &range, p)); /* freed, and not yet come to pass */
      SAY(cuMemFreeAsync(p, a));
      SAY(cuMemFree(p));
      put(neighbour, a);
      MUST(cudaStreamSynchronize(a));
      SAY(cuMemGetAddressRange(&base, &range, p));
    }
}
/* Bad arguments get the driver's own answers. */
static void case_errors(void) {
  begin_on(0);
  CUstream a = stream(cudaStreamNonBlocking);
  CUdeviceptr p = 0, plain;
  void* q = NULL;
  SAY(cuMemAllocAsync(&p, 0, a));
  printf("null: %d\n", p == 0);
  SAY(cudaMallocAsync(&q, 0, a));
  SAY(cuMemAllocAsync(NULL, 16, a));
  SAY(cudaMallocAsync(NULL, 16, a));
  SAY(cuMemFreeAsync(0, a));
  SAY(cudaFreeAsync(NULL, a));
  SAY(cuMemFreeAsync(0x123456789000ull, a));
  int on_stack;
  SAY(cuMemFreeAsync((CUdeviceptr)(uintptr_t)&on_stack, a));
  SAY(cudaMallocFromPoolAsync(&q, 100, NULL, a));
  MUST(cuMemAlloc(&plain, 5000));
  SAY(cuMemFreeAsync(plain, a)); /* plain memory, freed in order */
  SAY(cuMemFree(plain));
  cudaGetLastError();
  MUST(cudaDeviceSynchronize());
  SAY(cuMemAllocAsync(&p, SIZE_MAX, a));
  SAY(cuMemAllocAsync(&p, (size_t)1 << 60, a));
  SAY(cuMemAllocAsync(&p, 100, a));
  SAY(cudaFree((void*)(uintptr_t)p));
  SAY(cudaFree((void*)(uintptr_t)p));
  cudaGetLastError();
  printf("%d\n", pool_number(pool_of(0), cudaMemPoolAttrUsedMemCurrent) == 0);
}
/* Pools of the program's own, and one made the device's. */
static void case_pools(void) {
  begin_on(0);
  CUstream a = stream(cudaStreamNonBlocking), b = stream(cudaStreamNonBlocking);
  CUmemPoolProps props;
  cudaMemPool_t mine, shared, current, standard = pool_of(0);
  memset(&props, 0, sizeof props);
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  SAY(cudaMemPoolCreate(&mine, &props));
  props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  SAY(cudaMemPoolCreate(&shared, &props));
  cudaMemPool_t pools[3] = {mine, shared, standard};
  for (int i = 0; i < 3; ++i) {
    void *p = NULL, *q = NULL;
    CUmemoryPool of = NULL;
    MUST(cudaMallocFromPoolAsync(&p, 5 * MB, pools[i], a));
    MUST(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, (CUdeviceptr)(uintptr_t)p));
    printf("pool %d: its own %d, used %llu, the default's %llu\n", i, of == pools[i], pool_number(pools[i], cudaMemPoolAttrUsedMemCurrent),
           pool_number(standard, cudaMemPoolAttrUsedMemCurrent));
    slow_fill(a, (CUdeviceptr)(uintptr_t)p, 5000, 40 + i, MS(4));
    MUST(cudaFreeAsync(p, a));
    MUST(cudaMallocFromPoolAsync(&q, 5 * MB, pools[i], b));
    slow_fill(b, (CUdeviceptr)(uintptr_t)q, 5000, 50 + i, 1);
    MUST(cudaStreamSynchronize(a));
    check_block("of a pool", (CUdeviceptr)(uintptr_t)q, 5000, 50 + i, b);
    MUST(cudaFreeAsync(q, b));
    MUST(cudaDeviceSynchronize());
    printf("used %llu\n", pool_number(pools[i], cudaMemPoolAttrUsedMemCurrent));
  }
  int fd = -1;
  SAY(cuMemPoolExportToShareableHandle(&fd, mine, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  SAY(cuMemPoolExportToShareableHandle(&fd, standard, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  SAY(cuMemPoolExportToShareableHandle(&fd, shared, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  close(fd);
  void *exported = NULL, *own = NULL, *of_default = NULL;
  CUmemPoolPtrExportData data;
  MUST(cudaMallocFromPoolAsync(&exported, 5000, shared, a));
  MUST(cudaMallocFromPoolAsync(&own, 5000, mine, a));
  MUST(cudaMallocAsync(&of_default, 5000, a));
  MUST(cudaStreamSynchronize(a));
  SAY(cuMemPoolExportPointer(&data, (CUdeviceptr)(uintptr_t)exported));
  SAY(cuMemPoolExportPointer(&data, (CUdeviceptr)(uintptr_t)own));
  SAY(cuMemPoolExportPointer(&data, (CUdeviceptr)(uintptr_t)of_default));
  MUST(cudaFreeAsync(exported, a));
  /* made the device's, and destroyed with a block alive */
  SAY(cudaDeviceSetMemPool(0, mine));
  MUST(cudaDeviceGetMemPool(&current, 0));
  printf("current: %d, the default is the default: %d\n", current == mine, pool_of(0) == standard);
  void* by_current = NULL;
  MUST(cudaMallocAsync(&by_current, 5000, a));
  CUmemoryPool of = NULL;
  MUST(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, (CUdeviceptr)(uintptr_t)by_current));
  printf("serves: %d\n", of == mine);
  MUST(cuMemsetD32Async((CUdeviceptr)(uintptr_t)own, 61, 1250, a));
  SAY(cudaMemPoolDestroy(mine));
  MUST(cudaDeviceGetMemPool(&current, 0));
  printf("current: %d\n", current == standard);
  check_block("of a destroyed pool", (CUdeviceptr)(uintptr_t)own, 1250, 61, a);
  SAY(cudaFreeAsync(own, a));
  SAY(cudaFreeAsync(by_current, a));
  SAY(cudaFreeAsync(of_default, a));
  SAY(cudaMemPoolDestroy(shared));
  MUST(cudaDeviceSynchronize());
  printf("used %llu\n", pool_number(standard, cudaMemPoolAttrUsedMemCurrent));
  verdict("pools");
}
/* The default pool's counters beside those of a pool of the program's own. */
static void both(const char* what, cudaMemPool_t mine) {
  cudaMemPool_t pools[2] = {pool_of(0), mine};
  printf("%s:", what);
  for (int i = 0; i < 2; ++i) printf(" %llu of %llu", pool_number(pools[i], cudaMemPoolAttrUsedMemCurrent), pool_number(pools[i], cudaMemPoolAttrUsedMemHigh));
  printf(", not less reserved: %d\n", pool_number(pools[0], cudaMemPoolAttrReservedMemHigh) >= pool_number(pools[0], cudaMemPoolAttrUsedMemHigh));
}
static CUdeviceptr get_from(cudaMemPool_t pool, size_t bytes, CUstream s) {
  void* p = NULL;
  MUST(cudaMallocFromPoolAsync(&p, bytes, pool, s));
  return (CUdeviceptr)(uintptr_t)p;
}
static cudaMemPool_t pool_of_ours(void) {
  CUmemPoolProps props;
  cudaMemPool_t mine;
  memset(&props, 0, sizeof props);
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  MUST(cudaMemPoolCreate(&mine, &props));
  return mine;
}
static void case_two_pools(void) {
  begin_on(0);
  CUstream a = stream(cudaStreamNonBlocking);
  CUdeviceptr early = get(50 * MB + 3, a), stays = get(1000, a);
  put(early, a);
  cudaMemPool_t mine = pool_of_ours();
  both("made", mine);
  CUdeviceptr p = get_from(mine, 100 * MB, a);
  both("of the other", mine);
  CUdeviceptr q = get(60 * MB + 1, a);
  both("of the default", mine);
  put(p, a);
  both("of the other, freed", mine);
  CUdeviceptr r = get(5000, a);
  both("a small one", mine);
  MUST(cuMemFree(q));
  both("freed", mine);
  set_pool_number(pool_of(0), cudaMemPoolAttrUsedMemHigh, 0);
  both("reset", mine);
  p = get_from(mine, 200 * MB, a);
  set_pool_number(mine, cudaMemPoolAttrUsedMemHigh, 0);
  both("the other's reset", mine);
  MUST(cudaMemPoolDestroy(mine)); /* with a block alive */
  mine = pool_of_ours();
  both("destroyed", mine);
  put(p, a);
  put(r, a);
  put(stays, a);
  both("all freed", mine);
}
/* Threads that get each other's addresses from one pool, and free by cuMemFree. */
static cudaMemPool_t shared_pool;
static void* from_pool(void* arg) {
  size_t bytes = 3000 + 512 * (size_t)(uintptr_t)arg; /* one class, other bytes */
  MUST(cudaSetDevice(0));
  for (int i = 0; i < 4000; ++i) MUST(cuMemFree(get_from(shared_pool, bytes - i % 3, NULL)));
  return NULL;
}
static void case_pool_of_threads(void) {
  begin_on(0);
  shared_pool = pool_of_ours();
  pthread_t t[6];
  for (int i = 0; i < 6; ++i) REQUIRE(!pthread_create(&t[i], NULL, from_pool, (void*)(uintptr_t)(i % 2)));
  for (int i = 0; i < 6; ++i) pthread_join(t[i], NULL);
  MUST(cudaDeviceSynchronize());
  printf("used %llu\n", pool_number(shared_pool, cudaMemPoolAttrUsedMemCurrent));
}
/* 300 MiB may be used: VRAMSCOPE_LIMIT, or a device that small. */
static void case_limited(void) {
  begin_on(0);
  CUstream a = stream(cudaStreamNonBlocking);
  CUdeviceptr p[32];
  for (int round = 0; round < 2; ++round) {
    int n = 0;
    while (n < 32 && (p[n] = try(16 * MB, a))) ++n;
    size_t free, total;
    MUST(cudaMemGetInfo(&free, &total));
    printf("%d blocks, total %zu MiB, %d\n", n, total / MB, free <= total);
    for (int i = 0; i < n; ++i) put(p[i], a);
    MUST(cudaDeviceSynchronize());
  }
  printf("more at once: %s\n", try(400 * MB, a) ? "yes" : "no");
}
/* What is alive at the end is known; nothing is done about it. */
static void case_leak(void) {
  begin_on(0);
  CUstream a = stream(cudaStreamNonBlocking);
  for (int i = 0; i < 10; ++i) {
    CUdeviceptr p = get((size_t)(i + 1) * MB, a);
    slow_fill(a, p, 1000, i, MS(3));
    if (i % 2) put(p, a);
  }
}
/* A child has no use of its parent's memory, and spoils nothing. */
static void case_fork(void) {
  begin_on(0);
  CUstream a = stream(cudaStreamNonBlocking);
  CUdeviceptr p = get(4000, a), q = get(40 * MB, a);
  slow_fill(a, p, 1000, 5, MS(5));
  put(q, a);
  fflush(stdout);
  pid_t child = fork();
  if (!child) {
    void* r = NULL;
    SAY(cudaFreeAsync((void*)(uintptr_t)(p + 512), a));
    SAY(cudaFreeAsync((void*)(uintptr_t)p, a));
    SAY(cudaFreeAsync((void*)(uintptr_t)p, a));
    SAY(cuMemFreeAsync(p, a));
    no_memory((int)cudaMallocAsync(&r, 4000, a));
    SAY(cudaFree((void*)(uintptr_t)p));
    no_memory((int)cuMemAllocAsync(&q, 4000, a));
    fflush(stdout);
    _exit(3);
  }
  int status;
  waitpid(child, &status, 0);
  printf("child %d\n", WEXITSTATUS(status));
  check_block("the parent's", p, 1000, 5, a);
  put(p, a);
  CUdeviceptr r = get(40 * MB, a);
  slow_fill(a, r, 1000, 6, 1);
  check_block("and a new one", r, 1000, 6, a);
  put(r, a);
  verdict("fork");
}

/* A child frees what is the driver's while, in the parent, other threads capture: no lock of theirs is ours to wait for. */
static volatile int no_more;
static void* captures(void* s) {
  MUST(cudaSetDevice(0));
  while (!no_more) {
    CUgraph graph;
    CUdeviceptr p[64];
    MUST(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    for (int i = 0; i < 64; ++i) MUST(cuMemAllocAsync(&p[i], 4096, s));
    for (int i = 0; i < 64; ++i) MUST(cuMemFreeAsync(p[i], s));
    MUST(cuStreamEndCapture(s, &graph));
    MUST(cuGraphDestroy(graph));
  }
  return NULL;
}
static void case_fork_beside_captures(void) {
  begin_on(0);
  CUstream a = stream(cudaStreamNonBlocking);
  CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR; /* the driver's own, in every mode */
  CUmemoryPool pool;
  CUdeviceptr p;
  MUST(cuMemPoolCreate(&pool, &props));
  MUST(cuMemAllocFromPoolAsync(&p, 4000, pool, a));
  pthread_t threads[2];
  for (int i = 0; i < 2; ++i) REQUIRE(!pthread_create(&threads[i], NULL, captures, stream(cudaStreamNonBlocking)));
  int well = 0;
  fflush(stdout);
  for (int i = 0; i < 100 && well == i; ++i) {
    pid_t child = fork();
    if (!child) {
      alarm(5);
      _exit(cuMemFreeAsync(p, a));
    }
    int status;
    waitpid(child, &status, 0);
    well += !status;
  }
  no_more = 1;
  for (int i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
  printf("%d children freed it\n", well);
}

/* Large blocks where only small ones are free, side by side with others: step after step, the same memory is now many small
 * blocks and now a large one. */
static void case_combed(void) {
  begin_on(0);
  CUstream a = stream(cudaStreamNonBlocking), b = stream(cudaStreamNonBlocking);
  enum { N = 120 };
  CUdeviceptr p[N], small[N / 2];
  for (int i = 0; i < N; ++i) MUST(cuMemsetD32Async(p[i] = get(2 * MB, a), 1000 + (unsigned)i, MB / 2, a));
  for (int i = 0; i < N; i += 2) put(p[i], a);
  for (int step = 0; step < 6; ++step) {
    for (int i = 0; i < N / 2; ++i) slow_fill(a, small[i] = get(2 * MB, a), MB / 2, 1 + i, MS(1) / 20);
    for (int i = 0; i < N / 2; ++i) put(small[i], a);
    /* of many of those, while their kernels are pending; a little larger or smaller, and two side by side */
    int n = (int)(30 * MB / 4) + (step % 3) * 1000, m = (int)(50 * MB / 4) - 1;
    CUdeviceptr large = get(4 * (size_t)n, a), other = get(4 * (size_t)m, a);
    slow_fill(a, large, n, 77 + step, MS(1));
    slow_fill(a, other, m, 88 + step, MS(1));
    check_block("large", large, n, 77 + step, a);
    check_block("other", other, m, 88 + step, a);
    if (step == 3) {
      /* read by another stream after its free */
      slow_fill(a, large, n, 99, MS(2));
      after(b, a);
      put(large, b);
      large = get(4 * (size_t)n, b);
      slow_fill(b, large, n, 55, MS(1));
      check_block("of the other stream", large, n, 55, b);
      after(a, b);
    }
    put(large, a);
    if (step == 4) {
      MUST(cudaDeviceSynchronize());
      MUST(cudaMemPoolTrimTo(pool_of(0), 0));
    }
    put(other, a);
  }
  for (int i = 1; i < N; i += 2) check_block("between", p[i], (int)MB / 2, 1000 + i, a);
  for (int i = 1; i < N; i += 2) put(p[i], a);
  MUST(cudaDeviceSynchronize());
  MUST(cudaMemPoolTrimTo(pool_of(0), 0));
  size_t before = free_bytes();
  CUdeviceptr all = try(700 * MB, a);
  printf("700 MiB: %s\n", all ? "yes" : "no");
  put(all, a);
  MUST(cudaDeviceSynchronize());
  MUST(cudaMemPoolTrimTo(pool_of(0), 0));
  printf("and nothing is left: %s\n", free_bytes() == before ? "yes" : "no");
  verdict("combed");
}

CASES(CASE(full), CASE(combed), CASE(full_beside_capture), CASE(two_pools), CASE(pool_of_threads), CASE(others), CASE(info), CASE(attributes), CASE(threshold), CASE(pointers), CASE(errors), CASE(pools), CASE(limited), CASE(leak), CASE(fork), CASE(fork_beside_captures))
