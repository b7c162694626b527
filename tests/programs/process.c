/* The ways in which processes and threads begin and end. */
#include "common.h"
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/stat.h>
#include <sys/time.h>

static CUdeviceptr kept;
static void work(void) {
  primary(0);
  kept = take(30000);
  for (int i = 0; i < 10; ++i) MUST(cuMemFree(take(1000 * (size_t)(i + 1))));
}
static void wait_for(pid_t pid) {
  int status = -1;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  printf("child: exited %d with %d, signal %d\n", WIFEXITED(status), WIFEXITED(status) ? WEXITSTATUS(status) : 0, WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}
static void again(void) {
  MUST(cuMemsetD8(kept, 5, 30000));
  MUST(cuMemFree(kept));
  MUST(cuMemFree(take(2000)));
  printf("the parent goes on\n");
}
/* A child that touches no CUDA and ends as a child does. */
static void case_fork_exit(void) {
  work();
  fflush(stdout);
  pid_t pid = fork();
  if (!pid) exit(3); /* runs the handlers that the parent registered */
  wait_for(pid);
  again();
}
static void case_fork__exit(void) {
  work();
  fflush(stdout);
  pid_t pid = fork();
  if (!pid) _exit(4);
  wait_for(pid);
  again();
}
/* A child that does touch CUDA gets the driver's answer to that. */
static void case_fork_cuda(void) {
  work();
  fflush(stdout);
  pid_t pid = fork();
  if (!pid) {
    CUdeviceptr p = 0;
    SAY(cuMemAlloc(&p, 100));
    SAY(cuMemFree(kept));
    SAY(cuMemGetInfo(NULL, NULL));
    SAY(cuMemAllocHost(NULL, 5));
    fflush(stdout);
    exit(0);
  }
  wait_for(pid);
  again();
}
static void case_fork_exec(void) {
  work();
  fflush(stdout);
  pid_t pid = fork();
  if (!pid) {
    execl("/proc/self/exe", "process", "worker", NULL);
    _exit(90);
  }
  wait_for(pid);
  again();
}
static void case_worker(void) {
  work();
  printf("a worker\n");
}
/* fork without glibc: no handler runs in the child. */
static void case_clone(void) {
  work();
  fflush(stdout);
  long pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
  if (!pid) {
    CUdeviceptr p = 0;
    int code = (int)cuMemAlloc(&p, 100);
    syscall(SYS_exit_group, code == CUDA_ERROR_NOT_INITIALIZED ? 5 : 6);
  }
  wait_for((pid_t)pid);
  again();
}
static void case_vfork(void) {
  work();
  fflush(stdout);
  pid_t pid = vfork();
  if (!pid) {
    execl("/proc/self/exe", "process", "worker", NULL);
    _exit(90);
  }
  wait_for(pid);
  again();
}
/* A fork before the first CUDA call: both are programs of their own. */
static void case_fork_first(void) {
  pid_t pid = fork();
  if (!pid) {
    work();
    exit(0);
  }
  wait_for(pid);
  work();
  again();
}
/* Children of children, while other threads allocate. */
static volatile int stop;
static void* churn(void* unused) {
  (void)unused;
  primary(0);
  while (!stop) MUST(cuMemFree(take(5000)));
  return NULL;
}
static void case_fork_threads(void) {
  work();
  pthread_t t[3];
  for (int i = 0; i < 3; ++i) REQUIRE(!pthread_create(&t[i], NULL, churn, NULL));
  for (int i = 0; i < 20; ++i) {
    pid_t pid = fork();
    if (!pid) exit(i);
    int status;
    REQUIRE(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == i);
  }
  stop = 1;
  for (int i = 0; i < 3; ++i) pthread_join(t[i], NULL);
  again();
}
/* The same process number, and a second history. */
static void case_exec(void) {
  work();
  fflush(stdout);
  execl("/proc/self/exe", "process", "worker", NULL);
  exit(90);
}
static void case__exit(void) {
  work();
  fflush(stdout);
  _exit(7);
}
static void case_quick_exit(void) {
  work();
  fflush(stdout);
  quick_exit(8);
}
static void case_abort(void) {
  work();
  fflush(stdout);
  abort();
}
static void case_segfault(void) {
  work();
  fflush(stdout);
  *(volatile int*)(uintptr_t)8 = 1;
}
static void case_killed(void) {
  work();
  fflush(stdout);
  raise(SIGKILL);
}
static void* exits(void* unused) {
  (void)unused;
  work();
  fflush(stdout);
  exit(9);
}
static void case_thread_exits(void) {
  pthread_t t;
  REQUIRE(!pthread_create(&t, NULL, exits, NULL));
  for (;;) pause();
}
/* main ends, its threads go on. */
static void* goes_on(void* unused) {
  (void)unused;
  usleep(50000);
  primary(0);
  again();
  exit(0); /* the driver has threads that go on as well */
}
static void case_main_ends(void) {
  pthread_t t;
  work();
  REQUIRE(!pthread_create(&t, NULL, goes_on, NULL));
  pthread_exit(NULL);
}
/* Once the driver has ended (4), as when bare, the thread does nothing more. */
static void until_the_end(CUresult code) {
  if (code != CUDA_ERROR_DEINITIALIZED) MUST(code);
  else
    for (;;) pause();
}
/* The process ends while many threads go on allocating: what each had done before is printed, for the history to be asked. */
#define BUSY 12
static volatile long done_by[BUSY];
static int tid_of[BUSY];
static void* goes_on_allocating(void* number) {
  int me = (int)(intptr_t)number;
  tid_of[me] = (int)syscall(SYS_gettid);
  primary(0);
  for (;;) {
    CUdeviceptr p = 0;
    until_the_end(cuMemAlloc(&p, 1000 + (size_t)me));
    __atomic_add_fetch(&done_by[me], 1, __ATOMIC_SEQ_CST);
    until_the_end(cuMemFree(p));
  }
  return NULL;
}
static CUdeviceptr many[300];
static void frees_at_end(void) {
  for (int i = 0; i < (int)LENGTH(many); ++i) MUST(cuMemFree(many[i]));
}
static void case_exits_beside(void) {
  MUST(cuInit(0));
  atexit(frees_at_end); /* after ours, while the driver still answers */
  primary(0);
  /* Before the threads: a call that finds the library still starting is served and not recorded. */
  for (int i = 0; i < (int)LENGTH(many); ++i) many[i] = take(5000);
  for (int i = 0; i < BUSY; ++i) {
    pthread_t t;
    REQUIRE(!pthread_create(&t, NULL, goes_on_allocating, (void*)(intptr_t)i));
  }
  for (int i = 0; i < BUSY; ++i)
    while (done_by[i] < 20 + getpid() % 50) usleep(100);
  printf("%d %d\n", getpid(), (int)LENGTH(many));
  for (int i = 0; i < BUSY; ++i) printf("%d %ld\n", tid_of[i], done_by[i]);
}
/* Much is done in an exit handler: as much as is told, or more than a pipe holds. */
static void much_at_end(void) {
  int much = getenv("MUCH") ? atoi(getenv("MUCH")) : 20000;
  for (int i = 0; i < much; ++i) MUST(cuMemFree(take(3000)));
}
static void case_much_at_exit(void) {
  MUST(cuInit(0));
  atexit(much_at_end);
  work();
}
/* A signal handler ends the process, in the middle of whatever it does. */
static void ends_it(int unused) {
  (void)unused;
  exit(0);
}
static void case_exits_in_handler(void) {
  work();
  signal(SIGALRM, ends_it);
  struct itimerval soon = {{0, 0}, {0, 500 + getpid() * 37 % 3000}};
  setitimer(ITIMER_REAL, &soon, NULL);
  for (;;) MUST(cuMemFree(take(3000)));
}
/* More threads at a time than can record: what the last ones do is lost. */
#define CROWD 560
static pthread_barrier_t all_there;
static void* one_of_many(void* unused) {
  (void)unused;
  primary(0);
  (void)take(4000);
  pthread_barrier_wait(&all_there);
  for (;;) pause();
  return NULL;
}
static void case_crowd(void) {
  pthread_attr_t small;
  REQUIRE(!pthread_attr_init(&small));
  REQUIRE(!pthread_attr_setstacksize(&small, 128 << 10));
  REQUIRE(!pthread_barrier_init(&all_there, NULL, CROWD + 1));
  primary(0);
  (void)take(4000);
  for (int i = 0; i < CROWD; ++i) {
    pthread_t t;
    REQUIRE(!pthread_create(&t, &small, one_of_many, NULL));
  }
  pthread_barrier_wait(&all_there);
}
/* Frees in the program's own exit handlers, registered before and after the driver's. */
static void at_end(void) {
  printf("at exit %d\n", (int)cuMemFree(kept));
}
static void case_atexit(void) {
  atexit(at_end);
  work();
}
/* Between the driver's handler and ours: it runs after ours, while the driver still answers. */
static void case_atexit_between(void) {
  MUST(cuInit(0));
  atexit(at_end);
  work();
}
static void case_atexit_late(void) {
  work();
  atexit(at_end);
}
static void __attribute__((destructor)) destructor(void) {
  CUdeviceptr p = 0;
  if (!getenv("FREE_IN_DESTRUCTOR")) return;
  printf("destructor %d", (int)cuMemFree(kept));
  printf(" %d\n", (int)cuMemAlloc(&p, 100));
}
static void case_destructor(void) {
  setenv("FREE_IN_DESTRUCTOR", "1", 1);
  work();
}
/* The disk of the history gets full while exit handlers run, when all was written: that of its memory, too, with FULL_MEMORY. What is
   exported is found before the C library's. */
static ino_t full;
static size_t room = 30;
static int slow_writes;
ssize_t write(int file, const void* bytes, size_t n) {
  struct stat s;
  if (slow_writes && !fstat(file, &s) && S_ISREG(s.st_mode)) {
    --slow_writes;
    usleep(250000);
  }
  if (full && !fstat(file, &s) && s.st_ino == full) {
    if (!room) {
      errno = ENOSPC;
      return -1;
    }
    if (n > room) n = room;
    room -= n;
  }
  return syscall(SYS_write, file, bytes, n);
}
static int no_memory;
static void fills_up(void) {
  struct stat s;
  for (int i = 0; i < (int)LENGTH(many); ++i) {
    if (i == 100 && getenv("VRAMSCOPE_TRACE") && !stat(getenv("VRAMSCOPE_TRACE"), &s)) full = s.st_ino;
    no_memory = full && getenv("FULL_MEMORY");
    MUST(cuMemFree(many[i]));
  }
}
static void case_full_at_exit(void) {
  MUST(cuInit(0));
  atexit(fills_up); /* after ours, while the driver still answers */
  primary(0);
  for (int i = 0; i < (int)LENGTH(many); ++i) many[i] = take(5000);
}
/* Somebody empties the history while its program runs; with KILLED it does not come to its end. */
static void until_written(const char* history) {
  struct stat s;
  while (stat(history, &s) || !s.st_size) usleep(100);
}
static void case_emptied(void) {
  const char* history = getenv("VRAMSCOPE_TRACE");
  work();
  if (!history) return;
  until_written(history);
  REQUIRE(!truncate(history, 0));
  for (int i = 0; i < 10; ++i) MUST(cuMemFree(take(2000)));
  until_written(history);
  if (getenv("KILLED")) raise(SIGKILL);
}
/* The process ends while a thread makes its first calls: any of them may find that the driver has ended (4), as when bare. */
static volatile int begins;
static void* begins_late(void* unused) {
  CUdevice device;
  CUcontext ctx;
  (void)unused;
  begins = 1;
  until_the_end(cuInit(0));
  until_the_end(cuDeviceGet(&device, 0));
  until_the_end(cuDevicePrimaryCtxRetain(&ctx, device));
  until_the_end(cuCtxSetCurrent(ctx));
  until_the_end(cuMemAlloc(&kept, 30000));
  for (;;) pause();
  return NULL;
}
/* Memory for what is set up takes long to get, as on a machine with much to do. */
static volatile int slowly;
static volatile int gets_memory;
int posix_fallocate(int file, off_t start, off_t length) {
  gets_memory = 1;
  if (slowly) usleep(700000);
  if (no_memory) return ENOSPC;
  return fallocate(file, 0, start, length) ? errno : 0;
}
static void case_exits_at_slow_start(void) {
  pthread_t t;
  slowly = 1;
  REQUIRE(!pthread_create(&t, NULL, begins_late, NULL));
  for (int i = 0; i < 30000 && !gets_memory; ++i) usleep(1000);
}
static void case_exits_at_start(void) {
  pthread_t t;
  REQUIRE(!pthread_create(&t, NULL, begins_late, NULL));
  while (!begins) usleep(10);
  usleep((useconds_t)(getpid() * 37 % 5000));
}
/* A thread that frees in the destructor of its own data. */
static pthread_key_t key;
static void key_ends(void* p) {
  static __thread int round;
  if (++round < 3) { /* after everybody else's */
    pthread_setspecific(key, p);
    return;
  }
  MUST(cuMemFree((CUdeviceptr)(uintptr_t)p));
  MUST(cuMemFree(take(1234)));
}
static void* keyed(void* unused) {
  (void)unused;
  primary(0);
  pthread_setspecific(key, (void*)(uintptr_t)take(4000));
  return NULL;
}
static void case_thread_destructor(void) {
  work();
  REQUIRE(!pthread_key_create(&key, key_ends));
  for (int i = 0; i < 20; ++i) {
    pthread_t t;
    REQUIRE(!pthread_create(&t, NULL, keyed, NULL));
    pthread_join(t, NULL);
  }
  again();
}
static void* small(void* unused) {
  (void)unused;
  primary(0);
  for (int i = 0; i < 50; ++i) {
    CUdeviceptr p = 0;
    MUST(cuMemAlloc(&p, 1000 + (size_t)i));
    MUST(cuMemFree(p));
  }
  return NULL;
}
/* The smallest stack that a thread can have. */
static void case_small_stack(void) {
  work();
  pthread_attr_t a;
  pthread_attr_init(&a);
  REQUIRE(!pthread_attr_setstacksize(&a, 16384));
  for (int i = 0; i < 5; ++i) {
    pthread_t t;
    REQUIRE(!pthread_create(&t, &a, small, NULL));
    pthread_join(t, NULL);
  }
  again();
}
static void case_threads_one_by_one(void) {
  work();
  for (int i = 0; i < 300; ++i) {
    pthread_t t;
    REQUIRE(!pthread_create(&t, NULL, small, NULL));
    pthread_join(t, NULL);
  }
  again();
}
static void case_threads_at_once(void) {
  work();
  pthread_t t[64];
  for (int i = 0; i < 64; ++i) REQUIRE(!pthread_create(&t[i], NULL, small, NULL));
  for (int i = 0; i < 64; ++i) pthread_join(t[i], NULL);
  again();
}
/* All of them meet the context for the first time. */
static pthread_barrier_t together;
static void* first(void* unused) {
  (void)unused;
  primary(0);
  pthread_barrier_wait(&together);
  for (int i = 0; i < 20; ++i) MUST(cuMemFree(take(700)));
  return NULL;
}
static void case_threads_first(void) {
  pthread_t t[8];
  REQUIRE(!pthread_barrier_init(&together, NULL, 8));
  for (int i = 0; i < 8; ++i) REQUIRE(!pthread_create(&t[i], NULL, first, NULL));
  for (int i = 0; i < 8; ++i) pthread_join(t[i], NULL);
  work();
  again();
}
/* Threads cancelled inside a call of the driver. */
static void* in_free(void* unused) {
  (void)unused;
  primary(0);
  for (;;) {
    MUST(cuMemFree(take(4000)));
    pthread_testcancel();
  }
}
static void* in_large_free(void* unused) {
  (void)unused;
  primary(0);
  size_t pitch;
  CUdeviceptr p;
  for (;;) {
    MUST(cuMemAllocPitch(&p, &pitch, 4000, 2, 4));
    MUST(cuMemFree(p));
    pthread_testcancel();
  }
}
static void cancelled(void* (*body)(void*)) {
  work();
  for (int i = 0; i < 8; ++i) {
    pthread_t t;
    void* result = NULL;
    REQUIRE(!pthread_create(&t, NULL, body, NULL));
    usleep(20000 + 3000 * (useconds_t)i);
    REQUIRE(!pthread_cancel(t));
    pthread_join(t, &result);
    printf("cancelled %d\n", result == PTHREAD_CANCELED);
    MUST(cuMemFree(take(4000)));
  }
  again();
}
static void case_cancel(void) { cancelled(in_free); }
static void case_cancel_unpooled(void) { cancelled(in_large_free); }
/* A thread that waits for a kernel inside cudaFree. */
static CUdeviceptr slow_block;
static void* waits(void* unused) {
  (void)unused;
  primary(0);
  MUST(cuMemFree(slow_block));
  for (;;) pause();
  return NULL;
}
static void case_cancel_waiting(void) {
  work();
  CUstream s;
  void* host;
  MUST(cuMemAllocHost(&host, 64)); /* the host waits in cudaFree in every mode but `device` */
  MUST(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  for (int i = 0; i < 3; ++i) {
    pthread_t t;
    void* result = NULL;
    slow_block = take(70000);
    slow_fill(s, kept, 100, 1, MS(200));
    REQUIRE(!pthread_create(&t, NULL, waits, NULL));
    usleep(50000);
    REQUIRE(!pthread_cancel(t));
    pthread_join(t, &result);
    printf("cancelled %d\n", result == PTHREAD_CANCELED);
    MUST(cuCtxSynchronize());
    MUST(cuMemFree(take(70000)));
  }
  again();
}
/* Signals arrive all the time, in the middle of everything; their handler allocates nothing. */
static volatile sig_atomic_t signals;
static void on_signal(int n) {
  (void)n;
  ++signals;
}
static void case_signals(void) {
  struct sigaction a = {.sa_handler = on_signal};
  sigaction(SIGALRM, &a, NULL);
  sigaction(SIGPROF, &a, NULL);
  work();
  struct itimerval every = {{0, 300}, {0, 300}};
  setitimer(ITIMER_REAL, &every, NULL);
  setitimer(ITIMER_PROF, &every, NULL);
  for (int i = 0; i < 20000 || signals < 50; ++i) MUST(cuMemFree(take(1000 + (size_t)(i % 50) * 1000)));
  struct itimerval never = {{0, 0}, {0, 0}};
  setitimer(ITIMER_REAL, &never, NULL);
  setitimer(ITIMER_PROF, &never, NULL);
  printf("signals came %d\n", signals >= 50);
  again();
}
/* They come while hooks wait for the writer, which waits for its disk. */
static void case_signals_and_a_slow_disk(void) {
  slow_writes = 2;
  case_signals();
}
/* A handler that allocates itself, where the signal interrupts no call of the driver: it is blocked around those. */
static void allocates(int n) {
  (void)n;
  CUdeviceptr p = 0;
  if (!cuMemAlloc(&p, 3000)) cuMemFree(p);
  ++signals;
}
static void case_handler_allocates(void) {
  struct sigaction a = {.sa_handler = allocates};
  sigaction(SIGUSR1, &a, NULL);
  work();
  for (int i = 0; i < 200; ++i) {
    raise(SIGUSR1);
    MUST(cuMemFree(take(1000)));
  }
  printf("handlers ran %d\n", (int)signals);
  again();
}
/* Every descriptor closed, the library's too, and their numbers used for other files. */
static void case_close_all(void) {
  work();
  int out = fcntl(1, F_DUPFD, 900); /* above what is closed */
  for (int i = 3; i < 900; ++i) close(i);
  int mine[40];
  for (int i = 0; i < 40; ++i) {
    mine[i] = open("mine", O_RDWR | O_CREAT, 0600);
    REQUIRE(mine[i] >= 0 && write(mine[i], "mine", 4) == 4);
    dup2(mine[i], 512 + i);
  }
  for (int i = 0; i < 2000; ++i) MUST(cuMemFree(take(1000)));
  usleep(100000); /* the writer writes */
  off_t size = lseek(mine[0], 0, SEEK_END);
  dprintf(out, "my file has %ld bytes\n", (long)size);
  again();
}
static void case_close_standard(void) {
  work();
  int out = dup(1);
  close(0);
  close(1);
  close(2);
  for (int i = 0; i < 100; ++i) MUST(cuMemFree(take(1000)));
  int first = open("/dev/null", O_RDONLY);
  dprintf(out, "the next descriptor is %d\n", first);
  MUST(cuMemFree(kept));
}
/* The first descriptors of a program stay the ones it expects. */
static void case_numbers(void) {
  int before = open("/dev/null", O_RDONLY);
  close(before);
  primary(0); /* the driver's own are high or not at all */
  int driver = open("/dev/null", O_RDONLY);
  close(driver);
  work();
  int after = open("/dev/null", O_RDONLY);
  printf("moved by %d\n", after - driver);
}
static void case_chdir(void) {
  REQUIRE(!mkdir("elsewhere", 0700));
  REQUIRE(!chdir("elsewhere"));
  work();
  REQUIRE(!chdir("/"));
  again();
}
CASES(CASE(fork_exit), CASE(fork__exit), CASE(fork_cuda), CASE(fork_exec), CASE(worker), CASE(clone), CASE(vfork), CASE(fork_first),
      CASE(fork_threads), CASE(exec), CASE(_exit), CASE(quick_exit), CASE(abort), CASE(segfault), CASE(killed), CASE(thread_exits),
      CASE(main_ends), CASE(exits_beside), CASE(much_at_exit), CASE(full_at_exit), CASE(emptied), CASE(exits_in_handler), CASE(crowd), CASE(exits_at_start), CASE(exits_at_slow_start), CASE(atexit), CASE(atexit_between),
      CASE(atexit_late), CASE(destructor), CASE(thread_destructor), CASE(small_stack),
      CASE(threads_one_by_one), CASE(threads_at_once), CASE(threads_first), CASE(cancel), CASE(cancel_unpooled), CASE(cancel_waiting),
      CASE(signals), CASE(signals_and_a_slow_disk),
      CASE(handler_allocates), CASE(close_all), CASE(close_standard), CASE(numbers), CASE(chdir))
