/* Functions of many frame shapes that call each other in a ring, then `leaf`. */
#include <alloca.h>
#include <string.h>

typedef void (*leaf_t)(void *);
typedef long (*link_t)(int, leaf_t, void *);
extern const link_t ring[];
#define COUNT 36
#define NEXT(n) (depth <= 0 ? (leaf(p), 0L) : ring[((n) + 1) % COUNT](depth - 1, leaf, p))
#define FN(n) __attribute__((noinline)) static long f##n(int depth, leaf_t leaf, void *p)
#define USE(x) __asm__ volatile("" : : "r"(x) : "memory")

#define PLAIN(n) FN(n) { return NEXT(n) + n; }
#define ARRAY(n) FN(n) { char a[16 * (n) + 8]; memset(a, n, sizeof a); USE(a); long r = NEXT(n); USE(a); return r + n; }
#define ALLOCA(n) FN(n) { char *a = alloca(24 + (depth % 7) * 40); a[0] = n; USE(a); long r = NEXT(n); USE(a); return r + n; }
#define REALIGN(n) FN(n) { _Alignas(64) char a[64 + (n)]; a[0] = n; USE(a); long r = NEXT(n); USE(a); return r + n; }
#define DRAP(n) FN(n) { _Alignas(32) char a[64]; char *b = alloca(8 + depth % 5 * 16); a[0] = b[0] = n; USE(a); USE(b); long r = NEXT(n); USE(a); return r + n; }
#define SAVED(n) FN(n) { \
    long a = depth, b = a + n, c = b * 3, d = c - a, e = d ^ b; \
    __asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e) : : "memory"); \
    long r = NEXT(n); \
    __asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e) : : "memory"); \
    return r + a + b + c + d + e; }
#define SIX(a, b, c, d, e, f) PLAIN(a) ARRAY(b) ALLOCA(c) REALIGN(d) DRAP(e) SAVED(f)
SIX(0, 1, 2, 3, 4, 5)
SIX(6, 7, 8, 9, 10, 11)
SIX(12, 13, 14, 15, 16, 17)
SIX(18, 19, 20, 21, 22, 23)
SIX(24, 25, 26, 27, 28, 29)
SIX(30, 31, 32, 33, 34, 35)
const link_t ring[COUNT] = {f0,  f1,  f2,  f3,  f4,  f5,  f6,  f7,  f8,  f9,  f10, f11, f12, f13, f14, f15, f16, f17,
                            f18, f19, f20, f21, f22, f23, f24, f25, f26, f27, f28, f29, f30, f31, f32, f33, f34, f35};

long chain(int depth, leaf_t leaf, void *p) { return ring[depth % COUNT](depth, leaf, p) + 1; }
