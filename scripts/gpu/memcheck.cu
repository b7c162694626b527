// For compute-sanitizer: a clean program; with an argument, one that writes one element past its buffer.
#include "show.h"

__global__ void store(int *p, int i) { p[i] = 42; }

int main(int argc, char **) {
    int *a, *b, *c, h = 0;
    CK(cudaMalloc(&a, 400));
    CK(cudaMalloc(&b, 400));
    CK(cudaFree(b));
    CK(cudaMalloc(&c, 400));
    store<<<1, 1>>>(c, 3);
    CK(cudaMemcpy(&h, c + 3, 4, cudaMemcpyDeviceToHost));
    printf("value %d\n", h);
    if (argc > 1) {
        store<<<1, 1>>>(a, 100);
        printf("planted: %s\n", cudaDeviceSynchronize() ? "seen by the device" : "not seen by the device");
    }
    cudaFree(c);
    cudaFree(a);
}
