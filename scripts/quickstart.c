/* The program that quickstart.sh runs under vramscope: a small training loop with the usual habits, and one leak.
 *
 * It uses the driver API and finds libcuda as any program may (dlopen, dlsym), so it needs neither nvcc nor CUDA's
 * headers, and runs on the simulated GPU of tests/simgpu as on a real one. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

typedef int CUresult;
typedef unsigned long long CUdeviceptr;

static CUresult (*init)(unsigned), (*device_get)(int *, int), (*retain)(void **, int), (*set_current)(void *);
static CUresult (*mem_alloc)(CUdeviceptr *, size_t), (*mem_free)(CUdeviceptr), (*memset_d8)(CUdeviceptr, unsigned char, size_t);
static CUresult (*stream_create)(void **, unsigned), (*synchronize)(void);

static void *find(void *cuda, const char *name) {
    void *p = dlsym(cuda, name);
    if (!p) {
        fprintf(stderr, "quickstart: libcuda.so.1 has no %s\n", name);
        exit(2);
    }
    return p;
}

static void check(CUresult r, const char *what) {
    if (r) {
        fprintf(stderr, "quickstart: %s failed with CUDA error %d\n", what, r);
        exit(2);
    }
}

static CUdeviceptr tensor(size_t bytes) {
    CUdeviceptr p = 0;
    check(mem_alloc(&p, bytes), "cuMemAlloc");
    return p;
}

static void load_weights(CUdeviceptr *layers, int n) {
    for (int i = 0; i < n; i++) {
        layers[i] = tensor(24u << 20);
        check(memset_d8(layers[i], 0, 24u << 20), "cuMemsetD8");
    }
}

static void attention(int tokens) {
    CUdeviceptr scores = tensor((size_t)tokens * tokens * 4);
    CUdeviceptr context = tensor((size_t)tokens * 4096);
    check(memset_d8(scores, 1, (size_t)tokens * tokens * 4), "cuMemsetD8");
    check(mem_free(scores), "cuMemFree");
    check(mem_free(context), "cuMemFree");
}

/* The bug: every tenth step's loss is kept, and never given back. */
static void keep_loss_history(int step) {
    if (step % 10 == 0) {
        CUdeviceptr kept = tensor(3u << 20);
        check(memset_d8(kept, 2, 3u << 20), "cuMemsetD8");
    }
}

static void train_step(int step) {
    CUdeviceptr gradients = tensor(24u << 20);
    for (int head = 0; head < 8; head++) attention(512 + 64 * (step % 4));
    keep_loss_history(step);
    check(mem_free(gradients), "cuMemFree");
}

int main(void) {
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW), *context, *stream;
    if (!cuda) {
        fprintf(stderr, "quickstart: no libcuda.so.1: %s\n", dlerror());
        return 2;
    }
    *(void **)&init = find(cuda, "cuInit");
    *(void **)&device_get = find(cuda, "cuDeviceGet");
    *(void **)&retain = find(cuda, "cuDevicePrimaryCtxRetain");
    *(void **)&set_current = find(cuda, "cuCtxSetCurrent");
    *(void **)&mem_alloc = find(cuda, "cuMemAlloc_v2");
    *(void **)&mem_free = find(cuda, "cuMemFree_v2");
    *(void **)&memset_d8 = find(cuda, "cuMemsetD8_v2");
    *(void **)&stream_create = find(cuda, "cuStreamCreate");
    *(void **)&synchronize = find(cuda, "cuCtxSynchronize");
    int device;
    check(init(0), "cuInit");
    check(device_get(&device, 0), "cuDeviceGet");
    check(retain(&context, device), "cuDevicePrimaryCtxRetain");
    check(set_current(context), "cuCtxSetCurrent");
    check(stream_create(&stream, 1), "cuStreamCreate");
    CUdeviceptr layers[12];
    load_weights(layers, 12);
    for (int step = 0; step < 60; step++) train_step(step);
    check(synchronize(), "cuCtxSynchronize");
    for (int i = 0; i < 12; i++) check(mem_free(layers[i]), "cuMemFree");
    puts("quickstart: 60 steps done");
    return 0;
}
