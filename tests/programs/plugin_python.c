/* A library of Python's that comes while other threads allocate, and goes again: nothing in it may be called before it is
 * ready, or after. The arguments: a case, and the library. */
#include "common.h"

static CUcontext context;
static volatile int stop;
static const char* library;

static __attribute__((noinline)) void left(unsigned way, int depth);
static __attribute__((noinline)) void right(unsigned way, int depth);
/* Every way is another stack. */
static void next(unsigned way, int depth) {
  if (depth) {
    if (way & 1) right(way >> 1, depth - 1);
    else left(way >> 1, depth - 1);
    return;
  }
  CUdeviceptr p;
  MUST(cuMemAlloc(&p, 4096));
  MUST(cuMemFree(p));
}
static void left(unsigned way, int depth) {
  next(way, depth);
  __asm__ volatile("nop");
}
static void right(unsigned way, int depth) {
  next(way, depth);
  __asm__ volatile("nop; nop");
}
static void* worker(void* first) {
  cuCtxSetCurrent(context);
  for (unsigned way = (unsigned)(size_t)first; !stop && way < 60000; way += 3) next(way, 16);
  return NULL;
}
static void case_loading(void) {
  pthread_t threads[3];
  context = primary(0);
  for (size_t i = 0; i < 3; ++i) pthread_create(&threads[i], NULL, worker, (void*)i);
  usleep(20000);
  REQUIRE(dlopen(library, RTLD_NOW | RTLD_LOCAL));
  usleep(20000);
  stop = 1;
  for (size_t i = 0; i < 3; ++i) pthread_join(threads[i], NULL);
  puts("alive");
}
static void case_unloaded(void) {
  context = primary(0);
  for (int i = 0; i < 2; ++i) {
    void* python = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    REQUIRE(python);
    void (*begin)(int) = (void (*)(int))dlsym(python, "Py_InitializeEx");
    int (*run)(const char*) = (int (*)(const char*))dlsym(python, "PyRun_SimpleString");
    int (*end)(void) = (int (*)(void))dlsym(python, "Py_FinalizeEx");
    begin(0);
    left(1, 3);
    REQUIRE(!run("pass"));
    end();
    dlclose(python);
    for (unsigned way = 0; way < 64; ++way) next(way, 8);
    if (getenv("ONCE")) break; /* not every version can begin again */
  }
  puts("alive");
}
int main(int argc, char** argv) {
  static const struct Named cases[] = {{"loading", case_loading}, {"unloaded", case_unloaded}};
  library = argc > 2 ? argv[2] : "";
  return run_case(cases, LENGTH(cases), 2, argv);
}
