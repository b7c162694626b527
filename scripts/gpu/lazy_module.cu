// The part of lazy.cu that is loaded late: with lazy loading nothing of it is on the card before its first kernel.
#include <cuda_runtime.h>

__device__ int big[128 << 20];

__global__ void in_big(int v, int *out) {
    big[(128 << 20) - 1] = v;
    *out = big[(128 << 20) - 1];
}
__global__ void in_local(int v, int *out) {
    volatile int local[1024];
    for (int i = 0; i < 1024; i++) local[(i * 7 + v) & 1023] = i + v;
    if (threadIdx.x == 0 && blockIdx.x == 0) *out = local[(3 * 7 + v) & 1023] - 3;
}
cudaError_t touch_big(int v, int *out) {
    in_big<<<1, 1>>>(v, out);
    cudaError_t r = cudaGetLastError();
    return r ? r : cudaDeviceSynchronize();
}
cudaError_t touch_local(int v, int *out) {
    in_local<<<1024, 256>>>(v, out);
    cudaError_t r = cudaGetLastError();
    return r ? r : cudaDeviceSynchronize();
}
