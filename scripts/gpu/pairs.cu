// Nanoseconds for a pair of cudaMalloc + cudaFree that the pool can serve without the driver. stdout: key=value.
//   default   no stream but the default one
//   busy      8 non-blocking streams with a kernel each while the pairs are measured
//   mix       500 live blocks, a random one replaced, 1, 4 and 16 threads
// Bounded by time, because natively a pair can take as long as the kernels.
#include "show.h"

#include <algorithm>
#include <random>
#include <thread>
#include <vector>

struct Size { const char *name; size_t bytes; };
static const Size SIZES[] = {{"1KiB", 1 << 10}, {"1MiB", 1 << 20}, {"64MiB", 64 << 20}};

static void pair(size_t bytes) {
    void *p;
    CK(cudaMalloc(&p, bytes));
    CK(cudaFree(p));
}
static void by_default() {
    for (auto &z : SIZES) {
        for (int i = 0; i < 100; i++) pair(z.bytes);
        std::vector<double> batch;
        auto start = Clock::now();
        while (batch.size() < 1000 && us_since(start) < 500000) {
            auto t = Clock::now();
            for (int i = 0; i < 100; i++) pair(z.bytes);
            batch.push_back(us_since(t) * 10);
        }
        std::nth_element(batch.begin(), batch.begin() + batch.size() / 2, batch.end());
        printf("default_%s=%.0f\n", z.name, batch[batch.size() / 2]);
        fflush(stdout);
    }
}
static void busy() {
    cudaStream_t s[8];
    for (auto &x : s) {
        CK(cudaStreamCreateWithFlags(&x, cudaStreamNonBlocking));
        wait_only<<<1, 1, 0, x>>>(1);
    }
    for (auto &z : SIZES) {
        CK(cudaDeviceSynchronize());
        for (int i = 0; i < 100; i++) pair(z.bytes);
        std::vector<double> batch;
        for (int k = 0; k < 60; k++) {
            CK(cudaDeviceSynchronize());
            for (auto &x : s) wait_only<<<1, 1, 0, x>>>(2000000);
            int n = 0;
            auto t = Clock::now();
            while (n < 100 && us_since(t) < 1500) {
                pair(z.bytes);
                n++;
            }
            batch.push_back(us_since(t) * 1000 / n);
        }
        CK(cudaDeviceSynchronize());
        std::nth_element(batch.begin(), batch.begin() + batch.size() / 2, batch.end());
        printf("busy_%s=%.0f\n", z.name, batch[batch.size() / 2]);
        fflush(stdout);
    }
}
// Returns the pairs it made: `ops`, or fewer once `limit_us` have passed.
static int mix(int ops, unsigned seed, double limit_us) {
    std::mt19937 r(seed);
    std::vector<void *> v(500);
    std::vector<size_t> sizes(4096);
    for (auto &x : sizes) {
        unsigned k = r() % 100;
        x = k < 60 ? 256 + r() % (64 << 10) : k < 95 ? (64 << 10) + r() % (2 << 20) : (2 << 20) + r() % (16 << 20);
    }
    auto start = Clock::now();
    for (size_t i = 0; i < v.size(); i++) CK(cudaMalloc(&v[i], sizes[i]));
    int n = 0;
    while (n < ops && (n % 64 || us_since(start) < limit_us)) {
        int k = r() % v.size();
        CK(cudaFree(v[k]));
        CK(cudaMalloc(&v[k], sizes[r() & 4095]));
        n++;
    }
    for (void *p : v) CK(cudaFree(p));
    return n + (int)v.size();
}
static void mixes() {
    mix(2000, 1, 1e6);
    for (int threads : {1, 4, 16}) {
        std::vector<std::thread> ts;
        std::vector<int> pairs(threads);
        auto t = Clock::now();
        for (int i = 0; i < threads; i++)
            ts.emplace_back([&, i] {
                CK(cudaSetDevice(0));
                pairs[i] = mix(threads == 1 ? 100000 : threads == 4 ? 50000 : 20000, i + 7, 1e6);
            });
        for (auto &x : ts) x.join();
        double ns = us_since(t) * 1000, all = 0;
        for (int n : pairs) all += n;
        printf("mix_%d=%.0f mix_%d_millions=%.2f\n", threads, ns * threads / all, threads, all / ns * 1000);
        fflush(stdout);
    }
}

int main() {
    CK(cudaFree(0));
    by_default(); // first, while no stream has been created
    mixes();
    busy();
}
