/* A library that allocates through the runtime it is linked with. */
#define NO_KERNELS
#include "common.h"

int user_alloc(void** p, size_t bytes) {
  int code = (int)cudaMalloc(p, bytes);
  __asm__ volatile("" ::: "memory"); /* its frame stays */
  return code;
}
int user_free(void* p) {
  int code = (int)cudaFree(p);
  __asm__ volatile("" ::: "memory");
  return code;
}
int user_version(void) {
  int version = 0;
  MUST(cudaRuntimeGetVersion(&version));
  return version;
}
int user_last_error(void) { return (int)cudaPeekAtLastError(); }
