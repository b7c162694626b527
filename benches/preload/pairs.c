/* Nanoseconds a pair of cuMemAlloc and cuMemFree, the median of nine rounds: one block again and again; before and after the
 * first stream besides the default one; and a mix of 500 live blocks. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
typedef unsigned long long u64;
int cuMemAlloc_v2(u64 *p, size_t n);
int cuMemFree_v2(u64 p);
int cuStreamCreate(size_t *s, unsigned flags);

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}
static int less(const void *a, const void *b) { return *(const double *)a < *(const double *)b ? -1 : 1; }

static void again(int n) {
    for (int i = 0; i < n; i++) {
        u64 p;
        cuMemAlloc_v2(&p, 1024);
        cuMemFree_v2(p);
    }
}
static void mix(int n) {
    static u64 live[500];
    static unsigned r = 1;
    for (int i = 0; i < n; i++) {
        r = r * 1664525u + 1013904223u;
        u64 *p = &live[(r >> 8) % 500];
        if (*p) cuMemFree_v2(*p);
        cuMemAlloc_v2(p, 256 + (r >> 4) % (64u << 10));
    }
}
static void say(const char *what, void (*run)(int), int n) {
    double rounds[9];
    run(n);
    for (int i = 0; i < 9; i++) {
        double t = now();
        run(n);
        rounds[i] = (now() - t) / n;
    }
    qsort(rounds, 9, sizeof rounds[0], less);
    printf("  %-28s %8.1f ns\n", what, rounds[4]);
}
int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 20000;
    size_t stream;
    say("1 KiB, default stream", again, n);
    cuStreamCreate(&stream, 1);
    say("1 KiB, with the barrier", again, n);
    say("mix of 500, with the barrier", mix, n);
    return 0;
}
