/* One line per fact about the driver: "fact: value". The same program runs on the simulated driver and on a GPU; h200.txt is
 * what it printed there, and a test compares. Values are names, sizes and relations, never addresses or times. Where a comment
 * says "guess", the hardware has not answered yet. Every section runs in a process of its own (`./a.out section vmm` runs
 * one), so that a crash ends a section and not the program.
 *
 *   cc conformance.c -lcudart -lcuda -ldl -pthread && ./a.out
 */
#define _GNU_SOURCE
#include "cuda_mini.h"
#include "kernels.ptx.h"
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- saying it ---- */

static const char* name(CUresult code) {
  const char* text = NULL;
  return cuGetErrorName(code, &text) || !text ? "?" : text + (strncmp(text, "CUDA_ERROR_", 11) ? 0 : 11);
}
static void say(const char* fact, const char* format, ...) {
  va_list list;
  va_start(list, format);
  printf("%s: ", fact);
  vprintf(format, list);
  printf("\n");
  fflush(stdout); /* a later crash must not eat it */
  va_end(list);
}
#define CODE(fact, call) say(fact, "%s", name(call))
#define RT(fact, call) say(fact, "%s", cudaGetErrorName(call))
#define YES(fact, condition) say(fact, "%s", (condition) ? "yes" : "no")
/* What a section needs and does not ask about. If it fails the section ends there and the next one is tried. */
#define MUST(call) do { CUresult r_ = (call); if (r_) { printf("broken at line %d: %s: %s\n", __LINE__, #call, name(r_)); fflush(stdout); _exit(BROKEN); } } while (0)
enum { BROKEN = 98 };
static char self[4096]; /* this program */

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
/* With 100 ms pending, did the call take longer than 50? */
#define TIMED(fact, call) do { double t_ = now(); CUresult r_ = (call); t_ = now() - t_; say(fact, "%s, %s", name(r_), t_ > 0.05 ? "waits" : "returns at once"); } while (0)

/* ---- devices and kernels ---- */

enum { SLOW_WRITE, SLOW_FILL, SLOW_COPY, COPY, ADD, SUM, SPIN_FLAG, KERNELS };
static const char* kernel_names[KERNELS] = {"slow_write", "slow_fill", "slow_copy", "copy", "add", "sum", "spin_flag"};
static CUfunction kernel[KERNELS];
static CUcontext primary;
static CUdevice dev;
#define MS100 200000000LL /* clocks */
#define MIB ((size_t)1 << 20)

static CUresult launch(CUfunction f, CUstream s, void** args) { return cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, args, NULL); }
static CUresult slow_write(CUstream s, CUdeviceptr p, int v, long long clocks) {
  void* args[] = {&p, &v, &clocks};
  return launch(kernel[SLOW_WRITE], s, args);
}
static CUresult copy_ints(CUstream s, CUdeviceptr dst, CUdeviceptr src, int n) {
  void* args[] = {&dst, &src, &n};
  return launch(kernel[COPY], s, args);
}
static CUresult spin_flag(CUstream s, CUdeviceptr flag) {
  void* args[] = {&flag};
  return launch(kernel[SPIN_FLAG], s, args);
}
static void load_kernels(void) {
  CUmodule m;
  MUST(cuModuleLoadData(&m, SIMGPU_PTX));
  for (int i = 0; i < KERNELS; ++i) MUST(cuModuleGetFunction(&kernel[i], m, kernel_names[i]));
}
static CUdeviceptr word_a, word_b; /* two ints of device memory */
static CUstream s1, s2, blocking;  /* non-blocking, non-blocking, blocking */
static CUevent ev;                 /* without timing */

static void make_context(void) {
  MUST(cuDevicePrimaryCtxRetain(&primary, dev));
  MUST(cuCtxSetCurrent(primary));
  load_kernels();
  MUST(cuMemAlloc(&word_a, 4));
  MUST(cuMemAlloc(&word_b, 4));
  MUST(cuStreamCreate(&s1, CU_STREAM_NON_BLOCKING));
  MUST(cuStreamCreate(&s2, CU_STREAM_NON_BLOCKING));
  MUST(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
  MUST(cuEventCreate(&ev, CU_EVENT_DISABLE_TIMING));
  /* first launches load code, which may wait: get that over with */
  MUST(slow_write(s1, word_a, 0, 1));
  MUST(slow_write(s2, word_a, 0, 1));
  MUST(slow_write(blocking, word_a, 0, 1));
  MUST(slow_write(CU_STREAM_PER_THREAD, word_a, 0, 1));
  MUST(copy_ints(NULL, word_b, word_a, 1));
  MUST(cuCtxSynchronize());
}
static void sync_all(void) { MUST(cuCtxSynchronize()); }
static int read_int(CUdeviceptr p) {
  int v = -1;
  MUST(cuMemcpyDtoH(&v, p, 4));
  return v;
}
static void zero(void) {
  MUST(cuMemsetD32(word_a, 0, 1));
  MUST(cuMemsetD32(word_b, 0, 1));
  sync_all();
}
static CUdeviceptr alloc(size_t size) {
  CUdeviceptr p = 0;
  MUST(cuMemAlloc(&p, size));
  return p;
}
static size_t used(void) {
  size_t free, total;
  MUST(cuMemGetInfo(&free, &total));
  return total - free;
}
static void on_thread(void* (*body)(void*), void* arg) {
  pthread_t t;
  pthread_create(&t, NULL, body, arg);
  pthread_join(t, NULL);
}

/* ---- how entry points are found ---- */

static void resolving(void) {
  static const struct { const char *base; int version; uint64_t flags; const char* symbol; } rows[] = {
    {"cuMemAlloc", 2000, 0, "cuMemAlloc"}, {"cuMemAlloc", 3020, 0, "cuMemAlloc_v2"}, {"cuMemAlloc", 12000, 0, "cuMemAlloc_v2"},
    {"cuMemAlloc", 13000, 2, "cuMemAlloc_v2"}, {"cuMemFree", 2000, 0, "cuMemFree"}, {"cuMemFree", 3020, 0, "cuMemFree_v2"},
    {"cuMemAllocPitch", 3020, 0, "cuMemAllocPitch_v2"}, {"cuMemAllocManaged", 6000, 0, "cuMemAllocManaged"},
    {"cuMemHostAlloc", 2020, 0, "cuMemHostAlloc"}, {"cuMemAllocHost", 3020, 0, "cuMemAllocHost_v2"}, {"cuMemFreeHost", 2000, 0, "cuMemFreeHost"},
    {"cuMemHostRegister", 4000, 0, "cuMemHostRegister"}, {"cuMemHostRegister", 6050, 0, "cuMemHostRegister_v2"},
    {"cuMemGetInfo", 3020, 0, "cuMemGetInfo_v2"}, {"cuMemGetAddressRange", 3020, 0, "cuMemGetAddressRange_v2"},
    {"cuMemAllocAsync", 11020, 0, "cuMemAllocAsync"}, {"cuMemAllocAsync", 11020, 1, "cuMemAllocAsync"}, {"cuMemAllocAsync", 11020, 2, "cuMemAllocAsync_ptsz"},
    {"cuMemFreeAsync", 11020, 0, "cuMemFreeAsync"}, {"cuMemFreeAsync", 11020, 2, "cuMemFreeAsync_ptsz"},
    {"cuMemAllocFromPoolAsync", 11020, 0, "cuMemAllocFromPoolAsync"}, {"cuMemAllocFromPoolAsync", 11020, 2, "cuMemAllocFromPoolAsync_ptsz"},
    {"cuMemcpyDtoH", 3020, 0, "cuMemcpyDtoH_v2"}, {"cuMemcpyDtoH", 7000, 2, "cuMemcpyDtoH_v2_ptds"}, {"cuMemcpyAsync", 7000, 2, "cuMemcpyAsync_ptsz"},
    {"cuMemcpyAsync", 4000, 2, "cuMemcpyAsync"}, /* not found: the twin came in 7.0 */
    {"cuMemsetD8", 7000, 2, "cuMemsetD8_v2_ptds"}, {"cuMemsetD8Async", 7000, 2, "cuMemsetD8Async_ptsz"},
    {"cuStreamBeginCapture", 10000, 0, "cuStreamBeginCapture"}, {"cuStreamBeginCapture", 10010, 0, "cuStreamBeginCapture_v2"},
    {"cuStreamBeginCapture", 10010, 2, "cuStreamBeginCapture_v2_ptsz"}, {"cuStreamEndCapture", 10000, 2, "cuStreamEndCapture_ptsz"},
    {"cuStreamGetCaptureInfo", 11030, 0, "cuStreamGetCaptureInfo_v2"}, {"cuStreamGetCaptureInfo", 12030, 2, "cuStreamGetCaptureInfo_v3_ptsz"},
    {"cuStreamGetCtx", 9020, 0, "cuStreamGetCtx"}, {"cuStreamGetCtx", 12050, 0, "cuStreamGetCtx_v2"}, {"cuStreamDestroy", 4000, 0, "cuStreamDestroy_v2"},
    {"cuCtxSynchronize", 2000, 0, "cuCtxSynchronize"}, {"cuCtxSynchronize", 13000, 0, "cuCtxSynchronize_v2"},
    {"cuCtxCreate", 3020, 0, "cuCtxCreate_v2"}, {"cuCtxCreate", 11040, 0, "cuCtxCreate_v3"}, {"cuCtxCreate", 12050, 0, "cuCtxCreate_v4"},
    {"cuCtxDestroy", 4000, 0, "cuCtxDestroy_v2"}, {"cuCtxRecordEvent", 12050, 0, "cuCtxRecordEvent"}, {"cuCtxWaitEvent", 12050, 0, "cuCtxWaitEvent"},
    {"cuDevicePrimaryCtxReset", 7000, 0, "cuDevicePrimaryCtxReset"}, {"cuDevicePrimaryCtxReset", 11000, 0, "cuDevicePrimaryCtxReset_v2"},
    {"cuDevicePrimaryCtxRelease", 11000, 0, "cuDevicePrimaryCtxRelease_v2"}, {"cuDeviceGetUuid", 9020, 0, "cuDeviceGetUuid"}, {"cuDeviceGetUuid", 11040, 0, "cuDeviceGetUuid_v2"},
    {"cuIpcOpenMemHandle", 4010, 0, "cuIpcOpenMemHandle"}, {"cuIpcOpenMemHandle", 11000, 0, "cuIpcOpenMemHandle_v2"}, {"cuIpcGetMemHandle", 4010, 0, "cuIpcGetMemHandle"},
    {"cuLaunchKernel", 4000, 0, "cuLaunchKernel"}, {"cuLaunchKernel", 7000, 2, "cuLaunchKernel_ptsz"}, {"cuLaunchKernelEx", 11060, 2, "cuLaunchKernelEx_ptsz"},
    {"cuLaunchHostFunc", 10000, 2, "cuLaunchHostFunc_ptsz"}, {"cuGraphLaunch", 10000, 2, "cuGraphLaunch_ptsz"},
    {"cuGraphInstantiate", 10000, 0, "cuGraphInstantiate"}, {"cuGraphInstantiate", 11000, 0, "cuGraphInstantiate_v2"}, {"cuGraphInstantiate", 12000, 0, "cuGraphInstantiateWithFlags"},
    {"cuMemCreate", 10020, 0, "cuMemCreate"}, {"cuMemMap", 10020, 0, "cuMemMap"}, {"cuMemAddressReserve", 10020, 2, "cuMemAddressReserve"},
    {"cuEventElapsedTime", 2000, 0, "cuEventElapsedTime"}, {"cuEventElapsedTime", 12080, 0, "cuEventElapsedTime_v2"},
    {"cuGetProcAddress", 11030, 0, "cuGetProcAddress"}, {"cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2"}, {"cuGetProcAddress", 12000, 2, "cuGetProcAddress_v2_ptsz"},
    {"cuGetProcAddress", 11030, 2, "cuGetProcAddress_ptsz"}, {"cuModuleGetGlobal", 3020, 0, "cuModuleGetGlobal_v2"}, {"cuLibraryGetManaged", 12000, 0, "cuLibraryGetManaged"},
    {"cuPointerGetAttributes", 7000, 0, "cuPointerGetAttributes"}, {"cuGreenCtxCreate", 12040, 0, "cuGreenCtxCreate"},
  };
  void* lib = dlopen("libcuda.so.1", RTLD_NOW);
  int same = 0, count = (int)(sizeof rows / sizeof rows[0]);
  for (int i = 0; i < count; ++i) {
    void *pfn = NULL, *symbol = dlsym(lib, rows[i].symbol);
    CUdriverProcAddressQueryResult status = 9;
    CUresult r = cuGetProcAddress(rows[i].base, &pfn, rows[i].version, rows[i].flags, &status);
    if (!r && pfn && pfn == symbol) ++same;
    else printf("resolve %s@%d/%d: not %s (%s, status %d, %s, symbol %s)\n", rows[i].base, rows[i].version, (int)rows[i].flags, rows[i].symbol, name(r), (int)status,
                pfn ? "found" : "null", symbol ? "exported" : "missing");
  }
  say("resolve_equals_dlsym", "%d of %d", same, count);

  void* pfn;
  CUdriverProcAddressQueryResult status;
  CUresult r;
#define GPA(fact, symbol, version, flags) \
  pfn = (void*)&pfn; status = 9; r = cuGetProcAddress(symbol, &pfn, version, flags, &status); \
  say(fact, "%s, %s, status %d", name(r), pfn == NULL ? "null" : pfn == (void*)&pfn ? "unchanged" : "found", (int)status)
  GPA("resolve_unknown_name", "cuNoSuchFunction", 12000, 0);
  GPA("resolve_versioned_name", "cuMemAlloc_v2", 12000, 0);
  GPA("resolve_too_old_version", "cuMemAllocAsync", 11010, 0);
  GPA("resolve_newer_than_driver", "cuMemAlloc", 99000, 0);
  GPA("resolve_flags_3", "cuMemAllocAsync", 12000, 3);
  GPA("resolve_flags_4", "cuMemAllocAsync", 12000, 4);
  GPA("resolve_version_0", "cuMemAlloc", 0, 0);
  /* A null pfn is a segmentation fault in the real driver: not asked. */
  pfn = NULL;
  CODE("resolve_unknown_without_status", cuGetProcAddress("cuNoSuchFunction", &pfn, 12000, 0, NULL));
  CUgetProcAddress_v11030 four = NULL;
  MUST(cuGetProcAddress("cuGetProcAddress", (void**)&four, 11030, 0, NULL));
  pfn = (void*)&pfn;
  r = four("cuNoSuchFunction", &pfn, 11030, 0);
  say("resolve_4_args_unknown_name", "%s, %s", name(r), pfn ? "unchanged" : "null");
  r = four("cuMemAllocAsync", &pfn, 11010, 0);
  say("resolve_4_args_too_old", "%s, %s", name(r), pfn ? "not null" : "null");
  /* The driver exports no symbol for the per-thread variant; it gives it to who asks with flag 2. */
  CUresult (*ptsz)(const char*, void**, int, uint64_t, CUdriverProcAddressQueryResult*) = NULL;
  MUST(cuGetProcAddress("cuGetProcAddress", (void**)&ptsz, 12000, 2, NULL));
  pfn = NULL;
  MUST(ptsz("cuMemAllocAsync", &pfn, 12000, 0, NULL));
  say("resolve_ptsz_flags_0", "%s", pfn == dlsym(lib, "cuMemAllocAsync_ptsz") ? "per thread" : "legacy");
  MUST(ptsz("cuMemAllocAsync", &pfn, 12000, 1, NULL));
  say("resolve_ptsz_flags_1", "%s", pfn == dlsym(lib, "cuMemAllocAsync_ptsz") ? "per thread" : "legacy");
  const void* table = (void*)&table;
  CUuuid none = {{0}};
  r = cuGetExportTable(&table, &none);
  say("export_table_unknown", "%s", name(r));
}

/* ---- before there is a context ---- */

static void no_context(void) {
  CUdeviceptr p = 0x1234;
  size_t a, b;
  int n;
  void* h = NULL;
  CUevent e;
  CUstream s;
  CUcontext ctx = (CUcontext)&ctx;
  unsigned u;
  CODE("no_context_mem_alloc", cuMemAlloc(&p, 16));
  YES("no_context_mem_alloc_zeroes_ptr", p == 0);
  CODE("no_context_mem_free_0", cuMemFree(0));
  CODE("no_context_mem_free_unknown", cuMemFree(0x123456789000ull));
  CODE("no_context_mem_get_info", cuMemGetInfo(&a, &b));
  CODE("no_context_mem_host_alloc", cuMemHostAlloc(&h, 16, 0));
  CODE("no_context_mem_alloc_async", cuMemAllocAsync(&p, 16, NULL));
  CODE("no_context_stream_create", cuStreamCreate(&s, 0));
  CODE("no_context_event_create", cuEventCreate(&e, 0));
  CODE("no_context_ctx_synchronize", cuCtxSynchronize());
  CODE("no_context_pointer_attribute", cuPointerGetAttribute(&u, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 0x1000));
  CODE("no_context_get_device", cuCtxGetDevice(&n));
  CODE("no_context_pop", cuCtxPopCurrent(&ctx));
  ctx = (CUcontext)&ctx;
  CODE("no_context_get_current", cuCtxGetCurrent(&ctx));
  YES("no_context_get_current_null", ctx == NULL);
  unsigned flags;
  CODE("no_context_primary_state", cuDevicePrimaryCtxGetState(dev, &flags, &n));
  say("no_context_primary_active", "%d", n);
  CODE("no_context_primary_release", cuDevicePrimaryCtxRelease(dev));
  CODE("no_context_push_null", cuCtxPushCurrent(NULL));
  CODE("no_context_set_null", cuCtxSetCurrent(NULL));
}

/* ---- plain memory ---- */

static void plain(void) {
  CUdeviceptr p = 0x1234, q, base;
  size_t size;
  CUresult r = cuMemAlloc(&p, 0);
  say("alloc_0", "%s, ptr %llx", name(r), p);
  CODE("alloc_null", cuMemAlloc(NULL, 16));
  p = 0x1234;
  r = cuMemAlloc(&p, (size_t)1 << 50);
  say("alloc_huge", "%s, ptr %llx", name(r), p);
  CODE("alloc_size_max", cuMemAlloc(&p, SIZE_MAX));
  CODE("alloc_1_shl_60", cuMemAlloc(&p, (size_t)1 << 60));
  size_t free, total;
  MUST(cuMemGetInfo(&free, &total));
  CODE("alloc_total_plus_1", cuMemAlloc(&p, total + 1));
  CODE("alloc_total", cuMemAlloc(&p, total));
  CODE("mem_get_info_nulls", cuMemGetInfo(NULL, NULL));
  size_t device_total;
  MUST(cuDeviceTotalMem(&device_total, dev));
  YES("mem_get_info_total_is_device_total", device_total == total);
  CODE("free_0", cuMemFree(0));
  CODE("free_unknown", cuMemFree(0x123456789000ull));
  CODE("free_host_stack_address", cuMemFree((CUdeviceptr)(uintptr_t)&p));
  p = alloc(64 * MIB);
  CODE("free_interior", cuMemFree(p + 512));
  CODE("free_interior_2mib", cuMemFree(p + 2 * MIB));
  CODE("free", cuMemFree(p));
  CODE("free_double", cuMemFree(p));
  p = alloc(1000);
  CODE("free_small_interior", cuMemFree(p + 512));
  MUST(cuMemFree(p));
  CODE("free_small_double", cuMemFree(p));

  static const size_t sizes[] = {1, 256, 257, 512, 513, 1000, 4096, 65536, 1000000, 1 << 20, (1 << 20) + 1, (2 << 20) - 1, 2 << 20, (2 << 20) + 1, 3000000, 64 << 20};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; ++i) {
    p = alloc(sizes[i]);
    r = cuMemGetAddressRange(&base, &size, p + sizes[i] / 2);
    printf("alloc_%zu: ptr %% 512 = %llu, range %s, size %zu (%s)%s\n", sizes[i], p % 512, base == p ? "from ptr" : "elsewhere", size, name(r),
           sizes[i] > MIB ? p % (2 * MIB) ? ", not 2 MiB aligned" : ", 2 MiB aligned" : "");
    MUST(cuMemFree(p));
  }
  CUdeviceptr v[4];
  for (int i = 0; i < 4; ++i) v[i] = alloc(1);
  YES("small_step_512", v[1] - v[0] == 512 && v[2] - v[1] == 512 && v[3] - v[2] == 512);
  q = v[2];
  MUST(cuMemFree(v[2]));
  v[2] = alloc(100);
  YES("small_free_then_alloc_same_address", v[2] == q);
  for (int i = 0; i < 4; ++i) MUST(cuMemFree(v[i]));
  p = alloc(4 * MIB);
  MUST(cuMemsetD32(p, 77, MIB));
  MUST(cuMemFree(p));
  q = alloc(4 * MIB);
  YES("large_free_then_alloc_same_address", p == q);
  MUST(cuMemFree(q));

  CODE("range_unknown", cuMemGetAddressRange(&base, &size, 0x123456789000ull));
  CODE("range_freed", cuMemGetAddressRange(&base, &size, q));
  p = alloc(1000);
  CODE("range_one_past_end", cuMemGetAddressRange(&base, &size, p + 1024));
  r = cuMemGetAddressRange(&base, &size, p + 1001);
  say("range_in_padding", "%s", name(r));
  CODE("range_null_outputs", cuMemGetAddressRange(NULL, NULL, p));
  MUST(cuMemFree(p));
  size_t pitch;
  CODE("pitch_width_0", cuMemAllocPitch(&p, &pitch, 0, 4, 4));
  CODE("pitch_element_3", cuMemAllocPitch(&p, &pitch, 100, 4, 3));
  MUST(cuMemAllocPitch(&p, &pitch, 1000, 7, 4));
  MUST(cuMemGetAddressRange(&base, &size, p));
  say("pitch_1000x7", "pitch %zu, size %zu", pitch, size);
  MUST(cuMemFree(p));

  /* what an allocation costs: bytes taken of the device for a byte asked, with 256 MiB asked */
  static const size_t costs[] = {4096, 65536, 614400, 1 << 20, (1 << 20) + 1, 3 << 20, (3 << 20) + 1, 20 << 20};
  static CUdeviceptr all[65536];
  for (size_t i = 0; i < sizeof costs / sizeof costs[0]; ++i) {
    size_t n = 256 * MIB / costs[i], before = used();
    for (size_t j = 0; j < n; ++j) all[j] = alloc(costs[i]);
    size_t took = used() - before;
    for (size_t j = 0; j < n; ++j) MUST(cuMemFree(all[j]));
    printf("cost_of_%zu: %.1f\n", costs[i], (double)took / (double)(n * costs[i]));
    if (used() > before + 8 * MIB) say("cost_not_given_back", "%zu MiB", (used() - before) / MIB);
  }
  RT("runtime_malloc_0", cudaMalloc((void**)&p, 0));
  YES("runtime_malloc_0_null", p == 0);
  RT("runtime_free_null", cudaFree(NULL));
  RT("runtime_free_unknown", cudaFree((void*)0x123456789000ull));
  RT("runtime_last_error", cudaGetLastError());
  RT("runtime_malloc_huge", cudaMalloc((void**)&p, (size_t)1 << 50));
  cudaGetLastError();
}

