// Ends and errors: cudaDeviceReset in the middle, contexts made and destroyed, frees that are wrong, and what the
// device says about memory. Argument "codes", "truth", "reset" or "contexts".
#include "show.h"

#include <set>
#include <thread>
#include <vector>

static void codes() {
    void *p, *q = (void *)0x1234;
    CK(cudaFree(0));
    printf("cudaMalloc(0): %s", name(cudaMalloc(&q, 0)));
    printf(" %s\n", q ? "pointer" : "null");
    printf("cudaMalloc(null, 16): %s\n", name(cudaMalloc((void **)nullptr, 16)));
    cudaGetLastError();
    CUdeviceptr d = 0x1234;
    printf("cuMemAlloc(0): %s", name(cuMemAlloc(&d, 0)));
    printf(" %s\n", d ? "pointer" : "null");
    printf("cuMemAlloc(null, 16): %s, cuMemFree(0): %s\n", name(cuMemAlloc(nullptr, 16)), name(cuMemFree(0)));
    for (size_t z : {(size_t)1, (size_t)100, (size_t)5000, (size_t)1 << 20, ((size_t)1 << 20) + 1, (size_t)8 << 20}) {
        CK(cudaMalloc(&p, z));
        printf("%zu bytes: interior free %s", z, z > 1 ? name(cudaFree((char *)p + z / 2)) : "-");
        printf(", last error %s", name(cudaGetLastError()));
        printf(", free %s", name(cudaFree(p)));
        printf(", double free %s", name(cudaFree(p)));
        printf(", peeked %s", name(cudaPeekAtLastError()));
        printf(", last error %s", name(cudaGetLastError()));
        printf(", then %s", name(cudaGetLastError()));
        printf(", driver %s, aligned %s\n", name(cuMemFree((CUdeviceptr)p)), (size_t)p % 512 ? "no" : "yes");
    }
    int local;
    printf("unknown pointer: %s, of the host: %s\n", name(cudaFree((void *)0x123456789000)), name(cudaFree(&local)));
    cudaGetLastError();
    printf("far too much: %s", name(cudaMalloc(&p, (size_t)1 << 50)));
    printf(", last error %s\n", name(cudaGetLastError()));
    printf("all bits: %s", name(cudaMalloc(&p, ~(size_t)0)));
    printf(", last error %s\n", name(cudaGetLastError()));
    printf("cuMemAlloc, far too much: %s\n", name(cuMemAlloc(&d, (size_t)1 << 50)));
    CK(cudaMalloc(&p, 1 << 20));
    std::thread([&] { // no context is current here
        CUdeviceptr e;
        CUcontext c = nullptr;
        cuCtxGetCurrent(&c);
        printf("a thread with %s context: cuMemAlloc %s", c ? "a" : "no", name(cuMemAlloc(&e, 1 << 20)));
        printf(", cuMemFree %s\n", name(cuMemFree((CUdeviceptr)p)));
    }).join();
    cudaFree(p);
    cudaGetLastError();
    // The memory of other calls is given back with cudaFree too.
    cudaStream_t s;
    CK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    CK(cudaMallocAsync(&p, 1 << 20, s));
    CK(cudaStreamSynchronize(s));
    printf("cudaFree of cudaMallocAsync: %s\n", name(cudaFree(p)));
    CK(cudaMalloc(&p, 1 << 20));
    printf("cudaFreeAsync of cudaMalloc: %s", name(cudaFreeAsync(p, s)));
    CK(cudaStreamSynchronize(s));
    printf(", again %s\n", name(cudaFree(p)));
    cudaGetLastError();
    size_t pitch;
    CK(cudaMallocPitch(&p, &pitch, 1000, 100));
    printf("cudaMallocPitch: pitch %zu, cudaFree %s\n", pitch, name(cudaFree(p)));
    CK(cudaMallocManaged(&p, 4096));
    printf("cudaFree of cudaMallocManaged: %s\n", name(cudaFree(p)));
    CK(cudaMallocHost(&p, 4096));
    printf("cudaFree of cudaMallocHost: %s\n", name(cudaFree(p)));
    cudaGetLastError();
    CK(cudaFreeHost(p));
}

