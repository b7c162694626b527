/* What a thread that ends may leave on its own default stream, and what must not be launched for the first time beside a kernel that
 * waits for the host. A row a process, each with a limit: it ends, or hangs, and then at which step of which thread.
 *
 *   thread_ends          the table, a minute at most      thread_ends ROW     one of them, here
 *
 * On an H200 (driver 580) threads of tests/programs/ordered.c that left work and stream-ordered memory of the driver's own pool
 * behind never came to pthread_join; served by --pool on they did. Which of the two it takes, and what else, is read off here. */
#include "common.h"
#include <poll.h>
#include <semaphore.h>

enum {
  POOL = 1,      /* memory by cudaMallocAsync on the thread's stream; else the main thread's, by cuMemAlloc */
  FREED = 2,     /* freed by the thread, on its stream */
  DONE = 4,      /* the kernel is waited for before that */
  FREE_DONE = 8, /* the free, too */
  STAYS = 16,    /* the thread ends after all else */
  DRIVER = 32,   /* by the driver's functions, not the runtime's */
  CREATED = 64,  /* on a stream that the thread created */
  KEPT = 128,    /* the pool keeps what is freed */
  OWN_POOL = 256, /* from a pool of the program's */
  HANDED = 512,  /* freed by the main thread, on a stream of its own, while the thread ends */
  LATE = 1024,   /* kernels are loaded at their first launch */
  ENDLESS = 2048, /* no thread: the first launch of a kernel beside one that spins until the host goes on */
  GOT = 4096,    /* that, and its function was asked for before */
};
static const struct Row { const char* name; int how; } rows[] = {
    {"no_pool", 0},
    {"all_done", POOL | FREED | DONE | FREE_DONE},
    {"free_pending", POOL | FREED | DONE},
    {"live", POOL | DONE},
    {"live_and_work_pending", POOL},
    {"free_and_work_pending", POOL | FREED},
    {"the_same_late", POOL | FREED | LATE},
    {"the_same_stays", POOL | FREED | STAYS},
    {"the_same_driver", POOL | FREED | DRIVER},
    {"the_same_created", POOL | FREED | CREATED},
    {"the_same_kept", POOL | FREED | KEPT},
    {"the_same_own_pool", POOL | FREED | OWN_POOL},
    {"handed_over", POOL | HANDED},
    {"first_launch_early", ENDLESS},
    {"first_launch_late", ENDLESS | LATE},
    {"first_launch_got", ENDLESS | LATE | GOT},
};
enum { N = 20000, LIMIT_MS = 3500 };

static void step(const char* who, const char* what) {
  char line[80];
  int n = snprintf(line, sizeof line, "%s %s\n", who, what);
  if (write(1, line, (size_t)n) < 0) exit(97);
}
static int how;
static CUdeviceptr block;
static CUmemoryPool pool;
static CUevent made;
static sem_t may_end, has_made;

