/* What vramscope tells of several devices, and of several contexts of one; and limits that are set before CUDA is used. */
#include "common.h"
#include "vramscope.h"

#define CALL(name, ...) ((__typeof__(name)*)dlsym(RTLD_DEFAULT, #name))(__VA_ARGS__)

static unsigned long mb(uint64_t bytes) { return (unsigned long)(bytes / MB); }
static void say(const char* when, int device) {
  vramscope_stats_t s;
  REQUIRE(CALL(vramscope_stats, device, &s, sizeof s) == 0);
  printf("%s: device %d: allocated %lu (%lu) reserved %lu (%lu) inactive %lu limit %lu\n", when, device, mb(s.allocated), mb(s.allocated_peak),
         mb(s.reserved), mb(s.reserved_peak), mb(s.inactive), mb(s.limit));
}
static void info(int device) {
  size_t free, total, all;
  primary(device);
  MUST(cuMemGetInfo(&free, &total));
  MUST(cuDeviceTotalMem(&all, device));
  printf("device %d: %lu of %lu free, the device %lu\n", device, mb(free), mb(total), mb(all));
}

/* Physical memory of a device whose context is not the current one. */
static int create(int device, size_t bytes, CUmemGenericAllocationHandle* h) {
  CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
  return (int)cuMemCreate(h, bytes, &prop, 0);
}
static void case_elsewhere(void) {
  CUmemGenericAllocationHandle h, more, here;
  primary(1);
  primary(0);
  take(10 * MB);
  REQUIRE(create(1, 64 * MB, &h) == 0);
  say("created", 0);
  say("created", 1);
  REQUIRE(CALL(vramscope_set_limit, 1, 100 * MB, 0) == 0);
  printf("64 MiB of device 1 = %d, of device 0 = %d\n", create(1, 64 * MB, &more), create(0, 64 * MB, &here));
  REQUIRE(CALL(vramscope_set_limit, 0, 80 * MB, 0) == 0);
  printf("32 MiB of device 1 = %d, of device 0 = %d\n", create(1, 32 * MB, &more), create(0, 32 * MB, &here));
  info(0);
  info(1);
  MUST(cuMemRelease(h));
  MUST(cuMemRelease(more));
  say("released", 1);
}

/* Stream-ordered memory is that of the stream's device. */
static void case_stream(void) {
  CUstream s;
  CUdeviceptr p, q, here;
  primary(1);
  take(1);
  MUST(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  primary(0);
  take(10 * MB);
  MUST(cuMemAllocAsync(&p, 64 * MB, s));
  say("taken", 0);
  say("taken", 1);
  REQUIRE(CALL(vramscope_set_limit, 1, 100 * MB, 0) == 0);
  printf("64 MiB of device 1 = %d, of device 0 = %d\n", (int)cuMemAllocAsync(&q, 64 * MB, s), (int)cuMemAllocAsync(&here, 64 * MB, 0));
  MUST(cuMemFreeAsync(p, s));
  MUST(cuMemFreeAsync(here, 0));
  MUST(cuStreamSynchronize(s));
  MUST(cuStreamSynchronize(0));
  CALL(vramscope_empty_cache);
  say("freed", 0);
  say("freed", 1);
}

/* Peaks are of all contexts of a device. */
static void case_contexts(void) {
  CUcontext own, first = primary(0);
  CUdeviceptr a, b;
  a = take(50 * MB);
  MUST(cuCtxCreate(&own, NULL, 0, 0));
  b = take(100 * MB);
  MUST(cuMemFree(b));
  MUST(cuCtxSetCurrent(first));
  b = take(20 * MB);
  say("both", 0);
  MUST(cuMemFree(a));
  CALL(vramscope_empty_cache);
  say("emptied", 0);
  CALL(vramscope_reset_peak, 0);
  MUST(cuCtxSetCurrent(own));
  take(30 * MB);
  say("new peaks", 0);
}

/* Limits of devices that nobody has seen yet. */
static void case_early(void) {
  printf("set %d %d %d\n", CALL(vramscope_set_limit, 0, 0, 0.5), CALL(vramscope_set_limit, 1, 100 * MB, 0), CALL(vramscope_set_limit, 9, MB, 0));
  for (int device = 0; device < 2; ++device) {
    info(device);
    CUdeviceptr p;
    printf("600 MiB = %d, 90 MiB = %d\n", (int)cuMemAlloc(&p, 600 * MB), (int)cuMemAlloc(&p, 90 * MB));
  }
  printf("of device 9 by now %d\n", CALL(vramscope_set_limit, 9, MB, 0));
  REQUIRE(CALL(vramscope_set_limit, 0, 0, 0) == 0);
  info(0);
}

/* Blocks that fit for nothing else, one after the other; the device keeps them up to the threshold. */
static void case_collect(void) {
  primary(0);
  for (int i = 1; i < 6; ++i) {
    CUdeviceptr p;
    MUST(cuMemAllocAsync(&p, (size_t)i * 40 * MB, 0));
    MUST(cuMemFreeAsync(p, 0));
    vramscope_stats_t s;
    REQUIRE(CALL(vramscope_stats, 0, &s, sizeof s) == 0);
    printf("%d: %lu\n", i * 40, mb(s.reserved));
    if (i == 3) REQUIRE(CALL(vramscope_set_limit, 0, 0, 0) == 0);
  }
}

CASES(CASE(elsewhere), CASE(stream), CASE(contexts), CASE(early), CASE(collect))