static void truth() {
    CK(cudaFree(0));
    size_t before, during, after, total;
    void *first;
    CK(cudaMalloc(&first, 1));
    CK(cudaMemGetInfo(&before, &total));
    std::vector<void *> v(400);
    size_t asked = 0, state = 7;
    for (size_t i = 0; i < v.size(); i++) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        size_t z = (size_t)1024 << (state >> 40) % 16;
        z += (state >> 20) % z;
        CK(cudaMalloc(&v[i], z));
        asked += z;
    }
    CK(cudaMemGetInfo(&during, &total));
    size_t grain = (size_t)2 << 20, slack = v.size() * grain;
    printf("held: used by what was asked for or more: %s, not by far more: %s\n", before - during + slack >= asked ? "yes" : "no",
           before - during <= asked + asked / 4 + slack ? "yes" : "no");
    for (size_t i = 0; i < v.size(); i += 2) CK(cudaFree(v[i]));
    for (size_t i = 1; i < v.size(); i += 2) CK(cudaFree(v[i]));
    CK(cudaMemGetInfo(&after, &total));
    long long lost = (long long)before - (long long)after;
    printf("all freed: free is as before within 2 MiB x %zu: %s\n", v.size(), lost <= (long long)slack && -lost <= (long long)slack ? "yes" : "no");
    printf("# asked %zu MiB, used %zu MiB, missing afterwards %lld KiB\n", asked >> 20, (before - during) >> 20, lost >> 10);
    printf("cudaMemGetInfo(null, total): %s\n", name(cudaMemGetInfo(nullptr, &total)));
    cudaGetLastError();
    printf("cuMemGetInfo(free, null): %s\n", name(cuMemGetInfo(&after, nullptr)));

    std::set<unsigned long long> ids;
    int allocations = 0;
    for (int round = 0; round < 3; round++)
        for (size_t z : {(size_t)1, (size_t)257, (size_t)1000, (size_t)5000, ((size_t)1 << 20) - 1, ((size_t)1 << 20) + 1, (size_t)3000000, (size_t)64 << 20}) {
            CUdeviceptr p, base = 0, start = 0;
            size_t size = 0, range = 0;
            CK(cuMemAlloc(&p, z));
            const char *code = name(cuMemGetAddressRange(&base, &size, p + z / 2));
            unsigned type = 0, managed = 9, legacy = 9, mapped = 9;
            int ordinal = -9;
            CUcontext context = nullptr, current = nullptr;
            unsigned long long id = 0, inner = 0;
            cuCtxGetCurrent(&current);
            CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                           CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_BUFFER_ID,
                                           CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, CU_POINTER_ATTRIBUTE_MAPPED, CU_POINTER_ATTRIBUTE_CONTEXT};
            void *to[] = {&type, &managed, &ordinal, &start, &range, &id, &legacy, &mapped, &context};
            printf("%8zu: range %s %s+%zu attributes %s", z, code, base == p ? "p" : "?", size, name(cuPointerGetAttributes(9, which, to, p + z / 2)));
            printf(" type %u managed %u device %d start %s size %zu ipc %u mapped %u context %s", type, managed, ordinal, start == p ? "p" : "?", range, legacy,
                   mapped, context == current ? "current" : "?");
            size_t one = 0;
            printf(", single %s", name(cuPointerGetAttribute(&one, CU_POINTER_ATTRIBUTE_RANGE_SIZE, p)));
            printf(" %zu", one);
            CK(cuPointerGetAttribute(&inner, CU_POINTER_ATTRIBUTE_BUFFER_ID, p));
            ids.insert(id);
            allocations++;
            cudaPointerAttributes a;
            printf(", id %s, runtime %s", id == inner && id ? "steady" : "?", name(cudaPointerGetAttributes(&a, (void *)p)));
            printf(" type %d device %d\n", (int)a.type, a.device);
            CK(cuMemFree(p));
            if (z > (size_t)2 << 20) { // nobody else is in its pages: a freed block is no longer memory
                printf("          freed: range %s", name(cuMemGetAddressRange(&base, &size, p)));
                printf(", attribute %s", name(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p)));
                type = 99, range = 99, id = 99;
                CUpointer_attribute few[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_BUFFER_ID};
                void *there[] = {&type, &range, &id};
                printf(", attributes %s", name(cuPointerGetAttributes(3, few, there, p)));
                printf(" %u %zu %llu", type, range, id);
                printf(", runtime %s", name(cudaPointerGetAttributes(&a, (void *)p)));
                printf(" type %d\n", (int)a.type);
                cudaGetLastError();
            }
        }
    printf("a new id for every allocation: %s\n", (int)ids.size() == allocations ? "yes" : "no");
    CK(cudaFree(first));
}

static void use(const char *label) { // some honest work
    cudaStream_t s;
    CK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    int *p, *q, h = 0, good = 0;
    for (int i = 0; i < 20; i++) {
        CK(cudaMalloc(&p, 1000 + i * 100000));
        CK(cudaMalloc(&q, 1000 + i * 100000));
        fill<<<1, 64, 0, s>>>(p, 64, i);
        slow_add<<<1, 64, 0, s>>>(q, p, 64, 1, 300000);
        CK(cudaFree(p));
        CK(cudaMemcpy(&h, q, 4, cudaMemcpyDeviceToHost));
        CK(cudaFree(q));
        good += h == i + 1;
    }
    CK(cudaStreamDestroy(s));
    printf("%s: right=%d/20\n", label, good);
}

