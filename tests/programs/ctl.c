/* Takes some memory and waits to be asked: for each file `step1`, `step2` … in its folder it does one thing more. */
#include "common.h"
#include <sys/stat.h>
#include <sys/syscall.h>

static void wait_for(const char* file) {
  for (int i = 0; i < 3000 && access(file, F_OK); ++i) usleep(10000);
  REQUIRE(!access(file, F_OK));
}
static void ready(const char* file) {
  int f = open(file, O_WRONLY | O_CREAT, 0600);
  REQUIRE(f >= 0);
  close(f);
}
static void begin(void) {
  primary(0);
  take(10 * MB);
  MUST(cuMemFree(take(20 * MB)));
  ready("ready");
}
static void case_steps(void) {
  begin();
  wait_for("step1");
  CUdeviceptr p;
  SAY(cuMemAlloc(&p, 60 * MB));
  ready("done1");
  wait_for("step2");
  SAY(cuMemAlloc(&p, 60 * MB));
  ready("done2");
  wait_for("step3");
}
static void case_killed(void) {
  begin();
  kill(getpid(), SIGKILL);
}
/* The child lives on, and is not asked. */
static void case_forks(void) {
  primary(0);
  take(10 * MB);
  if (!fork()) {
    ready("ready");
    for (int i = 0; i < 500 && access("step3", F_OK); ++i) usleep(10000);
    exit(0);
  }
  wait_for("step2");
  _exit(0);
}
/* As a daemon does; other files get the numbers. */
static void case_closes(void) {
  primary(0);
  take(10 * MB);
  for (int f = 3; f < 1024; ++f) close(f);
  for (int i = 0; i < 600; ++i) open("/dev/null", O_RDONLY);
  ready("ready");
  wait_for("step3");
  printf("alive\n");
}
/* Another program under the same number. */
static void case_execs(void) {
  primary(0);
  take(10 * MB);
  execl("/proc/self/exe", "ctl", "steps", (char*)NULL);
}
CASES(CASE(steps), CASE(killed), CASE(forks), CASE(closes), CASE(execs))
