/* Memory shared with another process: this program starts itself as the other, and hands it the handles through a pipe. */
#include "common.h"
#include <spawn.h>
extern char** environ;

static int to_child = -1, from_child = -1;
static pid_t child;

static void start_child(void) {
  int there[2], back[2];
  REQUIRE(!pipe2(there, O_CLOEXEC) && !pipe2(back, O_CLOEXEC));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, there[0], 0);
  posix_spawn_file_actions_adddup2(&actions, back[1], 5);
  char* argv[] = {"ipc", "child", NULL};
  REQUIRE(!posix_spawn(&child, "/proc/self/exe", &actions, NULL, argv, environ));
  close(there[0]);
  close(back[1]);
  to_child = there[1];
  from_child = back[0];
}
static int child_reads(CUdeviceptr p, long offset) {
  struct { CUipcMemHandle handle; long offset; } message;
  int value = -1;
  MUST(cuIpcGetMemHandle(&message.handle, p));
  message.offset = offset;
  REQUIRE(write(to_child, &message, sizeof message) == sizeof message);
  REQUIRE(read(from_child, &value, sizeof value) == sizeof value);
  return value;
}
/* Reads what it is sent, answers with the int there, and adds one to it. */
static void case_child(void) {
  struct { CUipcMemHandle handle; long offset; } message;
  primary(0);
  while (read(0, &message, sizeof message) == sizeof message) {
    CUdeviceptr p;
    int value = -2;
    MUST(cuMemFree(take(3000))); /* it allocates as well */
    MUST(cuIpcOpenMemHandle(&p, message.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    MUST(cuMemcpyDtoH(&value, p + (CUdeviceptr)message.offset, 4));
    int next = value + 1;
    MUST(cuMemcpyHtoD(p + (CUdeviceptr)message.offset, &next, 4));
    MUST(cuIpcCloseMemHandle(p));
    REQUIRE(write(5, &value, sizeof value) == sizeof value);
  }
}
static void end_child(void) {
  int status;
  close(to_child);
  waitpid(child, &status, 0);
  printf("the child ended with %d\n", status);
}
static void round_trip(size_t bytes) {
  CUdeviceptr p = take(bytes), neighbour = take(bytes);
  size_t last = (bytes / 4 - 1) * 4;
  MUST(cuMemsetD32(p, 100, bytes / 4));
  MUST(cuMemsetD32(neighbour, 200, bytes / 4));
  printf("%d %d", child_reads(p, 0), child_reads(p, (long)last));
  printf(" %d\n", child_reads(neighbour, (long)last));
  print_ints("here", p, (int)(bytes / 4));
  print_ints("there", neighbour, (int)(bytes / 4));
  /* Freed while the other could have it: it must not come back as somebody's block of the cache. */
  MUST(cuMemFree(p));
  MUST(cuMemFree(neighbour));
}
static void case_sizes(void) {
  start_child();
  primary(0);
  static const size_t sizes[] = {64, 4096, MB, 3 * MB, 20 * MB};
  for (size_t i = 0; i < LENGTH(sizes); ++i) round_trip(sizes[i]);
  end_child();
}
/* Blocks that come from the cache. */
static void case_reused(void) {
  start_child();
  primary(0);
  for (int i = 0; i < 4; ++i) {
    CUdeviceptr p = take(60000);
    MUST(cuMemsetD32(p, (unsigned)(i * 10), 15000));
    MUST(cuMemFree(p));
    p = take(60000);
    MUST(cuMemsetD32(p, (unsigned)(i * 10 + 1), 15000));
    printf("%d", child_reads(p, 0));
    printf(" %d\n", child_reads(p, 4 * 14999));
    SAY(cuMemFree(p));
    SAY(cuMemFree(p));
  }
  end_child();
}
/* One handle an allocation, whichever address of it is given. */
static void case_handles(void) {
  primary(0);
  CUipcMemHandle a, b, c;
  CUdeviceptr p = take(10000), q = take(10000);
  SAY(cuIpcGetMemHandle(&a, p));
  SAY(cuIpcGetMemHandle(&b, p + 5000));
  SAY(cuIpcGetMemHandle(&c, q));
  printf("same %d, other %d\n", !memcmp(&a, &b, sizeof a), !memcmp(&a, &c, sizeof a));
  SAY(cuIpcOpenMemHandle(&p, a, 1));
  SAY(cuIpcGetMemHandle(&a, 4096));
  SAY(cuIpcGetMemHandle(NULL, q));
  SAY(cuMemFree(q));
  SAY(cuIpcGetMemHandle(&c, q));
  SAY(cuIpcCloseMemHandle(12345));
}
/* After an export `auto` keeps the host's wait: the other process reads what a kernel here wrote before the free. */
static void case_order(void) {
  start_child();
  primary(0);
  CUstream s;
  MUST(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  CUdeviceptr p = take(4096), scratch = take(50000);
  MUST(cuMemsetD32(p, 1, 1024));
  printf("%d\n", child_reads(p, 0));
  slow_fill(s, p, 1024, 55, MS(80));
  MUST(cuMemFree(scratch));
  printf("%d\n", child_reads(p, 4));
  MUST(cuMemFree(p));
  end_child();
}
CASES(CASE(child), CASE(sizes), CASE(reused), CASE(handles), CASE(order))
