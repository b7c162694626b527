/* What a program asks of vramscope and tells it. Without the preload every function is absent. The program checks what is the
 * same in every mode and prints the rest. */
#include "common.h"
#include "vramscope.h"
#include <sys/stat.h>

#define FIND(name) static __typeof__(name)* find_##name(void) { return (__typeof__(name)*)dlsym(RTLD_DEFAULT, #name); }
FIND(vramscope_active)
FIND(vramscope_version)
FIND(vramscope_stats)
FIND(vramscope_reset_peak)
FIND(vramscope_empty_cache)
FIND(vramscope_set_limit)
FIND(vramscope_snapshot)
FIND(vramscope_mark)
FIND(vramscope_region_begin)
FIND(vramscope_region_end)
FIND(vramscope_pause)
FIND(vramscope_resume)
FIND(vramscope_wait_oom)
FIND(vramscope_on_oom)
#define CALL(name, ...) find_##name()(__VA_ARGS__)

static vramscope_stats_t stats_of(int device) {
  vramscope_stats_t s;
  REQUIRE(CALL(vramscope_stats, device, &s, sizeof s) == 0);
  return s;
}
static vramscope_stats_t stats(void) { return stats_of(0); }
static unsigned long mb(uint64_t bytes) { return (unsigned long)(bytes / MB); }
static void say(const char* when) {
  vramscope_stats_t s = stats();
  REQUIRE(s.active == s.allocated && s.inactive == s.reserved - s.active);
  printf("%s: allocated %lu (%lu) reserved %lu (%lu) pool %lu+%lu tensors %lu hoarded %lu pinned %lu, %lu allocations, %lu failures, limit %lu\n", when,
         mb(s.allocated), mb(s.allocated_peak), mb(s.reserved), mb(s.reserved_peak), mb(s.pool_active), mb(s.pool_inactive), mb(s.tensors),
         mb(s.hoarded), mb(s.pinned), (unsigned long)s.allocations, (unsigned long)s.failures, mb(s.limit));
}

static void case_absent(void) {
  primary(0);
  take(MB);
  static const char* const names[] = {"vramscope_active", "vramscope_version", "vramscope_stats", "vramscope_reset_peak", "vramscope_empty_cache", "vramscope_set_limit", "vramscope_snapshot", "vramscope_mark", "vramscope_region_begin", "vramscope_region_end", "vramscope_pause", "vramscope_resume", "vramscope_wait_oom", "vramscope_on_oom"};
  for (size_t i = 0; i < LENGTH(names); ++i) printf("%s %s\n", names[i], dlsym(RTLD_DEFAULT, names[i]) ? "there" : "absent");
}

/* Everything may be called before CUDA is, and then tells nothing. */
static void case_early(void) {
  vramscope_stats_t s;
  printf("active %d version %u\n", CALL(vramscope_active), CALL(vramscope_version));
  printf("stats %d, reset, trim %lu, limit of none %d\n", CALL(vramscope_stats, 0, &s, sizeof s), (unsigned long)CALL(vramscope_empty_cache), CALL(vramscope_set_limit, -1, MB, 0));
  CALL(vramscope_reset_peak, 0);
  CALL(vramscope_reset_peak, -1);
  CALL(vramscope_reset_peak, 1000);
  CALL(vramscope_mark, NULL);
  uint64_t r = CALL(vramscope_region_begin, NULL);
  CALL(vramscope_region_end, r);
  CALL(vramscope_region_end, 0);
  CALL(vramscope_region_end, 12345);
  CALL(vramscope_pause);
  CALL(vramscope_resume);
  CALL(vramscope_on_oom, NULL, NULL);
  printf("failures %lu\n", (unsigned long)CALL(vramscope_wait_oom, 0, 10));
  primary(0);
  take(MB);
  printf("stats %d, null %d, of no device %d %d\n", CALL(vramscope_stats, 0, &s, sizeof s), CALL(vramscope_stats, 0, NULL, sizeof s), CALL(vramscope_stats, 63, &s, sizeof s), CALL(vramscope_stats, -1, &s, sizeof s));
  /* A caller of an older header, and one of a newer. */
  struct { vramscope_stats_t known; uint64_t more[4]; } large;
  memset(&large, 0x55, sizeof large);
  REQUIRE(CALL(vramscope_stats, 0, &large.known, 2 * sizeof(uint64_t)) == 0);
  REQUIRE(large.known.allocated == MB && large.known.reserved == 0x5555555555555555);
  REQUIRE(CALL(vramscope_stats, 0, &large.known, sizeof large) == 0);
  REQUIRE(large.known.reserved >= MB && large.more[0] == 0x5555555555555555);
  printf("limits %d %d %d %d\n", CALL(vramscope_set_limit, 64, MB, 0), CALL(vramscope_set_limit, 0, 0, 1.5), CALL(vramscope_set_limit, 0, 0, 0.0 / 0.0), CALL(vramscope_set_limit, 0, 0, -0.5));
}

