// Names from before their _v2. Where the old function had 32-bit addresses it only exists to be found and refuses to work;
// where just the name changed it does what the new one does.
#include "sim.h"

// cuMemAlloc and friends of CUDA 2: CUdeviceptr and sizes were 32 bits
#define OLD_ABI(name) API CUresult name(void) { return CUDA_ERROR_NOT_SUPPORTED; }
OLD_ABI(cuDeviceTotalMem)
OLD_ABI(cuCtxCreate)
OLD_ABI(cuModuleGetGlobal)
OLD_ABI(cuMemGetInfo)
OLD_ABI(cuMemAlloc)
OLD_ABI(cuMemAllocPitch)
OLD_ABI(cuMemFree)
OLD_ABI(cuMemGetAddressRange)
OLD_ABI(cuMemAllocHost)
OLD_ABI(cuMemHostGetDevicePointer)
OLD_ABI(cuMemHostRegister)
OLD_ABI(cuMemcpyHtoD)
OLD_ABI(cuMemcpyDtoH)
OLD_ABI(cuMemcpyDtoD)
OLD_ABI(cuMemcpyHtoDAsync)
OLD_ABI(cuMemcpyDtoHAsync)
OLD_ABI(cuMemcpyDtoDAsync)
OLD_ABI(cuMemsetD8)
OLD_ABI(cuMemsetD16)
OLD_ABI(cuMemsetD32)

API CUresult cuCtxDestroy(CUcontext ctx) { return cuCtxDestroy_v2(ctx); }
API CUresult cuCtxPushCurrent(CUcontext ctx) { return cuCtxPushCurrent_v2(ctx); }
API CUresult cuCtxPopCurrent(CUcontext* ctx) { return cuCtxPopCurrent_v2(ctx); }
API CUresult cuStreamDestroy(CUstream stream) { return cuStreamDestroy_v2(stream); }
API CUresult cuEventDestroy(CUevent event) { return cuEventDestroy_v2(event); }
API CUresult cuDevicePrimaryCtxRelease(CUdevice dev) { return cuDevicePrimaryCtxRelease_v2(dev); }
API CUresult cuDevicePrimaryCtxReset(CUdevice dev) { return cuDevicePrimaryCtxReset_v2(dev); }
API CUresult cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned flags) { return cuDevicePrimaryCtxSetFlags_v2(dev, flags); }
