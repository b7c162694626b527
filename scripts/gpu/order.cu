// Programs that are right only because cudaFree waits for the device. Each is run many times and its result checked.
// One group a process, because what a process has done before (streams created, pinned memory held) changes what
// vramscope must do at a free:
//   streams       kernels on non-blocking streams, per-thread streams, graphs, contexts; nothing the host can see
//   captures      free and allocate while a stream captures
//   first_stream  the first stream of the process is created after the free
//   per_thread    no stream is ever created: only cudaStreamPerThread as a handle
//   pinned registered managed host_function copied   what the host sees right after the free
// Lines that begin with [host] are promised only where the host waits.
#include "show.h"

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

static const unsigned long long SLOW = 4000000; // ns
static const int REPEAT = 20, MOST = 1 << 16;
static int *out, *out2;
static std::vector<int> host(MOST);

static size_t size_of(int rep) { return (size_t[]){4096, 256 << 10, 8 << 20}[rep % 3]; }
static int count_of(int rep) { return (int)std::min<size_t>(size_of(rep) / 4, MOST); }
static int value_of(int rep) { return 1000 + rep * 7; }
static bool all(const volatile int *p, int n, int v) {
    for (int i = 0; i < n; i++)
        if (p[i] != v) return false;
    return true;
}
static bool reads(const int *device, int n, int v) { // through the legacy stream
    CK(cudaMemcpy(host.data(), device, n * sizeof(int), cudaMemcpyDeviceToHost));
    return all(host.data(), n, v);
}
static int *scratch(int rep) {
    int *p;
    CK(cudaMalloc(&p, size_of(rep)));
    return p;
}
static void clear() {
    CK(cudaMemset(out, 0, MOST * 4));
    CK(cudaMemset(out2, 0, MOST * 4));
    CK(cudaDeviceSynchronize());
}
static void many(const char *tag, const std::string &label, const std::function<bool(int)> &once, int repeat = REPEAT) {
    int right = 0;
    for (int rep = 0; rep < repeat; rep++) {
        clear();
        right += once(rep);
        CK(cudaDeviceSynchronize());
    }
    printf("%s%s: right=%d/%d\n", tag, label.c_str(), right, repeat);
    fflush(stdout);
}
// The producer of every case: `out` = value + 1, slowly, through a scratch buffer that the caller frees at once.
static int *produce(cudaStream_t s, int rep, int *to = nullptr) {
    int *tmp = scratch(rep), n = count_of(rep);
    fill<<<4, 128, 0, s>>>(tmp, n, value_of(rep));
    slow_add<<<4, 128, 0, s>>>(to ? to : out, tmp, n, 1, SLOW);
    return tmp;
}
static void in_thread(const std::function<void()> &f) {
    std::thread([&] {
        CK(cudaSetDevice(0));
        f();
    }).join();
}
static cudaStream_t stream() {
    cudaStream_t s;
    CK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    return s;
}
static void warm(cudaStream_t s) { // no lazy loading in the middle of a case
    int *t = produce(s, 0);
    copy<<<4, 128, 0, s>>>(out2, out, 1);
    wait_only<<<1, 1, 0, s>>>(1);
    CK(cudaDeviceSynchronize());
    CK(cudaFree(t));
}
static cudaGraphExec_t graph_of(cudaStream_t s, const std::function<void()> &work) {
    cudaGraph_t g;
    cudaGraphExec_t e;
    CK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    work();
    CK(cudaStreamEndCapture(s, &g));
    CK(cudaGraphInstantiate(&e, g, 0));
    CK(cudaGraphDestroy(g));
    return e;
}

