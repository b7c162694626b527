/* What PyTorch does with a pluggable allocator: memory for work of streams, streams that use what others free, private pools
 * under graphs. Bare there is no such allocator, so the runtime's own calls stand in its place: the answers are the same. */
#include <dlfcn.h>
#include "ordered.h"
#include "vramscope.h"

#define N 100000

static __typeof__(&vramscope_torch_malloc) torch_malloc;
static __typeof__(&vramscope_torch_free) torch_free;
static __typeof__(&vramscope_torch_record_stream) torch_record_stream;
static __typeof__(&vramscope_torch_begin_pool) begin_pool;
static __typeof__(&vramscope_torch_end_pool) end_pool;
static __typeof__(&vramscope_torch_release_pool) release_pool;
static __typeof__(&vramscope_torch_reset) reset;
static __typeof__(&vramscope_torch_base) base;

static CUdeviceptr torch_take(size_t bytes, CUstream s) {
  if (!torch_malloc) return get(bytes, s);
  CUdeviceptr p = (CUdeviceptr)(uintptr_t)torch_malloc((ptrdiff_t)bytes, 0, s);
  REQUIRE(p);
  return p;
}
static void torch_give(CUdeviceptr p, size_t bytes, CUstream s) {
  if (torch_free) torch_free((void*)(uintptr_t)p, (ptrdiff_t)bytes, 0, s);
  else put(p, s);
}
static void fill(CUdeviceptr p, unsigned v, CUstream s) { MUST(cuMemsetD32Async(p, v, N, s)); }

static void streams(CUstream a, CUstream b) {
  CUdeviceptr p = torch_take(4 * N, a), q;
  fill(p, 1, a);
  check_block("its own", p, N, 1, a);
  after(b, a);
  /* b reads it while a frees it and goes on */
  CUdeviceptr copy = torch_take(4 * N, b);
  slow_copy(b, copy, p, N, MS(20));
  if (torch_record_stream) torch_record_stream((void*)(uintptr_t)p, b);
  else after(a, b);
  torch_give(p, 4 * N, a);
  for (int i = 0; i < 8; ++i) {
    q = torch_take(4 * N, a);
    fill(q, 2, a);
    torch_give(q, 4 * N, a);
  }
  check_block("read by another stream", copy, N, 1, b);
  torch_give(copy, 4 * N, b);
  size_t size = 0;
  q = torch_take(1000, a);
  printf("base %d", !base || base((void*)(uintptr_t)(q + 10), &size) == (void*)(uintptr_t)q);
  printf(", size %d\n", !base || size == 1024);
  torch_give(q, 1000, a);
  /* nothing and nobody */
  printf("nothing %d\n", !torch_malloc || !torch_malloc(0, 0, a));
  if (torch_free) torch_free(NULL, 0, 0, a);
  if (reset) reset();
}

