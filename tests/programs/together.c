/* Threads and processes that need one another while a call of one of them waits, as a hostile reading of the library found
 * them: each ended bare, and hung or broke under it once. */
#define _GNU_SOURCE
#include "common.h"
#include <sys/resource.h>

static volatile int go, inside;
static CUcontext first;

static void wait_for_go(void* unused) {
  (void)unused;
  inside = 1;
  while (!go) usleep(1000);
}
static void* destroy_first(void* unused) {
  (void)unused;
  MUST(cuCtxSetCurrent(first));
  MUST(cuCtxDestroy(first)); /* drains the host function, which waits for the other thread */
  return NULL;
}
static void beside_an_ending_context(int retain) {
  CUcontext second;
  CUdeviceptr p;
  CUstream s;
  pthread_t t;
  MUST(cuInit(0));
  MUST(cuCtxCreate(&first, NULL, 0, 0));
  MUST(cuMemAlloc(&p, 4096));
  MUST(cuStreamCreate(&s, 1));
  MUST(cuLaunchHostFunc(s, wait_for_go, NULL));
  MUST(cuCtxPopCurrent(NULL));
  MUST(cuCtxCreate(&second, NULL, 0, 0));
  while (!inside) usleep(1000);
  REQUIRE(!pthread_create(&t, NULL, destroy_first, NULL));
  usleep(100000);
  if (retain) MUST(cuDevicePrimaryCtxRetain(&second, 1));
  else MUST(cuMemAlloc(&p, 4096)); /* the first in its context */
  go = 1;
  pthread_join(t, NULL);
  if (retain) primary(0);
  MUST(cuMemAlloc(&p, 4096));
  printf("done\n");
}
static void case_destroy_beside_alloc(void) { beside_an_ending_context(0); }
static void case_destroy_beside_retain(void) { beside_an_ending_context(1); }

static CUcontext shared;
static void pairs(int n, size_t bytes) {
  for (int i = 0; i < n; ++i) {
    CUdeviceptr p;
    MUST(cuMemAlloc(&p, bytes));
    MUST(cuMemFree(p));
  }
}
static void* forks(void* unused) {
  (void)unused;
  MUST(cuCtxSetCurrent(shared));
  pairs(10, 4096);
  pid_t child = fork();
  if (!child) return NULL; /* the child's only thread ends, and its destructors run */
  waitpid(child, NULL, 0);
  pairs(3000, 4096);
  return NULL;
}
static void* allocates(void* unused) {
  (void)unused;
  MUST(cuCtxSetCurrent(shared));
  pairs(500, 8192);
  return NULL;
}
static void case_a_forked_thread_ends(void) {
  pthread_t t, others[8];
  shared = primary(0);
  REQUIRE(!pthread_create(&t, NULL, forks, NULL));
  for (int i = 0; i < 8; ++i) REQUIRE(!pthread_create(&others[i], NULL, allocates, NULL));
  for (int i = 0; i < 8; ++i) pthread_join(others[i], NULL);
  pthread_join(t, NULL);
  printf("done\n");
}

static CUdeviceptr victim;
static void* frees(void* unused) {
  (void)unused;
  MUST(cuCtxSetCurrent(shared));
  MUST(cuMemFree(victim));
  return NULL;
}
/* Pinned memory is in the host's sight, so the host waits, and it must wait alone. */
static void case_free_beside_work(void) {
  int* flag;
  CUdeviceptr device_flag, out;
  CUstream spinning, working;
  pthread_t t;
  shared = primary(0);
  MUST(cuMemAlloc(&victim, 1 << 20));
  MUST(cuMemAlloc(&out, 1 << 20));
  MUST(cuStreamCreate(&spinning, 1));
  MUST(cuStreamCreate(&working, 1));
  MUST(cuMemHostAlloc((void**)&flag, 4, 2));
  MUST(cuMemHostGetDevicePointer(&device_flag, flag, 0));
  *flag = 0;
  void* arguments[] = {&device_flag};
  launch(spinning, "spin_flag", arguments);
  REQUIRE(!pthread_create(&t, NULL, frees, NULL));
  usleep(100000);
  slow_fill(working, out, 16, 7, MS(10));
  MUST(cuStreamSynchronize(working));
  *(volatile int*)flag = 1;
  pthread_join(t, NULL);
  printf("done\n");
}

static pthread_barrier_t all_there;
static void* one_of_many(void* unused) {
  (void)unused;
  MUST(cuCtxSetCurrent(shared));
  pairs(1, 4096);
  pthread_barrier_wait(&all_there);
  pairs(20, 4096);
  return NULL;
}
/* More threads at once than there are rings. */
static void case_more_threads_than_rings(void) {
  enum { N = 600 };
  static pthread_t t[N];
  pthread_attr_t attributes;
  shared = primary(0);
  pthread_barrier_init(&all_there, NULL, N);
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 65536);
  for (int i = 0; i < N; ++i) REQUIRE(!pthread_create(&t[i], &attributes, one_of_many, NULL));
  for (int i = 0; i < N; ++i) pthread_join(t[i], NULL);
  printf("done\n");
}

/* A file size limit raises SIGXFSZ in who writes past it; the program writes nothing. */
static void case_a_file_size_limit(void) {
  struct rlimit limit = {100000, RLIM_INFINITY};
  primary(0);
  setrlimit(RLIMIT_FSIZE, &limit);
  pairs(100, 4096);
  printf("done\n");
}

/* A capture that ends with its context must not keep the pool off. */
static void case_capture_ends_with_its_context(void) {
  CUcontext a, b;
  CUstream s;
  CUdeviceptr p;
  MUST(cuInit(0));
  MUST(cuCtxCreate(&a, NULL, 0, 0));
  MUST(cuMemAlloc(&p, 4096));
  MUST(cuStreamCreate(&s, 1));
  MUST(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
  SAY(cuCtxDestroy(a));
  MUST(cuCtxCreate(&b, NULL, 0, 0));
  pairs(100, 4096);
  printf("done\n");
}

CASES(CASE(destroy_beside_alloc), CASE(destroy_beside_retain), CASE(a_forked_thread_ends), CASE(free_beside_work),
      CASE(more_threads_than_rings), CASE(a_file_size_limit), CASE(capture_ends_with_its_context))
