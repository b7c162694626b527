// Facts about the driver that the pool's rules stand on. Bare only; nothing is compared.
#include "show.h"

#include <atomic>
#include <thread>

static CUcontext context;
static CUevent event;
static CUdeviceptr block;

static const char *asked[8];
static void CUDART_CB ask(void *) {
    size_t f, t;
    unsigned type;
    asked[0] = name(cuCtxRecordEvent(context, event));
    asked[1] = name(cuCtxWaitEvent(context, event));
    asked[2] = name(cuEventQuery(event));
    asked[3] = name(cuMemGetInfo(&f, &t));
    asked[4] = name(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, block));
    CUcontext c = nullptr;
    asked[5] = name(cuCtxGetCurrent(&c));
    asked[6] = c ? "a context" : "no context";
}
static const char *one;
static void CUDART_CB ask_alloc(void *) { CUdeviceptr p; one = name(cuMemAlloc(&p, 1 << 20)); }
static void CUDART_CB ask_free(void *) { one = name(cuMemFree(block)); }
static void CUDART_CB ask_wait(void *) { one = name(cuEventSynchronize(event)); }

int main(int argc, char **argv) {
    CK(cudaFree(0));
    CK(cuCtxGetCurrent(&context));
    CK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    cudaStream_t s, t;
    CK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    CK(cudaStreamCreateWithFlags(&t, cudaStreamNonBlocking));
    wait_only<<<1, 1, 0, s>>>(1);
    CK(cuMemAlloc(&block, 4 << 20));
    CK(cudaDeviceSynchronize());
    int driver = 0, runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);

    if (argc > 1) { // calls that may hang inside a host function: one a process
        CK(cuCtxRecordEvent(context, event));
        CK(cudaLaunchHostFunc(s, !strcmp(argv[1], "alloc") ? ask_alloc : !strcmp(argv[1], "free") ? ask_free : ask_wait, nullptr));
        CK(cudaStreamSynchronize(s));
        printf("in a host function: %s %s\n", argv[1], one);
        return 0;
    }
    printf("driver %d, runtime %d\n", driver, runtime);
    CK(cudaLaunchHostFunc(s, ask, nullptr));
    CK(cudaStreamSynchronize(s));
    printf("in a host function: cuCtxRecordEvent %s, cuCtxWaitEvent %s, cuEventQuery %s, cuMemGetInfo %s, cuPointerGetAttribute %s, cuCtxGetCurrent %s %s\n",
           asked[0], asked[1], asked[2], asked[3], asked[4], asked[5], asked[6]);

    struct { cudaStreamCaptureMode mode; const char *name; } modes[] = {
        {cudaStreamCaptureModeGlobal, "global"}, {cudaStreamCaptureModeThreadLocal, "thread-local"}, {cudaStreamCaptureModeRelaxed, "relaxed"}};
    const char *calls[] = {"cuMemGetInfo", "cuCtxRecordEvent", "cuCtxWaitEvent", "cuEventQuery", "cuEventSynchronize", "cuCtxSynchronize",
                           "cuMemAlloc", "cuMemFree", "cuMemFree(interior)", "cuPointerGetAttribute", "cuMemGetAddressRange", "cuStreamCreate"};
    for (auto &m : modes)
        for (bool same : {true, false})
            for (int k = 0; k < 12; k++) {
                CUdeviceptr p, q = 0;
                CUresult r = CUDA_SUCCESS;
                cudaError_t end = cudaSuccess;
                CK(cuMemAlloc(&p, 4 << 20));
                CK(cuCtxRecordEvent(context, event));
                CK(cudaDeviceSynchronize());
                auto call = [&] {
                    size_t f, n;
                    unsigned type;
                    CUdeviceptr base;
                    CUstream made;
                    r = k == 0   ? cuMemGetInfo(&f, &n)
                        : k == 1 ? cuCtxRecordEvent(context, event)
                        : k == 2 ? cuCtxWaitEvent(context, event)
                        : k == 3 ? cuEventQuery(event)
                        : k == 4 ? cuEventSynchronize(event)
                        : k == 5 ? cuCtxSynchronize()
                        : k == 6 ? cuMemAlloc(&q, 4 << 20)
                        : k == 7 ? cuMemFree(p)
                        : k == 8 ? cuMemFree(p + 512)
                        : k == 9 ? cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p)
                        : k == 10 ? cuMemGetAddressRange(&base, &n, p)
                                 : cuStreamCreate(&made, CU_STREAM_NON_BLOCKING);
                };
                std::atomic<int> turn{0};
                std::thread other([&] {
                    cudaGraph_t g = nullptr;
                    CK(cudaSetDevice(0));
                    CK(cudaStreamBeginCapture(t, m.mode));
                    if (same) call();
                    turn = 1;
                    while (!same && turn != 2) std::this_thread::yield();
                    end = cudaStreamEndCapture(t, &g);
                    cudaGetLastError();
                    if (g) cudaGraphDestroy(g);
                });
                while (turn != 1) std::this_thread::yield();
                if (!same) call();
                turn = 2;
                other.join();
                printf("capture %s, %s thread: %s %s, end %s\n", m.name, same ? "the same" : "another", calls[k], name(r), name(end));
                if (q) cuMemFree(q);
                if (k != 7 || r) cuMemFree(p);
                CK(cudaDeviceSynchronize());
            }

    { // freed pointers
        CUdeviceptr p, base = 0;
        unsigned type = 99;
        size_t size;
        CK(cuMemAlloc(&p, 8 << 20));
        CK(cuMemFree(p));
        printf("freed 8 MiB: cuPointerGetAttribute %s", name(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p)));
        CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
        size_t range = 99;
        void *to[] = {&type, &range};
        type = 99;
        printf(", cuPointerGetAttributes %s", name(cuPointerGetAttributes(2, which, to, p)));
        printf(" (type %u, size %zu)", type, range);
        printf(", cuMemGetAddressRange %s", name(cuMemGetAddressRange(&base, &size, p)));
        cudaPointerAttributes a;
        printf(", cudaPointerGetAttributes %s", name(cudaPointerGetAttributes(&a, (void *)p)));
        printf(" (type %d)\n", (int)a.type);
        CUdeviceptr x, y;
        CK(cuMemAlloc(&x, 1000));
        CK(cuMemAlloc(&y, 1000));
        CK(cuMemFree(y));
        printf("freed 1000 bytes with a live neighbour: cuPointerGetAttribute %s", name(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, y)));
        printf(", cuMemGetAddressRange %s\n", name(cuMemGetAddressRange(&base, &size, y)));
        CK(cuMemFree(x));
    }
    auto cost = [&](const char *label, auto &&f) {
        for (int i = 0; i < 100; i++) f();
        auto from = Clock::now();
        for (int i = 0; i < 2000; i++) f();
        printf("%s: %.2f us\n", label, us_since(from) / 2000);
    };
    CUevent spin_event = event, blocking;
    CK(cuEventCreate(&blocking, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC));
    CK(cudaDeviceSynchronize());
    cost("idle: cuCtxSynchronize", [&] { cuCtxSynchronize(); });
    cost("idle: cuCtxRecordEvent + cuEventSynchronize", [&] { cuCtxRecordEvent(context, spin_event); cuEventSynchronize(spin_event); });
    cost("idle: the same, blocking event", [&] { cuCtxRecordEvent(context, blocking); cuEventSynchronize(blocking); });
    cost("idle: cuCtxRecordEvent + cuCtxWaitEvent", [&] { cuCtxRecordEvent(context, spin_event); cuCtxWaitEvent(context, spin_event); });
    cost("idle: cuCtxRecordEvent + cuEventQuery", [&] { cuCtxRecordEvent(context, spin_event); cuEventQuery(spin_event); });
    cost("idle: cuEventQuery of a done event", [&] { cuEventQuery(spin_event); });
    cost("idle: cuMemGetInfo", [&] { size_t f, n; cuMemGetInfo(&f, &n); });
    cost("kernel of 20 us, then cuCtxSynchronize", [&] { wait_only<<<1, 1, 0, s>>>(20000); cuCtxSynchronize(); });
    cost("kernel of 20 us, then cuCtxRecordEvent + cuEventSynchronize", [&] {
        wait_only<<<1, 1, 0, s>>>(20000);
        cuCtxRecordEvent(context, spin_event);
        cuEventSynchronize(spin_event);
    });
    cost("kernel of 20 us, then the barrier and cuEventSynchronize", [&] {
        wait_only<<<1, 1, 0, s>>>(20000);
        cuCtxRecordEvent(context, spin_event);
        cuCtxWaitEvent(context, spin_event);
        cuEventSynchronize(spin_event);
    });
    // How many barriers fit behind a running kernel before the host has to wait.
    {
        cudaStream_t many[8];
        for (auto &x : many) CK(cudaStreamCreateWithFlags(&x, cudaStreamNonBlocking));
        CK(cudaDeviceSynchronize());
        for (auto &x : many) wait_only<<<1, 1, 0, x>>>(300000000);
        auto from = Clock::now();
        double last = 0, worst = 0;
        int n = 0, at = 0;
        while (n < 20000 && us_since(from) < 250000) {
            cuCtxRecordEvent(context, event);
            cuCtxWaitEvent(context, event);
            double now = us_since(from);
            if (now - last > worst) worst = now - last, at = n;
            last = now;
            n++;
        }
        printf("8 busy streams: %d barriers in %.0f us, the slowest %.0f us (number %d)\n", n, last, worst, at);
        CK(cudaDeviceSynchronize());
    }
    // Does the native free wait for a host function, and for other threads' work?
    {
        static std::atomic<int> done;
        CUdeviceptr p;
        CK(cuMemAlloc(&p, 4 << 20));
        done = 0;
        CK(cudaLaunchHostFunc(s, [](void *) { std::this_thread::sleep_for(std::chrono::milliseconds(30)); done = 1; }, nullptr));
        CK(cuMemFree(p));
        printf("cuMemFree waits for a pending host function: %s\n", done ? "yes" : "no");
        CK(cudaDeviceSynchronize());
    }
    // A legacy kernel spins; the first stream is long there. Does creating one more wait? Does destroying one?
    {
        wait_only<<<1, 1>>>(20000000);
        cudaStream_t x;
        auto from = Clock::now();
        CK(cudaStreamCreateWithFlags(&x, cudaStreamNonBlocking));
        printf("cudaStreamCreate beside a 20 ms kernel: %.0f us", us_since(from));
        from = Clock::now();
        CK(cudaStreamDestroy(x));
        printf(", destroy %.0f us\n", us_since(from));
        CK(cudaDeviceSynchronize());
    }
}
