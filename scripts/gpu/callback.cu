// Calls made inside a host function of a stream. CUDA forbids them; what it answers there must stay the same, and
// nothing may hang. One call a process: natively some might.
#include "show.h"

#include <atomic>
#include <string>
#include <thread>

static void *block, *fresh, *cached_size;
static std::atomic<int> go{0};
static CUcontext context;
static CUevent event;
static std::string what, answer;

static void CUDART_CB inside(void *) {
    if (what == "malloc_cached") answer = name(cudaMalloc(&fresh, 6 << 20));
    if (what == "malloc_new") answer = name(cudaMalloc(&fresh, 111 << 20));
    if (what == "malloc_small") answer = name(cudaMalloc(&fresh, 100));
    if (what == "free") answer = name(cudaFree(block));
    if (what == "free_null") answer = name(cudaFree(nullptr));
    if (what == "driver_malloc") answer = name(cuMemAlloc((CUdeviceptr *)&fresh, 6 << 20));
    if (what == "driver_free") answer = name(cuMemFree((CUdeviceptr)block));
    if (what == "mem_get_info") {
        size_t f, t;
        answer = name(cudaMemGetInfo(&f, &t));
    }
    if (what == "record") answer = name(cuCtxRecordEvent(context, event));
    if (what == "waits_for_malloc")
        for (answer = "done"; !go; std::this_thread::yield()) {}
}
static void CUDART_CB inside_callback(cudaStream_t, cudaError_t, void *) { inside(nullptr); }

int main(int, char **argv) {
    what = argv[1];
    bool old_kind = argv[2] && !strcmp(argv[2], "cudaStreamAddCallback");
    CK(cudaFree(0));
    CK(cuCtxGetCurrent(&context));
    CK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    cudaStream_t s;
    CK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    CK(cudaMalloc(&block, 4 << 20));
    CK(cudaMalloc(&cached_size, 6 << 20));
    CK(cudaFree(cached_size));
    CK(cudaDeviceSynchronize());
    if (old_kind) CK(cudaStreamAddCallback(s, inside_callback, nullptr, 0));
    else CK(cudaLaunchHostFunc(s, inside, nullptr));
    if (what == "waits_for_malloc") { // cudaMalloc does not wait, not even for host functions
        CK(cudaMalloc(&fresh, 6 << 20));
        CK(cudaMalloc(&cached_size, 33 << 20));
        go = 1;
    }
    CK(cudaStreamSynchronize(s));
    printf("%s in %s: %s\n", what.c_str(), old_kind ? "cudaStreamAddCallback" : "cudaLaunchHostFunc", answer.c_str());
    // And the process goes on.
    int *p, *q, h = 0, good = 0;
    for (int i = 0; i < 50; i++) {
        CK(cudaMalloc(&p, 1 << 20));
        CK(cudaMalloc(&q, 1 << 20));
        fill<<<1, 64, 0, s>>>(p, 64, i);
        slow_add<<<1, 64, 0, s>>>(q, p, 64, 1, 200000);
        CK(cudaFree(p));
        CK(cudaMemcpy(&h, q, 4, cudaMemcpyDeviceToHost));
        CK(cudaFree(q));
        good += h == i + 1;
    }
    printf("afterwards: right=%d/50\n", good);
}
