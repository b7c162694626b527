/* A fault: the device barrier that makes nothing wait. Linked into a simulated driver before the true one, to prove that the
 * tests notice. */
#include "cuda_mini.h"

__attribute__((visibility("default"))) CUresult cuCtxWaitEvent(CUcontext ctx, CUevent event) {
  (void)ctx;
  (void)event;
  return CUDA_SUCCESS;
}
