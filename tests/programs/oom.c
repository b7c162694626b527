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
/* Waits for the snapshot of this number: its last line. */
static void written(int number) {
  char pattern[64], end[512];
  snprintf(pattern, sizeof pattern, "*.snapshot-%d.jsonl", number);
  for (int tries = 0; tries < 6000; ++tries, usleep(10000)) {
    glob_t found;
    if (glob(pattern, 0, NULL, &found)) continue;
    FILE* f = fopen(found.gl_pathv[0], "r");
    globfree(&found);
    REQUIRE(f);
    if (fseek(f, -(long)(sizeof end - 1), SEEK_END)) rewind(f);
    end[fread(end, 1, sizeof end - 1, f)] = 0;
    fclose(f);
    if (strstr(end, "\"kind\":\"footer\"")) return;
  }
  REQUIRE(!"a snapshot");
}
/* Without a handler of anybody's the first signal would end it. */
static void case_snapshot(void) {
  primary(0);
  load_weights();
  CUdeviceptr p = take(30 * MB);
  pass_by();
  for (int i = 0; i < 2; ++i) {
    kill(getpid(), SIGUSR2);
    written(i + 1);
    if (!i) MUST(cuMemFree(p));
  }
  printf("alive\n");
}
static void case_signal(void) {
  primary(0);
  take(MB);
  kill(getpid(), SIGUSR2);
  printf("alive\n");
}
CASES(CASE(fill), CASE(kinds), CASE(tries), CASE(retries), CASE(killed), CASE(snapshot), CASE(signal))
