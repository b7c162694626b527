/* Driver calls that throw when they are asked to: linked into a simulated driver before the true ones. No driver does this, but
 * a thread that is cancelled in one unwinds the same way, and a callback may throw through its caller. */
#define CUDA_MINI_NO_ALIASES
#include "cuda_mini.h"
#include <stdexcept>

#define THROWS(name, parameters) \
  extern "C" __attribute__((visibility("default"))) CUresult name parameters { throw std::runtime_error(#name); }
THROWS(cuMemAllocManaged, (CUdeviceptr*, size_t, unsigned))
THROWS(cuMemHostAlloc, (void**, size_t, unsigned))
THROWS(cuMemHostRegister_v2, (void*, size_t, unsigned))
THROWS(cuStreamCreate, (CUstream*, unsigned))
THROWS(cuStreamAddCallback, (CUstream, CUstreamCallback, void*, unsigned))
THROWS(cuModuleGetGlobal_v2, (CUdeviceptr*, size_t*, CUmodule, const char*))