static void streams() {
    cudaStream_t a = stream(), b = stream();
    warm(a);
    int early = 0;
    for (int rep = 0; rep < REPEAT; rep++) {
        clear();
        int *tmp = produce(a, rep);
        early += !reads(out, count_of(rep), value_of(rep) + 1);
        CK(cudaDeviceSynchronize());
        CK(cudaFree(tmp));
    }
    printf("control, nothing freed, legacy copy: early %s\n", early ? "yes" : "no");

    many("", "a  kernel on a non-blocking stream, free, legacy copy", [&](int rep) {
        CK(cudaFree(produce(a, rep)));
        return reads(out, count_of(rep), value_of(rep) + 1);
    });
    many("", "b  ... kernel on a second stream", [&](int rep) {
        CK(cudaFree(produce(a, rep)));
        copy<<<4, 128, 0, b>>>(out2, out, count_of(rep));
        CK(cudaStreamSynchronize(b));
        return reads(out2, count_of(rep), value_of(rep) + 1);
    });
    many("", "b2 ... copy on a second stream", [&](int rep) {
        CK(cudaFree(produce(a, rep)));
        CK(cudaMemcpyAsync(out2, out, count_of(rep) * 4, cudaMemcpyDeviceToDevice, b));
        CK(cudaStreamSynchronize(b));
        return reads(out2, count_of(rep), value_of(rep) + 1);
    });
    many("", "b3 ... producer on a priority stream", [&](int rep) {
        cudaStream_t s;
        CK(cudaStreamCreateWithPriority(&s, cudaStreamNonBlocking, -1));
        CK(cudaFree(produce(s, rep)));
        CK(cudaStreamDestroy(s)); // its work still runs
        return reads(out, count_of(rep), value_of(rep) + 1);
    });
    many("", "c  ... kernel on a stream created after the free", [&](int rep) {
        CK(cudaFree(produce(a, rep)));
        cudaStream_t s = stream();
        copy<<<4, 128, 0, s>>>(out2, out, count_of(rep));
        CK(cudaStreamSynchronize(s));
        bool right = reads(out2, count_of(rep), value_of(rep) + 1);
        CK(cudaStreamDestroy(s));
        return right;
    });
    many("", "d  producer and consumer on other threads' per-thread streams", [&](int rep) {
        int *tmp;
        in_thread([&] { tmp = produce(cudaStreamPerThread, rep); });
        CK(cudaFree(tmp));
        bool right;
        in_thread([&] {
            std::vector<int> h(MOST);
            copy<<<4, 128, 0, cudaStreamPerThread>>>(out2, out, count_of(rep));
            CK(cudaMemcpyAsync(h.data(), out2, count_of(rep) * 4, cudaMemcpyDeviceToHost, cudaStreamPerThread));
            CK(cudaStreamSynchronize(cudaStreamPerThread));
            right = all(h.data(), count_of(rep), value_of(rep) + 1);
        });
        return right;
    });
    many("", "d2 free in a third thread", [&](int rep) {
        int *tmp = produce(a, rep);
        in_thread([&] { CK(cudaFree(tmp)); });
        copy<<<4, 128, 0, b>>>(out2, out, count_of(rep));
        CK(cudaStreamSynchronize(b));
        return reads(out2, count_of(rep), value_of(rep) + 1);
    });
    {
        int *src;
        CK(cudaMalloc(&src, MOST * 4));
        cudaGraphExec_t writes = graph_of(a, [&] { slow_add<<<4, 128, 0, a>>>(out, src, MOST, 1, SLOW); });
        cudaGraphExec_t reads_it = graph_of(b, [&] { copy<<<4, 128, 0, b>>>(out2, out, MOST); });
        many("", "e  graph writes, free, other stream reads", [&](int rep) {
            int *tmp = scratch(rep);
            fill<<<4, 128, 0, a>>>(src, MOST, value_of(rep));
            CK(cudaGraphLaunch(writes, a));
            CK(cudaFree(tmp));
            copy<<<4, 128, 0, b>>>(out2, out, MOST);
            CK(cudaStreamSynchronize(b));
            return reads(out2, MOST, value_of(rep) + 1);
        });
        many("", "e2 kernel writes, free, graph reads", [&](int rep) {
            CK(cudaFree(produce(a, rep)));
            CK(cudaGraphLaunch(reads_it, b));
            CK(cudaStreamSynchronize(b));
            return reads(out2, count_of(rep), value_of(rep) + 1);
        });
        CK(cudaGraphExecDestroy(writes));
        CK(cudaGraphExecDestroy(reads_it));
        CK(cudaFree(src));
    }
    // Reuse: a kernel still reads the freed buffer, the next allocation is the same block, somebody overwrites it.
    int same = 0, tried = 0;
    auto reuse = [&](const char *label, const std::function<void(int *, int)> &overwrite) {
        many("", label, [&](int rep) {
            int *src = scratch(rep), n = count_of(rep);
            fill<<<4, 128, 0, a>>>(src, n, value_of(rep));
            slow_add<<<4, 128, 0, a>>>(out, src, n, 1, SLOW);
            CK(cudaFree(src));
            int *again;
            CK(cudaMalloc(&again, size_of(rep) - (rep % 2 ? size_of(rep) / 16 : 0)));
            same += again == src, tried++;
            overwrite(again, n - n / 16);
            CK(cudaDeviceSynchronize());
            CK(cudaFree(again));
            return reads(out, n, value_of(rep) + 1);
        });
    };
    std::vector<int> junk(MOST, -5);
    reuse("f  reuse, overwritten on another stream", [&](int *p, int n) { fill<<<4, 128, 0, b>>>(p, n, -5); });
    reuse("f2 reuse, overwritten by a legacy memset", [&](int *p, int n) { CK(cudaMemset(p, 7, n * 4)); });
    reuse("f3 reuse, overwritten by a legacy copy", [&](int *p, int n) { CK(cudaMemcpy(p, junk.data(), n * 4, cudaMemcpyHostToDevice)); });
    reuse("f4 reuse, overwritten by an asynchronous copy", [&](int *p, int n) {
        CK(cudaMemcpyAsync(p, junk.data(), n * 4, cudaMemcpyHostToDevice, b));
    });
    reuse("f5 reuse, overwritten in another thread", [&](int *p, int n) {
        in_thread([&] {
            fill<<<4, 128, 0, cudaStreamPerThread>>>(p, n, -5);
            CK(cudaStreamSynchronize(cudaStreamPerThread));
        });
    });
    printf("# the same address again %d of %d times\n", same, tried);

    { // Another context of the device: its block, freed while the primary context is current.
        CUcontext other = new_context(0);
        int *o, *o2;
        CK(cudaMalloc(&o, MOST * 4));
        CK(cudaMalloc(&o2, MOST * 4));
        cudaStream_t s = stream(), t = stream();
        fill<<<4, 128, 0, s>>>(o, 1, 0);
        slow_add<<<4, 128, 0, s>>>(o, o2, 1, 0, 1);
        copy<<<4, 128, 0, s>>>(o2, o, 1);
        CK(cuCtxSynchronize());
        int right = 0, right2 = 0;
        for (int rep = 0; rep < REPEAT; rep++) {
            for (bool switched : {false, true}) {
                CK(cudaMemset(o, 0, MOST * 4));
                CK(cuCtxSynchronize());
                int *tmp = produce(s, rep, o);
                if (switched) CK(cuCtxPopCurrent(nullptr));
                CK(cuMemFree((CUdeviceptr)tmp));
                if (switched) CK(cuCtxPushCurrent(other));
                copy<<<4, 128, 0, t>>>(o2, o, count_of(rep));
                CK(cudaStreamSynchronize(t));
                (switched ? right2 : right) += reads(o2, count_of(rep), value_of(rep) + 1);
            }
        }
        printf("k  second context: right=%d/%d\n", right, REPEAT);
        printf("k2 second context, freed from the primary: right=%d/%d\n", right2, REPEAT);
        CK(cuCtxDestroy(other));
    }
    int devices = 0;
    CK(cudaGetDeviceCount(&devices));
    if (devices > 1) {
        CK(cudaSetDevice(1));
        int *o, *o2, right = 0;
        CK(cudaMalloc(&o, MOST * 4));
        CK(cudaMalloc(&o2, MOST * 4));
        cudaStream_t s = stream(), t = stream();
        copy<<<4, 128, 0, s>>>(o2, o, 1);
        for (int rep = 0; rep < REPEAT; rep++) {
            CK(cudaMemset(o, 0, MOST * 4));
            CK(cudaDeviceSynchronize());
            int *tmp = produce(s, rep, o);
            CK(cudaSetDevice(0));
            CK(cudaFree(tmp));
            CK(cudaSetDevice(1));
            copy<<<4, 128, 0, t>>>(o2, o, count_of(rep));
            CK(cudaStreamSynchronize(t));
            right += reads(o2, count_of(rep), value_of(rep) + 1);
        }
        printf("k3 second device, freed from the first: right=%d/%d\n", right, REPEAT);
        CK(cudaFree(o));
        CK(cudaFree(o2));
        CK(cudaSetDevice(0));
    } else {
        printf("k3 second device: none\n");
    }
}

