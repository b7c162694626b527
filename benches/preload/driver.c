/* A driver that does nothing, at once: what is left in a measurement is vramscope's own time. */
#include <stddef.h>
typedef unsigned long long u64;
static u64 next = 0x700000000000ull;
int cuMemAlloc_v2(u64 *p, size_t n) { *p = next; next += (n + 4095) & ~4095ull; return 0; }
int cuMemFree_v2(u64 p) { (void)p; return 0; }
int cuCtxGetCurrent(size_t *c) { *c = 1; return 0; }
int cuCtxGetDevice(int *d) { *d = 0; return 0; }
int cuDeviceTotalMem_v2(size_t *b, int d) { (void)d; *b = 1ull << 37; return 0; }
int cuMemGetInfo_v2(size_t *f, size_t *t) { *f = 1ull << 36; *t = 1ull << 37; return 0; }
int cuCtxRecordEvent(size_t c, size_t e) { (void)c; (void)e; return 0; }
int cuCtxWaitEvent(size_t c, size_t e) { (void)c; (void)e; return 0; }
int cuEventCreate(size_t *e, unsigned f) { (void)f; *e = 5; return 0; }
int cuCtxPushCurrent_v2(size_t c) { (void)c; return 0; }
int cuCtxPopCurrent_v2(size_t *c) { *c = 1; return 0; }
int cuStreamCreate(size_t *s, unsigned f) { (void)f; *s = 9; return 0; }
int cuDevicePrimaryCtxGetState(int d, unsigned *f, int *a) { (void)d; *f = 0; *a = 1; return 0; }
int cuDevicePrimaryCtxRetain(size_t *c, int d) { (void)d; *c = 1; return 0; }
int cuDevicePrimaryCtxRelease_v2(int d) { (void)d; return 0; }
