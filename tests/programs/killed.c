/* Allocates and frees until it is killed, and counts the calls that returned in a page of its own that outlives it.
 * `killed THREADS SEED`: the n-th call of a thread is the same in every run with the seed (tests/black_box/kill.rs knows it too).
 * With a third argument the memory is stream-ordered, each thread's on a stream of its own. */
#include "common.h"
#include <sys/syscall.h>

enum { THREADS = 8, LIVE = 16 };
struct Slot { volatile uint64_t tid, returned; uint64_t space[6]; };
static struct Slot* page;
static unsigned seed;
static int ordered;
static __thread CUstream stream;

/* The same in kill.rs. */
static uint64_t next(uint64_t* state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return *state >> 33;
}
static void deeper(int depth, CUdeviceptr* p, size_t bytes) { /* stacks of several shapes */
  if (depth > 0) deeper(depth - 1, p, bytes);
  else if (ordered) MUST(cuMemAllocAsync(p, bytes, stream));
  else MUST(cuMemAlloc(p, bytes));
  __asm__ volatile("" ::: "memory"); /* not a tail call */
}
static void* run(void* number) {
  size_t n = (size_t)(uintptr_t)number;
  uint64_t state = seed * 1000 + n;
  CUdeviceptr p[LIVE] = {0};
  primary(0);
  if (ordered) MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  page[n].tid = (uint64_t)syscall(SYS_gettid);
  for (;;) {
    uint64_t r = next(&state);
    size_t i = r % LIVE;
    if (p[i]) {
      if (ordered) MUST(cuMemFreeAsync(p[i], stream));
      else MUST(cuMemFree(p[i]));
      p[i] = 0;
    } else {
      deeper((int)(r / LIVE % 5), &p[i], (size_t)(1 + r % 100000));
    }
    page[n].returned = page[n].returned + 1;
  }
  return NULL;
}
int main(int argc, char** argv) {
  REQUIRE(argc == 3 || argc == 4);
  ordered = argc == 4;
  int threads = atoi(argv[1]), fd = open("calls", O_RDWR | O_CREAT, 0600);
  seed = (unsigned)atoi(argv[2]);
  REQUIRE(fd >= 0 && threads <= THREADS && !ftruncate(fd, sizeof(struct Slot) * THREADS));
  page = mmap(NULL, sizeof(struct Slot) * THREADS, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  REQUIRE(page != MAP_FAILED);
  for (int i = 1; i < threads; ++i) {
    pthread_t t;
    REQUIRE(!pthread_create(&t, NULL, run, (void*)(uintptr_t)i));
  }
  run(0);
}
