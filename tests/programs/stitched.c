/* Large blocks where only small ones are free: with the pool on they are stitched together, and nothing that a program can ask
 * or do tells them from others. */
#include "ordered.h"

enum { N = 64 };
static CUdeviceptr comb[N]; /* the odd ones are in use */

/* Half of 128 MiB is free, in pieces of 2 MiB. */
static void begin(CUstream a) {
  for (int i = 0; i < N; ++i) MUST(cuMemsetD32Async(comb[i] = get(2 * MB, a), 1000 + (unsigned)i, MB / 2, a));
  for (int i = 0; i < N; i += 2) put(comb[i], a);
}
static void end(CUstream a) {
  for (int i = 1; i < N; i += 2) check_block("between", comb[i], (int)MB / 2, 1000 + i, a);
  for (int i = 1; i < N; i += 2) put(comb[i], a);
}

static void pointer(const char* what, CUdeviceptr p, CUdeviceptr at) {
  CUdeviceptr base = 0;
  size_t range = 0;
  int code = (int)cuMemGetAddressRange(&base, &range, at);
  printf("%s: range %d %lld %zu", what, code, code ? 0 : (long long)(base - p), code ? 0 : range);
  static const CUpointer_attribute numbers[] = {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                                CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                                CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE};
  for (size_t i = 0; i < LENGTH(numbers); ++i) {
    unsigned long long v = 0;
    code = (int)cuPointerGetAttribute(&v, numbers[i], at);
    if (!code && i == 0) v -= p;
    printf(", %d %llu", code, code ? 0 : v);
  }
  struct cudaPointerAttributes a;
  code = (int)cudaPointerGetAttributes(&a, (void*)(uintptr_t)at);
  printf(", %d type %d device %d\n", code, code ? -1 : (int)a.type, code ? -1 : a.device);
  cudaGetLastError();
}
static void case_pointers(void) {
  begin_on(0);
  CUstream a = stream(cudaStreamNonBlocking);
  begin(a);
  for (int round = 0; round < 3; ++round) {
    size_t bytes = 21 * MB + 3 - (size_t)round * MB / 2;
    CUdeviceptr p = get(bytes, a);
    pointer("begin", p, p);
    for (int i = 1; i <= 10; ++i) pointer("border", p, p + 2 * MB * (unsigned)i - (i % 2));
    pointer("end", p, p + bytes - 1);
    unsigned long long id = 0, other = 0;
    MUST(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, p));
    MUST(cuPointerGetAttribute(&other, CU_POINTER_ATTRIBUTE_BUFFER_ID, p + 15 * MB));
    printf("one id: %d\n", id == other);
    void* pool = NULL;
    MUST(cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p + 15 * MB));
    printf("of the pool: %d\n", pool == (void*)pool_of(0));
    CUipcMemHandle handle;
    SAY(cuIpcGetMemHandle(&handle, p));
    SAY(cuIpcGetMemHandle(&handle, p + 4 * MB));
    CUmemGenericAllocationHandle h;
    SAY(cuMemRetainAllocationHandle(&h, (void*)(uintptr_t)p));
    SAY(cuMemRetainAllocationHandle(&h, (void*)(uintptr_t)(p + 4 * MB)));
    SAY(cuMemUnmap(p + 2 * MB, 2 * MB));
    SAY(cuMemUnmap(p, 2 * MB));
    SAY(cuMemFreeAsync(p + 2 * MB, a));
    SAY(cuMemFree(p + 4 * MB));
    SAY(cuMemFreeAsync(p + bytes, a) != 0);
    if (round == 1) SAY(cudaFree((void*)(uintptr_t)p));
    else put(p, a);
    MUST(cudaDeviceSynchronize());
    pointer("freed", p, p);
    pointer("freed", p, p + 8 * MB);
    SAY(cuMemFreeAsync(p, a));
    SAY(cuMemFree(p));
    SAY(cuMemFreeAsync(p + 2 * MB, a));
  }
  end(a);
  verdict("pointers");
}

