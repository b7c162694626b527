/* Libraries that come, go, and bind in their own ways. Linked with the runtime of CUDA 13. */
#define NO_KERNELS
#include "common.h"

struct User {
  void* handle;
  int (*alloc)(void**, size_t);
  int (*release)(void*);
  int (*version)(void);
  int (*last_error)(void);
};
static struct User open_user(const char* path) {
  struct User u;
  u.handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!u.handle) fprintf(stderr, "%s\n", dlerror());
  REQUIRE(u.handle);
  u.alloc = (int (*)(void**, size_t))dlsym(u.handle, "user_alloc");
  u.release = (int (*)(void*))dlsym(u.handle, "user_free");
  u.version = (int (*)(void))dlsym(u.handle, "user_version");
  u.last_error = (int (*)(void))dlsym(u.handle, "user_last_error");
  REQUIRE(u.alloc && u.release && u.version && u.last_error);
  return u;
}
/* Each library gets the runtime that it was linked with, and errors stay in it. */
static void case_two_runtimes(void) {
  struct User twelve = open_user("libuser12.so"), thirteen = open_user("libuser.so");
  void *p, *q, *r;
  int version;
  MUST(cudaRuntimeGetVersion(&version));
  printf("runtimes %d %d %d\n", version, twelve.version(), thirteen.version());
  SAY(twelve.alloc(&p, 5000));
  SAY(thirteen.alloc(&q, 5000));
  SAY(cudaMalloc(&r, 5000));
  SAY(twelve.release(q));
  SAY(thirteen.release(p));
  SAY(twelve.release(r));
  SAY(twelve.alloc(&p, (size_t)1 << 50));
  SAY(twelve.last_error());
  SAY(thirteen.last_error());
  SAY(cudaGetLastError());
}
static void case_two_opened(void) {
  for (int i = 0; i < 2; ++i) {
    void* handle = dlopen(i ? "libcudart.so.12" : "libcudart.so.13", RTLD_NOW | RTLD_LOCAL);
    REQUIRE(handle);
    cudaError_t (*alloc)(void**, size_t) = (cudaError_t(*)(void**, size_t))dlsym(handle, "cudaMalloc");
    cudaError_t (*release)(void*) = (cudaError_t(*)(void*))dlsym(handle, "cudaFree");
    cudaError_t (*get_version)(int*) = (cudaError_t(*)(int*))dlsym(handle, "cudaRuntimeGetVersion");
    int version = 0;
    void* p;
    SAY(get_version(&version));
    printf("%d\n", version);
    for (int k = 0; k < 3; ++k) {
      SAY(alloc(&p, 7000));
      SAY(release(p));
    }
  }
}
/* A library leaves and another comes, perhaps to its addresses. */
static void case_reload(void) {
  for (int i = 0; i < 3; ++i) {
    struct User a = open_user("libuser.so");
    void* p;
    SAY(a.alloc(&p, 11111));
    SAY(a.release(p));
    SAY(dlclose(a.handle));
    struct User b = open_user("libother.so");
    SAY(b.alloc(&p, 22222));
    SAY(b.release(p));
    SAY(dlclose(b.handle));
  }
}
/* A library that finds its own neighbour by its RUNPATH, which holds for the library that calls dlopen only. */
static void case_runpath(void) {
  printf("not by name from here %d\n", dlopen("libplugin.so", RTLD_NOW) == NULL);
  void* handle = dlopen("librunpath.so", RTLD_NOW);
  REQUIRE(handle);
  int (*load)(void) = (int (*)(void))dlsym(handle, "load_plugin");
  REQUIRE(load);
  printf("from the library %d\n", load());
  void* p;
  SAY(cudaMalloc(&p, 1000));
  SAY(cudaFree(p));
}
/* Called through a preloaded library that looks for what comes next. */
static void case_next(void) {
  void* p;
  int (*count)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "next_count");
  SAY(cudaMallocHost(&p, 3000)); /* not through it */
  SAY(cudaFreeHost(p));
  SAY(cudaMalloc(&p, 3000));
  SAY(cudaFree(p));
  SAY(cudaMalloc(&p, 3000));
  REQUIRE(count);
  printf("getppid works %d, calls seen %d\n", getppid() > 0, count());
}
CASES(CASE(two_runtimes), CASE(two_opened), CASE(reload), CASE(runpath), CASE(next))
