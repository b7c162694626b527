// A loop that allocates and frees around its kernels, on two non-blocking streams. Iteration i reads what iteration
// i - 1 wrote on the other stream: right only because cudaFree lies between them. Linked with the static and with the
// shared runtime library. stderr: the median of (cudaMalloc + cudaFree) on an idle and on a busy device, and the loop's time.
#include "show.h"

#include <algorithm>
#include <vector>

static unsigned long long random_state = 12345;
static unsigned next() {
    random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)(random_state >> 33);
}
static size_t mixed() { // 1 KiB to 64 MiB, every doubling as likely
    unsigned k = next() % 16;
    return ((size_t)1024 << k) + next() % ((size_t)1024 << k);
}
__global__ void add(unsigned long long *to, const unsigned long long *from, const int *p, int n) {
    unsigned long long sum = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) sum += (unsigned)p[i] * (unsigned long long)(i + 1);
    if (threadIdx.x == 0) *to = *from * 31 + 7;
    __syncthreads();
    atomicAdd(to, sum);
}

int main() {
    CK(cudaFree(0));
    cudaStream_t s[2];
    for (auto &x : s) CK(cudaStreamCreateWithFlags(&x, cudaStreamNonBlocking));
    const int idle = 400, busy = 300, plain = 2000, total = idle + busy + plain;
    unsigned long long *chain;
    CK(cudaMalloc(&chain, (total + 1) * 8));
    CK(cudaMemset(chain, 0, (total + 1) * 8));
    wait_only<<<1, 1, 0, s[0]>>>(1);
    CK(cudaDeviceSynchronize());

    std::vector<double> pair[2];
    double loop = 0;
    Clock::time_point start;
    for (int i = 0; i < total; i++) {
        if (i == idle + busy) {
            CK(cudaDeviceSynchronize());
            start = Clock::now();
        }
        cudaStream_t on = s[i & 1];
        int *p[3], n[3];
        size_t size[3];
        for (auto &x : size) x = std::min<size_t>(mixed(), 64 << 20);
        auto t = Clock::now();
        for (int k = 0; k < 3; k++) CK(cudaMalloc(&p[k], size[k]));
        double us = us_since(t);
        for (int k = 0; k < 3; k++) n[k] = (int)std::min<size_t>(size[k] / 4, 1 << 16);
        int both = std::min(n[0], n[1]);
        fill<<<8, 256, 0, on>>>(p[0], n[0], i);
        fill<<<8, 256, 0, on>>>(p[1], n[1], -1);
        fill<<<8, 256, 0, on>>>(p[2], n[2], 3 * i);
        slow_add<<<8, 256, 0, on>>>(p[1], p[0], both, 5, i >= idle && i < idle + busy ? 200000 : 0);
        slow_add<<<8, 256, 0, on>>>(p[0], p[2], std::min(n[0], n[2]), 9, 0);
        add<<<1, 256, 0, on>>>(chain + i + 1, chain + i, p[1], both);
        add<<<1, 256, 0, on>>>(chain + i + 1, chain + i + 1, p[0], n[0]);
        if (i < idle) CK(cudaDeviceSynchronize());
        t = Clock::now();
        for (int k = 0; k < 3; k++) CK(cudaFree(p[k]));
        us += us_since(t);
        if (i < idle + busy) pair[i >= idle].push_back(us / 3);
    }
    CK(cudaDeviceSynchronize());
    loop = us_since(start) / 1000;
    unsigned long long sum;
    CK(cudaMemcpy(&sum, chain + total, 8, cudaMemcpyDeviceToHost));
    CK(cudaFree(chain));
    printf("%d iterations, checksum %llu\n", total, sum);
    for (auto &v : pair) std::nth_element(v.begin(), v.begin() + v.size() / 2, v.end());
    fprintf(stderr, "idle_us=%.2f busy_us=%.1f loop_ms=%.0f\n", pair[0][idle / 2], pair[1][busy / 2], loop);
}
