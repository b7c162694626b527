/* A library that stands before others: what it calls is what comes next after itself. */
#define NO_KERNELS
#include "common.h"

static int seen;
pid_t getppid(void) {
  pid_t (*next)(void) = (pid_t(*)(void))dlsym(RTLD_NEXT, "getppid");
  return next();
}
cudaError_t cudaMalloc(void** p, size_t size) {
  cudaError_t (*next)(void**, size_t) = (cudaError_t(*)(void**, size_t))dlsym(RTLD_NEXT, "cudaMalloc");
  ++seen;
  return next(p, size);
}
/* A driver function that comes next after this library, too. */
int next_count(void) {
  if (!dlsym(RTLD_NEXT, "cuMemGetInfo_v2") || dlsym(RTLD_NEXT, "next_count")) return -1;
  return seen;
}
