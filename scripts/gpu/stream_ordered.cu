// Stream-ordered allocation: the default pool with a release threshold, a pool of one's own, its attributes, trimming.
#include "show.h"

#include <vector>

int main() {
    CK(cudaFree(0));
    cudaStream_t a, b;
    CK(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
    CK(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
    cudaMemPool_t pool, mine;
    CK(cudaDeviceGetDefaultMemPool(&pool, 0));
    unsigned long long keep = ~0ull, used, reserved;
    CK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    const int n = 1 << 20;
    std::vector<int> h(n), back(n);
    for (int i = 0; i < n; i++) h[i] = i;
    int right = 0;
    for (int rep = 0; rep < 20; rep++) {
        int *x, *y;
        CK(cudaMallocAsync(&x, n * 4, a));
        CK(cudaMallocAsync(&y, n * 4, a));
        CK(cudaMemcpyAsync(x, h.data(), n * 4, cudaMemcpyHostToDevice, a));
        slow_add<<<32, 256, 0, a>>>(y, x, n, rep, 1000000);
        CK(cudaFreeAsync(x, a));
        cudaEvent_t e;
        CK(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
        CK(cudaEventRecord(e, a));
        CK(cudaStreamWaitEvent(b, e, 0));
        CK(cudaMemcpyAsync(back.data(), y, n * 4, cudaMemcpyDeviceToHost, b));
        CK(cudaFreeAsync(y, b));
        CK(cudaStreamSynchronize(b));
        CK(cudaEventDestroy(e));
        bool good = true;
        for (int i = 0; i < n; i += 97) good &= back[i] == i + rep;
        right += good;
    }
    CK(cudaDeviceSynchronize());
    CK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
    CK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved));
    printf("default pool: right=%d/20, used %llu, still reserved %s\n", right, used, reserved ? "yes" : "no");
    CK(cudaMemPoolTrimTo(pool, 0));
    CK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved));
    printf("trimmed: reserved %llu\n", reserved);

    cudaMemPoolProps props = {};
    props.allocType = cudaMemAllocationTypePinned;
    props.location.type = cudaMemLocationTypeDevice;
    CK(cudaMemPoolCreate(&mine, &props));
    int *p, value = 0;
    CK(cudaMallocFromPoolAsync(&p, 10 << 20, mine, a));
    fill<<<1, 64, 0, a>>>(p, 64, 5);
    CK(cudaMemcpyAsync(&value, p, 4, cudaMemcpyDeviceToHost, a));
    CK(cudaStreamSynchronize(a));
    CK(cudaMemPoolGetAttribute(mine, cudaMemPoolAttrUsedMemCurrent, &used));
    printf("own pool: value %d, used %llu\n", value, used);
    cudaPointerAttributes at;
    CK(cudaPointerGetAttributes(&at, p));
    printf("type %d, device %d\n", (int)at.type, at.device);
    CK(cudaFreeAsync(p, a));
    CK(cudaStreamSynchronize(a));
    CK(cudaMemPoolDestroy(mine));
    // Freed by cudaFree, and plain memory freed in stream order.
    CK(cudaMallocAsync(&p, 1 << 20, a));
    CK(cudaStreamSynchronize(a));
    printf("cudaFree: %s\n", name(cudaFree(p)));
    CK(cudaMalloc(&p, 1 << 20));
    fill<<<1, 64, 0, a>>>(p, 64, 5);
    printf("cudaFreeAsync of plain memory: %s\n", name(cudaFreeAsync(p, a)));
    CK(cudaDeviceSynchronize());
}