static void* thread(void* unused) {
  CUstream s = CU_STREAM_PER_THREAD;
  void* p = NULL;
  step("thread", "begins");
  if (how & DRIVER) primary(0);
  else MUST(cudaSetDevice(0));
  if (how & CREATED) MUST(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  step("thread", "asks");
  if (how & OWN_POOL) MUST(cuMemAllocFromPoolAsync(&block, 4 * N, pool, s));
  else if (how & DRIVER) MUST(cuMemAllocAsync(&block, 4 * N, s));
  else if (how & CREATED) MUST(cudaMallocAsync(&p, 4 * N, s));
  else if (how & POOL) MUST(cudaMallocAsync_ptsz(&p, 4 * N, NULL));
  if (p) block = (CUdeviceptr)(uintptr_t)p;
  step("thread", "launches");
  slow_fill(s, block, N, 1, MS(200));
  MUST(cuEventRecord(made, s));
  if (how & DONE) {
    step("thread", "waits for its kernel");
    MUST(cuStreamSynchronize(s));
  }
  if (how & FREED) {
    step("thread", "frees");
    if (how & (DRIVER | OWN_POOL | CREATED)) MUST(cuMemFreeAsync(block, s));
    else MUST(cudaFreeAsync_ptsz((void*)(uintptr_t)block, NULL));
  }
  if (how & FREE_DONE) {
    step("thread", "waits for its free");
    MUST(cuStreamSynchronize(s));
  }
  sem_post(&has_made);
  if (how & STAYS) sem_wait(&may_end);
  step("thread", "ends");
  return unused;
}
static void endless(void) {
  int* flag;
  CUstream a, b;
  CUdeviceptr p = take(4096);
  MUST(cuMemAllocHost((void**)&flag, 4096));
  *flag = 0;
  MUST(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
  MUST(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
  if (how & GOT) kernel("slow_write");
  step("main", "launches a kernel that spins");
  spin_flag(a, (CUdeviceptr)(uintptr_t)flag);
  step("main", "launches another");
  slow_write(b, p, 1, 1);
  step("main", "waits for that");
  MUST(cuStreamSynchronize(b));
  *(volatile int*)flag = 1;
  MUST(cuCtxSynchronize());
}
static void run(const struct Row* row) {
  pthread_t t;
  how = row->how;
  step("main", "begins");
  primary(0);
  if (how & ENDLESS) return endless();
  kernel("slow_fill");
  MUST(cuEventCreate(&made, CU_EVENT_DISABLE_TIMING));
  MUST(cuDeviceGetDefaultMemPool(&pool, 0));
  if (how & OWN_POOL) {
    CUmemPoolProps of_the_device;
    memset(&of_the_device, 0, sizeof of_the_device);
    of_the_device.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    of_the_device.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    MUST(cuMemPoolCreate(&pool, &of_the_device));
  }
  unsigned long long all = ~0ull;
  if (how & KEPT) MUST(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
  if (!(how & POOL)) block = take(4 * N);
  CUstream s;
  MUST(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  sem_init(&may_end, 0, 0);
  sem_init(&has_made, 0, 0);
  REQUIRE(!pthread_create(&t, NULL, thread, NULL));
  if (how & (HANDED | STAYS)) sem_wait(&has_made);
  else {
    step("main", "joins");
    pthread_join(t, NULL);
  }
  if (how & HANDED) {
    step("main", "frees what the thread made");
    MUST(cuStreamWaitEvent(s, made, 0));
    MUST(cuMemFreeAsync(block, s));
  }
  step("main", "asks");
  CUdeviceptr p;
  MUST(cuMemAllocAsync(&p, 4 * N, s));
  slow_fill(s, p, N, 2, 1);
  step("main", "waits for its stream");
  MUST(cuStreamSynchronize(s));
  step("main", "waits for all");
  MUST(cuCtxSynchronize());
  if (how & (HANDED | STAYS)) {
    sem_post(&may_end);
    step("main", "joins");
    pthread_join(t, NULL);
  }
  step("main", "asks again");
  MUST(cuMemAllocAsync(&p, 4 * N, s));
  MUST(cuStreamSynchronize(s));
  step("main", "ends");
}

static long now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}
/* The last line that each thread said. */
static void last_of(const char* text, const char* who, char* out, size_t size) {
  size_t length = strlen(who);
  for (const char* line = text; line && *line; line = strchr(line, '\n'), line = line ? line + 1 : NULL)
    if (!strncmp(line, who, length) && line[length] == ' ') snprintf(out, size, "%.*s", (int)strcspn(line, "\n"), line);
}
static void tell(const char* self, const struct Row* row) {
  int out[2], status = 0;
  char text[4096] = "", main_said[80] = "main did nothing", thread_said[80] = "";
  size_t used = 0;
  long begun = now_ms();
  REQUIRE(!pipe(out));
  pid_t child = fork();
  if (!child) {
    dup2(out[1], 1);
    close(out[0]);
    setenv("CUDA_MODULE_LOADING", row->how & LATE ? "LAZY" : "EAGER", 1);
    execl(self, self, row->name, NULL);
    _exit(96);
  }
  close(out[1]);
  for (long left; (left = begun + LIMIT_MS - now_ms()) > 0;) {
    struct pollfd more = {out[0], POLLIN, 0};
    if (poll(&more, 1, (int)left) <= 0) continue;
    ssize_t n = read(out[0], text + used, sizeof text - 1 - used);
    if (n <= 0) break;
    text[used += (size_t)n] = 0;
  }
  /* The pipe may be closed a moment before the process is gone; one that hangs at its end hangs, too. */
  pid_t gone;
  while (!(gone = waitpid(child, &status, WNOHANG)) && now_ms() - begun < LIMIT_MS) usleep(10000);
  long took = now_ms() - begun;
  if (!gone) {
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
  }
  close(out[0]);
  last_of(text, "main", main_said, sizeof main_said);
  last_of(text, "thread", thread_said, sizeof thread_said);
  if (!gone) printf("%-24s HANGS: %s%s%s\n", row->name, main_said, *thread_said ? ", " : "", thread_said);
  else if (WIFEXITED(status) && !WEXITSTATUS(status)) printf("%-24s ends, %ld ms\n", row->name, took);
  else printf("%-24s fails with %d: %s\n", row->name, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), main_said);
  fflush(stdout);
}
int main(int argc, char** argv) {
  for (size_t i = 0; i < LENGTH(rows); ++i) {
    if (argc < 2) tell(argv[0], &rows[i]);
    else if (!strcmp(rows[i].name, argv[1])) return run(&rows[i]), 0;
  }
  return argc < 2 ? 0 : 97;
}
