/* A random program: `random SEED THREADS STREAMS OPERATIONS CAPTURE`. Each thread works on blocks of its own, on streams that
 * all share, and knows what each of its blocks must hold. What it may rely on is what cudaFree promises: after a free, all
 * work of this thread is in order with whatever it does next, on any stream; and a fresh block is nobody else's. So a block
 * that is handed out too early, or a barrier that is lost, is read as a wrong number. */
#include "common.h"

enum { BLOCKS = 24, STREAMS = 4, THREADS = 8, SHOWN = 16 };
struct Block {
  CUdeviceptr p;
  int n;      /* ints */
  int value;  /* all of them */
  int stream; /* where its last work is; -1: in order with everything */
  int async;  /* of cuMemAllocAsync, or plain */
};
struct Thread {
  pthread_t thread;
  uint64_t state;
  int number;
  struct Block blocks[BLOCKS];
  CUstream own; /* captures */
  uint64_t hash;
  long wrong, refused, captures;
  char first[200];
};
static CUstream streams[STREAMS];
static CUfunction copy_kernel, slow_copy_kernel, slow_fill_kernel;
static int thread_count, stream_count, capturing;
static long operations;
static CUcontext ctx;

static uint64_t next(struct Thread* t) {
  t->state = t->state * 6364136223846793005u + 1442695040888963407u;
  return t->state >> 33;
}
static int below(struct Thread* t, int n) { return (int)(next(t) % (uint64_t)n); }
static void mix(struct Thread* t, uint64_t v) { t->hash = (t->hash ^ v) * 0x100000001b3u; }
/* A code that must be 0 in every mode. */
static void well(struct Thread* t, const char* what, int code) {
  mix(t, (uint64_t)code);
  if (code && !t->refused++) snprintf(t->first, sizeof t->first, "%s = %d", what, code);
}
#define WELL(call) well(t, #call, (int)(call))