static void graph(CUstream s, uint64_t id) {
  cudaGraph_t g;
  cudaGraphExec_t exec;
  CUdeviceptr in = torch_take(4 * N, s), out = torch_take(4 * N, s);
  fill(in, 5, s);
  MUST(cudaStreamSynchronize(s));
  if (begin_pool) begin_pool(0, 0, id, NULL);
  MUST(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
  CUdeviceptr x = torch_take(4 * N, s);
  MUST(cuMemcpyDtoDAsync(x, in, 4 * N, s));
  MUST(cuMemcpyDtoDAsync(out, x, 4 * N, s));
  torch_give(x, 4 * N, s);
  CUdeviceptr y = torch_take(4 * N, s);
  fill(y, 99, s);
  torch_give(y, 4 * N, s);
  MUST(cudaStreamEndCapture(s, &g));
  if (end_pool) end_pool(0, 0, id);
  MUST(cudaGraphInstantiate(&exec, g, 0));
  /* What the graph writes at its launch is nobody else's. */
  CUdeviceptr other[16];
  for (int i = 0; i < 16; ++i) fill(other[i] = torch_take(4 * N, s), 1000 + i, s);
  MUST(cudaGraphLaunch(exec, s));
  check_block("the graph's result", out, N, 5, s);
  /* Nor does it go back: every launch writes there. */
  if (reset) reset();
  void* none = NULL;
  REQUIRE(cudaMalloc(&none, (size_t)1 << 44) == cudaErrorMemoryAllocation);
  cudaGetLastError();
  MUST(cudaMemPoolTrimTo(pool_of(0), 0));
  MUST(cudaDeviceSynchronize());
  fill(in, 6, s);
  MUST(cudaGraphLaunch(exec, s));
  check_block("the graph's second result", out, N, 6, s);
  for (int i = 0; i < 16; ++i) check_block("beside the graph", other[i], N, 1000 + i, s);
  for (int i = 0; i < 16; ++i) torch_give(other[i], 4 * N, s);
  MUST(cudaGraphExecDestroy(exec));
  MUST(cudaGraphDestroy(g));
  if (release_pool) release_pool(0, 0, id);
  torch_give(in, 4 * N, s);
  torch_give(out, 4 * N, s);
}

/* Two streams in one capture: in the graph they run side by side, so what one of them frees is not the other's. */
static void side_by_side(CUstream s, CUstream t, uint64_t id, size_t bytes) {
  cudaGraph_t g;
  cudaGraphExec_t exec;
  CUdeviceptr out[3];
  for (int i = 0; i < 3; ++i) out[i] = torch_take(4 * N, s);
  MUST(cudaStreamSynchronize(s));
  if (begin_pool) begin_pool(0, 0, id, NULL);
  MUST(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
  after(t, s);
  CUdeviceptr x = torch_take(bytes, t);
  slow_fill(t, x, N, 1, MS(20));
  copy_ints(t, out[0], x, N);
  torch_give(x, bytes, t);
  CUdeviceptr y = torch_take(bytes, s);
  slow_fill(s, y, N, 2, 1);
  slow_copy(s, out[1], y, N, MS(40));
  torch_give(y, bytes, s);
  /* t reads what s frees and takes again */
  CUdeviceptr z = torch_take(bytes, s);
  slow_fill(s, z, N, 3, 1);
  after(t, s);
  slow_copy(t, out[2], z, N, MS(20));
  if (torch_record_stream) torch_record_stream((void*)(uintptr_t)z, t);
  else after(s, t);
  torch_give(z, bytes, s);
  z = torch_take(bytes, s);
  slow_fill(s, z, N, 4, 1);
  torch_give(z, bytes, s);
  after(s, t);
  MUST(cudaStreamEndCapture(s, &g));
  if (end_pool) end_pool(0, 0, id);
  MUST(cudaGraphInstantiate(&exec, g, 0));
  for (int round = 0; round < 2; ++round) {
    MUST(cudaGraphLaunch(exec, s));
    for (int i = 0; i < 3; ++i) check_block("of two streams", out[i], N, 1 + i, s);
  }
  MUST(cudaGraphExecDestroy(exec));
  MUST(cudaGraphDestroy(g));
  if (release_pool) release_pool(0, 0, id);
  for (int i = 0; i < 3; ++i) torch_give(out[i], 4 * N, s);
}

/* Two captures at once, in two threads, each with a pool of its own. */
static pthread_barrier_t both;
static void* capturing(void* argument) {
  uint64_t id = (uint64_t)(uintptr_t)argument;
  begin_on(0);
  CUstream s = stream(cudaStreamNonBlocking);
  cudaGraph_t g;
  cudaGraphExec_t exec;
  CUdeviceptr out = torch_take(4 * N, s);
  MUST(cudaStreamSynchronize(s));
  if (begin_pool) begin_pool(0, 0, id, NULL);
  pthread_barrier_wait(&both);
  MUST(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
  CUdeviceptr x = torch_take(4 * N, s);
  fill(x, (unsigned)id, s);
  MUST(cuMemcpyDtoDAsync(out, x, 4 * N, s));
  torch_give(x, 4 * N, s);
  MUST(cudaStreamEndCapture(s, &g));
  pthread_barrier_wait(&both);
  if (end_pool) end_pool(0, 0, id);
  if (release_pool && id == 8) release_pool(0, 0, id);
  pthread_barrier_wait(&both);
  MUST(cudaGraphInstantiate(&exec, g, 0));
  if (id == 7) {
    CUdeviceptr other[8];
    for (int i = 0; i < 8; ++i) fill(other[i] = torch_take(4 * N, s), 2000 + i, s);
    MUST(cudaGraphLaunch(exec, s));
    check_block("captured beside another", out, N, 7, s);
    for (int i = 0; i < 8; ++i) check_block("beside its graph", other[i], N, 2000 + i, s);
    for (int i = 0; i < 8; ++i) torch_give(other[i], 4 * N, s);
  }
  MUST(cudaGraphExecDestroy(exec));
  MUST(cudaGraphDestroy(g));
  if (release_pool && id == 7) release_pool(0, 0, id);
  return NULL;
}

int main(void) {
#define FIND(name, variable) variable = (__typeof__(variable))(uintptr_t)dlsym(RTLD_DEFAULT, #name)
  FIND(vramscope_torch_malloc, torch_malloc);
  FIND(vramscope_torch_free, torch_free);
  FIND(vramscope_torch_record_stream, torch_record_stream);
  FIND(vramscope_torch_begin_pool, begin_pool);
  FIND(vramscope_torch_end_pool, end_pool);
  FIND(vramscope_torch_release_pool, release_pool);
  FIND(vramscope_torch_reset, reset);
  FIND(vramscope_torch_base, base);
  begin_on(0);
  CUstream a = stream(cudaStreamNonBlocking), b = stream(cudaStreamNonBlocking);
  for (int i = 0; i < 3; ++i) streams(a, b);
  verdict("streams");
  for (uint64_t id = 1; id < 4; ++id) graph(a, id);
  verdict("graphs");
  for (uint64_t id = 20; id < 24; ++id) side_by_side(a, b, id, id % 2 ? 9 * MB : 4 * N);
  verdict("two streams in a capture");
  REQUIRE(!pthread_barrier_init(&both, NULL, 2));
  pthread_t t[2];
  for (uintptr_t i = 0; i < 2; ++i) REQUIRE(!pthread_create(&t[i], NULL, capturing, (void*)(7 + i)));
  for (int i = 0; i < 2; ++i) pthread_join(t[i], NULL);
  verdict("two captures");
  return 0;
}
