/* What the test programs share. A program takes the name of its case, prints what it saw, and never prints an address. */
#ifndef COMMON_H
#define COMMON_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "cuda_mini.h"
#include "kernels.ptx.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* A call whose code is part of the result. */
#define SAY(call)                                       \
  do {                                                  \
    int say_code = (int)(call);                         \
    printf("%s = %d\n", #call, say_code);               \
    fflush(stdout);                                     \
  } while (0)
/* A call that has to work for the case to mean anything. */
#define MUST(call)                                                           \
  do {                                                                       \
    int must_code = (int)(call);                                             \
    if (must_code) {                                                         \
      fprintf(stderr, "%s:%d: %s = %d\n", __FILE__, __LINE__, #call, must_code); \
      exit(99);                                                              \
    }                                                                        \
  } while (0)
#define REQUIRE(condition)                                                   \
  do {                                                                       \
    if (!(condition)) {                                                      \
      fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
      exit(98);                                                              \
    }                                                                        \
  } while (0)
#define LENGTH(array) (sizeof(array) / sizeof *(array))
#define MB ((size_t)1 << 20)
/* Milliseconds of a simulated (or real) kernel. Long against what the host does meanwhile, so that a lost wait shows. */
#define MS(n) ((long long)(n) * 1980000)

#ifndef NO_KERNELS
/* Programs here rely on kernels that run side by side, and to load one may need the whole context's work to be done: a kernel that
 * was first launched beside one that spins until the host goes on would never come. So all are loaded with their module. */
__attribute__((constructor)) static void load_kernels_early(void) { setenv("CUDA_MODULE_LOADING", "EAGER", 0); }
static inline CUfunction kernel(const char* name) {
  static CUmodule module;
  static CUcontext owner;
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  CUcontext now;
  CUfunction function;
  MUST(cuCtxGetCurrent(&now));
  pthread_mutex_lock(&lock);
  if (!module || owner != now) MUST(cuModuleLoadData(&module, SIMGPU_PTX));
  owner = now;
  MUST(cuModuleGetFunction(&function, module, name));
  pthread_mutex_unlock(&lock);
  return function;
}
static inline void launch(CUstream s, const char* name, void** arguments) {
  MUST(cuLaunchKernel(kernel(name), 1, 1, 1, 1, 1, 1, 0, s, arguments, NULL));
}
static inline void slow_fill(CUstream s, CUdeviceptr p, int n, int v, long long clocks) {
  void* a[] = {&p, &n, &v, &clocks};
  launch(s, "slow_fill", a);
}
static inline void slow_write(CUstream s, CUdeviceptr p, int v, long long clocks) {
  void* a[] = {&p, &v, &clocks};
  launch(s, "slow_write", a);
}
static inline void slow_copy(CUstream s, CUdeviceptr dst, CUdeviceptr src, int n, long long clocks) {
  void* a[] = {&dst, &src, &n, &clocks};
  launch(s, "slow_copy", a);
}
static inline void copy_ints(CUstream s, CUdeviceptr dst, CUdeviceptr src, int n) {
  void* a[] = {&dst, &src, &n};
  launch(s, "copy", a);
}
static inline void spin_flag(CUstream s, CUdeviceptr flag) {
  void* a[] = {&flag};
  launch(s, "spin_flag", a);
}
/* The device's primary context, current. */
static inline CUcontext primary(int ordinal) {
  CUdevice device;
  CUcontext ctx;
  MUST(cuInit(0));
  MUST(cuDeviceGet(&device, ordinal));
  MUST(cuDevicePrimaryCtxRetain(&ctx, device));
  MUST(cuCtxSetCurrent(ctx));
  return ctx;
}
static inline CUdeviceptr take(size_t bytes) {
  CUdeviceptr p = 0;
  MUST(cuMemAlloc(&p, bytes));
  REQUIRE(p);
  return p;
}
/* The first and the last int of a block, as the host reads them through the legacy stream. */
static inline void print_ints(const char* what, CUdeviceptr p, int n) {
  int first = -1, last = -1;
  MUST(cuMemcpyDtoH(&first, p, 4));
  MUST(cuMemcpyDtoH(&last, p + 4 * (size_t)(n - 1), 4));
  printf("%s: %d %d\n", what, first, last);
}
#endif

typedef void (*Case)(void);
struct Named { const char* name; Case run; };
static inline int run_case(const struct Named* cases, size_t count, int argc, char** argv) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  for (size_t i = 0; i < count; ++i)
    if (argc > 1 && !strcmp(cases[i].name, argv[1])) {
      cases[i].run();
      return 0;
    }
  fprintf(stderr, "no such case: %s\n", argc > 1 ? argv[1] : "");
  return 97;
}
#define CASES(...)                                                           \
  int main(int argc, char** argv) {                                          \
    static const struct Named cases[] = {__VA_ARGS__};                       \
    return run_case(cases, LENGTH(cases), argc, argv);                       \
  }
#define CASE(name) {#name, case_##name}
#endif