/* ---- pointers ---- */

static void attributes_of(const char* what, CUdeviceptr p) {
  char fact[80], line[256] = "";
  static const struct { CUpointer_attribute a; const char* n; int wide; } list[] = {
    {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, "type", 0}, {CU_POINTER_ATTRIBUTE_IS_MANAGED, "managed", 0},
    {CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, "device", 0}, {CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, "ipc", 0},
    {CU_POINTER_ATTRIBUTE_MAPPED, "mapped", 0}, {CU_POINTER_ATTRIBUTE_RANGE_SIZE, "range", 1}, {CU_POINTER_ATTRIBUTE_MAPPING_SIZE, "mapping", 1},
  };
  for (size_t i = 0; i < sizeof list / sizeof list[0]; ++i) {
    unsigned long long v = 0;
    CUresult r = cuPointerGetAttribute(&v, list[i].a, p);
    int narrow = (int)v;
    size_t n = strlen(line);
    if (r) snprintf(line + n, sizeof line - n, "%s%s %s", n ? ", " : "", list[i].n, name(r));
    else if (list[i].wide) snprintf(line + n, sizeof line - n, "%s%s %llu", n ? ", " : "", list[i].n, v);
    else snprintf(line + n, sizeof line - n, "%s%s %d", n ? ", " : "", list[i].n, narrow);
  }
  snprintf(fact, sizeof fact, "attributes_%s", what);
  say(fact, "%s", line);
  CUcontext ctx = (CUcontext)&ctx;
  CUresult r = cuPointerGetAttribute(&ctx, CU_POINTER_ATTRIBUTE_CONTEXT, p);
  void* host = NULL;
  CUdeviceptr device = 0;
  CUresult rh = cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, p), rd = cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, p);
  snprintf(fact, sizeof fact, "pointers_%s", what);
  say(fact, "context %s, host %s, device %s", r ? name(r) : ctx == primary ? "primary" : ctx ? "other" : "null",
      rh ? name(rh) : host == (void*)(uintptr_t)p ? "same" : host ? "other" : "null", rd ? name(rd) : device == p ? "same" : "other");
}
static void several_attributes(const char* fact, CUdeviceptr p) {
  unsigned type = 77, managed = 77;
  int ordinal = 77;
  unsigned long long id = 77;
  CUcontext ctx = (CUcontext)77;
  CUdeviceptr start = 77;
  CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                 CU_POINTER_ATTRIBUTE_BUFFER_ID, CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR};
  void* data[] = {&type, &managed, &ordinal, &id, &ctx, &start};
  CUresult r = cuPointerGetAttributes(6, which, data, p);
  say(fact, "%s, type %u, managed %u, device %d, id %s, context %s, start %s", name(r), type, managed, ordinal, id ? "some" : "0", ctx ? "some" : "null", start ? "some" : "0");
}
static void pointers(void) {
  static char pageable[4096];
  CUdeviceptr p = alloc(4 * MIB), q;
  unsigned u;
  attributes_of("plain", p);
  attributes_of("plain_interior", p + 4096);
  several_attributes("several_plain", p);
  unsigned long long id1, id2, id3;
  MUST(cuPointerGetAttribute(&id1, CU_POINTER_ATTRIBUTE_BUFFER_ID, p));
  MUST(cuPointerGetAttribute(&id2, CU_POINTER_ATTRIBUTE_BUFFER_ID, p + 4096));
  MUST(cuMemFree(p));
  CODE("attribute_freed", cuPointerGetAttribute(&u, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
  CODE("attribute_freed_id", cuPointerGetAttribute(&id3, CU_POINTER_ATTRIBUTE_BUFFER_ID, p));
  several_attributes("several_freed", p);
  q = alloc(4 * MIB);
  MUST(cuPointerGetAttribute(&id3, CU_POINTER_ATTRIBUTE_BUFFER_ID, q));
  YES("buffer_id_same_inside", id1 == id2);
  YES("buffer_id_new_after_realloc", id1 != id3);
  YES("buffer_id_grows", id3 > id1);
  YES("buffer_id_top_bit", id3 >> 63);
  unsigned on = 1;
  CODE("set_sync_memops", cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, q));
  CODE("set_sync_memops_unknown", cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, 0x123456789000ull));
  CODE("set_buffer_id", cuPointerSetAttribute(&id1, CU_POINTER_ATTRIBUTE_BUFFER_ID, q));
  MUST(cuMemFree(q));
  CODE("attribute_pageable", cuPointerGetAttribute(&u, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)pageable));
  several_attributes("several_pageable", (CUdeviceptr)(uintptr_t)pageable);
  several_attributes("several_null", 0);
  CODE("attribute_null_data", cuPointerGetAttribute(NULL, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 0));
  struct cudaPointerAttributes pa;
  RT("runtime_attributes_pageable", cudaPointerGetAttributes(&pa, pageable));
  say("runtime_attributes_pageable_type", "%d", (int)pa.type);
}

/* ---- who waits ---- */

