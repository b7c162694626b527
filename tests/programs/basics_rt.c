/* Every kind of memory through the runtime, used and given back. */
#include "common.h"

static void check(const char* what, void* device, int value, size_t n) {
  unsigned char host[64] = {0};
  MUST(cudaMemset(device, value, n));
  MUST(cudaMemcpy(host, device, n < 64 ? n : 64, cudaMemcpyDeviceToHost));
  printf("%s: %02x %02x\n", what, host[0], host[(n < 64 ? n : 64) - 1]);
}

static void case_plain(void) {
  static const size_t sizes[] = {1, 511, 512, 513, 4096, 100000, MB, MB + 1, 2 * MB, 3 * MB + 7, 20 * MB};
  for (int round = 0; round < 3; ++round)
    for (size_t i = 0; i < LENGTH(sizes); ++i) {
      void* p = NULL;
      SAY(cudaMalloc(&p, sizes[i]));
      REQUIRE(p && (uintptr_t)p % 512 == 0);
      check("plain", p, (int)i + 1, sizes[i]);
      SAY(cudaFree(p));
    }
}
static void case_many(void) {
  enum { N = 400 };
  void* p[N];
  for (int i = 0; i < N; ++i) {
    MUST(cudaMalloc(&p[i], 1000 + 700 * (size_t)i));
    MUST(cudaMemset(p[i], i & 255, 1000 + 700 * (size_t)i));
  }
  for (int i = 0; i < N; i += 2) MUST(cudaFree(p[i]));
  for (int i = 0; i < N; i += 2) {
    MUST(cudaMalloc(&p[i], 900 + 700 * (size_t)i));
    MUST(cudaMemset(p[i], 255 - (i & 255), 900 + 700 * (size_t)i));
  }
  unsigned long sum = 0;
  for (int i = 0; i < N; ++i) { /* nobody has written into anybody else's block */
    unsigned char first, last;
    size_t size = (i % 2 ? 1000 : 900) + 700 * (size_t)i;
    MUST(cudaMemcpy(&first, p[i], 1, cudaMemcpyDeviceToHost));
    MUST(cudaMemcpy(&last, (char*)p[i] + size - 1, 1, cudaMemcpyDeviceToHost));
    REQUIRE(first == last);
    sum = sum * 31 + first;
    MUST(cudaFree(p[i]));
  }
  printf("sum %lx\n", sum);
}
static void case_kinds(void) {
  void *managed, *pinned, *pinned2, *device, *pitched;
  size_t pitch = 0;
  SAY(cudaMallocManaged(&managed, 10000, cudaMemAttachGlobal));
  memset(managed, 7, 10000);
  SAY(cudaMallocHost(&pinned, 10000));
  memset(pinned, 8, 10000);
  SAY(cudaHostAlloc(&pinned2, 5000, cudaHostAllocMapped));
  SAY(cudaMalloc(&device, 10000));
  SAY(cudaMemcpy(device, pinned, 10000, cudaMemcpyHostToDevice));
  SAY(cudaMemcpy(managed, device, 10000, cudaMemcpyDeviceToDevice));
  SAY(cudaDeviceSynchronize());
  printf("managed %d\n", ((char*)managed)[9999]);
  SAY(cudaMallocPitch(&pitched, &pitch, 1000, 100));
  printf("pitch %zu\n", pitch);
  check("pitched", pitched, 9, pitch * 100);
  char* mine = NULL;
  REQUIRE(!posix_memalign((void**)&mine, 4096, 8192));
  memset(mine, 5, 8192);
  SAY(cudaHostRegister(mine, 8192, cudaHostRegisterDefault));
  void* alias = NULL;
  SAY(cudaHostGetDevicePointer(&alias, mine, 0));
  SAY(cudaMemcpy(device, alias, 8192, cudaMemcpyDefault));
  check("device", device, 3, 10000);
  SAY(cudaHostUnregister(mine));
  SAY(cudaHostUnregister(mine));
  free(mine);
  SAY(cudaFree(pitched));
  SAY(cudaFree(managed));
  SAY(cudaFreeHost(pinned));
  SAY(cudaFreeHost(pinned2));
  SAY(cudaFree(device));
}
static void case_ordered(void) {
  cudaStream_t s;
  void *a, *b;
  int got = 0;
  MUST(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  for (int i = 0; i < 20; ++i) {
    MUST(cudaMallocAsync(&a, 100000, s));
    MUST(cudaMemsetAsync(a, i, 100000, s));
    MUST(cudaMallocAsync(&b, 50000, s));
    MUST(cudaMemcpyAsync(b, a, 50000, cudaMemcpyDeviceToDevice, s));
    MUST(cudaFreeAsync(a, s));
    MUST(cudaMemcpyAsync(&got, b, 4, cudaMemcpyDeviceToHost, s));
    MUST(cudaStreamSynchronize(s));
    printf("%x\n", got);
    MUST(cudaFreeAsync(b, s));
  }
  SAY(cudaMallocAsync(&a, 1000, 0));
  SAY(cudaFree(a));
  SAY(cudaStreamDestroy(s));
}
static void case_errors(void) {
  void* p = (void*)1;
  SAY(cudaMalloc(&p, 0));
  printf("null %d\n", p == NULL);
  SAY(cudaMalloc(NULL, 16));
  SAY(cudaGetLastError());
  SAY(cudaGetLastError());
  SAY(cudaFree(NULL));
  SAY(cudaMalloc(&p, (size_t)1 << 60));
  SAY(cudaPeekAtLastError());
  SAY(cudaGetLastError());
  MUST(cudaMalloc(&p, 5000));
  SAY(cudaFree((char*)p + 512));
  SAY(cudaFree(p));
  SAY(cudaFree(p));
  SAY(cudaFree(&p));
  SAY(cudaGetLastError());
  SAY(cudaFreeHost(p));
  SAY(cudaGetLastError());
  SAY(cudaMalloc(&p, 5000));
  SAY(cudaGetLastError());
  SAY(cudaFree(p));
}
static void case_devices(void) {
  int count = 0, now = -1;
  MUST(cudaGetDeviceCount(&count));
  printf("%d devices\n", count);
  void* p[4];
  for (int d = 0; d < count && d < 4; ++d) {
    MUST(cudaSetDevice(d));
    MUST(cudaMalloc(&p[d], 3 * MB));
    MUST(cudaMemset(p[d], d + 1, 3 * MB));
  }
  for (int d = 0; d < count && d < 4; ++d) { /* freed with another device current */
    struct cudaPointerAttributes a;
    char c = 0;
    MUST(cudaPointerGetAttributes(&a, p[d]));
    MUST(cudaMemcpy(&c, p[d], 1, cudaMemcpyDeviceToHost));
    MUST(cudaGetDevice(&now));
    printf("on %d: type %d device %d holds %d\n", now, (int)a.type, a.device, c);
    SAY(cudaFree(p[d]));
  }
  MUST(cudaSetDevice(0));
  SAY(cudaMalloc(&p[0], 3 * MB));
  struct cudaPointerAttributes a;
  SAY(cudaPointerGetAttributes(&a, p[0]));
  printf("device %d\n", a.device);
  SAY(cudaFree(p[0]));
}
CASES(CASE(plain), CASE(many), CASE(kinds), CASE(ordered), CASE(errors), CASE(devices))
