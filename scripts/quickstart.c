/* The program that quickstart.sh runs under vramscope: a small training loop with the usual habits, and one leak.
 *
 * It uses the driver API and finds libcuda as any program may (dlopen, dlsym), so it needs neither nvcc nor CUDA's
 * headers, and runs on the simulated GPU of tests/simgpu as on a real one. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

typedef int CUresult;
typedef unsigned long long CUdeviceptr;

enum { STEPS = 60, LAYERS = 12, HEADS = 8 };
enum { WEIGHTS = 24 << 20, BATCH = 8 << 20, LOGITS = 16 << 20, LOSS = 2 << 20 };

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

/* Each allocates in its own line, so that the report names that line and not a helper's. */
static void load_weights(CUdeviceptr *layers, int n) {
    for (int i = 0; i < n; i++) {
        check(mem_alloc(&layers[i], WEIGHTS), "cuMemAlloc");
        check(memset_d8(layers[i], 0, WEIGHTS), "cuMemsetD8");
    }
}

static void attention(int tokens) {
    CUdeviceptr scores, context;
    check(mem_alloc(&scores, (size_t)tokens * tokens * 4), "cuMemAlloc");
    check(mem_alloc(&context, (size_t)tokens * 4096), "cuMemAlloc");
    check(memset_d8(scores, 1, (size_t)tokens * tokens * 4), "cuMemsetD8");
    check(mem_free(scores), "cuMemFree");
    check(mem_free(context), "cuMemFree");
}

/* The bug: each step's loss is kept, and never given back. */
static void keep_loss_history(void) {
    CUdeviceptr kept;
    check(mem_alloc(&kept, LOSS), "cuMemAlloc");
    check(memset_d8(kept, 2, LOSS), "cuMemsetD8");
}

static void train_step(int step) {
    CUdeviceptr batch, logits, gradients;
    int tokens = 512 + 64 * (step % 4);
    check(mem_alloc(&batch, BATCH), "cuMemAlloc");
    for (int head = 0; head < HEADS; head++) attention(tokens);
    check(mem_alloc(&logits, LOGITS), "cuMemAlloc");
    check(mem_alloc(&gradients, WEIGHTS), "cuMemAlloc");
    keep_loss_history();
    check(mem_free(logits), "cuMemFree");
    check(mem_free(gradients), "cuMemFree");
    check(mem_free(batch), "cuMemFree");
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
    CUdeviceptr layers[LAYERS];
    load_weights(layers, LAYERS);
    for (int step = 0; step < STEPS; step++) train_step(step);
    check(synchronize(), "cuCtxSynchronize");
    for (int i = 0; i < LAYERS; i++) check(mem_free(layers[i]), "cuMemFree");
    printf("quickstart: %d steps done\n", STEPS);
    return 0;
}