// Lines that begin with ~ may be better than bare (a success for an error), not worse.
static void captures() {
    cudaStream_t a = stream(), c = stream();
    warm(a);
    struct { cudaStreamCaptureMode mode; const char *name; } modes[] = {
        {cudaStreamCaptureModeGlobal, "global"}, {cudaStreamCaptureModeThreadLocal, "thread-local"}, {cudaStreamCaptureModeRelaxed, "relaxed"}};
    auto replay = [&](cudaGraph_t g) -> const char * {
        if (!g) return "none";
        cudaGraphExec_t e;
        cudaError_t r = cudaGraphInstantiate(&e, g, 0);
        if (!r) r = cudaGraphLaunch(e, c);
        if (!r) r = cudaStreamSynchronize(c);
        if (!r) cudaGraphExecDestroy(e);
        cudaGraphDestroy(g);
        return name(r);
    };
    for (auto &m : modes)
        for (bool same_thread : {false, true})
            for (int what = 0; what < 3; what++) { // free, allocate (a cached size), allocate (a new size)
                void *p, *q = nullptr, *cached;
                CK(cudaMalloc(&p, 3 << 20));
                CK(cudaMalloc(&cached, 5 << 20));
                CK(cudaFree(cached));
                CK(cudaDeviceSynchronize());
                cudaError_t r = cudaSuccess, end = cudaSuccess;
                cudaGraph_t g = nullptr;
                auto act = [&] {
                    r = what == 0 ? cudaFree(p) : cudaMalloc(&q, what == 1 ? 5 << 20 : (37 + what) << 20);
                };
                std::atomic<int> turn{0};
                auto capture = [&] {
                    CK(cudaSetDevice(0));
                    CK(cudaStreamBeginCapture(c, m.mode));
                    copy<<<4, 128, 0, c>>>(out2, out, 16);
                    if (same_thread) act();
                    turn = 1;
                    while (!same_thread && turn != 2) std::this_thread::yield();
                    copy<<<4, 128, 0, c>>>(out2, out, 16);
                    end = cudaStreamEndCapture(c, &g);
                };
                std::thread t(capture);
                while (turn != 1) std::this_thread::yield();
                if (!same_thread) act();
                turn = 2;
                t.join();
                cudaGetLastError();
                const char *graph = replay(g);
                printf("~j  capture %s, %s thread: %s=%s end=%s replay=%s\n", m.name, same_thread ? "the same" : "another",
                       (const char *[]){"free", "malloc-cached", "malloc-new"}[what], name(r), name(end), graph);
                fflush(stdout);
                cudaGetLastError();
                if (what != 0 || r != cudaSuccess) cudaFree(p);
                cudaGetLastError();
                if (q) CK(cudaFree(q));
                CK(cudaDeviceSynchronize());
            }
    // A race: one thread captures again and again, this one allocates and frees. Natively no capture is ever lost.
    for (int k = 1; k < 3; k++) {
        std::atomic<bool> stop{false};
        int good = 0, rounds = 300;
        std::thread t([&] {
            CK(cudaSetDevice(0));
            for (int i = 0; i < rounds; i++) {
                cudaGraph_t g = nullptr;
                CK(cudaStreamBeginCapture(c, modes[k].mode));
                copy<<<4, 128, 0, c>>>(out2, out, 16);
                std::this_thread::yield();
                copy<<<4, 128, 0, c>>>(out2, out, 16);
                good += cudaStreamEndCapture(c, &g) == cudaSuccess && g;
                cudaGetLastError();
                if (g) cudaGraphDestroy(g);
            }
            stop = true;
        });
        int failed = 0;
        while (!stop) {
            void *p = nullptr;
            failed += cudaMalloc(&p, 1 << 20) != cudaSuccess;
            wait_only<<<1, 1, 0, a>>>(10000);
            failed += cudaFree(p) != cudaSuccess;
        }
        t.join();
        printf("j2 captures (%s) beside a thread that allocates: right=%d/%d, calls failed %s\n", modes[k].name, good, rounds, failed ? "yes" : "no");
    }
    many("", "j3 after the captures: kernel, free, legacy copy", [&](int rep) {
        CK(cudaFree(produce(a, rep)));
        return reads(out, count_of(rep), value_of(rep) + 1);
    });
}

