// A card filled by the cache must still have room for everybody else: a lazily loaded module with a large variable, a
// kernel whose local memory the driver has to find, streams, graphs, and then a real allocation of nearly everything.
#include "show.h"

#include <vector>

cudaError_t touch_big(int v, int *out);   // lazy_module.cu
cudaError_t touch_local(int v, int *out);

int main() {
    CK(cudaFree(0));
    cudaStream_t s;
    CK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    size_t free0, free1, total;
    CK(cudaMemGetInfo(&free0, &total));
    const size_t G = (size_t)1 << 30;
    std::vector<void *> live, cached;
    void *p;
    for (size_t held = 0; held + G < free0 * 7 / 10; held += G) {
        CK(cudaMalloc(&p, G));
        live.push_back(p);
    }
    CK(cudaMemGetInfo(&free1, &total));
    const size_t piece = 64 << 20;
    for (size_t held = 0; held + piece < free1 - total / 50; held += piece) { // until 2 % is left
        CK(cudaMalloc(&p, piece));
        cached.push_back(p);
    }
    for (void *q : cached) CK(cudaFree(q));
    CK(cudaMemGetInfo(&free0, &total));
    printf("freed memory is told as free: %s\n", free1 - free0 <= piece || free0 >= free1 ? "yes" : "no");
    fprintf(stderr, "held %zu GiB, freed %zu GiB in %zu pieces, free %.1f GiB\n", live.size(), cached.size() * piece / G, cached.size(), free0 / (double)G);

    int *out, value = 0;
    CK(cudaMalloc(&out, 4));
    cudaError_t r = touch_big(7, out);
    CK(cudaMemcpy(&value, out, 4, cudaMemcpyDeviceToHost));
    printf("a module with 512 MiB: %s, value %d\n", name(r), value);
    r = touch_local(9, out);
    CK(cudaMemcpy(&value, out, 4, cudaMemcpyDeviceToHost));
    printf("a kernel with 4 KiB of local memory a thread: %s, value %d\n", name(r), value);
    std::vector<cudaStream_t> many(128);
    for (auto &x : many) {
        CK(cudaStreamCreateWithFlags(&x, cudaStreamNonBlocking));
        fill<<<1, 1, 0, x>>>(out, 1, 3);
    }
    cudaGraph_t g;
    std::vector<cudaGraphExec_t> exec(64);
    CK(cudaDeviceSynchronize());
    CK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < 200; i++) fill<<<1, 1, 0, s>>>(out, 1, i);
    CK(cudaStreamEndCapture(s, &g));
    for (auto &e : exec) {
        CK(cudaGraphInstantiate(&e, g, 0));
        CK(cudaGraphLaunch(e, s));
    }
    CK(cudaDeviceSynchronize());
    printf("128 streams and 64 graphs: yes\n");

    CK(cudaMemGetInfo(&free0, &total));
    r = cudaMalloc(&p, free0 / 100 * 97);
    printf("97 %% of what is told as free: %s\n", name(r));
    if (!r) CK(cudaFree(p));
    for (void *q : live) CK(cudaFree(q));
    r = cudaMalloc(&p, total / 100 * 90);
    printf("90 %% of the card: %s\n", name(r));
    if (!r) {
        CK(cudaMemset((char *)p + total / 100 * 90 - 4096, 1, 4096));
        CK(cudaFree(p));
    }
    // Fill it again with other sizes than the cache has: whatever is cached has to make room.
    cached.clear();
    size_t got = 0, size = 48 << 20;
    for (int i = 1; (r = cudaMalloc(&p, size)) == cudaSuccess; i++) {
        if (i % 3) {
            cached.push_back(p);
            got += size;
        } else { // freed, and its size is not asked for again soon
            CK(cudaFree(p));
            size = i % 2 ? 48 << 20 : 80 << 20;
        }
    }
    cudaGetLastError();
    printf("filled until %s: at least 95 %% of the card: %s\n", name(r), got > total / 100 * 95 ? "yes" : "no");
    for (void *q : cached) CK(cudaFree(q));
    r = cudaMalloc(&p, total / 100 * 90);
    printf("90 %% of the card again: %s\n", name(r));
    if (!r) CK(cudaFree(p));
    // The other doors to memory find the cached bytes too.
    for (int door = 0; door < 3; door++) {
        cached.clear();
        for (size_t z = 0; z + G < total / 100 * 96; z += G) {
            CK(cudaMalloc(&p, G));
            cached.push_back(p);
        }
        for (void *q : cached) CK(cudaFree(q));
        CK(cudaDeviceSynchronize());
        size_t want = total / 100 * 90;
        const char *code = "?";
        if (door == 0) {
            cudaError_t e = cudaMallocAsync(&p, want, s);
            code = name(e);
            if (!e) CK(cudaFreeAsync(p, s));
            CK(cudaStreamSynchronize(s));
            cudaMemPool_t pool;
            CK(cudaDeviceGetDefaultMemPool(&pool, 0));
            CK(cudaMemPoolTrimTo(pool, 0));
        } else if (door == 1) {
            CUmemAllocationProp prop = {};
            prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
            prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
            CUmemGenericAllocationHandle h;
            CUresult e = cuMemCreate(&h, want >> 21 << 21, &prop, 0);
            code = name(e);
            if (!e) CK(cuMemRelease(h));
        } else {
            size_t pitch;
            cudaError_t e = cudaMallocPitch(&p, &pitch, 1 << 20, want >> 20);
            code = name(e);
            if (!e) CK(cudaFree(p));
        }
        cudaGetLastError();
        printf("90 %% of the card by %s: %s\n", (const char *[]){"cudaMallocAsync", "cuMemCreate", "cudaMallocPitch"}[door], code);
    }
}