static void case_stats(void) {
  primary(0);
  CUdeviceptr plain = take(10 * MB), again, direct = take(300 * MB), managed, async, pitched;
  say("plain");
  size_t pitch;
  void* pinned;
  CUmemGenericAllocationHandle h;
  CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  MUST(cuMemAllocManaged(&managed, 4 * MB, CU_MEM_ATTACH_GLOBAL));
  MUST(cuMemAllocAsync(&async, 6 * MB, 0));
  MUST(cuMemAllocPitch(&pitched, &pitch, 1024, 2048, 4));
  MUST(cuMemHostAlloc(&pinned, 2 * MB, 0));
  MUST(cuMemCreate(&h, 8 * MB, &prop, 0));
  say("all");
  MUST(cuMemFree(direct));
  MUST(cuMemFree(managed));
  MUST(cuMemFreeAsync(async, 0));
  MUST(cuMemFree(pitched));
  MUST(cuMemFreeHost(pinned));
  MUST(cuMemRelease(h));
  say("others gone");
  CALL(vramscope_reset_peak, 0);
  say("new peaks");
  MUST(cuMemFree(plain));
  say("all gone");
  again = take(10 * MB);
  MUST(cuMemFree(again));
  printf("empty_cache %lu\n", mb(CALL(vramscope_empty_cache)));
  say("empty");
  REQUIRE(CALL(vramscope_empty_cache) == 0);
}

/* PyTorch's own allocator inside of its segments. */
static void case_tensors(void) {
  primary(0);
  take(2 * MB);
  void* lib = dlopen("libc10_cuda.so", RTLD_NOW | RTLD_LOCAL);
  REQUIRE(lib);
  void* (*tensor_malloc)(unsigned long);
  void (*tensor_free)(void*);
  *(void**)&tensor_malloc = dlsym(lib, "tensor_malloc");
  *(void**)&tensor_free = dlsym(lib, "tensor_free");
  void* small = tensor_malloc(MB);
  say("one");
  void* large = tensor_malloc(10 * MB);
  say("two");
  tensor_free(large);
  say("freed");
  tensor_free(small);
  say("none");
  CALL(vramscope_pause);
  small = tensor_malloc(MB);
  say("paused");
  CALL(vramscope_resume);
  tensor_free(small);
  say("freed after it");
  CUdevice device;
  MUST(cuCtxGetDevice(&device));
  MUST(cuDevicePrimaryCtxReset(device));
  primary(0);
  take(2 * MB);
  say("context reset");
}