// Only the legacy stream so far, so a free needs no barrier; then a stream comes that does not wait for it.
static void first_stream() {
    int *src = nullptr, *again = nullptr, n = MOST;
    CK(cudaMalloc(&src, 8 << 20));
    clear();
    fill<<<4, 128>>>(src, n, 41);
    slow_add<<<4, 128>>>(out2, src, n, 0, 1);
    copy<<<4, 128>>>(out2, src, n);
    CK(cudaDeviceSynchronize());
    slow_add<<<4, 128>>>(out, src, n, 1, 50 * 1000 * 1000);
    CK(cudaFree(src));
    cudaStream_t s = stream();
    CK(cudaMalloc(&again, 8 << 20));
    fill<<<4, 128, 0, s>>>(again, n, -5);
    copy<<<4, 128, 0, s>>>(out2, out, n);
    CK(cudaDeviceSynchronize());
    printf("c2 legacy kernel, free, the first stream reads: right=%d/1\n", reads(out2, n, 42));
    printf("f6 legacy kernel, free, the first stream overwrites: right=%d/1\n", reads(out, n, 42));
    printf("# the same address again: %d\n", again == src);
    CK(cudaFree(again));
}

// cudaStreamPerThread by its handle: no stream is created and no per-thread entry point is called.
static void per_thread() {
    in_thread([] { warm(cudaStreamPerThread); });
    many("", "d3 only per-thread streams: thread writes, free, other thread reads", [&](int rep) {
        int *tmp;
        in_thread([&] { tmp = produce(cudaStreamPerThread, rep); });
        CK(cudaFree(tmp));
        bool right;
        in_thread([&] {
            std::vector<int> h(MOST);
            CK(cudaMemcpyAsync(h.data(), out, count_of(rep) * 4, cudaMemcpyDeviceToHost, cudaStreamPerThread));
            CK(cudaStreamSynchronize(cudaStreamPerThread));
            right = all(h.data(), count_of(rep), value_of(rep) + 1);
        });
        return right;
    });
    many("", "f7 only per-thread streams: reuse, overwritten in another thread", [&](int rep) {
        int *src = scratch(rep), n = count_of(rep), *again;
        in_thread([&] {
            fill<<<4, 128, 0, cudaStreamPerThread>>>(src, n, value_of(rep));
            slow_add<<<4, 128, 0, cudaStreamPerThread>>>(out, src, n, 1, SLOW);
        });
        CK(cudaFree(src));
        CK(cudaMalloc(&again, size_of(rep)));
        in_thread([&] {
            fill<<<4, 128, 0, cudaStreamPerThread>>>(again, n, -5);
            CK(cudaStreamSynchronize(cudaStreamPerThread));
        });
        CK(cudaDeviceSynchronize());
        CK(cudaFree(again));
        return reads(out, n, value_of(rep) + 1);
    });
}

