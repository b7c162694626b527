/* A signal handler that jumps out of a hook which waits for a writer that is stuck: the thread is recorded afterwards. */
#include "common.h"
#include <setjmp.h>
#include <sys/syscall.h>
#include <sys/time.h>

static sigjmp_buf out;
static volatile sig_atomic_t armed;
static volatile long long began;

static long long now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}
/* The hooks' naps come here. */
static __thread volatile sig_atomic_t napping;
int nanosleep(const struct timespec* wanted, struct timespec* left) {
  napping = 1;
  int r = (int)syscall(SYS_nanosleep, wanted, left);
  napping = 0;
  return r;
}
/* Only out of a call that lasts, and out of a nap: it holds nothing then. (On a busy machine any call may last.) */
static void tick(int signal) {
  (void)signal;
  if (armed && napping && now_ms() - began > 30) {
    armed = 0;
    napping = 0;
    siglongjmp(out, 1);
  }
}
static void case_jumps(void) {
  CUdeviceptr p;
  primary(0);
  struct sigaction a;
  memset(&a, 0, sizeof a);
  a.sa_handler = tick;
  REQUIRE(!sigaction(SIGALRM, &a, NULL));
  MUST(cuMemFree(take(1000)));
  struct itimerval often = {{0, 10000}, {0, 10000}}, never = {{0, 0}, {0, 0}};
  began = now_ms();
  if (!sigsetjmp(out, 1)) {
    REQUIRE(!setitimer(ITIMER_REAL, &often, NULL));
    armed = 1;
    for (volatile int i = 0; i < 5000 && armed; ++i) {
      began = now_ms();
      MUST(cuMemAlloc(&p, 1000));
      began = now_ms();
      MUST(cuMemFree(p));
    }
  }
  printf("jumped: %d\n", !armed);
  REQUIRE(!setitimer(ITIMER_REAL, &never, NULL));
  fflush(stdout);
  const char *jumped = getenv("JUMPED"), *reading = getenv("READING");
  REQUIRE(jumped && reading && close(open(jumped, O_CREAT | O_WRONLY, 0600)) == 0);
  for (int i = 0; i < 6000 && access(reading, F_OK); ++i) usleep(10000);
  usleep(1500000); /* what waited is written by now */
  for (int i = 0; i < 50; ++i) take(7777);
}
CASES(CASE(jumps))
