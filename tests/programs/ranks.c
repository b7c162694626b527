/* Launchers of distributed jobs: they touch no GPU, and tell each rank by variables who it is. */
#include "common.h"
#include <spawn.h>

enum { RANKS = 3 };
extern char** environ;

static void tell(int rank) {
  char text[16];
  snprintf(text, sizeof text, "%d", rank);
  setenv("RANK", text, 1);
  setenv("LOCAL_RANK", text, 1);
  snprintf(text, sizeof text, "%d", RANKS);
  setenv("WORLD_SIZE", text, 1);
}
/* As DataLoader workers: processes of a rank that touch no GPU, forked, and programs of their own. */
static void helpers(void) {
  fflush(stdout);
  for (int i = 0; i < 4; ++i) {
    pid_t pid = fork();
    if (!pid && i % 2) _exit(0);
    if (!pid) execl("/proc/self/exe", "ranks", "idle", NULL);
    int status;
    REQUIRE(waitpid(pid, &status, 0) == pid && status == 0);
  }
}
static void work(void) {
  int rank = atoi(getenv("RANK"));
  primary(0);
  CUdeviceptr kept = take(30000 + (size_t)rank);
  for (int i = 0; i < 10; ++i) MUST(cuMemFree(take(1000 * (size_t)(i + 1))));
  helpers();
  if (getenv("DIES") && atoi(getenv("DIES")) == rank) raise(SIGKILL);
  MUST(cuMemFree(kept));
}
static int wait_all(const pid_t* ranks) {
  int failed = 0;
  for (int i = 0; i < RANKS; ++i) {
    int status = -1;
    REQUIRE(waitpid(ranks[i], &status, 0) == ranks[i]);
    printf("rank %d: exited %d with %d, signal %d\n", i, WIFEXITED(status), WIFEXITED(status) ? WEXITSTATUS(status) : 0, WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    failed |= status != 0;
  }
  return failed;
}
static void case_rank(void) { work(); }
static void case_idle(void) {}
/* torchrun, accelerate, mpirun: fork and exec. */
static void case_exec(void) {
  pid_t ranks[RANKS];
  for (int i = 0; i < RANKS; ++i)
    if (!(ranks[i] = fork())) {
      tell(i);
      execl("/proc/self/exe", "ranks", "rank", NULL);
      _exit(90);
    }
  exit(wait_all(ranks));
}
static void case_spawn(void) {
  pid_t ranks[RANKS];
  char* words[] = {(char*)"ranks", (char*)"rank", NULL};
  for (int i = 0; i < RANKS; ++i) {
    tell(i);
    REQUIRE(!posix_spawn(&ranks[i], "/proc/self/exe", NULL, NULL, words, environ));
  }
  exit(wait_all(ranks));
}
/* A fork before the first call of CUDA; the rank tells itself who it is. */
static void case_fork(void) {
  pid_t ranks[RANKS];
  for (int i = 0; i < RANKS; ++i)
    if (!(ranks[i] = fork())) {
      tell(i);
      work();
      exit(0);
    }
  exit(wait_all(ranks));
}
CASES(CASE(rank), CASE(idle), CASE(exec), CASE(spawn), CASE(fork))