static void case_copies(void) {
  begin_on(0);
  CUstream a = stream(cudaStreamNonBlocking), b = stream(cudaStreamNonBlocking);
  begin(a);
  enum { INTS = 5 << 20 };
  int* host = malloc(4 * INTS);
  int* back = malloc(4 * INTS);
  for (int i = 0; i < INTS; ++i) host[i] = i * 7;
  CUdeviceptr p = get(4 * INTS, a), q = get(4 * INTS + 12345, a);
  void *pp = (void*)(uintptr_t)p, *qq = (void*)(uintptr_t)q;
  MUST(cudaMemcpyAsync(pp, host, 4 * INTS, cudaMemcpyHostToDevice, a));
  MUST(cudaMemcpyAsync(qq, pp, 4 * INTS, cudaMemcpyDeviceToDevice, a));
  MUST(cudaMemcpyAsync(back, qq, 4 * INTS, cudaMemcpyDeviceToHost, a));
  MUST(cudaStreamSynchronize(a));
  printf("there and back: %d\n", !memcmp(host, back, 4 * INTS));
  MUST(cudaMemcpy((char*)qq + 1234, (char*)pp + 1000001, 9 * MB, cudaMemcpyDeviceToDevice));
  MUST(cudaMemcpy(back, (char*)qq + 1234, 9 * MB, cudaMemcpyDeviceToHost));
  printf("askew: %d\n", !memcmp((char*)host + 1000001, back, 9 * MB));
  MUST(cuMemsetD32(p, 5, INTS)); /* of device memory it does not wait */
  MUST(cuCtxSynchronize());
  check_block("set", p, INTS, 5, a);
  MUST(cuMemsetD8Async(p, 0, 4 * INTS, a));
  check_block("cleared", p, INTS, 0, a);
  /* the end of one stitched block is the beginning of another; each by a stream of its own */
  put(q, a);
  put(p, a);
  MUST(cudaDeviceSynchronize());
  CUdeviceptr x = get(11 * MB + 4096, a), y = get(13 * MB + 8192, b), z = get(7 * MB + 512, a);
  for (int i = 0; i < 4; ++i) {
    slow_fill(a, x, (int)(11 * MB + 4096) / 4, 10 + i, MS(1));
    slow_fill(b, y, (int)(13 * MB + 8192) / 4, 20 + i, MS(1));
    slow_fill(a, z, (int)(7 * MB + 512) / 4, 30 + i, MS(1));
    check_block("x", x, (int)(11 * MB + 4096) / 4, 10 + i, a);
    check_block("y", y, (int)(13 * MB + 8192) / 4, 20 + i, b);
    check_block("z", z, (int)(7 * MB + 512) / 4, 30 + i, a);
  }
  put(x, a);
  put(y, b);
  put(z, a);
  end(a);
  verdict("copies");
  free(host);
  free(back);
}

/* Another device is let in while such blocks live, and sees those and later ones. */
static void case_peers(void) {
  begin_on(0);
  CUstream a = stream(cudaStreamNonBlocking);
  begin(a);
  CUdeviceptr p = get(20 * MB, a), spare = get(16 * MB, a);
  slow_fill(a, p, 5 << 20, 7, MS(1));
  put(spare, a);
  CUmemAccessDesc access;
  memset(&access, 0, sizeof access);
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = 1;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  SAY(cuMemPoolSetAccess(pool_of(0), &access, 1));
  CUdeviceptr again = get(16 * MB, a), later = get(12 * MB, a);
  slow_fill(a, again, 4 << 20, 8, MS(1));
  slow_fill(a, later, 3 << 20, 9, MS(1));
  MUST(cudaStreamSynchronize(a));
  MUST(cudaSetDevice(1));
  CUstream b = stream(cudaStreamNonBlocking);
  CUdeviceptr here = get(20 * MB, b);
  copy_ints(b, here, p, 5 << 20);
  check_block("the old one", here, 5 << 20, 7, b);
  copy_ints(b, here, again, 4 << 20);
  check_block("the one that comes again", here, 4 << 20, 8, b);
  copy_ints(b, here, later, 3 << 20);
  check_block("the new one", here, 3 << 20, 9, b);
  slow_fill(b, p, 5 << 20, 70, MS(1));
  MUST(cudaMemcpyAsync((void*)(uintptr_t)here, (void*)(uintptr_t)p, 20 * MB, cudaMemcpyDefault, b));
  check_block("by copy", here, 5 << 20, 70, b);
  put(p, b); /* freed in a stream of the other device */
  put(here, b);
  MUST(cudaStreamSynchronize(b));
  MUST(cudaSetDevice(0));
  put(again, a);
  put(later, a);
  end(a);
  verdict("peers");
}