static void alloc_all(size_t bytes, int expect) {
  CUdeviceptr p;
  size_t pitch;
  CUmemoryPool pool;
  CUmemGenericAllocationHandle h = 0;
  CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  MUST(cuDeviceGetDefaultMemPool(&pool, 0));
/* What is refused leaves a 0 behind, as the driver does. */
#define TRY(call, undo)                                   \
  do {                                                    \
    p = 0xdead;                                           \
    int code = (int)(call);                               \
    if (code != expect) printf("%s = %d\n", #call, code); \
    if (!code) undo;                                      \
    if (code && p) printf("%s leaves %#llx\n", #call, (unsigned long long)p); \
  } while (0)
  TRY(cuMemAlloc(&p, bytes), MUST(cuMemFree(p)));
  TRY(cuMemAllocPitch(&p, &pitch, 1024, bytes / 1024, 4), MUST(cuMemFree(p)));
  TRY(cuMemAllocManaged(&p, bytes, CU_MEM_ATTACH_GLOBAL), MUST(cuMemFree(p)));
  TRY(cuMemAllocAsync(&p, bytes, 0), MUST(cuMemFreeAsync(p, 0)));
  TRY(cuMemAllocFromPoolAsync(&p, bytes, pool, 0), MUST(cuMemFreeAsync(p, 0)));
  p = 0;
  if (expect) REQUIRE(cuMemCreate(&h, bytes, &prop, 0) == (CUresult)expect && h == 0);
  if (!expect) {
    MUST(cuMemCreate(&h, bytes, &prop, 0));
    MUST(cuMemRelease(h));
  }
  void* host;
  MUST(cuMemHostAlloc(&host, bytes, 0)); /* of the host's */
  MUST(cuMemFreeHost(host));
}

static void info(const char* when) {
  size_t free, total, device;
  MUST(cuMemGetInfo(&free, &total));
  MUST(cuDeviceTotalMem(&device, 0));
  printf("%s: %lu of %lu free, the device %lu\n", when, mb(free), mb(total), mb(device));
}

static void case_limit(void) {
  primary(0);
  CUdeviceptr a = take(60 * MB), b = 0xdead, c;
  REQUIRE(CALL(vramscope_set_limit, 0, 100 * MB, 0) == 0);
  info("limited");
  alloc_all(60 * MB, 2);
  alloc_all(20 * MB, 0);
  SAY(cuMemAlloc(&b, 60 * MB));
  REQUIRE(b == 0);
  MUST(cuMemFree(a)); /* the pool keeps it, and gives it back before anything fails */
  info("freed");
  SAY(cuMemAlloc(&b, 80 * MB));
  info("full");
  SAY(cuMemAlloc(&c, 30 * MB));
  MUST(cuMemFree(b));
  SAY(cuMemAlloc(&c, 30 * MB));
  MUST(cuMemFree(c));
  alloc_all(90 * MB, 0);
  REQUIRE(CALL(vramscope_set_limit, 0, 0, 0.25) == 0);
  info("a quarter");
  alloc_all(300 * MB, 2);
  SAY(cuMemAlloc(&c, 200 * MB));
  MUST(cuMemFree(c));
  REQUIRE(CALL(vramscope_set_limit, 0, 0, 0) == 0);
  size_t free, total;
  MUST(cuMemGetInfo(&free, &total));
  printf("none: %lu\n", mb(total));
  alloc_all(300 * MB, 0);
}

/* What VRAMSCOPE_LIMIT makes of two devices. */
static void case_set(void) {
  for (int device = 0; device < 2; ++device) {
    size_t before, free, total;
    MUST(cuInit(0));
    MUST(cuDeviceTotalMem(&before, device));
    primary(device);
    CUdeviceptr p = take(MB), q;
    MUST(cuMemGetInfo(&free, &total));
    int code = cuMemAlloc(&q, 250 * MB);
    printf("device %d: %lu MiB, info %lu MiB, 250 MiB = %d, limit %lu MiB\n", device, mb(before), mb(total), code, mb(stats_of(device).limit));
    MUST(cuMemFree(p));
  }
}

static void* in_thread(void* name) {
  uint64_t r = CALL(vramscope_region_begin, name);
  MUST(cuCtxSetCurrent(primary(0)));
  take(MB);
  CALL(vramscope_region_end, r);
  return NULL;
}
static void* ends_it(void* theirs) {
  uint64_t own[3];
  for (int i = 0; i < 3; ++i) own[i] = CALL(vramscope_region_begin, "own");
  REQUIRE(own[0] != *(uint64_t*)theirs && own[1] != *(uint64_t*)theirs && own[2] != *(uint64_t*)theirs);
  CALL(vramscope_region_end, *(uint64_t*)theirs);
  for (int i = 0; i < 3; ++i) CALL(vramscope_region_end, own[i]);
  return NULL;
}
static void case_labels(void) {
  uint64_t early = CALL(vramscope_region_begin, "early"), empty;
  primary(0);
  CALL(vramscope_mark, "epoch 3");
  uint64_t outer = CALL(vramscope_region_begin, "outer");
  for (int i = 0; i < 3; ++i) {
    empty = CALL(vramscope_region_begin, "nothing happens");
    CALL(vramscope_region_end, empty);
  }
  uint64_t inner = CALL(vramscope_region_begin, "inn\"er \xc3\xa9");
  CUdeviceptr p = take(MB);
  CALL(vramscope_region_end, inner);
  CALL(vramscope_mark, "epoch 3");
  pthread_t t;
  pthread_create(&t, NULL, ends_it, &outer); /* another thread's */
  pthread_join(t, NULL);
  pthread_create(&t, NULL, in_thread, "other thread");
  pthread_join(t, NULL);
  CALL(vramscope_region_end, outer);
  /* Left in the wrong order. */
  uint64_t first = CALL(vramscope_region_begin, "first"), second = CALL(vramscope_region_begin, "second");
  MUST(cuMemFree(p));
  CALL(vramscope_region_end, first);
  take(3 * MB);
  CALL(vramscope_region_end, second);
  /* Deeper than is followed; and a name longer than is kept. */
  uint64_t deep[80];
  for (int i = 0; i < 80; ++i) deep[i] = CALL(vramscope_region_begin, "deep");
  for (int i = 79; i >= 0; --i) CALL(vramscope_region_end, deep[i]);
  char name[500];
  memset(name, 'x', sizeof name);
  name[sizeof name - 1] = 0;
  uint64_t lengthy = CALL(vramscope_region_begin, name);
  take(5 * MB);
  CALL(vramscope_region_end, lengthy);
  CALL(vramscope_region_end, early);
}

/* A pair of calls without anything in it. */
static void case_cost(void) {
  primary(0);
  take(MB);
  struct timespec t0, t1;
  for (int round = 0; round < 2; ++round) {
    clock_gettime(CLOCK_MONOTONIC, &t0);
    for (int i = 0; i < 1000000; ++i) CALL(vramscope_region_end, 0);
    clock_gettime(CLOCK_MONOTONIC, &t1);
  }
  __typeof__(vramscope_region_begin)* begin = find_vramscope_region_begin();
  __typeof__(vramscope_region_end)* end = find_vramscope_region_end();
  clock_gettime(CLOCK_MONOTONIC, &t0);
  for (int i = 0; i < 1000000; ++i) end(begin("aten::add, seq = 17, op_id = 4711"));
  clock_gettime(CLOCK_MONOTONIC, &t1);
  fprintf(stderr, "%.0f ns a pair\n", ((double)(t1.tv_sec - t0.tv_sec) * 1e9 + (double)(t1.tv_nsec - t0.tv_nsec)) / 1e6);
}

static void case_pause(void) {
  CALL(vramscope_pause);
  primary(0);
  take(7 * MB);
  CALL(vramscope_resume);
  take(MB);
  CALL(vramscope_pause);
  CUdeviceptr p = take(3 * MB);
  uint64_t r = CALL(vramscope_region_begin, "unseen");
  CALL(vramscope_mark, "unseen");
  CALL(vramscope_region_end, r);
  MUST(cuMemFree(p));
  CALL(vramscope_resume);
  take(5 * MB);
  CALL(vramscope_mark, "seen");
  REQUIRE(CALL(vramscope_snapshot, "paused.snapshot") == 0);
}

static void case_snapshot(void) {
  primary(0);
  take(3 * MB);
  MUST(cuMemFree(take(5 * MB)));
  printf("snapshot %d, in no folder %d, null %d\n", CALL(vramscope_snapshot, "live.snapshot"), CALL(vramscope_snapshot, "no/such/folder"), CALL(vramscope_snapshot, NULL));
  REQUIRE(mkfifo("pipe", 0600) == 0);
  printf("device %d, pipe %d, folder %d\n", CALL(vramscope_snapshot, "/dev/null"), CALL(vramscope_snapshot, "pipe"), CALL(vramscope_snapshot, "."));
}

static int called;
static void on_oom(void* data, int device, uint64_t asked) {
  ++*(int*)data;
  printf("called: device %d, %lu MiB\n", device, mb(asked));
}
static void* waits(void* seen) {
  uint64_t now = CALL(vramscope_wait_oom, *(uint64_t*)seen, 20000);
  printf("woken at %lu\n", (unsigned long)now);
  return NULL;
}
static void case_oom(void) {
  primary(0);
  take(MB);
  CUdeviceptr p;
  uint64_t seen = CALL(vramscope_wait_oom, 0, 0);
  REQUIRE(seen == 0 && CALL(vramscope_wait_oom, 0, 50) == 0);
  CALL(vramscope_on_oom, on_oom, &called);
  SAY(cuMemAlloc(&p, 2000 * MB));
  REQUIRE(called == 1 && CALL(vramscope_wait_oom, 0, -1) == 1);
  CALL(vramscope_on_oom, NULL, NULL);
  seen = 1;
  pthread_t t;
  pthread_create(&t, NULL, waits, &seen);
  usleep(50000);
  REQUIRE(cuMemAlloc(&p, 2000 * MB) == 2);
  pthread_join(t, NULL);
  /* What failed is no allocation. */
  REQUIRE(called == 1 && stats().failures == 2 && stats().allocations == 1);
}

static void case_fork(void) {
  primary(0);
  take(MB);
  uint64_t r = CALL(vramscope_region_begin, "parent");
  pid_t child = fork();
  if (!child) {
    vramscope_stats_t s;
    printf("child: active %d stats %d trim %lu limit %d snapshot %d\n", CALL(vramscope_active), CALL(vramscope_stats, 0, &s, sizeof s), (unsigned long)CALL(vramscope_empty_cache), CALL(vramscope_set_limit, 0, MB, 0), CALL(vramscope_snapshot, "child.snapshot"));
    CALL(vramscope_mark, "child");
    CALL(vramscope_region_end, CALL(vramscope_region_begin, "child"));
    CALL(vramscope_region_end, r);
    CALL(vramscope_reset_peak, 0);
    exit(0);
  }
  int status;
  waitpid(child, &status, 0);
  CALL(vramscope_region_end, r);
  printf("child ended with %d, parent: active %d\n", WEXITSTATUS(status), CALL(vramscope_active));
}

static void case_off(void) {
  primary(0);
  take(MB);
  vramscope_stats_t s;
  printf("active %d stats %d limit %d snapshot %d region %d\n", CALL(vramscope_active), CALL(vramscope_stats, 0, &s, sizeof s), CALL(vramscope_set_limit, 0, MB, 0), CALL(vramscope_snapshot, "x"), CALL(vramscope_region_begin, "x") != 0);
}

CASES(CASE(absent), CASE(early), CASE(stats), CASE(tensors), CASE(limit), CASE(set), CASE(labels), CASE(cost), CASE(pause), CASE(snapshot), CASE(oom), CASE(fork), CASE(off))
