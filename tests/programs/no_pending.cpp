// A driver that says of every event that it has come to pass. (The test that a block reused too early is noticed.)
#define CUDA_MINI_NO_ALIASES
#include "cuda_mini.h"
extern "C" __attribute__((visibility("default"))) CUresult cuEventQuery(CUevent) { return CUDA_SUCCESS; }
