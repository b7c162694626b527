/* What a program says by NVTX, with NVIDIA's own header. Its functions' results are checked here, the history by the test. */
#include "common.h"
#include "nvtx3/nvToolsExt.h"

/* With the tool or without: 0 and upwards, or NVTX_NO_PUSH_POP_TRACKING each time. */
static int followed;
#define LEVEL(call, level)                                             \
  do {                                                                 \
    int got = (call), want = followed ? (level) : NVTX_NO_PUSH_POP_TRACKING; \
    if (got != want) {                                                 \
      fprintf(stderr, "%s:%d: %s = %d, not %d\n", __FILE__, __LINE__, #call, got, want); \
      exit(96);                                                        \
    }                                                                  \
  } while (0)

static nvtxEventAttributes_t event(const char* name) {
  nvtxEventAttributes_t e = {0};
  e.version = NVTX_VERSION;
  e.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  e.messageType = NVTX_MESSAGE_TYPE_ASCII;
  e.message.ascii = name;
  return e;
}

static void* ends_it(void* id) {
  nvtxRangeEnd(*(nvtxRangeId_t*)id);
  return NULL;
}

static void case_ranges(void) {
  LEVEL(nvtxRangePushA("before CUDA"), 0);
  primary(0);
  LEVEL(nvtxRangePushW(L"wide \u00e9\u4e00"), 1);
  take(MB);
  nvtxMarkA("a mark");
  nvtxMarkW(L"a wide mark");
  for (int i = 0; i < 1000; ++i) {
    LEVEL(nvtxRangePushA("nothing happens"), 2);
    LEVEL(nvtxRangePop(), 2);
  }
  nvtxEventAttributes_t e = event("by attributes"), none = {0};
  LEVEL(nvtxRangePushEx(&e), 2);
  take(2 * MB);
  nvtxMarkEx(&e);
  LEVEL(nvtxRangePop(), 2);
  LEVEL(nvtxRangePushEx(&none), 2); /* no text, no size */
  LEVEL(nvtxRangePushEx(NULL), 3);
  LEVEL(nvtxRangePushA(NULL), 4);
  LEVEL(nvtxRangePop(), 4);
  LEVEL(nvtxRangePop(), 3);
  LEVEL(nvtxRangePop(), 2);
  LEVEL(nvtxRangePop(), 1);
  LEVEL(nvtxRangePop(), 0);
  int more = nvtxRangePop();
  REQUIRE(more < 0);
  /* Deeper than is followed. */
  for (int i = 0; i < 100; ++i) LEVEL(nvtxRangePushA("deep"), i);
  for (int i = 99; i >= 0; --i) LEVEL(nvtxRangePop(), i);
  LEVEL(nvtxRangePushA("after"), 0);
  take(3 * MB);
  LEVEL(nvtxRangePop(), 0);
}

/* Each domain nests by itself. */
static void case_domains(void) {
  primary(0);
  nvtxDomainHandle_t a = nvtxDomainCreateA("NCCL"), b = nvtxDomainCreateW(L"other");
  REQUIRE(!followed || (a && b && a != b && nvtxDomainCreateA("NCCL") == a));
  nvtxStringHandle_t name = nvtxDomainRegisterStringA(a, "registered"), wide = nvtxDomainRegisterStringW(a, L"wide \u00e9");
  nvtxEventAttributes_t e = event("in b"), r = event(NULL), w = event(NULL);
  r.messageType = w.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  r.message.registered = name;
  w.message.registered = wide;
  LEVEL(nvtxDomainRangePushEx(a, &r), 0);
  LEVEL(nvtxDomainRangePushEx(b, &e), 0);
  LEVEL(nvtxDomainRangePushEx(a, &w), 1);
  take(MB);
  LEVEL(nvtxDomainRangePop(b), 0); /* not the innermost */
  take(3 * MB);
  LEVEL(nvtxDomainRangePop(a), 1);
  LEVEL(nvtxDomainRangePop(a), 0);
  nvtxDomainMarkEx(b, &e);
  nvtxRangeId_t id = nvtxDomainRangeStartEx(a, &r), own = nvtxRangeStartA("started"), third = nvtxRangeStartW(L"third");
  REQUIRE(!followed || (id && own && third && id != own));
  pthread_t t;
  pthread_create(&t, NULL, ends_it, &own);
  pthread_join(t, NULL);
  nvtxDomainRangeEnd(a, id);
  nvtxRangeEnd(third);
  nvtxRangeEnd(0);
  nvtxNameCategoryA(1, "not of interest");
  nvtxNameOsThreadA(1, "not of interest");
  nvtxDomainDestroy(a);
}

/* More ranges than are followed, of two domains: each counts its own. */
static void case_deep(void) {
  primary(0);
  nvtxDomainHandle_t a = nvtxDomainCreateA("a"), b = nvtxDomainCreateA("b"), c = nvtxDomainCreateA("c");
  nvtxEventAttributes_t in_a = event("a"), in_b = event("b");
  for (int i = 0; i < 60; ++i) LEVEL(nvtxDomainRangePushEx(a, &in_a), i);
  for (int i = 0; i < 10; ++i) LEVEL(nvtxDomainRangePushEx(b, &in_b), i); /* 6 of them too deep */
  LEVEL(nvtxDomainRangePushEx(a, &in_a), 60);
  take(MB);
  LEVEL(nvtxDomainRangePop(a), 60);
  LEVEL(nvtxDomainRangePop(a), 59); /* makes room */
  LEVEL(nvtxDomainRangePushEx(b, &in_b), 10);
  REQUIRE(nvtxDomainRangePop(c) < 0);
  REQUIRE(nvtxRangePop() < 0);
  for (int i = 10; i >= 0; --i) LEVEL(nvtxDomainRangePop(b), i);
  REQUIRE(nvtxDomainRangePop(b) < 0);
  for (int i = 58; i >= 0; --i) LEVEL(nvtxDomainRangePop(a), i);
  REQUIRE(nvtxDomainRangePop(a) < 0);
  char name[16];
  for (int i = 0; i < 100000; ++i) {
    snprintf(name, sizeof name, "s%d", i);
    nvtxDomainRegisterStringA(a, name);
  }
}

static void* in_thread(void* name) {
  for (int i = 0; i < 100; ++i) {
    LEVEL(nvtxRangePushA(name), 0);
    if (i == 50) {
      MUST(cuCtxSetCurrent(primary(0)));
      take(MB);
    }
    LEVEL(nvtxRangePop(), 0);
  }
  return NULL;
}
static void case_threads(void) {
  primary(0);
  take(3 * MB);
  static char names[][4] = {"t0", "t1", "t2", "t3"};
  pthread_t t[4];
  LEVEL(nvtxRangePushA("main"), 0);
  for (int i = 0; i < 4; ++i) pthread_create(&t[i], NULL, in_thread, names[i]);
  for (int i = 0; i < 4; ++i) pthread_join(t[i], NULL);
  LEVEL(nvtxRangePop(), 0);
}

static void case_cost(void) {
  primary(0);
  take(MB);
  struct timespec t0, t1;
  double best = 1e9;
  for (int round = 0; round < 5; ++round) {
    clock_gettime(CLOCK_MONOTONIC, &t0);
    for (int i = 0; i < 300000; ++i) {
      nvtxRangePushA("aten::add, seq = 17, op_id = 4711");
      nvtxRangePop();
    }
    clock_gettime(CLOCK_MONOTONIC, &t1);
    double ns = ((double)(t1.tv_sec - t0.tv_sec) * 1e9 + (double)(t1.tv_nsec - t0.tv_nsec)) / 3e5;
    if (ns < best) best = ns;
  }
  printf("%.0f ns a pair\n", best);
}

static const struct Named cases[] = {CASE(ranges), CASE(domains), CASE(deep), CASE(threads), CASE(cost)};
int main(int argc, char** argv) {
  followed = getenv("FOLLOWED") != NULL;
  return run_case(cases, LENGTH(cases), argc, argv);
}
