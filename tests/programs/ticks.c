/* A timer whose handler, in C, allocates: also between two stores of an interpreter that makes a frame. */
#define NO_KERNELS
#include "common.h"
#include <sys/time.h>

static volatile long ticks;
static volatile int period;

/* One tick: at an interval, handlers would pile up on a busy machine. */
static void again(void) {
  struct itimerval once = {{0, 0}, {0, period}};
  setitimer(ITIMER_REAL, &once, NULL);
}

static void tick(int number) {
  int before = errno;
  CUdeviceptr p = 0;
  (void)number;
  if (!cuMemAlloc(&p, 4096)) {
    cuMemFree(p);
    ticks++;
  }
  again();
  errno = before;
}
void begin(int us) {
  struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
  sigaction(SIGALRM, &action, NULL);
  period = us;
  again();
}
long end(void) {
  period = 0;
  again();
  return ticks;
}
