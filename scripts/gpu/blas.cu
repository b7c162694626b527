// A program linked with cuBLAS that allocates its matrices around every product, on two non-blocking streams.
// Declared by hand, so that the library is enough and its headers are not needed.
#include "show.h"

extern "C" {
int cublasCreate_v2(void **);
int cublasDestroy_v2(void *);
int cublasSetStream_v2(void *, cudaStream_t);
int cublasSgemm_v2(void *, int, int, int, int, int, const float *, const float *, int, const float *, int, const float *, float *, int);
}

__global__ void values(float *p, int n, int seed) { for EACH(i, n) p[i] = (float)((i * 7 + seed) % 11 - 5); }
__global__ void total(long long *to, const float *p, int n) {
    long long sum = 0;
    for EACH(i, n) sum += (long long)p[i]; // small whole numbers: exact in any order
    atomicAdd((unsigned long long *)to, (unsigned long long)sum);
}

int main() {
    void *h;
    if (cublasCreate_v2(&h)) return 3;
    cudaStream_t s[2];
    for (auto &x : s) CK(cudaStreamCreateWithFlags(&x, cudaStreamNonBlocking));
    long long *sum, result;
    CK(cudaMalloc(&sum, 8));
    CK(cudaMemset(sum, 0, 8));
    CK(cudaDeviceSynchronize());
    Clock::time_point t;
    const int warm = 50, rounds = 1000;
    for (int i = -warm; i < rounds; i++) {
        if (i == 0) {
            CK(cudaDeviceSynchronize());
            t = Clock::now();
        }
        int n = 256 + (i & 3) * 128;
        float *a, *b, *c, one = 1, zero = 0;
        CK(cudaMalloc(&a, 4 * n * n));
        CK(cudaMalloc(&b, 4 * n * n));
        CK(cudaMalloc(&c, 4 * n * n));
        cudaStream_t on = s[i & 1];
        if (cublasSetStream_v2(h, on)) return 4;
        values<<<32, 256, 0, on>>>(a, n * n, i);
        values<<<32, 256, 0, on>>>(b, n * n, i + 3);
        if (cublasSgemm_v2(h, 0, 0, n, n, n, &one, a, n, b, n, &zero, c, n)) return 5;
        total<<<32, 256, 0, on>>>(sum, c, n * n);
        CK(cudaFree(a));
        CK(cudaFree(b));
        CK(cudaFree(c));
    }
    CK(cudaDeviceSynchronize());
    double us = us_since(t) / rounds;
    CK(cudaMemcpy(&result, sum, 8, cudaMemcpyDeviceToHost));
    CK(cudaFree(sum));
    printf("%d products, sum %lld, destroy %d\n", rounds, result, cublasDestroy_v2(h));
    fprintf(stderr, "us_each=%.1f\n", us);
}