static void waiting(void) {
  static const size_t sizes[] = {1024, 65536, 1 << 20, 2 << 20, 64 << 20};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; ++i) {
    CUdeviceptr keep = alloc(sizes[i]), p = alloc(sizes[i]);
    char fact[80];
    MUST(slow_write(s1, word_a, 1, MS100));
    snprintf(fact, sizeof fact, "free_%zu_beside_non_blocking_kernel", sizes[i]);
    TIMED(fact, cuMemFree(p));
    MUST(slow_write(s1, word_a, 1, MS100));
    snprintf(fact, sizeof fact, "alloc_%zu_beside_kernel", sizes[i]);
    TIMED(fact, cuMemAlloc(&p, sizes[i]));
    sync_all();
    MUST(cuMemFree(p));
    MUST(cuMemFree(keep));
  }
  CUdeviceptr p = alloc(4 * MIB);
  void* h = NULL;
  CUstream s;
  MUST(slow_write(CU_STREAM_PER_THREAD, word_a, 1, MS100));
  TIMED("free_beside_per_thread_kernel", cuMemFree(p));
  MUST(slow_write(s1, word_a, 1, MS100));
  TIMED("free_0_beside_kernel", cuMemFree(0));
  sync_all();
  MUST(slow_write(s1, word_a, 1, MS100));
  TIMED("free_unknown_beside_kernel", cuMemFree(0x123456789000ull));
  sync_all();
  MUST(slow_write(s1, word_a, 1, MS100));
  TIMED("mem_host_alloc_beside_kernel", cuMemHostAlloc(&h, 4096, 0));
  TIMED("mem_free_host_beside_kernel", cuMemFreeHost(h));
  sync_all();
  MUST(slow_write(s1, word_a, 1, MS100));
  TIMED("alloc_managed_beside_kernel", cuMemAllocManaged(&p, MIB, CU_MEM_ATTACH_GLOBAL));
  sync_all();
  MUST(slow_write(s1, word_a, 1, MS100));
  TIMED("free_managed_beside_kernel", cuMemFree(p));
  sync_all();
  MUST(slow_write(s1, word_a, 1, MS100));
  TIMED("mem_get_info_beside_kernel", cuMemGetInfo(&(size_t){0}, &(size_t){0}));
  TIMED("stream_create_beside_kernel", cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  TIMED("stream_destroy_idle_beside_kernel", cuStreamDestroy(s));
  sync_all();
  MUST(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  MUST(slow_write(s, word_a, 5, MS100));
  TIMED("stream_destroy_busy", cuStreamDestroy(s));
  MUST(cuCtxRecordEvent(primary, ev));
  CODE("destroyed_stream_event_query", cuEventQuery(ev));
  sync_all();
  say("destroyed_stream_work_is_done", "%d", read_int(word_a));
  MUST(slow_write(s1, word_a, 1, MS100));
  CODE("stream_query_busy", cuStreamQuery(s1));
  TIMED("ctx_synchronize_busy", cuCtxSynchronize());
  CODE("stream_query_idle", cuStreamQuery(s1));
  MUST(slow_write(s1, word_a, 1, MS100));
  TIMED("stream_synchronize_other", cuStreamSynchronize(s2));
  TIMED("stream_synchronize_legacy_non_blocking_busy", cuStreamSynchronize(NULL));
  sync_all();
  MUST(slow_write(blocking, word_a, 1, MS100));
  TIMED("stream_synchronize_legacy_blocking_busy", cuStreamSynchronize(NULL));
  sync_all();
  MUST(slow_write(blocking, word_a, 1, MS100));
  CODE("stream_query_legacy_blocking_busy", cuStreamQuery(NULL));
  sync_all();

  /* copies behind a legacy kernel */
  int* pinned;
  int stack = 3;
  static int big[MIB / 4];
  CUdeviceptr large = alloc(MIB);
  MUST(cuMemHostAlloc((void**)&pinned, 4096, 0));
#define BEHIND(fact, call) MUST(slow_write(NULL, word_a, 1, MS100)); TIMED(fact, call); sync_all()
  BEHIND("memset_behind_kernel", cuMemsetD32(word_b, 0, 1));
  BEHIND("copy_dtod_behind_kernel", cuMemcpyDtoD(word_b, word_a, 4));
  BEHIND("copy_dtoh_behind_kernel", cuMemcpyDtoH(&stack, word_a, 4));
  BEHIND("copy_htod_pageable_4_behind_kernel", cuMemcpyHtoD(word_b, &stack, 4));
  BEHIND("copy_htod_pageable_1mib_behind_kernel", cuMemcpyHtoD(large, big, MIB));
  BEHIND("copy_htod_pinned_behind_kernel", cuMemcpyHtoD(word_b, pinned, 4));
  BEHIND("copy_htod_async_pageable_behind_kernel", cuMemcpyHtoDAsync(word_b, &stack, 4, NULL));
  BEHIND("copy_htod_async_pageable_1mib_behind_kernel", cuMemcpyHtoDAsync(large, big, MIB, NULL));
  BEHIND("copy_dtoh_async_pageable_behind_kernel", cuMemcpyDtoHAsync(&stack, word_b, 4, NULL));
  BEHIND("copy_dtoh_async_pinned_behind_kernel", cuMemcpyDtoHAsync(pinned, word_b, 4, NULL));
  BEHIND("memset_pinned_behind_kernel", cuMemsetD32((CUdeviceptr)(uintptr_t)pinned, 0, 1));
  MUST(cuMemFreeHost(pinned));
  CODE("copy_past_the_end", cuMemcpyDtoH(big, large + MIB - 4, 8));
  MUST(cuMemFree(large));
  CODE("copy_from_freed", cuMemcpyDtoH(big, large, 4));
  CODE("copy_from_0", cuMemcpyDtoH(big, 0, 4));
  CODE("copy_nothing", cuMemcpyDtoH(big, 0, 0));
  CODE("memset_freed", cuMemsetD8(large, 0, 4));
}

/* ---- the device barrier ---- */

static void* per_thread_writer(void* arg) {
  (void)arg;
  MUST(cuCtxSetCurrent(primary));
  MUST(slow_write(CU_STREAM_PER_THREAD, word_a, 7, MS100));
  return NULL;
}
static volatile int host_function_ran;
static void slow_host_function(void* arg) {
  (void)arg;
  usleep(100000);
  host_function_ran = 1;
}
static void barrier(void) {
  MUST(cuCtxRecordEvent(primary, ev));
  MUST(cuCtxWaitEvent(primary, ev));
}
static void barriers(void) {
  CUstream s3;
  zero(); MUST(slow_write(s1, word_a, 7, MS100));
  say("without_barrier_legacy_copy_reads", "%d", read_int(word_a));
  zero(); MUST(slow_write(s1, word_a, 7, MS100));
  double t = now();
  barrier();
  say("barrier_host", "%s", now() - t > 0.05 ? "waits" : "returns at once");
  say("barrier_legacy_copy_reads", "%d", read_int(word_a));
  zero(); MUST(slow_write(s1, word_a, 7, MS100)); MUST(copy_ints(s2, word_b, word_a, 1)); sync_all();
  say("without_barrier_other_stream_reads", "%d", read_int(word_b));
  zero(); MUST(slow_write(s1, word_a, 7, MS100)); barrier(); MUST(copy_ints(s2, word_b, word_a, 1)); sync_all();
  say("barrier_other_non_blocking_stream_reads", "%d", read_int(word_b));
  zero(); MUST(slow_write(s1, word_a, 7, MS100)); barrier();
  MUST(cuStreamCreate(&s3, CU_STREAM_NON_BLOCKING));
  MUST(copy_ints(s3, word_b, word_a, 1)); sync_all();
  say("barrier_later_stream_reads", "%d", read_int(word_b));
  MUST(cuStreamDestroy(s3));
  zero(); MUST(slow_write(s1, word_a, 7, MS100)); barrier(); MUST(copy_ints(CU_STREAM_PER_THREAD, word_b, word_a, 1)); sync_all();
  say("barrier_per_thread_stream_reads", "%d", read_int(word_b));
  zero(); on_thread(per_thread_writer, NULL); barrier(); MUST(copy_ints(s2, word_b, word_a, 1)); sync_all();
  say("barrier_covers_another_threads_per_thread_stream", "%d", read_int(word_b));
  zero(); MUST(cuStreamCreate(&s3, CU_STREAM_NON_BLOCKING)); MUST(slow_write(s3, word_a, 7, MS100)); MUST(cuStreamDestroy(s3)); barrier();
  MUST(copy_ints(s2, word_b, word_a, 1)); sync_all();
  say("barrier_covers_a_destroyed_stream", "%d", read_int(word_b));

  CUgraph g;
  CUgraphExec writer, reader;
  MUST(cuStreamBeginCapture(s1, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  MUST(slow_write(s1, word_a, 7, MS100));
  MUST(cuStreamEndCapture(s1, &g));
  MUST(cuGraphInstantiate(&writer, g, 0));
  MUST(cuGraphDestroy(g));
  MUST(cuStreamBeginCapture(s2, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  MUST(copy_ints(s2, word_b, word_a, 1));
  MUST(cuStreamEndCapture(s2, &g));
  MUST(cuGraphInstantiate(&reader, g, 0));
  MUST(cuGraphDestroy(g));
  MUST(cuGraphLaunch(reader, s2)); sync_all();
  zero(); MUST(cuGraphLaunch(writer, s1)); barrier(); MUST(copy_ints(s2, word_b, word_a, 1)); sync_all();
  say("barrier_covers_a_graph_launch", "%d", read_int(word_b));
  zero(); MUST(slow_write(s1, word_a, 7, MS100)); barrier(); MUST(cuGraphLaunch(reader, s2)); sync_all();
  say("barrier_later_graph_launch_reads", "%d", read_int(word_b));
  zero(); MUST(cuGraphLaunch(writer, s1)); MUST(cuCtxRecordEvent(primary, ev));
  CODE("graph_pending_event_query", cuEventQuery(ev));
  sync_all();
  MUST(cuGraphExecDestroy(writer));
  MUST(cuGraphExecDestroy(reader));

  host_function_ran = 0;
  MUST(cuLaunchHostFunc(s1, slow_host_function, NULL));
  MUST(cuCtxRecordEvent(primary, ev));
  CODE("host_function_pending_event_query", cuEventQuery(ev));
  CUdeviceptr p = alloc(4 * MIB);
  TIMED("free_beside_host_function", cuMemFree(p));
  say("free_beside_host_function_it_ran", "%d", host_function_ran);
  sync_all();
  CODE("idle_event_query", cuEventQuery(ev));

  /* queries of a barrier that is itself behind another */
  MUST(slow_write(s1, word_a, 1, MS100)); barrier(); barrier();
  CODE("second_barrier_event_query", cuEventQuery(ev));
  CODE("stream_query_idle_stream_behind_barrier", cuStreamQuery(s2));
  TIMED("stream_synchronize_idle_stream_behind_barrier", cuStreamSynchronize(s2));
  sync_all();
  CUevent timing;
  MUST(cuEventCreate(&timing, 0));
  CODE("record_event_with_timing", cuCtxRecordEvent(primary, timing));
  MUST(cuEventDestroy(timing));
  CUevent fresh;
  MUST(cuEventCreate(&fresh, CU_EVENT_DISABLE_TIMING));
  CODE("event_query_never_recorded", cuEventQuery(fresh));
  CODE("ctx_wait_event_never_recorded", cuCtxWaitEvent(primary, fresh));
  CODE("ctx_record_event_null_context", cuCtxRecordEvent(NULL, fresh));
  MUST(slow_write(s1, word_a, 1, MS100));
  MUST(cuCtxRecordEvent(primary, fresh));
  TIMED("event_destroy_pending", cuEventDestroy(fresh));
  sync_all();
  zero(); MUST(slow_write(s1, word_a, 7, MS100));
  MUST(cuEventCreate(&fresh, CU_EVENT_DISABLE_TIMING));
  MUST(cuCtxRecordEvent(primary, fresh)); MUST(cuCtxWaitEvent(primary, fresh)); MUST(cuEventDestroy(fresh));
  MUST(copy_ints(s2, word_b, word_a, 1)); sync_all();
  say("barrier_outlives_its_event", "%d", read_int(word_b));

  /* beside a kernel that never ends */
  int* flag;
  CUdeviceptr flag_on_device;
  MUST(cuMemHostAlloc((void**)&flag, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
  MUST(cuMemHostGetDevicePointer(&flag_on_device, flag, 0));
  *flag = 1;
  MUST(spin_flag(s1, flag_on_device)); sync_all();
  *flag = 0;
  MUST(spin_flag(s1, flag_on_device));
  TIMED("alloc_beside_endless_kernel", cuMemAlloc(&p, 4 * MIB));
  TIMED("ctx_record_event_beside_endless_kernel", cuCtxRecordEvent(primary, ev));
  TIMED("ctx_wait_event_beside_endless_kernel", cuCtxWaitEvent(primary, ev));
  CODE("endless_kernel_event_query", cuEventQuery(ev));
  *(volatile int*)flag = 1;
  sync_all();
  MUST(cuMemFree(p));

  /* the host sees pinned results without a call, later */
  *flag = 0;
  MUST(slow_write(s1, flag_on_device, 9, MS100));
  int early = *(volatile int*)flag;
  usleep(300000);
  say("pinned_result_without_a_call", "%d then %d", early, *(volatile int*)flag);
  MUST(cuMemFreeHost(flag));

  /* the order of streams */
  zero(); MUST(slow_write(blocking, word_a, 7, MS100)); MUST(copy_ints(NULL, word_b, word_a, 1)); sync_all();
  say("legacy_after_blocking_reads", "%d", read_int(word_b));
  zero(); MUST(slow_write(NULL, word_a, 7, MS100)); MUST(copy_ints(blocking, word_b, word_a, 1)); sync_all();
  say("blocking_after_legacy_reads", "%d", read_int(word_b));
  zero(); MUST(slow_write(NULL, word_a, 7, MS100)); MUST(copy_ints(s1, word_b, word_a, 1)); sync_all();
  say("non_blocking_after_legacy_reads", "%d", read_int(word_b));
  zero(); MUST(slow_write(s1, word_a, 7, MS100)); MUST(copy_ints(NULL, word_b, word_a, 1)); sync_all();
  say("legacy_after_non_blocking_reads", "%d", read_int(word_b));
  zero(); MUST(slow_write(CU_STREAM_PER_THREAD, word_a, 7, MS100)); MUST(copy_ints(NULL, word_b, word_a, 1)); sync_all();
  say("legacy_after_per_thread_reads", "%d", read_int(word_b));
  zero(); MUST(slow_write(s1, word_a, 7, MS100)); MUST(cuEventRecord(ev, s1)); MUST(cuStreamWaitEvent(s2, ev, 0)); MUST(copy_ints(s2, word_b, word_a, 1)); sync_all();
  say("stream_wait_event_reads", "%d", read_int(word_b));
  unsigned long long a, b, c, d;
  MUST(cuStreamGetId(s1, &a)); MUST(cuStreamGetId(s2, &b)); MUST(cuStreamGetId(NULL, &c)); MUST(cuStreamGetId(CU_STREAM_PER_THREAD, &d));
  YES("stream_ids_differ", a != b && a != c && a != d && b != c && b != d && c != d);
}

/* ---- inside a host function ---- */

static CUdeviceptr host_function_ptr;
static CUresult in_callback[12];
static void calling_host_function(void* arg) {
  (void)arg;
  CUdeviceptr p = 0;
  CUcontext ctx = NULL;
  size_t a, b;
  unsigned u;
  in_callback[0] = cuMemAlloc(&p, 4096);
  in_callback[1] = cuMemFree(host_function_ptr);
  in_callback[2] = cuCtxRecordEvent(primary, ev);
  in_callback[3] = cuCtxGetCurrent(&ctx);
  in_callback[4] = cuMemGetInfo(&a, &b);
  in_callback[5] = cuPointerGetAttribute(&u, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, host_function_ptr);
  in_callback[6] = cuMemAllocAsync(&p, 4096, s2);
  in_callback[7] = cuEventQuery(ev);
  in_callback[8] = cuMemFree(0);
  in_callback[9] = cuCtxSetCurrent(primary);
  in_callback[10] = cuStreamQuery(s2);
  in_callback[11] = cuMemAlloc(&p, 4096); /* with a context, if there was none */
}
static void host_functions(void) {
  static const char* names[12] = {"mem_alloc", "mem_free", "ctx_record_event", "ctx_get_current", "mem_get_info", "pointer_attribute", "mem_alloc_async",
                                  "event_query", "mem_free_0", "ctx_set_current", "stream_query", "mem_alloc_after_set_current"};
  host_function_ptr = alloc(4096);
  MUST(cuLaunchHostFunc(s1, calling_host_function, NULL));
  sync_all();
  for (int i = 0; i < 12; ++i) printf("in_host_function_%s: %s\n", names[i], name(in_callback[i]));
  CODE("free_after_host_function", cuMemFree(host_function_ptr));
}

/* ---- capture ---- */

static CUdeviceptr capture_ptr;
static CUevent old_event, captured_event;
static CUmemoryPool the_pool;
static CUdeviceptr async_ptr;
static CUstream spare;
static CUmemGenericAllocationHandle vmm_handle;
static CUmemAllocationProp device_memory(void) {
  CUmemAllocationProp prop;
  memset(&prop, 0, sizeof prop);
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.location.id = dev;
  return prop;
}
#define PROBE(fn, expression) static CUresult fn(void) { return expression; }
static void* host_ptr;
static CUdeviceptr out_ptr;
PROBE(p_mem_alloc, cuMemAlloc(&out_ptr, 4 * MIB))
PROBE(p_mem_free, cuMemFree(capture_ptr))
PROBE(p_mem_free_0, cuMemFree(0))
PROBE(p_mem_free_unknown, cuMemFree(0x123456789000ull))
PROBE(p_mem_get_info, cuMemGetInfo(&(size_t){0}, &(size_t){0}))
PROBE(p_range, cuMemGetAddressRange(NULL, &(size_t){0}, capture_ptr))
PROBE(p_attribute, cuPointerGetAttribute(&(unsigned long long){0}, CU_POINTER_ATTRIBUTE_BUFFER_ID, capture_ptr))
PROBE(p_host_alloc, cuMemHostAlloc(&host_ptr, 4096, 0))
PROBE(p_managed, cuMemAllocManaged(&out_ptr, 4096, CU_MEM_ATTACH_GLOBAL))
PROBE(p_ctx_record, cuCtxRecordEvent(primary, ev))
PROBE(p_ctx_wait, cuCtxWaitEvent(primary, old_event))
PROBE(p_event_query, cuEventQuery(old_event))
PROBE(p_event_synchronize, cuEventSynchronize(old_event))
PROBE(p_event_record_other, cuEventRecord(ev, s2))
PROBE(p_event_create, cuEventCreate(&(CUevent){0}, CU_EVENT_DISABLE_TIMING))
PROBE(p_stream_create, cuStreamCreate(&spare, CU_STREAM_NON_BLOCKING))
PROBE(p_stream_query_other, cuStreamQuery(s2))
PROBE(p_stream_sync_other, cuStreamSynchronize(s2))
PROBE(p_stream_query_captured, cuStreamQuery(s1))
PROBE(p_stream_sync_captured, cuStreamSynchronize(s1))
PROBE(p_ctx_sync, cuCtxSynchronize())
PROBE(p_copy_dtoh, cuMemcpyDtoH(&(int){0}, word_a, 4))
PROBE(p_memset, cuMemsetD8(word_a, 0, 4))
PROBE(p_launch_legacy, copy_ints(NULL, word_b, word_a, 1))
PROBE(p_launch_other, copy_ints(s2, word_b, word_a, 1))
PROBE(p_alloc_async_other, cuMemAllocAsync(&out_ptr, 4096, s2))
PROBE(p_free_async_other, cuMemFreeAsync(async_ptr, s2))
PROBE(p_mem_create, cuMemCreate(&vmm_handle, 2 * MIB, &(CUmemAllocationProp){CU_MEM_ALLOCATION_TYPE_PINNED, 0, {CU_MEM_LOCATION_TYPE_DEVICE, 0}, 0, {0, 0, 0, {0}}}, 0))
PROBE(p_pool_trim, cuMemPoolTrimTo(the_pool, 0))
PROBE(p_module_load, cuModuleLoadData(&(CUmodule){0}, SIMGPU_PTX))
PROBE(p_ipc_handle, cuIpcGetMemHandle(&(CUipcMemHandle){{0}}, capture_ptr))
PROBE(p_query_captured_event, cuEventQuery(captured_event))

static const struct { const char* n; CUresult (*f)(void); } probes[] = {
  {"mem_alloc", p_mem_alloc}, {"mem_free", p_mem_free}, {"mem_free_0", p_mem_free_0}, {"mem_free_unknown", p_mem_free_unknown}, {"mem_get_info", p_mem_get_info},
  {"address_range", p_range}, {"pointer_attribute", p_attribute}, {"mem_host_alloc", p_host_alloc}, {"mem_alloc_managed", p_managed},
  {"ctx_record_event", p_ctx_record}, {"ctx_wait_event", p_ctx_wait}, {"event_query", p_event_query}, {"event_synchronize", p_event_synchronize},
  {"event_record_other_stream", p_event_record_other}, {"event_create", p_event_create}, {"stream_create", p_stream_create},
  {"stream_query_other", p_stream_query_other}, {"stream_synchronize_other", p_stream_sync_other}, {"stream_query_captured", p_stream_query_captured},
  {"stream_synchronize_captured", p_stream_sync_captured}, {"ctx_synchronize", p_ctx_sync}, {"copy_dtoh", p_copy_dtoh}, {"memset", p_memset},
  {"launch_legacy", p_launch_legacy}, {"launch_other_stream", p_launch_other}, {"mem_alloc_async_other_stream", p_alloc_async_other},
  {"mem_free_async_other_stream", p_free_async_other}, {"mem_create", p_mem_create}, {"pool_trim", p_pool_trim}, {"module_load", p_module_load},
  {"ipc_get_handle", p_ipc_handle}, {"query_captured_event", p_query_captured_event},
};
static void clean_up_probe(CUresult r, CUresult (*f)(void)) {
  if (r) return;
  if (f == p_mem_alloc || f == p_managed) cuMemFree(out_ptr);
  if (f == p_mem_free) capture_ptr = alloc(4 * MIB);
  if (f == p_host_alloc) cuMemFreeHost(host_ptr);
  if (f == p_stream_create) cuStreamDestroy(spare);
  if (f == p_mem_create) cuMemRelease(vmm_handle);
  if (f == p_alloc_async_other) cuMemFreeAsync(out_ptr, s2);
  if (f == p_free_async_other) cuMemAllocAsync(&async_ptr, 4096, s2);
}
/* begins a capture on stream, makes the call, ends the capture */
static void probe(const char* prefix, CUstream stream, CUstreamCaptureMode mode, int relax, size_t i) {
  char fact[120];
  CUgraph g = NULL;
  MUST(cuEventRecord(old_event, s2));
  sync_all();
  MUST(cuStreamBeginCapture(stream, mode));
  MUST(copy_ints(stream, word_b, word_a, 1));
  MUST(cuEventRecord(captured_event, stream));
  CUstreamCaptureMode exchange = CU_STREAM_CAPTURE_MODE_RELAXED;
  if (relax) MUST(cuThreadExchangeStreamCaptureMode(&exchange));
  CUresult r = probes[i].f();
  if (relax) MUST(cuThreadExchangeStreamCaptureMode(&exchange));
  CUstreamCaptureStatus status = 9;
  cuStreamIsCapturing(stream, &status);
  CUresult e = cuStreamEndCapture(stream, &g);
  snprintf(fact, sizeof fact, "%s_%s", prefix, probes[i].n);
  say(fact, "%s, then %s, end %s%s", name(r), status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? "active" : status == CU_STREAM_CAPTURE_STATUS_INVALIDATED ? "invalidated" : "none",
      name(e), !e && !g ? " without graph" : e && g ? " with graph" : "");
  if (g) cuGraphDestroy(g);
  clean_up_probe(r, probes[i].f);
}
struct other { CUstreamCaptureMode mode; pthread_barrier_t at[2]; CUresult begin, end; };
static void* capturing_thread(void* arg) {
  struct other* o = arg;
  CUgraph g = NULL;
  MUST(cuCtxSetCurrent(primary));
  o->begin = cuStreamBeginCapture(s1, o->mode);
  pthread_barrier_wait(&o->at[0]);
  pthread_barrier_wait(&o->at[1]);
  o->end = cuStreamEndCapture(s1, &g);
  if (g) cuGraphDestroy(g);
  return NULL;
}
static void beside_capturing_thread(const char* prefix, CUstreamCaptureMode mode, size_t i) {
  char fact[120];
  struct other o = {mode, {{{0}}}, 0, 0};
  pthread_t t;
  for (int k = 0; k < 2; ++k) pthread_barrier_init(&o.at[k], NULL, 2);
  MUST(cuEventRecord(old_event, s2));
  sync_all();
  pthread_create(&t, NULL, capturing_thread, &o);
  pthread_barrier_wait(&o.at[0]);
  CUresult r = probes[i].f();
  pthread_barrier_wait(&o.at[1]);
  pthread_join(t, NULL);
  snprintf(fact, sizeof fact, "%s_%s", prefix, probes[i].n);
  say(fact, "%s, end %s", name(r), name(o.end));
  clean_up_probe(r, probes[i].f);
}
static void* end_capture_of_s1(void* arg) {
  CUgraph g;
  MUST(cuCtxSetCurrent(primary));
  *(CUresult*)arg = cuStreamEndCapture(s1, &g);
  return NULL;
}
static void captures(void) {
  CUgraph g = NULL;
  CUstreamCaptureStatus status;
  capture_ptr = alloc(4 * MIB);
  MUST(cuEventCreate(&old_event, CU_EVENT_DISABLE_TIMING));
  MUST(cuEventCreate(&captured_event, CU_EVENT_DISABLE_TIMING));
  MUST(cuDeviceGetDefaultMemPool(&the_pool, dev));
  MUST(cuMemAllocAsync(&async_ptr, 4096, s2));
  sync_all();
  size_t n = sizeof probes / sizeof probes[0];
  for (size_t i = 0; i < n; ++i) probe("capture_global", s1, CU_STREAM_CAPTURE_MODE_GLOBAL, 0, i);
  for (size_t i = 0; i < n; ++i) probe("capture_global_thread_relaxed", s1, CU_STREAM_CAPTURE_MODE_GLOBAL, 1, i);
  for (size_t i = 0; i < n; ++i) probe("capture_relaxed", s1, CU_STREAM_CAPTURE_MODE_RELAXED, 0, i);
  for (size_t i = 0; i < n; ++i)
    if (probes[i].f == p_mem_alloc || probes[i].f == p_ctx_record || probes[i].f == p_event_query) probe("capture_thread_local", s1, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, 0, i);
  for (size_t i = 0; i < n; ++i)
    if (probes[i].f == p_memset || probes[i].f == p_launch_legacy || probes[i].f == p_copy_dtoh || probes[i].f == p_ctx_record)
      probe("capture_blocking_stream_thread_relaxed", blocking, CU_STREAM_CAPTURE_MODE_GLOBAL, 1, i);
  for (size_t i = 0; i < n; ++i)
    if (probes[i].f == p_mem_alloc || probes[i].f == p_mem_free || probes[i].f == p_ctx_record || probes[i].f == p_ctx_wait || probes[i].f == p_event_query || probes[i].f == p_ctx_sync) {
      beside_capturing_thread("beside_global_capture", CU_STREAM_CAPTURE_MODE_GLOBAL, i);
      beside_capturing_thread("beside_thread_local_capture", CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, i);
      beside_capturing_thread("beside_relaxed_capture", CU_STREAM_CAPTURE_MODE_RELAXED, i);
    }
  CODE("begin_capture_legacy", cuStreamBeginCapture(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CODE("begin_capture_bad_mode", cuStreamBeginCapture(s1, (CUstreamCaptureMode)3));
  CODE("end_capture_without_begin", cuStreamEndCapture(s1, &g));
  MUST(cuStreamBeginCapture(s1, CU_STREAM_CAPTURE_MODE_RELAXED));
  CODE("begin_capture_twice", cuStreamBeginCapture(s1, CU_STREAM_CAPTURE_MODE_RELAXED));
  CODE("end_empty_capture", cuStreamEndCapture(s1, &g));
  if (g) MUST(cuGraphDestroy(g));
  g = NULL; /* a failing end may leave it as it is */
  MUST(cuStreamBeginCapture(s1, CU_STREAM_CAPTURE_MODE_RELAXED)); /* fork to s2, not joined */
  MUST(cuEventRecord(captured_event, s1));
  MUST(cuStreamWaitEvent(s2, captured_event, 0));
  MUST(cuStreamIsCapturing(s2, &status));
  say("capture_spreads_by_event", "%d", (int)status);
  MUST(copy_ints(s2, word_b, word_a, 1));
  CODE("end_capture_unjoined", cuStreamEndCapture(s1, &g));
  MUST(cuStreamIsCapturing(s2, &status));
  say("unjoined_stream_afterwards", "%d", (int)status);
  MUST(cuStreamBeginCapture(s1, CU_STREAM_CAPTURE_MODE_RELAXED));
  MUST(cuEventRecord(captured_event, s1));
  MUST(cuStreamWaitEvent(s2, captured_event, 0));
  CODE("end_capture_on_forked_stream", cuStreamEndCapture(s2, &g));
  CODE("end_capture_after_that", cuStreamEndCapture(s1, &g));
}
static CUresult end_on_other_thread(void) { /* on an H200 this ends the capture and fails nevertheless: not a state to go on from */
  CUresult r;
  MUST(cuStreamBeginCapture(s1, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  on_thread(end_capture_of_s1, &r);
  return r;
}
static void capture_ended_by_other_thread(void) {
  CUgraph g = NULL;
  CODE("end_capture_on_other_thread", end_on_other_thread());
  CODE("end_capture_then_here", cuStreamEndCapture(s1, &g));
}
static void capture_and_order(void) {
  CUgraph g = NULL;
  CUstreamCaptureStatus status;
  MUST(cuEventCreate(&old_event, CU_EVENT_DISABLE_TIMING));
  MUST(cuEventRecord(old_event, s2));
  MUST(cuStreamBeginCapture(s1, CU_STREAM_CAPTURE_MODE_RELAXED));
  CODE("captured_stream_waits_for_uncaptured_event", cuStreamWaitEvent(s1, old_event, 0));
  CODE("captured_stream_waits_end", cuStreamEndCapture(s1, &g));
  MUST(cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
  CODE("is_capturing_legacy_beside_blocking_capture", cuStreamIsCapturing(NULL, &status));
  CODE("is_capturing_legacy_end", cuStreamEndCapture(blocking, &g));
}
static void failing_end(const char* fact) { /* what becomes of the pointer to the graph */
  CUgraph untouched = (CUgraph)(void*)&untouched, g = untouched;
  CUresult r = cuStreamEndCapture(s1, &g);
  say(fact, "%s, graph %s", name(r), g == untouched ? "unchanged" : g ? "some" : "null");
}
static void failing_ends(void) {
  failing_end("failing_end_without_begin");
  MUST(cuStreamBeginCapture(s1, CU_STREAM_CAPTURE_MODE_RELAXED));
  cuStreamQuery(s1);
  failing_end("failing_end_invalidated");
  MUST(cuEventCreate(&captured_event, CU_EVENT_DISABLE_TIMING));
  MUST(cuStreamBeginCapture(s1, CU_STREAM_CAPTURE_MODE_RELAXED));
  MUST(cuEventRecord(captured_event, s1));
  MUST(cuStreamWaitEvent(s2, captured_event, 0));
  MUST(copy_ints(s2, word_b, word_a, 1));
  failing_end("failing_end_unjoined");
}
static void graph_memory(void) { /* stream-ordered memory becomes the graph's */
  CUgraph g = NULL;
  CUgraphExec exec;
  CUdeviceptr p = 0;
  size_t before = used(), nodes = 0;
  MUST(cuStreamBeginCapture(s1, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CODE("capture_alloc_async", cuMemAllocAsync(&p, 64 * MIB, s1));
  YES("capture_alloc_async_ptr", p != 0);
  MUST(slow_write(s1, p, 5, 1));
  MUST(copy_ints(s1, word_b, p, 1));
  CODE("capture_free_async", cuMemFreeAsync(p, s1));
  MUST(cuStreamEndCapture(s1, &g));
  MUST(cuGraphGetNodes(g, NULL, &nodes));
  say("graph_nodes", "%zu", nodes);
  YES("graph_memory_charged_before_instantiate", used() - before >= 64 * MIB);
  MUST(cuGraphInstantiate(&exec, g, 0));
  YES("graph_memory_charged_after_instantiate", used() - before >= 64 * MIB);
  CODE("graph_memory_memset", cuMemsetD32(word_b, 0, 1));
  CODE("graph_memory_synchronize", cuCtxSynchronize());
  CODE("graph_memory_launch", cuGraphLaunch(exec, s1));
  CODE("graph_memory_launch_synchronize", cuCtxSynchronize());
  YES("graph_memory_charged_after_launch", used() - before >= 64 * MIB);
  say("graph_result", "%d", read_int(word_b));
  CODE("graph_memory_free_outside", cuMemFree(p)); /* guess */
  MUST(cuGraphExecDestroy(exec));
  MUST(cuGraphDestroy(g));
  MUST(cuDeviceGraphMemTrim(dev));
  YES("graph_memory_charged_after_destroy_and_trim", used() - before >= 64 * MIB);
  /* without a free node the memory outlives the launch, and may be freed like any other */
  MUST(cuStreamBeginCapture(s1, CU_STREAM_CAPTURE_MODE_GLOBAL));
  MUST(cuMemAllocAsync(&p, 4 * MIB, s1));
  MUST(slow_write(s1, p, 6, 1));
  MUST(cuStreamEndCapture(s1, &g));
  MUST(cuGraphInstantiate(&exec, g, 0));
  CODE("graph_memory_kept_free_before_launch", cuMemFree(p)); /* guess */
  MUST(cuGraphLaunch(exec, s1));
  sync_all();
  say("graph_memory_kept_result", "%d", read_int(p));
  CODE("graph_memory_kept_free", cuMemFree(p));
  CODE("graph_memory_kept_free_double", cuMemFree(p)); /* guess */
  MUST(cuGraphLaunch(exec, s1));
  CODE("graph_memory_kept_free_async", cuMemFreeAsync(p, s1));
  sync_all();
  MUST(cuGraphExecDestroy(exec));
  MUST(cuGraphDestroy(g));
}

/* ---- host and managed memory ---- */

static void host_memory(void) {
  void *h = NULL, *h2;
  CUdeviceptr d, m;
  static char page[16384] __attribute__((aligned(4096)));
  CODE("host_alloc_0", cuMemHostAlloc(&h, 0, 0));
  CODE("alloc_host_0", cuMemAllocHost(&h, 0));
  CODE("host_alloc_bad_flags", cuMemHostAlloc(&h, 4096, 0x100));
  CODE("free_host_null", cuMemFreeHost(NULL));
  CODE("free_host_unknown", cuMemFreeHost(page));
  size_t before = used();
  MUST(cuMemHostAlloc(&h, 64 * MIB, 0));
  YES("host_alloc_is_charged_to_the_device", used() - before >= 32 * MIB);
  MUST(cuMemHostGetDevicePointer(&d, h, 0));
  YES("host_device_pointer_same", d == (CUdeviceptr)(uintptr_t)h);
  attributes_of("pinned", d);
  CUdeviceptr base;
  size_t size;
  CUresult r = cuMemGetAddressRange(&base, &size, d + 4096);
  say("range_pinned", "%s%s", name(r), r ? "" : base == d && size == 64 * MIB ? ", exact" : ", other");
  CODE("mem_free_pinned", cuMemFree(d));
  CODE("free_host_interior", cuMemFreeHost((char*)h + 4096));
  CODE("free_host", cuMemFreeHost(h));
  CODE("free_host_double", cuMemFreeHost(h));
  CODE("host_register", cuMemHostRegister(page, 8192, 0));
  CODE("host_register_again", cuMemHostRegister(page, 8192, 0));
  CODE("host_register_overlap", cuMemHostRegister(page + 4096, 8192, 0));
  attributes_of("registered", (CUdeviceptr)(uintptr_t)page);
  CODE("free_host_registered", cuMemFreeHost(page));
  CODE("mem_free_registered", cuMemFree((CUdeviceptr)(uintptr_t)page));
  CODE("host_unregister_interior", cuMemHostUnregister(page + 4096));
  CODE("host_unregister", cuMemHostUnregister(page));
  CODE("host_unregister_double", cuMemHostUnregister(page));
  CODE("host_unregister_null", cuMemHostUnregister(NULL));
  CODE("host_register_0", cuMemHostRegister(page, 0, 0));
  CODE("host_device_pointer_pageable", cuMemHostGetDevicePointer(&d, page, 0));
  CODE("managed_0", cuMemAllocManaged(&m, 0, CU_MEM_ATTACH_GLOBAL));
  CODE("managed_flags_0", cuMemAllocManaged(&m, 4096, 0));
  before = used();
  MUST(cuMemAllocManaged(&m, 4 * MIB, CU_MEM_ATTACH_GLOBAL));
  YES("managed_is_charged_at_once", used() - before >= 2 * MIB);
  attributes_of("managed", m);
  *(int*)(uintptr_t)m = 5;
  MUST(copy_ints(s1, word_b, m, 1)); sync_all();
  say("managed_kernel_reads", "%d", read_int(word_b));
  CODE("managed_free_interior", cuMemFree(m + 4096));
  CODE("managed_free_host", cuMemFreeHost((void*)(uintptr_t)m));
  CODE("managed_free", cuMemFree(m));
  CODE("managed_free_double", cuMemFree(m));
  RT("runtime_malloc_host_0", cudaMallocHost(&h2, 0));
  RT("runtime_free_host_null", cudaFreeHost(NULL));
  cudaGetLastError();
}

/* ---- pools ---- */

static unsigned long long pool_value(CUmemoryPool pool, CUmemPool_attribute a) {
  unsigned long long v = 0;
  MUST(cuMemPoolGetAttribute(pool, a, &v));
  return v;
}
static void pools(void) {
  CUdeviceptr p = 0x1234, q, base;
  size_t size;
  CUmemoryPool pool, current;
  MUST(cuDeviceGetDefaultMemPool(&pool, dev));
  MUST(cuDeviceGetMemPool(&current, dev));
  YES("pool_current_is_default", pool == current);
  sync_all();
  MUST(cuMemPoolTrimTo(pool, 0));
  say("pool_release_threshold", "%llu", pool_value(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD));
  say("pool_reuse_flags", "%d %d %d", (int)pool_value(pool, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES), (int)pool_value(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC),
      (int)pool_value(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES));
  CUresult r = cuMemAllocAsync(&p, 0, s1);
  say("alloc_async_0", "%s%s", name(r), r ? "" : p ? ", some ptr" : ", null");
  CODE("alloc_async_null", cuMemAllocAsync(NULL, 16, s1));
  CODE("alloc_async_huge", cuMemAllocAsync(&p, (size_t)1 << 50, s1));
  CODE("free_async_0", cuMemFreeAsync(0, s1));
  CODE("free_async_unknown", cuMemFreeAsync(0x123456789000ull, s1));
  q = alloc(4096);
  CODE("free_async_plain", cuMemFreeAsync(q, s1));
  sync_all();
  CODE("free_plain_after_free_async", cuMemFree(q));
  RT("runtime_malloc_async_0", cudaMallocAsync((void**)&p, 0, (cudaStream_t)s1));
  RT("runtime_free_async_null", cudaFreeAsync(NULL, (cudaStream_t)s1));
  cudaGetLastError();
  sync_all();
  size_t before = used();
  MUST(cuMemAllocAsync(&p, MIB, s1));
  say("pool_used_reserved_after_1mib", "%llu %llu", pool_value(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), pool_value(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
  say("pool_device_memory_after_1mib", "%zu MiB", (used() - before) / MIB);
  attributes_of("async", p);
  r = cuMemGetAddressRange(&base, &size, p + 4096);
  say("range_async", "%s, %s, size %zu", name(r), base == p ? "from ptr" : "elsewhere", size);
  CUmemoryPool of = NULL;
  r = cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p);
  say("async_pool_attribute", "%s, %s", name(r), of == pool ? "default pool" : of ? "other" : "null");
  CUipcMemHandle handle;
  CODE("ipc_handle_of_async", cuIpcGetMemHandle(&handle, p));
  CUdeviceptr small1, small2;
  MUST(cuMemAllocAsync(&small1, 100, s1));
  MUST(cuMemAllocAsync(&small2, 100, s1));
  say("async_small_step", "%lld", (long long)(small2 > small1 ? small2 - small1 : small1 - small2));
  CODE("free_async_interior", cuMemFreeAsync(p + 512, s1));
  MUST(cuMemFreeAsync(small1, s1));
  MUST(cuMemFreeAsync(small2, s1));
  MUST(cuMemFreeAsync(p, s1));
  CODE("free_async_double", cuMemFreeAsync(p, s1));
  MUST(cuMemAllocAsync(&q, MIB, s1));
  YES("async_reuse_on_the_same_stream", p == q);
  MUST(cuMemFreeAsync(q, s1));
  sync_all();
  say("pool_used_reserved_after_sync", "%llu %llu", pool_value(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), pool_value(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
  MUST(cuMemAllocAsync(&p, MIB, s1));
  MUST(slow_write(s1, p, 3, MS100));
  MUST(cuMemFreeAsync(p, s1));
  TIMED("alloc_async_beside_kernel", cuMemAllocAsync(&q, MIB, s2));
  YES("async_reuse_by_other_stream_while_busy", p == q);
  MUST(cuMemFreeAsync(q, s2));
  sync_all();
  MUST(cuMemAllocAsync(&p, MIB, s1));
  MUST(slow_write(s1, word_a, 3, MS100));
  TIMED("mem_free_of_async", cuMemFree(p));
  CODE("mem_free_of_async_double", cuMemFree(p));
  sync_all();
  MUST(cuMemAllocAsync(&p, MIB, s1));
  MUST(slow_write(s1, word_a, 3, MS100));
  q = alloc(4 * MIB);
  TIMED("plain_free_beside_kernel_with_async_live", cuMemFree(q));
  MUST(cuMemFreeAsync(p, s1));
  sync_all();
  CUmemPoolProps props;
  memset(&props, 0, sizeof props);
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  props.location.id = dev;
  CUmemoryPool mine;
  CODE("pool_create", cuMemPoolCreate(&mine, &props));
  MUST(cuMemAllocFromPoolAsync(&p, MIB, mine, s1));
  sync_all();
  CODE("pool_destroy_with_live_memory", cuMemPoolDestroy(mine));
  CODE("pool_memory_usable_after_destroy", cuMemsetD8Async(p, 1, MIB, s1));
  CODE("pool_memory_free_after_destroy", cuMemFreeAsync(p, s1));
  sync_all();
  CODE("pool_destroy_default", cuMemPoolDestroy(pool));
  unsigned long long keep = 1;
  CODE("pool_set_used_high_1", cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &keep));
  keep = 0;
  CODE("pool_set_used_high_0", cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &keep));
  CODE("pool_set_used_current", cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &keep));
  CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, dev};
  CUmemAccess_flags flags = 0;
  MUST(cuMemPoolGetAccess(&flags, pool, &here));
  say("pool_access_of_owner", "%d", (int)flags);
}

/* ---- virtual memory management ---- */

static void vmm(void) {
  size_t minimum, recommended, size = 0;
  CUmemAllocationProp prop = device_memory();
  CUmemGenericAllocationHandle h, h2, again;
  CUdeviceptr va, base = 0;
  CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUmemAccessDesc none = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_NONE};
  MUST(cuMemGetAllocationGranularity(&minimum, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  MUST(cuMemGetAllocationGranularity(&recommended, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
  say("vmm_granularity", "%zu %zu", minimum, recommended);
  CODE("vmm_create_odd_size", cuMemCreate(&h, MIB, &prop, 0));
  CODE("vmm_create_0", cuMemCreate(&h, 0, &prop, 0));
  CODE("vmm_create_huge", cuMemCreate(&h, (size_t)1 << 50, &prop, 0));
  CODE("vmm_reserve_odd_size", cuMemAddressReserve(&va, MIB, 0, 0, 0));
  CODE("vmm_reserve_0", cuMemAddressReserve(&va, 0, 0, 0, 0));
  size_t before = used();
  MUST(cuMemAddressReserve(&va, 64 * MIB, 0, 0, 0));
  YES("vmm_reserve_is_charged", used() - before >= 2 * MIB);
  YES("vmm_reserve_aligned_2mib", va % (2 * MIB) == 0);
  MUST(cuMemCreate(&h, 32 * MIB, &prop, 0));
  say("vmm_create_is_charged", "%zu MiB", (used() - before) / MIB);
  MUST(cuMemCreate(&h2, 4 * MIB, &prop, 0));
  CODE("vmm_map_unreserved", cuMemMap(0x123456000000ull, 4 * MIB, 0, h2, 0));
  CODE("vmm_map_more_than_handle", cuMemMap(va, 8 * MIB, 0, h2, 0));
  CODE("vmm_map_offset", cuMemMap(va, 2 * MIB, 2 * MIB, h2, 0));
  CUresult r = cuMemMap(va, 2 * MIB, 0, h2, 0);
  CODE("vmm_map_less_than_handle", r);
  if (!r) MUST(cuMemUnmap(va, 2 * MIB));
  CODE("vmm_map", cuMemMap(va, 32 * MIB, 0, h, 0));
  CODE("vmm_map_over", cuMemMap(va + 2 * MIB, 4 * MIB, 0, h2, 0));
  CODE("vmm_map_next", cuMemMap(va + 32 * MIB, 4 * MIB, 0, h2, 0));
  CODE("vmm_memset_without_access", cuMemsetD8(va, 1, 16));
  CODE("vmm_set_access_part", cuMemSetAccess(va, 2 * MIB, &access, 1));
  CODE("vmm_set_access_unmapped", cuMemSetAccess(va, 64 * MIB, &access, 1));
  CODE("vmm_set_access_both", cuMemSetAccess(va, 36 * MIB, &access, 1));
  CODE("vmm_set_access_again", cuMemSetAccess(va, 36 * MIB, &access, 1));
  CODE("vmm_memset", cuMemsetD8(va, 1, 36 * MIB));
  sync_all();
  CODE("vmm_copy_across_mappings", cuMemcpyDtoH(&(long long){0}, va + 32 * MIB - 4, 8));
  unsigned long long flags = 99;
  r = cuMemGetAccess(&flags, &prop.location, va);
  say("vmm_get_access", "%s, %llu", name(r), flags);
  attributes_of("vmm", va);
  r = cuMemGetAddressRange(&base, &size, va + 4 * MIB);
  say("range_vmm", "%s, offset %lld, size %zu", name(r), r ? 0 : (long long)(base - va), r ? 0 : size);
  base = 0; size = 0;
  r = cuMemGetAddressRange(&base, &size, va + 33 * MIB);
  say("range_vmm_second", "%s, offset %lld, size %zu", name(r), r ? 0 : (long long)(base - va), r ? 0 : size);
  unsigned long long id1 = 0, id2 = 0;
  cuPointerGetAttribute(&id1, CU_POINTER_ATTRIBUTE_BUFFER_ID, va);
  cuPointerGetAttribute(&id2, CU_POINTER_ATTRIBUTE_BUFFER_ID, va + 32 * MIB);
  YES("vmm_buffer_ids_differ", id1 != id2);
  CUipcMemHandle ipc;
  CODE("ipc_handle_of_vmm", cuIpcGetMemHandle(&ipc, va));
  CODE("mem_free_vmm", cuMemFree(va));
  CODE("free_async_vmm", cuMemFreeAsync(va, s1));
  CODE("vmm_retain_handle", cuMemRetainAllocationHandle(&again, (void*)(uintptr_t)(va + 4096)));
  YES("vmm_retained_handle_same", again == h);
  MUST(cuMemRelease(again));
  CODE("vmm_retain_plain", cuMemRetainAllocationHandle(&again, (void*)(uintptr_t)word_a));
  CODE("vmm_release_while_mapped", cuMemRelease(h));
  YES("vmm_charged_after_release", used() - before >= 32 * MIB);
  CODE("vmm_usable_after_release", cuMemsetD8(va, 2, 16));
  CODE("vmm_address_free_while_mapped", cuMemAddressFree(va, 64 * MIB));
  CODE("vmm_unmap_part", cuMemUnmap(va, 2 * MIB));
  CODE("vmm_unmap_beyond", cuMemUnmap(va, 64 * MIB));
  MUST(slow_write(s1, word_a, 1, MS100));
  TIMED("vmm_set_access_beside_kernel", cuMemSetAccess(va, 36 * MIB, &access, 1));
  sync_all();
  MUST(slow_write(s1, word_a, 1, MS100));
  TIMED("vmm_unmap_both_beside_kernel", cuMemUnmap(va, 36 * MIB));
  sync_all();
  CODE("vmm_unmap_again", cuMemUnmap(va, 36 * MIB));
  YES("vmm_charged_after_unmap", used() - before >= 32 * MIB);
  CODE("vmm_map_reserved_again", cuMemMap(va, 4 * MIB, 0, h2, 0));
  MUST(cuMemSetAccess(va, 4 * MIB, &access, 1));
  say("vmm_contents_after_remap", "%d", read_int(va) == 0x01010101);
  CODE("vmm_set_access_none", cuMemSetAccess(va, 4 * MIB, &none, 1));
  CODE("vmm_memset_after_access_none", cuMemsetD8(va, 1, 16));
  int fd = -1;
  CODE("vmm_export_without_handle_type", cuMemExportToShareableHandle(&fd, h2, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  MUST(cuMemUnmap(va, 4 * MIB));
  MUST(cuMemRelease(h2));
  CODE("vmm_address_free_part", cuMemAddressFree(va, 32 * MIB));
  CODE("vmm_address_free", cuMemAddressFree(va, 64 * MIB));
  CODE("vmm_address_free_double", cuMemAddressFree(va, 64 * MIB));
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  MUST(cuMemCreate(&h, 2 * MIB, &prop, 0));
  CODE("vmm_export_fd", cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  CODE("vmm_import_fd_same_process", cuMemImportFromShareableHandle(&h2, (void*)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  YES("vmm_imported_handle_same", h == h2);
  close(fd);
  cuMemRelease(h2);
  MUST(cuMemRelease(h));
}

/* ---- sharing ---- */

static void hex(const void* data, size_t n, char* out) {
  for (size_t i = 0; i < n; ++i) sprintf(out + 2 * i, "%02x", ((const unsigned char*)data)[i]);
}
static int run_self(const char* what, const char* arg) {
  fflush(stdout);
  pid_t pid = fork();
  if (!pid) {
    execl(self, self, what, arg, (char*)NULL);
    _exit(99);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}
static void ipc(void) {
  CUdeviceptr p = alloc(1000), q = alloc(1000), large = alloc(64 * MIB), out;
  CUipcMemHandle a, b, c, d;
  MUST(cuIpcGetMemHandle(&a, p));
  MUST(cuIpcGetMemHandle(&b, q));
  MUST(cuIpcGetMemHandle(&c, p + 512));
  YES("ipc_small_neighbours_same_handle", !memcmp(&a, &b, sizeof a));
  YES("ipc_small_interior_same_handle", !memcmp(&a, &c, sizeof a));
  MUST(cuIpcGetMemHandle(&c, large));
  MUST(cuIpcGetMemHandle(&d, large + 4 * MIB));
  YES("ipc_large_interior_same_handle", !memcmp(&c, &d, sizeof c));
  CODE("ipc_open_own_handle", cuIpcOpenMemHandle(&out, c, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  CODE("ipc_handle_of_unknown", cuIpcGetMemHandle(&d, 0x123456789000ull));
  CODE("ipc_handle_of_0", cuIpcGetMemHandle(&d, 0));
  CODE("ipc_close_unknown", cuIpcCloseMemHandle(0x123456789000ull));
  CODE("ipc_close_plain", cuIpcCloseMemHandle(large));
  MUST(cuMemsetD32(q, 11, 250));
  MUST(cuMemsetD32(large, 22, 16 * MIB));
  sync_all();
  char text[129];
  hex(&b, sizeof b, text);
  say("ipc_child_small", "%d", run_self("ipc-child-small", text));
  say("ipc_child_small_wrote", "%d", read_int(q));
  hex(&c, sizeof c, text);
  say("ipc_child_large", "%d", run_self("ipc-child-large", text));
  say("ipc_child_large_wrote", "%d", read_int(large));
  MUST(cuMemFree(large));
  CUdeviceptr next = alloc(64 * MIB);
  MUST(cuIpcGetMemHandle(&d, next));
  YES("ipc_handle_same_after_realloc", next == large && !memcmp(&c, &d, sizeof c));
  MUST(cuMemFree(next));
  MUST(cuMemFree(q));
  MUST(cuMemFree(p));
  CODE("ipc_handle_of_freed", cuIpcGetMemHandle(&d, p));
  int fd = -1;
  p = alloc(4 * MIB);
  int supported = 0;
  MUST(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, dev));
  say("dma_buf_supported", "%d", supported);
  CODE("dma_buf_odd_size", cuMemGetHandleForAddressRange(&fd, p, 100, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
  CUresult r = cuMemGetHandleForAddressRange(&fd, p, 4 * MIB, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
  CODE("dma_buf", r);
  if (!r) close(fd);
  MUST(cuMemFree(p));
}
/* the other process: exits with 0 if it saw what was written */
static int ipc_child(int large, const char* text) {
  CUipcMemHandle handle;
  for (size_t i = 0; i < sizeof handle; ++i) {
    unsigned byte;
    sscanf(text + 2 * i, "%2x", &byte);
    handle.reserved[i] = (char)byte;
  }
  CUdeviceptr p, again, base;
  size_t size;
  alarm(30);
  MUST(cuInit(0));
  MUST(cuDeviceGet(&dev, 0));
  MUST(cuDevicePrimaryCtxRetain(&primary, dev));
  MUST(cuCtxSetCurrent(primary));
  const char* tag = large ? "large" : "small";
  CUresult r = cuIpcOpenMemHandle(&p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  printf("ipc_%s_open: %s\n", tag, name(r));
  if (r) return 1;
  r = cuMemGetAddressRange(&base, &size, p);
  printf("ipc_%s_range: %s, offset %lld, size %zu\n", tag, name(r), (long long)(p - base), size);
  printf("ipc_%s_reads: %d\n", tag, read_int(p));
  r = cuIpcOpenMemHandle(&again, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  printf("ipc_%s_open_twice: %s, %s\n", tag, name(r), r ? "" : p == again ? "same address" : "other address");
  MUST(cuMemsetD32(p, 33, 1));
  sync_all();
  printf("ipc_%s_mem_free: %s\n", tag, name(cuMemFree(p)));
  CUipcMemHandle re;
  printf("ipc_%s_export_again: %s\n", tag, name(cuIpcGetMemHandle(&re, p)));
  attributes_of(large ? "ipc_large" : "ipc_small", p);
  if (!r) printf("ipc_%s_close: %s\n", tag, name(cuIpcCloseMemHandle(again)));
  printf("ipc_%s_close_second: %s\n", tag, name(cuIpcCloseMemHandle(p)));
  printf("ipc_%s_close_third: %s\n", tag, name(cuIpcCloseMemHandle(p)));
  fflush(stdout);
  return 0;
}

/* ---- modules ---- */

static void modules(void) {
  CUmodule m;
  CUlibrary lib;
  CUkernel k;
  CUfunction f;
  CUdeviceptr p = 0;
  size_t size = 0;
  CODE("module_garbage", cuModuleLoadData(&m, "this is not a module"));
  MUST(cuModuleLoadData(&m, SIMGPU_PTX_GLOBALS));
  CODE("module_unknown_function", cuModuleGetFunction(&f, m, "nothing"));
  CODE("module_unknown_global", cuModuleGetGlobal(&p, &size, m, "nothing"));
  MUST(cuModuleGetGlobal(&p, &size, m, "device_word"));
  say("module_global", "size %zu, value %d", size, read_int(p));
  CODE("module_global_free", cuMemFree(p));
  attributes_of("module_global", p);
  CUdeviceptr base;
  size_t range = 0;
  CUresult r = cuMemGetAddressRange(&base, &range, p);
  say("range_module_global", "%s%s", name(r), r ? "" : base == p && range == size ? ", exact" : ", other");
  MUST(cuModuleGetGlobal(&p, &size, m, "managed_word"));
  say("module_managed", "size %zu, value %d", size, *(int*)(uintptr_t)p);
  unsigned managed = 9;
  MUST(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, p));
  say("module_managed_attribute", "%u", managed);
  CODE("module_managed_free", cuMemFree(p));
  MUST(cuModuleUnload(m));
  MUST(cuLibraryLoadData(&lib, SIMGPU_PTX_GLOBALS, NULL, NULL, 0, NULL, NULL, 0));
  MUST(cuLibraryGetManaged(&p, &size, lib, "managed_word"));
  say("library_managed", "size %zu, value %d", size, *(int*)(uintptr_t)p);
  CODE("library_managed_of_plain", cuLibraryGetManaged(&p, &size, lib, "device_word"));
  MUST(cuLibraryGetGlobal(&p, &size, lib, "device_word"));
  say("library_global", "size %zu, value %d", size, read_int(p));
  MUST(cuLibraryGetKernel(&k, lib, "copy"));
  MUST(cuKernelGetFunction(&f, k));
  zero();
  int n = 1;
  void* args[] = {&word_b, &p, &n};
  MUST(launch((CUfunction)k, s1, args));
  sync_all();
  say("launch_by_kernel_handle", "%d", read_int(word_b));
  CODE("library_unload", cuLibraryUnload(lib));
  CODE("launch_grid_0", cuLaunchKernel(kernel[COPY], 0, 1, 1, 1, 1, 1, 0, s1, args, NULL));
  CUdeviceptr ints = alloc(4096), total = alloc(8);
  int v = 3, count = 1000;
  long long clocks = 1, result = 0;
  void* fill[] = {&ints, &count, &v, &clocks};
  void* add[] = {&ints, &ints, &ints, &count};
  void* sum[] = {&total, &ints, &count};
  MUST(launch(kernel[SLOW_FILL], s1, fill));
  MUST(launch(kernel[ADD], s1, add));
  MUST(launch(kernel[SUM], s1, sum));
  sync_all();
  MUST(cuMemcpyDtoH(&result, total, 8));
  say("kernels_fill_add_sum", "%lld", result);
  MUST(cuMemFree(ints));
  MUST(cuMemFree(total));
}

/* ---- more than one context ---- */

static CUcontext second;
static CUresult thread_result[4];
static void* with_destroyed_context(void* arg) {
  CUdeviceptr p;
  CUcontext ctx = NULL;
  pthread_barrier_t* at = arg;
  cuCtxSetCurrent(second);
  pthread_barrier_wait(at);
  pthread_barrier_wait(at); /* destroyed by the other thread */
  thread_result[0] = cuMemAlloc(&p, 4096);
  thread_result[1] = cuCtxGetCurrent(&ctx);
  thread_result[2] = cuMemFree(0);
  thread_result[3] = ctx == second ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
  return NULL;
}
static void* without_context(void* arg) {
  (void)arg;
  CUdeviceptr p;
  size_t size;
  unsigned u;
  thread_result[0] = cuCtxRecordEvent(primary, ev);
  thread_result[1] = cuMemGetAddressRange(&p, &size, word_a);
  thread_result[2] = cuPointerGetAttribute(&u, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, word_a);
  thread_result[3] = cuMemFree(word_a);
  return NULL;
}
static void contexts(void) {
  CUctxCreateParams params;
  CUstream st;
  CUevent foreign;
  CUdeviceptr p, q, theirs;
  CUcontext ctx;
  unsigned long long id1, id2;
  on_thread(without_context, NULL);
  CODE("thread_without_context_ctx_record_event", thread_result[0]);
  CODE("thread_without_context_address_range", thread_result[1]);
  CODE("thread_without_context_pointer_attribute", thread_result[2]);
  CODE("thread_without_context_mem_free", thread_result[3]);
  if (!thread_result[3]) MUST(cuMemAlloc(&word_a, 4));
  memset(&params, 0, sizeof params);
  size_t before = used();
  CODE("second_context", cuCtxCreate(&second, &params, 0, dev));
  YES("second_context_costs_memory", used() - before > 32 * MIB);
  MUST(cuCtxGetId(primary, &id1));
  MUST(cuCtxGetId(second, &id2));
  YES("context_ids_differ", id1 != id2);
  CUfunction mine[KERNELS];
  memcpy(mine, kernel, sizeof mine);
  load_kernels();
  MUST(cuStreamCreate(&st, CU_STREAM_NON_BLOCKING));
  {
    CUdeviceptr w = word_a;
    int v = 0;
    long long clocks = 1;
    void* args[] = {&w, &v, &clocks};
    CODE("launch_function_of_other_context", launch(mine[SLOW_WRITE], st, args));
    sync_all();
  }
  MUST(cuEventCreate(&foreign, CU_EVENT_DISABLE_TIMING));
  theirs = alloc(4 * MIB);
  MUST(slow_write(st, theirs, 1, 1));
  sync_all();
  MUST(cuCtxPopCurrent(NULL));
  p = alloc(4 * MIB);
  MUST(cuCtxPushCurrent(second));
  MUST(slow_write(st, theirs, 1, MS100));
  MUST(cuCtxPopCurrent(NULL));
  TIMED("free_in_primary_beside_kernel_in_second", cuMemFree(p));
  MUST(cuCtxPushCurrent(second));
  sync_all();
  MUST(cuCtxPopCurrent(NULL));
  /* the owner's work counts, not the current context's */
  q = alloc(4 * MIB);
  CUfunction other[KERNELS];
  memcpy(other, kernel, sizeof other);
  memcpy(kernel, mine, sizeof mine);
  MUST(slow_write(s1, word_a, 1, MS100));
  MUST(cuCtxPushCurrent(second));
  TIMED("free_of_primary_memory_with_second_current_beside_kernel_in_primary", cuMemFree(q));
  MUST(cuCtxPopCurrent(NULL));
  sync_all();
  memcpy(kernel, other, sizeof other);
  q = alloc(4 * MIB);
  MUST(cuCtxPushCurrent(second));
  MUST(slow_write(st, theirs, 1, MS100));
  TIMED("free_of_primary_memory_with_second_current_beside_kernel_in_second", cuMemFree(q));
  sync_all();
  MUST(cuCtxPopCurrent(NULL));
  CODE("ctx_record_event_of_other_context", cuCtxRecordEvent(primary, foreign));
  CODE("ctx_record_event_in_other_context", cuCtxRecordEvent(second, ev));
  CODE("ctx_record_event_second_with_primary_current", cuCtxRecordEvent(second, foreign));
  CODE("ctx_wait_event_of_other_context", cuCtxWaitEvent(primary, foreign));
  CODE("range_of_other_context", cuMemGetAddressRange(&p, &(size_t){0}, theirs));
  pthread_barrier_t at;
  pthread_barrier_init(&at, NULL, 2);
  pthread_t t;
  pthread_create(&t, NULL, with_destroyed_context, &at);
  pthread_barrier_wait(&at);
  CODE("ctx_destroy", cuCtxDestroy(second));
  pthread_barrier_wait(&at);
  pthread_join(t, NULL);
  CODE("destroyed_current_mem_alloc", thread_result[0]);
  CODE("destroyed_current_get_current", thread_result[1]);
  CODE("destroyed_current_mem_free_0", thread_result[2]);
  YES("destroyed_current_get_current_same", thread_result[3] == CUDA_SUCCESS);
  CODE("free_memory_of_destroyed_context", cuMemFree(theirs));
  CODE("attribute_memory_of_destroyed_context", cuPointerGetAttribute(&id1, CU_POINTER_ATTRIBUTE_BUFFER_ID, theirs));
  YES("destroyed_context_memory_given_back", used() <= before + 8 * MIB);
  memcpy(kernel, mine, sizeof mine);
  MUST(cuCtxGetCurrent(&ctx));
  YES("current_after_destroy_is_primary", ctx == primary);
}

/* ---- a spoilt context ---- */

static void sticky(void) {
  CUdeviceptr p, keep = alloc(4 * MIB);
  CUstreamCaptureStatus status;
  CUcontext ctx;
  size_t size;
  unsigned u;
  unsigned long long id;
  MUST(slow_write(s1, 0x123456789000ull, 1, 1));
  CODE("fault_synchronize", cuCtxSynchronize());
  CODE("fault_mem_alloc", cuMemAlloc(&p, 4096));
  CODE("fault_mem_free", cuMemFree(keep));
  CODE("fault_mem_free_0", cuMemFree(0));
  CODE("fault_mem_free_unknown", cuMemFree(0x123456789000ull));
  CODE("fault_mem_get_info", cuMemGetInfo(&size, &size));
  CODE("fault_address_range", cuMemGetAddressRange(&p, &size, keep));
  CODE("fault_pointer_attribute", cuPointerGetAttribute(&u, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, keep));
  CODE("fault_ctx_record_event", cuCtxRecordEvent(primary, ev));
  CODE("fault_ctx_wait_event", cuCtxWaitEvent(primary, ev));
  CODE("fault_event_query", cuEventQuery(ev));
  CODE("fault_event_destroy", cuEventDestroy(ev));
  CODE("fault_stream_query", cuStreamQuery(s1));
  CODE("fault_is_capturing", cuStreamIsCapturing(s1, &status));
  CODE("fault_get_current", cuCtxGetCurrent(&ctx));
  CODE("fault_ctx_get_id", cuCtxGetId(primary, &id));
  CODE("fault_stream_get_id", cuStreamGetId(s1, &id));
  CODE("fault_launch", slow_write(s1, keep, 1, 1));
  CODE("fault_mem_create", cuMemCreate(&(CUmemGenericAllocationHandle){0}, 2 * MIB, &(CUmemAllocationProp){CU_MEM_ALLOCATION_TYPE_PINNED, 0, {CU_MEM_LOCATION_TYPE_DEVICE, 0}, 0, {0, 0, 0, {0}}}, 0)); /* guess */
  CODE("fault_reset", cuDevicePrimaryCtxReset(dev)); /* guess */
}
static void sticky_freed(void) {
  CUdeviceptr p = alloc(64 * MIB);
  MUST(cuMemFree(p));
  MUST(slow_write(s1, p, 1, 1));
  CODE("kernel_on_freed_memory", cuCtxSynchronize());
}

/* ---- what may end badly: one process a fact ---- */

static void begin(int context) {
  MUST(cuInit(0));
  MUST(cuDeviceGet(&dev, 0));
  if (context) make_context();
}
static CUmemGenericAllocationHandle small_physical(void) {
  CUmemGenericAllocationHandle h;
  CUmemAllocationProp prop = device_memory();
  MUST(cuMemCreate(&h, 2 * MIB, &prop, 0));
  return h;
}
static CUdeviceptr small_range(void) {
  CUdeviceptr va;
  MUST(cuMemAddressReserve(&va, 2 * MIB, 0, 0, 0));
  return va;
}
static CUresult r_resolve_null_name(void) { void* pfn; return cuGetProcAddress(NULL, &pfn, 12000, 0, NULL); }
static CUresult r_launch_null(void) { void* args[1] = {NULL}; return launch(NULL, s1, args); }
static CUresult r_record_null_event(void) { return cuCtxRecordEvent(primary, NULL); }
static CUresult r_wait_null_event(void) { return cuCtxWaitEvent(primary, NULL); }
static CUresult r_map_unknown_handle(void) { return cuMemMap(small_range(), 2 * MIB, 0, 0x12345, 0); }
static CUresult r_release_unknown(void) { return cuMemRelease(0x12345); }
static CUresult r_release_double(void) {
  CUmemGenericAllocationHandle h = small_physical();
  MUST(cuMemRelease(h));
  return cuMemRelease(h);
}
static CUresult r_map_released(void) {
  CUmemGenericAllocationHandle h = small_physical();
  MUST(cuMemRelease(h));
  return cuMemMap(small_range(), 2 * MIB, 0, h, 0);
}
static CUresult r_map_freed_range(void) {
  CUmemGenericAllocationHandle h = small_physical();
  CUdeviceptr va = small_range();
  MUST(cuMemAddressFree(va, 2 * MIB));
  return cuMemMap(va, 2 * MIB, 0, h, 0);
}
static CUresult r_ipc_open_zeros(void) {
  CUipcMemHandle h;
  CUdeviceptr p;
  memset(&h, 0, sizeof h);
  return cuIpcOpenMemHandle(&p, h, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
}
static CUresult r_destroy_primary(void) { return cuCtxDestroy(primary); }
static CUcontext destroyed_context(void) {
  CUctxCreateParams params;
  CUcontext c;
  memset(&params, 0, sizeof params);
  MUST(cuCtxCreate(&c, &params, 0, dev));
  MUST(cuCtxDestroy(c));
  return c;
}
static CUresult r_id_of_destroyed(void) { unsigned long long id; return cuCtxGetId(destroyed_context(), &id); }
static CUresult r_record_destroyed(void) { return cuCtxRecordEvent(destroyed_context(), ev); }
static CUresult r_set_destroyed(void) { return cuCtxSetCurrent(destroyed_context()); }
static CUresult r_reset_record(void) { MUST(cuDevicePrimaryCtxReset(dev)); return cuCtxRecordEvent(primary, ev); }
static CUresult r_reset_event_query(void) { MUST(cuDevicePrimaryCtxReset(dev)); return cuEventQuery(ev); }
static CUresult r_reset_stream_id(void) { unsigned long long id; MUST(cuDevicePrimaryCtxReset(dev)); return cuStreamGetId(s1, &id); }
static CUresult r_reset_old_kernel(void) {
  MUST(cuDevicePrimaryCtxReset(dev));
  MUST(cuDevicePrimaryCtxRetain(&primary, dev));
  MUST(cuCtxSetCurrent(primary));
  return slow_write(NULL, word_a, 1, 1);
}
static CUresult r_stream_destroy_legacy(void) { return cuStreamDestroy(NULL); }
static CUresult r_stream_destroy_twice(void) { MUST(cuStreamDestroy(s1)); return cuStreamDestroy(s1); }
static CUresult r_stream_query_destroyed(void) { MUST(cuStreamDestroy(s1)); return cuStreamQuery(s1); }
static CUresult r_event_query_destroyed(void) { MUST(cuEventDestroy(ev)); return cuEventQuery(ev); }
static CUresult r_destroy_capturing(void) {
  MUST(cuStreamBeginCapture(s1, CU_STREAM_CAPTURE_MODE_GLOBAL));
  return cuStreamDestroy(s1);
}
static CUresult r_alloc_after_destroy_capturing(void) { CUdeviceptr p; MUST(r_destroy_capturing()); return cuMemAlloc(&p, 4096); }
static CUresult r_sync_after_destroy_capturing(void) { MUST(r_destroy_capturing()); return cuCtxSynchronize(); }
static CUresult r_sync_after_other_thread(void) { end_on_other_thread(); return cuCtxSynchronize(); }
static CUresult r_alloc_after_other_thread(void) { CUdeviceptr p; end_on_other_thread(); return cuMemAlloc(&p, 4096); }
static CUresult r_graph_after_other_thread(void) {
  CUgraph g;
  CUgraphExec exec;
  end_on_other_thread();
  MUST(cuStreamBeginCapture(s1, CU_STREAM_CAPTURE_MODE_GLOBAL));
  MUST(slow_write(s1, word_a, 5, 1));
  MUST(cuStreamEndCapture(s1, &g));
  MUST(cuGraphInstantiate(&exec, g, 0));
  return cuGraphLaunch(exec, s1);
}
static CUresult r_record_after_destroy_capturing(void) { MUST(r_destroy_capturing()); return cuCtxRecordEvent(primary, ev); }
struct risk { const char* n; CUresult (*f)(void); };
/* all guesses */
static const struct risk risks[] = {
  {"resolve_null_name", r_resolve_null_name}, {"launch_null", r_launch_null}, {"ctx_record_event_null_event", r_record_null_event},
  {"ctx_wait_event_null_event", r_wait_null_event}, {"vmm_map_unknown_handle", r_map_unknown_handle}, {"vmm_release_unknown", r_release_unknown},
  {"vmm_release_double", r_release_double}, {"vmm_map_released_handle", r_map_released}, {"vmm_map_freed_range", r_map_freed_range},
  {"ipc_open_zeros", r_ipc_open_zeros}, {"ctx_destroy_primary", r_destroy_primary}, {"ctx_get_id_destroyed", r_id_of_destroyed},
  {"ctx_record_event_destroyed_context", r_record_destroyed}, {"ctx_set_current_destroyed", r_set_destroyed}, {"reset_ctx_record_event", r_reset_record},
  {"reset_event_query", r_reset_event_query}, {"reset_stream_get_id", r_reset_stream_id}, {"reset_launch_old_kernel", r_reset_old_kernel},
  {"stream_destroy_legacy", r_stream_destroy_legacy}, {"stream_destroy_twice", r_stream_destroy_twice}, {"stream_query_destroyed", r_stream_query_destroyed},
  {"event_query_destroyed", r_event_query_destroyed}, {"stream_destroy_capturing", r_destroy_capturing},
  {"mem_alloc_after_destroy_capturing", r_alloc_after_destroy_capturing}, {"ctx_synchronize_after_destroy_capturing", r_sync_after_destroy_capturing},
  {"ctx_record_event_after_destroy_capturing", r_record_after_destroy_capturing},
  {"ctx_synchronize_after_end_on_other_thread", r_sync_after_other_thread}, {"mem_alloc_after_end_on_other_thread", r_alloc_after_other_thread},
  {"graph_launch_after_end_on_other_thread", r_graph_after_other_thread},
};
#include "ordered_facts.h"
static const struct { const struct risk* list; size_t count; } risk_lists[] = {
  {risks, sizeof risks / sizeof risks[0]}, {ordered_risks, sizeof ordered_risks / sizeof ordered_risks[0]},
};
static int risk(const char* which) {
  begin(1);
  alarm(10);
  for (size_t l = 0; l < 2; ++l)
    for (size_t i = 0; i < risk_lists[l].count; ++i)
      if (!strcmp(risk_lists[l].list[i].n, which)) CODE(which, risk_lists[l].list[i].f());
  _exit(0);
}
static void run_risks(const struct risk* list, size_t count) { /* a few at a time: making a context takes long on a real device */
  enum { TOGETHER = 9 };
  fflush(stdout);
  for (size_t first = 0; first < count; first += TOGETHER) {
    pid_t pid[TOGETHER];
    int file[TOGETHER];
    for (size_t i = 0; i < TOGETHER && first + i < count; ++i) {
      file[i] = memfd_create("fact", MFD_CLOEXEC);
      pid[i] = fork();
      if (pid[i]) continue;
      dup2(file[i], 1);
      execl(self, self, "risk", list[first + i].n, (char*)NULL);
      _exit(99);
    }
    for (size_t i = 0; i < TOGETHER && first + i < count; ++i) {
      char text[256];
      int status = 0;
      waitpid(pid[i], &status, 0);
      ssize_t n = pread(file[i], text, sizeof text - 1, 0);
      text[n > 0 ? n : 0] = 0;
      close(file[i]);
      fputs(text, stdout);
      if (WIFSIGNALED(status)) say(list[first + i].n, "%s", WTERMSIG(status) == SIGALRM ? "hangs" : "crashes");
    }
  }
}
static void all_risks(void) { run_risks(risk_lists[0].list, risk_lists[0].count); }
static void all_ordered_risks(void) { run_risks(risk_lists[1].list, risk_lists[1].count); }

/* ---- fork, reset, exit ---- */

static void forked(void) {
  cudaFree(NULL); /* the runtime begins before the fork too */
  fflush(stdout);
  pid_t pid = fork();
  if (!pid) {
    CUdeviceptr p = 0;
    CUcontext ctx = NULL;
    int n;
    CODE("forked_mem_alloc", cuMemAlloc(&p, 4096));
    CODE("forked_mem_free", cuMemFree(word_a));
    CODE("forked_mem_free_0", cuMemFree(0));
    CODE("forked_get_current", cuCtxGetCurrent(&ctx));
    CODE("forked_init", cuInit(0));
    CODE("forked_device_count", cuDeviceGetCount(&n));
    RT("forked_runtime_malloc", cudaMalloc((void**)&p, 4096));
    fflush(stdout);
    _exit(0);
  }
  waitpid(pid, NULL, 0);
  CODE("parent_after_fork", cuMemAlloc(&(CUdeviceptr){0}, 4096));
}
static void reset(void) {
  CUdeviceptr plain = alloc(4 * MIB), async, va, p;
  CUmemGenericAllocationHandle h;
  CUmemAllocationProp prop = device_memory();
  CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUcontext ctx = NULL, again = NULL;
  unsigned long long id1 = 0, id2 = 0;
  void* pinned;
  unsigned flags;
  int active;
  MUST(cuMemHostAlloc(&pinned, 4096, 0));
  MUST(cuMemAllocAsync(&async, MIB, s1));
  MUST(cuMemAddressReserve(&va, 2 * MIB, 0, 0, 0));
  MUST(cuMemCreate(&h, 2 * MIB, &prop, 0));
  MUST(cuMemMap(va, 2 * MIB, 0, h, 0));
  MUST(cuMemSetAccess(va, 2 * MIB, &access, 1));
  sync_all();
  MUST(cuCtxGetId(primary, &id1));
  MUST(slow_write(s1, word_a, 1, MS100));
  TIMED("reset_beside_kernel", cuDevicePrimaryCtxReset(dev));
  MUST(cuDevicePrimaryCtxGetState(dev, &flags, &active));
  say("reset_active", "%d", active);
  CODE("reset_get_current", cuCtxGetCurrent(&ctx));
  YES("reset_get_current_same", ctx == primary);
  CODE("reset_mem_alloc", cuMemAlloc(&p, 4096)); /* guess: CONTEXT_IS_DESTROYED */
  CODE("reset_mem_free", cuMemFree(plain));
  CODE("reset_mem_free_0", cuMemFree(0));
  CODE("reset_ctx_get_id", cuCtxGetId(primary, &id2)); /* guess */
  CODE("reset_retain", cuDevicePrimaryCtxRetain(&again, dev));
  YES("reset_same_handle", again == primary);
  MUST(cuCtxSetCurrent(again));
  MUST(cuCtxGetId(again, &id2));
  YES("reset_new_id", id1 != id2);
  CODE("reset_free_old_plain", cuMemFree(plain));
  CODE("reset_free_old_pinned", cuMemFreeHost(pinned));
  CODE("reset_attribute_old_plain", cuPointerGetAttribute(&id1, CU_POINTER_ATTRIBUTE_BUFFER_ID, plain));
  CODE("reset_vmm_memset", cuMemsetD8(va, 1, 16)); /* guess */
  CODE("reset_free_async_memory", cuMemFree(async)); /* guess */
  CODE("reset_vmm_unmap", cuMemUnmap(va, 2 * MIB));
  CODE("reset_vmm_release", cuMemRelease(h));
  CODE("reset_vmm_address_free", cuMemAddressFree(va, 2 * MIB));
  CODE("release_1", cuDevicePrimaryCtxRelease(dev));
  MUST(cuDevicePrimaryCtxGetState(dev, &flags, &active));
  say("release_1_active", "%d", active); /* how many references a reset leaves */
  CUresult r = cuDevicePrimaryCtxRelease(dev);
  MUST(cuDevicePrimaryCtxGetState(dev, &flags, &active));
  say("release_2", "%s, active %d", name(r), active);
  CODE("release_too_often", cuDevicePrimaryCtxRelease(dev));
  /* leave a working context for the exit handlers (at_exit, registered before cuInit) */
  MUST(cuDevicePrimaryCtxRetain(&primary, dev));
  MUST(cuCtxSetCurrent(primary));
  word_a = alloc(4);
}
static void at_exit(void) { /* registered before cuInit, so it runs after whatever the driver registered */
  CUdeviceptr p;
  CUcontext ctx;
  CODE("at_exit_get_current", cuCtxGetCurrent(&ctx));
  CODE("at_exit_mem_alloc", cuMemAlloc(&p, 4096));
  CODE("at_exit_mem_free", cuMemFree(word_a));
}
static int said_goodbye;
__attribute__((destructor)) static void at_unload(void) {
  if (!said_goodbye) return;
  CUdeviceptr p;
  CODE("at_unload_mem_alloc", cuMemAlloc(&p, 4096));
}

static void before_init(void) {
  int count;
  CODE("before_init_mem_alloc", cuMemAlloc(&word_a, 4));
  CODE("before_init_mem_free_0", cuMemFree(0));
  CODE("before_init_device_count", cuDeviceGetCount(&count));
  CODE("before_init_get_current", cuCtxGetCurrent(&primary));
  CODE("init_flags_1", cuInit(1));
  CODE("init", cuInit(0));
  CODE("init_twice", cuInit(0));
  CODE("device_get_bad", cuDeviceGet(&dev, 1000));
}
static void graph_memory_outlives(void) { /* what a launch left allocated, when the graph is gone */
  for (int async = 0; async < 2; ++async) {
    CUgraph g = NULL;
    CUgraphExec exec;
    CUdeviceptr p = 0;
    MUST(cuStreamBeginCapture(s1, CU_STREAM_CAPTURE_MODE_GLOBAL));
    MUST(cuMemAllocAsync(&p, 64 * MIB, s1));
    MUST(slow_write(s1, p, 6, 1));
    MUST(cuStreamEndCapture(s1, &g));
    MUST(cuGraphInstantiate(&exec, g, 0));
    MUST(cuGraphLaunch(exec, s1));
    sync_all();
    MUST(cuGraphExecDestroy(exec));
    MUST(cuGraphDestroy(g));
    size_t before = used();
    say("graph_memory_outlives", "%d", read_int(p));
    CODE("graph_memory_outlives_free", async ? cuMemFreeAsync(p, s1) : cuMemFree(p));
    sync_all();
    MUST(cuDeviceGraphMemTrim(dev));
    YES("graph_memory_outlives_free_gives_it_back", before - used() >= 64 * MIB);
    CODE("graph_memory_outlives_free_double", async ? cuMemFreeAsync(p, s1) : cuMemFree(p));
  }
}

/* One piece of physical memory at two addresses, its handle long released: what a stitched block is made of. */
static void forked_pool(void) { /* the driver's own pool works in a forked child as far as it needs no driver */
  CUstream s1, s2;
  MUST(cuStreamCreate(&s1, CU_STREAM_NON_BLOCKING));
  MUST(cuStreamCreate(&s2, CU_STREAM_NON_BLOCKING));
  CUdeviceptr live = 0, freed = 0;
  MUST(cuMemAllocAsync(&live, 4096, s1));
  MUST(cuMemAllocAsync(&freed, MIB, s1));
  MUST(cuMemFreeAsync(freed, s1));
  MUST(cuStreamSynchronize(s1));
  CUdeviceptr before = 0;
  MUST(cuMemAllocAsync(&before, MIB, s1));
  MUST(cuMemFreeAsync(before, s1)); /* not synchronised since: its memory is in the pool still */
  fflush(stdout);
  pid_t pid = fork();
  if (!pid) {
    CUdeviceptr p = 0, q = 0;
    CODE("forked_alloc_async", cuMemAllocAsync(&p, 4096, s1));
    CODE("forked_alloc_async_again", cuMemAllocAsync(&q, 4096, s1));
    YES("forked_alloc_async_differs", p && q && p != q);
    CODE("forked_free_async_of_the_childs", cuMemFreeAsync(p, s1));
    CODE("forked_free_async", cuMemFreeAsync(live, s1));
    CODE("forked_free_async_double", cuMemFreeAsync(live, s1));
    CODE("forked_free_async_on_another_stream", cuMemFreeAsync(q, s2));
    CODE("forked_free_async_unknown", cuMemFreeAsync(0x123456789000ull, s1));
    CODE("forked_free_async_null", cuMemFreeAsync(0, s1));
    CODE("forked_free_async_of_plain", cuMemFreeAsync(word_a, s1));
    CODE("forked_alloc_async_that_grows", cuMemAllocAsync(&p, 1024 * MIB, s1));
    CODE("forked_alloc_async_after_that", cuMemAllocAsync(&p, 4096, s1));
    CODE("forked_alloc_async_per_thread", cuMemAllocAsync_ptsz(&p, 4096, NULL));
    CODE("forked_stream_synchronize", cuStreamSynchronize(s1));
    fflush(stdout);
    _exit(0);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  say("forked_child_ended", "%d", status);
  CODE("free_async_after_fork", cuMemFreeAsync(live, s1));
}
static void aliases(void) {
  CUdeviceptr va, two;
  CUmemGenericAllocationHandle h, again = 0;
  CUmemAllocationProp prop = {0};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.location.id = dev;
  CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  size_t before = used();
  MUST(cuMemAddressReserve(&va, 64 * MIB, 0, 0, 0));
  two = va + 32 * MIB;
  for (int i = 0; i < 2; ++i) {
    MUST(cuMemCreate(&h, 4 * MIB, &prop, 0));
    MUST(cuMemMap(va + (size_t)i * 8 * MIB, 4 * MIB, 0, h, 0));
    MUST(cuMemRelease(h));
    MUST(cuMemSetAccess(va + (size_t)i * 8 * MIB, 4 * MIB, &access, 1));
  }
  size_t between = used();
  for (int i = 0; i < 2; ++i) {
    CODE("alias_retain", cuMemRetainAllocationHandle(&again, (void*)(uintptr_t)(va + (size_t)(1 - i) * 8 * MIB)));
    CODE("alias_map", cuMemMap(two + (size_t)i * 4 * MIB, 4 * MIB, 0, again, 0));
    MUST(cuMemRelease(again));
  }
  CODE("alias_memset_without_access", cuMemsetD8(two, 1, 16));
  CODE("alias_set_access_both", cuMemSetAccess(two, 8 * MIB, &access, 1));
  YES("alias_costs_no_memory", used() == between);
  MUST(slow_write(s1, va + 8 * MIB + 4, 77, MS100)); /* at home, seen by the other address in the order of a stream */
  int got = 0;
  MUST(cuMemcpyDtoHAsync(&got, two + 4, 4, s1));
  MUST(cuStreamSynchronize(s1));
  say("alias_sees_home", "%d", got);
  MUST(slow_write(s1, two + 4 * MIB + 4, 88, MS100));
  MUST(cuMemcpyDtoHAsync(&got, va + 4, 4, s1));
  MUST(cuStreamSynchronize(s1));
  say("home_sees_alias", "%d", got);
  MUST(cuMemsetD32Async(two + 4 * MIB - 8, 5, 4, s1));
  MUST(cuMemcpyDtoHAsync(&got, va, 4, s1));
  MUST(cuStreamSynchronize(s1));
  say("alias_across_both", "%d", got);
  CUdeviceptr base = 0;
  size_t size = 0;
  CUresult r = cuMemGetAddressRange(&base, &size, two + 5 * MIB);
  say("alias_range", "%s, offset %lld, size %zu", name(r), r ? 0 : (long long)(base - two), r ? 0 : size);
  CODE("alias_unmap_home", cuMemUnmap(va, 4 * MIB));
  YES("alias_keeps_memory", used() == between);
  CODE("alias_usable_without_home", cuMemsetD8(two + 4 * MIB, 1, 16));
  sync_all();
  CODE("alias_unmap", cuMemUnmap(two, 8 * MIB));
  YES("alias_gone_gives_back", between - used() >= 4 * MIB);
  CODE("alias_unmap_other_home", cuMemUnmap(va + 8 * MIB, 4 * MIB));
  MUST(cuMemAddressFree(va, 64 * MIB));
  YES("alias_nothing_left", used() <= before + 2 * MIB);
}

enum need { NOTHING, DRIVER, CONTEXT, EXIT }; /* EXIT: a context, and exit handlers run */
static const struct { const char* n; void (*f)(void); enum need need; } sections[] = {
  {"before_init", before_init, NOTHING}, {"resolving", resolving, DRIVER}, {"no_context", no_context, DRIVER},
  {"plain", plain, CONTEXT}, {"pointers", pointers, CONTEXT}, {"waiting", waiting, CONTEXT}, {"barriers", barriers, CONTEXT},
  {"host_functions", host_functions, CONTEXT}, {"host_memory", host_memory, CONTEXT}, {"pools", pools, CONTEXT}, {"vmm", vmm, CONTEXT},
  {"ipc", ipc, CONTEXT}, {"modules", modules, CONTEXT}, {"contexts", contexts, CONTEXT}, {"captures", captures, CONTEXT},
  {"capture_ended_by_other_thread", capture_ended_by_other_thread, CONTEXT}, {"capture_and_order", capture_and_order, CONTEXT},
  {"graph_memory", graph_memory, CONTEXT}, {"failing_ends", failing_ends, CONTEXT}, {"sticky", sticky, CONTEXT}, {"sticky_freed", sticky_freed, CONTEXT},
  {"risks", all_risks, NOTHING}, {"forked", forked, CONTEXT}, {"reset", reset, EXIT},
  /* ordered_facts.h */
  {"stream_ids", stream_ids, CONTEXT}, {"stream_waits", stream_waits, CONTEXT}, {"ordered_captures", ordered_captures, CONTEXT},
  {"ordered_graphs", ordered_graphs, CONTEXT}, {"vmm_beside_work", vmm_beside_work, CONTEXT}, {"pool_attributes", pool_attributes, CONTEXT},
  {"pool_lives", pool_lives, CONTEXT}, {"pool_pointers", pool_pointers, CONTEXT}, {"pool_order", pool_order, CONTEXT},
  {"runtime_pools", runtime_pools, CONTEXT}, {"ordered_risks", all_ordered_risks, NOTHING},
  /* not asked of the hardware yet: */
  {"graph_memory_outlives", graph_memory_outlives, CONTEXT}, {"aliases", aliases, CONTEXT},
  {"forked_pool", forked_pool, CONTEXT},
};
static int section(const char* which) {
  for (size_t i = 0; i < sizeof sections / sizeof sections[0]; ++i) {
    if (strcmp(sections[i].n, which)) continue;
    alarm(90); /* nothing here takes that long */
    if (sections[i].need == EXIT) atexit(at_exit);
    if (sections[i].need != NOTHING) begin(sections[i].need != DRIVER);
    sections[i].f();
    fflush(stdout);
    if (sections[i].need != EXIT) _exit(0);
    said_goodbye = 1;
    return 0;
  }
  return 1;
}

int main(int argc, char** argv) {
  ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  self[n > 0 ? n : 0] = 0;
  if (argc == 3 && !strcmp(argv[1], "section")) return section(argv[2]);
  if (argc == 3 && !strcmp(argv[1], "risk")) return risk(argv[2]);
  if (argc == 3 && !strcmp(argv[1], "ipc-child-small")) return ipc_child(0, argv[2]);
  if (argc == 3 && !strcmp(argv[1], "ipc-child-large")) return ipc_child(1, argv[2]);
  for (size_t i = 0; i < sizeof sections / sizeof sections[0]; ++i) {
    int status = run_self("section", sections[i].n);
    if (status >= 1000) say(sections[i].n, "%s", status - 1000 == SIGALRM ? "hangs" : "crashes");
    else if (status && status != BROKEN) say(sections[i].n, "ends with %d", status);
  }
  return 0;
}
