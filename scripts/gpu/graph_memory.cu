// Memory that belongs to graphs: nodes that allocate and free, a capture of cudaMallocAsync, a graph whose memory
// outlives it and is freed with cudaFree, trimming.
#include "show.h"

int main() {
    CK(cudaFree(0));
    cudaStream_t s;
    CK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    int *out, h = 0, right = 0;
    CK(cudaMalloc(&out, 4096));
    const size_t bytes = 8 << 20;

    auto nodes = [&](bool free_inside, int **memory) {
        cudaGraph_t g;
        CK(cudaGraphCreate(&g, 0));
        cudaMemAllocNodeParams alloc = {};
        alloc.poolProps.allocType = cudaMemAllocationTypePinned;
        alloc.poolProps.location.type = cudaMemLocationTypeDevice;
        alloc.bytesize = bytes;
        cudaGraphNode_t n_alloc, n_fill, n_add, n_free;
        CK(cudaGraphAddMemAllocNode(&n_alloc, g, nullptr, 0, &alloc));
        int *p = (int *)alloc.dptr, count = 64, seven = 7, one = 1;
        unsigned long long ns = 1000000;
        *memory = p;
        cudaKernelNodeParams k = {};
        void *fill_args[] = {&p, &count, &seven}, *add_args[] = {&out, &p, &count, &one, &ns};
        k.func = (void *)fill;
        k.gridDim = dim3(1);
        k.blockDim = dim3(64);
        k.kernelParams = fill_args;
        CK(cudaGraphAddKernelNode(&n_fill, g, &n_alloc, 1, &k));
        k.func = (void *)slow_add;
        k.kernelParams = add_args;
        CK(cudaGraphAddKernelNode(&n_add, g, &n_fill, 1, &k));
        if (free_inside) CK(cudaGraphAddMemFreeNode(&n_free, g, &n_add, 1, p));
        return g;
    };
    int *memory;
    cudaGraph_t g = nodes(true, &memory);
    cudaGraphExec_t e;
    CK(cudaGraphInstantiate(&e, g, 0));
    for (int i = 0; i < 10; i++) {
        CK(cudaMemsetAsync(out, 0, 4, s));
        CK(cudaGraphLaunch(e, s));
        void *p; // plain memory comes and goes meanwhile
        CK(cudaMalloc(&p, bytes));
        CK(cudaFree(p));
        CK(cudaMemcpy(&h, out, 4, cudaMemcpyDeviceToHost));
        right += h == 8;
    }
    printf("allocated and freed in the graph: right=%d/10\n", right);
    CK(cudaGraphExecDestroy(e));
    CK(cudaGraphDestroy(g));

    g = nodes(false, &memory);
    CK(cudaGraphInstantiate(&e, g, 0));
    right = 0;
    for (int i = 0; i < 10; i++) {
        CK(cudaMemsetAsync(out, 0, 4, s));
        CK(cudaGraphLaunch(e, s));
        cudaError_t r = i % 2 ? cudaFree(memory) : cudaFreeAsync(memory, s); // both are allowed
        if (r) printf("free of the graph's memory: %s\n", name(r));
        CK(cudaStreamSynchronize(s));
        CK(cudaMemcpy(&h, out, 4, cudaMemcpyDeviceToHost));
        right += h == 8;
    }
    printf("freed outside the graph: right=%d/10\n", right);
    CK(cudaGraphExecDestroy(e));
    CK(cudaGraphDestroy(g));

    int *p;
    CK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    CK(cudaMallocAsync(&p, bytes, s));
    fill<<<1, 64, 0, s>>>(p, 64, 20);
    slow_add<<<1, 64, 0, s>>>(out, p, 64, 2, 1000000);
    CK(cudaFreeAsync(p, s));
    CK(cudaStreamEndCapture(s, &g));
    size_t count = 0;
    CK(cudaGraphGetNodes(g, nullptr, &count));
    CK(cudaGraphInstantiate(&e, g, 0));
    right = 0;
    for (int i = 0; i < 10; i++) {
        CK(cudaMemsetAsync(out, 0, 4, s));
        CK(cudaGraphLaunch(e, s));
        CK(cudaStreamSynchronize(s));
        CK(cudaMemcpy(&h, out, 4, cudaMemcpyDeviceToHost));
        right += h == 22;
    }
    printf("captured, %zu nodes: right=%d/10\n", count, right);
    CK(cudaGraphExecDestroy(e));
    CK(cudaGraphDestroy(g));
    unsigned long long reserved = 1;
    printf("trim: %s", name(cudaDeviceGraphMemTrim(0)));
    CK(cudaDeviceGetGraphMemAttribute(0, cudaGraphMemAttrReservedMemCurrent, &reserved));
    printf(", reserved %llu\n", reserved);
    CK(cudaFree(out));
}
