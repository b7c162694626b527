// Which memory calls the runtime library itself makes at start-up: this program defines dlsym, through which the
// runtime finds cuGetProcAddress, and wraps some of the pointers it gets. Bare only. Linked static and shared.
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstring>

typedef int Result;
enum { HOST_ALLOC, ALLOC_HOST, HOST_REGISTER, MANAGED, ALLOC, ALLOC_ASYNC, STREAM, STREAM_PRIORITY, HOST_FUNCTION, KINDS };
static const char *const names[KINDS] = {"cuMemHostAlloc", "cuMemAllocHost", "cuMemHostRegister", "cuMemAllocManaged", "cuMemAlloc",
                                         "cuMemAllocAsync", "cuStreamCreate", "cuStreamCreateWithPriority", "cuLaunchHostFunc"};
static void *real[KINDS];
static const char *stage = "start";

static Result host_alloc(void **p, size_t n, unsigned flags) {
    printf("%s: cuMemHostAlloc %zu flags %u\n", stage, n, flags);
    return ((Result(*)(void **, size_t, unsigned))real[HOST_ALLOC])(p, n, flags);
}
static Result alloc_host(void **p, size_t n) {
    printf("%s: cuMemAllocHost %zu\n", stage, n);
    return ((Result(*)(void **, size_t))real[ALLOC_HOST])(p, n);
}
static Result host_register(void *p, size_t n, unsigned flags) {
    printf("%s: cuMemHostRegister %zu flags %u\n", stage, n, flags);
    return ((Result(*)(void *, size_t, unsigned))real[HOST_REGISTER])(p, n, flags);
}
static Result managed(unsigned long long *p, size_t n, unsigned flags) {
    printf("%s: cuMemAllocManaged %zu\n", stage, n);
    return ((Result(*)(unsigned long long *, size_t, unsigned))real[MANAGED])(p, n, flags);
}
static Result alloc(unsigned long long *p, size_t n) {
    printf("%s: cuMemAlloc %zu\n", stage, n);
    return ((Result(*)(unsigned long long *, size_t))real[ALLOC])(p, n);
}
static Result alloc_async(unsigned long long *p, size_t n, void *s) {
    printf("%s: cuMemAllocAsync %zu\n", stage, n);
    return ((Result(*)(unsigned long long *, size_t, void *))real[ALLOC_ASYNC])(p, n, s);
}
static Result stream(void **s, unsigned flags) {
    printf("%s: cuStreamCreate flags %u\n", stage, flags);
    return ((Result(*)(void **, unsigned))real[STREAM])(s, flags);
}
static Result stream_priority(void **s, unsigned flags, int priority) {
    printf("%s: cuStreamCreateWithPriority flags %u\n", stage, flags);
    return ((Result(*)(void **, unsigned, int))real[STREAM_PRIORITY])(s, flags, priority);
}
static Result host_function(void *s, void (*f)(void *), void *data) {
    printf("%s: cuLaunchHostFunc\n", stage);
    return ((Result(*)(void *, void (*)(void *), void *))real[HOST_FUNCTION])(s, f, data);
}
static void *const wraps[KINDS] = {(void *)host_alloc, (void *)alloc_host, (void *)host_register, (void *)managed, (void *)alloc,
                                   (void *)alloc_async, (void *)stream, (void *)stream_priority, (void *)host_function};

static Result (*real_v2)(const char *, void **, int, unsigned long long, int *);
static Result (*real_v1)(const char *, void **, int, unsigned long long);
static int found;
static void wrap(const char *name, void **p, unsigned long long flags) {
    found++;
    for (int i = 0; i < KINDS; i++)
        if (!strcmp(name, names[i]) && *p && !(flags & 2)) {
            real[i] = *p;
            *p = wraps[i];
        }
}
static Result get_v2(const char *name, void **p, int version, unsigned long long flags, int *status);
static Result get_v1(const char *name, void **p, int version, unsigned long long flags) {
    Result r = real_v1(name, p, version, flags);
    if (!r) wrap(name, p, flags);
    return r;
}
static Result get_v2(const char *name, void **p, int version, unsigned long long flags, int *status) {
    Result r = real_v2(name, p, version, flags, status);
    if (r || !p || !*p) return r;
    if (!strcmp(name, "cuGetProcAddress")) { // it asks for itself, too
        if (version >= 12000) *p = (void *)get_v2;
        return r;
    }
    wrap(name, p, flags);
    return r;
}
extern "C" __attribute__((visibility("default"))) void *dlsym(void *handle, const char *name) noexcept {
    static void *(*real_dlsym)(void *, const char *);
    if (!real_dlsym) real_dlsym = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    if (!real_dlsym) real_dlsym = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    void *p = real_dlsym(handle, name);
    if (p && !strcmp(name, "cuGetProcAddress_v2")) {
        real_v2 = (decltype(real_v2))p;
        return (void *)get_v2;
    }
    if (p && !strcmp(name, "cuGetProcAddress")) {
        real_v1 = (decltype(real_v1))p;
        return (void *)get_v1;
    }
    return p;
}

__global__ void nothing() {}

int main() {
    void *p;
    cudaFree(0);
    stage = "first allocation";
    cudaMalloc(&p, 1000);
    stage = "first kernel";
    nothing<<<1, 1>>>();
    cudaDeviceSynchronize();
    stage = "first copy";
    char h[100];
    cudaMemcpy(h, p, 100, cudaMemcpyDeviceToHost);
    stage = "first stream";
    cudaStream_t s;
    cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
    nothing<<<1, 1, 0, s>>>();
    stage = "first asynchronous copy";
    cudaMemcpyAsync(h, p, 100, cudaMemcpyDeviceToHost, s);
    cudaDeviceSynchronize();
    stage = "first pinned memory";
    void *q;
    cudaMallocHost(&q, 5000);
    stage = "reset";
    cudaDeviceReset();
    cudaFree(0);
    printf("looked up %s driver functions through here\n", found > 100 ? "over 100" : found ? "some" : "no");
}
