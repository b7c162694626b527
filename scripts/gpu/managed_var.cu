// A __managed__ variable: the host reads it right after cudaFree, with no allocation call that could announce it.
#include "show.h"

__managed__ int seen[1024];

int main() {
    CK(cudaFree(0));
    cudaStream_t s;
    CK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    int right = 0, *tmp;
    for (int rep = -1; rep < 20; rep++) {
        for (int &x : seen) x = 0;
        CK(cudaMalloc(&tmp, 1 << 20));
        fill<<<4, 128, 0, s>>>(tmp, 1024, rep);
        slow_add<<<4, 128, 0, s>>>(seen, tmp, 1024, 1000, rep < 0 ? 1 : 4000000);
        if (rep < 0) CK(cudaDeviceSynchronize()); // warm
        CK(cudaFree(tmp));
        bool good = true;
        for (volatile int &x : seen) good &= x == 1000 + rep;
        right += good && rep >= 0;
        CK(cudaDeviceSynchronize());
    }
    printf("[host] h2 kernel writes a __managed__ variable, free, host reads: right=%d/20\n", right);
}