static void case_fork(void) {
  begin_on(0);
  CUstream a = stream(cudaStreamNonBlocking);
  begin(a);
  CUdeviceptr p = get(20 * MB, a), q = get(10 * MB, a);
  slow_fill(a, p, 5 << 20, 5, MS(5));
  put(q, a);
  fflush(stdout);
  pid_t child = fork();
  if (!child) {
    void* r = NULL;
    SAY(cudaFreeAsync((void*)(uintptr_t)p, a));
    no_memory((int)cudaMallocAsync(&r, 10 * MB, a));
    SAY(cudaFree((void*)(uintptr_t)p));
    exit(3);
  }
  int status;
  waitpid(child, &status, 0);
  printf("child %d\n", WEXITSTATUS(status));
  check_block("the parent's", p, 5 << 20, 5, a);
  put(p, a);
  for (int i = 0; i < 5; ++i) {
    p = get((size_t)(20 - i) * MB, a);
    slow_fill(a, p, (20 - i) << 18, i, MS(1));
    check_block("and new ones", p, (20 - i) << 18, i, a);
    put(p, a);
  }
  end(a);
  verdict("fork");
}

/* What the device forgets with its context, and what comes after. */
static void case_reset(void) {
  for (int round = 0; round < 4; ++round) {
    MUST(cudaSetDevice(0)); /* (no kernels: their module would go, too) */
    CUstream a = stream(cudaStreamNonBlocking);
    begin(a);
    CUdeviceptr p = get(20 * MB, a), q = get(10 * MB, a);
    MUST(cuMemsetD32Async(p, 900 + (unsigned)round, 5 << 20, a));
    MUST(cuMemsetD32Async(q, 910 + (unsigned)round, 5 << 19, a));
    check_block("before a reset", p, 5 << 20, 900 + round, a);
    check_block("before a reset", q, 5 << 19, 910 + round, a);
    if (round % 2) put(q, a);
    if (round == 2) put(p, a);
    if (round == 2) end(a);
    printf("round %d: %ld wrong\n", round, wrong);
    SAY(cudaDeviceReset());
  }
}

/* A graph that uses such a block, which was there before. */
static void case_graph(void) {
  begin_on(0);
  CUstream a = stream(cudaStreamNonBlocking), b = stream(cudaStreamNonBlocking);
  begin(a);
  CUdeviceptr p = get(20 * MB, a), q = get(10 * MB, a);
  put(q, a);
  MUST(cudaStreamSynchronize(a));
  cudaGraph_t g;
  cudaGraphExec_t e;
  MUST(cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed));
  slow_fill(a, p, 5 << 20, 3, MS(1));
  CUdeviceptr inside = get(9 * MB, a); /* the graph's */
  slow_fill(a, inside, 9 << 18, 4, MS(1));
  slow_copy(a, p, inside, 9 << 18, 1);
  put(inside, a);
  CUdeviceptr beside = get(10 * MB, b); /* not */
  slow_fill(b, beside, 5 << 19, 6, MS(1));
  SAY(cudaFreeAsync((void*)(uintptr_t)p, a)); /* what was there before can't be freed in it */
  cudaError_t r = cudaStreamEndCapture(a, &g);
  printf("captured: %d\n", (int)r);
  cudaGetLastError();
  if (r == 0) {
    MUST(cudaGraphInstantiate(&e, g, 0));
    for (int i = 0; i < 3; ++i) {
      MUST(cudaGraphLaunch(e, a));
      check_block("beside", beside, 5 << 19, 6, b);
      check_block("its begin", p, 9 << 18, 4, a);
      check_block("its end", p + 9 * MB, 11 << 18, 3, a);
      slow_fill(a, p, 5 << 20, 8, MS(1));
    }
    MUST(cudaGraphLaunch(e, a));
    put(p, a); /* behind the launch */
    p = get(20 * MB, a);
    slow_fill(a, p, 5 << 20, 11, MS(1));
    check_block("the next", p, 5 << 20, 11, a);
    MUST(cudaStreamSynchronize(a));
    MUST(cudaGraphExecDestroy(e));
    MUST(cudaGraphDestroy(g));
  }
  put(p, a);
  put(beside, b);
  end(a);
  verdict("graph");
}

