// cudaMalloc natively never waits for the device, so a running kernel may wait for what the program does after it.
// A kernel spins until that happens and gives up after five seconds, which would show. One way a process:
//   pinned        the host sets the flag, in pinned memory
//   device        a memset on a second stream sets it; nothing the host can see is held
//   beside_free   a cudaFree of a second thread waits for the kernel; a third thread's work on another stream would end first
//                 and set the flag. Natively it is late: a waiting free blocks the other threads' launches too.
//   first_stream  the spinning kernel is on the legacy stream, the first stream of the process is created beside it
#include "show.h"

#include <thread>

static const unsigned long long PATIENCE = 5000000000ull;

static int beside_free() {
    int *host, *flag, *late, *out, result = 0, right = 0, rounds = 3;
    CK(cudaHostAlloc(&host, 4, cudaHostAllocMapped));
    CK(cudaHostGetDevicePointer(&flag, host, 0));
    CK(cudaMalloc(&late, 4));
    CK(cudaMalloc(&out, 4));
    cudaStream_t s, t;
    CK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    CK(cudaStreamCreateWithFlags(&t, cudaStreamNonBlocking));
    *(volatile int *)host = 1;
    spin<<<1, 1, 0, s>>>(flag, late, PATIENCE); // loads everything
    fill<<<1, 32, 0, t>>>(out, 1, 1);
    CK(cudaDeviceSynchronize());
    for (int i = 0; i < rounds; i++) {
        void *p;
        CK(cudaMalloc(&p, 1 << 20));
        CK(cudaMemset(late, 0, 4));
        CK(cudaDeviceSynchronize());
        *(volatile int *)host = 0;
        spin<<<1, 1, 0, s>>>(flag, late, PATIENCE);
        std::thread freer([&] {
            CK(cudaSetDevice(0));
            CK(cudaFree(p));
        });
        std::this_thread::sleep_for(std::chrono::milliseconds(50)); // the free is waiting by now
        fill<<<1, 32, 0, t>>>(out, 1, i);
        CK(cudaStreamSynchronize(t));
        *(volatile int *)host = 1;
        freer.join();
        CK(cudaDeviceSynchronize());
        CK(cudaMemcpy(&result, late, 4, cudaMemcpyDeviceToHost));
        right += !result;
    }
    printf("[host] another thread's work beside a cudaFree that waits: right=%d/%d\n", right, rounds);
    return 0;
}

int main(int, char **argv) {
    CK(cudaFree(0));
    if (!strcmp(argv[1], "beside_free")) return beside_free();
    bool pinned = !strcmp(argv[1], "pinned"), first = !strcmp(argv[1], "first_stream");
    int *host = nullptr, *flag = nullptr, *late, result = 0;
    CK(cudaMalloc(&late, 4));
    CK(cudaMemset(late, 0, 4));
    if (pinned) {
        CK(cudaHostAlloc(&host, 4, cudaHostAllocMapped));
        CK(cudaHostGetDevicePointer(&flag, host, 0));
    } else {
        CK(cudaMalloc(&flag, 4));
    }
    cudaStream_t s = 0, t = 0;
    if (!first) {
        CK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
        CK(cudaStreamCreateWithFlags(&t, cudaStreamNonBlocking));
        CK(cudaMemsetAsync(flag, 1, 4, t));
    }
    auto set = [&](int v) {
        if (pinned) *(volatile int *)host = v;
        else CK(cudaMemset(flag, v, 4));
        CK(cudaDeviceSynchronize());
    };
    set(1);
    spin<<<1, 1, 0, s>>>(flag, late, PATIENCE); // loads everything
    CK(cudaDeviceSynchronize());
    const size_t sizes[] = {1000, 1 << 20, 5 << 20, 64 << 20, 1 << 30};
    for (size_t z : sizes) { // some blocks for the cache
        void *p;
        CK(cudaMalloc(&p, z));
        CK(cudaFree(p));
    }
    int right = 0, rounds = 0;
    for (size_t z : sizes) {
        for (int again = 0; again < 2; again++) {
            void *p[2];
            set(0);
            spin<<<1, 1, 0, s>>>(flag, late, PATIENCE);
            CK(cudaMalloc(&p[0], z));     // perhaps a cached block
            CK(cudaMalloc(&p[1], z + z / 2)); // perhaps a new one
            if (first) {
                CK(cudaStreamCreateWithFlags(&t, cudaStreamNonBlocking));
                first = false;
            }
            if (pinned) *(volatile int *)host = 1;
            else CK(cudaMemsetAsync(flag, 1, 4, t));
            CK(cudaDeviceSynchronize());
            CK(cudaMemcpy(&result, late, 4, cudaMemcpyDeviceToHost));
            right += !result, rounds++;
            if (result) { // five seconds are long enough to know
                printf("%s: cudaMalloc beside a spinning kernel: right=%d/%d\n", argv[1], 0, 10);
                return 0;
            }
            CK(cudaFree(p[0]));
            CK(cudaFree(p[1]));
        }
    }
    printf("%s: cudaMalloc beside a spinning kernel: right=%d/%d\n", argv[1], right, rounds);
}
