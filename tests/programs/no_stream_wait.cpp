// A driver in which cuStreamWaitEvent makes nothing wait. (The test that a stolen block is noticed.)
#define CUDA_MINI_NO_ALIASES
#include "cuda_mini.h"
extern "C" __attribute__((visibility("default"))) CUresult cuStreamWaitEvent(CUstream, CUevent, unsigned) { return CUDA_SUCCESS; }
extern "C" __attribute__((visibility("default"))) CUresult cuStreamWaitEvent_ptsz(CUstream, CUevent, unsigned) { return CUDA_SUCCESS; }
