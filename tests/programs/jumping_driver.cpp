/* Driver calls that leave by longjmp when they are asked to: linked into a simulated driver before the true ones. A signal
 * handler that jumps out of a call does the same. */
#define CUDA_MINI_NO_ALIASES
#include "cuda_mini.h"
#include <setjmp.h>

extern "C" __attribute__((visibility("default"))) jmp_buf* jump_target;
jmp_buf* jump_target;

#define JUMPS(name, parameters) \
  extern "C" __attribute__((visibility("default"))) CUresult name parameters { longjmp(*jump_target, 7); }
JUMPS(cuMemAllocManaged, (CUdeviceptr*, size_t, unsigned))
JUMPS(cuMemHostAlloc, (void**, size_t, unsigned))
JUMPS(cuStreamCreate, (CUstream*, unsigned))
