/* A random program with stream-ordered memory: `ordered_random SEED THREADS OPERATIONS CAPTURE`. Each thread works on blocks
 * of its own, on streams of its own that come and go, on streams that all share, on the legacy and on its own default stream. It
 * keeps the rules of stream-ordered memory (a use is ordered behind the allocation, the free behind every use) and knows what
 * each block must hold. So a block that is handed out before its last work is done is read as a wrong number. */
#include "common.h"

enum { BLOCKS = 20, SHARED = 3, OWN = 3, STREAMS = SHARED + OWN + 2, THREADS = 8, SHOWN = 16 };
enum { SETTLED = -1 };
struct Block {
  CUdeviceptr p;
  size_t bytes;
  int n;      /* ints that are looked at */
  int value;  /* all of them */
  int stream; /* where its last work is, or SETTLED: the host has waited for it */
};
struct Thread {
  pthread_t thread;
  uint64_t state;
  struct Block blocks[BLOCKS];
  CUstream streams[STREAMS];
  CUstream capture;
  uint64_t hash;
  long wrong, refused, captures;
  char first[200];
};
static CUstream shared[SHARED];
static CUfunction slow_copy_kernel, slow_fill_kernel;
static CUmemoryPool pool;
static int capturing;
static long operations;
static CUcontext ctx;

static uint64_t next(struct Thread* t) {
  t->state = t->state * 6364136223846793005u + 1442695040888963407u;
  return t->state >> 33;
}
static int below(struct Thread* t, int n) { return (int)(next(t) % (uint64_t)n); }
static void mix(struct Thread* t, uint64_t v) { t->hash = (t->hash ^ v) * 0x100000001b3u; }
static void well(struct Thread* t, const char* what, int code) { /* a code that must be 0 in every mode */
  mix(t, (uint64_t)code);
  if (code && !t->refused++) snprintf(t->first, sizeof t->first, "%s = %d", what, code);
}
#define WELL(call) well(t, #call, (int)(call))