static void settled(struct Thread* t) {
  for (int i = 0; i < BLOCKS; ++i) t->blocks[i].stream = -1;
}
/* Makes a stream wait for the work on a block. */
static void order(struct Thread* t, struct Block* b, int s) {
  if (b->stream < 0 || b->stream == s) return;
  CUevent e;
  WELL(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
  WELL(cuEventRecord(e, streams[b->stream]));
  WELL(cuStreamWaitEvent(streams[s], e, 0));
  WELL(cuEventDestroy(e));
}
static void fill(struct Thread* t, struct Block* b, int s) {
  order(t, b, s);
  b->value = (int)next(t);
  b->stream = s;
  if (next(t) % 2) {
    WELL(cuMemsetD32Async(b->p, (unsigned)b->value, (size_t)b->n, streams[s]));
    return;
  }
  long long clocks = MS(1) * (long long)(next(t) % 60) / 1000;
  void* a[] = {&b->p, &b->n, &b->value, &clocks};
  WELL(cuLaunchKernel(slow_fill_kernel, 1, 1, 1, 1, 1, 1, 0, streams[s], a, NULL));
}
static void copy(struct Thread* t, struct Block* to, struct Block* from, int s) {
  int n = to->n < from->n ? to->n : from->n;
  order(t, to, s);
  order(t, from, s);
  long long clocks = MS(1) * (long long)(next(t) % 80) / 1000;
  void* a[] = {&to->p, &from->p, &n, &clocks};
  WELL(cuLaunchKernel(slow_copy_kernel, 1, 1, 1, 1, 1, 1, 0, streams[s], a, NULL));
  to->n = n; /* what lies behind is not looked at any more */
  to->value = from->value;
  to->stream = from->stream = s;
}
static void look(struct Thread* t, struct Block* b, long op) {
  int got[SHOWN], n = b->n < SHOWN ? b->n : SHOWN, s = b->stream < 0 ? below(t, stream_count) : b->stream;
  int last = b->n - 1;
  WELL(cuMemcpyDtoHAsync(got, b->p, 4 * (size_t)n, streams[s])); /* to pageable memory: done when it returns */
  for (int i = 0; i < n; ++i) {
    mix(t, (uint64_t)(unsigned)got[i]);
    if (got[i] != b->value && !t->wrong++) snprintf(t->first, sizeof t->first, "operation %ld: %d of %d ints: %x, not %x", op, i, b->n, (unsigned)got[i], (unsigned)b->value);
  }
  WELL(cuMemcpyDtoHAsync(got, b->p + 4 * (CUdeviceptr)last, 4, streams[s]));
  mix(t, (uint64_t)(unsigned)got[0]);
  if (got[0] != b->value && !t->wrong++) snprintf(t->first, sizeof t->first, "operation %ld: the last of %d ints: %x, not %x", op, b->n, (unsigned)got[0], (unsigned)b->value);
}
static void take_block(struct Thread* t, struct Block* b, int s) {
  static const int scale[] = {16, 200, 2000, 20000, 300000, 700000};
  b->n = 1 + below(t, scale[below(t, 100) < 95 ? below(t, 4) : 4 + below(t, 2)]);
  b->async = below(t, 12) == 0;
  b->stream = -1;
  if (b->async) {
    WELL(cuMemAllocAsync(&b->p, 4 * (size_t)b->n, streams[s]));
    b->stream = s;
  } else {
    WELL(cuMemAlloc(&b->p, 4 * (size_t)b->n));
  }
  fill(t, b, s);
}
static void drop_block(struct Thread* t, struct Block* b) {
  if (b->async) {
    int s = b->stream < 0 ? below(t, stream_count) : b->stream;
    WELL(cuMemFreeAsync(b->p, streams[s]));
  } else {
    WELL(cuMemFree(b->p)); /* with its work pending, and everybody else's */
    settled(t);
  }
  b->p = 0;
}
/* Kernels of a few blocks as a graph, with frees and allocations between its calls. */
static void capture(struct Thread* t) {
  CUgraph graph = NULL;
  CUgraphExec exec = NULL;
  struct Block *a = NULL, *b = NULL;
  for (int i = 0; i < BLOCKS; ++i) {
    if (!t->blocks[i].p || t->blocks[i].async) continue;
    if (!a) a = &t->blocks[i];
    else if (!b) b = &t->blocks[i];
  }
  if (!b) return;
  int n = a->n < b->n ? a->n : b->n, value = (int)next(t);
  long long clocks = MS(1) / 100;
  CUdeviceptr p;
  WELL(cuStreamBeginCapture(t->own, CU_STREAM_CAPTURE_MODE_RELAXED));
  void* fill_arguments[] = {&a->p, &a->n, &value, &clocks};
  WELL(cuLaunchKernel(slow_fill_kernel, 1, 1, 1, 1, 1, 1, 0, t->own, fill_arguments, NULL));
  WELL(cuMemAlloc(&p, 4 * (size_t)(1 + below(t, 5000))));
  WELL(cuMemFree(p));
  settled(t);
  void* copy_arguments[] = {&b->p, &a->p, &n};
  WELL(cuLaunchKernel(copy_kernel, 1, 1, 1, 1, 1, 1, 0, t->own, copy_arguments, NULL));
  WELL(cuStreamEndCapture(t->own, &graph));
  WELL(cuGraphInstantiate(&exec, graph, 0));
  int s = below(t, stream_count);
  order(t, a, s);
  order(t, b, s);
  WELL(cuGraphLaunch(exec, streams[s]));
  a->value = b->value = value;
  b->n = n;
  a->stream = b->stream = s;
  WELL(cuStreamSynchronize(streams[s]));
  WELL(cuGraphExecDestroy(exec));
  WELL(cuGraphDestroy(graph));
  ++t->captures;
}
static void* run(void* arg) {
  struct Thread* t = arg;
  MUST(cuCtxSetCurrent(ctx));
  for (long op = 0; op < operations; ++op) {
    struct Block* b = &t->blocks[below(t, BLOCKS)];
    int s = below(t, stream_count), what = below(t, 100);
    if (!b->p) take_block(t, b, s);
    else if (what < 40) drop_block(t, b);
    else if (what < 62) {
      struct Block* from = &t->blocks[below(t, BLOCKS)];
      if (from->p && from != b) copy(t, b, from, s);
    } else if (what < 72) fill(t, b, s);
    else if (what < 92) look(t, b, op);
    else if (what < 94) {
      WELL(cuStreamSynchronize(streams[s]));
      for (int i = 0; i < BLOCKS; ++i)
        if (t->blocks[i].stream == s) t->blocks[i].stream = -1;
    } else if (what < 95) {
      mix(t, (uint64_t)cuMemFree(b->p + 256)); /* refused: it is no base */
      mix(t, (uint64_t)cuMemFree(0));
    } else if (what < 96) {
      CUdeviceptr base = 0;
      size_t size = 0;
      int code = (int)cuMemGetAddressRange(&base, &size, b->p);
      mix(t, (uint64_t)code);
      mix(t, base == b->p);
      mix(t, b->async ? 0 : size >= 4 * (size_t)b->n);
    } else if (what < 97 && !capturing) {
      WELL(cuCtxSynchronize());
      settled(t);
    } else if (capturing && what < 99) capture(t);
  }
  for (int i = 0; i < BLOCKS; ++i)
    if (t->blocks[i].p) {
      look(t, &t->blocks[i], operations);
      drop_block(t, &t->blocks[i]);
    }
  return NULL;
}
int main(int argc, char** argv) {
  REQUIRE(argc == 6);
  uint64_t seed = strtoull(argv[1], NULL, 0);
  thread_count = atoi(argv[2]);
  stream_count = atoi(argv[3]);
  operations = atol(argv[4]);
  capturing = atoi(argv[5]);
  REQUIRE(thread_count <= THREADS && stream_count <= STREAMS);
  ctx = primary(0);
  copy_kernel = kernel("copy");
  slow_copy_kernel = kernel("slow_copy");
  slow_fill_kernel = kernel("slow_fill");
  for (int i = 0; i < stream_count; ++i) MUST(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
  static struct Thread threads[THREADS];
  for (int i = 0; i < thread_count; ++i) {
    threads[i].number = i;
    threads[i].state = seed * 7919 + (uint64_t)i;
    MUST(cuStreamCreate(&threads[i].own, CU_STREAM_NON_BLOCKING));
  }
  for (int i = 0; i < thread_count; ++i) REQUIRE(!pthread_create(&threads[i].thread, NULL, run, &threads[i]));
  for (int i = 0; i < thread_count; ++i) {
    pthread_join(threads[i].thread, NULL);
    printf("thread %d: %016llx, %ld wrong, %ld refused, %ld captures %s\n", i, (unsigned long long)threads[i].hash, threads[i].wrong,
           threads[i].refused, threads[i].captures, threads[i].first);
  }
  MUST(cuCtxSynchronize());
  return 0;
}