static void reset() {
    size_t before = 0, after, total;
    for (int round = 0; round < 3; round++) {
        CK(cudaSetDevice(0));
        CK(cudaFree(0));
        if (!round) CK(cudaMemGetInfo(&before, &total));
        use("before a reset");
        std::vector<void *> v(50);
        for (auto &p : v) CK(cudaMalloc(&p, 10 << 20));
        for (size_t i = 0; i < v.size(); i += 2) CK(cudaFree(v[i]));
        printf("reset: %s\n", name(cudaDeviceReset()));
        printf("free of a block from before: live then %s", name(cudaFree(v[1])));
        printf(", freed then %s\n", name(cudaFree(v[0])));
        cudaGetLastError();
        use("after it");
        void *p;
        std::set<void *> seen;
        int fresh = 0;
        for (int i = 0; i < 60; i++) { // no address twice, also if one from before the reset comes back
            CK(cudaMalloc(&p, 10 << 20));
            fresh += seen.insert(p).second;
        }
        printf("60 allocations, different: %d\n", fresh);
        CK(cudaMemset(p, 0, 10 << 20));
        for (void *q : seen) CK(cudaFree(q));
    }
    CK(cudaDeviceReset());
    CK(cudaFree(0));
    CK(cudaMemGetInfo(&after, &total));
    printf("nothing is lost over 4 resets: %s\n", before <= after + (64 << 20) ? "yes" : "no");
}

static void contexts() {
    CK(cuInit(0));
    CUdevice d;
    CK(cuDeviceGet(&d, 0));
    size_t first = 0, last = 0, total;
    for (int i = 0; i < 6; i++) {
        CUcontext c = new_context(d);
        CK(cuMemGetInfo(&last, &total));
        if (!i) first = last;
        std::vector<CUdeviceptr> v(40);
        for (auto &p : v) CK(cuMemAlloc(&p, 20 << 20));
        for (size_t k = 0; k < v.size(); k += 2) CK(cuMemFree(v[k]));
        use("in a context");
        CK(cuCtxDestroy(c));
        printf("after its end: free of a live block %s", name(cuMemFree(v[1])));
        printf(", of a freed one %s\n", name(cuMemFree(v[0])));
    }
    printf("nothing is lost over 6 contexts: %s\n", first <= last + (64 << 20) ? "yes" : "no");
    // Two at once, freed crosswise; then the primary one, retained twice and released twice.
    CUcontext a = new_context(d), b = new_context(d), top;
    CUdeviceptr p, q;
    CK(cuCtxSetCurrent(a));
    CK(cuMemAlloc(&p, 8 << 20));
    CK(cuCtxSetCurrent(b));
    CK(cuMemAlloc(&q, 8 << 20));
    printf("freed crosswise: %s", name(cuMemFree(p)));
    CK(cuCtxSetCurrent(a));
    printf(" %s\n", name(cuMemFree(q)));
    CK(cuMemAlloc(&p, 8 << 20));
    CUcontext owner = nullptr;
    CK(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, p));
    printf("a new block belongs to the current context: %s\n", owner == a ? "yes" : "no");
    CK(cuCtxSetCurrent(b));
    CK(cuMemAlloc(&q, 8 << 20));
    CK(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, q));
    printf("and this one to the other: %s\n", owner == b ? "yes" : "no");
    CK(cuCtxDestroy(a));
    CK(cuCtxDestroy(b));
    CK(cuDevicePrimaryCtxRetain(&top, d));
    CK(cuDevicePrimaryCtxRetain(&top, d));
    CK(cuCtxSetCurrent(top));
    use("in the primary context");
    CK(cuMemAlloc(&p, 8 << 20));
    CK(cuDevicePrimaryCtxRelease(d));
    printf("released once: free %s\n", name(cuMemFree(p)));
    CK(cuMemAlloc(&p, 8 << 20));
    CK(cuDevicePrimaryCtxRelease(d));
    printf("released twice: free %s\n", name(cuMemFree(p)));
    CK(cuDevicePrimaryCtxRetain(&top, d));
    CK(cuCtxSetCurrent(top));
    use("retained again");
    CK(cuDevicePrimaryCtxRelease(d));
}

int main(int, char **argv) {
    if (!strcmp(argv[1], "codes")) codes();
    if (!strcmp(argv[1], "truth")) truth();
    if (!strcmp(argv[1], "reset")) reset();
    if (!strcmp(argv[1], "contexts")) contexts();
}