/* What the pool is said to hold. */
static void numbers(const char* what) {
  printf("%s: used %llu, at most %llu, reserved enough %d\n", what, pool_number(pool_of(0), cudaMemPoolAttrUsedMemCurrent),
         pool_number(pool_of(0), cudaMemPoolAttrUsedMemHigh),
         pool_number(pool_of(0), cudaMemPoolAttrReservedMemCurrent) >= pool_number(pool_of(0), cudaMemPoolAttrUsedMemCurrent));
}
static void case_numbers(void) {
  begin_on(0);
  CUstream a = stream(cudaStreamNonBlocking);
  begin(a);
  numbers("begin");
  CUdeviceptr p = get(20 * MB + 4, a), q = get(10 * MB + 4, a);
  numbers("two");
  put(p, a);
  numbers("one");
  p = get(19 * MB + 4, a);
  numbers("two");
  put(q, a);
  put(p, a);
  numbers("none");
  end(a);
  MUST(cudaDeviceSynchronize());
  MUST(cudaMemPoolTrimTo(pool_of(0), 0));
  numbers("end");
  size_t free, total;
  MUST(cudaMemGetInfo(&free, &total));
  printf("all free again: %zu of %zu\n", free / MB, total / MB);
}

/* Everything is in use, by a limit or on a full device: what does not fit is refused, and everything else goes on. */
static void case_full(void) {
  begin_on(0);
  CUstream a = stream(cudaStreamNonBlocking), b = stream(cudaStreamNonBlocking);
  begin(a);
  static CUdeviceptr p[256];
  for (int round = 0; round < 4; ++round) {
    int n = 0;
    while (n < 256 && (p[n] = try(9 * MB, n % 3 ? a : b))) {
      slow_fill(n % 3 ? a : b, p[n], 9 << 18, n, MS(1) / 10);
      ++n;
    }
    printf("some: %d\n", n > 3);
    printf("more: %d\n", try(64 * MB, b) != 0);
    for (int i = 0; i < n; ++i) check_block("full", p[i], 9 << 18, i, i % 3 ? a : b);
    for (int i = 0; i < n; i += 2) put(p[i], i % 3 ? a : b);
    CUdeviceptr x = try(17 * MB, b);
    if (x) slow_fill(b, x, 17 << 18, 99, MS(1));
    if (x) check_block("large", x, 17 << 18, 99, b);
    if (x) put(x, b);
    for (int i = 1; i < n; i += 2) check_block("half", p[i], 9 << 18, i, i % 3 ? a : b);
    for (int i = 1; i < n; i += 2) put(p[i], i % 3 ? b : a);
    if (round == 2) MUST(cudaDeviceSynchronize());
  }
  end(a);
  checked = 0; /* how many there is room for is the allocator's business */
  verdict("full");
}

