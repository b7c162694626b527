/* A fault: the device barrier that makes nothing wait. Linked into a simulated driver before the true one, to prove that the
 * tests notice. */
#include "cuda_mini.h"

extern "C" __attribute__((visibility("default"))) CUresult cuCtxWaitEvent(CUcontext, CUevent) { return CUDA_SUCCESS; }
