// cudaIpcGetMemHandle between two processes: small blocks that share a page, a middle and a large one, each fresh and
// recycled. The other process reads them, writes into them, closes them; then they are freed. With argument "mixed" the
// other process runs without the preload.
#include "ipc.h"

static const size_t SIZES[] = {1000, 4096, 4096, 300 << 10, 3 << 20, 64 << 20};
static const int N = 6, ROUNDS = 3, WORDS = 250;

static int child(int fd) {
    CK(cudaFree(0));
    for (int round = 0; round < ROUNDS; round++) {
        cudaIpcMemHandle_t h[N];
        int *p[N], got[WORDS], good = 0;
        get(fd, h, sizeof h);
        for (int i = 0; i < N; i++) {
            CK(cudaIpcOpenMemHandle((void **)&p[i], h[i], cudaIpcMemLazyEnablePeerAccess));
            CK(cudaMemcpy(got, p[i], sizeof got, cudaMemcpyDeviceToHost));
            bool same = true;
            for (int k = 0; k < WORDS; k++) same &= got[k] == round * 100 + i;
            good += same;
            fill<<<1, 256>>>(p[i], WORDS, 1000 + round * 100 + i);
        }
        CK(cudaDeviceSynchronize());
        void *own; // this process allocates too
        CK(cudaMalloc(&own, 4096));
        CK(cudaFree(own));
        for (int i = 0; i < N; i++) CK(cudaIpcCloseMemHandle(p[i]));
        put(fd, &good, sizeof good);
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 2 && !strcmp(argv[1], "child")) return child(atoi(argv[2]));
    pid_t pid;
    int fd = start_child(argv, argc > 1 && !strcmp(argv[1], "mixed"), &pid);
    CK(cudaFree(0));
    cudaStream_t s;
    CK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    for (size_t z : SIZES) { // so that a pool has something to recycle
        void *p[3];
        for (auto &x : p) CK(cudaMalloc(&x, z));
        for (auto &x : p) CK(cudaFree(x));
    }
    for (int round = 0; round < ROUNDS; round++) {
        int *p[N], got[WORDS], read = 0, good = 0, different = 1;
        cudaIpcMemHandle_t h[N], again;
        for (int i = 0; i < N; i++) CK(cudaMalloc(&p[i], SIZES[i]));
        for (int i = 0; i < N; i++) {
            fill<<<1, 256, 0, s>>>(p[i], WORDS, round * 100 + i);
            CK(cudaIpcGetMemHandle(&h[i], p[i]));
            CK(cudaIpcGetMemHandle(&again, p[i]));
            different &= !memcmp(&again, &h[i], sizeof again);
            for (int k = 0; k < i; k++) different &= memcmp(&h[k], &h[i], sizeof again) != 0;
        }
        CK(cudaStreamSynchronize(s));
        put(fd, h, sizeof h);
        get(fd, &read, sizeof read);
        for (int i = 0; i < N; i++) {
            CK(cudaMemcpy(got, p[i], sizeof got, cudaMemcpyDeviceToHost));
            bool same = true;
            for (int k = 0; k < WORDS; k++) same &= got[k] == 1000 + round * 100 + i;
            good += same;
        }
        printf("round %d: handles differ %s, other process read right=%d/%d, wrote right=%d/%d, free", round, different ? "yes" : "no", read, N, good, N);
        for (int i = 0; i < N; i++) printf(" %s", name(cudaFree(p[i])));
        printf("\n");
    }
    end_child(pid);
}