/* Threads, each with streams that come and go; blocks of all sizes; one gives memory back beside them. */
static volatile int going;
static long thread_wrong[8];
static unsigned rnd(unsigned* s) { return *s = *s * 1664525u + 1013904223u, *s >> 8; }
static void look(long t, CUdeviceptr p, int n, int v, CUstream s) {
  int* got = malloc(4 * (size_t)n);
  MUST(cudaMemcpyAsync(got, (void*)(uintptr_t)p, 4 * (size_t)n, cudaMemcpyDeviceToHost, s));
  MUST(cudaStreamSynchronize(s));
  for (int i = 0; i < n; ++i)
    if (got[i] != v) {
      if (!thread_wrong[t]++) printf("thread %ld: number %d of %d is %d, not %d\n", t, i, n, got[i], v);
      break;
    }
  free(got);
}
static void* worker(void* arg) {
  long t = (long)(intptr_t)arg;
  unsigned s = 77 + 31 * (unsigned)t + (getenv("SEED") ? (unsigned)atoi(getenv("SEED")) * 1001 : 0);
  MUST(cudaSetDevice(0));
  CUstream mine = stream(cudaStreamNonBlocking), side = stream(cudaStreamNonBlocking);
  enum { M = 10 };
  CUdeviceptr p[M] = {0};
  int n[M], v[M], number = (int)t * 100000;
  for (int i = 0; i < 100; ++i) {
    int k = (int)(rnd(&s) % M);
    if (p[k]) {
      if (rnd(&s) % 2) look(t, p[k], n[k], v[k], mine);
      if (rnd(&s) % 4 == 0) {
        after(side, mine);
        slow_fill(side, p[k], n[k], 1, MS(1) / 4);
        put(p[k], side);
      } else {
        slow_fill(mine, p[k], n[k], 2, MS(1) / 4);
        put(p[k], mine);
      }
      p[k] = 0;
    } else {
      size_t bytes = rnd(&s) % 3 ? 2 * MB : 4 * (size_t)(MB + rnd(&s) % (3 * MB));
      if ((p[k] = try(bytes, mine))) {
        n[k] = (int)(bytes / 4);
        slow_fill(mine, p[k], n[k], v[k] = ++number, MS(1) / 4);
      }
    }
    if (rnd(&s) % 40 == 0) {
      MUST(cudaStreamDestroy(side));
      side = stream(cudaStreamNonBlocking);
    }
    if (rnd(&s) % 60 == 0) {
      CUstream next = stream(cudaStreamNonBlocking);
      after(next, mine);
      MUST(cudaStreamDestroy(mine));
      mine = next;
    }
  }
  for (int k = 0; k < M; ++k)
    if (p[k]) {
      look(t, p[k], n[k], v[k], mine);
      put(p[k], mine);
    }
  MUST(cudaStreamDestroy(side));
  return NULL;
}
static void* trimmer(void* arg) {
  unsigned s = 5;
  MUST(cudaSetDevice(0));
  while (going) {
    MUST(cudaMemPoolTrimTo(pool_of(0), (rnd(&s) % 4) * 16 * MB));
    if (rnd(&s) % 5 == 0) MUST(cudaDeviceSynchronize());
    usleep(rnd(&s) % 3000);
  }
  return arg;
}
static void case_threads(void) {
  begin_on(0);
  enum { T = 4 };
  pthread_t t[T], other;
  going = 1;
  for (long i = 0; i < T; ++i) pthread_create(&t[i], NULL, worker, (void*)(intptr_t)i);
  pthread_create(&other, NULL, trimmer, NULL);
  for (int i = 0; i < T; ++i) pthread_join(t[i], NULL);
  going = 0;
  pthread_join(other, NULL);
  for (int i = 0; i < T; ++i) printf("thread %d: %ld wrong\n", i, thread_wrong[i]);
  MUST(cudaDeviceSynchronize());
  MUST(cudaMemPoolTrimTo(pool_of(0), 0));
  printf("used: %llu, reserved: %llu\n", pool_number(pool_of(0), cudaMemPoolAttrUsedMemCurrent),
         pool_number(pool_of(0), cudaMemPoolAttrReservedMemCurrent));
}

CASES(CASE(pointers), CASE(copies), CASE(peers), CASE(fork), CASE(reset), CASE(graph), CASE(numbers), CASE(full), CASE(threads))
