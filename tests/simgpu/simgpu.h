/* What the simulated driver tells tests about itself. These functions exist in it and in no other libcuda, so a program that
 * also runs on a GPU finds them with dlsym. */
#ifndef SIMGPU_H
#define SIMGPU_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
size_t simgpu_live_allocations(void);  /* of every kind, but for module variables */
size_t simgpu_used_bytes(int device);  /* what cuMemGetInfo calls used */
uint64_t simgpu_wait_count(void);      /* calls that had to wait for pending work */
/* After `after` more calls of the exported name ("cuMemAlloc_v2") one call returns code; after < 0: all do. code 0 ends it. */
void simgpu_set_fail(const char* function, int after, int code);
void simgpu_delay_us(const char* function, int us); /* every call of it is busy for that long first */
#ifdef __cplusplus
}
#endif
#endif
