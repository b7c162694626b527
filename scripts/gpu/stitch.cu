// What a stitched block costs: the card's free memory lies in pieces of 8 MiB, and blocks of 64 MiB are asked for.
//
//   stitch [PIECE_MIB] [PIECES]
//
// stdout: whether every block held what was written to it. stderr: microseconds of the request that had to be made (new
// memory from the driver, or stitched), of the same request again, of a piece served from the cache, and the time of a kernel over it.
#include "show.h"

#include <algorithm>
#include <vector>

static double median(std::vector<double> v) {
    if (v.empty()) return 0;
    std::sort(v.begin(), v.end());
    return v[v.size() / 2];
}
static unsigned long long reserved(cudaMemPool_t pool) {
    unsigned long long v;
    CK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &v));
    return v;
}
// A pass over the block: microseconds on the device.
static double pass(int *p, size_t n, int v, cudaStream_t s) {
    cudaEvent_t a, b;
    CK(cudaEventCreate(&a));
    CK(cudaEventCreate(&b));
    CK(cudaEventRecord(a, s));
    fill<<<2048, 256, 0, s>>>(p, (int)n, v);
    CK(cudaEventRecord(b, s));
    CK(cudaStreamSynchronize(s));
    float ms;
    CK(cudaEventElapsedTime(&ms, a, b));
    CK(cudaEventDestroy(a));
    CK(cudaEventDestroy(b));
    return ms * 1e3;
}

int main(int argc, char **argv) {
    size_t piece = (size_t)(argc > 1 ? atoi(argv[1]) : 8) << 20, large = 8 * piece, n = large / 4;
    int pieces = argc > 2 ? atoi(argv[2]) : 512, rounds = pieces / 16 - 1;
    CK(cudaFree(0));
    cudaStream_t s;
    CK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    cudaMemPool_t pool;
    CK(cudaDeviceGetDefaultMemPool(&pool, 0));
    unsigned long long keep = ~0ull;
    CK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    std::vector<int *> comb(pieces), held;
    for (auto &p : comb) CK(cudaMallocAsync(&p, piece, s));
    for (auto p : comb) fill<<<64, 256, 0, s>>>(p, (int)(piece / 4), -1);
    for (int i = 0; i < pieces; i += 2) CK(cudaFreeAsync(comb[i], s));
    CK(cudaStreamSynchronize(s));
    unsigned long long before = reserved(pool);
    std::vector<double> first, again, small, kernel, kernel_again;
    int right = 0;
    std::vector<int> back(n);
    for (int i = 0; i < rounds; i++) {
        int *p;
        auto t = Clock::now();
        CK(cudaMallocAsync(&p, large, s));
        first.push_back(us_since(t));
        kernel.push_back(pass(p, n, i, s));
        kernel_again.push_back(pass(p, n, i, s));
        held.push_back(p);
    }
    unsigned long long after = reserved(pool);
    for (int i = 0; i < rounds; i++) {
        CK(cudaMemcpyAsync(back.data(), held[i], large, cudaMemcpyDeviceToHost, s));
        CK(cudaStreamSynchronize(s));
        right += std::all_of(back.begin(), back.end(), [i](int x) { return x == i; });
    }
    for (int i = 1; i < pieces; i += 2) {
        CK(cudaMemcpyAsync(back.data(), comb[i], piece, cudaMemcpyDeviceToHost, s));
        CK(cudaStreamSynchronize(s));
        right += std::all_of(back.begin(), back.begin() + piece / 4, [](int x) { return x == -1; });
    }
    for (int i = 0; i < 200; i++) {
        int j = i % rounds;
        CK(cudaFreeAsync(held[j], s));
        auto t = Clock::now();
        CK(cudaMallocAsync(&held[j], large, s));
        again.push_back(us_since(t));
    }
    for (auto p : held) CK(cudaFreeAsync(p, s));
    CK(cudaStreamSynchronize(s));
    for (int i = 0; i < 200; i++) {
        int *p;
        auto t = Clock::now();
        CK(cudaMallocAsync(&p, piece, s));
        small.push_back(us_since(t));
        CK(cudaFreeAsync(p, s));
    }
    CK(cudaDeviceSynchronize());
    printf("right: %d of %d\n", right, rounds + pieces / 2);
    fprintf(stderr, "%zu MiB of pieces of %zu MiB: grew by %.0f MiB for %d blocks; us: first %.1f (most %.1f), again %.2f, a piece %.2f, kernel %.1f then %.1f\n",
            large >> 20, piece >> 20, ((double)after - (double)before) / 1048576, rounds, median(first), *std::max_element(first.begin(), first.end()), median(again),
            median(small), median(kernel), median(kernel_again));
    return 0;
}
