/* Stream-ordered memory through the runtime, for the programs that test it. A block is right when all its numbers are. */
#ifndef ORDERED_H
#define ORDERED_H
#include "common.h"

static long wrong, checked;

static inline CUdeviceptr get(size_t bytes, CUstream s) {
  void* p = NULL;
  MUST(cudaMallocAsync(&p, bytes, s));
  REQUIRE(p && (uintptr_t)p % 256 == 0);
  return (CUdeviceptr)(uintptr_t)p;
}
/* 0: out of memory. */
static inline CUdeviceptr try(size_t bytes, CUstream s) {
  void* p = NULL;
  int code = (int)cudaMallocAsync(&p, bytes, s);
  REQUIRE(code == 0 || code == cudaErrorMemoryAllocation);
  cudaGetLastError();
  return code ? 0 : (CUdeviceptr)(uintptr_t)p;
}
/* In a child the driver gives out what its own pool has cached, which nobody can use. */
static inline void no_memory(int code) { printf("memory of a child: %s\n", code == 0 || code == 2 ? "none to use" : "?"); }
static inline void put(CUdeviceptr p, CUstream s) { MUST(cudaFreeAsync((void*)(uintptr_t)p, s)); }
static inline CUstream stream(unsigned flags) {
  cudaStream_t s;
  MUST(cudaStreamCreateWithFlags(&s, flags));
  return s;
}
/* b does its work behind what a has now. */
static inline void after(CUstream b, CUstream a) {
  cudaEvent_t e;
  MUST(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
  MUST(cudaEventRecord(e, a));
  MUST(cudaStreamWaitEvent(b, e, 0));
  MUST(cudaEventDestroy(e));
}
/* Are all n numbers v, seen from a stream? */
static inline void check_block(const char* what, CUdeviceptr p, int n, int v, CUstream s) {
  int* got = malloc(4 * (size_t)n);
  MUST(cudaMemcpyAsync(got, (void*)(uintptr_t)p, 4 * (size_t)n, cudaMemcpyDeviceToHost, s)); /* pageable: done when it returns */
  MUST(cudaStreamSynchronize(s));
  ++checked;
  for (int i = 0; i < n; ++i)
    if (got[i] != v) {
      if (wrong++ < 5) printf("%s: number %d of %d is %d, not %d\n", what, i, n, got[i], v);
      break;
    }
  free(got);
}
static inline void verdict(const char* what) {
  MUST(cudaDeviceSynchronize());
  printf("%s: %ld blocks looked at, %ld wrong\n", what, checked, wrong);
  checked = wrong = 0;
}
/* Device 0, with the kernels loaded: no capture allows that later. */
static inline void begin_on(int device) {
  MUST(cudaSetDevice(device));
  kernel("copy");
}
static inline cudaMemPool_t pool_of(int device) {
  cudaMemPool_t pool;
  MUST(cudaDeviceGetDefaultMemPool(&pool, device));
  return pool;
}
static inline unsigned long long pool_number(cudaMemPool_t pool, enum cudaMemPoolAttr a) {
  unsigned long long v = 0;
  MUST(cudaMemPoolGetAttribute(pool, a, &v));
  return v;
}
static inline void set_pool_number(cudaMemPool_t pool, enum cudaMemPoolAttr a, unsigned long long v) { MUST(cudaMemPoolSetAttribute(pool, a, &v)); }
#endif
