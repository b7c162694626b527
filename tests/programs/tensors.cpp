/* A program that has PyTorch's allocator behind RTLD_LOCAL, as Python loads it. */
#include "common.h"
#include <exception>

static void* (*tensor_malloc)(unsigned long);
static void (*tensor_free)(void*);
static void (*tensor_stats)(unsigned long*);
static void (*counts)(long*);

static void load(void) {
  void* h = dlopen("libc10_cuda.so", RTLD_NOW | RTLD_LOCAL);
  if (!h) {
    fprintf(stderr, "%s\n", dlerror());
    exit(97);
  }
  *(void**)&tensor_malloc = dlsym(h, "tensor_malloc");
  *(void**)&tensor_free = dlsym(h, "tensor_free");
  *(void**)&tensor_stats = dlsym(h, "tensor_stats");
  *(void**)&counts = dlsym(h, "c10_counts");
}
static void say(void) {
  unsigned long s[3];
  long c[3];
  tensor_stats(s);
  counts(c);
  printf("allocated %lu reserved %lu peak %lu, libc10 saw %ld reports, %ld bytes, %ld failures\n", s[0], s[1], s[2], c[0], c[1], c[2]);
}
__attribute__((noinline)) static void* layer(unsigned long bytes) { return tensor_malloc(bytes); }

static void case_loop(void) {
  load();
  void* kept[8];
  for (int i = 0; i < 8; i++) kept[i] = layer(300000 + 1000 * i);
  for (int i = 0; i < 100; i++) tensor_free(layer(1000 * (i % 7 + 1) * 100));
  say();
  for (int i = 0; i < 4; i++) tensor_free(kept[i]);
  say();
}
static void case_throws(void) {
  load();
  for (int i = 0; i < 3; i++) {
    try {
      layer(7 * 512);
    } catch (const std::exception& e) {
      printf("threw %s\n", e.what());
    }
  }
  tensor_free(layer(100));
  say();
}
static void case_full(void) {
  load();
  void* kept[64];
  int n = 0;
  try {
    for (; n < 64; n++) kept[n] = layer(100 * MB);
  } catch (const std::bad_alloc&) {
    printf("out of memory after %d\n", n);
  }
  say();
  while (n) tensor_free(kept[--n]);
  say();
}
static void case_async_full(void) {
  load();
  void* h = dlopen("libc10_cuda.so", RTLD_NOW | RTLD_NOLOAD);
  *(void**)&tensor_malloc = dlsym(h, "tensor_malloc_async");
  int n = 0;
  try {
    for (; n < 64; n++) layer(100 * MB);
  } catch (const std::bad_alloc&) {
    printf("out of memory after %d\n", n);
  }
}
static void* worker(void*) {
  for (int i = 0; i < 500; i++) tensor_free(layer(5000));
  return nullptr;
}
static void case_threads(void) {
  load();
  layer(1);
  pthread_t t[4];
  for (auto& x : t) pthread_create(&x, nullptr, worker, nullptr);
  for (auto& x : t) pthread_join(x, nullptr);
  unsigned long s[3];
  tensor_stats(s);
  printf("allocated %lu\n", s[0]);
}
int main(int argc, char** argv) {
  static const struct Named cases[] = {{"loop", case_loop}, {"throws", case_throws}, {"full", case_full}, {"async_full", case_async_full}, {"threads", case_threads}};
  return run_case(cases, LENGTH(cases), argc, argv);
}
