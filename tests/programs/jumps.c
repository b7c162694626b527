/* longjmp over hooked calls: the caller goes on, and the hooks work afterwards. */
#include "common.h"
#include <setjmp.h>

#define JUMP(call)                                       \
  do {                                                   \
    int jumped = setjmp(target);                         \
    if (jumped) printf("%s jumped: %d\n", #call, jumped); \
    else printf("%s = %d\n", #call, (int)(call));        \
  } while (0)

static jmp_buf target;

static void case_all(void) {
  CUdeviceptr p = 0;
  void* host = NULL;
  CUstream s = NULL;
  jmp_buf** where = (jmp_buf**)dlsym(RTLD_DEFAULT, "jump_target");
  REQUIRE(where);
  *where = &target;
  primary(0);
  for (volatile int i = 0; i < 3; ++i) {
    JUMP(cuMemAllocManaged(&p, 1000, 1));
    JUMP(cuMemHostAlloc(&host, 1000, 0));
    JUMP(cuStreamCreate(&s, 0));
    JUMP(cudaMallocManaged((void**)&p, 1000, 1)); /* over the runtime's frames as well */
    JUMP(cuMemAlloc(&p, 1000));
    JUMP(cuMemFree(p));
  }
}
int main(int argc, char** argv) {
  static const struct Named cases[] = {{"all", case_all}};
  return run_case(cases, LENGTH(cases), argc, argv);
}
