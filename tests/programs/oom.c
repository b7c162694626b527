/* Runs out of memory on a device of 1 GiB, of which the context takes 256 MiB; and waits while a snapshot of it is made. */
#include "common.h"
#include <glob.h>

__attribute__((noinline)) static void load_weights(void) {
  take(100 * MB);
  take(60 * MB);
}
__attribute__((noinline)) static int keep_history(void) {
  CUdeviceptr p;
  return cuMemAlloc(&p, 20 * MB);
}
__attribute__((noinline)) static void pass_by(void) {
  MUST(cuMemFree(take(MB)));
}
/* A loop that keeps something of each step, beside what is loaded and what passes by. */
static int fill(void) {
  int code = 0;
  load_weights();
  while (!code) {
    for (int i = 0; i < 4; ++i) pass_by();
    code = keep_history();
  }
  return code;
}
static void case_fill(void) {
  primary(0);
  printf("fill = %d\n", fill());
}
/* The same for memory of the other kinds, and for calls that need some. */
static void case_kinds(void) {
  primary(0);
  CUdeviceptr p = 0;
  size_t pitch;
  CUmemGenericAllocationHandle h;
  CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  load_weights();
  SAY(cuMemAllocPitch(&p, &pitch, MB, 2000, 4));
  SAY(cuMemAllocAsync(&p, 2000 * MB, 0));
  SAY(cuMemCreate(&h, 2000 * MB, &prop, 0));
}
/* Tries sizes until one fits. */
static void case_tries(void) {
  primary(0);
  CUdeviceptr p = 0;
  for (int i = 0; i < 50; ++i) REQUIRE(cuMemAlloc(&p, (2000 - i) * MB) == 2);
  SAY(cuMemAlloc(&p, 100 * MB));
}
/* Tries the same again and again. */
static void case_retries(void) {
  primary(0);
  CUdeviceptr p = 0;
  for (int i = 0; i < 30; ++i) REQUIRE(cuMemAlloc(&p, i < 20 ? 2000 * MB : 1500 * MB) == 2);
  SAY(cuMemAlloc(&p, 100 * MB));
}
static void case_killed(void) {
  primary(0);
  fill();
  kill(getpid(), SIGKILL);
}
/* Whether the snapshot of this number is written to its last line. */
static int written(int number) {
  char pattern[32], end[400] = "";
  glob_t found;
  snprintf(pattern, sizeof pattern, "*.snapshot-%d.jsonl", number);
  if (glob(pattern, 0, NULL, &found)) return 0;
  int file = open(found.gl_pathv[0], O_RDONLY);
  off_t size = lseek(file, 0, SEEK_END), from = size > 399 ? size - 399 : 0;
  ssize_t read_in = pread(file, end, 399, from);
  close(file);
  globfree(&found);
  return read_in > 0 && strstr(end, "\"end\":\"snapshot\"") && strchr(end, 0)[-1] == '\n';
}
/* Without a handler of anybody's the first signal would end it. */
static void case_snapshot(void) {
  primary(0);
  load_weights();
  CUdeviceptr p = take(30 * MB);
  pass_by();
  for (int i = 0; i < 2; ++i) {
    kill(getpid(), SIGUSR2);
    for (int waited = 0; waited < 3000 && !written(i + 1); ++waited) usleep(10000);
    if (!i) MUST(cuMemFree(p));
  }
  printf("alive\n");
}
CASES(CASE(fill), CASE(kinds), CASE(tries), CASE(retries), CASE(killed), CASE(snapshot))