// What the host sees: a kernel writes memory that the host reads with no call in between but cudaFree.
static void host_reads(const char *label, volatile int *seen, int *device) {
    cudaStream_t a = stream();
    warm(a);
    many("[host] ", label, [&](int rep) {
        for (int i = 0; i < count_of(rep); i++) seen[i] = 0;
        CK(cudaFree(produce(a, rep, device)));
        return all(seen, count_of(rep), value_of(rep) + 1);
    });
}
static void pinned() {
    int *h, *d;
    CK(cudaHostAlloc(&h, MOST * 4, cudaHostAllocMapped));
    CK(cudaHostGetDevicePointer(&d, h, 0));
    host_reads("g  kernel writes pinned memory, free, host reads", h, d);
    CK(cudaFreeHost(h));
}
static void registered() {
    int *h = (int *)aligned_alloc(4096, MOST * 4), *d;
    CK(cudaHostRegister(h, MOST * 4, cudaHostRegisterMapped));
    CK(cudaHostGetDevicePointer(&d, h, 0));
    host_reads("g2 kernel writes registered memory, free, host reads", h, d);
    CK(cudaHostUnregister(h));
    free(h);
}
static void managed() {
    int *h;
    CK(cudaMallocManaged(&h, MOST * 4));
    host_reads("h  kernel writes managed memory, free, host reads", h, h);
    CK(cudaFree(h));
}
static void copied() {
    int *h;
    CK(cudaMallocHost(&h, MOST * 4));
    cudaStream_t a = stream();
    warm(a);
    many("[host] ", "g3 copy to pinned memory, free, host reads", [&](int rep) {
        memset(h, 0, MOST * 4);
        int *tmp = produce(a, rep);
        CK(cudaMemcpyAsync(h, out, count_of(rep) * 4, cudaMemcpyDeviceToHost, a));
        CK(cudaFree(tmp));
        return all(h, count_of(rep), value_of(rep) + 1);
    });
    CK(cudaFreeHost(h));
}
static void host_function() {
    cudaStream_t a = stream();
    warm(a);
    static std::atomic<int> flag;
    many("[host] ", "i  host function queued, free, host looks", [&](int rep) {
        flag = 0;
        int *tmp = produce(a, rep);
        CK(cudaLaunchHostFunc(a, [](void *) {
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
            flag = 1;
        }, nullptr));
        CK(cudaFree(tmp));
        return flag == 1;
    });
}

int main(int, char **argv) {
    CK(cudaSetDevice(0));
    CK(cudaFree(0));
    CK(cudaMalloc(&out, MOST * 4));
    CK(cudaMalloc(&out2, MOST * 4));
    struct { const char *name; void (*run)(); } groups[] = {
        {"streams", streams}, {"captures", captures}, {"first_stream", first_stream}, {"per_thread", per_thread}, {"pinned", pinned},
        {"registered", registered}, {"managed", managed}, {"copied", copied}, {"host_function", host_function}};
    for (char **a = argv + 1; *a; a++)
        for (auto &g : groups)
            if (!strcmp(*a, g.name)) g.run();
    CK(cudaDeviceSynchronize());
    CK(cudaFree(out));
    CK(cudaFree(out2));
    printf("end\n");
}
