// Helpers for the programs of this folder. What a program prints on stdout is the same at every right run and is
// compared with the bare run's (compare.py says how); numbers that vary go to stderr or to lines that begin with '#'.
#pragma once
#include <cuda.h>
#include <cuda_runtime.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

using Clock = std::chrono::steady_clock;
inline double us_since(Clock::time_point t) { return std::chrono::duration<double, std::micro>(Clock::now() - t).count(); }

inline const char *name(cudaError_t e) { return cudaGetErrorName(e); }
inline const char *name(CUresult r) {
    const char *s = nullptr;
    cuGetErrorName(r, &s);
    return s ? s : "?";
}

// A call that has to work: anything else ends the program.
template <class R> inline void must(R r, const char *what, const char *file, int line) {
    if (r == (R)0) return;
    printf("%s:%d: %s: %s\n", strrchr(file, '/') ? strrchr(file, '/') + 1 : file, line, what, name(r));
    fflush(stdout);
    _Exit(3);
}
#define CK(x) must((x), #x, __FILE__, __LINE__)

// Every kernel waits by the wall clock of the GPU, so that another clock speed does not change what is tested.
__device__ inline unsigned long long now_ns() {
    unsigned long long t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}
__device__ inline void wait_ns(unsigned long long ns) {
    unsigned long long t = now_ns();
    while (now_ns() - t < ns) {}
}
#define EACH(i, n) (int i = blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += gridDim.x * blockDim.x)
static __global__ void wait_only(unsigned long long ns) { wait_ns(ns); }
static __global__ void fill(int *p, int n, int v) { for EACH(i, n) p[i] = v; }
static __global__ void copy(int *out, const int *in, int n) { for EACH(i, n) out[i] = in[i]; }
// Waits, then reads `in` and writes `out`: whoever reads `out` or overwrites `in` too early shows in the result.
static __global__ void slow_add(int *out, const int *in, int n, int add, unsigned long long ns) {
    wait_ns(ns);
    for EACH(i, n) out[i] = in[i] + add;
}
// Waits until somebody sets the flag; gives up after `ns` and then says so in `late`.
static __global__ void spin(volatile int *flag, int *late, unsigned long long ns) {
    unsigned long long t = now_ns();
    while (!*flag)
        if (now_ns() - t > ns) {
            *late = 1;
            return;
        }
}

inline CUcontext new_context(CUdevice d) {
    CUcontext c = nullptr;
#if CUDA_VERSION >= 13000
    CUctxCreateParams params;
    memset(&params, 0, sizeof params);
    CK(cuCtxCreate(&c, &params, 0, d));
#else
    CK(cuCtxCreate(&c, 0, d));
#endif
    return c;
}