/* b's next work is behind what a has now. */
static void order_streams(struct Thread* t, CUstream b, CUstream a) {
  CUevent e;
  WELL(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
  WELL(cuEventRecord(e, a));
  WELL(cuStreamWaitEvent(b, e, 0));
  WELL(cuEventDestroy(e));
}
static void order(struct Thread* t, struct Block* b, int s) {
  if (b->stream != SETTLED && b->stream != s) order_streams(t, t->streams[s], t->streams[b->stream]);
}
static void fill(struct Thread* t, struct Block* b, int s) {
  order(t, b, s);
  b->value = (int)next(t);
  b->stream = s;
  if (next(t) % 2) {
    WELL(cuMemsetD32Async(b->p, (unsigned)b->value, (size_t)b->n, t->streams[s]));
    return;
  }
  long long clocks = MS(1) * (long long)(next(t) % 60) / 1000;
  void* a[] = {&b->p, &b->n, &b->value, &clocks};
  WELL(cuLaunchKernel(slow_fill_kernel, 1, 1, 1, 1, 1, 1, 0, t->streams[s], a, NULL));
}
static void copy(struct Thread* t, struct Block* to, struct Block* from, int s) {
  int n = to->n < from->n ? to->n : from->n;
  order(t, to, s);
  order(t, from, s);
  long long clocks = MS(1) * (long long)(next(t) % 80) / 1000;
  void* a[] = {&to->p, &from->p, &n, &clocks};
  WELL(cuLaunchKernel(slow_copy_kernel, 1, 1, 1, 1, 1, 1, 0, t->streams[s], a, NULL));
  to->n = n; /* what lies behind is not looked at any more */
  to->value = from->value;
  to->stream = from->stream = s;
}
static void look(struct Thread* t, struct Block* b, long op) {
  int got[SHOWN], n = b->n < SHOWN ? b->n : SHOWN, s = b->stream == SETTLED ? below(t, STREAMS) : b->stream;
  int last = b->n - 1;
  WELL(cuMemcpyDtoHAsync(got, b->p, 4 * (size_t)n, t->streams[s])); /* to pageable memory: done when it returns */
  for (int i = 0; i < n; ++i) {
    mix(t, (uint64_t)(unsigned)got[i]);
    if (got[i] != b->value && !t->wrong++) snprintf(t->first, sizeof t->first, "operation %ld: %d of %d ints: %x, not %x", op, i, b->n, (unsigned)got[i], (unsigned)b->value);
  }
  WELL(cuMemcpyDtoHAsync(got, b->p + 4 * (CUdeviceptr)last, 4, t->streams[s]));
  mix(t, (uint64_t)(unsigned)got[0]);
  if (got[0] != b->value && !t->wrong++) snprintf(t->first, sizeof t->first, "operation %ld: the last of %d ints: %x, not %x", op, b->n, (unsigned)got[0], (unsigned)b->value);
}
static void take_block(struct Thread* t, struct Block* b, int s) {
  static const int scale[] = {16, 200, 2000, 20000, 300000, 1500000};
  b->n = 1 + below(t, scale[below(t, 100) < 93 ? below(t, 4) : 4 + below(t, 2)]);
  b->bytes = 4 * (size_t)b->n - next(t) % 4 * (b->n > 1);
  b->n = (int)(b->bytes / 4);
  if (next(t) % 8) WELL(cuMemAllocAsync(&b->p, b->bytes, t->streams[s]));
  else WELL(cuMemAllocFromPoolAsync(&b->p, b->bytes, pool, t->streams[s]));
  b->stream = s;
  fill(t, b, s);
}
static void drop_block(struct Thread* t, struct Block* b) {
  int s = below(t, STREAMS);
  if (b->stream == SETTLED && next(t) % 3 == 0) {
    WELL(cuMemFree(b->p)); /* the host has waited */
  } else {
    if (next(t) % 3) s = b->stream == SETTLED ? s : b->stream;
    order(t, b, s);
    WELL(cuMemFreeAsync(b->p, t->streams[s]));
  }
  b->p = 0;
}
static void settle(struct Thread* t, int s) {
  for (int i = 0; i < BLOCKS; ++i)
    if (t->blocks[i].stream == s || s < 0) t->blocks[i].stream = SETTLED;
}
/* One of the thread's own streams ends, with work on it, and another takes its place. */
static void renew_stream(struct Thread* t, int s) {
  CUstream old = t->streams[s], new_stream;
  WELL(cuStreamCreate(&new_stream, next(t) % 2 ? CU_STREAM_NON_BLOCKING : 0));
  if (next(t) % 3) order_streams(t, new_stream, old); /* the blocks are the new one's now */
  else {
    WELL(cuStreamSynchronize(old));
    settle(t, s);
  }
  WELL(cuStreamDestroy(old));
  t->streams[s] = new_stream;
}
/* Memory of a graph, and the program's own beside the capture. */
static void capture(struct Thread* t) {
  CUgraph graph = NULL;
  CUgraphExec exec = NULL;
  struct Block* a = &t->blocks[below(t, BLOCKS)];
  if (!a->p) return;
  int value = (int)next(t), s = SHARED + below(t, OWN);
  long long clocks = MS(1) / 100;
  CUdeviceptr inner = 0, beside = 0;
  WELL(cuStreamBeginCapture(t->capture, CU_STREAM_CAPTURE_MODE_RELAXED));
  WELL(cuMemAllocAsync(&inner, 4 * (size_t)a->n, t->capture));
  void* fill_arguments[] = {&inner, &a->n, &value, &clocks};
  WELL(cuLaunchKernel(slow_fill_kernel, 1, 1, 1, 1, 1, 1, 0, t->capture, fill_arguments, NULL));
  WELL(cuMemAllocAsync(&beside, 4 * (size_t)(1 + below(t, 5000)), t->streams[s]));
  WELL(cuMemsetD32Async(beside, 1, 1, t->streams[s]));
  WELL(cuMemFreeAsync(beside, t->streams[s]));
  void* copy_arguments[] = {&a->p, &inner, &a->n, &clocks};
  WELL(cuLaunchKernel(slow_copy_kernel, 1, 1, 1, 1, 1, 1, 0, t->capture, copy_arguments, NULL));
  WELL(cuMemFreeAsync(inner, t->capture));
  WELL(cuStreamEndCapture(t->capture, &graph));
  WELL(cuGraphInstantiate(&exec, graph, 0));
  order(t, a, s);
  WELL(cuGraphLaunch(exec, t->streams[s]));
  a->value = value;
  a->stream = s;
  if (next(t) % 2) { /* freed with the graph that uses it pending */
    look(t, a, -1);
    WELL(cuGraphLaunch(exec, t->streams[s]));
    WELL(cuMemFreeAsync(a->p, t->streams[s]));
    a->p = 0;
  }
  WELL(cuStreamSynchronize(t->streams[s]));
  settle(t, s);
  WELL(cuGraphExecDestroy(exec));
  WELL(cuGraphDestroy(graph));
  ++t->captures;
}
static void* run(void* arg) {
  struct Thread* t = arg;
  MUST(cuCtxSetCurrent(ctx));
  memcpy(t->streams, shared, sizeof shared);
  for (int i = 0; i < OWN; ++i) MUST(cuStreamCreate(&t->streams[SHARED + i], i % 2 ? 0 : CU_STREAM_NON_BLOCKING));
  t->streams[SHARED + OWN] = CU_STREAM_LEGACY;
  t->streams[SHARED + OWN + 1] = CU_STREAM_PER_THREAD;
  for (long op = 0; op < operations; ++op) {
    struct Block* b = &t->blocks[below(t, BLOCKS)];
    int s = below(t, STREAMS), what = below(t, 1000);
    if (!b->p) take_block(t, b, s);
    else if (what < 420) drop_block(t, b);
    else if (what < 620) {
      struct Block* from = &t->blocks[below(t, BLOCKS)];
      if (from->p && from != b) copy(t, b, from, s);
    } else if (what < 740) fill(t, b, s);
    else if (what < 900) look(t, b, op);
    else if (what < 930) {
      WELL(cuStreamSynchronize(t->streams[s]));
      settle(t, s);
    } else if (what < 945) renew_stream(t, SHARED + below(t, OWN));
    else if (what < 955) {
      mix(t, (uint64_t)cuMemFreeAsync(b->p + 256, t->streams[s])); /* refused: it is no base */
      mix(t, (uint64_t)cuMemFree(b->p + 256));
    } else if (what < 970) {
      CUdeviceptr base = 0;
      size_t size = 0;
      mix(t, (uint64_t)cuMemGetAddressRange(&base, &size, b->p + b->bytes - 1));
      mix(t, base == b->p);
      mix(t, size == b->bytes);
    } else if (what < 975) WELL(cuMemPoolTrimTo(pool, next(t) % 2 ? 0 : 64 * MB));
    else if (what < 980) WELL(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &(unsigned long long){next(t) % 2 ? ~0ull : 0}));
    else if (what < 985 && !capturing) {
      WELL(cuCtxSynchronize());
      settle(t, -1);
    } else if (capturing && what < 998) capture(t);
  }
  for (int i = 0; i < BLOCKS; ++i)
    if (t->blocks[i].p) {
      look(t, &t->blocks[i], operations);
      drop_block(t, &t->blocks[i]);
    }
  for (int i = 0; i < OWN; ++i) MUST(cuStreamDestroy(t->streams[SHARED + i]));
  return NULL;
}
int main(int argc, char** argv) {
  REQUIRE(argc == 5);
  uint64_t seed = strtoull(argv[1], NULL, 0);
  int thread_count = atoi(argv[2]);
  operations = atol(argv[3]);
  capturing = atoi(argv[4]);
  REQUIRE(thread_count <= THREADS);
  ctx = primary(0);
  slow_copy_kernel = kernel("slow_copy");
  slow_fill_kernel = kernel("slow_fill");
  MUST(cuDeviceGetDefaultMemPool(&pool, 0));
  for (int i = 0; i < SHARED; ++i) MUST(cuStreamCreate(&shared[i], i ? CU_STREAM_NON_BLOCKING : 0));
  static struct Thread threads[THREADS];
  for (int i = 0; i < thread_count; ++i) {
    threads[i].state = seed * 7919 + (uint64_t)i;
    MUST(cuStreamCreate(&threads[i].capture, CU_STREAM_NON_BLOCKING));
  }
  for (int i = 0; i < thread_count; ++i) REQUIRE(!pthread_create(&threads[i].thread, NULL, run, &threads[i]));
  for (int i = 0; i < thread_count; ++i) {
    pthread_join(threads[i].thread, NULL);
    printf("thread %d: %016llx, %ld wrong, %ld refused, %ld captures %s\n", i, (unsigned long long)threads[i].hash, threads[i].wrong, threads[i].refused,
           threads[i].captures, threads[i].first);
  }
  MUST(cuCtxSynchronize());
  unsigned long long used = 1, high = 0;
  MUST(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
  MUST(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &high));
  printf("used at the end: %llu, some was: %d\n", used, high > 0);
  return 0;
}
